//! Permissions and roles of keys, which customers define themselves.

mod holders;
mod permissions;
mod restore;
mod roles;
mod selection;
mod snapshot;

pub use holders::{
    HolderCounts, PermissionHolder, count_holders, count_keys_with_role, list_holders,
    list_roles_with_permission,
};
pub use permissions::{
    NewPermission, create_permission, delete_permission, get_permission, list_permissions,
};
pub use restore::{restore_permission, restore_role};
pub use roles::{
    NewRole, RoleChange, change_role_permissions, create_role, delete_role, get_role,
    list_role_summaries, list_roles, set_role_permissions, update_role,
};
pub use selection::{
    MissingPolicy, Selector, SelectorValue, ensure_permissions,
    resolve_existing_roles_and_permissions, resolve_permissions, resolve_roles,
};

use std::collections::HashSet;

use foundation::clock::Timestamp;
use foundation::error::{Error, ResourceRef, Result};
use foundation::id::{PermissionId, RoleId};
use foundation::model::{Permission, Role};
use snapshot::{PermissionSnapshot, RoleSnapshot};
use store::Tx;

use crate::audit::{AuditBatch, AuditEvent, FieldChanges, Target};
use crate::caller::Caller;
use crate::names;

/// A reference to a permission or role in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RbacRef<'a> {
    Id(&'a str),
    /// An id or, if nothing has this id, the slug of a permission or the name of a role.
    IdOrName(&'a str),
}

impl<'a> RbacRef<'a> {
    /// Returns the id, and the slug or name, to search for. The empty string matches nothing: no slug and no name is empty.
    fn to_id_and_name(self) -> (&'a str, &'a str) {
        match self {
            Self::Id(id) => (id, ""),
            Self::IdOrName(text) => (text, text),
        }
    }

    fn text(self) -> &'a str {
        self.to_id_and_name().0
    }
}

/// Returns the permissions with these slugs and creates missing ones without checking the root key. Otherwise like
/// [`ensure_permissions`].
pub async fn create_missing_permissions(
    tx: &mut Tx,
    caller: &Caller,
    slugs: Vec<String>,
    entries: &mut AuditBatch<'_>,
    now: Timestamp,
) -> Result<Vec<Permission>> {
    let slugs = sort_and_dedup(slugs);
    let permissions = lock_permissions(tx, caller, &slugs).await?;
    let missing = missing_permissions(&slugs, &permissions);
    if missing.is_empty() {
        return Ok(permissions);
    }
    for slug in &missing {
        names::validate("permissions", slug)?;
    }
    let new = missing.into_iter().map(|slug| Permission {
        id: PermissionId::random(),
        name: slug.clone(),
        slug,
        description: None,
    });
    insert_permissions(tx, caller, &new.collect::<Vec<_>>(), entries, now).await?;
    // Read them again: if two transactions create the same one at the same time, the second finds that of the first.
    lock_permissions(tx, caller, &slugs).await
}

/// Returns the roles with these names and locks them against deletion until the transaction ends. Missing ones are
/// created without permissions, without checking the root key.
pub async fn create_missing_roles(
    tx: &mut Tx,
    caller: &Caller,
    names: Vec<String>,
    entries: &mut AuditBatch<'_>,
    now: Timestamp,
) -> Result<Vec<Role>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let names = sort_and_dedup(names);
    let roles = tx.lock_roles(caller.workspace_id(), &names).await?;
    let missing = missing_names(&names, roles.iter().map(|role| role.name.as_str()));
    let missing: Vec<_> = missing.into_iter().map(|name| (RoleId::random(), name)).collect();
    if missing.is_empty() {
        return Ok(roles);
    }
    for (_, name) in &missing {
        names::validate("roles", name)?;
    }
    let created = tx.insert_roles(caller.workspace_id(), &missing, now).await?;
    let created: HashSet<String> = created.into_iter().collect();
    for (id, name) in missing.iter().filter(|(_, name)| created.contains(name)) {
        let target = Target::new("role", id.as_str()).with_name(Some(name));
        let change = FieldChanges::created(&RoleSnapshot::from_name(name))?;
        entries.add_change(AuditEvent::RoleCreated, &[target], change);
    }
    // Read them again: if two transactions create the same one at the same time, the second finds that of the first.
    tx.lock_roles(caller.workspace_id(), &names).await
}

fn sort_and_dedup(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names.dedup();
    names
}

async fn lock_permissions(
    tx: &mut Tx,
    caller: &Caller,
    slugs: &[String],
) -> Result<Vec<Permission>> {
    if slugs.is_empty() {
        return Ok(Vec::new());
    }
    tx.lock_permissions(caller.workspace_id(), slugs).await
}

fn missing_permissions(slugs: &[String], existing: &[Permission]) -> Vec<String> {
    missing_names(slugs, existing.iter().map(|permission| permission.slug.as_str()))
}

/// Returns those of `names` that do not exist.
fn missing_names<'a>(names: &[String], existing: impl Iterator<Item = &'a str>) -> Vec<String> {
    let existing: HashSet<_> = existing.collect();
    names.iter().filter(|name| !existing.contains(name.as_str())).cloned().collect()
}

/// Inserts permissions and returns whether all of them were created; a slug may be in use. A slug that is the id of an
/// existing permission is rejected.
async fn insert_permissions(
    tx: &mut Tx,
    caller: &Caller,
    permissions: &[Permission],
    entries: &mut AuditBatch<'_>,
    now: Timestamp,
) -> Result<bool> {
    let slugs: Vec<_> = permissions.iter().map(|permission| permission.slug.clone()).collect();
    let by_id = tx.lock_permissions_by_ids(caller.workspace_id(), &slugs).await?;
    if let Some(existing) = by_id.first() {
        return Err(Error::AlreadyExists(ResourceRef::Permission(existing.id.to_string())));
    }
    let created = tx.insert_permissions(caller.workspace_id(), permissions, now).await?;
    let created: HashSet<String> = created.into_iter().collect();
    for permission in permissions.iter().filter(|permission| created.contains(&permission.slug)) {
        let change = FieldChanges::created(&PermissionSnapshot::from_permission(permission))?;
        entries.add_change(AuditEvent::PermissionCreated, &[permission_target(permission)], change);
    }
    Ok(created.len() == permissions.len())
}

/// Returns those of `these` that are not in `others`, compared by id.
pub fn difference<'a, T, I: PartialEq>(
    these: &'a [T],
    others: &[T],
    id: impl Fn(&T) -> &I,
) -> Vec<&'a T> {
    let is_new = |this: &&T| others.iter().all(|other| id(other) != id(this));
    these.iter().filter(is_new).collect()
}

/// Returns a permission as an audit target.
pub fn permission_target(permission: &Permission) -> Target<'_> {
    Target::new("permission", permission.id.as_str()).with_name(Some(&permission.slug))
}

/// Returns a role as an audit target.
pub fn role_target(role: &Role) -> Target<'_> {
    Target::new("role", role.id.as_str()).with_name(Some(&role.name))
}
