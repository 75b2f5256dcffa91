//! Holders of a permission: roles, and keys that have it directly or through roles.

use std::collections::BTreeMap;

use foundation::error::{Error, ResourceRef, Result};
use foundation::id::{KeyId, PermissionId, RoleId};
use foundation::model::{KeySummary, Permission, PermissionAssignment, RoleWithPermissionCount};

use crate::caller::Caller;
use crate::context::Context;
use crate::page::COUNT_MAX;
use crate::page::{Page, Paging};
use crate::permission::Action;

/// A key that has a permission.
#[derive(Debug)]
pub struct PermissionHolder {
    pub key: KeySummary,
    /// Whether the permission is assigned to the key directly.
    pub is_direct: bool,
    /// The roles through which the key has the permission, sorted by name.
    pub roles: Vec<(RoleId, String)>,
}

/// The maximum number of database rounds for one page: holders may be deleted keys, which are skipped. After that many
/// rounds a page may be short.
const ROUNDS_MAX: usize = 8;

/// The numbers of holders of a permission, each counted up to [`COUNT_MAX`] plus one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HolderCounts {
    pub roles: i64,
    /// Keys that have the permission directly.
    pub keys: i64,
}

/// Lists a page of the roles that have a permission, sorted by id.
pub async fn list_roles_with_permission(
    context: &Context,
    caller: &Caller,
    permission: &PermissionId,
    paging: &Paging,
) -> Result<Page<RoleWithPermissionCount>> {
    caller.require(Action::ReadRole)?;
    let listing = paging.to_page_query();
    let mut reader = context.store.read().await?;
    let rows =
        reader.list_roles_with_permission(caller.workspace_id(), permission, &listing).await?;
    Ok(Page::new(rows, paging, |row| &row.role.id))
}

/// Counts the roles and keys that have a permission.
pub async fn count_holders(
    context: &Context,
    caller: &Caller,
    permission: &PermissionId,
) -> Result<HolderCounts> {
    caller.require(Action::ReadPermission)?;
    let mut reader = context.store.read().await?;
    let (roles, keys) =
        reader.count_permission_holders(caller.workspace_id(), permission, COUNT_MAX + 1).await?;
    Ok(HolderCounts { roles, keys })
}

/// Counts the keys that have a role, up to [`COUNT_MAX`] plus one.
pub async fn count_keys_with_role(
    context: &Context,
    caller: &Caller,
    role: &RoleId,
) -> Result<i64> {
    caller.require(Action::ReadRole)?;
    context.store.read().await?.count_role_holders(caller.workspace_id(), role, COUNT_MAX + 1).await
}

/// Lists a page of the keys that have the permission with this slug, sorted by id, with the assignments of each.
/// A verification that requires the slug succeeds for these keys and no others, because it compares slugs exactly.
/// Disabled keys are included.
pub async fn list_holders(
    context: &Context,
    caller: &Caller,
    slug: &str,
    paging: &Paging,
) -> Result<(Permission, Page<PermissionHolder>)> {
    for action in [Action::ReadPermission, Action::ReadRole, Action::ReadKey] {
        caller.require(action)?;
    }
    let workspace = caller.workspace_id();
    let mut reader = context.store.read().await?;
    let slugs = [slug.to_owned()];
    let found = reader.list_permissions_by_slugs(workspace, &slugs).await?.into_iter().next();
    let permission =
        found.ok_or_else(|| Error::not_found(ResourceRef::Permission(slug.to_owned())))?;
    let (mut items, mut next) = (Vec::new(), Some(paging.start.clone()));
    for _ in 0..ROUNDS_MAX {
        let Some(from) = next.take_if(|_| items.len() < paging.limit) else { break };
        let limit = paging.limit_with_lookahead();
        let assignments = reader.list_assignments(workspace, &permission.id, &from, limit).await?;
        let mut by_key = group_by_key(assignments);
        let mut ids: Vec<_> = by_key.keys().take(paging.limit + 1).cloned().collect();
        next = if ids.len() > paging.limit { ids.pop().map(|id| id.to_string()) } else { None };
        for key in reader.list_keys_by_ids(workspace, &ids).await? {
            let (is_direct, roles) = by_key.remove(&key.id).unwrap_or_default();
            items.push(PermissionHolder { key, is_direct, roles });
        }
    }
    if let Some(extra) = items.get(paging.limit) {
        next = Some(extra.key.id.to_string());
        items.truncate(paging.limit);
    }
    Ok((permission, Page { items, next_start: next }))
}

/// How a key has a permission: whether directly, and through which roles.
type KeyAssignments = (bool, Vec<(RoleId, String)>);

/// Groups assignments by key. Each assignment lists its first keys, so the first keys of the result are complete: they
/// have all their assignments.
fn group_by_key(assignments: Vec<PermissionAssignment>) -> BTreeMap<KeyId, KeyAssignments> {
    let mut by_key: BTreeMap<KeyId, KeyAssignments> = BTreeMap::new();
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
