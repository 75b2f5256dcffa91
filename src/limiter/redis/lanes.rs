//! The connections: deadpool makes, checks and recycles them. A call goes over a clone of one of them,
//! a *lane* that all calls share and that pipelines them; a connection for each command of its own
//! costs twice the processor time. A lane that fails or stays silent goes back to the pool, which
//! finds out whether it is of any use. No call waits longer than the timeout, whatever Redis does.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use deadpool_redis::{Connection, Manager, Pool, PoolError, Timeouts};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, FromRedisValue, RedisError, ServerErrorKind};
use tokio::sync::Mutex;

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
    pool: Pool,
    lane: ArcSwapOption<Connection>,
    /// Held while a lane is fetched, so that a crowd fetches one.
    fetching: Mutex<()>,
    timeout: Duration,
}

impl Lanes {
    /// Does not connect. `timeout` bounds every call.
    pub fn new(url: &str, timeout: Duration) -> Result<Self> {
        let timeout = if Safeguard::Timeout.is_off() { Duration::from_mins(1) } else { timeout };
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
        Ok(Self { pool, lane: ArcSwapOption::empty(), fetching: Mutex::default(), timeout })
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
            self.lane.store(None);
            Err(self.timed_out())
        })
    }

    /// One command over the lane, and once more over a new one when the lane turns out to be dead:
    /// so nobody notices that Redis was restarted.
    async fn try_send<T: FromRedisValue>(&self, command: &Cmd, again: Again) -> Result<T> {
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
        let _one_at_a_time = self.fetching.lock().await;
        if let Some(lane) = &*self.lane.load() {
            return Ok(MultiplexedConnection::clone(lane));
        }
        // Boxed: it is rare, and large.
        let lane = Arc::new(Box::pin(self.pool.get()).await.map_err(pool_failed)?);
        self.lane.store(Some(lane.clone()));
        Ok(MultiplexedConnection::clone(&lane))
    }
}

/// What a call that took longer than the timeout ends with.
pub fn timed_out(timeout: Duration) -> Error {
    Error::CountersTimeout(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))
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
