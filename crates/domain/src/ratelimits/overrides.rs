//! Overrides: limits that replace the requested limit of checks of one identifier, or of all
//! identifiers that match a pattern.

use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal, ResourceRef, Result};
use foundation::id::OverrideId;
use foundation::model::{Override, WILDCARDS_MAX};
use store::{Tx, freshness};

use super::namespace_target;
use super::namespaces::{self, NamespaceRef, require_not_deleted};
use super::snapshot::OverrideSnapshot;
use crate::audit::{self, Actor, AuditEvent, FieldChanges, Target};
use crate::caller::Caller;
use crate::context::Context;
use crate::page::{Page, Paging};
use crate::permission::Action;
use crate::ratelimits::Ratelimits;

/// The maximum number of overrides of a namespace.
pub const OVERRIDES_MAX: i64 = 10_000;

/// The fields of an override to set.
#[derive(Debug)]
pub struct NewOverride {
    /// The id or the name of its namespace.
    pub namespace: String,
    /// An identifier, or a pattern in which `*`, at most [`WILDCARDS_MAX`] times, stands for any run of characters.
    pub identifier: String,
    pub limit: i64,
    pub duration_ms: i64,
    pub expires_at: Option<Timestamp>,
    pub is_async: bool,
}

/// Creates an override, or replaces the one of the same identifier, which keeps its id.
pub async fn set(context: &Context, caller: &Caller, new: NewOverride) -> Result<OverrideId> {
    if new.identifier.matches('*').count() > WILDCARDS_MAX {
        return Err(Error::invalid(
            "/properties/identifier",
            format!("identifier must have at most {WILDCARDS_MAX} `*`"),
        ));
    }
    let now = context.clock.now();
    let named = new.namespace;
    let new = Override {
        id: OverrideId::random(),
        identifier: new.identifier,
        limit: new.limit,
        duration_ms: new.duration_ms,
        expires_at: new.expires_at,
        is_approximate: new.is_async,
        created_at: now,
        updated_at: None,
    };

    let mut tx = context.store.begin().await?;
    let namespace =
        require_not_deleted(tx.lock_namespace(caller.workspace_id(), &named).await?, &named)?;
    caller.require_on(Action::SetOverride, &namespace.id)?;
    let before = tx.find_override(caller.workspace_id(), &namespace.id, &new.identifier).await?;
    let id = tx.upsert_override(&namespace.id, &new).await?;
    if id == new.id && tx.count_overrides(&namespace.id).await? > OVERRIDES_MAX {
        return Err(Error::PreconditionFailed(Refusal::TooManyOverrides(OVERRIDES_MAX)));
    }
    let before = before.as_ref().map(OverrideSnapshot::from_override);
    let change = FieldChanges::replaced(before.as_ref(), &OverrideSnapshot::from_override(&new))?;
    let override_target =
        Target::new("ratelimitOverride", id.as_str()).with_name(Some(&new.identifier));
    let targets = [namespace_target(&namespace), override_target];
    record(&mut tx, caller, AuditEvent::OverrideSet, &targets, change, now).await?;
    tx.record_change(freshness::CacheTag::Namespace(namespace.id));
    context.commit(tx).await?;

    Ok(id)
}

/// Returns the override that applies to a check of this identifier now. A caller without the permission gets the same
/// error as for a missing override.
pub async fn get(
    ratelimits: &Ratelimits,
    caller: &Caller,
    named: String,
    identifier: &str,
) -> Result<Override> {
    let none = || Error::not_found(ResourceRef::Override(identifier.to_owned()));
    let name = NamespaceRef::new(caller, named.clone());
    let found = namespaces::find(ratelimits, &name).await?;
    let namespace = found.as_ref().map(|found| &found.value.namespace);
    let may_read = match namespace {
        Some(namespace) => caller.is_allowed_on(Action::ReadOverride, &namespace.id),
        None => caller.is_allowed(Action::ReadOverride),
    };
    if !may_read {
        return Err(none());
    }
    let found = found
        .filter(|found| found.value.namespace.deleted_at.is_none())
        .ok_or_else(|| Error::not_found(ResourceRef::Namespace(named)))?;
    found
        .value
        .overrides
        .find_active(identifier, ratelimits.context.clock.now())
        .cloned()
        .ok_or_else(none)
}

/// Returns the override that was set for exactly this identifier or pattern, even if it has expired.
pub async fn get_exact(
    context: &Context,
    caller: &Caller,
    named: &str,
    identifier: &str,
) -> Result<Override> {
    let workspace = caller.workspace_id();
    let mut reader = context.store.read().await?;
    let namespace = require_not_deleted(reader.find_namespace(workspace, named).await?, named)?;
    caller.require_on(Action::ReadOverride, &namespace.id)?;
    let found = reader.find_override(workspace, &namespace.id, identifier).await?;
    found.ok_or_else(|| Error::not_found(ResourceRef::Override(identifier.to_owned())))
}

/// Returns the number of overrides of a namespace.
pub async fn count(context: &Context, caller: &Caller, named: &str) -> Result<i64> {
    let mut reader = context.store.read().await?;
    let namespace =
        require_not_deleted(reader.find_namespace(caller.workspace_id(), named).await?, named)?;
    caller.require_on(Action::ReadOverride, &namespace.id)?;
    reader.count_overrides(&namespace.id).await
}

/// Lists a page of the overrides of a namespace, by id or by identifier, including expired ones.
pub async fn list(
    context: &Context,
    caller: &Caller,
    named: &str,
    paging: &Paging,
) -> Result<Page<Override>> {
    let workspace = caller.workspace_id();
    let mut reader = context.store.read().await?;
    let namespace = require_not_deleted(reader.find_namespace(workspace, named).await?, named)?;
    caller.require_on(Action::ReadOverride, &namespace.id)?;
    let rows = reader.list_overrides(workspace, &namespace.id, &paging.to_page_query()).await?;
    Ok(Page::in_order(rows, paging, |row| &row.id, |row| &row.identifier))
}

/// Deletes the override that was set for exactly this identifier or pattern.
pub async fn delete(
    context: &Context,
    caller: &Caller,
    named: &str,
    identifier: &str,
) -> Result<()> {
    let now = context.clock.now();

    let mut tx = context.store.begin().await?;
    let namespace =
        require_not_deleted(tx.lock_namespace(caller.workspace_id(), named).await?, named)?;
    caller.require_on(Action::DeleteOverride, &namespace.id)?;
    let stored = tx.find_override(caller.workspace_id(), &namespace.id, identifier).await?;
    let stored =
        stored.ok_or_else(|| Error::not_found(ResourceRef::Override(identifier.to_owned())))?;
    tx.delete_override(&namespace.id, identifier).await?;
    let change = FieldChanges::deleted(&OverrideSnapshot::from_override(&stored))?;
    let override_target =
        Target::new("ratelimitOverride", stored.id.as_str()).with_name(Some(identifier));
    let targets = [namespace_target(&namespace), override_target];
    record(&mut tx, caller, AuditEvent::OverrideDeleted, &targets, change, now).await?;
    tx.record_change(freshness::CacheTag::Namespace(namespace.id));
    context.commit(tx).await
}

async fn record(
    tx: &mut Tx,
    caller: &Caller,
    event: AuditEvent,
    targets: &[Target<'_>],
    change: FieldChanges,
    now: Timestamp,
) -> Result<()> {
    let actor = Actor::Caller(caller);
    audit::record_change(tx, actor, caller.workspace_id(), now, event, targets, change).await
}
