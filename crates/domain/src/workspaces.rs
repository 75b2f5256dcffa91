//! Workspaces as an operator sees them.

use foundation::clock::Monotonic;
use foundation::error::{Error, ResourceRef, Result};
use foundation::id::WorkspaceId;
pub use store::Workspace;

use crate::caller::Caller;
use crate::context::Context;

/// The maximum number of workspaces in a list.
pub const WORKSPACES_MAX: i64 = 10_000;

/// Lists the workspaces of the server, sorted by id, up to [`WORKSPACES_MAX`].
pub async fn list(context: &Context) -> Result<Vec<Workspace>> {
    context.store.read().await?.list_workspaces(WORKSPACES_MAX).await
}

/// Returns an operator as the caller of operations in a workspace. No permission is checked: an operator has access to the
/// server itself.
pub async fn authorize_operator(context: &Context, workspace: &WorkspaceId) -> Result<Caller> {
    let read_version = context.freshness.read_version(Monotonic::now());
    if !context.store.read().await?.has_workspace(workspace).await? {
        return Err(Error::not_found(ResourceRef::Workspace(workspace.clone())));
    }
    Ok(Caller::operator(workspace.clone(), read_version, context.clock.now()))
}
