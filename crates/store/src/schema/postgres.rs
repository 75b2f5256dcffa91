//! Migrations of Postgres, while replicas of the schema before use it.

use std::time::Duration;

use foundation::clock::Stopwatch;
use sqlx::migrate::{Migrate as _, MigrateError, Migration};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _, query, query_as, query_scalar};
use tokio::time::{sleep, timeout};

use super::{AGAIN_AFTER, Plan, Progress, SchemaError, Told, online};

/// How long a statement waits for a lock before it lets those pass that wait behind it, and asks again. Less than
/// `deadlock_timeout` (1 s), so that no transaction of a replica is ever ended for the sake of a migration.
const LOCK_TIMEOUT: &str = "300ms";
/// How often it is asked whether the server still has the connection, and how long it may not answer.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const LOST_AFTER: Duration = Duration::from_secs(30);

/// Brings a schema up to date. `options` lead to the database; what bounds the time of a statement is left out.
pub async fn migrate(options: &PgConnectOptions, plan: &Plan) -> Result<(), SchemaError> {
    let options = options
        .clone()
        .application_name(&format!("keyward migrate (process {})", std::process::id()))
        .options([("statement_timeout", "0"), ("idle_in_transaction_session_timeout", "0")]);
    let mut connection = options.connect().await?;
    let process: i32 = query_scalar("SELECT pg_backend_pid()").fetch_one(&mut connection).await?;
    let done = tokio::select! {
        done = run(&mut connection, plan) => done,
        lost = until_lost(&options, process) => Err(lost),
    };
    // With it goes the lock.
    let _ = timeout(LOOK_EVERY, connection.close()).await;
    done
}

async fn run(connection: &mut PgConnection, plan: &Plan) -> Result<(), SchemaError> {
    notice_that_the_client_is_gone(connection).await?;
    set_lock_timeout(connection, LOCK_TIMEOUT).await?;
    lock(connection).await?;
    if let Some(schema) = plan.schema {
        connection.create_schema_if_not_exists(schema).await?;
    }
    connection.ensure_migrations_table(&plan.table).await?;
    let applied = connection.list_applied_migrations(&plan.table).await?;
    let progress = Progress { is_new: applied.is_empty() };
    for migration in plan.pending(&applied)? {
        let began = progress.begins(migration);
        let online = plan.online.iter().find(|(version, _)| *version == migration.version);
        match online.filter(|_| !progress.is_new) {
            Some((_, steps)) => {
                let done = online::run(connection, steps).await;
                done.map_err(|e| MigrateError::ExecuteMigration(e, migration.version))?;
                connection.skip(&plan.table, migration).await?;
            }
            None => apply(connection, plan, migration).await?,
        }
        progress.is_done(migration, &began);
    }
    Ok(())
}

/// Applies a migration as it stands in its file, in one transaction.
async fn apply(
    connection: &mut PgConnection,
    plan: &Plan,
    migration: &Migration,
) -> Result<(), SchemaError> {
    let mut told = Told::default();
    loop {
        match connection.apply(&plan.table, migration).await {
            Err(MigrateError::ExecuteMigration(e, _)) if is_in_use(&e) => {
                wait(connection, &mut told).await?;
            }
            applied => return Ok(applied.map(drop)?),
        }
    }
}

/// Takes the lock that every migration holds, those of programs before this one too. It is asked for again and again,
/// for a statement that waits would keep an index from being built concurrently, which waits for every statement.
async fn lock(connection: &mut PgConnection) -> Result<(), SchemaError> {
    let mut told = Told::default();
    loop {
        match connection.lock().await {
            Err(MigrateError::Execute(e)) if is_in_use(&e) => {}
            locked => return Ok(locked?),
        }
        if told.is_due() {
            let holders: Vec<Session> = query_as(
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
                Session::list(&holders)
            );
        }
        sleep(AGAIN_AFTER).await;
    }
}

/// Waits until what a statement needs may be free, and says now and then who is likely to have it.
pub(super) async fn wait(connection: &mut PgConnection, told: &mut Told) -> sqlx::Result<()> {
    if told.is_due() {
        let oldest: Vec<Session> = query_as(
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
            Session::list(&oldest)
        );
    }
    sleep(AGAIN_AFTER).await;
    Ok(())
}

pub(super) async fn set_lock_timeout(
    connection: &mut PgConnection,
    timeout: &str,
) -> sqlx::Result<()> {
    let set = query("SELECT set_config('lock_timeout', $1, FALSE)");
    set.bind(timeout).execute(connection).await.map(drop)
}

/// Runs one statement by itself, and again until it gets its locks. `patient`: it holds up nobody while it waits.
pub(super) async fn run_patiently(
    connection: &mut PgConnection,
    sql: &'static str,
    is_patient: bool,
) -> sqlx::Result<u64> {
    let mut told = Told::default();
    set_lock_timeout(connection, if is_patient { "0" } else { LOCK_TIMEOUT }).await?;
    loop {
        match sqlx::raw_sql(sql).execute(&mut *connection).await {
            Err(e) if is_in_use(&e) => wait(connection, &mut told).await?,
            done => return Ok(done?.rows_affected()),
        }
    }
}

/// Whether a statement did not get a lock, or was ended because it and another one waited for each other.
pub(super) fn is_in_use(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return false };
    error.code().is_some_and(|code| code == "55P03" || code == "40P01")
}

/// Where the server is told so, it ends a statement whose client is gone, and gives back what that had locked.
async fn notice_that_the_client_is_gone(connection: &mut PgConnection) -> sqlx::Result<()> {
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

/// Waits until the server does not know the connection any more, or has not been reached for long: a statement without
/// a bound would wait for ever on a connection that fell into a hole.
async fn until_lost(options: &PgConnectOptions, process: i32) -> SchemaError {
    let mut silent: Option<Stopwatch> = None;
    loop {
        sleep(LOOK_EVERY).await;
        let is_there = timeout(LOOK_EVERY, knows(options, process)).await;
        match is_there {
            Ok(Ok(false)) => break,
            // A server that refuses is there.
            Ok(Ok(true) | Err(sqlx::Error::Database(_))) => silent = None,
            Ok(Err(_)) | Err(_) => {
                if silent.get_or_insert_with(Stopwatch::new).elapsed() >= LOST_AFTER {
                    break;
                }
            }
        }
    }
    let lost = std::io::Error::new(std::io::ErrorKind::TimedOut, "the connection was lost");
    SchemaError::from(sqlx::Error::Io(lost))
}

async fn knows(options: &PgConnectOptions, process: i32) -> sqlx::Result<bool> {
    let mut connection = options.connect().await?;
    let sql = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)";
    let is_there = query_scalar(sql).bind(process).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(is_there)
}

/// Who has something that is waited for.
#[derive(sqlx::FromRow)]
struct Session {
    pid: i32,
    application_name: String,
    address: Option<String>,
    seconds: i64,
}

impl Session {
    fn list(sessions: &[Self]) -> String {
        let one = |session: &Self| {
            let Self { pid, application_name, address, seconds } = session;
            let address = address.as_deref().unwrap_or("this machine");
            format!("{application_name:?} from {address} (backend {pid}, for {seconds} s)")
        };
        sessions.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}
