//! What is kept for the standalone limiter.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{NamespaceId, OverrideId, WorkspaceId};
use foundation::model::{Namespace, OutagePolicy, Override, Overrides};

use crate::PageQuery;

/// A namespace with all its overrides.
#[derive(Debug)]
pub struct StoredNamespace {
    pub namespace: Namespace,
    pub overrides: Overrides,
}

#[async_trait]
pub trait RatelimitReads: Send {
    /// The namespace that has this id; where none has, the one of this name. Deleted ones too.
    async fn namespace(
        &mut self,
        workspace: &WorkspaceId,
        named: &str,
    ) -> Result<Option<StoredNamespace>>;
    /// As [`RatelimitReads::namespace`], without the overrides.
    async fn bare_namespace(
        &mut self,
        workspace: &WorkspaceId,
        named: &str,
    ) -> Result<Option<Namespace>>;
    /// All of a workspace, deleted ones too, by name.
    async fn namespaces(&mut self, workspace: &WorkspaceId) -> Result<Vec<Namespace>>;
    /// A page of a workspace's namespaces but the deleted ones, by id.
    async fn namespaces_page(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Namespace>>;
    /// A page of the overrides of a namespace, by id.
    async fn overrides(
        &mut self,
        workspace: &WorkspaceId,
        namespace: &NamespaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Override>>;
    /// The one that is stored for exactly this identifier.
    async fn override_for(
        &mut self,
        workspace: &WorkspaceId,
        namespace: &NamespaceId,
        identifier: &str,
    ) -> Result<Option<Override>>;
    async fn count_overrides(&mut self, namespace: &NamespaceId) -> Result<i64>;
}

#[async_trait]
pub trait RatelimitWrites: RatelimitReads {
    /// How many namespaces a workspace has, without the deleted ones. Nobody else adds one until the
    /// transaction ends.
    async fn lock_namespaces(&mut self, workspace: &WorkspaceId) -> Result<i64>;
    /// Adds those whose name is free, and gives back their names.
    async fn insert_namespaces(
        &mut self,
        workspace: &WorkspaceId,
        namespaces: &[Namespace],
    ) -> Result<Vec<String>>;
    /// As [`RatelimitReads::bare_namespace`], held until the transaction ends.
    async fn lock_namespace(
        &mut self,
        workspace: &WorkspaceId,
        named: &str,
    ) -> Result<Option<Namespace>>;
    async fn set_on_outage(&mut self, id: &NamespaceId, on_outage: OutagePolicy) -> Result<()>;
    /// Marks it deleted; its name stays taken.
    async fn delete_namespace(&mut self, id: &NamespaceId, now: Timestamp) -> Result<()>;
    /// Adds an override, or changes the one for the same identifier, which keeps its id. The id.
    async fn set_override(&mut self, namespace: &NamespaceId, new: &Override)
    -> Result<OverrideId>;
    /// Removes the override that is stored for exactly this identifier; its id, if there was one.
    async fn delete_override(
        &mut self,
        namespace: &NamespaceId,
        identifier: &str,
    ) -> Result<Option<OverrideId>>;
}
