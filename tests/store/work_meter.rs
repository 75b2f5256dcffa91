//! Measures how much a statement reads, to test that an index finds its rows.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Counts the work of statements: rows that Postgres reads, hundreds of steps of SQLite. Postgres counts rows per connection, so
/// its store must have one.
pub enum WorkMeter {
    Postgres { rows_before: i64 },
    Sqlite(Arc<AtomicUsize>),
}

impl WorkMeter {
    pub async fn start(store: &Store) -> Self {
        match store {
            Store::Postgres { .. } => Self::Postgres { rows_before: rows_read(store).await },
            Store::Sqlite { pool, .. } => {
                let steps = Arc::new(AtomicUsize::new(0));
                let mut connections = Vec::new();
                for _ in 0..pool.options().get_max_connections() {
                    let mut connection = pool.acquire().await.unwrap();
                    let counted = steps.clone();
                    connection.lock_handle().await.unwrap().set_progress_handler(100, move || {
                        counted.fetch_add(1, Ordering::Relaxed);
                        true
                    });
                    connections.push(connection);
                }
                Self::Sqlite(steps)
            }
        }
    }

    pub async fn measure(&self, store: &Store) -> usize {
        match self {
            Self::Postgres { rows_before } => {
                usize::try_from(rows_read(store).await - rows_before).unwrap()
            }
            Self::Sqlite(steps) => steps.load(Ordering::Relaxed),
        }
    }
}

/// Returns how many rows of all tables the only connection has read.
async fn rows_read(store: &Store) -> i64 {
    let Store::Postgres { pool, .. } = store else { panic!("the store is not Postgres") };
    let pool = pool.get();
    sqlx::query("SELECT pg_stat_force_next_flush()").execute(&pool).await.unwrap();
    sqlx::query("SELECT pg_stat_clear_snapshot()").execute(&pool).await.unwrap();
    let sql = "SELECT CAST(SUM(seq_tup_read + COALESCE(idx_tup_fetch, 0)) AS BIGINT)
        FROM pg_stat_user_tables";
    sqlx::query_scalar(sql).fetch_one(&pool).await.unwrap()
}
