//! Top-ups: debiting accounts and extending leases, up to the bound on leased credits.
//!
//! Each change of an account holds the lock of its row until the change is committed, even while a lease is being
//! closed in Redis, so that no other lease is opened meanwhile. A lease is closed in Redis before its credits return
//! to the account, and it stays closed; after a crash between the two steps, the next attempt completes the close.

use std::time::Duration;

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use foundation::id::KeyId;
use foundation::model::CreditAccount;
use store::Tx;

use super::closing::{count_returned, perform};
use super::closing_steps::AccountStep;
use super::top_up::{LeaseObservation, TopUpChange, TopUpResult, refill_account};
use crate::context::{Context, LeaseHolder};

/// Returns the time by which refills fall due: the database's time, so that no replica's clock matters.
pub fn refill_time(context: &Context, database_time: Timestamp) -> Timestamp {
    context.clock.fixed_time().unwrap_or(database_time)
}

/// Debits a top-up from the account, for a request of this cost; see [`TopUpChange`]. Waits for a locked account for at most
/// `lock_wait`.
pub async fn top_up(
    context: &Context,
    key: &KeyId,
    observed: LeaseObservation,
    cost: i64,
    lock_wait: Duration,
) -> Result<TopUpResult> {
    let mut tx = begin_registered(context, lock_wait).await?;
    let Some(account) = tx.lock_account(key).await? else { return Ok(TopUpResult::Unmetered) };
    let now = refill_time(context, account.database_time);
    let replica = LeaseHolder { id: &context.replica_id, region: context.own_region() };
    let mut change = TopUpChange::new(account, observed, cost, replica, now);
    loop {
        let step = change.next_step();
        if step == AccountStep::End {
            break;
        }
        if let Some(result) = perform(context, &mut tx, key, step).await? {
            count_returned(context, change.apply_close(result));
        }
    }
    commit(tx).await?;
    let result = change.result();
    count_top_up(context, &result);
    Ok(result)
}

/// Counts a top-up that was committed, if it debited anything.
pub fn count_top_up(context: &Context, result: &TopUpResult) {
    if matches!(result, TopUpResult::Lease(_, top_up) if top_up.top_up > 0) {
        context.metrics.lease_top_ups.inc();
    }
}

/// Begins a transaction in which this replica is registered. So other replicas wait for its report on every lease
/// that it learns of there.
pub async fn begin_registered(context: &Context, lock_wait: Duration) -> Result<Tx> {
    let mut tx = context.store.begin_within(lock_wait).await?;
    if tx.lock_registration(&context.replica_id).await? {
        return Ok(tx);
    }
    drop(tx);
    context.register_replica(context.store.store()?).await?;
    let mut tx = context.store.begin_within(lock_wait).await?;
    // Without leases, the account itself can be debited.
    if tx.lock_registration(&context.replica_id).await? {
        Ok(tx)
    } else {
        Err(Error::RedisBreakerOpen)
    }
}

pub async fn commit(tx: Tx) -> Result<()> {
    if Safeguard::DebitFirst.is_disabled() {
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let _ = tx.commit().await;
        });
        return Ok(());
    }
    tx.commit().await.map(drop)
}

/// Sets the balance if a refill period has begun; see [`refill_account`].
pub async fn refill_if_due(
    tx: &mut Tx,
    key: &KeyId,
    account: &mut CreditAccount,
    now: Timestamp,
) -> Result<()> {
    match refill_account(account, now) {
        true => tx.forfeit_leases(key).await,
        false => Ok(()),
    }
}
