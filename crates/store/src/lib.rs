//! SQL and rows, nothing else.
//!
//! Every query stands once, in `queries/`, in the subset of SQL that both engines speak; it is
//! compiled for Postgres and for SQLite by two dialect files that hold what differs. Reads take a
//! [`Reader`] or a [`Tx`], writes only a [`Tx`], so that a write outside a transaction does not
//! compile. What a request names is looked up within its workspace; only a root key and a key are
//! found by their hashes, whosever they are. What has been found is then changed by its id.

pub mod analytics_query;
pub mod analytics_role;
mod audit;
pub mod cache;
mod changes;
pub mod clickhouse;
mod credits;
mod database;
pub mod disk;
pub mod events;
pub mod freshness;
mod handle;
mod identities;
pub mod inspect;
mod intents;
mod journal;
mod keys;
mod migrations;
pub mod outbox;
mod partitions;
mod permission_holders;
mod postgres;
mod ratelimits;
pub mod raw_events;
mod rbac;
pub mod recent;
mod restore;
mod root_keys;
mod rows;
mod schema;
mod sqlite;
mod tx;
mod users;
mod vault;
mod withheld;
mod writer;

use std::time::Duration;

use async_trait::async_trait;
pub use audit::{AuditContext, AuditEntry, AuditFilter, AuditReads, AuditWrites, StoredEntry};
pub use changes::{
    ChangeReads, ChangeRow, ChangeWrites, LogHead, LogPage, PAGE_ROWS, RegisteredReplica,
};
pub use credits::{CreditReads, CreditWrites};
pub use database::{Store, bounded};
pub use events::EventStore;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{ApiId, IdentityId, KeyId, RoleId, WorkspaceId};
use foundation::model::{Api, Key, Networks, Permission, Ratelimit, Refill};
pub use identities::{IdentityReads, IdentityWrites};
pub use intents::Intent;
pub use keys::{KeyCursor, KeyListFilter, KeyReads, RefillPeriods};
pub use migrations::{IncomingKey, MigrationReads, MigrationWrites, StoredMigration};
pub use permission_holders::AssignmentReads;
pub use postgres::{EVENT_CONNECTIONS, RESERVED_CONNECTIONS};
pub use ratelimits::{RatelimitReads, RatelimitWrites, StoredNamespace};
pub use rbac::{RbacReads, RbacWrites};
pub use restore::{RestoreReads, RestoreWrites};
pub use root_keys::{RootKeyReads, RootKeyWrites, StoredRootKey};
use sqlx::migrate::Migrator;
pub use users::{PeopleReads, PeopleWrites};
pub use vault::{VaultReads, VaultWrites};
pub use withheld::{Unreported, WithheldReads, WithheldWrites};
pub use writer::QUEUE_MAX as WRITER_QUEUE_MAX;

pub use handle::StoreHandle;
pub use schema::SchemaError;
pub use tx::{Reader, Tx};

static POSTGRES: Migrator = sqlx::migrate!("../../migrations/postgres");
static SQLITE: Migrator = sqlx::migrate!("../../migrations/sqlite");

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

/// Which page of a list is read.
#[derive(Debug)]
pub struct PageQuery<'a> {
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
pub enum KeyOwnerFilter {
    Anybody,
    Identity(IdentityId),
    /// By the customer's own name for the user.
    Owner(String),
}

/// Whose limits they are.
#[derive(Debug, Clone, Copy)]
pub enum LimitOwner<'a> {
    Key(&'a KeyId),
    Identity(&'a IdentityId),
}

#[async_trait]
pub trait Reads:
    AuditReads
    + ChangeReads
    + CreditReads
    + AssignmentReads
    + IdentityReads
    + KeyReads
    + MigrationReads
    + PeopleReads
    + RatelimitReads
    + RbacReads
    + RestoreReads
    + RootKeyReads
    + VaultReads
    + WithheldReads
{
    /// All of a workspace but the deleted ones, by id.
    async fn apis(&mut self, workspace: &WorkspaceId) -> Result<Vec<Api>>;
    /// A page of a workspace's APIs but the deleted ones.
    async fn apis_page(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
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
        whose: &KeyOwnerFilter,
        listing: &PageQuery<'_>,
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
        listing: &PageQuery<'_>,
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
    /// As [`Reads::key_by_hash`], for a replica that may spend from the key's lease. Where the replica is not registered
    /// at that moment, the number of the lease is 0, which none has.
    async fn key_to_spend(&mut self, hash: &str, replica: &str) -> Result<Option<StoredKey>>;
    /// Whether a key is there, and not deleted.
    async fn has_key(&mut self, id: &KeyId) -> Result<bool>;
    /// What a root key's request of this name asked for, and what it was answered, sealed.
    async fn find_stored_reply(
        &mut self,
        root_key: &KeyId,
        name: &str,
    ) -> Result<Option<(String, String)>>;
    /// The database's own time.
    async fn now(&mut self) -> Result<Timestamp>;
}

#[async_trait]
pub trait Writes:
    Reads
    + AuditWrites
    + ChangeWrites
    + CreditWrites
    + IdentityWrites
    + MigrationWrites
    + PeopleWrites
    + RatelimitWrites
    + RbacWrites
    + RestoreWrites
    + RootKeyWrites
    + VaultWrites
    + WithheldWrites
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
        owner: LimitOwner<'_>,
        limits: &[Ratelimit],
    ) -> Result<()>;
    /// Keeps a reply, unless there is one of this name; whether there was none.
    async fn insert_stored_reply(
        &mut self,
        root_key: &KeyId,
        name: &str,
        request: &str,
        sealed: &str,
    ) -> Result<bool>;
}

/// How long a statement may run, and a transaction may idle, before Postgres ends it. It bounds how
/// late a row of the change log can appear behind a younger one.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);
