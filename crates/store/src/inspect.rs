//! Inspects a database and its server: the schema version, the settings, and the progress of analytics.
//!
//! Only here are statements written for one engine, because they query that engine. Nothing is created, migrated or
//! written.

use std::path::Path;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use foundation::clock::{Stopwatch, Timestamp};
use foundation::error::Result;
use foundation::tls;
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{AssertSqlSafe, PgPool, SqlitePool, query, query_as, query_scalar};
use url::Url;

use super::events::EventDatabase;
use super::{EventStore, Store, events, postgres, sqlite};

/// The schema of a database, compared with the one that this program contains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SchemaStatus {
    /// The number of applied migrations.
    pub applied_count: usize,
    /// The versions of the migrations that a start would apply.
    pub pending_versions: Vec<i64>,
    /// The first applied migration that this program does not contain, or contains with other content.
    pub unknown_version: Option<i64>,
}

impl SchemaStatus {
    pub fn is_current(&self) -> bool {
        self.pending_versions.is_empty() && self.unknown_version.is_none()
    }

    /// Returns whether the database has a schema to which migrations remain to be applied, which may take long.
    pub fn is_older(&self) -> bool {
        self.applied_count > 0
            && !self.pending_versions.is_empty()
            && self.unknown_version.is_none()
    }

    fn compare(known: &Migrator, applied: &[(i64, Vec<u8>)]) -> Self {
        let is_known = |(version, checksum): &(i64, Vec<u8>)| {
            known.iter().any(|m| m.version == *version && *m.checksum == *checksum)
        };
        let is_applied = |version: i64| applied.iter().any(|(applied, _)| *applied == version);
        let versions = known.iter().map(|m| m.version);
        Self {
            applied_count: applied.len(),
            pending_versions: versions.filter(|version| !is_applied(*version)).collect(),
            unknown_version: applied.iter().find(|row| !is_known(row)).map(|(version, _)| *version),
        }
    }
}

/// Returns the host that a connection with this URL sends its password to without verifying a certificate. `None`: the
/// URL has no password, or the connection stays on this machine, or the certificate is verified.
pub fn find_unverified_host(url: &str) -> Option<String> {
    let parsed = Url::parse(url).ok()?;
    let has_password = parsed.password().is_some()
        || parsed.query_pairs().any(|(name, value)| name == "password" && !value.is_empty());
    if !has_password {
        return None;
    }
    let options = PgConnectOptions::from_str(url).ok()?;
    // `VerifyCa` is not enough: the driver trusts the authorities of the web, which sign certificates for anyone's name.
    let is_verified = matches!(options.get_ssl_mode(), PgSslMode::VerifyFull);
    let is_local = options.get_socket().is_some() || tls::is_loopback(options.get_host());
    (!is_verified && !is_local).then(|| options.get_host().to_owned())
}

/// The settings and the state of a Postgres server.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct PostgresServer {
    pub version: String,
    /// The version as a number: 150004 is 15.4.
    pub version_number: i64,
    /// The maximum number of connections, including those reserved for superusers and certain roles.
    pub connections_max: i64,
    pub connections_reserved: i64,
    /// The current number of connections.
    pub connections: i64,
    /// Whether it is a standby, which cannot be written to.
    pub is_standby: bool,
    /// The names of the settings that are off, without which a commit is not durable, as connections of this role have them.
    pub disabled_durability: Vec<String>,
}

/// The state of the analytics events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct EventsState {
    pub last_written_at: Option<Timestamp>,
    /// The number of batches written before the given time that have not been rolled up.
    pub late: i64,
    pub size_bytes: i64,
}

/// The number of round trips, of which the shortest is returned.
const ROUND_TRIPS: usize = 5;

impl Store {
    /// Connects to Postgres read-only. Fails within four seconds if Postgres is unreachable.
    pub async fn connect_read_only(url: &str) -> Result<Self> {
        let pool = Arc::new(postgres::read_only_pool(url, 2)?);
        pool.open().await?;
        Ok(Self::Postgres { reserved: pool.clone(), pool })
    }

    /// Opens the file read-only. Fails if it does not exist.
    pub async fn open_read_only(path: &Path) -> Result<Self> {
        let pool = sqlite::open_read_only(path);
        pool.acquire().await?;
        Ok(Self::Sqlite { pool, writer: None })
    }

    pub async fn load_schema(&self) -> Result<SchemaStatus> {
        match self {
            Self::Postgres { pool, .. } => {
                load_postgres_schema(&pool.get(), "_sqlx_migrations", &super::POSTGRES).await
            }
            Self::Sqlite { pool, .. } => load_sqlite_schema(pool, &super::SQLITE).await,
        }
    }

    /// Returns the shortest of a few round trips.
    pub async fn measure_round_trip(&self) -> Result<Duration> {
        let mut shortest = Duration::MAX;
        for _ in 0..ROUND_TRIPS {
            let stopwatch = Stopwatch::new();
            match self {
                Self::Postgres { pool, .. } => {
                    query("SELECT 1").execute(&pool.get()).await.map(drop)?;
                }
                Self::Sqlite { pool, .. } => query("SELECT 1").execute(pool).await.map(drop)?,
            }
            shortest = shortest.min(stopwatch.elapsed());
        }
        Ok(shortest)
    }

    /// Returns the settings of the Postgres server; `None` for SQLite.
    pub async fn load_postgres_settings(&self) -> Result<Option<PostgresServer>> {
        let Self::Postgres { pool, .. } = self else { return Ok(None) };
        let sql = "
            SELECT current_setting('server_version') AS version,
                CAST(current_setting('server_version_num') AS BIGINT) AS version_number,
                CAST(current_setting('max_connections') AS BIGINT) AS connections_max,
                CAST(current_setting('superuser_reserved_connections') AS BIGINT)
                    + CAST(COALESCE(current_setting('reserved_connections', TRUE), '0') AS BIGINT)
                    AS connections_reserved,
                (SELECT COUNT(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
                    AS connections,
                pg_is_in_recovery() AS is_standby,
                ARRAY(SELECT name FROM pg_settings
                    WHERE name IN ('fsync', 'synchronous_commit') AND setting = 'off'
                    ORDER BY name) AS disabled_durability";
        Ok(Some(query_as(sql).fetch_one(&pool.get()).await?))
    }

    /// Returns the problems that SQLite finds in the file. Postgres is not checked: it verifies its own files.
    pub async fn check_integrity(&self) -> Result<Vec<String>> {
        match self {
            Self::Postgres { .. } => Ok(Vec::new()),
            Self::Sqlite { pool, .. } => quick_check(pool).await,
        }
    }
}

impl EventStore {
    /// Opens the file read-only. The file must exist.
    pub fn open_read_only(path: &Path) -> Self {
        let read = sqlite::open_read_only(path);
        Self::from_database(EventDatabase::Sqlite {
            write: read.clone(),
            analytics: read.clone(),
            read,
        })
    }

    pub async fn load_schema(&self) -> Result<SchemaStatus> {
        match &self.database {
            EventDatabase::Postgres { read, .. } => {
                let table = format!("{}._sqlx_migrations", events::SCHEMA);
                load_postgres_schema(&read.get(), &table, &events::POSTGRES_MIGRATIONS).await
            }
            EventDatabase::Sqlite { read, .. } => {
                load_sqlite_schema(read, &events::SQLITE_MIGRATIONS).await
            }
        }
    }

    /// Returns the problems that SQLite finds in the file, as [`Store::check_integrity`] does.
    pub async fn check_integrity(&self) -> Result<Vec<String>> {
        match &self.database {
            EventDatabase::Postgres { .. } => Ok(Vec::new()),
            EventDatabase::Sqlite { read, .. } => quick_check(read).await,
        }
    }

    /// Returns the state of the analytics events. Batches written before `late` should have been rolled up.
    pub async fn load_state(&self, late: Timestamp) -> Result<EventsState> {
        match &self.database {
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

/// Reads the applied migrations from `table`, whose name is a constant of this program and therefore safe in a
/// statement.
async fn load_postgres_schema(
    pool: &PgPool,
    table: &str,
    known: &Migrator,
) -> Result<SchemaStatus> {
    let exists = query_scalar("SELECT to_regclass($1) IS NOT NULL").bind(table);
    if !exists.fetch_one(pool).await? {
        return Ok(SchemaStatus::compare(known, &[]));
    }
    let sql = format!("SELECT version, checksum FROM {table} WHERE success ORDER BY version");
    let applied: Vec<(i64, Vec<u8>)> = query_as(AssertSqlSafe(sql)).fetch_all(pool).await?;
    Ok(SchemaStatus::compare(known, &applied))
}

async fn load_sqlite_schema(pool: &SqlitePool, known: &Migrator) -> Result<SchemaStatus> {
    let sql = "SELECT COUNT(*) FROM sqlite_master WHERE name = '_sqlx_migrations'";
    let tables: i64 = query_scalar(sql).fetch_one(pool).await?;
    if tables == 0 {
        return Ok(SchemaStatus::compare(known, &[]));
    }
    let sql = "SELECT version, checksum FROM _sqlx_migrations WHERE success ORDER BY version";
    let applied: Vec<(i64, Vec<u8>)> = query_as(sql).fetch_all(pool).await?;
    Ok(SchemaStatus::compare(known, &applied))
}

async fn quick_check(pool: &SqlitePool) -> Result<Vec<String>> {
    let lines: Vec<String> = query_scalar("PRAGMA quick_check(5)").fetch_all(pool).await?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}
