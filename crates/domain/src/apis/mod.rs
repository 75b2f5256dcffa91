//! APIs: sets of keys that a backend accepts.

mod restore;
mod settings;
mod snapshot;

use std::collections::HashMap;

pub use restore::restore;
pub use settings::{ApiChange, is_valid_prefix};
use snapshot::ApiSnapshot;
pub use snapshot::change_from_snapshot;

use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal, ResourceRef, Result};
use foundation::id::{ApiId, WorkspaceId};
use foundation::model::{Api, ApiSettings};
use store::{Tx, freshness};

use crate::audit::{self, Actor, AuditBatch, AuditEvent, FieldChanges, Target};
use crate::caller::Caller;
use crate::context::Context;
use crate::deletion::Deletion;
use crate::form_results;
use crate::page::{Page, PageOrder, Paging};
use crate::permission::Action;

/// Creates an API.
pub async fn create(context: &Context, caller: &Caller, name: String) -> Result<ApiId> {
    caller.require(Action::CreateApi)?;
    let now = context.clock.now();
    let workspace_id = caller.workspace_id().clone();
    let settings = ApiSettings::default();
    let api = Api {
        id: ApiId::random(),
        workspace_id,
        name,
        settings,
        home: context.home_of_new(),
        created_at: now,
        deleted_at: None,
    };

    let mut tx = context.store.begin().await?;
    tx.insert_api(&api).await?;
    let change = FieldChanges::created(&ApiSnapshot::from_api(&api))?;
    record(&mut tx, Actor::Caller(caller), &api, AuditEvent::ApiCreated, change, now).await?;
    form_results::record(&mut tx, caller, &api.id, None, now).await?;
    context.commit(tx).await?;

    Ok(api.id)
}

/// Returns an API that exists and is not deleted.
pub async fn get(context: &Context, caller: &Caller, id: &ApiId) -> Result<Api> {
    caller.require_on(Action::ReadApi, id)?;
    require_not_deleted(context.store.read().await?.find_api(caller.workspace_id(), id).await?, id)
}

/// Deletes an API. Its keys stop verifying at once but stay in the database.
pub async fn delete(context: &Context, caller: &Caller, id: &ApiId) -> Result<()> {
    caller.require_on(Action::DeleteApi, id)?;
    let now = context.clock.now();

    let mut tx = context.store.begin().await?;
    let api = require_not_deleted(tx.lock_api(caller.workspace_id(), id).await?, id)?;
    if api.settings.is_delete_protected {
        return Err(Error::PreconditionFailed(Refusal::DeleteProtected(id.clone())));
    }
    if !tx.delete_api(caller.workspace_id(), id, now).await? {
        return Err(Error::not_found(ResourceRef::Api(id.clone())));
    }
    let change = FieldChanges::deleted(&ApiSnapshot::from_api(&api))?;
    record(&mut tx, Actor::Caller(caller), &api, AuditEvent::ApiDeleted, change, now).await?;
    tx.record_change(freshness::CacheTag::Api(id.clone()));
    context.commit(tx).await
}

/// The maximum number of keys that one transaction deletes.
const DELETE_BATCH_SIZE: i64 = 1000;

/// Deletes all keys of an API, which stop verifying, and returns their number. Keys are deleted in batches of 1,000,
/// each in one transaction with its audit entries: after an interruption the remaining keys still exist, and the call
/// can be repeated.
pub async fn delete_keys(
    context: &Context,
    caller: &Caller,
    id: &ApiId,
    deletion: Deletion,
) -> Result<usize> {
    caller.require_on(Action::DeleteKey, id)?;
    let mut deleted = 0;
    loop {
        let now = context.clock.now();
        let mut tx = context.store.begin().await?;
        // Of two calls at once, the second would skip the keys that the first deletes, and find none left.
        require_not_deleted(tx.lock_api(caller.workspace_id(), id).await?, id)?;
        let keys = match deletion {
            Deletion::Soft => tx.delete_keys(id, now, DELETE_BATCH_SIZE).await?,
            Deletion::Permanent => tx.purge_keys(id, DELETE_BATCH_SIZE).await?,
        };
        if keys.is_empty() {
            return Ok(deleted);
        }
        let mut entries = AuditBatch::for_caller(caller, now);
        for key in &keys {
            let target = Target::new("key", key.as_str()).with_meta(deletion.audit_meta());
            entries.add(AuditEvent::KeyDeleted, &[target]);
        }
        entries.write(&mut tx).await?;
        tx.record_change(freshness::CacheTag::Api(id.clone()));
        context.commit(tx).await?;
        deleted += keys.len();
    }
}

/// Lists a page of the workspace's APIs, by id or by name. Names may be equal, so a page by name starts at an id and a name.
pub async fn list_for_caller(
    context: &Context,
    caller: &Caller,
    paging: &Paging,
) -> Result<Page<Api>> {
    caller.require(Action::ReadApi)?;
    let mut reader = context.store.read().await?;
    let rows = reader.list_apis(caller.workspace_id(), &paging.to_page_query()).await?;
    Ok(Page::with_start(rows, paging, |api| match paging.order {
        PageOrder::ById => api.id.to_string(),
        PageOrder::ByName | PageOrder::ByNameDescending => format!("{} {}", api.id, api.name),
    }))
}

/// Lists the APIs of a workspace, sorted by id.
pub async fn list(context: &Context, workspace: &WorkspaceId) -> Result<Vec<Api>> {
    context.store.read().await?.list_all_apis(workspace).await
}

/// Returns the names of these APIs, as far as they exist in the caller's workspace.
pub async fn load_names(
    context: &Context,
    caller: &Caller,
    ids: &[ApiId],
) -> Result<HashMap<ApiId, String>> {
    caller.require(Action::ReadApi)?;
    let mut reader = context.store.read().await?;
    let names = reader.load_api_names(caller.workspace_id(), ids).await?;
    Ok(names.into_iter().collect())
}

/// An API and the number of its keys, counted up to a bound.
pub type ApiWithKeyCount = (Api, i64);

/// Adds to each API the number of its keys, counted up to `max` plus one.
pub async fn add_key_counts(
    context: &Context,
    caller: &Caller,
    apis: Vec<Api>,
    max: i64,
) -> Result<Vec<ApiWithKeyCount>> {
    caller.require(Action::ReadApi)?;
    let ids: Vec<_> = apis.iter().map(|api| api.id.clone()).collect();
    let mut reader = context.store.read().await?;
    let counts =
        reader.count_keys_by_api(caller.workspace_id(), &ids, max.saturating_add(1)).await?;
    let counts: HashMap<_, _> = counts.into_iter().collect();
    let with_count = |api: Api| {
        let keys = counts.get(&api.id).copied().unwrap_or(0);
        (api, keys)
    };
    Ok(apis.into_iter().map(with_count).collect())
}

/// Applies `change` to the settings of an API for an operator and returns the changed API. No permission is checked:
/// an operator has access to the server itself.
pub async fn update_as_operator(
    context: &Context,
    workspace: &WorkspaceId,
    id: &ApiId,
    change: impl FnOnce(&mut ApiSettings),
) -> Result<Api> {
    apply_change(context, Actor::Command("cli"), workspace, id, |api| change(&mut api.settings))
        .await
}

/// Changes the settings or the name of an API for a caller. Otherwise like [`update`].
pub async fn update(
    context: &Context,
    caller: &Caller,
    id: &ApiId,
    change: ApiChange,
) -> Result<Api> {
    caller.require_on(Action::UpdateApi, id)?;
    let change = change.validate()?;
    apply_change(context, Actor::Caller(caller), caller.workspace_id(), id, |api| change.apply(api))
        .await
}

async fn apply_change(
    context: &Context,
    actor: Actor<'_>,
    workspace: &WorkspaceId,
    id: &ApiId,
    change: impl FnOnce(&mut Api),
) -> Result<Api> {
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let mut api = require_not_deleted(tx.lock_api(workspace, id).await?, id)?;
    let before = ApiSnapshot::from_api(&api);
    change(&mut api);
    tx.update_api(&api).await?;
    let change = FieldChanges::updated(&before, &ApiSnapshot::from_api(&api))?;
    record(&mut tx, actor, &api, AuditEvent::ApiUpdated, change, now).await?;
    tx.record_change(freshness::CacheTag::Api(id.clone()));
    context.commit(tx).await?;
    Ok(api)
}

/// Returns the API, or [`Error::NotFound`] if it does not exist or is deleted.
pub fn require_not_deleted(found: Option<Api>, id: &ApiId) -> Result<Api> {
    found
        .filter(|api| api.deleted_at.is_none())
        .ok_or_else(|| Error::not_found(ResourceRef::Api(id.clone())))
}

async fn record(
    tx: &mut Tx,
    actor: Actor<'_>,
    api: &Api,
    event: AuditEvent,
    change: FieldChanges,
    now: Timestamp,
) -> Result<()> {
    let target = Target::new("api", api.id.as_str()).with_name(Some(&api.name));
    audit::record_change(tx, actor, &api.workspace_id, now, event, &[target], change).await
}
