//! Changing a key.

use super::super::caller::Caller;
use super::super::permission::Action;
use super::super::{credits, rbac, refill};
use super::{
    NewCredits, NewRatelimit, Patch, connect_permissions, connect_roles, existing, ratelimits,
    record, target,
};
use crate::app::App;
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::KeyId;
use crate::model::{Credits, Key, Meta, Refill};
use crate::store::{Owner, Tx, freshness};

/// What is to change; what is absent stays.
#[derive(Debug, Default)]
pub struct KeyChange {
    pub name: Patch<String>,
    pub external_id: Patch<String>,
    pub meta: Patch<Meta>,
    pub expires_at: Patch<Timestamp>,
    pub credits: Patch<CreditsChange>,
    pub ratelimits: Option<Vec<NewRatelimit>>,
    pub enabled: Option<bool>,
    pub roles: Option<Vec<String>>,
    /// Slugs; a missing one is made when the root key may.
    pub permissions: Option<Vec<String>>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct CreditsChange {
    pub remaining: Patch<i64>,
    pub refill: Patch<Refill>,
}

/// Changes a key, all of it or nothing.
pub async fn update(app: &App, caller: &Caller, id: &KeyId, change: KeyChange) -> Result<()> {
    if change.credits == Patch::Keep {
        return write(app, caller, id, change, 0).await.map(drop);
    }
    let keeps_balance = match &change.credits {
        Patch::Set(credits) => credits.remaining == Patch::Keep,
        Patch::Keep | Patch::Clear => false,
    };
    // What the purse holds goes to the bank first, and nothing of this process is on its way there.
    let _turn = app.withdrawals.lock(id).await;
    let purse = Box::pin(recall(app, caller, id)).await?;
    match write(app, caller, id, change, purse).await {
        Ok(key) => {
            // A replica that has not heard of it yet finds nothing to spend. Where that cannot be
            // done, it will hear of it in a moment; the change itself is done.
            match credits::recall(app, &key).await {
                Ok(late) if keeps_balance => credits::give_back(app, id, late).await?,
                Ok(_) => {}
                Err(e) => {
                    tracing::warn!(key.id = %id, error = %e, "cannot empty the purse of {id}: {e}");
                }
            }
            Ok(())
        }
        Err(e) => {
            credits::give_back(app, id, purse).await?;
            Err(e)
        }
    }
}

/// The change itself, in one transaction. Gives back the key, with its credits as they were.
async fn write(
    app: &App,
    caller: &Caller,
    id: &KeyId,
    change: KeyChange,
    purse: i64,
) -> Result<Key> {
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    let mut key = existing(&mut tx, caller, id).await?.key;
    caller.require_on(Action::UpdateKey, &key.api_id)?;
    change.name.apply(&mut key.name);
    change.meta.apply(&mut key.meta);
    change.expires_at.apply(&mut key.expires_at);
    key.enabled = change.enabled.unwrap_or(key.enabled);
    key.updated_at = Some(now);
    match change.external_id {
        Patch::Keep => {}
        Patch::Clear => key.identity_id = None,
        Patch::Set(external_id) => {
            let id = tx.ensure_identity(caller.workspace(), &external_id, now).await?;
            key.identity_id = Some(id);
        }
    }
    tx.update_key(&key).await?;
    record(&mut tx, caller, "key.update", &[target(&key)], now).await?;
    if change.credits != Patch::Keep {
        change_credits(&mut tx, &key, change.credits, purse, now).await?;
    }
    if let Some(limits) = change.ratelimits {
        let limits = ratelimits(limits);
        tx.set_ratelimits(caller.workspace(), Owner::Key(id), &limits).await?;
    }
    if let Some(slugs) = change.permissions {
        let permissions = rbac::ensure_permissions(&mut tx, caller, slugs, now).await?;
        connect_permissions(&mut tx, caller, &key, &permissions, now).await?;
    }
    if let Some(names) = change.roles {
        let (roles, _) = rbac::existing(&mut tx, caller, names, Vec::new()).await?;
        connect_roles(&mut tx, caller, &key, &roles, now).await?;
    }
    tx.changed(freshness::Subject::Key(id.clone()));
    app.commit(tx).await?;
    Ok(key)
}

/// What was in the purse of a key that the caller may change.
async fn recall(app: &App, caller: &Caller, id: &KeyId) -> Result<i64> {
    let stored = app.store.read().await?.key(caller.workspace(), id).await?;
    match stored.filter(|stored| caller.may_on(Action::UpdateKey, &stored.key.api_id)) {
        Some(stored) => credits::recall(app, &stored.key).await,
        // The transaction says what is wrong.
        None => Ok(0),
    }
}

async fn change_credits(
    tx: &mut Tx,
    key: &Key,
    change: Patch<CreditsChange>,
    purse: i64,
    now: Timestamp,
) -> Result<()> {
    let before = tx.lock_credits(&key.id).await?.map(|credits| refill::refilled(credits, now));
    let after = match change {
        Patch::Keep => before,
        Patch::Clear => None,
        Patch::Set(change) => changed(before, change, purse, now)?,
    };
    tx.set_credits(&key.id, after.as_ref()).await
}

fn changed(
    before: Option<Credits>,
    change: CreditsChange,
    purse: i64,
    now: Timestamp,
) -> Result<Option<Credits>> {
    let mut refill = before.and_then(|credits| credits.refill);
    change.refill.apply(&mut refill);
    let balance = match change.remaining {
        Patch::Clear => return Ok(None),
        Patch::Set(remaining) => remaining,
        Patch::Keep => match before {
            Some(credits) => credits.balance.saturating_add(purse),
            None if refill.is_none() => return Ok(None),
            None => {
                return Err(Error::invalid(
                    "/properties/credits/properties/refill",
                    "credits.refill needs credits.remaining: the key is unlimited",
                ));
            }
        },
    };
    let opened = NewCredits { balance, refill }.open(now);
    // A refill that stays keeps its period: it has happened, or is due, as before.
    let kept = before.filter(|credits| credits.refill == refill);
    Ok(Some(Credits { refilled: kept.map_or(opened.refilled, |k| k.refilled), ..opened }))
}
