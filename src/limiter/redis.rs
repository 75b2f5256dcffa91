//! The counters that all replicas share: one Lua script in Redis, and the channel on which replicas
//! tell each other what has changed.
//!
//! deadpool makes, checks and recycles the connections. A call goes over a clone of one of them, a
//! *lane* that all requests share and that pipelines them; a connection for each command of its own
//! costs twice the processor time. A lane that fails or stays silent goes back to the pool, which
//! finds out whether it is of any use. No call waits longer than the timeout, whatever Redis does.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use deadpool_redis::{Connection, Manager, Pool, PoolError, Timeouts};
use futures_util::StreamExt as _;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, FromRedisValue, RedisError, ServerErrorKind};
use tokio::sync::Mutex;

use super::{Counted, Engine, Keyspace, Purse, PurseState, Take, Taken};
use crate::clock::Timestamp;
use crate::error::{Error, Result};

const TAKE: &str = include_str!("../../lua/take.lua");
const RECALL: &str = include_str!("../../lua/recall.lua");
/// How long an untouched purse is kept: longer than any key is likely to rest.
const PURSE_LIFE_MS: i64 = 400 * 24 * 60 * 60 * 1000;

/// A script and the digest by which Redis knows it.
struct Script {
    source: &'static str,
    digest: String,
}

impl Script {
    fn new(source: &'static str) -> Self {
        Self { source, digest: redis::Script::new(source).get_hash().to_owned() }
    }
}

/// Whether a command whose reply was lost with its lane may be sent again. Where the first one had
/// counted, it counts twice then: too much is held back, and never too much let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Again {
    Once,
    Never,
}

pub struct RedisCounters {
    client: redis::Client,
    pool: Pool,
    lane: ArcSwapOption<Connection>,
    /// Held while a lane is fetched, so that a crowd fetches one.
    fetching: Mutex<()>,
    timeout: Duration,
    keyspace: Keyspace,
    take: Script,
    recall: Script,
}

impl RedisCounters {
    /// Does not connect: a replica starts while Redis is away. `timeout` bounds every call.
    pub fn new(url: &str, timeout: Duration, keyspace: Keyspace) -> Result<Self> {
        // The call's own timeout covers both; a second one would cost a timer for each call.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(timeout))
            .set_response_timeout(None);
        let pool = Pool::builder(Manager::new_with_config(url, config)?)
            .max_size(4)
            .runtime(deadpool_redis::Runtime::Tokio1)
            .timeouts(Timeouts {
                wait: Some(timeout),
                create: Some(timeout),
                recycle: Some(timeout),
            })
            .build()
            .map_err(|e| Error::Internal(format!("the pool of Redis connections: {e}")))?;
        Ok(Self {
            client: redis::Client::open(url)?,
            pool,
            lane: ArcSwapOption::empty(),
            fetching: Mutex::default(),
            timeout,
            keyspace,
            take: Script::new(TAKE),
            recall: Script::new(RECALL),
        })
    }

    /// Whether Redis answers in time.
    pub async fn ping(&self) -> Result<()> {
        self.bounded(self.send::<String>(&redis::cmd("PING"), Again::Once)).await.map(drop)
    }

    /// Tells every replica what has changed; an empty text only says that this one is alive.
    pub async fn announce(&self, subjects: &str) -> Result<()> {
        let mut command = redis::cmd("PUBLISH");
        command.arg(self.keyspace.channel()).arg(subjects);
        self.bounded(self.send::<i64>(&command, Again::Once)).await.map(drop)
    }

    /// Hears what [`RedisCounters::announce`] tells, until the connection breaks or falls silent for
    /// longer than `silence`.
    pub async fn listen(&self, silence: Duration, mut heard: impl FnMut(&str)) -> Result<()> {
        let subscribing = async {
            let mut pubsub = self.client.get_async_pubsub().await?;
            pubsub.subscribe(self.keyspace.channel()).await?;
            Ok::<_, RedisError>(pubsub.into_on_message())
        };
        let mut messages = tokio::time::timeout(silence, subscribing)
            .await
            .map_err(|_| Error::CountersTimeout(millis(silence)))??;
        loop {
            let message = tokio::time::timeout(silence, messages.next())
                .await
                .map_err(|_| Error::CountersTimeout(millis(silence)))?;
            let Some(message) = message else { return Ok(()) };
            heard(&message.get_payload::<String>().unwrap_or_default());
        }
    }

    async fn bounded<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::time::timeout(self.timeout, call).await.unwrap_or_else(|_| {
            self.lane.store(None);
            Err(Error::CountersTimeout(millis(self.timeout)))
        })
    }

    /// Runs a script; one that this Redis has not seen is loaded first. Redis forgets its scripts
    /// when it restarts or fails over.
    async fn run<T: FromRedisValue>(
        &self,
        script: &Script,
        again: Again,
        command: impl Fn(&mut Cmd),
    ) -> Result<T> {
        let mut by_digest = redis::cmd("EVALSHA");
        by_digest.arg(&script.digest);
        command(&mut by_digest);
        match self.send(&by_digest, again).await {
            Err(Error::Counters(e)) if e.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let mut by_source = redis::cmd("EVAL");
                by_source.arg(script.source);
                command(&mut by_source);
                self.send(&by_source, again).await
            }
            answer => answer,
        }
    }

    /// One command over the lane, and once more over a new one when the lane turns out to be dead:
    /// so nobody notices that Redis was restarted.
    async fn send<T: FromRedisValue>(&self, command: &Cmd, again: Again) -> Result<T> {
        match self.send_once(command).await {
            Err(Error::Counters(e)) if again == Again::Once && is_dead(&e) => {
                self.send_once(command).await
            }
            answer => answer,
        }
    }

    async fn send_once<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        let mut lane = self.lane().await?;
        let answer = command.query_async(&mut lane).await;
        if answer.as_ref().is_err_and(is_dead) {
            self.lane.store(None);
        }
        Ok(answer?)
    }

    async fn lane(&self) -> Result<MultiplexedConnection> {
        if let Some(lane) = &*self.lane.load() {
            return Ok(MultiplexedConnection::clone(lane));
        }
        // Boxed: a call that finds its lane, as nearly all do, does not carry this around.
        Box::pin(self.fetch()).await
    }

    async fn fetch(&self) -> Result<MultiplexedConnection> {
        let _one_at_a_time = self.fetching.lock().await;
        if let Some(lane) = &*self.lane.load() {
            return Ok(MultiplexedConnection::clone(lane));
        }
        let lane = Arc::new(self.pool.get().await.map_err(pool_failed)?);
        self.lane.store(Some(lane.clone()));
        Ok(MultiplexedConnection::clone(&lane))
    }
}

fn is_dead(e: &RedisError) -> bool {
    e.is_io_error() || e.is_connection_dropped()
}

fn pool_failed(cause: PoolError) -> Error {
    match cause {
        PoolError::Backend(cause) => cause.into(),
        PoolError::Timeout(_)
        | PoolError::Closed
        | PoolError::NoRuntimeSpecified
        | PoolError::PostCreateHook(_) => {
            RedisError::from((ErrorKind::Io, "no connection", cause.to_string())).into()
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Engine for RedisCounters {
    async fn take(&self, take: &Take, now: Option<Timestamp>) -> Result<Taken> {
        let command = |command: &mut Cmd| write_take(command, take, now);
        // What is put into a purse twice is given twice.
        let puts = take.spend.as_ref().is_some_and(|spend| spend.put > 0);
        let again = if puts { Again::Never } else { Again::Once };
        let reply: Vec<i64> = self.bounded(self.run(&self.take, again, command)).await?;
        read_taken(take, &reply)
            .ok_or_else(|| Error::Internal("the script's reply is too short".into()))
    }

    async fn recall(&self, purse: &str) -> Result<i64> {
        let command = |command: &mut Cmd| {
            command.arg(1).arg(purse);
        };
        self.bounded(self.run(&self.recall, Again::Never, command)).await
    }
}

fn write_take(command: &mut Cmd, take: &Take, now: Option<Timestamp>) {
    command.arg(take.windows.len() + usize::from(take.spend.is_some()));
    for window in &take.windows {
        command.arg(&*window.key);
    }
    if let Some(spend) = &take.spend {
        command.arg(&spend.purse);
    }
    match now {
        Some(now) => command.arg(now.0),
        None => command.arg(""),
    };
    command.arg(take.windows.len());
    for window in &take.windows {
        command.arg(window.limit).arg(window.duration_ms).arg(window.cost);
    }
    if let Some(spend) = &take.spend {
        command.arg(spend.cost).arg(spend.put).arg(spend.bank.unwrap_or(-1)).arg(PURSE_LIFE_MS);
    }
}

fn read_taken(take: &Take, reply: &[i64]) -> Option<Taken> {
    let mut reply = reply.iter().copied().skip(1);
    let taken = reply.next()? == 1;
    let mut windows = Vec::with_capacity(take.windows.len());
    for _ in &take.windows {
        windows.push(Counted { effective: reply.next()?, number: reply.next()? });
    }
    let purse = match take.spend {
        None => None,
        Some(_) => Some(Purse {
            state: match reply.next()? {
                0 => PurseState::Enough,
                1 => PurseState::Short,
                _ => PurseState::Exceeded,
            },
            units: reply.next()?,
            bank: reply.next().filter(|bank| *bank >= 0),
        }),
    };
    Some(Taken { taken, windows, purse })
}
