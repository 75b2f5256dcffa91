//! Direct debits while Redis is reachable, for accounts that have leased as much as they may, most of it withheld.
//!
//! The account is locked while Redis decides the windows, so both are consumed or neither is.

use std::time::Duration;

use foundation::error::Result;
use foundation::id::KeyId;
use limiter::redis::{ConsumeError, RedisCounters};
use limiter::{ConsumeReply, ConsumeRequest, GroupChange, Window};

use super::balance::load_balance;
use super::closing::close_account_leases;
use super::closing_steps::CloseScope;
use super::leases::{self, refill_if_due};
use super::{ConsumeDecision, consume_without_account};
use crate::admission::LimitDecision;
use crate::credits::CreditLedger;

/// Consumes `cost` credits from the account and all `windows`, or nothing. `closes_lease`: closes the lease too,
/// because the credits in it cannot be reached otherwise. Waits for a locked account for at most `lock_wait`.
pub async fn consume(
    ledger: &CreditLedger,
    redis: &RedisCounters,
    key: &KeyId,
    windows: &[Window],
    cost: i64,
    closes_lease: bool,
    lock_wait: Duration,
) -> Result<ConsumeDecision> {
    let mut tx = ledger.context.store.begin_within(lock_wait).await?;
    let Some(mut account) = tx.lock_account(key).await? else {
        drop(tx);
        return Box::pin(consume_without_account(&ledger.context, key, windows.to_vec())).await;
    };
    let now = leases::refill_time(&ledger.context, account.database_time);
    refill_if_due(&mut tx, key, &mut account, now).await?;
    if closes_lease || account.credits.balance < cost {
        close_account_leases(&ledger.context, &mut tx, key, &mut account, CloseScope::All).await?;
    }
    let is_enough = account.credits.balance >= cost;
    let checked: Vec<_> = match is_enough {
        true => windows.to_vec(),
        false => windows.iter().map(Window::to_peek).collect(),
    };
    let none = GroupChange::None;
    let mut reply = ConsumeReply {
        is_admitted: true,
        windows: Vec::new(),
        lease: None,
        group_change: none,
        regional: None,
    };
    if !checked.is_empty() {
        reply = redis
            .consume(&ConsumeRequest::of_windows(checked), ledger.context.clock.fixed_time())
            .await
            // Nothing is committed. What is decided instead is counted by itself.
            .map_err(ConsumeError::deny)?;
    }
    reply.is_admitted &= is_enough;
    if reply.is_admitted {
        account.credits.balance -= cost;
    }
    tx.update_balance(key, &account.credits).await?;
    tx.commit().await?;
    if reply.is_admitted && cost > 0 {
        ledger.direct_debits.outdated_accounts.record([key.clone()]);
    }
    let left = match Box::pin(load_balance(&ledger.context, key)).await {
        // The outcome is committed: it does not depend on how exactly the remaining balance is known.
        Err(cause) if cause.is_outage() => Some(account.credits.balance),
        left => left?,
    };
    Ok(ConsumeDecision::from_limit_decision(LimitDecision::from_reply(&reply, windows), left))
}
