//! Namespaces: lookup by id or name, lists, and creation, also on first use.

mod changes;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal, ResourceRef, Result};
use foundation::id::{NamespaceId, WorkspaceId};
use foundation::model::{Namespace, OutagePolicy};
use foundation::secret::KeyHash;
use store::cache::{CacheName, Cached, RowFuture};
use store::{Reader, StoredNamespace, Tx, freshness};

pub use changes::{
    delete, delete_as_operator, restore, update_outage_policy, update_outage_policy_as_operator,
};

use super::namespace_target;
use super::snapshot::NamespaceSnapshot;
use crate::audit::{AuditBatch, AuditEvent, FieldChanges};
use crate::bounds::IDENTIFIER_MAX;
use crate::caller::Caller;
use crate::context::Context;
use crate::form_results;
use crate::names;
use crate::page::{Page, Paging};
use crate::permission::Action;
use crate::ratelimits::Ratelimits;

/// The maximum number of namespaces of a workspace, without deleted ones.
pub const NAMESPACES_MAX: i64 = 1_000;

/// A reference to a namespace of a workspace: its id or its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceRef {
    workspace: WorkspaceId,
    id_or_name: String,
}

impl NamespaceRef {
    pub fn new(caller: &Caller, named: String) -> Self {
        Self { workspace: caller.workspace_id().clone(), id_or_name: named }
    }

    /// Returns a hash of the reference that is the same on every replica.
    pub fn fingerprint(&self) -> u64 {
        self.digest().fingerprint()
    }
}

impl CacheName for NamespaceRef {
    fn digest(&self) -> KeyHash {
        KeyHash::compute(format!("{} {}", self.workspace, self.id_or_name))
    }
}

/// Returns the namespace and its overrides from the cache, even if it is deleted.
pub fn find<'a>(
    ratelimits: &'a Ratelimits,
    name: &'a NamespaceRef,
) -> RowFuture<'a, StoredNamespace> {
    let context = &ratelimits.context;
    let to_cached = |stored: StoredNamespace, version| {
        let tag = freshness::CacheTag::Namespace(stored.namespace.id.clone());
        Cached::new(stored, version, [tag])
    };
    ratelimits.namespaces.get(name, move |load| async move {
        let NamespaceRef { workspace, id_or_name } = name;
        let query = |mut reader: Reader, replica| async move {
            reader.find_namespace_on_standby(workspace, id_or_name, replica).await
        };
        let on_standby = |stored, version| Some(to_cached(stored, version));
        if let Some(cached) = context.load_from_standby(query, on_standby).await {
            return Ok(Some(cached));
        }
        let read = || async {
            context.store.read().await?.find_stored_namespace(workspace, id_or_name).await
        };
        let found = context.read_again_if_lost(read).await?;
        Ok(found.map(|stored| to_cached(stored, load.version)))
    })
}

/// Returns the namespace if the caller may check limits in it and it is not deleted.
pub fn require_usable(
    caller: &Caller,
    found: Arc<Cached<StoredNamespace>>,
) -> Result<Arc<Cached<StoredNamespace>>> {
    let namespace = &found.value.namespace;
    caller.require_on(Action::Limit, &namespace.id)?;
    match namespace.deleted_at {
        None => Ok(found),
        Some(_) => Err(Error::NamespaceDeleted(namespace.name.clone())),
    }
}

/// Creates a namespace that was not found and returns it, if the caller may check limits in it.
pub async fn create_on_first_use(
    ratelimits: &Ratelimits,
    caller: &Caller,
    name: &NamespaceRef,
) -> Result<Arc<Cached<StoredNamespace>>> {
    let mut created = find_or_create(ratelimits, caller, std::slice::from_ref(name)).await?;
    created.pop().ok_or_else(|| Error::Internal("the created namespace was not found".into()))
}

/// Returns the namespaces with these names, if the caller may check limits in all of them. Missing ones are created in
/// one transaction, after the permissions for all of them have been checked.
pub async fn find_or_create(
    ratelimits: &Ratelimits,
    caller: &Caller,
    names: &[NamespaceRef],
) -> Result<Vec<Arc<Cached<StoredNamespace>>>> {
    let mut namespaces = Vec::with_capacity(names.len());
    let mut missing = Vec::new();
    for name in names {
        match find(ratelimits, name).await? {
            Some(found) => namespaces.push(require_usable(caller, found)?),
            None => missing.push(name.clone()),
        }
    }
    if missing.is_empty() {
        return Ok(namespaces);
    }
    create_missing(&ratelimits.context, caller, missing).await?;
    namespaces.clear();
    for name in names {
        let found = find(ratelimits, name).await?;
        let missing = || Error::Internal("the created namespace was not found".into());
        namespaces.push(require_usable(caller, found.ok_or_else(missing)?)?);
    }
    Ok(namespaces)
}

/// Checks, for another object that names namespaces, by id or name, that the caller may check limits in all of them and that it
/// names none twice. Missing ones are created, if the caller has the permission.
pub(crate) async fn require_usable_or_create(
    context: &Context,
    tx: &mut Tx,
    caller: &Caller,
    names: &[&str],
) -> Result<()> {
    let (mut missing, mut known) = (Vec::new(), BTreeSet::new());
    for (at, name) in names.iter().enumerate() {
        match tx.find_namespace(caller.workspace_id(), name).await? {
            Some(Namespace { deleted_at: Some(_), .. }) => {
                return Err(Error::NamespaceDeleted((*name).to_owned()));
            }
            Some(found) => {
                caller.require_on(Action::Limit, &found.id)?;
                if !known.insert(found.id) {
                    let message = format!("namespaces[{at}] must not name a namespace twice");
                    return Err(Error::invalid("/properties/namespaces/items", message));
                }
            }
            None => missing.push(NamespaceRef::new(caller, (*name).to_owned())),
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let missing = validate_missing(caller, missing)?;
    insert_and_record(context, tx, caller, &missing).await.map(drop)
}

/// Creates a namespace. Fails if the name is or was in use.
pub async fn create(context: &Context, caller: &Caller, name: &str) -> Result<Namespace> {
    caller.require(Action::CreateNamespace)?;
    if !(1..=IDENTIFIER_MAX).contains(&name.chars().count()) {
        let message = format!("name must have 1 to {IDENTIFIER_MAX} characters");
        return Err(Error::invalid("name", message));
    }
    names::validate("name", name)?;
    let existing = context.store.read().await?.find_namespace(caller.workspace_id(), name).await?;
    if existing.is_some_and(|existing| existing.deleted_at.is_some()) {
        let message = "a namespace with this name was deleted; its name stays reserved";
        return Err(Error::invalid("name", message));
    }
    let mut tx = context.store.begin().await?;
    let name_ref = [NamespaceRef::new(caller, name.to_owned())];
    let created = insert_and_record(context, &mut tx, caller, &name_ref).await?;
    if let Some(namespace) = created.first() {
        form_results::record(&mut tx, caller, &namespace.id, None, namespace.created_at).await?;
    }
    context.commit(tx).await?;
    created
        .into_iter()
        .next()
        .ok_or_else(|| Error::AlreadyExists(ResourceRef::Namespace(name.to_owned())))
}

async fn create_missing(
    context: &Context,
    caller: &Caller,
    names: Vec<NamespaceRef>,
) -> Result<()> {
    let names = validate_missing(caller, names)?;
    let mut tx = context.store.begin().await?;
    insert_and_record(context, &mut tx, caller, &names).await?;
    context.commit(tx).await
}

/// Returns the names without duplicates, if the caller may create namespaces with them and check limits there.
fn validate_missing(caller: &Caller, mut names: Vec<NamespaceRef>) -> Result<Vec<NamespaceRef>> {
    let needed = [Action::Limit, Action::CreateNamespace];
    let missing: Vec<_> = needed.into_iter().filter(|action| !caller.is_allowed(*action)).collect();
    if !missing.is_empty() {
        let missing: Vec<_> = missing.into_iter().map(Action::to_wildcard_tuple).collect();
        return Err(Error::Forbidden(missing.join(" and ")));
    }
    names.sort();
    names.dedup();
    for name in &names {
        names::validate("namespace", &name.id_or_name)?;
    }
    Ok(names)
}

/// Inserts and returns those namespaces whose names are free.
async fn insert_and_record(
    context: &Context,
    tx: &mut Tx,
    caller: &Caller,
    names: &[NamespaceRef],
) -> Result<Vec<Namespace>> {
    let now = context.clock.now();
    let mut new: Vec<_> = names.iter().map(|name| new_namespace(context, name, now)).collect();

    let existing_count = tx.lock_namespaces(caller.workspace_id()).await?;
    let created = tx.insert_namespaces(caller.workspace_id(), &new).await?;
    if existing_count.saturating_add(i64::try_from(created.len()).unwrap_or(i64::MAX))
        > NAMESPACES_MAX
        && !created.is_empty()
    {
        return Err(Error::PreconditionFailed(Refusal::TooManyNamespaces(NAMESPACES_MAX)));
    }
    new.retain(|namespace| created.contains(&namespace.name));
    let mut entries = AuditBatch::for_caller(caller, now);
    for namespace in &new {
        let change = FieldChanges::created(&NamespaceSnapshot::from_namespace(namespace))?;
        entries.add_change(AuditEvent::NamespaceCreated, &[namespace_target(namespace)], change);
    }
    entries.write(tx).await?;
    // Also those that another replica has created first: this replica may have cached that they do not exist.
    for name in names {
        tx.record_change(freshness::CacheTag::NewNamespace(name.fingerprint()));
    }
    Ok(new)
}

fn new_namespace(context: &Context, name: &NamespaceRef, now: Timestamp) -> Namespace {
    Namespace {
        id: NamespaceId::random(),
        workspace_id: name.workspace.clone(),
        name: name.id_or_name.clone(),
        outage_policy: OutagePolicy::default(),
        home: context.home_of_new(),
        created_at: now,
        deleted_at: None,
    }
}

/// Returns the namespace with this id if it exists and is not deleted.
pub async fn get(context: &Context, caller: &Caller, id: &str) -> Result<Namespace> {
    caller.require_on(Action::ReadNamespace, &id)?;
    let found = context.store.read().await?.find_namespace(caller.workspace_id(), id).await?;
    require_not_deleted(found.filter(|namespace| namespace.id.as_str() == id), id)
}

/// Returns the names of those of these namespaces that exist, by their ids.
pub async fn load_names(
    context: &Context,
    caller: &Caller,
    ids: &[NamespaceId],
) -> Result<HashMap<NamespaceId, String>> {
    caller.require(Action::ReadNamespace)?;
    let mut reader = context.store.read().await?;
    let names = reader.load_namespace_names(caller.workspace_id(), ids).await?;
    Ok(names.into_iter().collect())
}

/// Lists a page of the namespaces of the caller's workspace, by id or by name, without deleted ones.
pub async fn list_for_caller(
    context: &Context,
    caller: &Caller,
    paging: &Paging,
) -> Result<Page<Namespace>> {
    caller.require(Action::ReadNamespace)?;
    let mut reader = context.store.read().await?;
    let rows = reader.list_namespaces(caller.workspace_id(), &paging.to_page_query()).await?;
    Ok(Page::in_order(rows, paging, |row| &row.id, |row| &row.name))
}

/// Lists the namespaces of a workspace, sorted by name, including deleted ones.
pub async fn list(context: &Context, workspace: &WorkspaceId) -> Result<Vec<Namespace>> {
    context.store.read().await?.list_all_namespaces(workspace).await
}

/// Returns the namespace, or [`Error::NotFound`] if it does not exist or is deleted.
pub fn require_not_deleted(found: Option<Namespace>, named: &str) -> Result<Namespace> {
    found
        .filter(|namespace| namespace.deleted_at.is_none())
        .ok_or_else(|| Error::not_found(ResourceRef::Namespace(named.to_owned())))
}
