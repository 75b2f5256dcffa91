//! SQL and rows, nothing else.
//!
//! Every query stands once, in `queries/`, in the subset of SQL that both engines speak; it is
//! compiled for Postgres and for SQLite by two dialect files that hold what differs. Reads take a
//! [`Reader`] or a [`Tx`], writes only a [`Tx`], so that a write outside a transaction does not
//! compile. What a request names is looked up within its workspace; only a root key and a key are
//! found by their hashes, whosever they are. What has been found is then changed by its id.

mod audit;
pub mod cache;
pub mod clickhouse;
mod credits;
pub mod deliveries;
pub mod events;
pub mod freshness;
mod gate;
mod holdings;
mod identities;
pub mod inspect;
mod keys;
mod migrations;
mod parts;
mod people;
mod postgres;
pub mod questions;
mod ratelimits;
mod rbac;
pub mod recent;
mod restores;
mod root_keys;
mod rows;
mod sqlite;
mod tx;
mod vault;

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{PgPool, SqlitePool};

use crate::clock::Timestamp;
use crate::error::{self, Result};
use crate::id::{ApiId, IdentityId, KeyId, RoleId, WorkspaceId};
use crate::model::{Api, Key, Networks, Permission, Ratelimit, Refill};
pub use audit::{AuditAct, AuditEntry, AuditReads, AuditWrites, StoredEntry, WantedEntries};
pub use credits::{CreditReads, CreditWrites};
pub use events::Events;
pub use holdings::HoldingReads;
pub use identities::{IdentityReads, IdentityWrites};
pub use keys::{KeyPlace, KeyReads, Periods, WantedRows};
pub use migrations::{IncomingKey, MigrationReads, MigrationWrites, StoredMigration};
pub use people::{PeopleReads, PeopleWrites};
pub use postgres::EVENT_CONNECTIONS;
pub use ratelimits::{RatelimitReads, RatelimitWrites, StoredNamespace};
pub use rbac::{RbacReads, RbacWrites};
pub use restores::{RestoreReads, RestoreWrites};
pub use root_keys::{RootKeyReads, RootKeyWrites, StoredRootKey};
pub use vault::{VaultReads, VaultWrites};

pub use gate::Gate;
use tx::Inner;
pub use tx::{Reader, Tx};

static POSTGRES: Migrator = sqlx::migrate!("migrations/postgres");
static SQLITE: Migrator = sqlx::migrate!("migrations/sqlite");

/// A key with everything that hangs on it; roles by id, because each is a row of its own.
#[derive(Debug, Clone)]
pub struct StoredKey {
    pub key: Key,
    pub ratelimits: Vec<Ratelimit>,
    pub permissions: Vec<Permission>,
    pub role_ids: Vec<RoleId>,
    /// When credits come back: of a key that has none, when they would.
    pub refill: Option<Refill>,
    /// When it was last used, as far as that has been noted.
    pub last_used_at: Option<Timestamp>,
    /// Whether its workspace may do anything.
    pub workspace_enabled: bool,
    /// From where it may be used, as its API is set. Absent: from anywhere.
    pub allowed_networks: Option<Networks>,
}

/// A row of the change log.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Change {
    pub seq: i64,
    /// The database's own time, in unix milliseconds.
    pub at: i64,
    pub subject: String,
    /// When it was read, by the same clock.
    pub now: i64,
}

/// Which page of a list is read.
#[derive(Debug)]
pub struct Listing<'a> {
    /// The id at which it begins.
    pub from: &'a str,
    /// What each row must hold, as [`searchable`] writes it. Empty: nothing.
    pub search: String,
    /// How many rows at most.
    pub limit: i64,
}

/// What a search looks through: every text of a row in lower case, a line each.
pub fn searchable<const N: usize>(texts: [&str; N]) -> String {
    texts.map(str::to_lowercase).join("\n")
}

/// Whose keys are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeysOf {
    Anybody,
    Identity(IdentityId),
    /// By the customer's own name for the user.
    Owner(String),
}

/// Whose limits they are.
#[derive(Debug, Clone, Copy)]
pub enum Owner<'a> {
    Key(&'a KeyId),
    Identity(&'a IdentityId),
}

#[async_trait]
pub trait Reads:
    AuditReads
    + CreditReads
    + HoldingReads
    + IdentityReads
    + KeyReads
    + MigrationReads
    + PeopleReads
    + RatelimitReads
    + RbacReads
    + RestoreReads
    + RootKeyReads
    + VaultReads
{
    /// All of a workspace but the deleted ones, by id.
    async fn apis(&mut self, workspace: &WorkspaceId) -> Result<Vec<Api>>;
    /// A page of a workspace's APIs but the deleted ones.
    async fn apis_page(
        &mut self,
        workspace: &WorkspaceId,
        listing: &Listing<'_>,
    ) -> Result<Vec<Api>>;
    /// Deleted ones too.
    async fn api(&mut self, workspace: &WorkspaceId, id: &ApiId) -> Result<Option<Api>>;
    /// Not the deleted ones, nor those of a deleted API.
    async fn key(&mut self, workspace: &WorkspaceId, id: &KeyId) -> Result<Option<StoredKey>>;
    /// Up to `max` keys of a workspace that this is the owner of, with their APIs. Not the deleted ones.
    async fn keys_owned(
        &mut self,
        workspace: &WorkspaceId,
        owner: &str,
        max: i64,
    ) -> Result<Vec<(KeyId, ApiId)>>;
    /// A page of the keys of an API. Not the deleted ones.
    async fn keys_of(
        &mut self,
        workspace: &WorkspaceId,
        api: &ApiId,
        whose: &KeysOf,
        listing: &Listing<'_>,
    ) -> Result<Vec<StoredKey>>;
    /// Those of `ids` that are there, by id.
    async fn keys_among(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[KeyId],
    ) -> Result<Vec<StoredKey>>;
    /// A page of the keys of an identity, whatever API they are of. Not the deleted ones.
    async fn keys_of_identity(
        &mut self,
        workspace: &WorkspaceId,
        identity: &IdentityId,
        listing: &Listing<'_>,
    ) -> Result<Vec<StoredKey>>;
    /// How many keys an identity has, counted up to `max`; not the deleted ones.
    async fn count_keys_of_identity(
        &mut self,
        workspace: &WorkspaceId,
        identity: &IdentityId,
        max: i64,
    ) -> Result<i64>;
    /// How many keys an API has; not the deleted ones.
    async fn count_keys(&mut self, workspace: &WorkspaceId, api: &ApiId) -> Result<i64>;
    /// As [`Reads::key`], for any workspace.
    async fn key_by_hash(&mut self, hash: &str) -> Result<Option<StoredKey>>;
    /// What a root key's request of this name asked for, and what it was answered, sealed.
    async fn kept_reply(
        &mut self,
        root_key: &KeyId,
        name: &str,
    ) -> Result<Option<(String, String)>>;
    /// The database's own time.
    async fn now(&mut self) -> Result<Timestamp>;
    /// A page of the change log after `seq`, oldest first.
    async fn changes_after(&mut self, seq: i64) -> Result<Vec<Change>>;
    /// The first and the last row number of the change log.
    async fn changes_range(&mut self) -> Result<(i64, i64)>;
}

#[async_trait]
pub trait Writes:
    Reads
    + AuditWrites
    + CreditWrites
    + IdentityWrites
    + MigrationWrites
    + PeopleWrites
    + RatelimitWrites
    + RbacWrites
    + RestoreWrites
    + RootKeyWrites
    + VaultWrites
{
    /// Whether it was made: false when there is one of this id.
    async fn insert_workspace(
        &mut self,
        id: &WorkspaceId,
        name: &str,
        now: Timestamp,
    ) -> Result<bool>;
    async fn insert_api(&mut self, api: &Api) -> Result<()>;
    /// Writes the name of an API and what it is set to.
    async fn set_api(&mut self, api: &Api) -> Result<()>;
    /// As [`Reads::api`], held until the transaction ends.
    async fn lock_api(&mut self, workspace: &WorkspaceId, id: &ApiId) -> Result<Option<Api>>;
    /// Marks it deleted; whether there was one that was not.
    async fn delete_api(
        &mut self,
        workspace: &WorkspaceId,
        id: &ApiId,
        now: Timestamp,
    ) -> Result<bool>;
    /// As [`Reads::key`], held until the transaction ends.
    async fn lock_key(&mut self, workspace: &WorkspaceId, id: &KeyId) -> Result<Option<StoredKey>>;
    async fn insert_key(&mut self, key: &Key) -> Result<()>;
    /// Writes every field that may change; credits are the bank's.
    async fn update_key(&mut self, key: &Key) -> Result<()>;
    /// Marks it deleted; its hash stays taken.
    async fn delete_key(&mut self, id: &KeyId, now: Timestamp) -> Result<()>;
    /// Notes when keys were used, where that is later than what is known.
    async fn note_uses(&mut self, uses: &[(KeyId, Timestamp)]) -> Result<()>;
    /// Removes it and all that hangs on it.
    async fn purge_key(&mut self, id: &KeyId) -> Result<()>;
    /// Marks up to `max` keys of an API deleted; which they are.
    async fn delete_keys(&mut self, api: &ApiId, now: Timestamp, max: i64) -> Result<Vec<KeyId>>;
    /// Removes up to `max` keys of an API, those too that were marked deleted; which they are.
    async fn purge_keys(&mut self, api: &ApiId, max: i64) -> Result<Vec<KeyId>>;
    /// Makes `limits` the owner's limits: by name those that exist are changed and keep their id,
    /// others are added, those not named are removed.
    async fn set_ratelimits(
        &mut self,
        workspace: &WorkspaceId,
        owner: Owner<'_>,
        limits: &[Ratelimit],
    ) -> Result<()>;
    async fn insert_changes(&mut self, subjects: &[String]) -> Result<()>;
    /// Keeps a reply, unless there is one of this name; whether there was none.
    async fn keep_reply(
        &mut self,
        root_key: &KeyId,
        name: &str,
        request: &str,
        sealed: &str,
    ) -> Result<bool>;
    /// Forgets changes and replies of more than a day ago.
    async fn prune_changes(&mut self) -> Result<()>;
}

/// Why a schema could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum Unmigrated {
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

impl From<MigrateError> for Unmigrated {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::VersionMissing(version) => Self::Newer(version),
            MigrateError::VersionMismatch(version) => Self::Other(version),
            other => Self::Failed(other),
        }
    }
}

impl Unmigrated {
    /// Whether the database went out of reach, as against a schema that this keyward cannot use.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Failed(MigrateError::Execute(e) | MigrateError::ExecuteMigration(e, _)) => {
                error::is_outage(e)
            }
            Self::Failed(_) | Self::Newer(_) | Self::Other(_) => false,
        }
    }
}

/// The database: Postgres, or one SQLite file.
#[derive(Debug, Clone)]
pub enum Store {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

impl Store {
    /// Waits until Postgres lets a connection in; fails at once where it refuses one.
    pub async fn reach(url: &str, within: Duration) -> Result<()> {
        Ok(postgres::reach(url, within).await?)
    }

    /// Connects to Postgres; fails within three seconds when it is not there.
    pub async fn connect(url: &str, connections_max: u32) -> Result<Self> {
        Ok(Self::Postgres(postgres::connect(url, connections_max).await?))
    }

    /// Opens the file, and makes it when there is none.
    pub async fn open(path: &Path) -> Result<Self> {
        Ok(Self::Sqlite(sqlite::open(path).await?))
    }

    /// Brings the schema up to date. Several replicas may call it at once.
    pub async fn migrate(&self) -> std::result::Result<(), Unmigrated> {
        let done = match self {
            Self::Postgres(pool) => POSTGRES.run(pool).await,
            Self::Sqlite(pool) => SQLITE.run(pool).await,
        };
        done.map_err(Unmigrated::from)
    }

    /// A connection that only reads.
    pub async fn read(&self) -> Result<Reader> {
        Ok(match self {
            Self::Postgres(pool) => Reader::Postgres(pool.acquire().await?),
            Self::Sqlite(pool) => Reader::Sqlite(pool.acquire().await?),
        })
    }

    pub async fn begin(&self) -> Result<Tx> {
        let inner = match self {
            Self::Postgres(pool) => Inner::Postgres(postgres::begin(pool).await?),
            Self::Sqlite(pool) => Inner::Sqlite(sqlite::begin(pool).await?),
        };
        Ok(Tx::new(inner))
    }

    /// How many connections are in use, and how many are not.
    pub fn connections(&self) -> (u32, u32) {
        let (all, idle) = match self {
            Self::Postgres(pool) => (pool.size(), pool.num_idle()),
            Self::Sqlite(pool) => (pool.size(), pool.num_idle()),
        };
        let idle = u32::try_from(idle).unwrap_or(all).min(all);
        (all - idle, idle)
    }

    /// Waits for what is under way and closes every connection.
    pub async fn close(&self) {
        match self {
            Self::Postgres(pool) => pool.close().await,
            Self::Sqlite(pool) => pool.close().await,
        }
    }
}

/// How long a statement may run, and a transaction may idle, before Postgres ends it. It bounds how
/// late a row of the change log can appear behind a younger one.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);
