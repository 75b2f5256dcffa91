//! Permissions and roles that keys carry, in the customer's own words.

mod holders;
mod permissions;
mod restore;
mod roles;
mod snapshot;

pub use holders::{
    HolderCounts, PermissionHolder, count_holders, keys_with, list_holders, roles_holding,
};
pub use permissions::{
    NewPermission, create_permission, delete_permission, get_permission, list_permissions,
};
pub use restore::{restore_permission, restore_role};
pub use roles::{
    NewRole, RoleChange, change_role, create_role, delete_role, get_role, list_roles,
    set_role_permissions,
};

use std::collections::HashSet;

use foundation::clock::Timestamp;
use foundation::error::{Error, Result, Subject};
use foundation::id::{PermissionId, RoleId};
use foundation::model::{Permission, Role};
use snapshot::{PermissionState, RoleState};
use store::Tx;

use super::audit::{AuditBatch, FieldChanges, Target};
use super::caller::Caller;
use super::names;
use super::permission::Action;

/// A permission or a role as a request names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector {
    pub by: PickBy,
    pub missing: MissingPolicy,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PickBy {
    Id(String),
    /// The slug of a permission, the name of a role.
    Name(String),
    /// The id of a permission that exists; else its slug.
    IdOrSlug(String),
}

/// What is done about one that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissingPolicy {
    /// The request is refused with all that are missing.
    Refused,
    /// It is made when the root key may make it. One that is named by its id cannot be.
    Made,
    /// It is passed over.
    Ignored,
}

/// One of those that are there, as it may be picked.
#[derive(PartialEq, Eq, Hash)]
enum SelectorKey<'a> {
    Id(&'a str),
    Name(&'a str),
}

impl PickBy {
    fn is_among(&self, known: &HashSet<SelectorKey<'_>>) -> bool {
        match self {
            Self::Id(id) => known.contains(&SelectorKey::Id(id)),
            Self::Name(name) => known.contains(&SelectorKey::Name(name)),
            Self::IdOrSlug(text) => {
                known.contains(&SelectorKey::Id(text)) || known.contains(&SelectorKey::Name(text))
            }
        }
    }
}

impl Selector {
    /// Slugs or names, and what is done about those that do not exist.
    pub fn named(names: Vec<String>, missing: MissingPolicy) -> Vec<Self> {
        names.into_iter().map(|name| Self { by: PickBy::Name(name), missing }).collect()
    }

    /// Permissions by their ids or slugs, and what is done about those that do not exist.
    pub fn permissions(texts: Vec<String>, missing: MissingPolicy) -> Vec<Self> {
        texts.into_iter().map(|text| Self { by: PickBy::IdOrSlug(text), missing }).collect()
    }
}

/// What picks name, sorted and without doubles.
struct Selection {
    ids: Vec<String>,
    names: Vec<String>,
    picks: Vec<Selector>,
}

impl Selection {
    fn new(mut picks: Vec<Selector>) -> Self {
        picks.sort();
        picks.dedup_by(|b, a| a.by == b.by);
        let (mut ids, mut names) = (Vec::new(), Vec::new());
        for pick in &picks {
            match &pick.by {
                PickBy::Id(id) => ids.push(id.clone()),
                PickBy::Name(name) => names.push(name.clone()),
                PickBy::IdOrSlug(text) => {
                    ids.push(text.clone());
                    names.push(text.clone());
                }
            }
        }
        Self { ids, names, picks }
    }

    /// The names to make, of those that are not known; an error for those that nobody may miss.
    fn to_make(
        &self,
        known: &HashSet<SelectorKey<'_>>,
        subject: impl Fn(String) -> Subject,
    ) -> Result<Vec<String>> {
        let (mut refused, mut made) = (Vec::new(), Vec::new());
        for pick in self.picks.iter().filter(|pick| !pick.by.is_among(known)) {
            match (&pick.by, pick.missing) {
                (_, MissingPolicy::Ignored) => {}
                (PickBy::Name(name) | PickBy::IdOrSlug(name), MissingPolicy::Made) => {
                    made.push(name.clone());
                }
                (PickBy::Id(named) | PickBy::Name(named) | PickBy::IdOrSlug(named), _) => {
                    refused.push(subject(named.clone()));
                }
            }
        }
        all_found(refused).map(|()| made)
    }
}

/// The permissions that are picked, without doubles, by slug; nobody deletes them before the transaction ends.
/// Where one is refused or may not be made, nothing is.
pub async fn picked_permissions(
    tx: &mut Tx,
    caller: &Caller,
    picks: Vec<Selector>,
    entries: &mut AuditBatch<'_>,
    now: Timestamp,
) -> Result<Vec<Permission>> {
    let mut picked = Selection::new(picks);
    let mut permissions = match picked.ids.is_empty() {
        true => Vec::new(),
        false => tx.hold_permissions_of(caller.workspace(), &picked.ids).await?,
    };
    // The id of one permission does not stand for another one of that slug.
    picked.names.retain(|name| permissions.iter().all(|known| known.id.as_str() != name));
    permissions.extend(held_permissions(tx, caller, &picked.names).await?);
    let names = permissions
        .iter()
        .flat_map(|p| [SelectorKey::Id(p.id.as_str()), SelectorKey::Name(&p.slug)]);
    let to_make = picked.to_make(&names.collect(), Subject::Permission)?;
    if !to_make.is_empty() {
        caller.require(Action::CreatePermission)?;
        permissions.extend(make_permissions(tx, caller, to_make, entries, now).await?);
    }
    permissions.sort_by(|a, b| a.slug.cmp(&b.slug));
    permissions.dedup_by(|a, b| a.id == b.id);
    Ok(permissions)
}

/// The roles that are picked, without doubles, by name; as [`picked_permissions`].
pub async fn resolve_roles(
    tx: &mut Tx,
    caller: &Caller,
    picks: Vec<Selector>,
    entries: &mut AuditBatch<'_>,
    now: Timestamp,
) -> Result<Vec<Role>> {
    let picked = Selection::new(picks);
    let mut roles = match picked.names.is_empty() {
        true => Vec::new(),
        false => tx.lock_roles(caller.workspace(), &picked.names).await?,
    };
    if !picked.ids.is_empty() {
        roles.extend(tx.hold_roles_of(caller.workspace(), &picked.ids).await?);
    }
    let names =
        roles.iter().flat_map(|r| [SelectorKey::Id(r.id.as_str()), SelectorKey::Name(&r.name)]);
    let to_make = picked.to_make(&names.collect(), Subject::Role)?;
    if !to_make.is_empty() {
        caller.require(Action::CreateRole)?;
        roles.extend(create_missing_roles(tx, caller, to_make, entries, now).await?);
    }
    roles.sort_by(|a, b| a.name.cmp(&b.name));
    roles.dedup_by(|a, b| a.id == b.id);
    Ok(roles)
}

/// The permissions of these ids or slugs, without doubles, by slug; nobody deletes them before the transaction
/// ends. Those that are missing are made when the root key may make them; if not, nothing is.
pub async fn ensure_permissions(
    tx: &mut Tx,
    caller: &Caller,
    slugs: Vec<String>,
    entries: &mut AuditBatch<'_>,
    now: Timestamp,
) -> Result<Vec<Permission>> {
    picked_permissions(tx, caller, Selector::permissions(slugs, MissingPolicy::Made), entries, now)
        .await
}

/// As [`ensure_permissions`], whatever the root key may make.
pub async fn make_permissions(
    tx: &mut Tx,
    caller: &Caller,
    slugs: Vec<String>,
    entries: &mut AuditBatch<'_>,
    now: Timestamp,
) -> Result<Vec<Permission>> {
    let slugs = without_doubles(slugs);
    let permissions = held_permissions(tx, caller, &slugs).await?;
    let missing = permissions_missing(&slugs, &permissions);
    if missing.is_empty() {
        return Ok(permissions);
    }
    for slug in &missing {
        names::check("permissions", slug)?;
    }
    let new = missing.into_iter().map(|slug| Permission {
        id: PermissionId::random(),
        name: slug.clone(),
        slug,
        description: None,
    });
    insert_permissions(tx, caller, &new.collect::<Vec<_>>(), entries, now).await?;
    // Read again: of two that make the same one at once, the second finds the first one's.
    held_permissions(tx, caller, &slugs).await
}

/// The roles of these names, made without permissions where they are missing, whatever the root key may make;
/// nobody deletes them before the transaction ends.
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
    let names = without_doubles(names);
    let roles = tx.lock_roles(caller.workspace(), &names).await?;
    let missing = beyond_names(&names, roles.iter().map(|role| role.name.as_str()));
    let missing: Vec<_> = missing.into_iter().map(|name| (RoleId::random(), name)).collect();
    if missing.is_empty() {
        return Ok(roles);
    }
    for (_, name) in &missing {
        names::check("roles", name)?;
    }
    let made = tx.insert_roles(caller.workspace(), &missing, now).await?;
    let made: HashSet<String> = made.into_iter().collect();
    for (id, name) in missing.iter().filter(|(_, name)| made.contains(name)) {
        let target = Target::new("role", id.as_str()).named(Some(name));
        entries.add_change(
            "role.create",
            &[target],
            FieldChanges::created(&RoleState::bare(name))?,
        );
    }
    // Read again: of two that make the same one at once, the second finds the first one's.
    tx.lock_roles(caller.workspace(), &names).await
}

/// The roles of these names and the permissions that are picked, without doubles, in order; nobody deletes them
/// before the transaction ends. Each role must exist; the error names all that are missing, permissions too.
pub async fn existing_roles_and_picked(
    tx: &mut Tx,
    caller: &Caller,
    names: Vec<String>,
    picks: Vec<Selector>,
    entries: &mut AuditBatch<'_>,
    now: Timestamp,
) -> Result<(Vec<Role>, Vec<Permission>)> {
    let names = without_doubles(names);
    let roles = match names.is_empty() {
        true => Vec::new(),
        false => tx.lock_roles(caller.workspace(), &names).await?,
    };
    let unknown = beyond_names(&names, roles.iter().map(|role| role.name.as_str()));
    let mut missing: Vec<_> = unknown.into_iter().map(Subject::Role).collect();
    let permissions = match picked_permissions(tx, caller, picks, entries, now).await {
        Err(Error::NotFound(permissions)) => {
            missing.extend(permissions);
            Vec::new()
        }
        // What may not be made does not hide what is not there.
        Err(_) if !missing.is_empty() => Vec::new(),
        picked => picked?,
    };
    all_found(missing).map(|()| (roles, permissions))
}

fn all_found(missing: Vec<Subject>) -> Result<()> {
    if missing.is_empty() { Ok(()) } else { Err(Error::NotFound(missing)) }
}

fn without_doubles(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names.dedup();
    names
}

async fn held_permissions(
    tx: &mut Tx,
    caller: &Caller,
    slugs: &[String],
) -> Result<Vec<Permission>> {
    if slugs.is_empty() {
        return Ok(Vec::new());
    }
    tx.lock_permissions(caller.workspace(), slugs).await
}

fn permissions_missing(slugs: &[String], known: &[Permission]) -> Vec<String> {
    beyond_names(slugs, known.iter().map(|permission| permission.slug.as_str()))
}

/// Those of `names` that are not known.
fn beyond_names<'a>(names: &[String], known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let known: HashSet<_> = known.collect();
    names.iter().filter(|name| !known.contains(name.as_str())).cloned().collect()
}

/// Whether all of them were made; a slug may be taken. None is made whose slug is the id of another one.
async fn insert_permissions(
    tx: &mut Tx,
    caller: &Caller,
    permissions: &[Permission],
    entries: &mut AuditBatch<'_>,
    now: Timestamp,
) -> Result<bool> {
    let slugs: Vec<_> = permissions.iter().map(|permission| permission.slug.clone()).collect();
    let by_id = tx.hold_permissions_of(caller.workspace(), &slugs).await?;
    if let Some(known) = by_id.first() {
        return Err(Error::Taken(Subject::Permission(known.id.to_string())));
    }
    let made = tx.insert_permissions(caller.workspace(), permissions, now).await?;
    let made: HashSet<String> = made.into_iter().collect();
    for permission in permissions.iter().filter(|permission| made.contains(&permission.slug)) {
        let change = FieldChanges::created(&PermissionState::of(permission))?;
        entries.add_change("permission.create", &[permission_target(permission)], change);
    }
    Ok(made.len() == permissions.len())
}

/// Those of `these` that are not among `others`, by their ids.
pub fn difference<'a, T, I: PartialEq>(
    these: &'a [T],
    others: &[T],
    id: impl Fn(&T) -> &I,
) -> Vec<&'a T> {
    let is_new = |this: &&T| others.iter().all(|other| id(other) != id(this));
    these.iter().filter(is_new).collect()
}

/// A permission as the audit log names it.
pub fn permission_target(permission: &Permission) -> Target<'_> {
    Target::new("permission", permission.id.as_str()).named(Some(&permission.slug))
}

/// A role as the audit log names it.
pub fn role_target(role: &Role) -> Target<'_> {
    Target::new("role", role.id.as_str()).named(Some(&role.name))
}
