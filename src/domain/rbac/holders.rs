//! Who holds a permission: which roles, and which keys, of themselves or through them.

use std::collections::BTreeMap;

use foundation::error::{Error, Result, Subject};
use foundation::id::{KeyId, PermissionId, RoleId};
use foundation::model::{Key, Permission, PermissionAssignment, Role};

use super::super::caller::Caller;
use super::super::page::{Page, Paging};
use super::super::permission::Action;
use super::super::users::SIZE_MAX;
use crate::app::App;

/// A key that holds a permission.
#[derive(Debug)]
pub struct PermissionHolder {
    pub key: Key,
    /// Whether it holds it of itself.
    pub is_direct: bool,
    /// The roles through which it does, by name.
    pub roles: Vec<(RoleId, String)>,
}

/// How often the database is asked for one page: those that hold it may have been deleted. A page may be short then.
const ROUNDS_MAX: usize = 8;

/// How many hold something, each counted up to [`SIZE_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HolderCounts {
    pub roles: i64,
    /// Of themselves.
    pub keys: i64,
}

/// The roles that hold a permission, by id.
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

/// How many roles and keys hold a permission.
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

/// How many keys have a role, counted up to [`SIZE_MAX`].
pub async fn keys_with(app: &App, caller: &Caller, role: &RoleId) -> Result<i64> {
    caller.require(Action::ReadRole)?;
    app.store.read().await?.count_keys_with(caller.workspace(), role, SIZE_MAX + 1).await
}

/// The keys that hold the permission of this slug, by id, and how each of them does. A verification that asks for the
/// slug finds it on these and no others, for it compares letter by letter. Whether they are enabled does not matter.
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
        let holdings = reader.holdings(workspace, &permission.id, &from, limit).await?;
        let mut how = merged(holdings);
        let mut ids: Vec<_> = how.keys().take(paging.limit + 1).cloned().collect();
        next = if ids.len() > paging.limit { ids.pop().map(|id| id.to_string()) } else { None };
        for stored in reader.keys_among(workspace, &ids).await? {
            let (is_direct, roles) = how.remove(&stored.key.id).unwrap_or_default();
            items.push(PermissionHolder { key: stored.key, is_direct, roles });
        }
    }
    if let Some(beyond) = items.get(paging.limit) {
        next = Some(beyond.key.id.to_string());
        items.truncate(paging.limit);
    }
    Ok((permission, Page { items, next }))
}

/// How each key holds the permission: whether of itself, and through which roles.
type How = (bool, Vec<(RoleId, String)>);

/// Of every way there are the first keys, so the first of all are among them, each in every way in which it holds it.
fn merged(holdings: Vec<PermissionAssignment>) -> BTreeMap<KeyId, How> {
    let mut how: BTreeMap<KeyId, How> = BTreeMap::new();
    for holding in holdings {
        for key in holding.key_ids {
            let (is_direct, roles) = how.entry(key).or_default();
            match &holding.role {
                None => *is_direct = true,
                Some(role) => roles.push(role.clone()),
            }
        }
    }
    for (_, roles) in how.values_mut() {
        roles.sort_by(|a, b| a.1.cmp(&b.1));
    }
    how
}
