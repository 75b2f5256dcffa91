//! What is kept of identities.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{IdentityId, WorkspaceId};
use foundation::model::{Identity, Meta};

use crate::PageQuery;

#[async_trait]
pub trait IdentityReads: Send {
    /// Those of `ids` that exist.
    async fn identities_of(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[IdentityId],
    ) -> Result<Vec<Identity>>;
    /// The identity that has this id; where none has, the one of this external id. Empty: neither is looked for.
    async fn identity_named(
        &mut self,
        workspace: &WorkspaceId,
        id: &str,
        external_id: &str,
    ) -> Result<Option<Identity>>;
    /// The id of the identity of this external id.
    async fn identity_of(
        &mut self,
        workspace: &WorkspaceId,
        external_id: &str,
    ) -> Result<Option<IdentityId>>;
    async fn count_identities(&mut self, workspace: &WorkspaceId) -> Result<i64>;
    /// A page of a workspace's identities; only those of `ids`, where they are given.
    async fn identities(
        &mut self,
        workspace: &WorkspaceId,
        ids: Option<&[String]>,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Identity>>;
}

#[async_trait]
pub trait IdentityWrites: IdentityReads {
    /// As [`IdentityReads::identity_named`], held until the transaction ends.
    async fn lock_identity(
        &mut self,
        workspace: &WorkspaceId,
        id: &str,
        external_id: &str,
    ) -> Result<Option<Identity>>;
    /// The identity of this external id, made when there is none.
    async fn ensure_identity(
        &mut self,
        workspace: &WorkspaceId,
        external_id: &str,
        now: Timestamp,
    ) -> Result<IdentityId>;
    /// Adds one, without its limits.
    async fn insert_identity(
        &mut self,
        workspace: &WorkspaceId,
        identity: &Identity,
        now: Timestamp,
    ) -> Result<()>;
    async fn set_identity_meta(&mut self, id: &IdentityId, meta: &Meta) -> Result<()>;
    /// Takes it from every key.
    async fn unlink_identity(&mut self, id: &IdentityId) -> Result<()>;
    /// Removes it and its limits.
    async fn delete_identity(&mut self, id: &IdentityId) -> Result<()>;
}
