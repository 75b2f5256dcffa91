//! Runs migrations of a SQLite file. A server has exclusive access while it starts; a command may run beside a
//! server.

use std::time::Duration;

use sqlx::migrate::Migrate as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _, Sqlite, Transaction};
use tokio::time::sleep;

use super::{LOG_INTERVAL, MigrationPlan, MigrationProgress, SchemaError, search_texts};

/// The maximum time that a process waits for another one that writes.
const BUSY_TIMEOUT: Duration = Duration::from_mins(10);

/// Migrates a schema. Each migration runs in a transaction that acquires the write lock at its beginning: of several
/// processes, the second finds the result of the first.
pub async fn migrate(
    options: &SqliteConnectOptions,
    plan: &MigrationPlan,
) -> Result<(), SchemaError> {
    let mut connection = options.clone().busy_timeout(BUSY_TIMEOUT).connect().await?;
    let mut tx = begin(&mut connection).await?;
    tx.ensure_migrations_table(&plan.table).await?;
    let applied = tx.list_applied_migrations(&plan.table).await?;
    tx.commit().await?;
    let progress = MigrationProgress { is_new: applied.is_empty() };
    for migration in plan.list_pending(&applied)? {
        let mut tx = begin(&mut connection).await?;
        let applied = tx.list_applied_migrations(&plan.table).await?;
        if plan.list_pending(&applied)?.iter().all(|pending| pending.version != migration.version) {
            continue;
        }
        let began = progress.log_start(migration);
        tx.apply(&plan.table, migration).await?;
        if plan.has_search_texts {
            search_texts::rewrite_in_sqlite(&mut tx, migration.version).await?;
        }
        tx.commit().await?;
        progress.log_end(migration, &began);
    }
    connection.close().await?;
    Ok(())
}

/// Begins a write transaction as soon as no other process is writing.
async fn begin(connection: &mut SqliteConnection) -> sqlx::Result<Transaction<'_, Sqlite>> {
    let mut begin = std::pin::pin!(connection.begin_with("BEGIN IMMEDIATE"));
    loop {
        tokio::select! {
            tx = &mut begin => return tx,
            () = sleep(LOG_INTERVAL) => {
                tracing::info!("waiting for another process to finish writing to the database");
            }
        }
    }
}
