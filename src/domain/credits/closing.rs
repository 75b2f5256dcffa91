//! Closing leases: what is in them goes back to the account once nobody can spend from them any more.
//!
//! A lease is seen closed only in the Redis generation that it was made in. Where another one answers, whoever still
//! reaches the old one may be spending from the lease: it is withheld, under a new number of the key, so that nobody
//! learns of it from then on. It is known to be closed when every replica has reported it (see [`super::ledger`]), when
//! its own Redis is reached again, or when an operator says so.

use std::time::Duration;

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use foundation::id::KeyId;
use foundation::model::{CreditAccount, Lease};
use futures_util::{StreamExt as _, stream};
use limiter::CloseResult;
use limiter::redis::RedisCounters;
use store::Tx;

use super::leases::{self, refill_if_due};
use crate::app::App;

/// How many purses are settled at once by a task in the background.
const SETTLED_AT_ONCE: usize = 4;
/// How many are looked at in one call of a script.
const LOOKED_AT_ONCE: usize = 100;

/// Which purses are settled.
#[derive(Debug, Clone, Copy)]
pub enum CloseScope {
    /// Those that nobody has spent from for so long.
    Idle(Duration),
    All,
    /// All, and those that Redis cannot be asked about are withheld: every replica reports them then.
    OrWithhold,
}

/// What came of closing leases.
#[derive(Debug, Default)]
pub struct Closing {
    /// What was in them.
    returned: i64,
    /// Whether one has been withheld that was in use before.
    withholds: bool,
    /// Whether one could not be seen closed.
    leaves_open: bool,
}

impl Closing {
    /// Counts it in the account.
    pub fn apply(&self, account: &mut CreditAccount) {
        let credits = &mut account.credits;
        credits.balance = credits.balance.saturating_add(self.returned);
        credits.last_lease_number += i64::from(self.withholds);
    }
}

/// Closes a lease, if it is not known to be closed.
pub async fn close_one(
    app: &App,
    redis: &RedisCounters,
    tx: &mut Tx,
    key: &KeyId,
    lease: &mut Lease,
    (now, settling): (Timestamp, CloseScope),
) -> Result<Closing> {
    let mut closing = Closing::default();
    if lease.closed {
        return Ok(closing);
    }
    let was_withheld = lease.withheld_at.is_some();
    let idle = match settling {
        CloseScope::Idle(idle) if !was_withheld => idle,
        CloseScope::Idle(_) | CloseScope::All | CloseScope::OrWithhold => Duration::ZERO,
    };
    let name = app.keyspace.lease(key.as_str(), lease.epoch);
    let closed = redis.close_lease(&name, lease.life, idle, app.clock.fixed_time()).await?;
    match closed {
        CloseResult::InUse => lease.topped_up_at = now,
        CloseResult::WrongGeneration => {}
        CloseResult::NotFound => lease.closed = true,
        CloseResult::Closed { spent } => {
            // Nothing of one that is forfeited: it grants no more than was spent.
            closing.returned = (lease.granted - spent).max(0);
            let returned = u64::try_from(closing.returned).unwrap_or(0);
            app.metrics.credits_returned.inc_by(returned);
            (lease.granted, lease.closed) = (lease.spent, true);
        }
    }
    if closed != CloseResult::InUse {
        lease.withheld_at.get_or_insert(now);
        let is_settled = matches!(closed, CloseResult::Closed { .. });
        closing.withholds = !was_withheld && !is_settled;
    }
    closing.leaves_open = !lease.closed;
    keep(tx, key, lease).await?;
    Ok(closing)
}

/// Writes a lease down, unless it is closed and nothing of it is missing.
pub async fn keep(tx: &mut Tx, key: &KeyId, lease: &Lease) -> Result<()> {
    match lease.closed && lease.unspent() == 0 {
        true => tx.delete_lease(key, lease.epoch).await,
        false => tx.upsert_lease(key, lease).await,
    }
}

/// Closes leases of a key. Those that cannot be reached stay as they are, but for [`Settling::OrWithhold`].
async fn close_all(
    app: &App,
    tx: &mut Tx,
    key: &KeyId,
    leases: &mut [Lease],
    (now, settling): (Timestamp, CloseScope),
) -> Result<Closing> {
    let mut all = Closing::default();
    let Some(redis) = &app.redis else { return Ok(all) };
    for at in 0..leases.len() {
        match close_one(app, redis, tx, key, &mut leases[at], (now, settling)).await {
            Err(cause) if cause.is_counters_outage() => {
                if matches!(settling, CloseScope::OrWithhold) {
                    all.withholds |= withhold(tx, key, &mut leases[at..], now).await?;
                }
                return Ok(Closing { leaves_open: true, ..all });
            }
            one => {
                let Closing { returned, withholds, leaves_open } = one?;
                all.returned = all.returned.saturating_add(returned);
                all.withholds |= withholds;
                all.leaves_open |= leaves_open;
            }
        }
    }
    Ok(all)
}

/// Withholds leases that are neither withheld nor closed. Returns whether there was one.
async fn withhold(tx: &mut Tx, key: &KeyId, leases: &mut [Lease], now: Timestamp) -> Result<bool> {
    let mut withholds = false;
    for lease in leases.iter_mut().filter(|lease| !lease.is_ended()) {
        lease.withheld_at = Some(now);
        tx.upsert_lease(key, lease).await?;
        withholds = true;
    }
    Ok(withholds)
}

/// Closes the leases of an account and counts what is in them as balance again. Whether all are closed: others may be
/// spending from the rest. The caller writes the account.
pub async fn settle_account(
    app: &App,
    tx: &mut Tx,
    key: &KeyId,
    account: &mut CreditAccount,
    settling: CloseScope,
) -> Result<bool> {
    if app.redis.is_none() {
        return Ok(true);
    }
    let now = leases::refill_time(app, account.database_time);
    refill_if_due(tx, key, account, now).await?;
    let at = (account.database_time, settling);
    let closing = close_all(app, tx, key, &mut account.purses, at).await?;
    closing.apply(account);
    Ok(!closing.leaves_open)
}

/// Closes the leases of a key that is about to be changed, metered or not. Whether all are; see [`settle_account`].
pub async fn settle_for_change(
    app: &App,
    tx: &mut Tx,
    key: &KeyId,
    account: Option<&mut CreditAccount>,
) -> Result<bool> {
    match account {
        _ if Safeguard::CloseLease.is_disabled() => Ok(true),
        Some(account) => settle_account(app, tx, key, account, CloseScope::All).await,
        None => {
            let mut leases = tx.leases(key).await?;
            if leases.is_empty() {
                return Ok(true);
            }
            let at = (tx.now().await?, CloseScope::All);
            Ok(!close_all(app, tx, key, &mut leases, at).await?.leaves_open)
        }
    }
}

/// Passes on what a change came to. Where it was refused because a lease could not be seen closed, the lease is
/// withheld, so that every replica reports it and the change can be made then. Where it failed, a lease may have been
/// closed in Redis alone: it is looked after soon.
pub async fn withhold_unclosed<T>(app: &App, key: &KeyId, outcome: Result<T>) -> Result<T> {
    match &outcome {
        Err(Error::LeaseNotClosed) => drop(settle(app, key, CloseScope::OrWithhold).await?),
        Err(cause) if cause.is_outage() && app.redis.is_some() => {
            app.debits.note_debited([key.clone()]);
        }
        _ => {}
    }
    outcome
}

/// Settles the purses of one key. Whether none is left that others learn of: each is closed or withheld.
async fn settle(app: &App, key: &KeyId, settling: CloseScope) -> Result<bool> {
    let mut tx = app.store.begin().await?;
    let is_over = match tx.lock_account_of_any(key).await? {
        Some(mut account) => {
            settle_account(app, &mut tx, key, &mut account, settling).await?;
            tx.update_balance(key, &account.credits).await?;
            account.purses.iter().all(Lease::is_ended)
        }
        // Without end, or gone for good: nobody is owed anything.
        None => {
            settle_for_change(app, &mut tx, key, None).await?;
            tx.forfeit_leases(key).await?;
            true
        }
    };
    tx.commit().await?;
    Ok(is_over)
}

/// Closes the leases of accounts that this replica has debited while Redis was unreachable: what they tell of the balance
/// is out of date.
pub async fn close_outdated(app: &App) -> Result<()> {
    if app.redis.as_ref().is_none_or(RedisCounters::is_breaker_open) {
        return Ok(());
    }
    let closing = stream::iter(app.debits.debited()).map(|(key, number)| async move {
        if settle(app, &key, CloseScope::All).await? {
            app.debits.forget_debited(&key, number);
        }
        Ok(())
    });
    let closed: Vec<Result<()>> = closing.buffer_unordered(SETTLED_AT_ONCE).collect().await;
    closed.into_iter().collect()
}

/// Settles what nobody has spent from for a while, whichever replica it was that did.
pub async fn settle_idle(app: &App, idle: Duration) -> Result<()> {
    let idle_ms = i64::try_from(idle.as_millis()).unwrap_or(i64::MAX);
    settle_all(app, idle_ms, None, CloseScope::Idle(idle)).await
}

/// Those of some purses that rest. The others are left alone until they may rest again: many are found at once,
/// while to lock the account of each would cost more than what its key does.
async fn filter_idle(
    app: &App,
    purses: Vec<(KeyId, i64)>,
    idle: Duration,
) -> Result<Vec<(KeyId, i64)>> {
    let Some(redis) = &app.redis else { return Ok(purses) };
    let (mut resting, mut busy) = (Vec::new(), Vec::new());
    for some in purses.chunks(LOOKED_AT_ONCE) {
        let name = |(key, epoch): &(KeyId, i64)| app.keyspace.lease(key.as_str(), *epoch);
        let names: Vec<_> = some.iter().map(name).collect();
        for ((key, epoch), spent) in
            some.iter().zip(redis.list_active_leases(&names, idle, app.clock.fixed_time()).await?)
        {
            match spent {
                Some(spent) => busy.push((key.clone(), *epoch, spent)),
                None => resting.push((key.clone(), *epoch)),
            }
        }
    }
    if !busy.is_empty() {
        let mut tx = app.store.begin().await?;
        tx.touch_leases(&busy).await?;
        tx.commit().await?;
    }
    Ok(resting)
}

/// Settles the purses that this replica filled last: it is about to stop.
pub async fn close_own_leases(app: &App) -> Result<()> {
    settle_all(app, i64::MAX / 2, Some(&app.replica_id), CloseScope::All).await
}

async fn settle_all(
    app: &App,
    idle_ms: i64,
    replica: Option<&str>,
    settling: CloseScope,
) -> Result<()> {
    let mut before = Vec::new();
    loop {
        let purses = app.store.read().await?.list_idle_leases(idle_ms, replica).await?;
        // Those that Redis could not be asked about are still there.
        if purses.is_empty() || purses == before {
            return Ok(());
        }
        before.clone_from(&purses);
        let purses = match settling {
            CloseScope::Idle(idle) => filter_idle(app, purses, idle).await?,
            CloseScope::All | CloseScope::OrWithhold => purses,
        };
        let mut settled = stream::iter(purses)
            .map(|(key, _)| async move { settle(app, &key, settling).await.map(drop) })
            .buffer_unordered(SETTLED_AT_ONCE);
        while let Some(settled) = settled.next().await {
            settled?;
        }
    }
}
