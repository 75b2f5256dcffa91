//! Implements the Postgres dialect: connecting, beginning transactions, and the statements that differ from SQLite.

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use foundation::clock::Monotonic;
use foundation::error::is_lost_connection;
use parking_lot::RwLock;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, PgPool, Postgres, SqlSafeStr as _, SqlStr,
    Transaction,
};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::STATEMENT_TIMEOUT;
use super::events::SCHEMA;
use super::index_pattern::to_like_pattern as to_index_pattern;
use super::uncancelled::Uncancelled;

#[macro_use]
mod dialect;
mod account_rows;
mod event_rows;
#[expect(clippy::duplicate_mod, reason = "compiled once for each engine")]
#[path = "queries/mod.rs"]
mod queries;

type Connection = sqlx::PgConnection;

/// The time after which another connection attempt starts beside the pending ones. Packets of an attempt may be
/// dropped without a reply, so it never completes; a later attempt succeeds as soon as the server is reachable.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(500);

fn connect_options(url: &str) -> sqlx::Result<PgConnectOptions> {
    let timeout_ms = STATEMENT_TIMEOUT.as_millis().to_string();
    Ok(PgConnectOptions::from_str(url)?.application_name("keyward").options([
        ("statement_timeout", timeout_ms.as_str()),
        ("idle_in_transaction_session_timeout", timeout_ms.as_str()),
        // The planner overestimates queries with JSON or over many partitions: their compilation takes longer than they do.
        ("jit", "off"),
    ]))
}

/// Waits until Postgres accepts a connection. Fails at once if Postgres rejects it. A pool is not used here: it would
/// retry until its timeout and then not report the cause.
pub async fn wait_until_reachable(url: &str, within: Duration) -> sqlx::Result<()> {
    let options = connect_options(url)?;
    timeout(within, connect_with_overlapping_attempts(options))
        .await
        .unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

/// A pool of connections to one Postgres, all of which can be replaced. If the other end of a connection vanishes
/// without closing it, a statement on it, and the pool's check before it reuses the connection, wait until the
/// operating system gives up, which takes a quarter of an hour.
#[derive(Debug)]
pub struct Pool {
    pool: RwLock<PgPool>,
    loss_time: LossTime,
}

impl Pool {
    fn new(pool: PgPool, loss_time: LossTime) -> Self {
        Self { pool: RwLock::new(pool), loss_time }
    }

    /// Returns the pool in use.
    pub fn get(&self) -> PgPool {
        self.pool.read().clone()
    }

    /// Records that a connection was found to be lost. Those that are idle now are checked before they are used again.
    pub fn record_lost_connection(&self) {
        self.loss_time.record();
    }

    /// Returns a connection. A call that waits while the connections are replaced gets one of the new ones.
    pub async fn acquire(&self) -> sqlx::Result<PoolConnection<Postgres>> {
        loop {
            match self.get().acquire().await {
                Err(sqlx::Error::PoolClosed) if !self.pool.read().is_closed() => {}
                result => return result,
            }
        }
    }

    /// Opens a connection unless one is open. Fails with the reason why none can be opened.
    pub async fn open(&self) -> sqlx::Result<()> {
        match self.acquire().await {
            Ok(_) => Ok(()),
            Err(e) => Err(find_connect_error(&self.get().connect_options(), e).await),
        }
    }

    /// Waits until Postgres accepts a connection. Fails if Postgres rejects it.
    pub async fn wait_until_reachable(&self) -> sqlx::Result<()> {
        connect_with_overlapping_attempts((*self.get().connect_options()).clone()).await
    }

    /// Replaces all connections. Calls in progress on the old ones may still complete.
    pub fn replace(&self) {
        let old = self.get();
        let options = (*old.connect_options()).clone();
        let new = old.options().clone().connect_lazy_with(options);
        *self.pool.write() = new;
        tokio::spawn(async move { old.close().await });
    }

    /// Waits up to three seconds for calls in progress, and closes every connection.
    pub async fn close(&self) {
        if timeout(CLOSE_TIMEOUT, self.get().close()).await.is_err() {
            tracing::debug!("failed to close the database connections in time");
        }
    }
}

/// When a connection to a server was last found to be lost, for all pools of this server. Connections that were idle at
/// that time may be lost too: a server that restarts or fails over closes all of them.
#[derive(Debug, Clone, Default)]
pub struct LossTime(Arc<RwLock<Option<Monotonic>>>);

impl LossTime {
    fn record(&self) {
        *self.0.write() = Some(Monotonic::now());
    }

    /// Returns whether a connection that has been idle for so long was idle at that time.
    fn is_within(&self, idle_for: Duration) -> bool {
        self.0.read().is_some_and(|at| Monotonic::now().since(at) <= idle_for)
    }
}

async fn connect_with_overlapping_attempts(options: PgConnectOptions) -> sqlx::Result<()> {
    let mut attempts = JoinSet::new();
    loop {
        let options = options.clone();
        attempts.spawn(async move {
            let mut connection = options.connect().await?;
            require_primary(&mut connection).await?;
            connection.close().await
        });
        if let Ok(Some(result)) = timeout(ATTEMPT_INTERVAL, attempts.join_next()).await {
            return result.unwrap_or(Err(sqlx::Error::WorkerCrashed));
        }
    }
}

/// The numbers of connections that write and roll up events, that read rollups, and that run SQL queries of users.
/// Those queries have their own connections, so they delay nothing else.
const EVENT_WRITE_CONNECTIONS: u32 = 2;
const EVENT_READ_CONNECTIONS: u32 = 2;
const EVENT_QUERY_CONNECTIONS: u32 = 2;
/// The number of connections for events in total.
pub const EVENT_CONNECTIONS: u32 =
    EVENT_WRITE_CONNECTIONS + EVENT_READ_CONNECTIONS + EVENT_QUERY_CONNECTIONS;
/// The time that a statement about events may run. Rolling up the events that accumulated during an outage takes
/// long.
const EVENTS_STATEMENT_TIMEOUT: Duration = Duration::from_mins(1);

/// Returns pools of connections that write events, that only read them, and that run SQL queries of users, possibly
/// as another database role. Connections are opened on first use.
pub fn event_pools(url: &str, analytics_url: &str) -> sqlx::Result<[Pool; 3]> {
    let timeout_ms = EVENTS_STATEMENT_TIMEOUT.as_millis().to_string();
    let on_events = |url| {
        Ok::<_, sqlx::Error>(
            connect_options(url)?
                .options([("search_path", SCHEMA), ("statement_timeout", timeout_ms.as_str())]),
        )
    };
    let (options, query_options) = (on_events(url)?, on_events(analytics_url)?);
    let loss_time = LossTime::default();
    let pool = |pool_options: PgPoolOptions, options| {
        // No request waits for these, and a restart of Postgres need not fail a query.
        let pool = pool_options.test_before_acquire(true).connect_lazy_with(options);
        Pool::new(pool, loss_time.clone())
    };
    let read_only =
        |options: PgConnectOptions| options.options([("default_transaction_read_only", "on")]);
    // A plan for any values, to which Postgres changes after some executions of a statement, reads far too many events: it
    // cannot know that most filters are empty, nor how long the time range is.
    let planned_by_values =
        |options: PgConnectOptions| options.options([("plan_cache_mode", "force_custom_plan")]);
    Ok([
        pool(primary_pool_options(EVENT_WRITE_CONNECTIONS, &loss_time), options.clone()),
        pool(
            primary_pool_options(EVENT_READ_CONNECTIONS, &loss_time),
            planned_by_values(read_only(options)),
        ),
        pool(pool_options(EVENT_QUERY_CONNECTIONS, &loss_time), read_only(query_options)),
    ])
}

/// The time that closing waits for connections in use. Some may never receive a reply.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// The idle time after which a connection is checked before use, and the time it then has to reply.
const IDLE_CHECK_AFTER: Duration = Duration::from_secs(10);
const IDLE_CHECK_TIMEOUT: Duration = Duration::from_secs(1);
/// The minimum time that a connection is idle before it is closed. Network devices between client and server often
/// drop connections that are idle for some minutes.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);

fn pool_options(connections_max: u32, loss_time: &LossTime) -> PgPoolOptions {
    let loss_time = loss_time.clone();
    PgPoolOptions::new()
        .max_connections(connections_max)
        .acquire_timeout(Duration::from_secs(3))
        .idle_timeout(IDLE_TIMEOUT)
        // A broken connection fails the statement itself; a check before each use would cost every load a round trip.
        // A connection that was idle for long may have been dropped by the network, and a statement on it would hang.
        .test_before_acquire(false)
        .before_acquire(move |connection, state| {
            let is_suspect =
                state.idle_for >= IDLE_CHECK_AFTER || loss_time.is_within(state.idle_for);
            let loss_time = loss_time.clone();
            Box::pin(async move {
                if !is_suspect {
                    return Ok(true);
                }
                let ping = timeout(IDLE_CHECK_TIMEOUT, connection.ping()).await;
                let ping = ping.unwrap_or(Err(sqlx::Error::PoolTimedOut));
                if ping.as_ref().is_err_and(is_lost_connection) {
                    loss_time.record();
                }
                ping.map(|()| true)
            })
        })
}

/// Returns options of a pool that does not connect to a standby, whose data is older and which cannot be written to.
/// A server that was the primary when a connection was opened is the primary for as long as the connection lasts.
fn primary_pool_options(connections_max: u32, loss_time: &LossTime) -> PgPoolOptions {
    pool_options(connections_max, loss_time)
        .after_connect(|connection, _| Box::pin(async move { require_primary(connection).await }))
}

async fn require_primary(connection: &mut Connection) -> sqlx::Result<()> {
    let sql = "SELECT pg_is_in_recovery()";
    match sqlx::query_scalar(sql).fetch_one(connection).await? {
        true => Err(sqlx::Error::Protocol("the Postgres server is a standby".into())),
        false => Ok(()),
    }
}

/// Connects to Postgres. The pools of one server share `loss_time`.
pub async fn connect(url: &str, connections_max: u32, loss_time: LossTime) -> sqlx::Result<Pool> {
    let options = connect_options(url)?;
    let pool_options = primary_pool_options(connections_max, &loss_time);
    match pool_options.connect_with(options.clone()).await {
        Ok(pool) => Ok(Pool::new(pool, loss_time)),
        Err(e) => Err(find_connect_error(&options, e).await),
    }
}

/// The time that [`find_connect_error`] may take.
const CONNECT_ERROR_TIMEOUT: Duration = Duration::from_millis(500);

/// Returns the reason why a pool could not open its first connection. A pool retries until its timeout if Postgres does
/// not listen or has no free connection, and then reports only that it timed out.
async fn find_connect_error(options: &PgConnectOptions, error: sqlx::Error) -> sqlx::Error {
    if !matches!(error, sqlx::Error::PoolTimedOut) {
        return error;
    }
    match timeout(CONNECT_ERROR_TIMEOUT, options.connect()).await {
        Ok(Err(cause)) => cause,
        // Postgres accepts connections by now, or it does not reply.
        Ok(Ok(_)) | Err(_) => error,
    }
}

/// The number of connections reserved for the change feed and the heartbeats of the replica, which therefore work
/// while all other connections are in use or wait for locks.
pub const RESERVED_CONNECTIONS: u32 = 2;

/// The time that a statement on a reserved connection may run. It is shorter than the time that callers wait for it,
/// so a Postgres that is only slow reports the timeout itself.
const RESERVED_STATEMENT_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns the pool of reserved connections, which are opened on first use. The pools of one server share `loss_time`.
pub fn reserved_pool(url: &str, loss_time: LossTime) -> sqlx::Result<Pool> {
    let timeout_ms = RESERVED_STATEMENT_TIMEOUT.as_millis().to_string();
    let options = connect_options(url)?.options([("statement_timeout", timeout_ms.as_str())]);
    let pool_options = primary_pool_options(RESERVED_CONNECTIONS, &loss_time);
    Ok(Pool::new(pool_options.connect_lazy_with(options), loss_time))
}

/// Returns a pool of read-only connections, also to a standby, which are opened on first use.
pub fn read_only_pool(url: &str, connections_max: u32) -> sqlx::Result<Pool> {
    let options = connect_options(url)?.options([("default_transaction_read_only", "on")]);
    let loss_time = LossTime::default();
    let pool_options = pool_options(connections_max, &loss_time);
    Ok(Pool::new(pool_options.connect_lazy_with(options), loss_time))
}

/// Begins a transaction.
pub async fn begin(pool: &Pool) -> sqlx::Result<Transaction<'static, Postgres>> {
    begin_with(pool, None).await
}

/// The time that a transaction of [`begin_within`] may be idle before Postgres ends it. Its replica may be paused
/// meanwhile, while others wait for its locks.
const TRANSACTION_IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// Begins a transaction in which no statement waits longer than `within` for a lock.
pub async fn begin_within(
    pool: &Pool,
    within: Duration,
) -> sqlx::Result<Transaction<'static, Postgres>> {
    // One round trip.
    let sql = format!(
        "BEGIN; SET LOCAL lock_timeout = {}; SET LOCAL idle_in_transaction_session_timeout = {}",
        within.as_millis().max(1),
        TRANSACTION_IDLE_TIMEOUT.as_millis()
    );
    begin_with(pool, Some(AssertSqlSafe(sql).into_sql_str())).await
}

/// Analyzes the tables of keys, and returns the estimated number of keys. It waits for no other process that does the same.
pub async fn analyze_keys(pool: &Pool) -> sqlx::Result<u64> {
    let mut tx = begin_within(pool, ANALYZE_LOCK_TIMEOUT).await?;
    sqlx::raw_sql(ANALYZE_KEYS_SQL).execute(&mut *tx).await?;
    let sql = "SELECT CAST(reltuples AS BIGINT) FROM pg_class WHERE oid = CAST('keys' AS REGCLASS)";
    let keys: i64 = sqlx::query_scalar(sql).fetch_one(&mut *tx).await?;
    tx.commit().await?;
    Ok(u64::try_from(keys).unwrap_or(0))
}

/// Each table is read in part only, but from a disk this may take longer than a statement otherwise may.
const ANALYZE_KEYS_SQL: &str = "
    SET LOCAL statement_timeout = '60s';
    ANALYZE keys, identities, ratelimits, key_permissions, key_roles";
const ANALYZE_LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// Begins a transaction, on another connection if the first one was lost: nothing has been executed on it.
async fn begin_with(
    pool: &Pool,
    statement: Option<SqlStr>,
) -> sqlx::Result<Transaction<'static, Postgres>> {
    match try_begin_with(pool, statement.clone()).await {
        Err(e) if is_lost_connection(&e) => {
            pool.record_lost_connection();
            try_begin_with(pool, statement).await
        }
        begun => begun,
    }
}

async fn try_begin_with(
    pool: &Pool,
    statement: Option<SqlStr>,
) -> sqlx::Result<Transaction<'static, Postgres>> {
    let connection = pool.acquire().await?;
    // If `BEGIN` is cancelled, sqlx 0.9.0 returns the connection to the pool with the transaction open, and the writes
    // of its next user are not committed (https://github.com/transact-rs/sqlx/issues/4393). A transaction that has
    // begun is rolled back when it is dropped.
    Uncancelled::new(Transaction::begin(connection, statement)).await
}
