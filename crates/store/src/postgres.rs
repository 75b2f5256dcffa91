//! The Postgres dialect: how to connect, how to begin, and the few words that differ from SQLite.

use std::str::FromStr as _;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgPool, Postgres, Transaction};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::STATEMENT_TIMEOUT;
use super::events::SCHEMA;

/// The items of a JSON list as rows with one column, `item`.
macro_rules! items {
    ($list:literal) => {
        concat!(
            "(SELECT value AS item FROM jsonb_array_elements(CAST(",
            $list,
            " AS jsonb))) AS items"
        )
    };
}
/// The strings of a JSON list as rows with one column, `item`.
macro_rules! texts {
    ($list:literal) => {
        concat!(
            "(SELECT value AS item FROM jsonb_array_elements_text(CAST(",
            $list,
            " AS jsonb))) AS texts"
        )
    };
}
/// All values of an expression as one JSON list.
macro_rules! array {
    ($value:expr) => {
        concat!("CAST(COALESCE(jsonb_agg(", $value, "), '[]') AS TEXT)")
    };
}
macro_rules! object {
    ($fields:literal) => {
        concat!("jsonb_build_object(", $fields, ")")
    };
}
/// The database's own time in unix milliseconds.
macro_rules! now_ms {
    () => {
        "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
    };
}
/// The number below which every transaction has ended.
macro_rules! transactions_ended_below {
    () => {
        "CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS TEXT) AS BIGINT)"
    };
}
/// The number of the next transaction. What a snapshot calls its end is the number after the last transaction that has
/// ended; the age of that counts those that have begun since, as long as the one that asks has no number itself.
macro_rules! next_transaction {
    () => {
        "(CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS TEXT) AS BIGINT)
            + age(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS xid)))"
    };
}
/// As [`transactions_ended_below`], of those alone that have written into the change log, which hold a lock on it until
/// they end. It takes more time than that, and was true a moment before the statement began that asks next.
macro_rules! writers_ended_below {
    () => {
        concat!(
            "(SELECT LEAST(MIN(t.next), MIN(t.next - x.behind))
        FROM (SELECT ",
            next_transaction!(),
            " AS next) AS t
        LEFT JOIN (
            SELECT CAST(CAST(own.transactionid AS TEXT) AS BIGINT) AS number
            FROM pg_locks log
            JOIN pg_locks own ON own.virtualtransaction = log.virtualtransaction
                AND own.locktype = 'transactionid' AND own.mode = 'ExclusiveLock' AND own.granted
            WHERE log.locktype = 'relation' AND log.relation = CAST('changes' AS regclass)
                AND log.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND log.mode <> 'AccessShareLock' AND log.granted
        ) AS w ON TRUE
        LEFT JOIN LATERAL (
            -- Locks tell the last 32 bits of a number. One that is ahead began after this statement.
            SELECT (t.next - w.number) & 4294967295 AS behind
        ) AS x ON x.behind < 2147483648)"
        )
    };
}
/// The last position of the change log that was given out; what holds it may not be committed.
macro_rules! last_position {
    () => {
        "(SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM changes_seq_seq)"
    };
}
/// Whether a text holds another one.
macro_rules! contains {
    ($text:literal, $part:literal) => {
        concat!("strpos(", $text, ", ", $part, ") > 0")
    };
}
/// Keeps the selected rows from being deleted until the transaction ends.
macro_rules! held {
    ($select:expr) => {
        concat!($select, " FOR KEY SHARE")
    };
}
/// Holds the selected row until the transaction ends.
macro_rules! locked {
    ($select:expr) => {
        concat!($select, " FOR UPDATE")
    };
}
/// As `locked!`, while others may insert what refers to these rows.
macro_rules! locked_but_key {
    ($select:expr) => {
        concat!($select, " FOR NO KEY UPDATE")
    };
}
/// As `locked!`, without those rows that somebody else holds.
macro_rules! claimed {
    ($select:expr) => {
        concat!($select, " FOR UPDATE SKIP LOCKED")
    };
}
/// A number higher than that of any lease, and of any replica that was counted out.
macro_rules! next_number {
    () => {
        "nextval('lease_numbers')"
    };
}

/// The bytes that a text tells in hexadecimal.
macro_rules! bytes {
    ($text:literal) => {
        concat!("decode(", $text, ", 'hex')")
    };
}
/// The truth of `true` and `false`.
macro_rules! flag {
    ($text:literal) => {
        concat!("CAST(", $text, " AS BOOLEAN)")
    };
}
/// The beginning of the month (UTC) of a time, both in unix milliseconds.
macro_rules! month_of {
    ($time:literal) => {
        concat!(
            "CAST(EXTRACT(EPOCH FROM date_trunc('month', to_timestamp(",
            $time,
            " / 1000.0) AT TIME ZONE 'UTC')) * 1000 AS BIGINT)"
        )
    };
}

#[expect(clippy::duplicate_mod, reason = "compiled once for each engine")]
#[path = "queries/mod.rs"]
mod queries;

type Connection = sqlx::PgConnection;

/// How long an attempt to connect is alone: one that fell into a hole stays there, and the next one
/// finds the server as soon as it is back.
const NEXT_ATTEMPT_AFTER: Duration = Duration::from_millis(500);

fn options(url: &str) -> sqlx::Result<PgConnectOptions> {
    let timeout_ms = STATEMENT_TIMEOUT.as_millis().to_string();
    Ok(PgConnectOptions::from_str(url)?.application_name("keyward").options([
        ("statement_timeout", timeout_ms.as_str()),
        ("idle_in_transaction_session_timeout", timeout_ms.as_str()),
    ]))
}

/// A pool would try again until its time is up, and then not tell why it was in vain.
pub async fn reach(url: &str, within: Duration) -> sqlx::Result<()> {
    let options = options(url)?;
    timeout(within, first_of_several(options)).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

/// Connections to one Postgres, all of which can be given up. On a connection whose other end vanished without a word,
/// a statement, and the pool when it looks whether the connection may be used again, wait until the system gives up, which
/// takes a quarter of an hour.
#[derive(Debug)]
pub struct Pool(RwLock<PgPool>);

impl Pool {
    fn new(pool: PgPool) -> Self {
        Self(RwLock::new(pool))
    }

    /// Those that are used now.
    pub fn get(&self) -> PgPool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until Postgres lets a connection in. Fails where it refuses one.
    pub async fn reach(&self) -> sqlx::Result<()> {
        first_of_several((*self.get().connect_options()).clone()).await
    }

    /// Has others take the place of all connections. What is under way on these may still end.
    pub fn renew(&self) {
        let old = self.get();
        let options = (*old.connect_options()).clone();
        let new = old.options().clone().connect_lazy_with(options);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = new;
        tokio::spawn(async move { old.close().await });
    }

    /// Waits for what is under way, though not long, and closes every connection.
    pub async fn close(&self) {
        if timeout(CLOSE_TIMEOUT, self.get().close()).await.is_err() {
            tracing::debug!("connections to the database were not closed in time");
        }
    }
}

async fn first_of_several(options: PgConnectOptions) -> sqlx::Result<()> {
    let mut attempts = JoinSet::new();
    loop {
        let options = options.clone();
        attempts.spawn(async move {
            let mut connection = options.connect().await?;
            require_primary(&mut connection).await?;
            connection.close().await
        });
        if let Ok(Some(answered)) = timeout(NEXT_ATTEMPT_AFTER, attempts.join_next()).await {
            return answered.unwrap_or(Err(sqlx::Error::WorkerCrashed));
        }
    }
}

/// How many connections write events and sum them up, how many read sums, and how many answer questions that others
/// have written, so that those hold up nothing else.
const EVENT_WRITERS: u32 = 2;
const EVENT_READERS: u32 = 2;
const EVENT_QUESTIONS: u32 = 2;
/// All of them together.
pub const EVENT_CONNECTIONS: u32 = EVENT_WRITERS + EVENT_READERS + EVENT_QUESTIONS;
/// How long a statement about events may run: summing up what has gathered in an outage takes its time.
const EVENTS_TIMEOUT: Duration = Duration::from_mins(1);

/// Connections that write events, such that only read them, and such that answer questions, which may be those of
/// another role. They are made when they are first needed.
pub fn event_pools(url: &str, analytics_url: &str) -> sqlx::Result<[Pool; 3]> {
    let timeout_ms = EVENTS_TIMEOUT.as_millis().to_string();
    let on_events = |url| {
        Ok::<_, sqlx::Error>(options(url)?.options([
            ("search_path", SCHEMA),
            // A query over many parts looks costly, and is done in less time than it takes to compile.
            ("jit", "off"),
            ("statement_timeout", timeout_ms.as_str()),
            ("idle_in_transaction_session_timeout", timeout_ms.as_str()),
        ]))
    };
    let (options, asking) = (on_events(url)?, on_events(analytics_url)?);
    let pool = |pool_options: PgPoolOptions, options| {
        // Nobody waits for these, and a restart of Postgres need not fail a query.
        Pool::new(pool_options.test_before_acquire(true).connect_lazy_with(options))
    };
    let only_reading =
        |options: PgConnectOptions| options.options([("default_transaction_read_only", "on")]);
    Ok([
        pool(primary_pool_options(EVENT_WRITERS), options.clone()),
        pool(primary_pool_options(EVENT_READERS), only_reading(options)),
        pool(pool_options(EVENT_QUESTIONS), only_reading(asking)),
    ])
}

/// How long closing waits for connections that are in use: some may never be answered.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// After how long a connection has rested, and how long it then has to answer.
const RESTED: Duration = Duration::from_secs(10);
const RESTED_ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// How long a connection may rest at least before it is closed. Much on the way to a server forgets those that rest for some minutes.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);

fn pool_options(connections_max: u32) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections_max)
        .acquire_timeout(Duration::from_secs(3))
        .idle_timeout(IDLE_TIMEOUT)
        // A connection that died is found out by the statement itself; asking first would cost
        // every load a round trip. One that has rested may have been forgotten on the way, and would hang.
        .test_before_acquire(false)
        .before_acquire(|connection, state| {
            Box::pin(async move {
                if state.idle_for < RESTED {
                    return Ok(true);
                }
                let answered = timeout(RESTED_ANSWERS_WITHIN, connection.ping()).await;
                answered.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map(|()| true)
            })
        })
}

/// Connections that are not made to a standby, which knows less than the primary and can write nothing. What was the
/// primary when a connection was made is so as long as the connection lasts.
fn primary_pool_options(connections_max: u32) -> PgPoolOptions {
    pool_options(connections_max)
        .after_connect(|connection, _| Box::pin(async move { require_primary(connection).await }))
}

async fn require_primary(connection: &mut Connection) -> sqlx::Result<()> {
    let sql = "SELECT pg_is_in_recovery()";
    match sqlx::query_scalar(sql).fetch_one(connection).await? {
        true => Err(sqlx::Error::Protocol("this Postgres is a standby".into())),
        false => Ok(()),
    }
}

pub async fn connect(url: &str, connections_max: u32) -> sqlx::Result<Pool> {
    Ok(Pool::new(primary_pool_options(connections_max).connect_with(options(url)?).await?))
}

/// How many connections only the change feed and the presence of the replica use, so that they work when all others
/// are in use or wait for locks.
pub const RESERVED_CONNECTIONS: u32 = 2;

/// How long a statement on one of them may run: less than is waited for it, so that a Postgres that is only held up says so.
const RESERVED_TIMEOUT: Duration = Duration::from_secs(3);

/// The reserved connections. They are opened when they are first needed.
pub fn reserved_pool(url: &str) -> sqlx::Result<Pool> {
    let timeout_ms = RESERVED_TIMEOUT.as_millis().to_string();
    let options = options(url)?.options([("statement_timeout", timeout_ms.as_str())]);
    Ok(Pool::new(primary_pool_options(RESERVED_CONNECTIONS).connect_lazy_with(options)))
}

/// Connections on which nothing can be written.
pub async fn connect_read_only(url: &str) -> sqlx::Result<Pool> {
    let options = options(url)?.options([("default_transaction_read_only", "on")]);
    Ok(Pool::new(pool_options(2).connect_with(options).await?))
}

#[expect(clippy::disallowed_methods, reason = "this is what Store::begin calls")]
pub async fn begin(pool: &PgPool) -> sqlx::Result<Transaction<'static, Postgres>> {
    pool.begin().await
}

/// How long such a transaction may do nothing before Postgres ends it, whose replica may stand still meanwhile: what it
/// has locked, others wait for.
const IDLE_WITHIN: Duration = Duration::from_secs(1);

/// Begins a transaction none of whose statements waits longer than this for a lock.
#[expect(clippy::disallowed_methods, reason = "this is what Store::begin_within calls")]
pub async fn begin_within(
    pool: &PgPool,
    within: Duration,
) -> sqlx::Result<Transaction<'static, Postgres>> {
    // One round trip.
    let sql = format!(
        "BEGIN; SET LOCAL lock_timeout = {}; SET LOCAL idle_in_transaction_session_timeout = {}",
        within.as_millis().max(1),
        IDLE_WITHIN.as_millis()
    );
    pool.begin_with(AssertSqlSafe(sql)).await
}
