//! Workspaces, which own everything else.

use foundation::clock::Monotonic;
use foundation::error::{Error, ResourceRef, Result};
use foundation::id::WorkspaceId;
use serde_json::{Value, json};
pub use store::Workspace;

use crate::audit::{AuditBatch, AuditEvent, FieldChanges, Target};
use crate::bounds::WORKSPACE_NAME_MAX;
use crate::caller::Caller;
use crate::context::Context;
use crate::names;
use crate::permission::Action;

/// The maximum number of workspaces in a list.
pub const WORKSPACES_MAX: i64 = 10_000;

/// Lists the workspaces of the server, sorted by id, up to [`WORKSPACES_MAX`].
pub async fn list(context: &Context) -> Result<Vec<Workspace>> {
    context.store.read().await?.list_workspaces(WORKSPACES_MAX).await
}

/// Returns the caller's workspace.
pub async fn get(context: &Context, caller: &Caller) -> Result<Workspace> {
    find(context, caller.workspace_id()).await
}

/// Changes the name of the caller's workspace.
pub async fn rename(context: &Context, caller: &Caller, name: &str) -> Result<()> {
    caller.require(Action::RenameWorkspace)?;
    validate_name(name)?;
    let (now, id) = (context.clock.now(), caller.workspace_id());
    let mut tx = context.store.begin().await?;
    let before = tx.lock_workspace_name(id).await?.ok_or_else(|| not_found(id))?;
    if before == name {
        return Ok(());
    }
    tx.set_workspace_name(id, name).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let target = Target::new("workspace", id.as_str()).with_name(Some(name));
    let change = FieldChanges::updated(&snapshot(&before), &snapshot(name))?;
    entries.add_change(AuditEvent::WorkspaceRenamed, &[target], change);
    entries.write(&mut tx).await?;
    context.commit(tx).await
}

/// Returns an error unless a workspace can have the name.
pub fn validate_name(name: &str) -> Result<()> {
    if !(1..=WORKSPACE_NAME_MAX).contains(&name.chars().count()) {
        let message = format!("name must have 1 to {WORKSPACE_NAME_MAX} characters");
        return Err(Error::invalid("name", message));
    }
    names::validate("name", name)
}

/// Returns an operator as the caller of operations in a workspace. No permission is checked: an operator has access to the
/// server itself.
pub async fn authorize_operator(context: &Context, workspace: &WorkspaceId) -> Result<Caller> {
    let read_version = context.freshness.read_version(Monotonic::now());
    find(context, workspace).await?;
    Ok(Caller::operator(workspace.clone(), read_version, context.clock.now()))
}

async fn find(context: &Context, id: &WorkspaceId) -> Result<Workspace> {
    let found = context.store.read().await?.find_workspace(id).await?;
    found.ok_or_else(|| not_found(id))
}

/// Returns the audit snapshot of a workspace.
fn snapshot(name: &str) -> Value {
    json!({ "name": name })
}

fn not_found(id: &WorkspaceId) -> Error {
    Error::not_found(ResourceRef::Workspace(id.clone()))
}
