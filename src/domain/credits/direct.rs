//! Spending from the account itself while Redis is there: where as much is leased as may be, most of it withheld.
//!
//! The account is held while Redis decides the windows, so both are taken or neither is.

use super::super::counting::Tally;
use super::bank::{self, refill_if_due};
use super::closing::{Settling, settle_account};
use super::told::told_by_bank;
use super::{LOCK_WAIT, Outcome, without_account};
use crate::app::App;
use crate::error::Result;
use crate::id::KeyId;
use crate::limiter::redis::RedisCounters;
use crate::limiter::{GroupChange, Take, Taken, Window};

/// Takes `cost` credits from the account and all `windows`, or nothing. `closes`: the lease too, for what is in it cannot
/// be had otherwise.
pub async fn take(
    app: &App,
    redis: &RedisCounters,
    key: &KeyId,
    windows: &[Window],
    cost: i64,
    closes: bool,
) -> Result<Outcome> {
    let mut tx = app.store.begin_within(LOCK_WAIT).await?;
    let Some(mut account) = tx.lock_account(key).await? else {
        drop(tx);
        return Box::pin(without_account(app, key, windows.to_vec())).await;
    };
    let now = bank::now(app, account.now);
    refill_if_due(&mut tx, key, &mut account, now).await?;
    if closes || account.credits.balance < cost {
        settle_account(app, &mut tx, key, &mut account, Settling::All).await?;
    }
    let is_enough = account.credits.balance >= cost;
    let asked: Vec<_> = match is_enough {
        true => windows.to_vec(),
        false => windows.iter().map(Window::to_look).collect(),
    };
    let none = GroupChange::None;
    let mut taken = Taken { taken: true, windows: Vec::new(), purse: None, group: none };
    if !asked.is_empty() {
        taken = redis.take(&Take { windows: asked, spend: None }, app.clock.fixed()).await?;
    }
    taken.taken &= is_enough;
    if taken.taken {
        account.credits.balance -= cost;
    }
    tx.move_credits(key, &account.credits).await?;
    tx.commit().await?;
    if taken.taken && cost > 0 {
        app.debits.note_debited([key.clone()]);
    }
    let left = Box::pin(told_by_bank(app, redis, key)).await?;
    Ok(Outcome::of(Tally::of(&taken, windows), left))
}
