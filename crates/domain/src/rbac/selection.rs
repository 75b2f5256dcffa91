//! Selection of permissions and roles in requests, by id, slug or name.

use std::collections::HashSet;

use foundation::clock::Timestamp;
use foundation::error::{Error, ResourceRef, Result};
use foundation::model::{Permission, Role};
use store::Tx;

use super::{
    create_missing_permissions, create_missing_roles, lock_permissions, missing_names,
    sort_and_dedup,
};
use crate::audit::AuditBatch;
use crate::caller::Caller;
use crate::permission::Action;

/// A reference to a permission or role in a request, and what to do if it does not exist.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector {
    pub value: SelectorValue,
    pub missing_policy: MissingPolicy,
}

/// How a [`Selector`] refers to a permission or role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SelectorValue {
    Id(String),
    /// The slug of a permission or the name of a role.
    Name(String),
    /// The id of an existing permission, otherwise its slug.
    IdOrSlug(String),
}

/// What happens if a selected permission or role does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissingPolicy {
    /// The request is rejected with an error that lists all missing ones.
    Reject,
    /// It is created if the root key has the permission. One that is selected by id cannot be created and is rejected.
    Create,
    /// It is ignored.
    Ignore,
}

/// An id or a name of an existing permission or role.
#[derive(PartialEq, Eq, Hash)]
enum SelectorKey<'a> {
    Id(&'a str),
    Name(&'a str),
}

impl SelectorValue {
    fn is_among(&self, existing: &HashSet<SelectorKey<'_>>) -> bool {
        match self {
            Self::Id(id) => existing.contains(&SelectorKey::Id(id)),
            Self::Name(name) => existing.contains(&SelectorKey::Name(name)),
            Self::IdOrSlug(text) => {
                existing.contains(&SelectorKey::Id(text))
                    || existing.contains(&SelectorKey::Name(text))
            }
        }
    }
}

impl Selector {
    /// Creates selectors of slugs or names.
    pub fn from_names(names: Vec<String>, missing: MissingPolicy) -> Vec<Self> {
        names
            .into_iter()
            .map(|name| Self { value: SelectorValue::Name(name), missing_policy: missing })
            .collect()
    }

    /// Creates selectors of permissions by ids or slugs.
    pub fn from_ids_or_slugs(texts: Vec<String>, missing: MissingPolicy) -> Vec<Self> {
        texts
            .into_iter()
            .map(|text| Self { value: SelectorValue::IdOrSlug(text), missing_policy: missing })
            .collect()
    }
}

/// Selectors, sorted and without duplicates, and the ids and names that they contain.
struct Selection {
    ids: Vec<String>,
    names: Vec<String>,
    selectors: Vec<Selector>,
}

impl Selection {
    fn new(mut selectors: Vec<Selector>) -> Self {
        selectors.sort();
        selectors.dedup_by(|b, a| a.value == b.value);
        let (mut ids, mut names) = (Vec::new(), Vec::new());
        for selector in &selectors {
            match &selector.value {
                SelectorValue::Id(id) => ids.push(id.clone()),
                SelectorValue::Name(name) => names.push(name.clone()),
                SelectorValue::IdOrSlug(text) => {
                    ids.push(text.clone());
                    names.push(text.clone());
                }
            }
        }
        Self { ids, names, selectors }
    }

    /// Returns the names to create, or an error that lists those whose absence is rejected.
    fn names_to_create(
        &self,
        existing: &HashSet<SelectorKey<'_>>,
        subject: impl Fn(String) -> ResourceRef,
    ) -> Result<Vec<String>> {
        let (mut rejected, mut created) = (Vec::new(), Vec::new());
        for selector in self.selectors.iter().filter(|selector| !selector.value.is_among(existing))
        {
            match (&selector.value, selector.missing_policy) {
                (_, MissingPolicy::Ignore) => {}
                (
                    SelectorValue::Name(name) | SelectorValue::IdOrSlug(name),
                    MissingPolicy::Create,
                ) => {
                    created.push(name.clone());
                }
                (
                    SelectorValue::Id(text)
                    | SelectorValue::Name(text)
                    | SelectorValue::IdOrSlug(text),
                    _,
                ) => {
                    rejected.push(subject(text.clone()));
                }
            }
        }
        require_none_missing(rejected).map(|()| created)
    }
}

/// Returns the selected permissions, sorted by slug and without duplicates, and locks them against deletion until the
/// transaction ends. Missing ones are created according to their policy. If one is rejected or the root key may not
/// create it, nothing is created.
pub async fn resolve_permissions(
    tx: &mut Tx,
    caller: &Caller,
    selectors: Vec<Selector>,
    entries: &mut AuditBatch<'_>,
    now: Timestamp,
) -> Result<Vec<Permission>> {
    let mut selection = Selection::new(selectors);
    let mut permissions = match selection.ids.is_empty() {
        true => Vec::new(),
        false => tx.lock_permissions_by_ids(caller.workspace_id(), &selection.ids).await?,
    };
    // A text that is the id of a permission does not also select another permission with that slug.
    selection.names.retain(|name| permissions.iter().all(|found| found.id.as_str() != name));
    permissions.extend(lock_permissions(tx, caller, &selection.names).await?);
    let names = permissions
        .iter()
        .flat_map(|p| [SelectorKey::Id(p.id.as_str()), SelectorKey::Name(&p.slug)]);
    let to_make = selection.names_to_create(&names.collect(), ResourceRef::Permission)?;
    if !to_make.is_empty() {
        caller.require(Action::CreatePermission)?;
        permissions.extend(create_missing_permissions(tx, caller, to_make, entries, now).await?);
    }
    permissions.sort_by(|a, b| a.slug.cmp(&b.slug));
    permissions.dedup_by(|a, b| a.id == b.id);
    Ok(permissions)
}

/// Returns the selected roles, sorted by name and without duplicates. Otherwise like [`resolve_permissions`].
pub async fn resolve_roles(
    tx: &mut Tx,
    caller: &Caller,
    selectors: Vec<Selector>,
    entries: &mut AuditBatch<'_>,
    now: Timestamp,
) -> Result<Vec<Role>> {
    let selection = Selection::new(selectors);
    let mut roles = match selection.names.is_empty() {
        true => Vec::new(),
        false => tx.lock_roles(caller.workspace_id(), &selection.names).await?,
    };
    if !selection.ids.is_empty() {
        roles.extend(tx.lock_roles_by_ids(caller.workspace_id(), &selection.ids).await?);
    }
    let names =
        roles.iter().flat_map(|r| [SelectorKey::Id(r.id.as_str()), SelectorKey::Name(&r.name)]);
    let to_make = selection.names_to_create(&names.collect(), ResourceRef::Role)?;
    if !to_make.is_empty() {
        caller.require(Action::CreateRole)?;
        roles.extend(create_missing_roles(tx, caller, to_make, entries, now).await?);
    }
    roles.sort_by(|a, b| a.name.cmp(&b.name));
    roles.dedup_by(|a, b| a.id == b.id);
    Ok(roles)
}

/// Returns the permissions with these ids or slugs, sorted by slug and without duplicates, and locks them against
/// deletion until the transaction ends. Missing ones are created if the root key has the permission; otherwise nothing
/// is created.
pub async fn ensure_permissions(
    tx: &mut Tx,
    caller: &Caller,
    slugs: Vec<String>,
    entries: &mut AuditBatch<'_>,
    now: Timestamp,
) -> Result<Vec<Permission>> {
    resolve_permissions(
        tx,
        caller,
        Selector::from_ids_or_slugs(slugs, MissingPolicy::Create),
        entries,
        now,
    )
    .await
}

/// Returns the roles with these names and the selected permissions, sorted and without duplicates, and locks them
/// against deletion until the transaction ends. Each role must exist; the error lists all missing roles and
/// permissions.
pub async fn resolve_existing_roles_and_permissions(
    tx: &mut Tx,
    caller: &Caller,
    names: Vec<String>,
    selectors: Vec<Selector>,
    entries: &mut AuditBatch<'_>,
    now: Timestamp,
) -> Result<(Vec<Role>, Vec<Permission>)> {
    // Permissions are locked before roles, as wherever a key is written, so that two transactions do not deadlock.
    let resolved = match resolve_permissions(tx, caller, selectors, entries, now).await {
        Err(e @ Error::Store(_)) => return Err(e),
        resolved => resolved,
    };
    let names = sort_and_dedup(names);
    let roles = match names.is_empty() {
        true => Vec::new(),
        false => tx.lock_roles(caller.workspace_id(), &names).await?,
    };
    let missing = missing_names(&names, roles.iter().map(|role| role.name.as_str()));
    let mut missing: Vec<_> = missing.into_iter().map(ResourceRef::Role).collect();
    let permissions = match resolved {
        Err(Error::NotFound(permissions)) => {
            missing.extend(permissions);
            Vec::new()
        }
        // An error about a permission that may not be created does not hide the missing roles.
        Err(_) if !missing.is_empty() => Vec::new(),
        result => result?,
    };
    require_none_missing(missing).map(|()| (roles, permissions))
}

fn require_none_missing(missing: Vec<ResourceRef>) -> Result<()> {
    if missing.is_empty() { Ok(()) } else { Err(Error::NotFound(missing)) }
}
