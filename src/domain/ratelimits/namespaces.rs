//! Namespaces: lookup by id or name, creation on first use, and management.

use std::sync::Arc;

use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal, Result, Subject};
use foundation::id::{NamespaceId, WorkspaceId};
use foundation::model::{Namespace, OutagePolicy};
use foundation::secret::KeyHash;
use store::cache::Cached;
use store::{StoredNamespace, Tx, freshness};

use super::super::audit::{self, Actor, AuditBatch, FieldChanges};
use super::super::caller::Caller;
use super::super::names;
use super::super::page::{Page, Paging};
use super::super::permission::Action;
use super::snapshot::NamespaceSnapshot;
use super::target;
use crate::app::App;

/// The maximum number of namespaces of a workspace, without deleted ones.
pub const NAMESPACES_MAX: i64 = 1_000;

/// A reference to a namespace of a workspace: its id or its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceName {
    workspace: WorkspaceId,
    named: String,
}

impl NamespaceName {
    pub fn new(caller: &Caller, named: String) -> Self {
        Self { workspace: caller.workspace().clone(), named }
    }

    /// Returns a hash of the reference that is the same on every replica.
    pub fn fingerprint(&self) -> u64 {
        KeyHash::of(format!("{} {}", self.workspace, self.named)).fingerprint()
    }
}

/// Returns the namespace and its overrides from the cache, even if it is deleted.
pub async fn find(app: &App, name: &NamespaceName) -> Result<Option<Arc<Cached<StoredNamespace>>>> {
    app.caches
        .namespaces
        .get(name, |read_version| async move {
            let found = app.store.read().await?.namespace(&name.workspace, &name.named).await?;
            Ok(found.map(|stored| {
                let tag = freshness::CacheTag::Namespace(stored.namespace.id.clone());
                Cached::new(stored, read_version, [tag])
            }))
        })
        .await
}

/// Returns the namespace if the caller may check limits in it and it is not deleted.
pub fn usable(
    caller: &Caller,
    found: Arc<Cached<StoredNamespace>>,
) -> Result<Arc<Cached<StoredNamespace>>> {
    let namespace = &found.value.namespace;
    caller.require_on(Action::Limit, &namespace.id)?;
    match namespace.deleted_at {
        None => Ok(found),
        Some(_) => Err(Error::NamespaceGone(namespace.name.clone())),
    }
}

/// Creates a namespace that was not found and returns it, if the caller may check limits in it.
pub async fn create_on_first_use(
    app: &App,
    caller: &Caller,
    name: &NamespaceName,
) -> Result<Arc<Cached<StoredNamespace>>> {
    let mut created = find_or_create(app, caller, std::slice::from_ref(name)).await?;
    created.pop().ok_or_else(|| Error::Internal("the created namespace was not found".into()))
}

/// Returns the namespaces with these names, if the caller may check limits in all of them. Missing ones are created in
/// one transaction, after the permissions for all of them have been checked.
pub async fn find_or_create(
    app: &App,
    caller: &Caller,
    names: &[NamespaceName],
) -> Result<Vec<Arc<Cached<StoredNamespace>>>> {
    let mut namespaces = Vec::with_capacity(names.len());
    let mut missing = Vec::new();
    for name in names {
        match find(app, name).await? {
            Some(found) => namespaces.push(usable(caller, found)?),
            None => missing.push(name.clone()),
        }
    }
    if missing.is_empty() {
        return Ok(namespaces);
    }
    insert(app, caller, missing).await?;
    namespaces.clear();
    for name in names {
        let found = find(app, name).await?;
        let missing = || Error::Internal("the created namespace was not found".into());
        namespaces.push(usable(caller, found.ok_or_else(missing)?)?);
    }
    Ok(namespaces)
}

/// The maximum length of the name of a namespace, in characters.
pub const NAME_MAX: usize = 512;

/// Creates a namespace. Fails if the name is or was in use.
pub async fn create(app: &App, caller: &Caller, name: &str) -> Result<Namespace> {
    caller.require(Action::CreateNamespace)?;
    if !(1..=NAME_MAX).contains(&name.chars().count()) {
        let message = format!("name must have 1 to {NAME_MAX} characters");
        return Err(Error::invalid("name", message));
    }
    names::check("name", name)?;
    let existing = app.store.read().await?.bare_namespace(caller.workspace(), name).await?;
    if existing.is_some_and(|existing| existing.deleted_at.is_some()) {
        let message = "a namespace with this name was deleted; its name stays reserved";
        return Err(Error::invalid("name", message));
    }
    let created = add(app, caller, &[NamespaceName::new(caller, name.to_owned())]).await?;
    created.into_iter().next().ok_or_else(|| Error::Taken(Subject::Namespace(name.to_owned())))
}

async fn insert(app: &App, caller: &Caller, mut names: Vec<NamespaceName>) -> Result<()> {
    let needed = [Action::Limit, Action::CreateNamespace];
    let missing: Vec<_> = needed.into_iter().filter(|action| !caller.may(*action)).collect();
    if !missing.is_empty() {
        let missing: Vec<_> = missing.into_iter().map(Action::everywhere).collect();
        return Err(Error::Forbidden(missing.join(" and ")));
    }
    names.sort();
    names.dedup();
    for name in &names {
        names::check("namespace", &name.named)?;
    }
    add(app, caller, &names).await.map(drop)
}

/// Inserts and returns those namespaces whose names are free.
async fn add(app: &App, caller: &Caller, names: &[NamespaceName]) -> Result<Vec<Namespace>> {
    let now = app.clock.now();
    let mut new: Vec<_> = names.iter().map(|name| fresh(name, now)).collect();

    let mut tx = app.store.begin().await?;
    let existing_count = tx.lock_namespaces(caller.workspace()).await?;
    let created = tx.insert_namespaces(caller.workspace(), &new).await?;
    if existing_count.saturating_add(i64::try_from(created.len()).unwrap_or(i64::MAX))
        > NAMESPACES_MAX
        && !created.is_empty()
    {
        return Err(Error::Refused(Refusal::TooManyNamespaces(NAMESPACES_MAX)));
    }
    new.retain(|namespace| created.contains(&namespace.name));
    let mut entries = AuditBatch::for_caller(caller, now);
    for namespace in &new {
        let change = FieldChanges::created(&NamespaceSnapshot::of(namespace))?;
        entries.add_change("ratelimitNamespace.create", &[target(namespace)], change);
    }
    entries.write(&mut tx).await?;
    // Also those that another replica has created first: this replica may have cached that they do not exist.
    for name in names {
        tx.changed(freshness::CacheTag::NewNamespace(name.fingerprint()));
    }
    app.commit(tx).await?;
    Ok(new)
}

fn fresh(name: &NamespaceName, now: Timestamp) -> Namespace {
    Namespace {
        id: NamespaceId::random(),
        workspace_id: name.workspace.clone(),
        name: name.named.clone(),
        on_outage: OutagePolicy::default(),
        created_at: now,
        deleted_at: None,
    }
}

/// Returns the namespace with this id if it exists and is not deleted.
pub async fn get(app: &App, caller: &Caller, id: &str) -> Result<Namespace> {
    caller.require_on(Action::ReadNamespace, &id)?;
    let found = app.store.read().await?.bare_namespace(caller.workspace(), id).await?;
    live(found.filter(|namespace| namespace.id.as_str() == id), id)
}

/// Lists a page of the namespaces of the caller's workspace, sorted by id, without deleted ones.
pub async fn page(app: &App, caller: &Caller, paging: &Paging) -> Result<Page<Namespace>> {
    caller.require(Action::ReadNamespace)?;
    let mut reader = app.store.read().await?;
    let rows = reader.namespaces_page(caller.workspace(), &paging.listing()).await?;
    Ok(Page::new(rows, paging, |row| &row.id))
}

/// Lists the namespaces of a workspace, sorted by name, including deleted ones.
pub async fn list(app: &App, workspace: &WorkspaceId) -> Result<Vec<Namespace>> {
    app.store.read().await?.namespaces(workspace).await
}

/// Sets the outage policy of a namespace for an operator.
pub async fn set_on_outage(
    app: &App,
    workspace: &WorkspaceId,
    named: &str,
    on_outage: OutagePolicy,
) -> Result<Namespace> {
    set_on_outage_as(app, SHELL, workspace, named, on_outage).await
}

/// Sets the outage policy of a namespace, by its id, for a caller with the permission.
pub async fn update_outage_policy(
    app: &App,
    caller: &Caller,
    id: &NamespaceId,
    on_outage: OutagePolicy,
) -> Result<Namespace> {
    caller.require_on(Action::UpdateNamespace, id)?;
    set_on_outage_as(app, Actor::Caller(caller), caller.workspace(), id.as_str(), on_outage).await
}

async fn set_on_outage_as(
    app: &App,
    actor: Actor<'_>,
    workspace: &WorkspaceId,
    named: &str,
    on_outage: OutagePolicy,
) -> Result<Namespace> {
    let mut tx = app.store.begin().await?;
    let namespace = live(tx.lock_namespace(workspace, named).await?, named)?;
    tx.set_on_outage(&namespace.id, on_outage).await?;
    let after = Namespace { on_outage, ..namespace.clone() };
    let changes =
        FieldChanges::updated(&NamespaceSnapshot::of(&namespace), &NamespaceSnapshot::of(&after))?;
    change(app, tx, actor, &namespace, "ratelimitNamespace.update", changes).await?;
    Ok(after)
}

/// Deletes a namespace for an operator. Its name stays reserved, and checks in it are rejected.
pub async fn delete(app: &App, workspace: &WorkspaceId, named: &str) -> Result<Namespace> {
    delete_as(app, SHELL, workspace, named).await
}

/// Deletes a namespace, by its id, for a caller with the permission. Otherwise like [`delete`].
pub async fn delete_by(app: &App, caller: &Caller, id: &NamespaceId) -> Result<Namespace> {
    caller.require_on(Action::DeleteNamespace, id)?;
    delete_as(app, Actor::Caller(caller), caller.workspace(), id.as_str()).await
}

async fn delete_as(
    app: &App,
    actor: Actor<'_>,
    workspace: &WorkspaceId,
    named: &str,
) -> Result<Namespace> {
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    let namespace = live(tx.lock_namespace(workspace, named).await?, named)?;
    tx.delete_namespace(&namespace.id, now).await?;
    let changes = FieldChanges::deleted(&NamespaceSnapshot::of(&namespace))?;
    change(app, tx, actor, &namespace, "ratelimitNamespace.delete", changes).await?;
    Ok(Namespace { deleted_at: Some(now), ..namespace })
}

/// Restores a deleted namespace with its overrides.
pub async fn restore(app: &App, caller: &Caller, id: &NamespaceId) -> Result<Namespace> {
    caller.require(Action::CreateNamespace)?;
    let mut tx = app.store.begin().await?;
    let existing_count = tx.lock_namespaces(caller.workspace()).await?;
    if !tx.restore_namespace(caller.workspace(), id).await? {
        return Err(Error::not_found(Subject::Namespace(id.to_string())));
    }
    if existing_count >= NAMESPACES_MAX {
        return Err(Error::Refused(Refusal::TooManyNamespaces(NAMESPACES_MAX)));
    }
    let namespace = live(tx.bare_namespace(caller.workspace(), id.as_str()).await?, id.as_str())?;
    let (actor, changes) = (Actor::Caller(caller), FieldChanges::default());
    change(app, tx, actor, &namespace, "ratelimitNamespace.restore", changes).await?;
    Ok(namespace)
}

/// An operator with a shell on the server.
const SHELL: Actor<'_> = Actor::Command("cli");

/// Records a change of a namespace, invalidates its cache tag and commits.
async fn change(
    app: &App,
    mut tx: Tx,
    actor: Actor<'_>,
    namespace: &Namespace,
    event: &'static str,
    change: FieldChanges,
) -> Result<()> {
    let (now, targets) = (app.clock.now(), [target(namespace)]);
    let workspace = &namespace.workspace_id;
    audit::record_change(&mut tx, actor, workspace, now, event, &targets, change).await?;
    tx.changed(freshness::CacheTag::Namespace(namespace.id.clone()));
    app.commit(tx).await
}

/// Returns the namespace, or [`Error::NotFound`] if it does not exist or is deleted.
pub fn live(found: Option<Namespace>, named: &str) -> Result<Namespace> {
    found
        .filter(|namespace| namespace.deleted_at.is_none())
        .ok_or_else(|| Error::not_found(Subject::Namespace(named.to_owned())))
}
