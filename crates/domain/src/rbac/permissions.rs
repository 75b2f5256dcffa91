//! Creating, reading and deleting permissions.

use foundation::error::{Error, ResourceRef, Result};
use foundation::id::PermissionId;
use foundation::model::Permission;
use store::freshness;

use super::snapshot::PermissionSnapshot;
use super::{RbacRef, insert_permissions, permission_target};
use crate::audit::{AuditBatch, AuditEvent, FieldChanges};
use crate::caller::Caller;
use crate::context::Context;
use crate::form_results;
use crate::page::{Page, Paging};
use crate::permission::Action;

/// The fields of a permission to create.
#[derive(Debug)]
pub struct NewPermission {
    pub slug: String,
    pub name: String,
    pub description: Option<String>,
}

/// Creates a permission.
pub async fn create_permission(
    context: &Context,
    caller: &Caller,
    new: NewPermission,
) -> Result<PermissionId> {
    caller.require(Action::CreatePermission)?;
    let now = context.clock.now();
    let permission = Permission {
        id: PermissionId::random(),
        slug: new.slug,
        name: new.name,
        description: new.description,
    };

    let mut tx = context.store.begin().await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let new = std::slice::from_ref(&permission);
    if !insert_permissions(&mut tx, caller, new, &mut entries, now).await? {
        return Err(Error::AlreadyExists(ResourceRef::Permission(permission.slug)));
    }
    entries.write(&mut tx).await?;
    form_results::record(&mut tx, caller, &permission.id, None, now).await?;
    context.commit(tx).await?;

    Ok(permission.id)
}

/// Returns a permission.
pub async fn get_permission(
    context: &Context,
    caller: &Caller,
    reference: RbacRef<'_>,
) -> Result<Permission> {
    caller.require(Action::ReadPermission)?;
    let (id, slug) = reference.to_id_and_name();
    let found =
        context.store.read().await?.find_permission(caller.workspace_id(), id, slug).await?;
    found.ok_or_else(|| not_found_error(reference))
}

fn not_found_error(reference: RbacRef<'_>) -> Error {
    Error::not_found(ResourceRef::Permission(reference.text().to_owned()))
}

/// Lists a page of permissions by id or by slug.
pub async fn list_permissions(
    context: &Context,
    caller: &Caller,
    paging: &Paging,
) -> Result<Page<Permission>> {
    caller.require(Action::ReadPermission)?;
    let listing = paging.to_page_query();
    let rows =
        context.store.read().await?.list_permissions(caller.workspace_id(), &listing).await?;
    Ok(Page::in_order(rows, paging, |row| &row.id, |row| &row.slug))
}

/// Deletes a permission and removes it from every key and role.
pub async fn delete_permission(
    context: &Context,
    caller: &Caller,
    reference: RbacRef<'_>,
) -> Result<()> {
    caller.require(Action::DeletePermission)?;
    let now = context.clock.now();

    let mut tx = context.store.begin().await?;
    let not_found = || not_found_error(reference);
    let (id, slug) = reference.to_id_and_name();
    let permission =
        tx.find_permission(caller.workspace_id(), id, slug).await?.ok_or_else(not_found)?;
    // What a restored permission is added to is what had it when it was deleted.
    tx.lock_permission(&permission.id).await?;
    let (keys, roles) = tx.list_permission_holders(&permission.id).await?;
    if !tx.delete_permission(caller.workspace_id(), &permission.id).await? {
        return Err(not_found());
    }
    let keys = keys.iter().map(ToString::to_string).collect();
    let roles = roles.iter().map(ToString::to_string).collect();
    let snapshot =
        PermissionSnapshot { keys, roles, ..PermissionSnapshot::from_permission(&permission) };
    let mut entries = AuditBatch::for_caller(caller, now);
    let targets = [permission_target(&permission)];
    entries.add_change(AuditEvent::PermissionDeleted, &targets, FieldChanges::deleted(&snapshot)?);
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::Permission(permission.id));
    context.commit(tx).await
}
