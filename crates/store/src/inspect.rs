//! What there is to see of a database and its server from outside: whether its schema is this program's, how it is set,
//! how far it is.
//!
//! Here alone a statement is written for one engine, for it asks about that engine. Nothing is made, migrated or
//! written.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use foundation::clock::{Stopwatch, Timestamp};
use foundation::error::Result;
use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, PgPool, SqlitePool, query, query_as, query_scalar};

use super::events::EventDatabase;
use super::{EventStore, Store, events, postgres, sqlite};

/// The schema of a database, held against the one that this program has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schema {
    /// How many migrations have been applied.
    pub applied: usize,
    /// Those that a start would apply.
    pub pending: Vec<i64>,
    /// The first one that this program does not know, or knows otherwise.
    pub foreign: Option<i64>,
}

impl Schema {
    pub fn is_current(&self) -> bool {
        self.pending.is_empty() && self.foreign.is_none()
    }

    /// Whether there is one, to which migrations are to be applied that may take long.
    pub fn is_older(&self) -> bool {
        self.applied > 0 && !self.pending.is_empty() && self.foreign.is_none()
    }

    fn of(known: &Migrator, applied: &[(i64, Vec<u8>)]) -> Self {
        let is_known = |(version, checksum): &(i64, Vec<u8>)| {
            known.iter().any(|m| m.version == *version && *m.checksum == *checksum)
        };
        let is_applied = |version: i64| applied.iter().any(|(applied, _)| *applied == version);
        let versions = known.iter().map(|m| m.version);
        Self {
            applied: applied.len(),
            pending: versions.filter(|version| !is_applied(*version)).collect(),
            foreign: applied.iter().find(|row| !is_known(row)).map(|(version, _)| *version),
        }
    }
}

/// A Postgres, as it is set.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct PostgresServer {
    pub version: String,
    /// 150004 is 15.4.
    pub version_number: i64,
    /// How many connections it takes, those for its superusers among them.
    pub connections_max: i64,
    pub connections_reserved: i64,
    /// How many there are.
    pub connections: i64,
    /// Whether it only follows another one, and cannot be written.
    pub is_standby: bool,
}

/// How far the events are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct EventsState {
    pub last_written_at: Option<Timestamp>,
    /// How many batches have not been summed up, though they were there before the moment that was asked about.
    pub late: i64,
    pub size_bytes: i64,
}

/// How many round trips are made to find the shortest.
const TRIPS: usize = 5;

impl Store {
    /// Connects to Postgres to look and not to write; fails within three seconds when it is not there.
    pub async fn connect_read_only(url: &str) -> Result<Self> {
        let pool = Arc::new(postgres::connect_read_only(url).await?);
        Ok(Self::Postgres { reserved: pool.clone(), pool })
    }

    /// Opens the file to look and not to write. It must be there.
    pub async fn open_read_only(path: &Path) -> Result<Self> {
        let pool = sqlite::open_read_only(path);
        pool.acquire().await?;
        Ok(Self::Sqlite { pool, writer: None })
    }

    pub async fn schema(&self) -> Result<Schema> {
        match self {
            Self::Postgres { pool, .. } => {
                postgres_schema(&pool.get(), "_sqlx_migrations", &super::POSTGRES).await
            }
            Self::Sqlite { pool, .. } => sqlite_schema(pool, &super::SQLITE).await,
        }
    }

    /// The shortest of a few round trips.
    pub async fn round_trip(&self) -> Result<Duration> {
        let mut shortest = Duration::MAX;
        for _ in 0..TRIPS {
            let began = Stopwatch::new();
            match self {
                Self::Postgres { pool, .. } => {
                    query("SELECT 1").execute(&pool.get()).await.map(drop)?;
                }
                Self::Sqlite { pool, .. } => query("SELECT 1").execute(pool).await.map(drop)?,
            }
            shortest = shortest.min(began.elapsed());
        }
        Ok(shortest)
    }

    /// The server, where there is one.
    pub async fn server(&self) -> Result<Option<PostgresServer>> {
        let Self::Postgres { pool, .. } = self else { return Ok(None) };
        let sql = "
            SELECT current_setting('server_version') AS version,
                CAST(current_setting('server_version_num') AS BIGINT) AS version_number,
                CAST(current_setting('max_connections') AS BIGINT) AS connections_max,
                CAST(current_setting('superuser_reserved_connections') AS BIGINT)
                    AS connections_reserved,
                (SELECT COUNT(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
                    AS connections,
                pg_is_in_recovery() AS is_standby";
        Ok(Some(query_as(sql).fetch_one(&pool.get()).await?))
    }

    /// What SQLite finds wrong with the file. Postgres is not asked: it looks after its own.
    pub async fn check_integrity(&self) -> Result<Vec<String>> {
        match self {
            Self::Postgres { .. } => Ok(Vec::new()),
            Self::Sqlite { pool, .. } => quick_check(pool).await,
        }
    }
}

impl EventStore {
    /// Opens the file to look and not to write. It must be there.
    pub fn open_read_only(path: &Path) -> Self {
        let read = sqlite::open_read_only(path);
        Self::of(EventDatabase::Sqlite { write: read.clone(), ask: read.clone(), read })
    }

    pub async fn schema(&self) -> Result<Schema> {
        match &self.tables {
            EventDatabase::Postgres { read, .. } => {
                let table = format!("{}._sqlx_migrations", events::SCHEMA);
                postgres_schema(&read.get(), &table, &events::POSTGRES).await
            }
            EventDatabase::Sqlite { read, .. } => sqlite_schema(read, &events::SQLITE).await,
        }
    }

    /// As [`Store::faults`].
    pub async fn check_integrity(&self) -> Result<Vec<String>> {
        match &self.tables {
            EventDatabase::Postgres { .. } => Ok(Vec::new()),
            EventDatabase::Sqlite { read, .. } => quick_check(read).await,
        }
    }

    /// How far they are; what was written before `late` should have been summed up.
    pub async fn state(&self, late: Timestamp) -> Result<EventsState> {
        match &self.tables {
            EventDatabase::Postgres { read, .. } => {
                let sql = "
                    SELECT (SELECT MAX(written_at) FROM batches) AS last_written_at,
                        (SELECT COUNT(*) FROM batches WHERE NOT summed AND written_at < $1) AS late,
                        (SELECT CAST(COALESCE(SUM(pg_total_relation_size(c.oid)), 0) AS BIGINT)
                            FROM pg_class c
                            JOIN pg_namespace n ON n.oid = c.relnamespace
                            WHERE n.nspname = $2 AND c.relkind = 'r') AS size_bytes";
                Ok(query_as(sql).bind(late).bind(events::SCHEMA).fetch_one(&read.get()).await?)
            }
            EventDatabase::Sqlite { read, .. } => {
                let sql = "
                    SELECT (SELECT MAX(written_at) FROM batches) AS last_written_at,
                        (SELECT COUNT(*) FROM batches WHERE NOT summed AND written_at < $1) AS late,
                        (SELECT page_count FROM pragma_page_count())
                            * (SELECT page_size FROM pragma_page_size()) AS size_bytes";
                Ok(query_as(sql).bind(late).fetch_one(read).await?)
            }
        }
    }
}

/// `table` is one of ours, so its name can stand in a statement.
async fn postgres_schema(pool: &PgPool, table: &str, known: &Migrator) -> Result<Schema> {
    let is_there = query_scalar("SELECT to_regclass($1) IS NOT NULL").bind(table);
    if !is_there.fetch_one(pool).await? {
        return Ok(Schema::of(known, &[]));
    }
    let sql = format!("SELECT version, checksum FROM {table} WHERE success ORDER BY version");
    let applied: Vec<(i64, Vec<u8>)> = query_as(AssertSqlSafe(sql)).fetch_all(pool).await?;
    Ok(Schema::of(known, &applied))
}

async fn sqlite_schema(pool: &SqlitePool, known: &Migrator) -> Result<Schema> {
    let sql = "SELECT COUNT(*) FROM sqlite_master WHERE name = '_sqlx_migrations'";
    let tables: i64 = query_scalar(sql).fetch_one(pool).await?;
    if tables == 0 {
        return Ok(Schema::of(known, &[]));
    }
    let sql = "SELECT version, checksum FROM _sqlx_migrations WHERE success ORDER BY version";
    let applied: Vec<(i64, Vec<u8>)> = query_as(sql).fetch_all(pool).await?;
    Ok(Schema::of(known, &applied))
}

async fn quick_check(pool: &SqlitePool) -> Result<Vec<String>> {
    let told: Vec<String> = query_scalar("PRAGMA quick_check(5)").fetch_all(pool).await?;
    Ok(told.into_iter().filter(|line| line != "ok").collect())
}
