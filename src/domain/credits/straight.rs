//! Spending straight from the bank: in an embedded server always, in a replica while Redis is away.
//!
//! The account is held while the windows are decided, so both are taken or neither is. A crash before the commit
//! takes nothing; after it, the answer was true, whether or not anybody heard it.

use super::super::counting::{self, Act, Tally};
use super::{Outcome, bank, unmetered};
use crate::app::App;
use crate::error::Result;
use crate::id::KeyId;
use crate::limiter::Window;

/// Takes `cost` credits from the bank and all `windows`, or nothing.
pub async fn take(app: &App, key: &KeyId, windows: &[Window], cost: i64) -> Result<Outcome> {
    let mut tx = app.store.begin().await?;
    let Some(mut account) = tx.lock_account(key).await? else {
        // Not metered any more: what the caller knows of the key is out of date.
        drop(tx);
        return Box::pin(unmetered(app, windows.to_vec())).await;
    };
    let now = bank::now(app, account.now);
    bank::refill_if_due(&mut tx, key, &mut account, now).await?;
    let balance = account.credits.balance;
    if balance < cost {
        let tally = Tally { taken: false, ..judge(app, windows, Act::Look) };
        return Ok(Outcome::of(tally, Some(balance)));
    }
    let tally = judge(app, windows, Act::Take);
    if !tally.taken || cost == 0 {
        return Ok(Outcome::of(tally, Some(balance)));
    }
    account.credits.balance -= cost;
    tx.move_credits(key, &account.credits).await?;
    tx.commit().await?;
    Ok(Outcome::of(tally, Some(balance - cost)))
}

fn judge(app: &App, windows: &[Window], act: Act) -> Tally {
    match app.redis {
        None => counting::here(app, windows, act),
        Some(_) => counting::without_redis(app, windows, app.settings.keys_on_outage, act),
    }
}
