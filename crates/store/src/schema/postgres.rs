//! Runs migrations of Postgres while replicas with the previous schema use it.

use std::time::Duration;

use foundation::clock::Stopwatch;
use sqlx::migrate::{Migrate as _, MigrateError, Migration};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _, query, query_as, query_scalar};
use tokio::time::{sleep, timeout};

use super::{LogTimer, MigrationPlan, MigrationProgress, RETRY_PAUSE, SchemaError, online};

/// The time that a statement waits for a lock before it gives way to the statements queued behind it, and retries. It
/// is shorter than `deadlock_timeout` (1 s), so no transaction of a replica is ever canceled in favor of a migration.
pub(super) const LOCK_TIMEOUT: &str = "300ms";
/// The interval of checks whether the server still knows the connection, and the time without replies after which the
/// connection counts as lost.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
const LOST_TIMEOUT: Duration = Duration::from_secs(30);

/// Migrates a schema. `options` identify the database; the limits on statement times are removed.
pub async fn migrate(options: &PgConnectOptions, plan: &MigrationPlan) -> Result<(), SchemaError> {
    let options = options
        .clone()
        .application_name(&format!("keyward migrate (process {})", std::process::id()))
        .options([("statement_timeout", "0"), ("idle_in_transaction_session_timeout", "0")]);
    let mut connection = options.connect().await?;
    let process: i32 = query_scalar("SELECT pg_backend_pid()").fetch_one(&mut connection).await?;
    let done = tokio::select! {
        done = run(&mut connection, plan) => done,
        lost = wait_until_lost(&options, process) => Err(lost),
    };
    // Closing the connection releases the lock.
    let _ = timeout(CHECK_INTERVAL, connection.close()).await;
    done
}

async fn run(connection: &mut PgConnection, plan: &MigrationPlan) -> Result<(), SchemaError> {
    enable_disconnect_detection(connection).await?;
    set_lock_timeout(connection, LOCK_TIMEOUT).await?;
    acquire_lock(connection).await?;
    if let Some(schema) = plan.schema {
        connection.create_schema_if_not_exists(schema).await?;
    }
    connection.ensure_migrations_table(&plan.table).await?;
    let applied = connection.list_applied_migrations(&plan.table).await?;
    let progress = MigrationProgress { is_new: applied.is_empty() };
    for migration in plan.list_pending(&applied)? {
        let began = progress.log_start(migration);
        let online = plan.online.iter().find(|(version, _)| *version == migration.version);
        match online.filter(|_| !progress.is_new) {
            Some((_, steps)) => {
                let done = online::run(connection, migration.version, steps).await;
                done.map_err(|e| MigrateError::ExecuteMigration(e, migration.version))?;
                connection.skip(&plan.table, migration).await?;
            }
            None => apply(connection, plan, migration).await?,
        }
        progress.log_end(migration, &began);
    }
    Ok(())
}

/// Applies a migration as its file contains it, in one transaction.
async fn apply(
    connection: &mut PgConnection,
    plan: &MigrationPlan,
    migration: &Migration,
) -> Result<(), SchemaError> {
    let mut log_timer = LogTimer::default();
    // The build of an index, in the migration before, waits for locks without a limit.
    set_lock_timeout(connection, LOCK_TIMEOUT).await?;
    loop {
        match connection.apply(&plan.table, migration).await {
            Err(MigrateError::ExecuteMigration(e, _)) if is_in_use(&e) => {
                wait_for_lock(connection, &mut log_timer).await?;
            }
            applied => return Ok(applied.map(drop)?),
        }
    }
}

/// Acquires the lock that every migration holds, including those of older versions. It polls for the lock: a
/// statement that waits would block concurrent index builds, which wait for every statement.
async fn acquire_lock(connection: &mut PgConnection) -> Result<(), SchemaError> {
    let mut log_timer = LogTimer::default();
    loop {
        match connection.lock().await {
            Err(MigrateError::Execute(e)) if is_in_use(&e) => {}
            locked => return Ok(locked?),
        }
        if log_timer.is_due() {
            let holders: Vec<DatabaseSession> = query_as(
                "SELECT a.pid, a.application_name, host(a.client_addr) AS address,
                    CAST(EXTRACT(EPOCH FROM clock_timestamp() - a.backend_start) AS BIGINT) AS seconds
                FROM pg_locks l
                JOIN pg_stat_activity a ON a.pid = l.pid
                JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
                WHERE l.locktype = 'advisory' AND l.granted
                ORDER BY a.backend_start",
            )
            .fetch_all(&mut *connection)
            .await?;
            tracing::info!(
                "waiting for another process to migrate the schema: {}",
                DatabaseSession::format_list(&holders)
            );
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// Pauses before another attempt to acquire a lock, and logs from time to time which sessions probably hold it.
pub(super) async fn wait_for_lock(
    connection: &mut PgConnection,
    log_timer: &mut LogTimer,
) -> sqlx::Result<()> {
    if log_timer.is_due() {
        let oldest: Vec<DatabaseSession> = query_as(
            "SELECT pid, application_name, host(client_addr) AS address,
                CAST(EXTRACT(EPOCH FROM clock_timestamp() - xact_start) AS BIGINT) AS seconds
            FROM pg_stat_activity
            WHERE datname = current_database() AND xact_start IS NOT NULL
                AND pid <> pg_backend_pid()
            ORDER BY xact_start
            LIMIT 3",
        )
        .fetch_all(&mut *connection)
        .await?;
        tracing::info!(
            "waiting for a lock in the database; the oldest transactions: {}",
            DatabaseSession::format_list(&oldest)
        );
    }
    sleep(RETRY_PAUSE).await;
    Ok(())
}

pub(super) async fn set_lock_timeout(
    connection: &mut PgConnection,
    timeout: &str,
) -> sqlx::Result<()> {
    let set = query("SELECT set_config('lock_timeout', $1, FALSE)");
    set.bind(timeout).execute(connection).await.map(drop)
}

/// Runs one statement outside of a transaction, and retries until it acquires its locks. `is_patient` means that the
/// statement blocks no other client while it waits.
pub(super) async fn run_with_lock_retries(
    connection: &mut PgConnection,
    sql: &'static str,
    is_patient: bool,
) -> sqlx::Result<u64> {
    let mut log_timer = LogTimer::default();
    set_lock_timeout(connection, if is_patient { "0" } else { LOCK_TIMEOUT }).await?;
    loop {
        match sqlx::raw_sql(sql).execute(&mut *connection).await {
            Err(e) if is_in_use(&e) => wait_for_lock(connection, &mut log_timer).await?,
            done => return Ok(done?.rows_affected()),
        }
    }
}

/// Returns whether a statement did not acquire a lock, or was canceled because of a deadlock.
pub(super) fn is_in_use(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return false };
    error.code().is_some_and(|code| code == "55P03" || code == "40P01")
}

/// Configures the session so that the server ends a statement whose client has disconnected, and releases its locks.
/// Skips settings that the server does not have.
async fn enable_disconnect_detection(connection: &mut PgConnection) -> sqlx::Result<()> {
    query(
        "SELECT set_config(s.name, wanted.value, FALSE)
        FROM pg_settings s
        JOIN (VALUES ('tcp_keepalives_idle', '5'), ('tcp_keepalives_interval', '5'),
            ('tcp_keepalives_count', '3'), ('client_connection_check_interval', '5000')
        ) AS wanted (name, value) ON wanted.name = s.name",
    )
    .execute(connection)
    .await
    .map(drop)
}

/// Waits until the server no longer knows the connection, or was unreachable for 30 s: a statement without a time
/// limit would wait forever if the network drops its packets.
async fn wait_until_lost(options: &PgConnectOptions, process: i32) -> SchemaError {
    let mut silence: Option<Stopwatch> = None;
    loop {
        sleep(CHECK_INTERVAL).await;
        let is_known = timeout(CHECK_INTERVAL, is_connection_known(options, process)).await;
        match is_known {
            Ok(Ok(false)) => break,
            // A server that rejects a connection is reachable.
            Ok(Ok(true) | Err(sqlx::Error::Database(_))) => silence = None,
            Ok(Err(_)) | Err(_) => {
                if silence.get_or_insert_with(Stopwatch::new).elapsed() >= LOST_TIMEOUT {
                    break;
                }
            }
        }
    }
    let lost = std::io::Error::new(std::io::ErrorKind::TimedOut, "the connection was lost");
    SchemaError::from(sqlx::Error::Io(lost))
}

async fn is_connection_known(options: &PgConnectOptions, process: i32) -> sqlx::Result<bool> {
    let mut connection = options.connect().await?;
    let sql = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)";
    let is_known = query_scalar(sql).bind(process).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(is_known)
}

/// A database session that may hold a lock that a migration waits for.
#[derive(sqlx_macros::FromRow)]
struct DatabaseSession {
    pid: i32,
    application_name: String,
    address: Option<String>,
    seconds: i64,
}

impl DatabaseSession {
    fn format_list(sessions: &[Self]) -> String {
        let one = |session: &Self| {
            let Self { pid, application_name, address, seconds } = session;
            let address = address.as_deref().unwrap_or("this machine");
            format!("{application_name:?} from {address} (backend {pid}, for {seconds} s)")
        };
        sessions.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}
