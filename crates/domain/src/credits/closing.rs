//! Closing of leases: their unspent credits return to the account once no replica can spend from them any more.
//!
//! A close can be confirmed only in the Redis generation in which the lease was opened. If another generation
//! responds, a replica that still reaches the old one may be spending from the lease. The lease is then withheld, and
//! the key gets a new lease number, so that no replica learns of the lease from then on. It counts as closed when
//! every replica has reported it (see [`mod@super::withheld`]), when its own Redis is reached again, or when an operator
//! releases it.

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

use super::closing_steps::{AccountStep, CloseScope, CloseSummary, LeaseClosing};
use super::leases::{self, refill_if_due};
use super::retries::{ChangeRetry, ChangeStep};
use crate::context::Context;
use crate::credits::CreditLedger;

/// The number of leases that a background task closes concurrently while the database is near.
const CLOSES_CONCURRENT_MAX: usize = 4;
/// The number of idle leases, or of its own at a stop, that a replica closes concurrently while the database is far away, where a
/// close mostly waits for the network.
const FAR_CLOSES_CONCURRENT_MAX: usize = 8;
/// The number of leases that one script call examines.
const EXAMINED_LEASES_MAX: usize = 100;

/// Performs a step of a transaction that has locked the account of a key. Returns the result of closing a lease.
pub async fn perform(
    context: &Context,
    tx: &mut Tx,
    key: &KeyId,
    step: AccountStep<'_>,
) -> Result<Option<CloseResult>> {
    match step {
        AccountStep::ForfeitLeases => tx.forfeit_leases(key).await?,
        AccountStep::CloseLease { lease, idle } => {
            let name = context.keyspace.lease(key.as_str(), lease.lease_number);
            let now = context.clock.fixed_time();
            let redis = context.redis_of(&lease.region)?;
            return redis.close_lease(&name, lease.redis_generation, idle, now).await.map(Some);
        }
        AccountStep::UpsertLease(lease) => tx.upsert_lease(key, lease).await?,
        AccountStep::DeleteLease(lease) => tx.delete_lease(key, lease.lease_number).await?,
        AccountStep::UpdateBalance(credits) => tx.update_balance(key, credits).await?,
        AccountStep::End => {}
    }
    Ok(None)
}

/// Counts credits that were returned to an account.
pub fn count_returned(context: &Context, units: i64) {
    context.metrics.credits_returned.inc_by(u64::try_from(units).unwrap_or(0));
}

/// Closes leases of a key; see [`LeaseClosing`].
async fn close_all(
    context: &Context,
    tx: &mut Tx,
    key: &KeyId,
    leases: &mut [Lease],
    (now, scope): (Timestamp, CloseScope),
) -> Result<CloseSummary> {
    let mut closing = LeaseClosing::new(scope, now);
    if context.redis.is_none() {
        return Ok(closing.summary());
    }
    loop {
        let step = closing.next_step(leases);
        if step == AccountStep::End {
            return Ok(closing.summary());
        }
        match perform(context, tx, key, step).await {
            Ok(Some(result)) => count_returned(context, closing.apply_result(leases, result)),
            Ok(None) => {}
            Err(cause) if cause.is_redis_outage() => closing.record_outage(leases),
            Err(cause) => return Err(cause),
        }
    }
}

/// Closes the leases of an account and returns their unspent credits to its balance. Returns whether all are closed;
/// if not, other replicas may be spending from the rest. The caller writes the account.
pub async fn close_account_leases(
    context: &Context,
    tx: &mut Tx,
    key: &KeyId,
    account: &mut CreditAccount,
    scope: CloseScope,
) -> Result<bool> {
    if context.redis.is_none() {
        return Ok(true);
    }
    let now = leases::refill_time(context, account.database_time);
    refill_if_due(tx, key, account, now).await?;
    let at = (account.database_time, scope);
    let closing = close_all(context, tx, key, &mut account.leases, at).await?;
    closing.add_to(account);
    Ok(!closing.has_unconfirmed)
}

/// Closes the leases of a key that is about to be changed, metered or not. Returns whether all are closed; see
/// [`close_account_leases`].
pub async fn close_for_change(
    context: &Context,
    tx: &mut Tx,
    key: &KeyId,
    account: Option<&mut CreditAccount>,
) -> Result<bool> {
    match account {
        _ if Safeguard::CloseLease.is_disabled() => Ok(true),
        Some(account) => close_account_leases(context, tx, key, account, CloseScope::All).await,
        None => {
            let mut leases = tx.list_leases(key).await?;
            if leases.is_empty() {
                return Ok(true);
            }
            let at = (tx.load_database_time().await?, CloseScope::All);
            Ok(!close_all(context, tx, key, &mut leases, at).await?.has_unconfirmed)
        }
    }
}

/// Runs a change that needs the leases of a key closed, and tries it again if necessary; see [`ChangeRetry`].
pub async fn run_with_closed_leases<T, F>(
    ledger: &CreditLedger,
    key: &KeyId,
    change: impl Fn() -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let (mut retry, mut outcome) = (ChangeRetry::default(), Err(Error::LeaseNotClosed));
    loop {
        match retry.next_step() {
            ChangeStep::Change => {
                outcome = change().await;
                retry.record_result(outcome.as_ref().err());
            }
            ChangeStep::Pause(pause) => {
                tokio::time::sleep(pause).await;
                retry.record_result(None);
            }
            ChangeStep::CloseLeases => {
                let closing = close_key_leases(&ledger.context, key, CloseScope::AllOrWithhold);
                let failure = closing.await.err();
                retry.record_result(failure.as_ref());
                if let Some(cause) = failure {
                    outcome = Err(cause);
                }
            }
            ChangeStep::End { is_outdated } => {
                if is_outdated && ledger.context.redis.is_some() {
                    ledger.direct_debits.outdated_accounts.record([key.clone()]);
                }
                return outcome;
            }
        }
    }
}

/// Closes the leases of one key. Returns whether none is left that a replica can learn of: each is closed or
/// withheld.
async fn close_key_leases(context: &Context, key: &KeyId, scope: CloseScope) -> Result<bool> {
    let mut tx = context.store.begin().await?;
    let is_over = match tx.lock_account_with_deleted(key).await? {
        Some(mut account) => {
            close_account_leases(context, &mut tx, key, &mut account, scope).await?;
            tx.update_balance(key, &account.credits).await?;
            account.leases.iter().all(Lease::is_ended)
        }
        // The key is unlimited or permanently deleted, so the leases have no owner.
        None => {
            close_for_change(context, &mut tx, key, None).await?;
            tx.forfeit_leases(key).await?;
            true
        }
    };
    tx.commit().await?;
    Ok(is_over)
}

/// Closes the leases of accounts that this replica has debited while Redis was unreachable: the balances that they
/// report are stale.
pub async fn close_outdated(ledger: &CreditLedger) -> Result<()> {
    if ledger.context.redis.as_ref().is_none_or(RedisCounters::is_breaker_open) {
        return Ok(());
    }
    let closing = stream::iter(ledger.direct_debits.outdated_accounts.list()).map(
        |(key, number)| async move {
            if close_key_leases(&ledger.context, &key, CloseScope::All).await? {
                ledger.direct_debits.outdated_accounts.remove(&key, number);
            }
            Ok(())
        },
    );
    let closed: Vec<Result<()>> = closing.buffer_unordered(CLOSES_CONCURRENT_MAX).collect().await;
    closed.into_iter().collect()
}

/// Closes leases that have not been spent from for a while, whichever replica opened them.
pub async fn close_idle_leases(context: &Context, idle: Duration) -> Result<()> {
    let idle_ms = i64::try_from(idle.as_millis()).unwrap_or(i64::MAX);
    close_listed_leases(context, idle_ms, None, CloseScope::Idle(idle)).await
}

/// Returns the idle leases among these. The others are skipped until they may be idle again: many are examined at
/// once, while locking the account of each would cost more than the work of its key.
async fn filter_idle(
    context: &Context,
    leases: Vec<(KeyId, i64)>,
    idle: Duration,
) -> Result<Vec<(KeyId, i64)>> {
    let Some(redis) = &context.redis else { return Ok(leases) };
    let (mut idle_leases, mut busy) = (Vec::new(), Vec::new());
    for chunk in leases.chunks(EXAMINED_LEASES_MAX) {
        let name = |(key, lease_number): &(KeyId, i64)| {
            context.keyspace.lease(key.as_str(), *lease_number)
        };
        let names: Vec<_> = chunk.iter().map(name).collect();
        for ((key, lease_number), spent) in chunk
            .iter()
            .zip(redis.list_active_leases(&names, idle, context.clock.fixed_time()).await?)
        {
            match spent {
                Some(spent) => busy.push((key.clone(), *lease_number, spent)),
                None => idle_leases.push((key.clone(), *lease_number)),
            }
        }
    }
    if !busy.is_empty() {
        let mut tx = context.store.begin().await?;
        tx.touch_leases(&busy).await?;
        tx.commit().await?;
    }
    Ok(idle_leases)
}

/// Closes the leases that this replica topped up last, because it is about to stop.
pub async fn close_own_leases(context: &Context) -> Result<()> {
    close_listed_leases(context, i64::MAX / 2, Some(&context.replica_id), CloseScope::All).await
}

fn closes_max(context: &Context) -> usize {
    if context.is_database_far() { FAR_CLOSES_CONCURRENT_MAX } else { CLOSES_CONCURRENT_MAX }
}

async fn close_listed_leases(
    context: &Context,
    idle_ms: i64,
    replica: Option<&str>,
    scope: CloseScope,
) -> Result<()> {
    let (regions, mut before) = (context.own_region().names(), Vec::new());
    loop {
        let mut reader = context.store.read().await?;
        let leases = reader.list_idle_leases(idle_ms, replica, regions.as_deref()).await?;
        drop(reader);
        // The same leases are listed again if Redis was unreachable for them.
        if leases.is_empty() || leases == before {
            return Ok(());
        }
        before.clone_from(&leases);
        let leases = match scope {
            CloseScope::Idle(idle) => filter_idle(context, leases, idle).await?,
            CloseScope::All | CloseScope::AllOrWithhold => leases,
        };
        let mut results = stream::iter(leases)
            .map(|(key, _)| async move { close_key_leases(context, &key, scope).await.map(drop) })
            .buffer_unordered(closes_max(context));
        while let Some(result) = results.next().await {
            result?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use foundation::clock::{Clock, Monotonic, Stopwatch};
    use foundation::config::{Config, Deployment};

    use super::*;

    /// Creates a ledger whose database is not open, of a replica or of an embedded server.
    fn create_ledger(is_replica: bool) -> CreditLedger {
        let mut settings = Config::default().validate().expect("the defaults are valid");
        // A test has few keys.
        settings.cache_bytes_max = 1 << 20;
        if is_replica {
            settings.deployment = Deployment::Replica {
                database_url: "postgres://127.0.0.1:1/none".into(),
                redis_url: "redis://127.0.0.1:1".into(),
            };
        }
        let (context, _announcements) = Context::new(settings, Clock::System).expect("a context");
        CreditLedger::new(Arc::new(context))
    }

    #[test]
    fn more_leases_are_closed_at_once_when_the_database_is_far_away() {
        for (round_trip_ms, expected) in [(9, 4), (10, 8)] {
            let ledger = create_ledger(true);
            let round_trip = Duration::from_millis(round_trip_ms);

            ledger.context.database_distance.record(round_trip, Monotonic::default());

            assert_eq!(closes_max(&ledger.context), expected, "{round_trip_ms} ms");
        }
    }

    #[tokio::test]
    async fn account_is_outdated_only_when_a_failed_change_may_have_closed_a_lease() {
        let key = KeyId::from("key_a");
        let (replica, embedded) = (create_ledger(true), create_ledger(false));
        let list_outdated = |ledger: &CreditLedger| ledger.direct_debits.outdated_accounts.list();

        let changed = run_with_closed_leases(&replica, &key, || async { Ok(()) }).await;
        let rejected = || async { Err::<(), _>(Error::PathNotFound) };
        let rejected = run_with_closed_leases(&replica, &key, rejected).await;
        assert!(changed.is_ok() && matches!(rejected, Err(Error::PathNotFound)));
        assert_eq!(list_outdated(&replica), []);

        let failed = || async { Err::<(), _>(Error::StoreNotReady) };
        for (ledger, expected) in [(&replica, vec![(key.clone(), 0)]), (&embedded, Vec::new())] {
            assert!(run_with_closed_leases(ledger, &key, failed).await.is_err());
            assert_eq!(list_outdated(ledger), expected);
        }
    }

    #[tokio::test]
    async fn change_ends_with_the_error_of_the_close_after_a_pause_when_leases_stay_open() {
        let (ledger, changes, began) = (create_ledger(true), AtomicUsize::new(0), Stopwatch::new());
        let change = || async {
            changes.fetch_add(1, Ordering::Relaxed);
            Err::<(), _>(Error::LeaseNotClosed)
        };

        let result = run_with_closed_leases(&ledger, &KeyId::from("key_a"), change).await;

        assert!(matches!(result, Err(Error::StoreNotReady)), "{result:?}");
        assert_eq!(changes.load(Ordering::Relaxed), 1);
        assert!(began.elapsed() >= Duration::from_millis(250), "Redis may only have stalled");
    }
}
