//! Namespaces: found by id or name, made when they are first used, kept by an operator.

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

/// How many namespaces checks may make in one workspace, without those that were deleted.
pub const NAMESPACES_MAX: i64 = 1_000;

/// What a namespace is called by in a workspace: its id or its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceName {
    workspace: WorkspaceId,
    named: String,
}

impl NamespaceName {
    pub fn new(caller: &Caller, named: String) -> Self {
        Self { workspace: caller.workspace().clone(), named }
    }

    /// By which every replica knows the name.
    pub fn fingerprint(&self) -> u64 {
        KeyHash::of(format!("{} {}", self.workspace, self.named)).fingerprint()
    }
}

/// The namespace of this name with its overrides, from the cache; deleted ones too.
pub async fn find(app: &App, name: &NamespaceName) -> Result<Option<Arc<Cached<StoredNamespace>>>> {
    app.caches
        .namespaces
        .get(name, |stamp| async move {
            let found = app.store.read().await?.namespace(&name.workspace, &name.named).await?;
            Ok(found.map(|stored| {
                let subject = freshness::CacheTag::Namespace(stored.namespace.id.clone());
                Cached::new(stored, stamp, [subject])
            }))
        })
        .await
}

/// A namespace in which the caller may check limits.
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

/// A namespace that was not found, made; usable by the caller.
pub async fn create_on_first_use(
    app: &App,
    caller: &Caller,
    name: &NamespaceName,
) -> Result<Arc<Cached<StoredNamespace>>> {
    let mut made = find_or_create(app, caller, std::slice::from_ref(name)).await?;
    made.pop().ok_or_else(|| Error::Internal("a namespace that was made is not there".into()))
}

/// The namespaces of these names, each usable by the caller; those that are missing are made, in one
/// transaction, once it is known that the caller may use all.
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
        let missing = || Error::Internal("a namespace that was made is not there".into());
        namespaces.push(usable(caller, found.ok_or_else(missing)?)?);
    }
    Ok(namespaces)
}

/// How many characters the name of a namespace may have.
pub const NAME_MAX: usize = 512;

/// Makes a namespace of this name, which nobody has used yet.
pub async fn create(app: &App, caller: &Caller, name: &str) -> Result<Namespace> {
    caller.require(Action::CreateNamespace)?;
    if !(1..=NAME_MAX).contains(&name.chars().count()) {
        let fault = format!("name must have 1 to {NAME_MAX} characters");
        return Err(Error::invalid("name", fault));
    }
    names::check("name", name)?;
    let known = app.store.read().await?.bare_namespace(caller.workspace(), name).await?;
    if known.is_some_and(|known| known.deleted_at.is_some()) {
        let fault = "a namespace of this name was deleted, and its name stays taken";
        return Err(Error::invalid("name", fault));
    }
    let made = add(app, caller, &[NamespaceName::new(caller, name.to_owned())]).await?;
    made.into_iter().next().ok_or_else(|| Error::Taken(Subject::Namespace(name.to_owned())))
}

async fn insert(app: &App, caller: &Caller, mut names: Vec<NamespaceName>) -> Result<()> {
    let needed = [Action::Limit, Action::CreateNamespace];
    let lacking: Vec<_> = needed.into_iter().filter(|action| !caller.may(*action)).collect();
    if !lacking.is_empty() {
        let lacking: Vec<_> = lacking.into_iter().map(Action::everywhere).collect();
        return Err(Error::Forbidden(lacking.join(" and ")));
    }
    names.sort();
    names.dedup();
    for name in &names {
        names::check("namespace", &name.named)?;
    }
    add(app, caller, &names).await.map(drop)
}

/// Adds those whose name is free, and gives them back.
async fn add(app: &App, caller: &Caller, names: &[NamespaceName]) -> Result<Vec<Namespace>> {
    let now = app.clock.now();
    let mut new: Vec<_> = names.iter().map(|name| fresh(name, now)).collect();

    let mut tx = app.store.begin().await?;
    let held = tx.lock_namespaces(caller.workspace()).await?;
    let made = tx.insert_namespaces(caller.workspace(), &new).await?;
    if held.saturating_add(i64::try_from(made.len()).unwrap_or(i64::MAX)) > NAMESPACES_MAX
        && !made.is_empty()
    {
        return Err(Error::Refused(Refusal::TooManyNamespaces(NAMESPACES_MAX)));
    }
    new.retain(|namespace| made.contains(&namespace.name));
    let mut entries = AuditBatch::for_caller(caller, now);
    for namespace in &new {
        let change = FieldChanges::created(&NamespaceSnapshot::of(namespace))?;
        entries.add_change("ratelimitNamespace.create", &[target(namespace)], change);
    }
    entries.write(&mut tx).await?;
    // Those too that another replica was faster to make: this one may remember that they are missing.
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

/// A namespace that is there and not deleted, by its id.
pub async fn get(app: &App, caller: &Caller, id: &str) -> Result<Namespace> {
    caller.require_on(Action::ReadNamespace, &id)?;
    let found = app.store.read().await?.bare_namespace(caller.workspace(), id).await?;
    live(found.filter(|namespace| namespace.id.as_str() == id), id)
}

/// A page of those that the caller may read, by id; without deleted ones.
pub async fn page(app: &App, caller: &Caller, paging: &Paging) -> Result<Page<Namespace>> {
    caller.require(Action::ReadNamespace)?;
    let mut reader = app.store.read().await?;
    let rows = reader.namespaces_page(caller.workspace(), &paging.listing()).await?;
    Ok(Page::new(rows, paging, |row| &row.id))
}

/// The namespaces of a workspace, by name; deleted ones too.
pub async fn list(app: &App, workspace: &WorkspaceId) -> Result<Vec<Namespace>> {
    app.store.read().await?.namespaces(workspace).await
}

/// Sets what checks are answered while the counters are away. The caller is somebody with a shell on
/// the server.
pub async fn set_on_outage(
    app: &App,
    workspace: &WorkspaceId,
    named: &str,
    on_outage: OutagePolicy,
) -> Result<Namespace> {
    set_on_outage_as(app, SHELL, workspace, named, on_outage).await
}

/// As [`set_on_outage`], for a caller who may, of a namespace by its id.
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
    let told =
        FieldChanges::updated(&NamespaceSnapshot::of(&namespace), &NamespaceSnapshot::of(&after))?;
    change(app, tx, actor, &namespace, "ratelimitNamespace.update", told).await?;
    Ok(after)
}

/// Deletes a namespace for good: its name stays taken, and checks in it are refused. The caller is
/// somebody with a shell on the server.
pub async fn delete(app: &App, workspace: &WorkspaceId, named: &str) -> Result<Namespace> {
    delete_as(app, SHELL, workspace, named).await
}

/// As [`delete`], for a caller who may, of a namespace by its id.
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
    let told = FieldChanges::deleted(&NamespaceSnapshot::of(&namespace))?;
    change(app, tx, actor, &namespace, "ratelimitNamespace.delete", told).await?;
    Ok(Namespace { deleted_at: Some(now), ..namespace })
}

/// Brings back a namespace that was deleted, with the overrides that it had.
pub async fn restore(app: &App, caller: &Caller, id: &NamespaceId) -> Result<Namespace> {
    caller.require(Action::CreateNamespace)?;
    let mut tx = app.store.begin().await?;
    let held = tx.lock_namespaces(caller.workspace()).await?;
    if !tx.restore_namespace(caller.workspace(), id).await? {
        return Err(Error::not_found(Subject::Namespace(id.to_string())));
    }
    if held >= NAMESPACES_MAX {
        return Err(Error::Refused(Refusal::TooManyNamespaces(NAMESPACES_MAX)));
    }
    let namespace = live(tx.bare_namespace(caller.workspace(), id.as_str()).await?, id.as_str())?;
    let (actor, told) = (Actor::Caller(caller), FieldChanges::default());
    change(app, tx, actor, &namespace, "ratelimitNamespace.restore", told).await?;
    Ok(namespace)
}

/// Somebody with a shell on the server.
const SHELL: Actor<'_> = Actor::Command("cli");

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

/// What has been deleted is as good as never there.
pub fn live(found: Option<Namespace>, named: &str) -> Result<Namespace> {
    found
        .filter(|namespace| namespace.deleted_at.is_none())
        .ok_or_else(|| Error::not_found(Subject::Namespace(named.to_owned())))
}
