//! Migrates the schema of a database, on a connection of its own without time limits, one process at a time.
//!
//! A new database receives the migrations as their files contain them. In Postgres, a migration that scans or
//! rewrites a table that may be large has a second form, in `migrations/online`, for a database in use: see
//! [`online`].

mod online;
pub(super) mod postgres;
mod search_texts;
pub(super) mod sqlite;

use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::error;
use sqlx::error::DatabaseError;
use sqlx::migrate::{AppliedMigration, MigrateError, Migration, Migrator};

/// The interval at which a long migration logs its progress, and a waiting one logs what it waits for.
const LOG_INTERVAL: Duration = Duration::from_secs(5);
/// The pause before another attempt to acquire a lock that was not free.
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// The reason why a schema could not be migrated.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    #[error(
        "the database schema (version {0}) is newer than this keyward supports: use a newer keyward"
    )]
    Newer(i64),
    #[error(
        "version {0} of the database schema was created by another keyward than this one: \
        use the one that created it, or a newer one"
    )]
    Mismatch(i64),
    #[error(
        "the database lacks the extension pg_trgm, with which searches find texts, and cannot create it ({0}): install it, \
        and run CREATE EXTENSION pg_trgm as a superuser or as the owner of the database"
    )]
    MissingExtension(String),
    #[error("failed to migrate the database schema: {0}")]
    Failed(MigrateError),
}

impl From<MigrateError> for SchemaError {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::VersionMissing(version) => Self::Newer(version),
            MigrateError::VersionMismatch(version) => Self::Mismatch(version),
            MigrateError::ExecuteMigration(sqlx::Error::Database(e), _)
                if is_missing_extension(&*e) =>
            {
                Self::MissingExtension(e.message().to_owned())
            }
            other => Self::Failed(other),
        }
    }
}

/// Returns whether Postgres does not have the extension, or does not allow this user to create it.
fn is_missing_extension(error: &dyn DatabaseError) -> bool {
    const UNDEFINED_FILE: &str = "58P01";
    const FEATURE_NOT_SUPPORTED: &str = "0A000";
    const INSUFFICIENT_PRIVILEGE: &str = "42501";
    let codes = [UNDEFINED_FILE, FEATURE_NOT_SUPPORTED, INSUFFICIENT_PRIVILEGE];
    error.code().is_some_and(|code| codes.contains(&&*code)) && error.message().contains("pg_trgm")
}

impl From<sqlx::Error> for SchemaError {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(MigrateError::Execute(error))
    }
}

impl SchemaError {
    /// Returns whether the database was unreachable, as opposed to a schema that this version cannot use or a
    /// migration that the database rejected, which an operator must resolve.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Failed(MigrateError::ExecuteMigration(sqlx::Error::Database(e), _)) => {
                e.code().is_some_and(|code| code.starts_with("08") || code.starts_with("57P"))
            }
            Self::Failed(MigrateError::Execute(e) | MigrateError::ExecuteMigration(e, _)) => {
                error::is_database_outage(e)
            }
            Self::Failed(_) | Self::MissingExtension(_) | Self::Newer(_) | Self::Mismatch(_) => {
                false
            }
        }
    }
}

/// The migrations of one database, and the table that records which of them are applied.
pub(super) struct MigrationPlan {
    pub migrations: &'static Migrator,
    pub table: String,
    /// The schema to create first, in Postgres.
    pub schema: Option<&'static str>,
    /// Migrations that have a form for a database in use, by version.
    pub online: &'static [(i64, &'static str)],
    /// Whether the database has search texts, which some migrations rewrite, in SQLite.
    pub has_search_texts: bool,
}

impl MigrationPlan {
    /// Creates the plan for a file, or for the default schema.
    pub fn new(migrations: &'static Migrator) -> Self {
        Self {
            migrations,
            table: "_sqlx_migrations".to_owned(),
            schema: None,
            online: &[],
            has_search_texts: false,
        }
    }

    /// Creates the plan for the main database in Postgres.
    pub fn for_postgres(migrations: &'static Migrator) -> Self {
        Self { online: &online::MIGRATIONS, ..Self::new(migrations) }
    }

    /// Creates the plan for the main database in SQLite.
    pub fn for_sqlite(migrations: &'static Migrator) -> Self {
        Self { has_search_texts: true, ..Self::new(migrations) }
    }

    /// Returns the migrations to apply. Fails if an applied migration is not one of this program.
    fn list_pending(
        &self,
        applied: &[AppliedMigration],
    ) -> Result<Vec<&'static Migration>, SchemaError> {
        let known = |version| self.migrations.iter().find(|known| known.version == version);
        for migration in applied {
            match known(migration.version) {
                None => return Err(SchemaError::Newer(migration.version)),
                Some(known) if known.checksum != migration.checksum => {
                    return Err(SchemaError::Mismatch(migration.version));
                }
                Some(_) => {}
            }
        }
        let is_applied =
            |known: &Migration| applied.iter().any(|applied| applied.version == known.version);
        Ok(self.migrations.iter().filter(|known| !is_applied(known)).collect())
    }
}

/// Returns the name of a migration in the log.
fn display_name(migration: &Migration) -> String {
    format!("{:04} ({})", migration.version, migration.description)
}

/// Logs the progress of migrations of a database in use. Migrations of a new database are not logged.
struct MigrationProgress {
    is_new: bool,
}

impl MigrationProgress {
    fn log_start(&self, migration: &Migration) -> Stopwatch {
        if !self.is_new {
            tracing::info!("started schema migration {}", display_name(migration));
        }
        Stopwatch::new()
    }

    fn log_end(&self, migration: &Migration, began: &Stopwatch) {
        if !self.is_new {
            let seconds = began.elapsed().as_secs_f64();
            tracing::info!(
                "finished schema migration {} in {seconds:.1} s",
                display_name(migration)
            );
        }
    }
}

/// Limits how often a wait or the progress of a task is logged.
#[derive(Default)]
struct LogTimer(Option<Stopwatch>);

impl LogTimer {
    /// Returns whether a log line is due: at the first call, and then every few seconds.
    fn is_due(&mut self) -> bool {
        let is_due = self.0.as_ref().is_none_or(|last| last.elapsed() >= LOG_INTERVAL);
        if is_due {
            self.0 = Some(Stopwatch::new());
        }
        is_due
    }
}
