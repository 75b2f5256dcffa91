//! Updating the remaining credits of a key.

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::KeyId;
use foundation::model::{Credits, Refill};
use serde_json::{Value, json};
use store::{StoredKey, freshness};

use super::metering::{IdleRefill, Metering};
use super::snapshot::CreditsSnapshot;
use super::{audit_meta, audit_target, lock_existing};
use crate::audit::{AuditBatch, AuditEvent, FieldChanges};
use crate::caller::Caller;
use crate::context::Context;
use crate::credits;
use crate::form_results;
use crate::idempotency::{StoredReply, run_idempotent, store_reply};
use crate::keys::Keys;
use crate::permission::Action;

/// The change of the credits of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreditsUpdate {
    Set(i64),
    Unlimited(IdleRefill),
    Increment(i64),
    /// Not below 0.
    Decrement(i64),
}

/// Whether the update changes the reported time of the key's last update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdatedAtPolicy {
    Keep,
    Set,
}

/// The remaining credits and the refill. `None`: unlimited.
pub type RemainingCredits = Option<(i64, Option<Refill>)>;

impl StoredReply for RemainingCredits {
    fn to_json(&self) -> Value {
        json!(self)
    }

    fn from_json(stored: &Value) -> Option<Self> {
        serde_json::from_value(stored.clone()).ok()
    }
}

/// Updates the credits. Returns the remaining credits and the refill; `None`: unlimited.
pub async fn update_credits(
    keys: &Keys,
    caller: &Caller,
    id: &KeyId,
    update: CreditsUpdate,
    updated_at_policy: UpdatedAtPolicy,
) -> Result<RemainingCredits> {
    run_idempotent(&keys.context, caller, || {
        credits::run_with_closed_leases(&keys.ledger, id, || {
            update_once(&keys.context, caller, id, update, updated_at_policy)
        })
    })
    .await
}

async fn update_once(
    context: &Context,
    caller: &Caller,
    id: &KeyId,
    update: CreditsUpdate,
    updated_at_policy: UpdatedAtPolicy,
) -> Result<RemainingCredits> {
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let StoredKey { mut key, refill, .. } = lock_existing(&mut tx, caller, id).await?;
    caller.require_on(Action::UpdateKey, &key.api_id)?;
    if updated_at_policy == UpdatedAtPolicy::Set {
        key.updated_at = Some(now);
        tx.update_key(&key).await?;
    }
    let mut account = tx.lock_account(id).await?;
    let is_closed = credits::close_for_change(context, &mut tx, id, account.as_mut()).await?;
    let database_now = match &account {
        Some(account) => account.database_time,
        None => tx.load_database_time().await?,
    };
    let account = account.map(|account| account.credits);
    let database_now = credits::refill_time(context, database_now);
    let before = Metering::from_account(account, refill, database_now);
    let after = apply_credits_update(before, update, database_now)?;
    match update {
        // A replica may be spending from a lease whose close is unconfirmed, and that spend cannot be undone.
        CreditsUpdate::Set(_) if !is_closed => return Err(Error::LeaseNotClosed),
        CreditsUpdate::Set(_) | CreditsUpdate::Unlimited(_) => tx.forfeit_leases(id).await?,
        CreditsUpdate::Increment(_) => {}
        CreditsUpdate::Decrement(value) => {
            let has_enough = account.is_some_and(|credits| credits.balance >= value);
            if !is_closed && !has_enough {
                return Err(Error::LeaseNotClosed);
            }
        }
    }
    after.write(&mut tx, id).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let change =
        FieldChanges::updated(&CreditsSnapshot::from(before), &CreditsSnapshot::from(after))?;
    entries.add_change(
        AuditEvent::KeyUpdated,
        &[audit_target(&key).with_meta(audit_meta::for_credits_update(update))],
        change,
    );
    entries.write(&mut tx).await?;
    tx.record_change(freshness::CacheTag::Key(id.clone()));
    let remaining = after.credits().map(|credits| (credits.balance, credits.refill));
    store_reply(&mut tx, caller, &remaining).await?;
    form_results::record(&mut tx, caller, id, None, now).await?;
    context.commit(tx).await?;
    Ok(remaining)
}

fn apply_credits_update(
    before: Metering,
    update: CreditsUpdate,
    now: Timestamp,
) -> Result<Metering> {
    let metered = |operation: &str| {
        before.credits().ok_or_else(|| {
            Error::invalid(
                "/properties/operation",
                format!(
                    "the key is unlimited: set its credits to a number before you {operation} them"
                ),
            )
        })
    };
    Ok(match update {
        CreditsUpdate::Set(balance) => before.with_balance(balance, now),
        CreditsUpdate::Unlimited(idle) => before.to_unlimited(idle),
        CreditsUpdate::Increment(value) => {
            let credits = metered("increment")?;
            let balance = credits.balance.checked_add(value).ok_or_else(|| {
                let most = i64::MAX - credits.balance;
                let message =
                    format!("value must be at most {most}: the balance cannot exceed the maximum");
                Error::invalid("/properties/value", message)
            })?;
            Metering::Metered(Credits { balance, ..credits })
        }
        CreditsUpdate::Decrement(value) => {
            let credits = metered("decrement")?;
            Metering::Metered(Credits { balance: (credits.balance - value).max(0), ..credits })
        }
    })
}
