//! Restoring deleted permissions and roles with their ids and their assignments.

use foundation::error::{Error, ResourceRef, Result};
use foundation::id::{KeyId, PermissionId, RoleId};
use foundation::model::{Permission, Role};
use store::freshness;

use super::snapshot::{PermissionSnapshot, RoleSnapshot};
use super::{permission_target, role_target};
use crate::audit::{self, AuditBatch, AuditEvent};
use crate::caller::Caller;
use crate::context::Context;
use crate::permission::Action;

/// Restores a permission from the snapshot of an audit entry and assigns it to its former holders. Its slug must be
/// free.
pub async fn restore_permission(
    context: &Context,
    caller: &Caller,
    id: &PermissionId,
    snapshot: &str,
) -> Result<()> {
    caller.require(Action::CreatePermission)?;
    let snapshot: PermissionSnapshot = audit::parse_snapshot(snapshot)?;
    let now = context.clock.now();
    let permission = Permission {
        id: id.clone(),
        slug: snapshot.slug,
        name: snapshot.name,
        description: snapshot.description,
    };
    let new = std::slice::from_ref(&permission);
    let mut tx = context.store.begin().await?;
    if tx.insert_permissions(caller.workspace_id(), new, now).await?.is_empty() {
        return Err(Error::AlreadyExists(ResourceRef::Permission(permission.slug)));
    }
    let keys: Vec<_> = snapshot.keys.into_iter().map(KeyId::from).collect();
    let roles: Vec<_> = snapshot.roles.into_iter().map(RoleId::from).collect();
    tx.assign_permission(caller.workspace_id(), id, &keys, &roles).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    entries.add(AuditEvent::PermissionRestored, &[permission_target(&permission)]);
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::Permission(permission.id));
    tx.record_key_changes(keys);
    for role in roles {
        tx.record_change(freshness::CacheTag::Role(role));
    }
    context.commit(tx).await
}

/// Restores a role from the snapshot of an audit entry, with those of its permissions that still exist, and assigns it
/// to its former keys. Its name must be free.
pub async fn restore_role(
    context: &Context,
    caller: &Caller,
    id: &RoleId,
    snapshot: &str,
) -> Result<()> {
    caller.require(Action::CreateRole)?;
    let snapshot: RoleSnapshot = audit::parse_snapshot(snapshot)?;
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let permissions = match snapshot.permissions.is_empty() {
        true => Vec::new(),
        false => tx.lock_permissions(caller.workspace_id(), &snapshot.permissions).await?,
    };
    let role = Role {
        id: id.clone(),
        name: snapshot.name,
        description: snapshot.description,
        permissions,
    };
    let inserted = tx.insert_role(caller.workspace_id(), &role, now).await;
    inserted.map_err(|e| match e.is_unique_violation_of("roles_name_unique") {
        true => Error::AlreadyExists(ResourceRef::Role(role.name.clone())),
        false => e,
    })?;
    let keys: Vec<_> = snapshot.keys.into_iter().map(KeyId::from).collect();
    tx.assign_role(caller.workspace_id(), id, &keys).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    entries.add(AuditEvent::RoleRestored, &[role_target(&role)]);
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::Role(role.id));
    tx.record_key_changes(keys);
    context.commit(tx).await
}
