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
use foundation::model::{CreditAccount, Credits, Lease};
use limiter::TopUp;
use limiter::redis::RedisCounters;
use store::Tx;

use super::closing::{CloseScope, close_lease, write_lease};
use super::{LOCK_WAIT, SCRIPT_BALANCE_MAX};
use crate::context::Context;
use crate::refill;

/// The demand that one top-up covers, in milliseconds: a busy key tops up less than once per second.
const TOP_UP_COVERS_MS: i64 = 1_500;
/// The minimum top-up, in multiples of the request's cost: many rarely used keys together cause few database calls.
const TOP_UP_COSTS_MIN: i64 = 100;
/// The divisor for the maximum leased share of a key's remaining credits: a tenth, or one cost if that is more.
const LEASED_DIVISOR: i64 = 10;
/// The maximum total that one lease is granted before a new one is opened: scripts count in doubles.
const LEASE_GRANTED_MAX: i64 = 1 << 52;

/// How a replica found a lease.
#[derive(Debug, Clone, Copy)]
pub struct LeaseObservation {
    pub lease_number: i64,
    /// The Redis generation that answered.
    pub redis_generation: i64,
    pub units: i64,
    pub spent: i64,
    pub problem: LeaseProblem,
}

#[derive(Debug, Clone, Copy)]
pub enum LeaseProblem {
    /// The lease holds too little, a refill is due, or there is no lease.
    Insufficient,
    /// The lease has been closed, and a top-up was not added.
    Closed { block: i64 },
    /// A top-up was not added: the Redis generation has changed, or the lease was not found. `is_lost`: it has been
    /// waited for long enough.
    TopUpRejected { block: i64, is_lost: bool },
}

/// The result of a top-up.
#[derive(Debug, Clone, Copy)]
pub enum TopUpResult {
    /// The key is not metered any more.
    Unmetered,
    /// The number of the lease to spend from, and the top-up to add to it.
    Lease(i64, TopUp),
    /// The bound on leased credits is reached, in part by top-ups of the lease in use that are in flight and may soon
    /// be spent.
    TopUpsInFlight(i64, TopUp),
    /// The bound on leased credits is reached, mostly by withheld credits.
    Withheld,
}

/// Returns the time by which refills fall due: the database's time, so that no replica's clock matters.
pub fn refill_time(context: &Context, database_time: Timestamp) -> Timestamp {
    context.clock.fixed_time().unwrap_or(database_time)
}

/// Debits a top-up from the account, for a request of this cost: as much as the demand requires and the bound
/// permits, but at least what the lease lacks. Nothing if the balance is less than that.
pub async fn top_up(
    context: &Context,
    redis: &RedisCounters,
    key: &KeyId,
    observed: LeaseObservation,
    cost: i64,
) -> Result<TopUpResult> {
    let mut tx = begin_registered(context).await?;
    let Some(mut account) = tx.lock_account(key).await? else { return Ok(TopUpResult::Unmetered) };
    let now = refill_time(context, account.database_time);
    refill_if_due(&mut tx, key, &mut account, now).await?;
    return_top_up(context, redis, &mut tx, key, &mut account, observed).await?;
    close_withheld(context, redis, &mut tx, key, &mut account, observed.redis_generation).await?;
    let (at, creates_lease) =
        open_lease(context, redis, &mut tx, key, &mut account, observed).await?;
    let demand = estimate_demand(&account.leases[at], observed, account.database_time);
    let lease = &mut account.leases[at];
    if lease.lease_number == observed.lease_number {
        lease.spent = lease.spent.max(observed.spent);
    }
    let (need, in_flight) = match lease.lease_number == observed.lease_number {
        true => ((cost - observed.units).max(0), (lease.unspent_units() - observed.units).max(0)),
        false => (cost, lease.unspent_units()),
    };
    let leased = account.leased_units();
    let amount = top_up_amount(account.credits.balance, leased, need, cost, demand);
    let lease = &mut account.leases[at];
    let Some(amount) = amount else {
        // Credits that returned to the account are kept.
        if !creates_lease {
            tx.upsert_lease(key, lease).await?;
        }
        tx.update_balance(key, &account.credits).await?;
        commit(tx).await?;
        let left = account.credits.balance.saturating_add(leased);
        let may_change = leased - in_flight + need <= leased_max(left, cost);
        return Ok(match may_change && !creates_lease {
            true => {
                let Lease { lease_number, granted, .. } = account.leases[at];
                TopUpResult::TopUpsInFlight(
                    lease_number,
                    build_top_up(
                        account.credits,
                        (granted, 0),
                        observed.redis_generation,
                        creates_lease,
                        now,
                    ),
                )
            }
            false => TopUpResult::Withheld,
        });
    };
    let granted_before = lease.granted;
    lease.granted += amount;
    (lease.topped_up_at, lease.topped_up_by) = (account.database_time, context.replica_id.clone());
    account.credits.balance -= amount;
    tx.update_balance(key, &account.credits).await?;
    tx.upsert_lease(key, lease).await?;
    let lease_number = lease.lease_number;
    commit(tx).await?;
    if amount > 0 {
        context.metrics.lease_top_ups.inc();
    }
    Ok(TopUpResult::Lease(
        lease_number,
        build_top_up(
            account.credits,
            (granted_before, amount),
            observed.redis_generation,
            creates_lease,
            now,
        ),
    ))
}

/// Builds the top-up that a lease receives, with the state of its account.
fn build_top_up(
    credits: Credits,
    (granted_before, amount): (i64, i64),
    redis_generation: i64,
    creates_lease: bool,
    now: Timestamp,
) -> TopUp {
    let refill_at = credits
        .refill
        .map_or(Timestamp(SCRIPT_BALANCE_MAX), |refill| refill::next_refill_at(&refill, now));
    TopUp {
        redis_generation,
        creates_lease,
        granted_before,
        top_up: amount,
        account_balance: credits.balance.min(SCRIPT_BALANCE_MAX),
        refill_at,
    }
}

/// Begins a transaction in which this replica is registered. So other replicas wait for its report on every lease
/// that it learns of there.
async fn begin_registered(context: &Context) -> Result<Tx> {
    let mut tx = context.store.begin_within(LOCK_WAIT).await?;
    if tx.lock_registration(&context.replica_id).await? {
        return Ok(tx);
    }
    drop(tx);
    context.register_replica(context.store.store()?).await?;
    let mut tx = context.store.begin_within(LOCK_WAIT).await?;
    // Without leases, the account itself can be debited.
    if tx.lock_registration(&context.replica_id).await? {
        Ok(tx)
    } else {
        Err(Error::RedisBreakerOpen)
    }
}

async fn commit(tx: Tx) -> Result<()> {
    if Safeguard::DebitFirst.is_disabled() {
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let _ = tx.commit().await;
        });
        return Ok(());
    }
    tx.commit().await.map(drop)
}

/// Sets the balance if a refill period has begun. Credits in earlier leases are forfeited; leases that a replica may
/// still spend from are kept.
pub async fn refill_if_due(
    tx: &mut Tx,
    key: &KeyId,
    account: &mut CreditAccount,
    now: Timestamp,
) -> Result<()> {
    let credits = refill::apply_refill(account.credits, now);
    if credits.refilled_period == account.credits.refilled_period {
        return Ok(());
    }
    tx.forfeit_leases(key).await?;
    account.leases.retain(|lease| !lease.closed);
    for lease in &mut account.leases {
        lease.granted = lease.spent;
        lease.withheld_at.get_or_insert(account.database_time);
    }
    let refilled = match Safeguard::RefillOnce.is_disabled() {
        true => account.credits.refilled_period,
        false => credits.refilled_period,
    };
    // A new lease number: a replica that still uses the old lease finds it ended.
    account.credits = Credits {
        last_lease_number: credits.last_lease_number + 1,
        refilled_period: refilled,
        ..credits
    };
    Ok(())
}

/// Returns a top-up that was not added to a lease, and closes the lease if it has ended.
async fn return_top_up(
    context: &Context,
    redis: &RedisCounters,
    tx: &mut Tx,
    key: &KeyId,
    account: &mut CreditAccount,
    observed: LeaseObservation,
) -> Result<()> {
    let Some(at) =
        account.leases.iter().position(|lease| lease.lease_number == observed.lease_number)
    else {
        return Ok(());
    };
    let (amount, is_over) = match observed.problem {
        LeaseProblem::Insufficient => (0, false),
        LeaseProblem::Closed { block: amount } => (amount, true),
        LeaseProblem::TopUpRejected { block: amount, is_lost } => (amount, is_lost),
    };
    let lease = &mut account.leases[at];
    // A lease that was forfeited meanwhile grants nothing: its top-ups are void.
    let amount = if lease.unspent_units() < amount { 0 } else { amount };
    lease.granted -= amount;
    account.credits.balance = account.credits.balance.saturating_add(amount);
    if lease.withheld_at.is_none() && is_over {
        let at = (account.database_time, CloseScope::All);
        close_lease(context, redis, tx, key, lease, at).await?.add_to(account);
    } else if lease.withheld_at.is_some() && amount > 0 {
        write_lease(tx, key, lease).await?;
    }
    Ok(())
}

/// Withholds leases of other Redis generations: their credits can be neither spent nor accounted for here. Closes
/// withheld leases of this generation.
async fn close_withheld(
    context: &Context,
    redis: &RedisCounters,
    tx: &mut Tx,
    key: &KeyId,
    account: &mut CreditAccount,
    redis_generation: i64,
) -> Result<()> {
    let now = account.database_time;
    for at in 0..account.leases.len() {
        let lease = &mut account.leases[at];
        if lease.redis_generation != redis_generation && lease.withheld_at.is_none() {
            lease.withheld_at = Some(now);
            tx.upsert_lease(key, lease).await?;
            // A new lease number: no replica learns of the old lease any more.
            account.credits.last_lease_number += 1;
        } else if lease.redis_generation == redis_generation && lease.withheld_at.is_some() {
            let at = (now, CloseScope::All);
            close_lease(context, redis, tx, key, lease, at).await?.add_to(account);
        }
    }
    Ok(())
}

/// Returns the index of this generation's lease among those of the account, and whether it is new.
async fn open_lease(
    context: &Context,
    redis: &RedisCounters,
    tx: &mut Tx,
    key: &KeyId,
    account: &mut CreditAccount,
    observed: LeaseObservation,
) -> Result<(usize, bool)> {
    let open = |lease: &Lease| {
        lease.redis_generation == observed.redis_generation && lease.withheld_at.is_none()
    };
    if let Some(at) = account.leases.iter().rposition(open) {
        let lease = &mut account.leases[at];
        if lease.granted < LEASE_GRANTED_MAX {
            return Ok((at, false));
        }
        let at = (account.database_time, CloseScope::All);
        close_lease(context, redis, tx, key, lease, at).await?.add_to(account);
    }
    account.credits.last_lease_number += 1;
    account.leases.push(Lease {
        lease_number: account.credits.last_lease_number,
        redis_generation: observed.redis_generation,
        granted: 0,
        spent: 0,
        opened_at: account.database_time,
        topped_up_at: account.database_time,
        topped_up_by: context.replica_id.clone(),
        withheld_at: None,
        closed: false,
    });
    Ok((account.leases.len() - 1, true))
}

/// Estimates the spend from a lease in [`TOP_UP_COVERS_MS`], based on the spend since the last top-up.
fn estimate_demand(lease: &Lease, observed: LeaseObservation, now: Timestamp) -> i64 {
    if lease.lease_number != observed.lease_number {
        return 0;
    }
    let spent = i128::from((observed.spent - lease.spent).max(0));
    let elapsed = i128::from((now.0 - lease.topped_up_at.0).max(1));
    i64::try_from(spent * i128::from(TOP_UP_COVERS_MS) / elapsed).unwrap_or(i64::MAX)
}

/// Returns how much of a key's remaining credits, including all leased credits that are not known to be spent, may be
/// leased: a tenth, or one cost.
fn leased_max(left: i64, cost: i64) -> i64 {
    (left / LEASED_DIVISOR).max(cost)
}

/// Returns the amount of a top-up: 0 if the balance is too small, `None` if the bound on leased credits is reached.
fn top_up_amount(balance: i64, leased: i64, need: i64, cost: i64, demand: i64) -> Option<i64> {
    if need == 0 || balance < need {
        return Some(0);
    }
    let room = match Safeguard::LeaseBound.is_disabled() {
        true => leased_max(balance, cost),
        false => leased_max(balance.saturating_add(leased), cost) - leased,
    };
    let ahead = demand.max(cost.saturating_mul(TOP_UP_COSTS_MIN)).min(room).min(LEASE_GRANTED_MAX);
    (room >= need).then(|| ahead.max(need).min(balance))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_up_amount_is_at_most_a_tenth_of_the_rest_or_one_cost() {
        for (balance, leased, need, cost, demand, expected) in [
            (1_000, 0, 1, 1, 0, Some(100)),
            (1_000, 0, 1, 1, 1_000_000, Some(100)),
            (100_000, 0, 1, 1, 2_000, Some(2_000)),
            // Other leases hold the full share.
            (900, 100, 1, 1, 0, None),
            (901, 99, 1, 1, 0, Some(1)),
            (950, 50, 1, 1, 0, Some(50)),
            // One cost is more than a tenth.
            (1_000, 0, 250, 250, 0, Some(250)),
            (1_000, 0, 101, 101, 0, Some(101)),
            (1_000, 1, 250, 250, 0, None),
            (999, 1, 249, 250, 0, Some(249)),
            (2, 0, 1, 1, 0, Some(1)),
            // The balance is too small.
            (0, 0, 1, 1, 0, Some(0)),
            (2, 5, 3, 8, 0, Some(0)),
            (3, 5, 3, 8, 0, Some(3)),
            (i64::MAX, 0, 1, 1, i64::MAX, Some(i64::MAX / 10)),
        ] {
            let actual = top_up_amount(balance, leased, need, cost, demand);
            let expected = expected.map(|amount: i64| amount.min(LEASE_GRANTED_MAX));
            assert_eq!(actual, expected, "{balance} {leased} {need} {cost} {demand}");
        }
    }
}
