//! Defines reads of the bytes of rows, which bound a page before its rows are read.

use async_trait::async_trait;
use foundation::error::Result;
use foundation::id::{ApiId, WorkspaceId};

use crate::{IdentitySelection, KeyOwnerFilter, PageQuery};

#[async_trait]
pub trait SizeReads: Send {
    /// Returns the bytes of each key of a page of [`crate::Reads::list_api_keys`]: of its metadata and that of its identity, and
    /// of its permissions and those of its roles. Of a key with very many permissions, it is an upper bound.
    async fn measure_api_keys(
        &mut self,
        workspace: &WorkspaceId,
        api: &ApiId,
        owner: &KeyOwnerFilter,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<i64>>;
    /// Returns the id of each identity of a page of [`crate::IdentityReads::list_identities`], and the bytes of its metadata.
    async fn measure_identities(
        &mut self,
        workspace: &WorkspaceId,
        selection: IdentitySelection<'_>,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<(String, i64)>>;
    /// Returns the bytes of the permissions of each role of a page of [`crate::RbacReads::list_roles`].
    async fn measure_roles(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<i64>>;
}
