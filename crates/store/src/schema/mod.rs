//! Brings the schema of a database up to date, by a connection of its own that has all the time it needs, one process
//! after the other.
//!
//! A new database gets its migrations as they stand in the files. In Postgres, a migration that scans or rewrites a table
//! that may be large has a second form, in `migrations/online`, for a database that others are using: see [`online`].

mod online;
pub(super) mod postgres;
pub(super) mod sqlite;

use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::error;
use sqlx::migrate::{AppliedMigration, MigrateError, Migration, Migrator};

/// How often a migration that takes long says how far it is, and one that waits says for what.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// The pause before something that was in use is asked for again.
const AGAIN_AFTER: Duration = Duration::from_millis(300);

/// Why a schema could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    #[error(
        "the database's schema (version {0}) is newer than this keyward knows: use a newer keyward"
    )]
    Newer(i64),
    #[error(
        "version {0} of the database's schema was made by another keyward than this one: \
        use the one that made it, or a newer one"
    )]
    Other(i64),
    #[error("cannot bring the database's schema up to date: {0}")]
    Failed(MigrateError),
}

impl From<MigrateError> for SchemaError {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::VersionMissing(version) => Self::Newer(version),
            MigrateError::VersionMismatch(version) => Self::Other(version),
            other => Self::Failed(other),
        }
    }
}

impl From<sqlx::Error> for SchemaError {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(MigrateError::Execute(error))
    }
}

impl SchemaError {
    /// Whether the database went out of reach, as against a schema that this keyward cannot use, or a migration that
    /// the database refused, which is for a person to see.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Failed(MigrateError::ExecuteMigration(sqlx::Error::Database(e), _)) => {
                e.code().is_some_and(|code| code.starts_with("08") || code.starts_with("57P"))
            }
            Self::Failed(MigrateError::Execute(e) | MigrateError::ExecuteMigration(e, _)) => {
                error::is_outage(e)
            }
            Self::Failed(_) | Self::Newer(_) | Self::Other(_) => false,
        }
    }
}

/// The migrations of one database, and where it keeps which of them it has had.
pub(super) struct Plan {
    pub migrations: &'static Migrator,
    pub table: String,
    /// The schema that is made first, in Postgres.
    pub schema: Option<&'static str>,
    /// Migrations that have a form for a database in use, by their versions.
    pub online: &'static [(i64, &'static str)],
}

impl Plan {
    /// The migrations of this file or of the default schema.
    pub fn of(migrations: &'static Migrator) -> Self {
        Self { migrations, table: "_sqlx_migrations".to_owned(), schema: None, online: &[] }
    }

    /// The migrations of what Keyward decides by, in Postgres.
    pub fn of_postgres(migrations: &'static Migrator) -> Self {
        Self { online: &online::MIGRATIONS, ..Self::of(migrations) }
    }

    /// Those that are to be applied; an error where there is one that this program does not know.
    fn pending(
        &self,
        applied: &[AppliedMigration],
    ) -> Result<Vec<&'static Migration>, SchemaError> {
        let known = |version| self.migrations.iter().find(|known| known.version == version);
        for migration in applied {
            match known(migration.version) {
                None => return Err(SchemaError::Newer(migration.version)),
                Some(known) if known.checksum != migration.checksum => {
                    return Err(SchemaError::Other(migration.version));
                }
                Some(_) => {}
            }
        }
        let is_applied =
            |known: &Migration| applied.iter().any(|applied| applied.version == known.version);
        Ok(self.migrations.iter().filter(|known| !is_applied(known)).collect())
    }
}

/// What a migration is called, in the log.
fn name(migration: &Migration) -> String {
    format!("{:04} ({})", migration.version, migration.description)
}

/// Tells of the migrations of a database that is in use; those of a new one are nobody's concern.
struct Progress {
    is_new: bool,
}

impl Progress {
    fn begins(&self, migration: &Migration) -> Stopwatch {
        if !self.is_new {
            tracing::info!("schema migration {} begins", name(migration));
        }
        Stopwatch::new()
    }

    fn is_done(&self, migration: &Migration, began: &Stopwatch) {
        if !self.is_new {
            let seconds = began.elapsed().as_secs_f64();
            tracing::info!("schema migration {} is done after {seconds:.1} s", name(migration));
        }
    }
}

/// Says now and then what is being waited for, or how far something is.
#[derive(Default)]
struct Told(Option<Stopwatch>);

impl Told {
    /// Whether it is time to say something: at once, and then every few seconds.
    fn is_due(&mut self) -> bool {
        let is_due = self.0.as_ref().is_none_or(|last| last.elapsed() >= TELL_EVERY);
        if is_due {
            self.0 = Some(Stopwatch::new());
        }
        is_due
    }
}
