//! Roles: named sets of permissions.

use foundation::error::{Error, FieldError, ResourceRef, Result};
use foundation::id::RoleId;
use foundation::model::{Permission, Role, RoleSummary};
use store::freshness;

use super::snapshot::RoleSnapshot;
use super::{
    MissingPolicy, RbacRef, Selector, difference, ensure_permissions, permission_target,
    resolve_permissions, role_target,
};
use crate::audit::{AuditBatch, AuditEvent, FieldChanges, SnapshotFields, parse_field};
use crate::bounds::{DESCRIPTION_MAX, ROLE_NAME_MAX};
use crate::caller::Caller;
use crate::context::Context;
use crate::form_results;
use crate::names;
use crate::page::{Page, Paging};
use crate::permission::Action;

/// The fields of a role to create.
#[derive(Debug)]
pub struct NewRole {
    pub name: String,
    pub description: Option<String>,
    /// Slugs. A missing permission is created if the root key has the permission to do so.
    pub permissions: Vec<String>,
}

/// Creates a role.
pub async fn create_role(context: &Context, caller: &Caller, new: NewRole) -> Result<RoleId> {
    caller.require(Action::CreateRole)?;
    if !new.permissions.is_empty() {
        caller.require(Action::AddPermissionToRole)?;
    }
    let now = context.clock.now();

    let mut tx = context.store.begin().await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let permissions =
        ensure_permissions(&mut tx, caller, new.permissions, &mut entries, now).await?;
    let role =
        Role { id: RoleId::random(), name: new.name, description: new.description, permissions };
    tx.insert_role(caller.workspace_id(), &role, now)
        .await
        .map_err(|e| map_name_conflict(e, &role))?;
    let change = FieldChanges::created(&RoleSnapshot::from_role(&role))?;
    entries.add_change(AuditEvent::RoleCreated, &[role_target(&role)], change);
    for permission in &role.permissions {
        let targets = [role_target(&role), permission_target(permission)];
        entries.add(AuditEvent::RolePermissionAdded, &targets);
    }
    entries.write(&mut tx).await?;
    form_results::record(&mut tx, caller, &role.id, None, now).await?;
    context.commit(tx).await?;

    Ok(role.id)
}

/// Returns a role.
pub async fn get_role(context: &Context, caller: &Caller, reference: RbacRef<'_>) -> Result<Role> {
    caller.require(Action::ReadRole)?;
    let (id, name) = reference.to_id_and_name();
    let found = context.store.read().await?.find_role(caller.workspace_id(), id, name).await?;
    found.ok_or_else(|| not_found_error(reference))
}

fn not_found_error(reference: RbacRef<'_>) -> Error {
    Error::not_found(ResourceRef::Role(reference.text().to_owned()))
}

/// Lists a page of roles with their permissions, by id or by name. It ends early when they have too many bytes.
pub async fn list_roles(context: &Context, caller: &Caller, paging: &Paging) -> Result<Page<Role>> {
    caller.require(Action::ReadRole)?;
    let workspace = caller.workspace_id();
    let mut reader = context.store.read().await?;
    let paging =
        paging.within_bytes(&reader.measure_roles(workspace, &paging.to_page_query()).await?);
    let rows = reader.list_roles(workspace, &paging.to_page_query()).await?;
    Ok(Page::in_order(rows, &paging, |row| &row.id, |row| &row.name))
}

/// Lists a page of roles without their permissions, by id or by name.
pub async fn list_role_summaries(
    context: &Context,
    caller: &Caller,
    paging: &Paging,
) -> Result<Page<RoleSummary>> {
    caller.require(Action::ReadRole)?;
    let listing = paging.to_page_query();
    let mut reader = context.store.read().await?;
    let rows = reader.list_role_summaries(caller.workspace_id(), &listing).await?;
    Ok(Page::in_order(rows, paging, |row| &row.id, |row| &row.name))
}

/// Deletes a role and removes it from every key.
pub async fn delete_role(context: &Context, caller: &Caller, reference: RbacRef<'_>) -> Result<()> {
    caller.require(Action::DeleteRole)?;
    let now = context.clock.now();

    let mut tx = context.store.begin().await?;
    let not_found = || not_found_error(reference);
    let (id, name) = reference.to_id_and_name();
    let found = tx.find_role(caller.workspace_id(), id, name).await?.ok_or_else(not_found)?;
    // What a restored role has is what it had when it was deleted.
    let role = tx.lock_role(caller.workspace_id(), &found.id).await?.ok_or_else(not_found)?;
    let keys = tx.list_role_holders(&role.id).await?;
    if !tx.delete_role(caller.workspace_id(), &role.id).await? {
        return Err(not_found());
    }
    let keys = keys.iter().map(ToString::to_string).collect();
    let change = FieldChanges::deleted(&RoleSnapshot { keys, ..RoleSnapshot::from_role(&role) })?;
    let mut entries = AuditBatch::for_caller(caller, now);
    entries.add_change(AuditEvent::RoleDeleted, &[role_target(&role)], change);
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::Role(role.id));
    context.commit(tx).await
}

/// A change to a role, except its permissions.
#[derive(Debug, Default)]
pub struct RoleChange {
    /// At most [`ROLE_NAME_MAX`] characters. Absent: unchanged.
    pub name: Option<String>,
    /// At most [`DESCRIPTION_MAX`] characters. Empty: no description. Absent: unchanged.
    pub description: Option<String>,
}

impl RoleChange {
    /// Returns the change that restores a role to the snapshot of an audit entry.
    pub fn change_from_snapshot(fields: &SnapshotFields) -> Result<Self> {
        let description =
            fields.get("description").map(|value| parse_field::<Option<String>>(value));
        Ok(Self {
            name: fields.get("name").map(|value| parse_field(value)).transpose()?,
            description: description.transpose()?.map(Option::unwrap_or_default),
        })
    }

    /// Validates the change. The error lists all invalid fields.
    fn validate(&self) -> Result<()> {
        let bounds = [
            ("name", &self.name, 1..=ROLE_NAME_MAX),
            ("description", &self.description, 0..=DESCRIPTION_MAX),
        ];
        let errors = bounds.into_iter().filter_map(|(field, text, lengths)| {
            let length = text.as_ref()?.chars().count();
            let (from, to) = (lengths.start(), lengths.end());
            let message = format!("{field} has {length} characters: it must have {from} to {to}");
            let error = FieldError { location: field.to_owned(), message, fix: None };
            (!lengths.contains(&length)).then_some(error)
        });
        let mut errors: Vec<_> = errors.collect();
        if self.name.as_deref().is_some_and(|name| names::validate("name", name).is_err()) {
            let message = names::error_message("name");
            errors.push(FieldError { location: "name".to_owned(), message, fix: None });
        }
        if errors.is_empty() { Ok(()) } else { Err(Error::Invalid(errors)) }
    }
}

/// Changes the name and the description of a role. The change applies to all its keys at once.
pub async fn update_role(
    context: &Context,
    caller: &Caller,
    id: &RoleId,
    change: RoleChange,
) -> Result<Role> {
    caller.require(Action::UpdateRole)?;
    change.validate()?;
    let now = context.clock.now();

    let mut tx = context.store.begin().await?;
    let role = tx.lock_role(caller.workspace_id(), id).await?;
    let role = role.ok_or_else(|| Error::not_found(ResourceRef::Role(id.to_string())))?;
    let mut updated = role.clone();
    if let Some(name) = change.name {
        updated.name = name;
    }
    if let Some(description) = change.description {
        updated.description = Some(description).filter(|text| !text.is_empty());
    }
    if (&updated.name, &updated.description) == (&role.name, &role.description) {
        return Ok(role);
    }
    tx.update_role(&updated).await.map_err(|e| map_name_conflict(e, &updated))?;
    let changes =
        FieldChanges::updated(&RoleSnapshot::from_role(&role), &RoleSnapshot::from_role(&updated))?;
    let mut entries = AuditBatch::for_caller(caller, now);
    entries.add_change(AuditEvent::RoleUpdated, &[role_target(&updated)], changes);
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::Role(role.id));
    context.commit(tx).await?;

    Ok(updated)
}

/// Maps a violation of the unique name to [`Error::AlreadyExists`].
fn map_name_conflict(e: Error, role: &Role) -> Error {
    match e.is_unique_violation_of("roles_name_unique") {
        true => Error::AlreadyExists(ResourceRef::Role(role.name.clone())),
        false => e,
    }
}

/// Replaces the permissions of a role with those of the given slugs and returns them, sorted by slug. A missing
/// permission is created if the root key has the permission to do so.
pub async fn set_role_permissions(
    context: &Context,
    caller: &Caller,
    id: &RoleId,
    slugs: Vec<String>,
) -> Result<Vec<Permission>> {
    change_role_permissions(context, caller, id, MissingPolicy::Create, |_| Ok(slugs)).await
}

/// Applies `change` to the slugs of the permissions of a role, which is locked. `missing` applies to permissions that do not
/// exist. Otherwise like [`set_role_permissions`].
pub async fn change_role_permissions(
    context: &Context,
    caller: &Caller,
    id: &RoleId,
    missing: MissingPolicy,
    change: impl FnOnce(Vec<String>) -> Result<Vec<String>>,
) -> Result<Vec<Permission>> {
    caller.require(Action::AddPermissionToRole)?;
    caller.require(Action::RemovePermissionFromRole)?;
    let now = context.clock.now();

    let mut tx = context.store.begin().await?;
    let role = tx.lock_role(caller.workspace_id(), id).await?;
    let role = role.ok_or_else(|| Error::not_found(ResourceRef::Role(id.to_string())))?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let slugs = role.permissions.iter().map(|permission| permission.slug.clone()).collect();
    let selectors = Selector::from_ids_or_slugs(change(slugs)?, missing);
    let permissions = resolve_permissions(&mut tx, caller, selectors, &mut entries, now).await?;
    for permission in difference(&permissions, &role.permissions, |permission| &permission.id) {
        let targets = [role_target(&role), permission_target(permission)];
        entries.add(AuditEvent::RolePermissionAdded, &targets);
    }
    for permission in difference(&role.permissions, &permissions, |permission| &permission.id) {
        let targets = [role_target(&role), permission_target(permission)];
        entries.add(AuditEvent::RolePermissionRemoved, &targets);
    }
    tx.set_role_permissions(id, &permissions).await?;
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::Role(id.clone()));
    context.commit(tx).await?;

    Ok(permissions)
}
