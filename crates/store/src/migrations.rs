//! What is kept of migrations, and keys that come in many at a time.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{ApiId, IdentityId, KeyId, MigrationId, PermissionId, RoleId, WorkspaceId};
use foundation::model::{Key, Migration, Ratelimit};

use crate::PageQuery;

/// A key that comes in, with what hangs on it.
#[derive(Debug)]
pub struct IncomingKey {
    pub key: Key,
    pub ratelimits: Vec<Ratelimit>,
    pub permission_ids: Vec<PermissionId>,
    pub role_ids: Vec<RoleId>,
}

/// A migration, and how many keys it has taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMigration {
    pub migration: Migration,
    pub came: i64,
}

#[async_trait]
pub trait MigrationReads: Send {
    async fn migration(
        &mut self,
        workspace: &WorkspaceId,
        id: &MigrationId,
    ) -> Result<Option<Migration>>;
    /// All of a workspace, by id.
    async fn migrations(&mut self, workspace: &WorkspaceId) -> Result<Vec<Migration>>;
    /// A page of a workspace's, the latest first, searched by name and id.
    async fn migrations_page(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<StoredMigration>>;
    async fn stored_migration(
        &mut self,
        workspace: &WorkspaceId,
        id: &MigrationId,
    ) -> Result<Option<StoredMigration>>;
    /// How many keys wait in a migration, counted up to `max`.
    async fn count_waiting_keys(&mut self, migration: &MigrationId, max: i64) -> Result<i64>;
    /// A key that waits in a migration, by the hash that it came with, and its API.
    async fn waiting_key(
        &mut self,
        migration: &MigrationId,
        hash: &str,
    ) -> Result<Option<(KeyId, ApiId)>>;
}

#[async_trait]
pub trait MigrationWrites: MigrationReads {
    async fn insert_migration(&mut self, migration: &Migration) -> Result<()>;
    /// Counts keys that a migration has taken in.
    async fn count_migrated(&mut self, migration: &MigrationId, keys: i64) -> Result<()>;
    /// The identities of these external ids, made where there are none.
    async fn ensure_identities(
        &mut self,
        workspace: &WorkspaceId,
        external_ids: &[String],
        now: Timestamp,
    ) -> Result<Vec<(String, IdentityId)>>;
    /// Adds roles without permissions where the names are free, and gives back their names.
    async fn insert_roles(
        &mut self,
        workspace: &WorkspaceId,
        roles: &[(RoleId, String)],
        now: Timestamp,
    ) -> Result<Vec<String>>;
    /// Adds those whose hash is free, and gives back their ids.
    async fn insert_keys(
        &mut self,
        workspace: &WorkspaceId,
        migration: Option<&MigrationId>,
        keys: &[IncomingKey],
    ) -> Result<Vec<KeyId>>;
    /// Gives a key that waits its own hash; whether it still waited.
    async fn adopt_key(
        &mut self,
        id: &KeyId,
        hash: &str,
        start: &str,
        prefix: &str,
    ) -> Result<bool>;
}
