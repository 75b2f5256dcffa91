//! Permissions and roles that keys carry, in the customer's own words.

use super::audit::{self, Actor, Target};
use super::caller::Caller;
use super::permission::Action;
use crate::app::App;
use crate::clock::Timestamp;
use crate::error::{Error, Result, Subject};
use crate::id::{PermissionId, RoleId};
use crate::model::{Permission, Role};
use crate::store::Tx;

/// A permission as it is asked for.
#[derive(Debug)]
pub struct NewPermission {
    pub slug: String,
    pub name: String,
    pub description: Option<String>,
}

/// A role as it is asked for.
#[derive(Debug)]
pub struct NewRole {
    pub name: String,
    pub description: Option<String>,
    /// Slugs; a missing one is made when the root key may.
    pub permissions: Vec<String>,
}

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
    if !insert(&mut tx, caller, std::slice::from_ref(&permission), now).await? {
        return Err(Error::Taken(Subject::Permission(permission.slug)));
    }
    app.commit(tx).await?;

    Ok(permission.id)
}

pub async fn create_role(app: &App, caller: &Caller, new: NewRole) -> Result<RoleId> {
    caller.require(Action::CreateRole)?;
    if !new.permissions.is_empty() {
        caller.require(Action::AddPermissionToRole)?;
    }
    let now = app.clock.now();

    let mut tx = app.store.begin().await?;
    let permissions = ensure_permissions(&mut tx, caller, new.permissions, now).await?;
    let role =
        Role { id: RoleId::random(), name: new.name, description: new.description, permissions };
    let made = tx.insert_role(caller.workspace(), &role, now).await;
    made.map_err(|e| match e.violates("roles_name_unique") {
        true => Error::Taken(Subject::Role(role.name.clone())),
        false => e,
    })?;
    let mut targets = vec![Target::new("role", role.id.as_str()).named(Some(&role.name))];
    record(&mut tx, caller, "role.create", &targets, now).await?;
    if !role.permissions.is_empty() {
        targets.extend(role.permissions.iter().map(permission_target));
        let event = "authorization.connect_role_and_permission";
        record(&mut tx, caller, event, &targets, now).await?;
    }
    app.commit(tx).await?;

    Ok(role.id)
}

/// The permissions of these slugs, without doubles, by slug. Those that are missing are made when
/// the root key may make them; if not, nothing is.
pub async fn ensure_permissions(
    tx: &mut Tx,
    caller: &Caller,
    mut slugs: Vec<String>,
    now: Timestamp,
) -> Result<Vec<Permission>> {
    slugs.sort();
    slugs.dedup();
    if slugs.is_empty() {
        return Ok(Vec::new());
    }
    let permissions = tx.permissions_with(caller.workspace(), &slugs).await?;
    let missing: Vec<_> = slugs
        .iter()
        .filter(|slug| permissions.iter().all(|permission| permission.slug != **slug))
        .map(|slug| Permission {
            id: PermissionId::random(),
            name: slug.clone(),
            slug: slug.clone(),
            description: None,
        })
        .collect();
    if missing.is_empty() {
        return Ok(permissions);
    }
    caller.require(Action::CreatePermission)?;
    insert(tx, caller, &missing, now).await?;
    // Read again: of two that make the same one at once, the second finds the first one's.
    tx.permissions_with(caller.workspace(), &slugs).await
}

/// The roles of these names and the permissions of these slugs, without doubles. Each must exist; the
/// error names all that do not.
pub async fn existing(
    tx: &mut Tx,
    caller: &Caller,
    mut names: Vec<String>,
    mut slugs: Vec<String>,
) -> Result<(Vec<Role>, Vec<Permission>)> {
    names.sort();
    names.dedup();
    slugs.sort();
    slugs.dedup();
    let workspace = caller.workspace();
    let roles =
        if names.is_empty() { Vec::new() } else { tx.roles_named(workspace, &names).await? };
    let permissions =
        if slugs.is_empty() { Vec::new() } else { tx.permissions_with(workspace, &slugs).await? };
    names.retain(|name| roles.iter().all(|role| role.name != *name));
    slugs.retain(|slug| permissions.iter().all(|permission| permission.slug != *slug));
    let missing: Vec<_> = (names.into_iter().map(Subject::Role))
        .chain(slugs.into_iter().map(Subject::Permission))
        .collect();
    if missing.is_empty() { Ok((roles, permissions)) } else { Err(Error::NotFound(missing)) }
}

/// Whether all of them were made; a slug may be taken.
async fn insert(
    tx: &mut Tx,
    caller: &Caller,
    permissions: &[Permission],
    now: Timestamp,
) -> Result<bool> {
    let made = tx.insert_permissions(caller.workspace(), permissions, now).await?;
    for permission in permissions.iter().filter(|permission| made.contains(&permission.slug)) {
        record(tx, caller, "permission.create", &[permission_target(permission)], now).await?;
    }
    Ok(made.len() == permissions.len())
}

/// A permission as the audit log names it.
pub fn permission_target(permission: &Permission) -> Target<'_> {
    Target::new("permission", permission.id.as_str()).named(Some(&permission.slug))
}

async fn record(
    tx: &mut Tx,
    caller: &Caller,
    event: &'static str,
    targets: &[Target<'_>],
    now: Timestamp,
) -> Result<()> {
    audit::record(tx, Actor::RootKey(caller), caller.workspace(), now, event, targets).await
}
