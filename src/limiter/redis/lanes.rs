//! The connections: deadpool makes, checks and recycles them. A call goes over a clone of one of them,
//! a *lane* that all calls share and that pipelines them; a connection for each command of its own
//! costs twice the processor time. A lane that fails or stays silent goes back to the pool, which
//! finds out whether it is of any use. To a Redis Cluster there is one lane, which looks after its
//! connections itself. No call waits longer than the timeout, whatever Redis does.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use deadpool_redis::{Connection, Manager, Pool, PoolError, Timeouts};
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, FromRedisValue, RedisError, ServerErrorKind};
use tokio::sync::Mutex;

use super::Address;
use crate::error::{Error, Result};
use crate::sabotage::Safeguard;

/// A script and the digest by which Redis knows it.
pub struct Script {
    source: String,
    digest: String,
}

impl Script {
    pub fn new(source: String) -> Self {
        let digest = redis::Script::new(&source).get_hash().to_owned();
        Self { source, digest }
    }
}

/// Whether a command whose reply was lost with its lane may be sent again. Where the first one had
/// counted, it counts twice then: too much is held back, and never too much let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    Once,
    Never,
}

pub struct Lanes {
    source: Source,
    lane: ArcSwapOption<Lane>,
    /// Held while a lane is fetched, so that a crowd fetches one.
    fetching: Mutex<()>,
    timeout: Duration,
}

/// Where lanes come from.
enum Source {
    One(Pool),
    Cluster(Box<ClusterClient>),
}

enum Lane {
    One(Connection),
    Cluster(ClusterConnection),
}

/// A share in a lane.
enum Link {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Lane {
    fn link(&self) -> Link {
        match self {
            Self::One(connection) => Link::One(MultiplexedConnection::clone(connection)),
            Self::Cluster(connection) => Link::Cluster(connection.clone()),
        }
    }
}

impl Source {
    async fn lane(&self) -> Result<Lane> {
        Ok(match self {
            Self::One(pool) => Lane::One(pool.get().await.map_err(pool_failed)?),
            Self::Cluster(client) => Lane::Cluster(client.get_async_connection().await?),
        })
    }
}

impl Lanes {
    /// Does not connect. `timeout` bounds every call.
    pub fn new(address: &Address, timeout: Duration) -> Result<Self> {
        let timeout = if Safeguard::Timeout.is_off() { Duration::from_mins(1) } else { timeout };
        let source = match address {
            Address::One(url) => Source::One(pool(url, timeout)?),
            Address::Cluster(urls) => {
                let client = ClusterClient::builder(urls.iter().map(String::as_str))
                    .connection_timeout(timeout)
                    .response_timeout(timeout)
                    // What is put into a purse twice is given twice: nothing is sent again unasked.
                    .retries(0);
                Source::Cluster(Box::new(client.build()?))
            }
        };
        Ok(Self { source, lane: ArcSwapOption::empty(), fetching: Mutex::default(), timeout })
    }

    /// Whether there are several masters, each with a part of the keys and a clock of its own.
    pub fn is_cluster(&self) -> bool {
        matches!(self.source, Source::Cluster(_))
    }

    /// What is left of the timeout to a call that has waited, in milliseconds.
    pub fn left_ms(&self, waited: Duration) -> i64 {
        i64::try_from(self.timeout.saturating_sub(waited).as_millis()).unwrap_or(i64::MAX)
    }

    /// What a call that took longer than the timeout ends with.
    pub fn timed_out(&self) -> Error {
        timed_out(self.timeout)
    }

    /// Sends a command and waits for its reply, within the timeout.
    pub async fn send<T: FromRedisValue>(&self, command: &Cmd, again: Again) -> Result<T> {
        self.within(self.timeout, self.try_send(command, again)).await
    }

    /// Runs a script; one that this Redis has not seen is loaded first. Redis forgets its scripts
    /// when it restarts or fails over. `waited` is the part of the timeout that is gone already.
    pub async fn run<T: FromRedisValue>(
        &self,
        script: &Script,
        again: Again,
        waited: Duration,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<T> {
        let left = self.timeout.saturating_sub(waited);
        if left.is_zero() {
            return Err(self.timed_out());
        }
        let running = async {
            let mut by_digest = redis::cmd("EVALSHA");
            by_digest.arg(&script.digest);
            arguments(&mut by_digest);
            match self.try_send(&by_digest, again).await {
                Err(Error::Counters(e))
                    if e.kind() == ErrorKind::Server(ServerErrorKind::NoScript) =>
                {
                    let mut by_source = redis::cmd("EVAL");
                    by_source.arg(&script.source);
                    arguments(&mut by_source);
                    self.try_send(&by_source, again).await
                }
                answer => answer,
            }
        };
        self.within(left, running).await
    }

    async fn within<T>(&self, left: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::time::timeout(left, call).await.unwrap_or_else(|_| {
            self.give_up_lane();
            Err(self.timed_out())
        })
    }

    /// One command over the lane, and once more over a new one when the lane turns out to be dead:
    /// so nobody notices that Redis was restarted. What the wrong master of a cluster refused is sent to the
    /// right one as soon as that is known.
    async fn try_send<T: FromRedisValue>(&self, command: &Cmd, again: Again) -> Result<T> {
        let mut pause = Duration::from_millis(1);
        loop {
            match self.send_once(command).await {
                Err(Error::Counters(e)) if again == Again::Once && is_dead(&e) => {
                    return self.send_once(command).await;
                }
                Err(Error::Counters(e)) if has_moved(&e) => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                answer => return answer,
            }
        }
    }

    async fn send_once<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        let answer = match self.lane().await? {
            Link::One(mut lane) => command.query_async(&mut lane).await,
            // Boxed: it is large.
            Link::Cluster(mut lane) => Box::pin(command.query_async(&mut lane)).await,
        };
        if answer.as_ref().is_err_and(is_dead) {
            self.give_up_lane();
        }
        Ok(answer?)
    }

    fn give_up_lane(&self) {
        if !self.is_cluster() {
            self.lane.store(None);
        }
    }

    async fn lane(&self) -> Result<Link> {
        if let Some(lane) = &*self.lane.load() {
            return Ok(lane.link());
        }
        let _one_at_a_time = self.fetching.lock().await;
        if let Some(lane) = &*self.lane.load() {
            return Ok(lane.link());
        }
        // Boxed: it is rare, and large.
        let lane = Arc::new(Box::pin(self.source.lane()).await?);
        self.lane.store(Some(lane.clone()));
        Ok(lane.link())
    }
}

fn pool(url: &str, timeout: Duration) -> Result<Pool> {
    // The call's own timeout covers both; a second one would cost a timer for each call.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeout))
        .set_response_timeout(None);
    Pool::builder(Manager::new_with_config(url, config)?)
        .max_size(4)
        .runtime(deadpool_redis::Runtime::Tokio1)
        .timeouts(Timeouts { wait: Some(timeout), create: Some(timeout), recycle: Some(timeout) })
        .build()
        .map_err(|e| Error::Internal(format!("the pool of Redis connections: {e}")))
}

/// What a call that took longer than the timeout ends with.
pub fn timed_out(timeout: Duration) -> Error {
    Error::CountersTimeout(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))
}

/// Whether a master of a cluster refused what belongs to another one.
fn has_moved(e: &RedisError) -> bool {
    let moved = [ServerErrorKind::Moved, ServerErrorKind::Ask, ServerErrorKind::TryAgain];
    matches!(e.kind(), ErrorKind::Server(server) if moved.contains(&server))
}

/// Whether another connection may do better: this one is broken, or leads to a Redis that is not the
/// master, or not yet.
fn is_dead(e: &RedisError) -> bool {
    let server = match e.kind() {
        ErrorKind::Server(server) => Some(server),
        _ => None,
    };
    e.is_io_error()
        || e.is_connection_dropped()
        || matches!(
            server,
            Some(
                ServerErrorKind::ReadOnly
                    | ServerErrorKind::MasterDown
                    | ServerErrorKind::BusyLoading
            )
        )
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
