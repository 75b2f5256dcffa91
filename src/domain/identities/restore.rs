//! Restoring a deleted identity.

use foundation::error::{Error, Result, Subject};
use foundation::id::IdentityId;
use foundation::model::{Identity, Meta};
use store::{LimitOwner, freshness};

use super::super::audit::{self, AuditBatch};
use super::super::caller::Caller;
use super::super::keys::ratelimits;
use super::super::permission::Action;
use super::snapshot::IdentitySnapshot;
use super::target;
use crate::app::App;

/// Restores an identity from the snapshot of an audit entry, with its id and its limits, and links those of its former
/// keys that have no identity now. Its external id must be free.
pub async fn restore(app: &App, caller: &Caller, id: &IdentityId, snapshot: &str) -> Result<()> {
    caller.require(Action::CreateIdentity)?;
    let snapshot: IdentitySnapshot = audit::parse_snapshot(snapshot)?;
    let now = app.clock.now();
    let identity = Identity {
        id: id.clone(),
        external_id: snapshot.external_id,
        meta: snapshot.meta.map(Meta),
        ratelimits: ratelimits(snapshot.ratelimits),
    };
    let mut tx = app.store.begin().await?;
    let inserted = tx.insert_identity(caller.workspace(), &identity, now).await;
    inserted.map_err(|e| match e.violates("identities_external_id_unique") {
        true => Error::Taken(Subject::Identity(identity.external_id.clone())),
        false => e,
    })?;
    tx.set_ratelimits(caller.workspace(), LimitOwner::Identity(id), &identity.ratelimits).await?;
    let linked = tx.link_identity(caller.workspace(), id, &identity.external_id).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    entries.add("identity.restore", &[target(&identity)]);
    entries.write(&mut tx).await?;
    tx.changed(freshness::CacheTag::Identity(identity.id));
    for key in linked {
        tx.changed(freshness::CacheTag::Key(key));
    }
    app.commit(tx).await
}
