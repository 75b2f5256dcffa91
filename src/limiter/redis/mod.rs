//! The counters that all replicas share: Lua scripts in Redis, and the channel on which replicas tell
//! each other what has changed.

mod batch;
mod breaker;
pub mod inspect;
mod lanes;
mod queue;
mod split;
mod time;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::aio::PubSub;
use redis::cluster_routing::Slot;
use redis::{Cmd, RedisError};
use tokio::sync::oneshot;

use self::breaker::Breaker;
use self::lanes::{Again, Lanes, Script, timed_out};
use self::queue::{Asked, Queue, Worker};
use self::time::RedisTime;
use super::{Closed, EXACT_MAX, Engine, Keyspace, Take, Taken, Window};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::metrics::{Counter, Metrics};
use crate::sabotage::Safeguard;
use crate::traces;

/// How often Redis is asked whether it is back.
const PROBE_EVERY: Duration = Duration::from_millis(100);

/// Where Redis is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    One(String),
    /// Some of the nodes of a Redis Cluster; they tell of the others.
    Cluster(Vec<String>),
}

impl Address {
    /// `redis-cluster://[user:password@]host:port[,host:port…]` is a cluster; any other URL is one server.
    pub fn parse(url: &str) -> Self {
        let Some(rest) = url.strip_prefix(CLUSTER_SCHEME) else {
            return Self::One(url.to_owned());
        };
        let (user, nodes) = match rest.rsplit_once('@') {
            Some((user, nodes)) => (format!("{user}@"), nodes),
            None => (String::new(), rest),
        };
        let nodes = nodes.trim_end_matches('/').split(',');
        Self::Cluster(nodes.map(|node| format!("redis://{user}{node}")).collect())
    }

    fn urls(&self) -> &[String] {
        match self {
            Self::One(url) => std::slice::from_ref(url),
            Self::Cluster(urls) => urls,
        }
    }
}

/// What the URL of a Redis Cluster begins with.
pub const CLUSTER_SCHEME: &str = "redis-cluster://";

pub struct RedisCounters {
    /// One for each node that was named: any of them carries the channel.
    clients: Vec<redis::Client>,
    keyspace: Keyspace,
    close: Script,
    busy: Script,
    give_back: Script,
    queue: Arc<Queue>,
    calls: Arc<Calls>,
}

/// What the workers need.
struct Calls {
    lanes: Lanes,
    take: Script,
    breaker: Breaker,
    time: RedisTime,
    asked: Counter,
    failed: Counter,
}

impl RedisCounters {
    /// Does not connect: a replica starts while Redis is away. `timeout` bounds every call.
    pub fn new(
        url: &str,
        timeout: Duration,
        keyspace: Keyspace,
        metrics: &Metrics,
    ) -> Result<Self> {
        let address = Address::parse(url);
        let lanes = Lanes::new(&address, timeout)?;
        let workers_max =
            if lanes.is_cluster() { queue::CLUSTER_WORKERS_MAX } else { queue::WORKERS_MAX };
        let clients = address
            .urls()
            .iter()
            .map(|url| redis::Client::open(url.as_str()))
            .collect::<std::result::Result<_, _>>()?;
        let take = Script::new(fenced(include_str!("../../../lua/take.lua")));
        Ok(Self {
            clients,
            keyspace,
            close: Script::new(fenced(include_str!("../../../lua/close.lua"))),
            busy: Script::new(include_str!("../../../lua/busy.lua").to_owned()),
            give_back: Script::new(include_str!("../../../lua/give_back.lua").to_owned()),
            queue: Queue::new(workers_max),
            calls: Arc::new(Calls {
                lanes,
                take,
                breaker: Breaker::new(),
                time: RedisTime::new(),
                asked: metrics.counters_calls.clone(),
                failed: metrics.counters_failures.clone(),
            }),
        })
    }

    /// Whether Redis answers in time.
    pub async fn ping(&self) -> Result<()> {
        self.calls.ping().await
    }

    /// Whether Redis has been given up until it answers a probe.
    pub fn is_away(&self) -> bool {
        self.calls.breaker.is_open()
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
            let mut pubsub = self.pubsub().await?;
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

impl RedisCounters {
    /// A connection for the channel, to the first node that is there.
    async fn pubsub(&self) -> std::result::Result<PubSub, RedisError> {
        let mut failed = None;
        for client in &self.clients {
            match client.get_async_pubsub().await {
                Ok(pubsub) => return Ok(pubsub),
                Err(e) => failed = Some(e),
            }
        }
        Err(failed.unwrap_or_else(|| RedisError::from((redis::ErrorKind::Io, "no address"))))
    }

    /// Takes everything or nothing. An error is an outage: what was asked may have been done
    /// nevertheless, unless it came to Redis after the timeout.
    pub async fn take(&self, take: &Take, now: Option<Timestamp>) -> Result<Taken> {
        if self.is_away() {
            return Err(Error::CountersAway);
        }
        if Safeguard::AtomicTake.is_off() && take.windows.iter().any(|window| window.cost > 0) {
            return self.take_in_two_steps(take, now).await;
        }
        if self.calls.lanes.is_cluster() {
            return Box::pin(traces::step("redis.take", self.take_by_slots(take, now))).await;
        }
        traces::step("redis.take", self.ask(take.clone(), None, now)).await
    }

    async fn ask(&self, take: Take, slot: Option<Slot>, now: Option<Timestamp>) -> Result<Taken> {
        let (answer, answered) = oneshot::channel();
        let since = self.queue.now();
        // A task of its own: whoever stops waiting must not end the batch that others are part of.
        if let Some(worker) = self.queue.add(Asked { take, now, slot, since, answer }) {
            tokio::spawn(work(self.calls.clone(), worker));
        }
        // No timer: a batch has the time that is left to its oldest take, so nobody waits longer.
        answered
            .await
            .unwrap_or_else(|_| Err(Error::Internal("the counters' worker was lost".into())))
    }

    /// What a limiter does that has no script. Only for the tests that show what comes of it.
    async fn take_in_two_steps(&self, take: &Take, now: Option<Timestamp>) -> Result<Taken> {
        let mut look = take.clone();
        look.windows.iter_mut().for_each(|window| window.cost = 0);
        look.spend = None;
        let seen = self.ask(look, None, now).await?;
        let mut taken = take.clone();
        if seen.windows.iter().zip(&take.windows).all(|(count, window)| count.passed(window)) {
            taken.windows.iter_mut().for_each(|window| window.limit = EXACT_MAX);
        }
        self.ask(taken, None, now).await
    }

    /// Of each purse what was spent from it, where something was less than `within` ago. A cluster, whose
    /// scripts see one slot each, tells of none: closing one by one finds out as well.
    pub async fn busy(
        &self,
        purses: &[String],
        within: Duration,
        now: Option<Timestamp>,
    ) -> Result<Vec<Option<i64>>> {
        if self.calls.lanes.is_cluster() || purses.is_empty() {
            return Ok(vec![None; purses.len()]);
        }
        if self.is_away() {
            return Err(Error::CountersAway);
        }
        let arguments = |command: &mut Cmd| {
            command.arg(purses.len()).arg(purses);
            batch::time(command, now);
            command.arg(u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
        };
        let asking = self.calls.lanes.run(&self.busy, Again::Once, Duration::ZERO, arguments);
        let spent: Vec<i64> = self.calls.watched(asking).await?;
        Ok(spent.into_iter().map(|spent| (spent >= 0).then_some(spent)).collect())
    }

    /// Closes a purse for good, unless something was spent from it for less than `idle` ago.
    pub async fn close(
        &self,
        purse: &str,
        idle: Duration,
        now: Option<Timestamp>,
    ) -> Result<Closed> {
        if self.is_away() {
            return Err(Error::CountersAway);
        }
        let arguments = |command: &mut Cmd| {
            command.arg(1).arg(purse);
            batch::time(command, now);
            command.arg(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX));
        };
        let closing = self.calls.lanes.run(&self.close, Again::Once, Duration::ZERO, arguments);
        let (state, spent): (i64, i64) = self.calls.watched(closing).await?;
        Ok(match state {
            0 => Closed::Unknown,
            1 => Closed::Settled { spent },
            _ => Closed::Busy,
        })
    }
}

/// The script as it is, but for the tests that show what comes of a purse that outlives its Redis.
fn fenced(source: &'static str) -> String {
    let with = "local id = string.match";
    match Safeguard::Fence.is_off() {
        true => source.replace(with, "local id = '0000000000001' or string.match"),
        false => source.to_owned(),
    }
}

impl Engine for RedisCounters {
    async fn count(&self, windows: &[Window], now: Option<Timestamp>) -> Result<Taken> {
        self.take(&Take { windows: windows.to_vec(), spend: None }, now).await
    }
}

/// Runs batches until there is none.
async fn work(calls: Arc<Calls>, mut worker: Worker) {
    while let Some(batch) = worker.next() {
        let takes: Vec<_> = batch.iter().map(|asked| &asked.take).collect();
        let running = calls.run(&takes, batch[0].now, worker.waited(&batch[0]));
        let outcome = calls.watched(running).await;
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
        if self.breaker.is_open() {
            return Err(Error::CountersAway);
        }
        // What is put into a purse twice is given twice.
        let again = if takes.iter().any(|take| take.fills()) { Again::Never } else { Again::Once };
        // The clocks of a cluster's masters differ, so there is no deadline that is right for all.
        let deadline = match now {
            None if !self.lanes.is_cluster() => self.time.after_ms(self.lanes.left_ms(waited)),
            None | Some(_) => None,
        };
        let arguments = |command: &mut Cmd| batch::write(command, takes, now, deadline);
        let reply: Vec<u8> = self.lanes.run(&self.take, again, waited, arguments).await?;
        let answer = batch::read(takes, &reply)
            .ok_or_else(|| Error::Internal("the script's reply is too short".into()))?;
        match answer.taken {
            Some(taken) => {
                self.time.heard(answer.at);
                Ok(taken)
            }
            None => {
                self.time.was_late(answer.at);
                Err(Error::CountersLate)
            }
        }
    }

    async fn ping(&self) -> Result<()> {
        self.lanes.send::<String>(&redis::cmd("PING"), Again::Once).await.map(drop)
    }

    /// The call's outcome, which the breaker hears of too.
    async fn watched<T>(self: &Arc<Self>, call: impl Future<Output = Result<T>>) -> Result<T> {
        let outcome = call.await;
        self.asked.inc();
        match &outcome {
            Ok(_) => self.breaker.answered(),
            Err(Error::CountersAway) => {}
            Err(cause) => {
                self.failed.inc();
                if self.breaker.failed() {
                    tracing::warn!(error = %cause, "Redis is given up until it answers: {cause}");
                    tokio::spawn(probe(self.clone()));
                }
            }
        }
        outcome
    }
}

/// Asks until Redis answers; then all is as before.
async fn probe(calls: Arc<Calls>) {
    loop {
        tokio::time::sleep(PROBE_EVERY).await;
        if calls.ping().await.is_ok() {
            calls.breaker.close();
            tracing::info!("Redis answers again");
            return;
        }
    }
}
