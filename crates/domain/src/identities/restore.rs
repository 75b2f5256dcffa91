//! Restoring a deleted identity.

use foundation::error::{Error, Result};
use foundation::id::{IdentityId, KeyId};
use foundation::model::{Identity, Meta};
use store::{LimitOwner, freshness};

use super::snapshot::IdentitySnapshot;
use super::{insert_identity, target};
use crate::audit::{self, AuditBatch, AuditEvent};
use crate::caller::Caller;
use crate::context::Context;
use crate::homes;
use crate::keys::to_ratelimits;
use crate::permission::Action;

/// Restores an identity from the snapshot of an audit entry, with its id and its limits, and links those of its former
/// keys that have no identity now and still have its external id. That must be free. An entry of an earlier version
/// does not list these keys: then all keys with the external id and no identity are linked.
pub async fn restore(
    context: &Context,
    caller: &Caller,
    id: &IdentityId,
    snapshot: &str,
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
    let linked =
        tx.link_identity(caller.workspace_id(), id, &identity.external_id, keys.as_deref()).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    entries.add_change(AuditEvent::IdentityRestored, &[target(&identity)], change);
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::Identity(identity.id));
    for key in linked {
        tx.record_change(freshness::CacheTag::Key(key));
    }
    context.commit(tx).await
}
