//! Defines reads and writes of identities.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::home::Home;
use foundation::id::{IdentityId, KeyId, WorkspaceId};
use foundation::model::{Identity, IdentitySummary, Meta};

use crate::PageQuery;

/// Selects identities of a workspace.
#[derive(Debug, Clone, Copy)]
pub enum IdentitySelection<'a> {
    All,
    /// Only those with these ids.
    Ids(&'a [String]),
    /// Only those before an id.
    Before(&'a str),
}

#[async_trait]
pub trait IdentityReads: Send {
    /// Returns the existing identities among `ids`.
    async fn list_identities_by_ids(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[IdentityId],
    ) -> Result<Vec<Identity>>;
    /// Returns the identity with this id, or else the one with this external id. An empty value matches no identity.
    async fn find_identity(
        &mut self,
        workspace: &WorkspaceId,
        id: &str,
        external_id: &str,
    ) -> Result<Option<Identity>>;
    /// Returns the id of the identity with this external id.
    async fn find_identity_id(
        &mut self,
        workspace: &WorkspaceId,
        external_id: &str,
    ) -> Result<Option<IdentityId>>;
    /// Returns the ids of all identities that match a search text, and possibly others. `None` if no index finds the text,
    /// or if more than `max` identities match.
    async fn find_searched_identities(
        &mut self,
        workspace: &WorkspaceId,
        search: &str,
        max: i64,
    ) -> Result<Option<Vec<String>>>;
    async fn count_identities(&mut self, workspace: &WorkspaceId) -> Result<i64>;
    /// Returns the id of the identity that is `offset` rows after an id. `None` if there are fewer.
    async fn find_identity_at(
        &mut self,
        workspace: &WorkspaceId,
        start_id: &str,
        offset: i64,
    ) -> Result<Option<String>>;
    /// Returns a page of the identities of a workspace.
    async fn list_identities(
        &mut self,
        workspace: &WorkspaceId,
        selection: IdentitySelection<'_>,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Identity>>;
    /// Returns up to `max` identities of a workspace by external id, in either direction. An empty start is the beginning.
    async fn list_identities_by_external_id(
        &mut self,
        workspace: &WorkspaceId,
        start: &str,
        descending: bool,
        max: i64,
    ) -> Result<Vec<IdentitySummary>>;
}

#[async_trait]
pub trait IdentityWrites: IdentityReads {
    /// Returns the identity with this id, or else the one with this external id, and locks it until the transaction
    /// ends.
    async fn lock_identity(
        &mut self,
        workspace: &WorkspaceId,
        id: &str,
        external_id: &str,
    ) -> Result<Option<Identity>>;
    /// Returns the id of the identity with this external id. Creates the identity if it does not exist.
    async fn ensure_identity(
        &mut self,
        workspace: &WorkspaceId,
        external_id: &str,
        home: Option<&Home>,
        now: Timestamp,
    ) -> Result<IdentityId>;
    /// Inserts an identity without its limits.
    async fn insert_identity(
        &mut self,
        workspace: &WorkspaceId,
        identity: &Identity,
        now: Timestamp,
    ) -> Result<()>;
    async fn set_identity_meta(&mut self, id: &IdentityId, meta: &Meta) -> Result<()>;
    /// Removes the identity from every key. Returns the keys that had it.
    async fn unlink_identity(&mut self, id: &IdentityId) -> Result<Vec<KeyId>>;
    /// Deletes the identity and its limits.
    async fn delete_identity(&mut self, id: &IdentityId) -> Result<()>;
}
