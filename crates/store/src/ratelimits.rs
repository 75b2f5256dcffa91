//! Defines reads and writes of namespaces and overrides of the standalone limiter.

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
    /// Returns the namespace with this id, or else the one with this name, even if it is deleted.
    async fn find_stored_namespace(
        &mut self,
        workspace: &WorkspaceId,
        id_or_name: &str,
    ) -> Result<Option<StoredNamespace>>;
    /// Returns the namespace with this id, or else the one with this name, without its overrides, even if it is
    /// deleted.
    async fn find_namespace(
        &mut self,
        workspace: &WorkspaceId,
        id_or_name: &str,
    ) -> Result<Option<Namespace>>;
    /// Returns the namespaces of a workspace by name, including deleted ones.
    async fn list_all_namespaces(&mut self, workspace: &WorkspaceId) -> Result<Vec<Namespace>>;
    /// Returns the ids and names of those of these namespaces that are not deleted.
    async fn load_namespace_names(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[NamespaceId],
    ) -> Result<Vec<(NamespaceId, String)>>;
    /// Returns a page of the namespaces of a workspace by id or by name, without deleted ones.
    async fn list_namespaces(
        &mut self,
        workspace: &WorkspaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Namespace>>;
    /// Returns a page of the overrides of a namespace by id or by identifier.
    async fn list_overrides(
        &mut self,
        workspace: &WorkspaceId,
        namespace: &NamespaceId,
        listing: &PageQuery<'_>,
    ) -> Result<Vec<Override>>;
    /// Returns the override that is stored for exactly this identifier.
    async fn find_override(
        &mut self,
        workspace: &WorkspaceId,
        namespace: &NamespaceId,
        identifier: &str,
    ) -> Result<Option<Override>>;
    async fn count_overrides(&mut self, namespace: &NamespaceId) -> Result<i64>;
}

#[async_trait]
pub trait RatelimitWrites: RatelimitReads {
    /// Returns the number of namespaces of a workspace, without deleted ones. No other transaction adds one until
    /// this one ends.
    async fn lock_namespaces(&mut self, workspace: &WorkspaceId) -> Result<i64>;
    /// Inserts namespaces, unless the name is in use. Returns the names of the inserted ones.
    async fn insert_namespaces(
        &mut self,
        workspace: &WorkspaceId,
        namespaces: &[Namespace],
    ) -> Result<Vec<String>>;
    /// Returns the namespace with this id, or else the one with this name, without its overrides, and locks it until
    /// the transaction ends.
    async fn lock_namespace(
        &mut self,
        workspace: &WorkspaceId,
        id_or_name: &str,
    ) -> Result<Option<Namespace>>;
    async fn set_outage_policy(&mut self, id: &NamespaceId, on_outage: OutagePolicy) -> Result<()>;
    /// Marks a namespace as deleted. No other namespace can have its name.
    async fn delete_namespace(&mut self, id: &NamespaceId, now: Timestamp) -> Result<()>;
    /// Inserts an override, or updates the one for the same identifier, which keeps its id. Returns the id.
    async fn upsert_override(
        &mut self,
        namespace: &NamespaceId,
        new: &Override,
    ) -> Result<OverrideId>;
    /// Deletes the override that is stored for exactly this identifier. Returns its id if it existed.
    async fn delete_override(
        &mut self,
        namespace: &NamespaceId,
        identifier: &str,
    ) -> Result<Option<OverrideId>>;
}
