//! Spending from the account itself while Redis is there: where as much is leased as may be, most of it withheld.
//!
//! The account is held while Redis decides the windows, so both are taken or neither is.

use foundation::error::Result;
use foundation::id::KeyId;
use limiter::redis::RedisCounters;
use limiter::{ConsumeReply, ConsumeRequest, GroupChange, Window};

use super::super::admission::LimitDecision;
use super::balance::load_balance;
use super::closing::{CloseScope, settle_account};
use super::leases::{self, refill_if_due};
use super::{ConsumeDecision, LOCK_WAIT, without_account};
use crate::app::App;

/// Takes `cost` credits from the account and all `windows`, or nothing. `closes`: the lease too, for what is in it cannot
/// be had otherwise.
pub async fn take(
    app: &App,
    redis: &RedisCounters,
    key: &KeyId,
    windows: &[Window],
    cost: i64,
    closes: bool,
) -> Result<ConsumeDecision> {
    let mut tx = app.store.begin_within(LOCK_WAIT).await?;
    let Some(mut account) = tx.lock_account(key).await? else {
        drop(tx);
        return Box::pin(without_account(app, key, windows.to_vec())).await;
    };
    let now = leases::refill_time(app, account.database_time);
    refill_if_due(&mut tx, key, &mut account, now).await?;
    if closes || account.credits.balance < cost {
        settle_account(app, &mut tx, key, &mut account, CloseScope::All).await?;
    }
    let is_enough = account.credits.balance >= cost;
    let asked: Vec<_> = match is_enough {
        true => windows.to_vec(),
        false => windows.iter().map(Window::to_peek).collect(),
    };
    let none = GroupChange::None;
    let mut taken =
        ConsumeReply { is_admitted: true, windows: Vec::new(), purse: None, group: none };
    if !asked.is_empty() {
        taken = redis
            .consume(&ConsumeRequest { windows: asked, spend: None }, app.clock.fixed_time())
            .await?;
    }
    taken.is_admitted &= is_enough;
    if taken.is_admitted {
        account.credits.balance -= cost;
    }
    tx.update_balance(key, &account.credits).await?;
    tx.commit().await?;
    if taken.is_admitted && cost > 0 {
        app.debits.note_debited([key.clone()]);
    }
    let left = Box::pin(load_balance(app, redis, key)).await?;
    Ok(ConsumeDecision::of(LimitDecision::of(&taken, windows), left))
}
