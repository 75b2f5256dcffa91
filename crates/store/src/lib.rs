//! Contains SQL statements and row types, and no other logic.
//!
//! Each query is written once, in `queries/`, in the subset of SQL that both engines support. It is compiled for
//! Postgres and for SQLite by two dialect files, which contain the differences. Reads take a [`Reader`] or a [`Tx`].
//! Writes take only a [`Tx`], so a write outside a transaction does not compile. An entity that a request names is
//! looked up within its workspace; only root keys and keys are found by their hashes, in any workspace. Once found,
//! an entity is changed by its id.

pub mod analytics_query;
pub mod analytics_role;
mod audit;
pub mod cache;
mod cache_tag;
mod changes;
pub mod clickhouse;
mod credits;
mod database;
pub mod disk;
pub mod event_log;
pub mod events;
mod form_results;
pub mod freshness;
mod gateway_policies;
mod handle;
mod identities;
mod index_pattern;
pub mod inspect;
mod intents;
mod journal;
mod keys;
mod members;
mod migrations;
mod oldest_event;
pub mod outbox;
mod partitions;
mod permission_holders;
mod postgres;
mod ratelimits;
pub mod raw_events;
mod rbac;
pub mod recent;
mod regions;
mod restore;
mod root_keys;
mod rows;
mod schema;
mod signing_keys;
mod sizes;
mod sqlite;
mod standby;
mod tx;
mod uncancelled;
mod users;
mod vault;
mod withheld;
mod workspaces;
mod writer;

use std::time::Duration;

use async_trait::async_trait;
pub use audit::{AuditContext, AuditEntry, AuditFilter, AuditReads, AuditWrites, StoredEntry};
pub use changes::{
    ChangeReads, ChangeRow, ChangeWrites, LogHead, LogPage, PAGE_ROWS, RegisteredReplica,
};
pub use credits::{CreditReads, CreditWrites};
pub use database::{Store, with_timeout};
pub use events::EventStore;
pub use form_results::{FormResult, FormResultReads, FormResultWrites};
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::home::Home;
use foundation::id::{ApiId, IdentityId, KeyId, RoleId, WorkspaceId};
use foundation::model::{Api, Key, KeySummary, Networks, Permission, Ratelimit, Refill};
pub use gateway_policies::{
    GatewayPolicyReads, GatewayPolicyWrites, GatewaySecrets, StoredGatewayPolicy,
};
pub use identities::{IdentityReads, IdentitySelection, IdentityWrites};
pub use intents::Intent;
pub use keys::{DeletedKey, IndexedSearch, KeyCursor, KeyListFilter, KeyReads, RefillPeriods};
pub use members::{MemberReads, MemberWrites};
pub use migrations::{KeyToInsert, MigrationReads, MigrationWrites, StoredMigration};
pub use permission_holders::AssignmentReads;
pub use postgres::{EVENT_CONNECTIONS, RESERVED_CONNECTIONS};
pub use ratelimits::{RatelimitReads, RatelimitWrites, StoredNamespace};
pub use rbac::{RbacReads, RbacWrites};
pub use regions::{HomeOwner, RegionReads, RegionWrites};
pub use restore::{RestoreReads, RestoreWrites};
pub use root_keys::{RootKeyReads, RootKeyWrites, StoredRootKey};
pub use signing_keys::{
    SigningKeyReads, SigningKeySlot, SigningKeyState, SigningKeyWrites, StoredSigningKey,
};
pub use sizes::SizeReads;
use sqlx::migrate::Migrator;
pub use standby::{Standby, StandbyReads, StandbyRow};
pub use users::{UserReads, UserWrites};
pub use vault::{VaultReads, VaultWrites};
pub use withheld::{UnreportedLease, WithheldReads, WithheldWrites};
pub use workspaces::{Workspace, WorkspaceReads};
pub use writer::QUEUE_MAX as WRITER_QUEUE_MAX;

pub use handle::StoreHandle;
pub use schema::SchemaError;
pub use tx::{Reader, Tx};
pub use uncancelled::Uncancelled;

static POSTGRES: Migrator = sqlx_macros::migrate!("../../migrations/postgres");
static SQLITE: Migrator = sqlx_macros::migrate!("../../migrations/sqlite");

/// A key with its limits, permissions and roles. Roles are ids, because each role is a row of its own.
#[derive(Debug, Clone)]
pub struct StoredKey {
    pub key: Key,
    pub ratelimits: Vec<Ratelimit>,
    pub permissions: Vec<Permission>,
    pub role_ids: Vec<RoleId>,
    /// The refill schedule. A key without credits keeps the schedule that applies once it has credits.
    pub refill: Option<Refill>,
    /// The time of the last use that was written to the database.
    pub last_used_at: Option<Timestamp>,
    /// Whether the workspace of the key is enabled.
    pub workspace_enabled: bool,
    /// The networks from which the key may be used, as its API is configured. `None` allows any address.
    pub allowed_networks: Option<Networks>,
    /// The region that counts the limits of the key, as its API is configured. `None`: the first region.
    pub home: Option<Home>,
}

/// The order of a list, if the list has more than one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PageOrder {
    #[default]
    ById,
    ByName,
    ByNameDescending,
}

/// Selects a page of a list.
#[derive(Debug)]
pub struct PageQuery<'a> {
    /// The id or the name at which the page begins, as the order has it. Empty: at the first row.
    pub start: &'a str,
    /// Lists that have only one order ignore it.
    pub order: PageOrder,
    /// The text that each row must contain, in the form of [`to_search_text`]. Empty matches every row.
    pub search: String,
    /// The maximum number of rows.
    pub rows_max: i64,
}

/// Returns the text that a search matches: every text of a row in lower case, one per line.
pub fn to_search_text<const N: usize>(texts: [&str; N]) -> String {
    texts.map(str::to_lowercase).join("\n")
}

/// Returns the search text of a key: its name and its external id, those that it has. Ids and starts are found by their
/// beginnings.
fn key_search_text(key: &Key) -> String {
    let texts: Vec<_> =
        [&key.name, &key.owner_id].into_iter().flatten().map(String::as_str).collect();
    texts.join("\n").to_lowercase()
}

/// Selects keys by their owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyOwnerFilter {
    Any,
    Identity(IdentityId),
    /// Keys with this owner id, which is the customer's own id of the end user.
    OwnerId(String),
}

/// The owner of a set of limits.
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
    + FormResultReads
    + GatewayPolicyReads
    + IdentityReads
    + KeyReads
    + MemberReads
    + MigrationReads
    + UserReads
    + RatelimitReads
    + RbacReads
    + RegionReads
    + RestoreReads
    + RootKeyReads
    + SigningKeyReads
    + SizeReads
    + StandbyReads
    + VaultReads
    + WithheldReads
    + WorkspaceReads
{
    /// Returns the APIs of a workspace by id, without deleted ones.
    async fn list_all_apis(&mut self, workspace: &WorkspaceId) -> Result<Vec<Api>>;
    /// Returns a page of the APIs of a workspace, without deleted ones. By name, it begins at an id, a space and a name.
    async fn list_apis(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Api>>;
    /// Returns an API, even if it is deleted.
    async fn find_api(&mut self, workspace: &WorkspaceId, id: &ApiId) -> Result<Option<Api>>;
    /// Returns a key, unless the key or its API is deleted.
    async fn find_key(&mut self, workspace: &WorkspaceId, id: &KeyId) -> Result<Option<StoredKey>>;
    /// Returns up to `max` keys of a workspace with this owner id, with their APIs, without deleted ones.
    async fn list_keys_by_owner(
        &mut self,
        workspace: &WorkspaceId,
        owner: &str,
        max: i64,
    ) -> Result<Vec<(KeyId, ApiId)>>;
    /// Returns a page of the keys of an API, without deleted ones.
    async fn list_api_keys(
        &mut self,
        workspace: &WorkspaceId,
        api: &ApiId,
        owner: &KeyOwnerFilter,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<StoredKey>>;
    /// Returns the existing keys among `ids`, by id.
    async fn list_keys_by_ids(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[KeyId],
    ) -> Result<Vec<KeySummary>>;
    /// Returns a page of the keys of an identity, of any API, without deleted ones.
    async fn list_identity_keys(
        &mut self,
        workspace: &WorkspaceId,
        identity: &IdentityId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<KeySummary>>;
    /// Counts the keys of an identity up to `max`, without deleted ones.
    async fn count_identity_keys(
        &mut self,
        workspace: &WorkspaceId,
        identity: &IdentityId,
        max: i64,
    ) -> Result<i64>;
    /// Counts the keys of an API, without deleted ones.
    async fn count_keys(&mut self, workspace: &WorkspaceId, api: &ApiId) -> Result<i64>;
    /// Finds a key of any workspace by its hash, unless the key or its API is deleted.
    async fn find_key_by_hash(&mut self, hash: &str) -> Result<Option<StoredKey>>;
    /// Lists the keys with these hashes, of any workspace, for a replica that may spend from their leases, without those that
    /// are deleted or whose API is. If the replica is not registered at that moment, the last lease number of each is 0,
    /// which no lease has.
    async fn list_keys_to_spend(
        &mut self,
        hashes: &[String],
        replica: &str,
    ) -> Result<Vec<StoredKey>>;
    /// Returns whether a key exists and is not deleted.
    async fn has_key(&mut self, id: &KeyId) -> Result<bool>;
    /// Returns the request that a root key sent with this idempotency key, and its sealed reply.
    async fn find_stored_reply(
        &mut self,
        root_key: &KeyId,
        name: &str,
    ) -> Result<Option<(String, String)>>;
    /// Returns the time of the database's clock.
    async fn load_database_time(&mut self) -> Result<Timestamp>;
}

#[async_trait]
pub trait Writes:
    Reads
    + AuditWrites
    + ChangeWrites
    + CreditWrites
    + FormResultWrites
    + GatewayPolicyWrites
    + IdentityWrites
    + MemberWrites
    + MigrationWrites
    + UserWrites
    + RatelimitWrites
    + RbacWrites
    + RegionWrites
    + RestoreWrites
    + RootKeyWrites
    + SigningKeyWrites
    + VaultWrites
    + WithheldWrites
{
    /// Creates a workspace. Returns false if the id exists.
    async fn insert_workspace(
        &mut self,
        id: &WorkspaceId,
        name: &str,
        now: Timestamp,
    ) -> Result<bool>;
    /// Returns the name of a workspace, and locks it until the transaction ends.
    async fn lock_workspace_name(&mut self, id: &WorkspaceId) -> Result<Option<String>>;
    async fn set_workspace_name(&mut self, id: &WorkspaceId, name: &str) -> Result<()>;
    async fn insert_api(&mut self, api: &Api) -> Result<()>;
    /// Updates the name and the settings of an API.
    async fn update_api(&mut self, api: &Api) -> Result<()>;
    /// Returns an API, even if it is deleted, and locks it until the transaction ends.
    async fn lock_api(&mut self, workspace: &WorkspaceId, id: &ApiId) -> Result<Option<Api>>;
    /// Marks an API as deleted. Returns whether it existed and was not deleted.
    async fn delete_api(
        &mut self,
        workspace: &WorkspaceId,
        id: &ApiId,
        now: Timestamp,
    ) -> Result<bool>;
    /// Returns a key, unless the key or its API is deleted, and locks it until the transaction ends.
    async fn lock_key(&mut self, workspace: &WorkspaceId, id: &KeyId) -> Result<Option<StoredKey>>;
    async fn insert_key(&mut self, key: &Key) -> Result<()>;
    /// Updates every field of a key that may change, except its credits, which belong to the credit account.
    async fn update_key(&mut self, key: &Key) -> Result<()>;
    /// Marks a key as deleted. No other key can have its hash.
    async fn delete_key(&mut self, id: &KeyId, now: Timestamp) -> Result<()>;
    /// Records the last use of keys, if it is later than the stored one.
    async fn record_key_uses(&mut self, uses: &[(KeyId, Timestamp)]) -> Result<()>;
    /// Removes a key and everything that belongs to it.
    async fn purge_key(&mut self, id: &KeyId) -> Result<()>;
    /// Marks up to `max` keys of an API as deleted. Returns their ids.
    async fn delete_keys(&mut self, api: &ApiId, now: Timestamp, max: i64) -> Result<Vec<KeyId>>;
    /// Removes up to `max` keys of an API, including keys marked as deleted. Returns their ids.
    async fn purge_keys(&mut self, api: &ApiId, max: i64) -> Result<Vec<KeyId>>;
    /// Replaces the limits of an owner with `limits`. Existing limits are matched by name and keep their ids, new
    /// ones are added, the others are removed.
    async fn replace_ratelimits(
        &mut self,
        workspace: &WorkspaceId,
        owner: LimitOwner<'_>,
        limits: &[Ratelimit],
    ) -> Result<()>;
    /// Stores the reply to an idempotency key, unless it has one. Returns whether it was stored.
    async fn insert_stored_reply(
        &mut self,
        root_key: &KeyId,
        name: &str,
        request: &str,
        sealed: &str,
    ) -> Result<bool>;
}

/// The time that a statement may run, and a transaction may be idle, before Postgres ends it. It bounds how late a
/// row of the change log can appear behind a newer one.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);
