//! Deleting a key.

use serde_json::{Value, json};

use super::super::audit::{Change, Entries};
use super::super::caller::Caller;
use super::super::credits;
use super::super::permission::Action;
use super::metering::Metering;
use super::state::State;
use super::{existing, target};
use crate::app::App;
use crate::error::Result;
use crate::id::KeyId;
use crate::model::Refill;
use crate::store::{Tx, freshness};

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
    pub fn told(self) -> Value {
        json!({ "permanent": self == Self::Permanent })
    }
}

/// Deletes a key; it stops verifying at once.
pub async fn delete(app: &App, caller: &Caller, id: &KeyId, deletion: Deletion) -> Result<()> {
    let now = app.clock.now();

    let mut tx = app.store.begin().await?;
    let stored = existing(&mut tx, caller, id).await?;
    let key = stored.key;
    caller.require_on(Action::DeleteKey, &key.api_id)?;
    let metering = close_account(app, &mut tx, id, stored.refill).await?;
    match deletion {
        Deletion::Soft => tx.delete_key(id, now).await?,
        Deletion::Permanent => tx.purge_key(id).await?,
    }
    let state = State::of(&key, &stored.ratelimits).with_credits(metering);
    let mut entries = Entries::of(caller, now);
    let targets = [target(&key).told(deletion.told())];
    entries.add_change("key.delete", &targets, Change::gone(&state)?);
    entries.write(&mut tx).await?;
    tx.changed(freshness::Subject::Key(id.clone()));
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
    account.credits.version += 1;
    tx.move_credits(id, &account.credits).await?;
    let now = credits::now(app, account.now);
    Ok(Metering::at(Some(account.credits), idle, now))
}
