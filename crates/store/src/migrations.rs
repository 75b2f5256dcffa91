//! Defines reads and writes of migrations, and bulk inserts of keys.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::home::Home;
use foundation::id::{ApiId, IdentityId, KeyId, MigrationId, PermissionId, RoleId, WorkspaceId};
use foundation::model::{Key, Migration, Ratelimit, Refill};

use crate::PageQuery;

/// A key to import, with its limits, permissions and roles.
#[derive(Debug)]
pub struct KeyToInsert {
    pub key: Key,
    /// The refill that applies once the key has credits, if it has none.
    pub idle_refill: Option<Refill>,
    pub ratelimits: Vec<Ratelimit>,
    pub permission_ids: Vec<PermissionId>,
    pub role_ids: Vec<RoleId>,
}

/// A migration and the number of keys that it has imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMigration {
    pub migration: Migration,
    pub imported_count: i64,
}

#[async_trait]
pub trait MigrationReads: Send {
    async fn find_migration(
        &mut self,
        workspace: &WorkspaceId,
        id: &MigrationId,
    ) -> Result<Option<Migration>>;
    /// Returns the migration by which a key was imported.
    async fn find_migration_of_key(
        &mut self,
        workspace: &WorkspaceId,
        key: &KeyId,
    ) -> Result<Option<Migration>>;
    /// Returns the migrations of a workspace by id.
    async fn list_all_migrations(&mut self, workspace: &WorkspaceId) -> Result<Vec<Migration>>;
    /// Returns a page of the migrations of a workspace, the latest or the oldest first, searched by name and id.
    async fn list_migrations(
        &mut self,
        workspace: &WorkspaceId,
        is_latest_first: bool,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<StoredMigration>>;
    async fn find_stored_migration(
        &mut self,
        workspace: &WorkspaceId,
        id: &MigrationId,
    ) -> Result<Option<StoredMigration>>;
    /// Counts up to `max` keys of a migration whose hash has not been replaced yet.
    async fn count_waiting_keys(&mut self, migration: &MigrationId, max: i64) -> Result<i64>;
    /// Returns a key whose hash has not been replaced yet, by the hash that was imported, with its API.
    async fn find_waiting_key(
        &mut self,
        migration: &MigrationId,
        hash: &str,
    ) -> Result<Option<(KeyId, ApiId)>>;
    /// Returns those of these stored hashes that a key of any workspace has, even a deleted one.
    async fn list_used_hashes(&mut self, hashes: &[String]) -> Result<Vec<String>>;
}

#[async_trait]
pub trait MigrationWrites: MigrationReads {
    async fn insert_migration(&mut self, migration: &Migration) -> Result<()>;
    /// Locks a migration until the transaction ends. Returns the creation time of the keys that it imports into the API
    /// now: `now`, or a later time if it has imported other keys by then.
    async fn reserve_import_time(
        &mut self,
        migration: &MigrationId,
        api: &ApiId,
        now: Timestamp,
    ) -> Result<Timestamp>;
    /// Removes the keys that a migration has imported into an API at this time, except those that are deleted, were used
    /// or have leases. Returns their ids.
    async fn remove_unused_keys(
        &mut self,
        workspace: &WorkspaceId,
        migration: &MigrationId,
        api: &ApiId,
        created_at: Timestamp,
    ) -> Result<Vec<KeyId>>;
    /// Adds to the number of keys that a migration has imported.
    async fn add_imported_count(&mut self, migration: &MigrationId, keys: i64) -> Result<()>;
    /// Returns the identities with these external ids. Creates those that do not exist.
    async fn ensure_identities(
        &mut self,
        workspace: &WorkspaceId,
        external_ids: &[String],
        home: Option<&Home>,
        now: Timestamp,
    ) -> Result<Vec<(String, IdentityId)>>;
    /// Inserts roles without permissions, unless the name is in use. Returns the names of the inserted roles.
    async fn insert_roles(
        &mut self,
        workspace: &WorkspaceId,
        roles: &[(RoleId, String)],
        now: Timestamp,
    ) -> Result<Vec<String>>;
    /// Inserts keys, unless the hash is in use. Returns the ids of the inserted keys.
    async fn insert_keys(
        &mut self,
        workspace: &WorkspaceId,
        migration: Option<&MigrationId>,
        keys: &[KeyToInsert],
    ) -> Result<Vec<KeyId>>;
    /// Replaces the imported hash of a key with Keyward's own hash. Returns whether the key still had its imported
    /// hash.
    async fn adopt_key(
        &mut self,
        id: &KeyId,
        hash: &str,
        start: &str,
        prefix: &str,
    ) -> Result<bool>;
}
