//! APIs: the sets of keys that a backend accepts.

mod restore;
mod settings;
mod snapshot;

use std::collections::HashMap;

pub use restore::restore;
pub use settings::{ApiChange, PREFIX_MAX, is_prefix};
use snapshot::ApiSnapshot;
pub use snapshot::change_from_snapshot;

use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal, Result, Subject};
use foundation::id::{ApiId, WorkspaceId};
use foundation::model::{Api, ApiSettings};
use store::{Tx, freshness};

use super::audit::{self, Actor, AuditBatch, FieldChanges, Target};
use super::caller::Caller;
use super::keys::Deletion;
use super::page::{Page, Paging};
use super::permission::Action;
use crate::app::App;

pub async fn create(app: &App, caller: &Caller, name: String) -> Result<ApiId> {
    caller.require(Action::CreateApi)?;
    let now = app.clock.now();
    let workspace_id = caller.workspace().clone();
    let settings = ApiSettings::default();
    let api = Api {
        id: ApiId::random(),
        workspace_id,
        name,
        settings,
        created_at: now,
        deleted_at: None,
    };

    let mut tx = app.store.begin().await?;
    tx.insert_api(&api).await?;
    let change = FieldChanges::created(&ApiSnapshot::of(&api))?;
    record(&mut tx, Actor::Caller(caller), &api, "api.create", change, now).await?;
    app.commit(tx).await?;

    Ok(api.id)
}

/// An API that is there and not deleted.
pub async fn get(app: &App, caller: &Caller, id: &ApiId) -> Result<Api> {
    caller.require_on(Action::ReadApi, id)?;
    require_not_deleted(app.store.read().await?.api(caller.workspace(), id).await?, id)
}

/// Deletes an API. Its keys stop verifying at once; they stay in the database.
pub async fn delete(app: &App, caller: &Caller, id: &ApiId) -> Result<()> {
    caller.require_on(Action::DeleteApi, id)?;
    let now = app.clock.now();

    let mut tx = app.store.begin().await?;
    let api = require_not_deleted(tx.lock_api(caller.workspace(), id).await?, id)?;
    if api.settings.delete_protection {
        return Err(Error::Refused(Refusal::Protected(id.clone())));
    }
    if !tx.delete_api(caller.workspace(), id, now).await? {
        return Err(Error::not_found(Subject::Api(id.clone())));
    }
    let change = FieldChanges::deleted(&ApiSnapshot::of(&api))?;
    record(&mut tx, Actor::Caller(caller), &api, "api.delete", change, now).await?;
    tx.changed(freshness::CacheTag::Api(id.clone()));
    app.commit(tx).await
}

/// How many keys are deleted at once.
const KEYS_AT_ONCE: i64 = 1000;

/// Deletes all keys of an API; they stop verifying. How many they were. They go by the thousand, each of these
/// with what is recorded of it: where that is broken off, the rest is still there, and the call may be repeated.
pub async fn delete_keys(
    app: &App,
    caller: &Caller,
    id: &ApiId,
    deletion: Deletion,
) -> Result<usize> {
    caller.require_on(Action::DeleteKey, id)?;
    let mut deleted = 0;
    loop {
        let now = app.clock.now();
        let mut tx = app.store.begin().await?;
        require_not_deleted(tx.api(caller.workspace(), id).await?, id)?;
        let keys = match deletion {
            Deletion::Soft => tx.delete_keys(id, now, KEYS_AT_ONCE).await?,
            Deletion::Permanent => tx.purge_keys(id, KEYS_AT_ONCE).await?,
        };
        if keys.is_empty() {
            return Ok(deleted);
        }
        let mut entries = AuditBatch::for_caller(caller, now);
        for key in &keys {
            entries.add(
                "key.delete",
                &[Target::new("key", key.as_str()).with_meta(deletion.audit_meta())],
            );
        }
        entries.write(&mut tx).await?;
        tx.changed(freshness::CacheTag::Api(id.clone()));
        app.commit(tx).await?;
        deleted += keys.len();
    }
}

/// A page of those that the caller may read, by id.
pub async fn page(app: &App, caller: &Caller, paging: &Paging) -> Result<Page<Api>> {
    caller.require(Action::ReadApi)?;
    let mut reader = app.store.read().await?;
    let rows = reader.apis_page(caller.workspace(), &paging.listing()).await?;
    Ok(Page::new(rows, paging, |row| &row.id))
}

/// Those of a workspace, by id.
pub async fn list(app: &App, workspace: &WorkspaceId) -> Result<Vec<Api>> {
    app.store.read().await?.apis(workspace).await
}

/// An API, and how many keys it has, counted up to a bound.
pub type ApiWithKeyCount = (Api, i64);

/// How many keys each of these APIs has, none of which is counted further than `max`.
pub async fn counted(
    app: &App,
    caller: &Caller,
    apis: Vec<Api>,
    max: i64,
) -> Result<Vec<ApiWithKeyCount>> {
    caller.require(Action::ReadApi)?;
    let ids: Vec<_> = apis.iter().map(|api| api.id.clone()).collect();
    let mut reader = app.store.read().await?;
    let counts = reader.key_counts(caller.workspace(), &ids, max.saturating_add(1)).await?;
    let counts: HashMap<_, _> = counts.into_iter().collect();
    let counted = |api: Api| {
        let keys = counts.get(&api.id).copied().unwrap_or(0);
        (api, keys)
    };
    Ok(apis.into_iter().map(counted).collect())
}

/// Sets an API to what `change` makes of its settings; what it is set to then. The caller is somebody with a
/// shell on the server, who may do anything.
pub async fn update(
    app: &App,
    workspace: &WorkspaceId,
    id: &ApiId,
    change: impl FnOnce(&mut ApiSettings),
) -> Result<Api> {
    set(app, Actor::Command("cli"), workspace, id, |api| change(&mut api.settings)).await
}

/// As [`update`], for a caller, and its name too.
pub async fn change(app: &App, caller: &Caller, id: &ApiId, change: ApiChange) -> Result<Api> {
    caller.require_on(Action::UpdateApi, id)?;
    let change = change.checked()?;
    set(app, Actor::Caller(caller), caller.workspace(), id, |api| change.apply(api)).await
}

async fn set(
    app: &App,
    actor: Actor<'_>,
    workspace: &WorkspaceId,
    id: &ApiId,
    change: impl FnOnce(&mut Api),
) -> Result<Api> {
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    let mut api = require_not_deleted(tx.lock_api(workspace, id).await?, id)?;
    let before = ApiSnapshot::of(&api);
    change(&mut api);
    tx.set_api(&api).await?;
    let change = FieldChanges::updated(&before, &ApiSnapshot::of(&api))?;
    record(&mut tx, actor, &api, "api.update", change, now).await?;
    tx.changed(freshness::CacheTag::Api(id.clone()));
    app.commit(tx).await?;
    Ok(api)
}

/// What has been deleted is as good as never there.
pub fn require_not_deleted(found: Option<Api>, id: &ApiId) -> Result<Api> {
    found
        .filter(|api| api.deleted_at.is_none())
        .ok_or_else(|| Error::not_found(Subject::Api(id.clone())))
}

async fn record(
    tx: &mut Tx,
    actor: Actor<'_>,
    api: &Api,
    event: &'static str,
    change: FieldChanges,
    now: Timestamp,
) -> Result<()> {
    let target = Target::new("api", api.id.as_str()).named(Some(&api.name));
    audit::record_change(tx, actor, &api.workspace_id, now, event, &[target], change).await
}
