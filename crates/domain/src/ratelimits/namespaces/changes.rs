//! Changes of existing namespaces: their outage policy, deletion and restoration.

use foundation::error::{Error, Refusal, ResourceRef, Result};
use foundation::id::{NamespaceId, WorkspaceId};
use foundation::model::{Namespace, OutagePolicy};
use store::{HomeOwner, Tx, freshness};

use super::super::namespace_target;
use super::super::snapshot::NamespaceSnapshot;
use super::{NAMESPACES_MAX, require_not_deleted};
use crate::audit::{self, Actor, AuditEvent, FieldChanges};
use crate::caller::Caller;
use crate::context::Context;
use crate::homes;
use crate::permission::Action;

/// Sets the outage policy of a namespace for an operator.
pub async fn update_outage_policy_as_operator(
    context: &Context,
    workspace: &WorkspaceId,
    named: &str,
    on_outage: OutagePolicy,
) -> Result<Namespace> {
    set_outage_policy(context, OPERATOR, workspace, named, on_outage).await
}

/// Sets the outage policy of a namespace, by its id, for a caller with the permission.
pub async fn update_outage_policy(
    context: &Context,
    caller: &Caller,
    id: &NamespaceId,
    on_outage: OutagePolicy,
) -> Result<Namespace> {
    caller.require_on(Action::UpdateNamespace, id)?;
    set_outage_policy(context, Actor::Caller(caller), caller.workspace_id(), id.as_str(), on_outage)
        .await
}

async fn set_outage_policy(
    context: &Context,
    actor: Actor<'_>,
    workspace: &WorkspaceId,
    named: &str,
    on_outage: OutagePolicy,
) -> Result<Namespace> {
    let mut tx = context.store.begin().await?;
    let namespace = require_not_deleted(tx.lock_namespace(workspace, named).await?, named)?;
    tx.set_outage_policy(&namespace.id, on_outage).await?;
    let after = Namespace { outage_policy: on_outage, ..namespace.clone() };
    let changes = FieldChanges::updated(
        &NamespaceSnapshot::from_namespace(&namespace),
        &NamespaceSnapshot::from_namespace(&after),
    )?;
    record_and_commit(context, tx, actor, &namespace, AuditEvent::NamespaceUpdated, changes)
        .await?;
    Ok(after)
}

/// Deletes a namespace for an operator. Its name stays reserved, and checks in it are rejected.
pub async fn delete_as_operator(
    context: &Context,
    workspace: &WorkspaceId,
    named: &str,
) -> Result<Namespace> {
    delete_and_record(context, OPERATOR, workspace, named).await
}

/// Deletes a namespace, by its id, for a caller with the permission. Otherwise like [`delete`].
pub async fn delete(context: &Context, caller: &Caller, id: &NamespaceId) -> Result<Namespace> {
    caller.require_on(Action::DeleteNamespace, id)?;
    delete_and_record(context, Actor::Caller(caller), caller.workspace_id(), id.as_str()).await
}

async fn delete_and_record(
    context: &Context,
    actor: Actor<'_>,
    workspace: &WorkspaceId,
    named: &str,
) -> Result<Namespace> {
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let namespace = require_not_deleted(tx.lock_namespace(workspace, named).await?, named)?;
    tx.delete_namespace(&namespace.id, now).await?;
    let changes = FieldChanges::deleted(&NamespaceSnapshot::from_namespace(&namespace))?;
    record_and_commit(context, tx, actor, &namespace, AuditEvent::NamespaceDeleted, changes)
        .await?;
    Ok(Namespace { deleted_at: Some(now), ..namespace })
}

/// Restores a deleted namespace with its overrides. If the region that counts it was removed, this one does.
pub async fn restore(context: &Context, caller: &Caller, id: &NamespaceId) -> Result<Namespace> {
    caller.require(Action::CreateNamespace)?;
    let mut tx = context.store.begin().await?;
    let existing_count = tx.lock_namespaces(caller.workspace_id()).await?;
    if !tx.restore_namespace(caller.workspace_id(), id).await? {
        return Err(Error::not_found(ResourceRef::Namespace(id.to_string())));
    }
    if existing_count >= NAMESPACES_MAX {
        return Err(Error::PreconditionFailed(Refusal::TooManyNamespaces(NAMESPACES_MAX)));
    }
    let mut namespace = require_not_deleted(
        tx.find_namespace(caller.workspace_id(), id.as_str()).await?,
        id.as_str(),
    )?;
    let owner = HomeOwner::Namespace(id.clone());
    let changes = homes::store_if_replaced(context, &mut tx, &owner, &mut namespace.home).await?;
    let actor = Actor::Caller(caller);
    record_and_commit(context, tx, actor, &namespace, AuditEvent::NamespaceRestored, changes)
        .await?;
    Ok(namespace)
}

/// An operator with a shell on the server.
const OPERATOR: Actor<'_> = Actor::Command("cli");

/// Records a change of a namespace, invalidates its cache tag and commits.
async fn record_and_commit(
    context: &Context,
    mut tx: Tx,
    actor: Actor<'_>,
    namespace: &Namespace,
    event: AuditEvent,
    change: FieldChanges,
) -> Result<()> {
    let (now, targets) = (context.clock.now(), [namespace_target(namespace)]);
    let workspace = &namespace.workspace_id;
    audit::record_change(&mut tx, actor, workspace, now, event, &targets, change).await?;
    tx.record_change(freshness::CacheTag::Namespace(namespace.id.clone()));
    context.commit(tx).await
}
