//! The counters that all replicas share: Lua scripts in Redis, and the channel on which replicas tell
//! each other what has changed.

mod batch;
mod lanes;
mod queue;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::{Cmd, RedisError};
use tokio::sync::oneshot;

use self::lanes::{Again, Lanes, Script, timed_out};
use self::queue::{Asked, Queue, Worker};
use super::{Engine, Keyspace, Take, Taken};
use crate::clock::Timestamp;
use crate::error::{Error, Result};

pub struct RedisCounters {
    client: redis::Client,
    keyspace: Keyspace,
    recall: Script,
    queue: Arc<Queue>,
    calls: Arc<Calls>,
}

/// What the workers need.
struct Calls {
    lanes: Lanes,
    take: Script,
}

impl RedisCounters {
    /// Does not connect: a replica starts while Redis is away. `timeout` bounds every call.
    pub fn new(url: &str, timeout: Duration, keyspace: Keyspace) -> Result<Self> {
        let lanes = Lanes::new(url, timeout)?;
        let take = Script::new(include_str!("../../../lua/take.lua"));
        Ok(Self {
            client: redis::Client::open(url)?,
            keyspace,
            recall: Script::new(include_str!("../../../lua/recall.lua")),
            queue: Queue::new(),
            calls: Arc::new(Calls { lanes, take }),
        })
    }

    /// Whether Redis answers in time.
    pub async fn ping(&self) -> Result<()> {
        self.calls.lanes.send::<String>(&redis::cmd("PING"), Again::Once).await.map(drop)
    }

    /// Tells every replica what has changed; an empty text only says that this one is alive.
    pub async fn announce(&self, subjects: &str) -> Result<()> {
        let mut command = redis::cmd("PUBLISH");
        command.arg(self.keyspace.channel()).arg(subjects);
        self.calls.lanes.send::<i64>(&command, Again::Once).await.map(drop)
    }

    /// Hears what [`RedisCounters::announce`] tells, until the connection breaks or falls silent for
    /// longer than `silence`.
    pub async fn listen(&self, silence: Duration, mut heard: impl FnMut(&str)) -> Result<()> {
        let subscribing = async {
            let mut pubsub = self.client.get_async_pubsub().await?;
            pubsub.subscribe(self.keyspace.channel()).await?;
            Ok::<_, RedisError>(pubsub.into_on_message())
        };
        let mut messages =
            tokio::time::timeout(silence, subscribing).await.map_err(|_| timed_out(silence))??;
        loop {
            let message = tokio::time::timeout(silence, messages.next())
                .await
                .map_err(|_| timed_out(silence))?;
            let Some(message) = message else { return Ok(()) };
            heard(&message.get_payload::<String>().unwrap_or_default());
        }
    }
}

impl Engine for RedisCounters {
    async fn take(&self, take: &Take, now: Option<Timestamp>) -> Result<Taken> {
        let (answer, answered) = oneshot::channel();
        let since = self.queue.now();
        // A task of its own: whoever stops waiting must not end the batch that others are part of.
        if let Some(worker) = self.queue.add(Asked { take: take.clone(), now, since, answer }) {
            tokio::spawn(work(self.calls.clone(), worker));
        }
        // No timer: a batch has the time that is left to its oldest take, so nobody waits longer.
        answered
            .await
            .unwrap_or_else(|_| Err(Error::Internal("the counters' worker was lost".into())))
    }

    async fn recall(&self, purse: &str) -> Result<i64> {
        let arguments = |command: &mut Cmd| {
            command.arg(1).arg(purse);
        };
        self.calls.lanes.run(&self.recall, Again::Never, Duration::ZERO, arguments).await
    }
}

/// Runs batches until there is none.
async fn work(calls: Arc<Calls>, mut worker: Worker) {
    while let Some(batch) = worker.next() {
        let takes: Vec<_> = batch.iter().map(|asked| &asked.take).collect();
        let outcome = calls.run(&takes, batch[0].now, worker.waited(&batch[0])).await;
        match outcome {
            // Who has stopped waiting hears nothing.
            Ok(taken) => batch.into_iter().zip(taken).for_each(|(asked, taken)| {
                let _ = asked.answer.send(Ok(taken));
            }),
            Err(cause) => {
                let cause = Arc::new(cause);
                for asked in batch {
                    let _ = asked.answer.send(Err(Error::Shared(cause.clone())));
                }
            }
        }
    }
}

impl Calls {
    async fn run(
        &self,
        takes: &[&Take],
        now: Option<Timestamp>,
        waited: Duration,
    ) -> Result<Vec<Taken>> {
        // What is put into a purse twice is given twice.
        let again = if takes.iter().any(|take| take.puts()) { Again::Never } else { Again::Once };
        let arguments = |command: &mut Cmd| batch::write(command, takes, now);
        let reply: Vec<i64> = self.lanes.run(&self.take, again, waited, arguments).await?;
        batch::read(takes, &reply)
            .ok_or_else(|| Error::Internal("the script's reply is too short".into()))
    }
}
