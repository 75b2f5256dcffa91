//! Deleting a key.

use foundation::error::Result;
use foundation::id::KeyId;
use foundation::model::Refill;
use serde_json::{Value, json};
use store::{Tx, freshness};

use super::super::audit::{AuditBatch, FieldChanges};
use super::super::caller::Caller;
use super::super::credits;
use super::super::permission::Action;
use super::metering::Metering;
use super::snapshot::KeySnapshot;
use super::{require_existing, target};
use crate::app::App;

/// How much of a key goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// It stops verifying; its row stays, and its hash stays taken.
    Soft,
    /// Everything.
    Permanent,
}

impl Deletion {
    /// As the audit log tells it.
    pub fn audit_meta(self) -> Value {
        json!({ "permanent": self == Self::Permanent })
    }
}

/// Deletes a key; it stops verifying at once.
pub async fn delete(app: &App, caller: &Caller, id: &KeyId, deletion: Deletion) -> Result<()> {
    let now = app.clock.now();

    let mut tx = app.store.begin().await?;
    let stored = require_existing(&mut tx, caller, id).await?;
    let key = stored.key;
    caller.require_on(Action::DeleteKey, &key.api_id)?;
    let metering = close_account(app, &mut tx, id, stored.refill).await?;
    match deletion {
        Deletion::Soft => tx.delete_key(id, now).await?,
        Deletion::Permanent => tx.purge_key(id).await?,
    }
    let state = KeySnapshot::of(&key, &stored.ratelimits).with_credits(metering);
    let mut entries = AuditBatch::for_caller(caller, now);
    let targets = [target(&key).with_meta(deletion.audit_meta())];
    entries.add_change("key.delete", &targets, FieldChanges::deleted(&state)?);
    entries.write(&mut tx).await?;
    tx.changed(freshness::CacheTag::Key(id.clone()));
    app.commit(tx).await
}

/// What the key has left, were it brought back. What is leased goes back to the account, as far as the counters can be
/// reached; the rest is forfeited.
async fn close_account(
    app: &App,
    tx: &mut Tx,
    id: &KeyId,
    idle: Option<Refill>,
) -> Result<Metering> {
    let Some(mut account) = tx.lock_account(id).await? else {
        return Ok(Metering::Unlimited(idle));
    };
    credits::settle_for_change(app, tx, id, Some(&mut account)).await?;
    tx.forfeit_leases(id).await?;
    // Another number, so that no replica goes back to a lease that was left open.
    account.credits.last_lease_number += 1;
    tx.update_balance(id, &account.credits).await?;
    let now = credits::refill_time(app, account.database_time);
    Ok(Metering::at(Some(account.credits), idle, now))
}
