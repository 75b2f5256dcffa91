//! SQL and rows, nothing else.
//!
//! Every query stands once, in `queries/`, in the subset of SQL that both engines speak; it is
//! compiled for Postgres and for SQLite by two dialect files that hold what differs. Reads take a
//! [`Reader`] or a [`Tx`], writes only a [`Tx`], so that a write outside a transaction does not
//! compile. Every query is bounded by a workspace, but for the two that find out which one it is:
//! a root key by its hash, and a key by its hash.

pub mod cache;
pub mod freshness;
mod gate;
mod identities;
mod migrations;
mod postgres;
mod ratelimits;
mod rbac;
mod rows;
mod sqlite;
mod vault;

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::pool::PoolConnection;
use sqlx::{PgPool, Postgres, Sqlite, SqlitePool, Transaction};

use crate::clock::Timestamp;
use crate::error::{self, Result};
use crate::id::{ApiId, AuditId, CorrelationId, IdentityId, KeyId, RoleId, WorkspaceId};
use crate::model::{
    Account, Api, Credits, Key, Networks, Permission, Purse, Ratelimit, RootKey, Withheld,
};
use freshness::Subject;
pub use identities::{IdentityReads, IdentityWrites};
pub use migrations::{IncomingKey, MigrationReads, MigrationWrites};
pub use ratelimits::{RatelimitReads, RatelimitWrites, StoredNamespace};
pub use rbac::{RbacReads, RbacWrites};
pub use vault::{VaultReads, VaultWrites};

pub use gate::Gate;

static POSTGRES: Migrator = sqlx::migrate!("migrations/postgres");
static SQLITE: Migrator = sqlx::migrate!("migrations/sqlite");

/// A key with everything that hangs on it; roles by id, because each is a row of its own.
#[derive(Debug, Clone)]
pub struct StoredKey {
    pub key: Key,
    pub ratelimits: Vec<Ratelimit>,
    pub permissions: Vec<Permission>,
    pub role_ids: Vec<RoleId>,
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

/// What all audit entries of one act share.
#[derive(Debug)]
pub struct AuditAct<'a> {
    pub workspace_id: &'a WorkspaceId,
    pub at: Timestamp,
    pub correlation_id: &'a CorrelationId,
    pub actor_type: &'static str,
    pub actor_id: &'a str,
    pub actor_name: &'a str,
    pub remote_address: Option<&'a str>,
    pub user_agent: Option<&'a str>,
}

/// An audit entry as it is written.
#[derive(Debug, Serialize)]
pub struct AuditEntry {
    pub id: AuditId,
    pub event: &'static str,
    /// A list of what it was done to.
    pub targets: Value,
}

/// Which entries of the audit log are read.
#[derive(Debug, Default)]
pub struct WantedEntries {
    /// Only those before this entry, by its id.
    pub before: Option<String>,
    /// Only those of this event.
    pub event: Option<String>,
    /// Only those that this actor left, by its id.
    pub actor: Option<String>,
    /// Only those about the thing of this id or name.
    pub about: Option<String>,
    /// How many at most.
    pub limit: i64,
}

/// An audit entry as it is kept.
#[derive(Debug, sqlx::FromRow)]
pub struct StoredEntry {
    pub id: String,
    pub at: Timestamp,
    pub event: String,
    pub actor_type: String,
    pub actor_id: String,
    pub actor_name: Option<String>,
    pub remote_address: Option<String>,
    pub user_agent: Option<String>,
    /// A list in JSON.
    pub targets: String,
    pub correlation_id: Option<String>,
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

/// Whose limits they are.
#[derive(Debug, Clone, Copy)]
pub enum Owner<'a> {
    Key(&'a KeyId),
    Identity(&'a IdentityId),
}

#[async_trait]
pub trait Reads: IdentityReads + MigrationReads + RatelimitReads + RbacReads + VaultReads {
    async fn root_key_by_hash(&mut self, hash: &str) -> Result<Option<RootKey>>;
    /// All of a workspace, by id; there are few.
    async fn root_keys(&mut self, workspace: &WorkspaceId) -> Result<Vec<RootKey>>;
    /// All of a workspace but the deleted ones, by id.
    async fn apis(&mut self, workspace: &WorkspaceId) -> Result<Vec<Api>>;
    /// Deleted ones too.
    async fn api(&mut self, workspace: &WorkspaceId, id: &ApiId) -> Result<Option<Api>>;
    /// Not the deleted ones, nor those of a deleted API.
    async fn key(&mut self, workspace: &WorkspaceId, id: &KeyId) -> Result<Option<StoredKey>>;
    /// A page of the keys of an API; only those of an identity, where it is named. Not the deleted ones.
    async fn keys_of(
        &mut self,
        workspace: &WorkspaceId,
        api: &ApiId,
        identity: Option<&IdentityId>,
        listing: &Listing<'_>,
    ) -> Result<Vec<StoredKey>>;
    /// As [`Reads::key`], for any workspace.
    async fn key_by_hash(&mut self, hash: &str) -> Result<Option<StoredKey>>;
    /// Purses in use that nobody has asked the bank about for `idle_ms`, the longest first, by key and number;
    /// a replica's own without regard to that, where it is named.
    async fn purses_to_settle(
        &mut self,
        idle_ms: i64,
        replica: Option<&str>,
    ) -> Result<Vec<(KeyId, i64)>>;
    /// Of these keys, the purses that the bank knows.
    async fn purses_of(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, i64)>>;
    /// Withheld purses of which this replica has not said what it knows.
    async fn purses_to_account(&mut self, replica: &str, max: i64) -> Result<Vec<(KeyId, i64)>>;
    /// Withheld purses of which every replica has that may have spent from them: all but those that fell
    /// silent `silent_ms` before the purse was made.
    async fn purses_proven(&mut self, silent_ms: i64) -> Result<Vec<Withheld>>;
    /// The ledger of what is withheld, oldest first; of one key, where it is named.
    async fn withheld(&mut self, key: Option<&KeyId>) -> Result<Vec<Withheld>>;
    /// Of these keys, the accounts of those that are metered, with the purses in use.
    async fn accounts(&mut self, keys: &[KeyId]) -> Result<Vec<(KeyId, Account)>>;
    /// The bank's account of a key, whosever it is. `None`: no such key, or it is not metered.
    async fn account(&mut self, key: &KeyId) -> Result<Option<Account>>;
    /// Entries of a workspace's audit log, the latest first.
    async fn audit_entries(
        &mut self,
        workspace: &WorkspaceId,
        wanted: &WantedEntries,
    ) -> Result<Vec<StoredEntry>>;
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
    Reads + IdentityWrites + MigrationWrites + RatelimitWrites + RbacWrites + VaultWrites
{
    /// Whether it was made: false when there is one of this id.
    async fn insert_workspace(
        &mut self,
        id: &WorkspaceId,
        name: &str,
        now: Timestamp,
    ) -> Result<bool>;
    async fn insert_root_key(&mut self, key: &RootKey, hash: &str) -> Result<()>;
    /// The workspace of the key, if there was one to revoke.
    async fn revoke_root_key(&mut self, id: &KeyId, now: Timestamp) -> Result<Option<WorkspaceId>>;
    async fn insert_api(&mut self, api: &Api) -> Result<()>;
    /// Writes what an API is set to.
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
    /// Removes it and all that hangs on it.
    async fn purge_key(&mut self, id: &KeyId) -> Result<()>;
    /// Makes `limits` the owner's limits: by name those that exist are changed and keep their id,
    /// others are added, those not named are removed.
    async fn set_ratelimits(
        &mut self,
        workspace: &WorkspaceId,
        owner: Owner<'_>,
        limits: &[Ratelimit],
    ) -> Result<()>;
    /// The bank's account of a key, held until the transaction ends. `None`: no such key, or it is
    /// not metered.
    async fn lock_account(&mut self, key: &KeyId) -> Result<Option<Account>>;
    /// Sets balance and refill, under a version that no purse has had.
    async fn set_credits(&mut self, key: &KeyId, credits: Option<&Credits>) -> Result<()>;
    /// Writes balance, version and period, and leaves the refill alone.
    async fn move_credits(&mut self, key: &KeyId, credits: &Credits) -> Result<()>;
    /// Writes the purse, new or known.
    async fn put_purse(&mut self, key: &KeyId, purse: &Purse) -> Result<()>;
    /// Forgets a purse: it has been settled.
    async fn drop_purse(&mut self, key: &KeyId, epoch: i64) -> Result<()>;
    /// Forgets all purses of a key: whatever is in them has become void.
    async fn drop_purses(&mut self, key: &KeyId) -> Result<()>;
    /// Adds what a replica knows of a purse: so much was spent from it, at least.
    async fn tell_of_purse(&mut self, key: &KeyId, epoch: i64, spent: i64) -> Result<()>;
    /// Says of purses in use what was spent from them, and that they were asked about now.
    async fn look_after_purses(&mut self, spent: &[(KeyId, i64, i64)]) -> Result<()>;
    /// As [`Writes::tell_of_purse`], for the last time.
    async fn account_for_purse(
        &mut self,
        key: &KeyId,
        epoch: i64,
        replica: &str,
        spent: i64,
    ) -> Result<()>;
    /// Says that a replica is there. How many have said so within the last `within_ms`, this one included.
    async fn register_replica(&mut self, id: &str, within_ms: i64) -> Result<i64>;
    /// Forgets replicas that have been silent for a day, unless somebody may wait for their word.
    async fn prune_replicas(&mut self) -> Result<()>;
    async fn drop_replica(&mut self, id: &str) -> Result<()>;
    async fn insert_audit(&mut self, act: &AuditAct<'_>, entries: &[AuditEntry]) -> Result<()>;
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
        done.map_err(|e| match e {
            MigrateError::VersionMissing(version) => Unmigrated::Newer(version),
            MigrateError::VersionMismatch(version) => Unmigrated::Other(version),
            other => Unmigrated::Failed(other),
        })
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
        Ok(Tx { inner, changed: Vec::new() })
    }

    /// Waits for what is under way and closes every connection.
    pub async fn close(&self) {
        match self {
            Self::Postgres(pool) => pool.close().await,
            Self::Sqlite(pool) => pool.close().await,
        }
    }
}

/// A connection on which only [`Reads`] can be called.
pub enum Reader {
    Postgres(PoolConnection<Postgres>),
    Sqlite(PoolConnection<Sqlite>),
}

impl Deref for Reader {
    type Target = dyn Reads;
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Postgres(connection) => &**connection,
            Self::Sqlite(connection) => &**connection,
        }
    }
}

impl DerefMut for Reader {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Postgres(connection) => &mut **connection,
            Self::Sqlite(connection) => &mut **connection,
        }
    }
}

/// A transaction, and what it changes that somebody may have cached. Dropped, it is undone.
pub struct Tx {
    inner: Inner,
    changed: Vec<Subject>,
}

enum Inner {
    Postgres(Transaction<'static, Postgres>),
    Sqlite(Transaction<'static, Sqlite>),
}

impl Tx {
    /// Says that a cache may hold something that this transaction makes untrue.
    pub fn changed(&mut self, subject: Subject) {
        self.changed.push(subject);
    }

    /// Commits, the change log included, and gives back what has changed. The caller tells the
    /// caches, its own first.
    pub async fn commit(mut self) -> Result<Vec<Subject>> {
        if !self.changed.is_empty() {
            let subjects: Vec<_> = self.changed.iter().map(ToString::to_string).collect();
            self.insert_changes(&subjects).await?;
        }
        match self.inner {
            Inner::Postgres(tx) => tx.commit().await?,
            Inner::Sqlite(tx) => tx.commit().await?,
        }
        Ok(self.changed)
    }
}

impl Deref for Tx {
    type Target = dyn Writes;
    fn deref(&self) -> &Self::Target {
        match &self.inner {
            Inner::Postgres(tx) => &**tx,
            Inner::Sqlite(tx) => &**tx,
        }
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match &mut self.inner {
            Inner::Postgres(tx) => &mut **tx,
            Inner::Sqlite(tx) => &mut **tx,
        }
    }
}

/// How long a statement may run, and a transaction may idle, before Postgres ends it. It bounds how
/// late a row of the change log can appear behind a younger one.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);
