//! Defines reads and writes of the regions of a deployment, and of what they count.

use async_trait::async_trait;
use foundation::error::Result;
use foundation::home::Home;
use foundation::id::{ApiId, IdentityId, NamespaceId, WorkspaceId};

/// What has a home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HomeOwner {
    Api(ApiId),
    Identity(IdentityId),
    Namespace(NamespaceId),
}

#[async_trait]
pub trait RegionReads: Send {
    /// Returns the regions of the deployment, the first one first.
    async fn list_regions(&mut self) -> Result<Vec<String>>;
    /// Returns the homes of all workspaces with the numbers of APIs, identities and namespaces; empty for none. Deleted APIs
    /// and namespaces are left out.
    async fn count_homes(&mut self) -> Result<Vec<(String, i64, i64, i64)>>;
}

#[async_trait]
pub trait RegionWrites: RegionReads {
    /// Adds the regions that the deployment does not have yet, in their order.
    async fn add_regions(&mut self, names: &[String]) -> Result<()>;
    /// Returns the home of an owner that exists, and locks the owner until the transaction ends.
    async fn lock_home(
        &mut self,
        workspace: &WorkspaceId,
        owner: &HomeOwner,
    ) -> Result<Option<Option<Home>>>;
    async fn set_home(&mut self, owner: &HomeOwner, home: &Home) -> Result<()>;
}
