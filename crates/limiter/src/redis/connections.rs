//! Manages the connections to Redis. deadpool creates, checks and recycles them. A call uses a clone of one of them, a
//! *shared connection* that pipelines all calls; a separate connection for each command costs twice the processor time.
//! A shared connection that does not respond is returned to the pool, which checks whether it is still usable. If the
//! server replies that it is not the master, or not yet, every connection to it is discarded, and the next one resolves
//! the address again. For a Redis Cluster there is one shared connection, which manages its own connections. No caller
//! waits longer than the timeout, which follows the distance to Redis, whatever Redis does.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use deadpool::Runtime;
use deadpool::managed::{self, Hook, HookError, Metrics, Timeouts};
use foundation::clock::{Monotonic, Stopwatch};
use foundation::distance::{CALL_TIMEOUT_MAX, Distance};
use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{
    Cmd, ErrorKind, FromRedisValue, RedisResult, ServerErrorKind, Value, from_redis_value,
};
use tokio::sync::Mutex as AsyncMutex;

use super::super::ConsumeRequest;
use super::errors::{error_from_pool, has_moved, is_connection_unusable, timeout_error};
use super::primary::{ConnectionManager, PrimaryFinder};
use super::{RedisAddress, budget};

type Pool = managed::Pool<ConnectionManager>;
type Connection = managed::Object<ConnectionManager>;

/// The minimum time allowed to establish a connection, regardless of the timeout of a call: no caller waits for it
/// longer than for the call.
const CONNECT_MIN: Duration = Duration::from_millis(500);
/// How many times as long as a call it may take to establish a connection, which takes several round trips.
const CALLS_PER_CONNECT: u32 = 2;
/// The minimum time allowed for an unresponsive connection to show that it is usable.
const RECYCLE_MIN: Duration = Duration::from_millis(100);
/// The minimum time to wait for a cluster's reply. Callers do not wait that long.
const CLUSTER_REPLY_MIN: Duration = Duration::from_secs(2);

/// A script and the digest that identifies it in Redis.
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

/// Whether a command may be sent again if its reply was lost with the connection. If the first one was executed, it
/// counts twice: that withholds too much, and never admits too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryPolicy {
    Once,
    Never,
}

impl RetryPolicy {
    /// Returns the policy for consume requests. A top-up or a grant that is added twice can be spent twice.
    pub fn for_consume(requests: &[ConsumeRequest]) -> Self {
        let has_top_up = requests.iter().any(ConsumeRequest::has_top_up);
        let has_grant = requests.iter().any(|request| !request.grants.is_empty());
        let must_run_once = (has_top_up && !Safeguard::TopUpOnce.is_disabled())
            || (has_grant && !Safeguard::GrantOnce.is_disabled());
        if must_run_once { Self::Never } else { Self::Once }
    }
}

pub struct RedisConnections {
    source: ConnectionSource,
    shared_connection: ArcSwapOption<SharedConnection>,
    /// Held while a connection is fetched, so that concurrent callers fetch one.
    fetch_lock: AsyncMutex<()>,
    discard_time: Arc<DiscardTime>,
    /// The minimum time that a caller waits.
    timeout_min: Duration,
    distance: Distance,
}

/// Stores when connections were last discarded. Older connections are not used again.
#[derive(Default)]
struct DiscardTime(Mutex<Option<Stopwatch>>);

impl DiscardTime {
    fn record(&self) {
        *self.0.lock() = Some(Stopwatch::new());
    }

    fn is_discarded(&self, connection: &Metrics) -> bool {
        let since = *self.0.lock();
        since.is_some_and(|since| since.elapsed() <= connection.age())
    }
}

/// The source of shared connections.
enum ConnectionSource {
    Server(Pool),
    Cluster(Box<ClusterClient>),
}

enum SharedConnection {
    Server(Connection),
    Cluster(ClusterConnection),
}

/// A clone of the shared connection.
enum ConnectionHandle {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl SharedConnection {
    fn to_handle(&self) -> ConnectionHandle {
        match self {
            Self::Server(connection) => {
                ConnectionHandle::Server(MultiplexedConnection::clone(connection))
            }
            Self::Cluster(connection) => ConnectionHandle::Cluster(connection.clone()),
        }
    }
}

impl ConnectionSource {
    /// Boxed because it is rare and large, and in a function that is not `async`, so that the driver is compiled once.
    fn connect(&self, timeouts: Timeouts) -> BoxFuture<'_, Result<SharedConnection>> {
        Box::pin(async move {
            Ok(match self {
                Self::Server(pool) => {
                    let connection = pool.timeout_get(&timeouts).await.map_err(error_from_pool)?;
                    SharedConnection::Server(connection)
                }
                Self::Cluster(client) => {
                    SharedConnection::Cluster(client.get_async_connection().await?)
                }
            })
        })
    }
}

impl RedisConnections {
    /// Creates the connections without connecting. `timeout` bounds every call, unless Redis is far away.
    pub fn new(address: &RedisAddress, timeout: Duration) -> Result<Self> {
        let timeout =
            if Safeguard::Timeout.is_disabled() { Duration::from_mins(1) } else { timeout };
        let discarded = Arc::<DiscardTime>::default();
        let source = if address.is_cluster() {
            let connection_timeout = CALL_TIMEOUT_MAX.max(timeout);
            let client =
                address.cluster_client(connection_timeout, timeout.max(CLUSTER_REPLY_MIN))?;
            ConnectionSource::Cluster(Box::new(client))
        } else {
            ConnectionSource::Server(create_pool(address, discarded.clone())?)
        };
        let (shared_connection, fetch_lock) = (ArcSwapOption::empty(), AsyncMutex::default());
        Ok(Self {
            source,
            shared_connection,
            fetch_lock,
            discard_time: discarded,
            timeout_min: timeout,
            distance: Distance::default(),
        })
    }

    /// Asks Sentinel, if the address names some, for the primary. Connections to another server are discarded.
    pub async fn follow_primary(&self) -> Result<()> {
        let ConnectionSource::Server(pool) = &self.source else { return Ok(()) };
        if pool.manager().has_primary_moved().await? {
            self.discard_time.record();
            self.discard_connection();
        }
        Ok(())
    }

    /// Returns what finds the primary. `None`: it is a cluster.
    pub fn finder(&self) -> Option<&PrimaryFinder> {
        match &self.source {
            ConnectionSource::Server(pool) => Some(&pool.manager().finder),
            ConnectionSource::Cluster(_) => None,
        }
    }

    /// Returns whether there are several masters, each with a part of the keys and its own clock.
    pub fn is_cluster(&self) -> bool {
        matches!(self.source, ConnectionSource::Cluster(_))
    }

    /// Returns the distance to Redis.
    pub fn distance(&self) -> &Distance {
        &self.distance
    }

    /// Returns the maximum time that a caller waits.
    pub fn timeout(&self) -> Duration {
        self.distance.call_timeout(self.timeout_min)
    }

    /// Returns the error of a call that took longer than the timeout.
    pub fn timeout_error(&self) -> Error {
        timeout_error(self.timeout())
    }

    /// Sends a command and waits for its reply, within the timeout.
    pub async fn send<T: FromRedisValue>(
        &self,
        command: &Cmd,
        retry_policy: RetryPolicy,
    ) -> Result<T> {
        self.with_timeout(self.try_send(command, retry_policy)).await
    }

    /// Sends a command and waits for its reply, however long it takes.
    pub async fn send_without_timeout<T: FromRedisValue>(
        &self,
        command: &Cmd,
        retry_policy: RetryPolicy,
    ) -> Result<T> {
        self.try_send(command, retry_policy).await
    }

    /// Runs a script and waits for its reply, within the timeout.
    pub async fn run_script<T: FromRedisValue>(
        &self,
        script: &Script,
        retry_policy: RetryPolicy,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<T> {
        self.with_timeout(self.run_script_without_timeout(script, retry_policy, arguments)).await
    }

    async fn with_timeout<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        budget::wait_with_timeout(self.timeout(), call).await.unwrap_or_else(|| {
            self.discard_connection();
            Err(self.timeout_error())
        })
    }

    /// Runs a script, however long it takes. A script that this Redis has not cached is loaded first; Redis loses its
    /// scripts when it restarts or fails over.
    pub async fn run_script_without_timeout<T: FromRedisValue>(
        &self,
        script: &Script,
        retry_policy: RetryPolicy,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<T> {
        let mut by_digest = redis::cmd("EVALSHA");
        by_digest.arg(&script.digest);
        arguments(&mut by_digest);
        match self.try_send(&by_digest, retry_policy).await {
            Err(Error::Redis(e)) if e.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let mut by_source = redis::cmd("EVAL");
                by_source.arg(&script.source);
                arguments(&mut by_source);
                self.try_send(&by_source, retry_policy).await
            }
            reply => reply,
        }
    }

    /// Sends a command over the shared connection, and once more over a new one if the connection is broken, so that
    /// callers do not notice a restart of Redis. A command that the wrong master of a cluster rejected is sent to the
    /// right one as soon as that is known.
    async fn try_send<T: FromRedisValue>(
        &self,
        command: &Cmd,
        retry_policy: RetryPolicy,
    ) -> Result<T> {
        let mut pause = Duration::from_millis(1);
        loop {
            match self.send_once(command).await {
                Err(Error::Redis(e))
                    if retry_policy == RetryPolicy::Once && is_connection_unusable(&e) =>
                {
                    return self.send_once(command).await;
                }
                Err(Error::Redis(e)) if has_moved(&e) => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                reply => return reply,
            }
        }
    }

    async fn send_once<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        let handle = self.get_handle().await?;
        let sent_at = Stopwatch::new();
        let reply = match handle {
            ConnectionHandle::Server(mut connection) => command.query_async(&mut connection).await,
            ConnectionHandle::Cluster(connection) => {
                send_to_cluster(connection, command).await.and_then(|v| Ok(from_redis_value(v)?))
            }
        };
        if reply.as_ref().is_err_and(is_connection_unusable) {
            self.discard_time.record();
            self.discard_connection();
            if let Some(finder) = self.finder() {
                finder.record_failure();
            }
        } else {
            self.distance.record(sent_at.elapsed(), Monotonic::now());
        }
        Ok(reply?)
    }

    /// Makes the pool check the shared connection before it is used again. Replies that are still awaited continue to
    /// be read.
    pub fn discard_connection(&self) {
        if !self.is_cluster() {
            self.shared_connection.store(None);
        }
    }

    /// Returns how long it may take to get a connection. Before the first reply, the distance is unknown.
    fn connect_timeouts(&self) -> Timeouts {
        let call = self.timeout();
        let connect = match self.distance.round_trip() {
            Some(_) => CONNECT_MIN.max(CALLS_PER_CONNECT * call),
            None => CALL_TIMEOUT_MAX.max(CALLS_PER_CONNECT * call),
        };
        Timeouts {
            wait: Some(connect),
            create: Some(connect),
            recycle: Some(RECYCLE_MIN.max(call)),
        }
    }

    async fn get_handle(&self) -> Result<ConnectionHandle> {
        if let Some(connection) = &*self.shared_connection.load() {
            return Ok(connection.to_handle());
        }
        let _one_at_a_time = self.fetch_lock.lock().await;
        if let Some(connection) = &*self.shared_connection.load() {
            return Ok(connection.to_handle());
        }
        let connection = Arc::new(self.source.connect(self.connect_timeouts()).await?);
        self.shared_connection.store(Some(connection.clone()));
        Ok(connection.to_handle())
    }
}

/// Boxed as [`ConnectionSource::connect`] is.
fn send_to_cluster(
    mut connection: ClusterConnection,
    command: &Cmd,
) -> BoxFuture<'_, RedisResult<Value>> {
    Box::pin(async move { command.query_async(&mut connection).await })
}

fn create_pool(address: &RedisAddress, discarded: Arc<DiscardTime>) -> Result<Pool> {
    let is_discarded = Hook::sync_fn(move |_, metrics| match discarded.is_discarded(metrics) {
        true => Err(HookError::message("the connection leads to a server that is not the master")),
        false => Ok(()),
    });
    Pool::builder(ConnectionManager::new(address.finder()?))
        .max_size(4)
        .runtime(Runtime::Tokio1)
        .pre_recycle(is_discarded)
        .build()
        .map_err(|e| {
            Error::Internal(format!("failed to create the pool of Redis connections: {e}"))
        })
}

#[cfg(test)]
mod tests;
