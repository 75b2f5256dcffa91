//! Deleting a key.

use foundation::error::Result;
use foundation::id::KeyId;
use foundation::model::Refill;
use store::{Tx, freshness};

use super::metering::Metering;
use super::snapshot::KeySnapshot;
use super::{audit_target, lock_existing};
use crate::audit::{AuditBatch, AuditEvent, FieldChanges};
use crate::caller::Caller;
use crate::context::Context;
use crate::credits;
use crate::deletion::Deletion;
use crate::permission::Action;

/// Deletes a key. It stops verifying at once.
pub async fn delete(
    context: &Context,
    caller: &Caller,
    id: &KeyId,
    deletion: Deletion,
) -> Result<()> {
    let now = context.clock.now();

    let mut tx = context.store.begin().await?;
    let stored = lock_existing(&mut tx, caller, id).await?;
    let key = stored.key;
    caller.require_on(Action::DeleteKey, &key.api_id)?;
    let metering = close_credit_account(context, &mut tx, id, stored.refill).await?;
    match deletion {
        Deletion::Soft => tx.delete_key(id, now).await?,
        Deletion::Permanent => tx.purge_key(id).await?,
    }
    let snapshot = KeySnapshot::from_key(&key, &stored.ratelimits).with_credits(metering);
    let mut entries = AuditBatch::for_caller(caller, now);
    let targets = [audit_target(&key).with_meta(deletion.audit_meta())];
    entries.add_change(AuditEvent::KeyDeleted, &targets, FieldChanges::deleted(&snapshot)?);
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::Key(id.clone()));
    context.commit(tx).await
}

/// Closes the credit account and returns what the key has left if it is restored. Leased credits return to the
/// account if Redis is reachable; otherwise they are forfeited.
async fn close_credit_account(
    context: &Context,
    tx: &mut Tx,
    id: &KeyId,
    idle_refill: Option<Refill>,
) -> Result<Metering> {
    let Some(mut account) = tx.lock_account(id).await? else {
        return Ok(Metering::Unlimited(idle_refill));
    };
    credits::close_for_change(context, tx, id, Some(&mut account)).await?;
    tx.forfeit_leases(id).await?;
    // A new lease number, so that no replica uses a lease that was left open.
    account.credits.last_lease_number += 1;
    tx.update_balance(id, &account.credits).await?;
    let now = credits::refill_time(context, account.database_time);
    Ok(Metering::from_account(Some(account.credits), idle_refill, now))
}
