//! Holders of a permission: roles, and keys that have it directly or through roles.

use std::collections::BTreeMap;

use foundation::error::{Error, Result, Subject};
use foundation::id::{KeyId, PermissionId, RoleId};
use foundation::model::{Key, Permission, PermissionAssignment, Role};

use super::super::caller::Caller;
use super::super::page::{Page, Paging};
use super::super::permission::Action;
use super::super::users::SIZE_MAX;
use crate::app::App;

/// A key that has a permission.
#[derive(Debug)]
pub struct PermissionHolder {
    pub key: Key,
    /// Whether the permission is assigned to the key directly.
    pub is_direct: bool,
    /// The roles through which the key has the permission, sorted by name.
    pub roles: Vec<(RoleId, String)>,
}

/// The maximum number of database rounds for one page: holders may be deleted keys, which are skipped. After that many
/// rounds a page may be short.
const ROUNDS_MAX: usize = 8;

/// The numbers of holders of a permission, each counted up to [`SIZE_MAX`] plus one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HolderCounts {
    pub roles: i64,
    /// Keys that have the permission directly.
    pub keys: i64,
}

/// Lists a page of the roles that have a permission, sorted by id.
pub async fn roles_holding(
    app: &App,
    caller: &Caller,
    permission: &PermissionId,
    paging: &Paging,
) -> Result<Page<Role>> {
    caller.require(Action::ReadRole)?;
    let listing = paging.listing();
    let mut reader = app.store.read().await?;
    let rows = reader.roles_holding(caller.workspace(), permission, &listing).await?;
    Ok(Page::new(rows, paging, |row| &row.id))
}

/// Counts the roles and keys that have a permission.
pub async fn count_holders(
    app: &App,
    caller: &Caller,
    permission: &PermissionId,
) -> Result<HolderCounts> {
    caller.require(Action::ReadPermission)?;
    let mut reader = app.store.read().await?;
    let (roles, keys) = reader.count_holding(caller.workspace(), permission, SIZE_MAX + 1).await?;
    Ok(HolderCounts { roles, keys })
}

/// Counts the keys that have a role, up to [`SIZE_MAX`] plus one.
pub async fn keys_with(app: &App, caller: &Caller, role: &RoleId) -> Result<i64> {
    caller.require(Action::ReadRole)?;
    app.store.read().await?.count_keys_with(caller.workspace(), role, SIZE_MAX + 1).await
}

/// Lists a page of the keys that have the permission with this slug, sorted by id, with the assignments of each.
/// A verification that requires the slug succeeds for these keys and no others, because it compares slugs exactly.
/// Disabled keys are included.
pub async fn list_holders(
    app: &App,
    caller: &Caller,
    slug: &str,
    paging: &Paging,
) -> Result<(Permission, Page<PermissionHolder>)> {
    for action in [Action::ReadPermission, Action::ReadRole, Action::ReadKey] {
        caller.require(action)?;
    }
    let workspace = caller.workspace();
    let mut reader = app.store.read().await?;
    let slugs = [slug.to_owned()];
    let found = reader.permissions_with(workspace, &slugs).await?.into_iter().next();
    let permission = found.ok_or_else(|| Error::not_found(Subject::Permission(slug.to_owned())))?;
    let (mut items, mut next) = (Vec::new(), Some(paging.from.clone()));
    for _ in 0..ROUNDS_MAX {
        let Some(from) = next.take_if(|_| items.len() < paging.limit) else { break };
        let limit = paging.look_ahead();
        let assignments = reader.holdings(workspace, &permission.id, &from, limit).await?;
        let mut by_key = merged(assignments);
        let mut ids: Vec<_> = by_key.keys().take(paging.limit + 1).cloned().collect();
        next = if ids.len() > paging.limit { ids.pop().map(|id| id.to_string()) } else { None };
        for stored in reader.keys_among(workspace, &ids).await? {
            let (is_direct, roles) = by_key.remove(&stored.key.id).unwrap_or_default();
            items.push(PermissionHolder { key: stored.key, is_direct, roles });
        }
    }
    if let Some(extra) = items.get(paging.limit) {
        next = Some(extra.key.id.to_string());
        items.truncate(paging.limit);
    }
    Ok((permission, Page { items, next }))
}

/// How a key has a permission: whether directly, and through which roles.
type How = (bool, Vec<(RoleId, String)>);

/// Groups assignments by key. Each assignment lists its first keys, so the first keys of the result are complete: they
/// have all their assignments.
fn merged(assignments: Vec<PermissionAssignment>) -> BTreeMap<KeyId, How> {
    let mut by_key: BTreeMap<KeyId, How> = BTreeMap::new();
    for assignment in assignments {
        for key in assignment.key_ids {
            let (is_direct, roles) = by_key.entry(key).or_default();
            match &assignment.role {
                None => *is_direct = true,
                Some(role) => roles.push(role.clone()),
            }
        }
    }
    for (_, roles) in by_key.values_mut() {
        roles.sort_by(|a, b| a.1.cmp(&b.1));
    }
    by_key
}
