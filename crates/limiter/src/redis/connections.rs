//! The connections: deadpool makes, checks and recycles them. A call goes over a clone of one of them,
//! a *lane* that all calls share and that pipelines them; a connection for each command of its own
//! costs twice the processor time. A lane that stays silent goes back to the pool, which finds out whether it is of any
//! use. Where the server says that it is not the master, or not yet, every connection to it is discarded, and the next
//! one resolves the address again. To a Redis Cluster there is one lane, which looks after its connections itself. No
//! caller waits longer than the timeout, whatever Redis does.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use deadpool_redis::{Connection, Manager, Pool, PoolError, Timeouts};
use deadpool_redis::{Hook, HookError, Metrics};
use foundation::clock::Stopwatch;
use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use futures_util::FutureExt as _;
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, FromRedisValue, RedisError, ServerErrorKind};
use tokio::sync::Mutex as AsyncMutex;

use super::{Address, budget};

/// How long a connection may take to come about at least, whatever the timeout of a call: nobody waits for it
/// longer than for the call.
const CONNECT_MIN: Duration = Duration::from_millis(500);
/// How long a connection that stayed silent may take to show that it is of use.
const RECYCLE_MIN: Duration = Duration::from_millis(100);
/// How long a cluster's reply is waited for at least. Callers do not wait that long.
const CLUSTER_REPLY_MIN: Duration = Duration::from_secs(2);

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
pub enum RetryPolicy {
    Once,
    Never,
}

pub struct RedisConnections {
    source: ConnectionSource,
    lane: ArcSwapOption<SharedConnection>,
    /// Held while a lane is fetched, so that a crowd fetches one.
    fetching: AsyncMutex<()>,
    discarded: Arc<Discarded>,
    timeout: Duration,
}

/// When connections were last discarded: none that is older is used again.
#[derive(Default)]
struct Discarded(Mutex<Option<Stopwatch>>);

impl Discarded {
    fn discard(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Stopwatch::new());
    }

    fn includes(&self, connection: &Metrics) -> bool {
        let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() <= connection.age())
    }
}

/// Where lanes come from.
enum ConnectionSource {
    One(Pool),
    Cluster(Box<ClusterClient>),
}

enum SharedConnection {
    One(Connection),
    Cluster(ClusterConnection),
}

/// A share in a lane.
enum ConnectionHandle {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl SharedConnection {
    fn link(&self) -> ConnectionHandle {
        match self {
            Self::One(connection) => {
                ConnectionHandle::One(MultiplexedConnection::clone(connection))
            }
            Self::Cluster(connection) => ConnectionHandle::Cluster(connection.clone()),
        }
    }
}

impl ConnectionSource {
    async fn lane(&self) -> Result<SharedConnection> {
        Ok(match self {
            Self::One(pool) => SharedConnection::One(pool.get().await.map_err(pool_failed)?),
            Self::Cluster(client) => {
                SharedConnection::Cluster(client.get_async_connection().await?)
            }
        })
    }
}

impl RedisConnections {
    /// Does not connect. `timeout` bounds every call.
    pub fn new(address: &Address, timeout: Duration) -> Result<Self> {
        let timeout =
            if Safeguard::Timeout.is_disabled() { Duration::from_mins(1) } else { timeout };
        let discarded = Arc::<Discarded>::default();
        let source = match address {
            Address::One(url) => ConnectionSource::One(pool(url, timeout, discarded.clone())?),
            Address::Cluster(urls) => {
                let client = ClusterClient::builder(urls.iter().map(String::as_str))
                    .connection_timeout(timeout)
                    .response_timeout(timeout.max(CLUSTER_REPLY_MIN))
                    // What is put into a purse twice is given twice: nothing is sent again unasked.
                    .retries(0);
                ConnectionSource::Cluster(Box::new(client.build()?))
            }
        };
        let (lane, fetching) = (ArcSwapOption::empty(), AsyncMutex::default());
        Ok(Self { source, lane, fetching, discarded, timeout })
    }

    /// Whether there are several masters, each with a part of the keys and a clock of its own.
    pub fn is_cluster(&self) -> bool {
        matches!(self.source, ConnectionSource::Cluster(_))
    }

    /// How long a caller waits at most.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// What a call that took longer than the timeout ends with.
    pub fn timed_out(&self) -> Error {
        timed_out(self.timeout)
    }

    /// Sends a command and waits for its reply, within the timeout.
    pub async fn send<T: FromRedisValue>(&self, command: &Cmd, again: RetryPolicy) -> Result<T> {
        self.within(self.try_send(command, again)).await
    }

    /// Sends a command and waits for its reply, however long it takes.
    pub async fn send_to_end<T: FromRedisValue>(
        &self,
        command: &Cmd,
        again: RetryPolicy,
    ) -> Result<T> {
        self.try_send(command, again).await
    }

    /// Runs a script and waits for its reply, within the timeout.
    pub async fn run<T: FromRedisValue>(
        &self,
        script: &Script,
        again: RetryPolicy,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<T> {
        self.within(self.run_to_end(script, again, arguments)).await
    }

    async fn within<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        budget::within(self.timeout, call).await.unwrap_or_else(|| {
            self.discard_connection();
            Err(self.timed_out())
        })
    }

    /// Runs a script, however long it takes; one that this Redis has not seen is loaded first. Redis forgets its
    /// scripts when it restarts or fails over.
    pub async fn run_to_end<T: FromRedisValue>(
        &self,
        script: &Script,
        again: RetryPolicy,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<T> {
        let mut by_digest = redis::cmd("EVALSHA");
        by_digest.arg(&script.digest);
        arguments(&mut by_digest);
        match self.try_send(&by_digest, again).await {
            Err(Error::Counters(e)) if e.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let mut by_source = redis::cmd("EVAL");
                by_source.arg(&script.source);
                arguments(&mut by_source);
                self.try_send(&by_source, again).await
            }
            answer => answer,
        }
    }

    /// One command over the lane, and once more over a new one when the lane turns out to be dead:
    /// so nobody notices that Redis was restarted. What the wrong master of a cluster refused is sent to the
    /// right one as soon as that is known.
    async fn try_send<T: FromRedisValue>(&self, command: &Cmd, again: RetryPolicy) -> Result<T> {
        let mut pause = Duration::from_millis(1);
        loop {
            match self.send_once(command).await {
                Err(Error::Counters(e)) if again == RetryPolicy::Once && is_dead(&e) => {
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
            ConnectionHandle::One(mut lane) => command.query_async(&mut lane).await,
            // Boxed: it is large.
            ConnectionHandle::Cluster(mut lane) => Box::pin(command.query_async(&mut lane)).await,
        };
        if answer.as_ref().is_err_and(is_dead) {
            self.discarded.discard();
            self.discard_connection();
        }
        Ok(answer?)
    }

    /// Has the pool find out whether the lane is of any use, before it is used again. Replies that are still awaited go
    /// on being read.
    pub fn discard_connection(&self) {
        if !self.is_cluster() {
            self.lane.store(None);
        }
    }

    async fn lane(&self) -> Result<ConnectionHandle> {
        if let Some(lane) = &*self.lane.load() {
            return Ok(lane.link());
        }
        let _one_at_a_time = self.fetching.lock().await;
        if let Some(lane) = &*self.lane.load() {
            return Ok(lane.link());
        }
        // Boxed: it is rare, and large.
        let lane = Arc::new(self.source.lane().boxed().await?);
        self.lane.store(Some(lane.clone()));
        Ok(lane.link())
    }
}

fn pool(url: &str, timeout: Duration, discarded: Arc<Discarded>) -> Result<Pool> {
    let connecting = timeout.max(CONNECT_MIN);
    // The call's own timeout covers both; a second one would cost a timer for each call.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(connecting))
        .set_response_timeout(None);
    let is_discarded = Hook::sync_fn(move |_, metrics| match discarded.includes(metrics) {
        true => Err(HookError::message("the connection led to a server that is not the master")),
        false => Ok(()),
    });
    let (wait, create, recycle) =
        (Some(connecting), Some(connecting), Some(timeout.max(RECYCLE_MIN)));
    Pool::builder(Manager::new_with_config(url, config)?)
        .max_size(4)
        .runtime(deadpool_redis::Runtime::Tokio1)
        .timeouts(Timeouts { wait, create, recycle })
        .pre_recycle(is_discarded)
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

/// Whether another connection may do better: this one is broken, or leads to a server that is not the
/// master, or not yet.
fn is_dead(e: &RedisError) -> bool {
    e.is_io_error() || e.is_connection_dropped() || is_not_master(e)
}

fn is_not_master(e: &RedisError) -> bool {
    let ErrorKind::Server(server) = e.kind() else { return false };
    match server {
        ServerErrorKind::ReadOnly
        | ServerErrorKind::MasterDown
        | ServerErrorKind::BusyLoading
        | ServerErrorKind::ClusterDown => true,
        // Redis 6 wraps what a script was told.
        _ => e.detail().is_some_and(|text| text.contains("-READONLY ")),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn replied(line: &str) -> RedisError {
        let value = redis::parse_redis_value(format!("{line}\r\n").as_bytes());
        value.and_then(redis::Value::extract_error).expect_err("an error")
    }

    #[test]
    fn connection_is_discarded_when_server_is_not_the_master() {
        for line in [
            "-READONLY You can't write against a read only replica.",
            "-LOADING Redis is loading the dataset in memory",
            "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "-CLUSTERDOWN The cluster is down",
            "-ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write.",
        ] {
            assert!(is_dead(&replied(line)), "{line}");
        }
        for line in ["-NOSCRIPT No matching script.", "-ERR unknown command", "-OOM command"] {
            assert!(!is_dead(&replied(line)), "{line}");
        }
    }
}
