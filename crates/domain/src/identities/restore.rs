//! Restoring a deleted identity.

use std::collections::HashSet;

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::{IdentityId, KeyId, WorkspaceId};
use foundation::model::{Identity, Meta};
use serde_json::Value;
use store::{LimitOwner, Tx, freshness};

use super::snapshot::IdentitySnapshot;
use super::{insert_identity, target};
use crate::audit::{self, AuditBatch, AuditEvent};
use crate::caller::Caller;
use crate::context::Context;
use crate::homes;
use crate::keys::to_ratelimits;
use crate::permission::Action;

/// Restores an identity from the snapshot of an audit entry, with its id and its limits, and links those of its former
/// keys that have no identity now and still have its external id, and of the keys that have replaced them since. That must
/// be free. An entry of an earlier version does not list these keys: then all keys with the external id and no identity
/// are linked.
pub async fn restore(
    context: &Context,
    caller: &Caller,
    id: &IdentityId,
    snapshot: &str,
    deleted_at: Timestamp,
) -> Result<()> {
    caller.require(Action::CreateIdentity)?;
    let snapshot: IdentitySnapshot = audit::parse_snapshot(snapshot)?;
    let now = context.clock.now();
    let mut identity = Identity {
        id: id.clone(),
        external_id: snapshot.external_id,
        meta: snapshot.meta.map(Meta),
        ratelimits: to_ratelimits(snapshot.ratelimits),
        // Where it was counted before, so that what was used in the current windows still counts.
        home: snapshot.home.map(|home| home.parse().map_err(Error::Internal)).transpose()?,
    };
    let change = homes::replace_removed(context, &mut identity.home)?.unwrap_or_default();
    let keys: Option<Vec<_>> =
        snapshot.keys.map(|keys| keys.into_iter().map(KeyId::from).collect());
    let mut tx = context.store.begin().await?;
    insert_identity(&mut tx, caller, &identity, now).await?;
    tx.replace_ratelimits(caller.workspace_id(), LimitOwner::Identity(id), &identity.ratelimits)
        .await?;
    let (workspace, external_id) = (caller.workspace_id(), &identity.external_id);
    let mut linked = tx.link_identity(workspace, id, external_id, keys.as_deref()).await?;
    if let Some(keys) = keys {
        // After the former keys are locked: none of them is being re-rolled.
        let former = keys.into_iter().collect();
        let new = list_replacements(&mut tx, workspace, external_id, former, deleted_at).await?;
        linked.extend(tx.link_identity(workspace, id, external_id, Some(&new)).await?);
    }
    let mut entries = AuditBatch::for_caller(caller, now);
    entries.add_change(AuditEvent::IdentityRestored, &[target(&identity)], change);
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::Identity(identity.id));
    tx.record_key_changes(linked);
    context.commit(tx).await
}

/// Returns the keys without an identity that replaced one of `keys`, or such a replacement, since a time.
async fn list_replacements(
    tx: &mut Tx,
    workspace: &WorkspaceId,
    external_id: &str,
    mut keys: HashSet<KeyId>,
    since: Timestamp,
) -> Result<Vec<KeyId>> {
    let event = AuditEvent::KeyRotated.as_str();
    let mut replacements = Vec::new();
    let candidates = tx.list_keys_without_identity(workspace, external_id, since, event).await?;
    for (key, targets) in candidates {
        let targets: Value = serde_json::from_str(&targets).unwrap_or_default();
        let previous = targets[0]["id"].as_str().map(KeyId::from);
        if previous.is_some_and(|previous| keys.contains(&previous)) && keys.insert(key.clone()) {
            replacements.push(key);
        }
    }
    Ok(replacements)
}
