//! Creating, reading and deleting permissions.

use foundation::error::{Error, Result, Subject};
use foundation::id::PermissionId;
use foundation::model::Permission;
use store::freshness;

use super::super::audit::{AuditBatch, FieldChanges};
use super::super::caller::Caller;
use super::super::page::{Page, Paging};
use super::super::permission::Action;
use super::snapshot::PermissionState;
use super::{insert_permissions, permission_target};
use crate::app::App;

/// The fields of a permission to create.
#[derive(Debug)]
pub struct NewPermission {
    pub slug: String,
    pub name: String,
    pub description: Option<String>,
}

/// Creates a permission.
pub async fn create_permission(
    app: &App,
    caller: &Caller,
    new: NewPermission,
) -> Result<PermissionId> {
    caller.require(Action::CreatePermission)?;
    let now = app.clock.now();
    let permission = Permission {
        id: PermissionId::random(),
        slug: new.slug,
        name: new.name,
        description: new.description,
    };

    let mut tx = app.store.begin().await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let new = std::slice::from_ref(&permission);
    if !insert_permissions(&mut tx, caller, new, &mut entries, now).await? {
        return Err(Error::Taken(Subject::Permission(permission.slug)));
    }
    entries.write(&mut tx).await?;
    app.commit(tx).await?;

    Ok(permission.id)
}

/// Returns the permission with this id or, if there is none, with this slug.
pub async fn get_permission(app: &App, caller: &Caller, named: &str) -> Result<Permission> {
    caller.require(Action::ReadPermission)?;
    let found = app.store.read().await?.permission(caller.workspace(), named).await?;
    found.ok_or_else(|| Error::not_found(Subject::Permission(named.to_owned())))
}

/// Lists a page of permissions, sorted by id.
pub async fn list_permissions(
    app: &App,
    caller: &Caller,
    paging: &Paging,
) -> Result<Page<Permission>> {
    caller.require(Action::ReadPermission)?;
    let listing = paging.listing();
    let rows = app.store.read().await?.permissions(caller.workspace(), &listing).await?;
    Ok(Page::new(rows, paging, |row| &row.id))
}

/// Deletes a permission by its id or slug and removes it from every key and role.
pub async fn delete_permission(app: &App, caller: &Caller, named: &str) -> Result<()> {
    caller.require(Action::DeletePermission)?;
    let now = app.clock.now();

    let mut tx = app.store.begin().await?;
    let not_found = || Error::not_found(Subject::Permission(named.to_owned()));
    let permission = tx.permission(caller.workspace(), named).await?.ok_or_else(not_found)?;
    let (keys, roles) = tx.permission_holders(&permission.id).await?;
    if !tx.delete_permission(caller.workspace(), &permission.id).await? {
        return Err(not_found());
    }
    let keys = keys.iter().map(ToString::to_string).collect();
    let roles = roles.iter().map(ToString::to_string).collect();
    let snapshot = PermissionState { keys, roles, ..PermissionState::of(&permission) };
    let mut entries = AuditBatch::for_caller(caller, now);
    let targets = [permission_target(&permission)];
    entries.add_change("permission.delete", &targets, FieldChanges::deleted(&snapshot)?);
    entries.write(&mut tx).await?;
    tx.changed(freshness::CacheTag::Permission(permission.id));
    app.commit(tx).await
}
