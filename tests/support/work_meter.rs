//! Measures how much statements read, to test that an index finds their rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::{PgPool, SqlitePool};
use store::Store;
use store::events::{EventDatabase, EventStore, SCHEMA};

/// Counts the work of statements since it was started: rows that Postgres reads, hundreds of steps of SQLite.
pub enum WorkMeter {
    Postgres { pool: PgPool, tables: Tables, rows_before: i64 },
    Sqlite(Arc<AtomicUsize>),
}

/// The tables of a schema whose names begin with a text.
#[derive(Clone, Copy)]
pub struct Tables {
    schema: &'static str,
    prefix: &'static str,
}

impl WorkMeter {
    /// Measures the statements of a store.
    pub async fn of_store(store: &Store) -> Self {
        match store {
            Store::Postgres { pool, .. } => {
                Self::of_postgres(pool.get(), Tables { schema: "public", prefix: "" }).await
            }
            Store::Sqlite { pool, .. } => Self::of_sqlite(pool).await,
        }
    }

    /// Measures the reads of events: in Postgres, of the tables whose names begin with `prefix`.
    pub async fn of_events(events: &EventStore, prefix: &'static str) -> Self {
        match &events.database {
            EventDatabase::Postgres { read, .. } => {
                Self::of_postgres(read.get(), Tables { schema: SCHEMA, prefix }).await
            }
            EventDatabase::Sqlite { read, .. } => Self::of_sqlite(read).await,
        }
    }

    async fn of_postgres(pool: PgPool, tables: Tables) -> Self {
        let rows_before = count_rows_read(&pool, tables).await;
        Self::Postgres { pool, tables, rows_before }
    }

    async fn of_sqlite(pool: &SqlitePool) -> Self {
        let steps = Arc::new(AtomicUsize::new(0));
        let mut connections = Vec::new();
        for _ in 0..pool.options().get_max_connections() {
            let mut connection = pool.acquire().await.expect("a connection");
            let counted = steps.clone();
            connection.lock_handle().await.expect("a handle").set_progress_handler(
                100,
                move || {
                    counted.fetch_add(1, Ordering::Relaxed);
                    true
                },
            );
            connections.push(connection);
        }
        Self::Sqlite(steps)
    }

    pub async fn measure(&self) -> usize {
        match self {
            Self::Postgres { pool, tables, rows_before } => {
                usize::try_from(count_rows_read(pool, *tables).await - rows_before).expect("rows")
            }
            Self::Sqlite(steps) => steps.load(Ordering::Relaxed),
        }
    }
}

/// Returns how many rows of tables were read. Each connection of the pool reports what it has counted.
async fn count_rows_read(pool: &PgPool, tables: Tables) -> i64 {
    let mut connections = Vec::new();
    for _ in 0..pool.options().get_max_connections() {
        let mut connection = pool.acquire().await.expect("a connection");
        sqlx::query("SELECT pg_stat_force_next_flush()")
            .execute(&mut *connection)
            .await
            .expect("an answer");
        connections.push(connection);
    }
    let last = &mut *connections[0];
    sqlx::query("SELECT pg_stat_clear_snapshot()").execute(&mut *last).await.expect("an answer");
    let sql = "SELECT CAST(SUM(seq_tup_read + COALESCE(idx_tup_fetch, 0)) AS BIGINT)
        FROM pg_stat_user_tables WHERE schemaname = $1 AND starts_with(relname, $2)";
    sqlx::query_scalar(sql)
        .bind(tables.schema)
        .bind(tables.prefix)
        .fetch_one(last)
        .await
        .expect("a number")
}
