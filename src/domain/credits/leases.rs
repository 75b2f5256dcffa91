//! The bank's side: giving out blocks, up to the bound on what may be leased.
//!
//! Whoever changes an account holds its row until the change is committed, also while a purse is being closed in
//! Redis, so that nobody opens another one meanwhile. A purse is closed before it is settled, and what is closed
//! stays so; a crash between the two leaves something that the next one settles.

use std::time::Duration;

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use foundation::id::KeyId;
use foundation::model::{CreditAccount, Credits, Lease};
use limiter::TopUp;
use limiter::redis::RedisCounters;
use store::Tx;

use super::super::refill;
use super::closing::{CloseScope, close_one, keep};
use super::{LOCK_WAIT, SCRIPT_BALANCE_MAX};
use crate::app::App;

/// For how much demand a block is made: so a busy key comes to the bank less than once a second.
const BLOCK_FOR_MS: i64 = 1_500;
/// For how many takes like this one it is made at least: so many keys that are asked for now and then cost the bank
/// little together.
const BLOCK_TAKES: i64 = 100;
/// Of what a key has left, this part may be leased, or one cost where that is more.
const LEASED_PART: i64 = 10;
/// How much one purse gets in all, before there is a new one: the script counts in doubles.
const PURSE_MAX: i64 = 1 << 52;

/// How a replica found a purse.
#[derive(Debug, Clone, Copy)]
pub struct LeaseObservation {
    pub epoch: i64,
    /// The life of the Redis that answered.
    pub life: i64,
    pub units: i64,
    pub spent: i64,
    pub finding: LeaseProblem,
}

#[derive(Debug, Clone, Copy)]
pub enum LeaseProblem {
    /// It holds too little, or a refill is due, or there is none.
    Short,
    /// It has been closed, and a block not put in.
    Closed { block: i64 },
    /// A block was not put in: Redis has begun another life, or the purse is not there. `is_lost`: it has
    /// been waited for long enough.
    TopUpRejected { block: i64, is_lost: bool },
}

/// What the account says.
#[derive(Debug, Clone, Copy)]
pub enum TopUpResult {
    /// The key is not metered any more.
    Unmetered,
    /// The number of the lease to spend from, and what to put into it.
    Lease(i64, TopUp),
    /// As much is leased as may be; part of it are blocks on their way to the lease in use, which may be spent in a moment.
    Full(i64, TopUp),
    /// As much is leased as may be, and most of it is withheld.
    Withheld,
}

/// The time by which refills fall due: the bank's own, so that no replica's clock matters.
pub fn refill_time(app: &App, bank: Timestamp) -> Timestamp {
    app.clock.fixed_time().unwrap_or(bank)
}

/// Goes to the bank for a block, for a take of this cost: what demand asks for where the bound leaves room for it, at
/// least what the lease lacks; nothing where the balance is less than that.
pub async fn top_up(
    app: &App,
    redis: &RedisCounters,
    key: &KeyId,
    seen: LeaseObservation,
    cost: i64,
) -> Result<TopUpResult> {
    let mut tx = begin_registered(app).await?;
    let Some(mut account) = tx.lock_account(key).await? else { return Ok(TopUpResult::Unmetered) };
    let now = refill_time(app, account.database_time);
    refill_if_due(&mut tx, key, &mut account, now).await?;
    take_back(app, redis, &mut tx, key, &mut account, seen).await?;
    close_withheld(app, redis, &mut tx, key, &mut account, seen.life).await?;
    let (at, opens) = open_lease(app, redis, &mut tx, key, &mut account, seen).await?;
    let demand = estimate_demand(&account.purses[at], seen, account.database_time);
    let purse = &mut account.purses[at];
    if purse.epoch == seen.epoch {
        purse.spent = purse.spent.max(seen.spent);
    }
    let (need, on_the_way) = match purse.epoch == seen.epoch {
        true => ((cost - seen.units).max(0), (purse.unspent() - seen.units).max(0)),
        false => (cost, purse.unspent()),
    };
    let leased = account.leased();
    let block = top_up_amount(account.credits.balance, leased, need, cost, demand);
    let purse = &mut account.purses[at];
    let Some(block) = block else {
        // What came back stays.
        if !opens {
            tx.upsert_lease(key, purse).await?;
        }
        tx.update_balance(key, &account.credits).await?;
        commit(tx).await?;
        let left = account.credits.balance.saturating_add(leased);
        let may_change = leased - on_the_way + need <= leased_max(left, cost);
        return Ok(match may_change && !opens {
            true => {
                let Lease { epoch, granted, .. } = account.purses[at];
                TopUpResult::Full(epoch, fill(account.credits, (granted, 0), seen.life, opens, now))
            }
            false => TopUpResult::Withheld,
        });
    };
    let base = purse.granted;
    purse.granted += block;
    (purse.topped_up_at, purse.topped_up_by) = (account.database_time, app.replica_id.clone());
    account.credits.balance -= block;
    tx.update_balance(key, &account.credits).await?;
    tx.upsert_lease(key, purse).await?;
    let epoch = purse.epoch;
    commit(tx).await?;
    if block > 0 {
        app.metrics.credits_withdrawals.inc();
    }
    Ok(TopUpResult::Lease(epoch, fill(account.credits, (base, block), seen.life, opens, now)))
}

/// What the account tells a lease.
fn fill(
    credits: Credits,
    (base, block): (i64, i64),
    life: i64,
    opens: bool,
    now: Timestamp,
) -> TopUp {
    let ends = credits
        .refill
        .map_or(Timestamp(SCRIPT_BALANCE_MAX), |refill| refill::next_refill_at(&refill, now));
    TopUp {
        life,
        creates_lease: opens,
        granted_before: base,
        block,
        bank: credits.balance.min(SCRIPT_BALANCE_MAX),
        refill_at: ends,
    }
}

/// A transaction in which this replica is registered: so whatever lease it learns of there, others wait for its report.
async fn begin_registered(app: &App) -> Result<Tx> {
    let mut tx = app.store.begin_within(LOCK_WAIT).await?;
    if tx.hold_registration(&app.replica_id).await? {
        return Ok(tx);
    }
    drop(tx);
    app.register_replica(app.store.store()?).await?;
    let mut tx = app.store.begin_within(LOCK_WAIT).await?;
    // Without leases, the account itself can be debited.
    if tx.hold_registration(&app.replica_id).await? { Ok(tx) } else { Err(Error::CountersAway) }
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

/// Sets the balance when a period has begun. What leases of before still hold is forfeited; those that somebody may
/// still spend from stay known.
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
    account.purses.retain(|lease| !lease.closed);
    for lease in &mut account.purses {
        lease.granted = lease.spent;
        lease.withheld_at.get_or_insert(account.database_time);
    }
    let refilled = match Safeguard::RefillOnce.is_disabled() {
        true => account.credits.refilled_period,
        false => credits.refilled_period,
    };
    // Another number: whoever still knows the old purse finds that it has ended.
    account.credits = Credits {
        last_lease_number: credits.last_lease_number + 1,
        refilled_period: refilled,
        ..credits
    };
    Ok(())
}

/// Takes back a block that a replica could not put into a lease, and closes the lease where that is over.
async fn take_back(
    app: &App,
    redis: &RedisCounters,
    tx: &mut Tx,
    key: &KeyId,
    account: &mut CreditAccount,
    seen: LeaseObservation,
) -> Result<()> {
    let Some(at) = account.purses.iter().position(|lease| lease.epoch == seen.epoch) else {
        return Ok(());
    };
    let (block, is_over) = match seen.finding {
        LeaseProblem::Short => (0, false),
        LeaseProblem::Closed { block } => (block, true),
        LeaseProblem::TopUpRejected { block, is_lost } => (block, is_lost),
    };
    let lease = &mut account.purses[at];
    // A lease that was forfeited meanwhile grants nothing: its blocks are gone.
    let block = if lease.unspent() < block { 0 } else { block };
    lease.granted -= block;
    account.credits.balance = account.credits.balance.saturating_add(block);
    if lease.withheld_at.is_none() && is_over {
        let at = (account.database_time, CloseScope::All);
        close_one(app, redis, tx, key, lease, at).await?.apply(account);
    } else if lease.withheld_at.is_some() && block > 0 {
        keep(tx, key, lease).await?;
    }
    Ok(())
}

/// What leases of other generations hold can neither be spent here nor be accounted for. Those that are withheld, of
/// this generation, can be closed.
async fn close_withheld(
    app: &App,
    redis: &RedisCounters,
    tx: &mut Tx,
    key: &KeyId,
    account: &mut CreditAccount,
    life: i64,
) -> Result<()> {
    let now = account.database_time;
    for at in 0..account.purses.len() {
        let lease = &mut account.purses[at];
        if lease.life != life && lease.withheld_at.is_none() {
            lease.withheld_at = Some(now);
            tx.upsert_lease(key, lease).await?;
            // Another number: nobody learns of it any more.
            account.credits.last_lease_number += 1;
        } else if lease.life == life && lease.withheld_at.is_some() {
            let at = (now, CloseScope::All);
            close_one(app, redis, tx, key, lease, at).await?.apply(account);
        }
    }
    Ok(())
}

/// The place of the purse of this life among those of the account, and whether it is a new one.
async fn open_lease(
    app: &App,
    redis: &RedisCounters,
    tx: &mut Tx,
    key: &KeyId,
    account: &mut CreditAccount,
    seen: LeaseObservation,
) -> Result<(usize, bool)> {
    let open = |purse: &Lease| purse.life == seen.life && purse.withheld_at.is_none();
    if let Some(at) = account.purses.iter().rposition(open) {
        let lease = &mut account.purses[at];
        if lease.granted < PURSE_MAX {
            return Ok((at, false));
        }
        let at = (account.database_time, CloseScope::All);
        close_one(app, redis, tx, key, lease, at).await?.apply(account);
    }
    account.credits.last_lease_number += 1;
    account.purses.push(Lease {
        epoch: account.credits.last_lease_number,
        life: seen.life,
        granted: 0,
        spent: 0,
        opened_at: account.database_time,
        topped_up_at: account.database_time,
        topped_up_by: app.replica_id.clone(),
        withheld_at: None,
        closed: false,
    });
    Ok((account.purses.len() - 1, true))
}

/// What is spent from a purse in [`BLOCK_FOR_MS`], as far as can be told from the last visit.
fn estimate_demand(purse: &Lease, seen: LeaseObservation, now: Timestamp) -> i64 {
    if purse.epoch != seen.epoch {
        return 0;
    }
    let spent = i128::from((seen.spent - purse.spent).max(0));
    let elapsed = i128::from((now.0 - purse.topped_up_at.0).max(1));
    i64::try_from(spent * i128::from(BLOCK_FOR_MS) / elapsed).unwrap_or(i64::MAX)
}

/// How much may be leased of what a key has left, its leases counted in, all that is not known to be spent: a tenth, or
/// one cost.
fn leased_max(left: i64, cost: i64) -> i64 {
    (left / LEASED_PART).max(cost)
}

/// How much is put into a lease: nothing where the balance is too little. `None`: as much is leased as may be.
fn top_up_amount(balance: i64, leased: i64, need: i64, cost: i64, demand: i64) -> Option<i64> {
    if need == 0 || balance < need {
        return Some(0);
    }
    let room = match Safeguard::LeaseBound.is_disabled() {
        true => leased_max(balance, cost),
        false => leased_max(balance.saturating_add(leased), cost) - leased,
    };
    let ahead = demand.max(cost.saturating_mul(BLOCK_TAKES)).min(room).min(PURSE_MAX);
    (room >= need).then(|| ahead.max(need).min(balance))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_leased_than_a_tenth_of_what_is_left_or_one_cost() {
        for (balance, leased, need, cost, demand, wanted) in [
            (1_000, 0, 1, 1, 0, Some(100)),
            (1_000, 0, 1, 1, 1_000_000, Some(100)),
            (100_000, 0, 1, 1, 2_000, Some(2_000)),
            // Others have had theirs.
            (900, 100, 1, 1, 0, None),
            (901, 99, 1, 1, 0, Some(1)),
            (950, 50, 1, 1, 0, Some(50)),
            // One cost is more than a tenth.
            (1_000, 0, 250, 250, 0, Some(250)),
            (1_000, 0, 101, 101, 0, Some(101)),
            (1_000, 1, 250, 250, 0, None),
            (999, 1, 249, 250, 0, Some(249)),
            (2, 0, 1, 1, 0, Some(1)),
            // The balance is too little.
            (0, 0, 1, 1, 0, Some(0)),
            (2, 5, 3, 8, 0, Some(0)),
            (3, 5, 3, 8, 0, Some(3)),
            (i64::MAX, 0, 1, 1, i64::MAX, Some(i64::MAX / 10)),
        ] {
            let found = top_up_amount(balance, leased, need, cost, demand);
            let wanted = wanted.map(|block: i64| block.min(PURSE_MAX));
            assert_eq!(found, wanted, "{balance} {leased} {need} {cost} {demand}");
        }
    }
}
