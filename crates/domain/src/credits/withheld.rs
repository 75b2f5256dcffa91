//! Withheld credits: what a lost Redis held, and when it returns to the accounts.
//!
//! With every spend, a script reports the total spend of the lease, and no verification is VALID without that report.
//! So each replica knows, for each lease, an amount that includes all its VALID answers. When a lease is withheld,
//! every replica that may have spent from it reports that amount, and from then on trusts no result about it. Once
//! all have reported, the rest is proven unspent and returns to the account. A replica that was killed reports
//! nothing; then an operator decides.
//!
//! Which replicas may have spent from a lease follows from what they can have learned, without any clock. A replica
//! learns of a lease in one statement, or one transaction, in which it is registered and the lease is not withheld.
//! Other replicas end the registration of a silent replica, and draw a number for it once that is committed: every
//! lease that it has learned of was opened earlier and has a lower number. So a lease waits for the reports of all
//! replicas, except those that were deregistered under a lower number than its own.

use std::collections::{BTreeMap, BTreeSet};

use foundation::clock::Timestamp;
use foundation::error::{Error, ResourceRef, Result};
use foundation::fault_injection::Safeguard;
use foundation::id::{KeyId, WorkspaceId};
use foundation::model::WithheldCredits;
use store::{Tx, UnreportedLease, freshness};

use crate::audit::{Actor, AuditBatch, AuditEvent, Target};
use crate::context::Context;
use crate::credits::CreditLedger;

/// The number of leases that one transaction reports or returns.
const BATCH_MAX: i64 = 1_000;
/// After how many milliseconds of silence a replica is deregistered. If that was wrong, the replica must register
/// again; no credit is lost.
const SILENCE_MAX_MS: i64 = 30_000;
/// The number of pages of [`BATCH_MAX`] leases withheld earlier that one sweep examines.
const SWEEP_PAGES_MAX: usize = 10;
/// A lease may become visible as withheld after others although its time is earlier by up to this many milliseconds.
const VISIBILITY_DELAY_MAX_MS: i64 = 10_000;

/// Reports recently withheld leases, and returns the credits of those that every replica has reported. If an account was
/// locked in the previous pass, this one returns its credits: each replica reports a lease only once.
pub async fn report_lost_leases(ledger: &CreditLedger) -> Result<()> {
    let locked = ledger.lease_spend.take_locked_accounts();
    if !locked.is_empty() {
        return_withheld(ledger, locked.into_iter(), true, None).await?;
    }
    let from =
        ledger.lease_spend.last_withheld_at_ms().saturating_sub(VISIBILITY_DELAY_MAX_MS).max(0);
    report_since(ledger, from).await
}

/// Calls [`report_lost_leases`] for all withheld leases. Some no longer wait for a report, because the replica has
/// deregistered or was deregistered. Each call examines a part of them, in order.
pub async fn report_and_sweep_all(ledger: &CreditLedger) -> Result<()> {
    report_since(ledger, 0).await?;
    for _ in 0..SWEEP_PAGES_MAX {
        let after = ledger.lease_spend.sweep_position();
        let page = ledger
            .context
            .store
            .read()
            .await?
            .list_unreported_leases("", after.as_ref(), BATCH_MAX)
            .await?;
        ledger.lease_spend.set_sweep_position(page.last().cloned());
        if page.is_empty() {
            break;
        }
        return_withheld(ledger, page.into_iter().map(|lease| lease.key_id), true, None).await?;
    }
    Ok(())
}

/// Reports what this replica has spent from every lease withheld since then. The last replica to report returns the
/// credits.
async fn report_since(ledger: &CreditLedger, since: i64) -> Result<()> {
    let mut after =
        UnreportedLease { since: Timestamp(since), key_id: KeyId::from(""), lease_number: 0 };
    loop {
        let mut reader = ledger.context.store.read().await?;
        let unreported = reader
            .list_unreported_leases(&ledger.context.replica_id, Some(&after), BATCH_MAX)
            .await?;
        drop(reader);
        let Some(last) = unreported.last().cloned() else { break };
        let spent = ledger.lease_spend.freeze(&unreported);
        let mut tx = ledger.context.store.begin().await?;
        tx.report_final_spends(&ledger.context.replica_id, &spent).await?;
        tx.commit().await?;
        ledger.lease_spend.record_reported_until(last.since.0);
        after = last;
        return_withheld(ledger, unreported.into_iter().map(|lease| lease.key_id), true, None)
            .await?;
    }
    if ledger.lease_spend.has_too_many_marks() {
        // First, so that everything read from now on is read after the marks were made.
        ledger.context.freshness.invalidate_all();
        ledger.lease_spend.drop_marks();
    }
    Ok(())
}

/// Deregisters replicas that have been silent for long: leases opened from then on do not wait for their reports. A
/// replica that was only paused registers again before it learns of such a lease.
pub async fn deregister_silent_replicas(context: &Context) -> Result<()> {
    let mut tx = context.store.begin().await?;
    tx.count_out_replicas().await?;
    tx.commit().await?;
    let mut tx = context.store.begin().await?;
    tx.end_silent_registrations(SILENCE_MAX_MS).await?;
    tx.commit().await.map(drop)
}

/// Removes what this process knows of leases that have been closed.
pub async fn prune_closed_leases(ledger: &CreditLedger) -> Result<()> {
    let all: Vec<_> = ledger
        .lease_spend
        .list_spends()
        .into_iter()
        .map(|(key, lease_number, _)| (key, lease_number))
        .collect();
    for chunk in all.chunks(1_000) {
        let keys: Vec<_> = chunk.iter().map(|(key, _)| key.clone()).collect();
        let existing = ledger.context.store.read().await?.list_leases_of_keys(&keys).await?;
        ledger.lease_spend.remove_closed(chunk, &existing.into_iter().collect());
    }
    Ok(())
}

/// Reports all spend of this replica before it deregisters, so that no lease waits for it. Results from leases are
/// not trusted from then on.
pub async fn report_and_deregister(ledger: &CreditLedger) -> Result<()> {
    let mut all = ledger.lease_spend.freeze_all();
    // In a fixed order, so that two replicas that deregister at the same time do not deadlock.
    all.sort_unstable();
    let mut tx = ledger.context.store.begin().await?;
    for chunk in all.chunks(1_000) {
        tx.report_spends(chunk).await?;
    }
    tx.delete_replica(&ledger.context.replica_id).await?;
    tx.commit().await.map(drop)
}

/// Lists withheld credits, which keys cannot spend because their leases are lost.
pub async fn list_withheld(context: &Context, key: Option<&KeyId>) -> Result<Vec<WithheldCredits>> {
    context.store.read().await?.list_withheld(key).await
}

/// Returns the sum of withheld credits.
pub async fn sum_withheld(context: &Context) -> Result<i64> {
    context.store.read().await?.sum_withheld().await
}

/// Returns withheld credits to their accounts, of one key or of all, proven unspent or not. Returns the number of
/// credits. The operator who requests it asserts that the lost leases will not reappear. Fails if the key does not exist.
pub async fn release_withheld(ledger: &CreditLedger, key: Option<&KeyId>) -> Result<i64> {
    let actor = Some(Actor::Command("cli"));
    if let Some(key) = key {
        require_key(&ledger.context, key).await?;
        return return_withheld(ledger, std::iter::once(key.clone()), false, actor).await;
    }
    let mut released: i64 = 0;
    loop {
        let page =
            ledger.context.store.read().await?.list_unreported_leases("", None, BATCH_MAX).await?;
        if page.is_empty() {
            return Ok(released);
        }
        let keys = page.into_iter().map(|lease| lease.key_id);
        released = released.saturating_add(return_withheld(ledger, keys, false, actor).await?);
    }
}

/// Fails if there is no such key. A deleted key may still have withheld credits.
async fn require_key(context: &Context, key: &KeyId) -> Result<()> {
    let mut reader = context.store.read().await?;
    if reader.has_key(key).await? || !reader.list_withheld(Some(key)).await?.is_empty() {
        return Ok(());
    }
    Err(Error::not_found(ResourceRef::Key(key.clone())))
}

/// Returns the withheld credits of these keys, in one transaction whose number of statements does not depend on the
/// number of leases. Returns the number of credits.
async fn return_withheld(
    ledger: &CreditLedger,
    keys: impl Iterator<Item = KeyId>,
    only_proven: bool,
    actor: Option<Actor<'_>>,
) -> Result<i64> {
    let only_proven = only_proven && !Safeguard::EveryReport.is_disabled();
    let mut keys: Vec<_> = keys.collect();
    if only_proven {
        let proven = ledger.context.store.read().await?.list_withheld_of_keys(&keys, true).await?;
        keys = proven.into_iter().map(|lease| lease.key_id).collect();
    }
    if keys.is_empty() {
        return Ok(0);
    }
    keys.sort_unstable();
    keys.dedup();
    let mut tx = ledger.context.store.begin().await?;
    match actor {
        // The next pass returns credits of accounts that are locked now: the rest does not wait for them.
        None if !Safeguard::Claim.is_disabled() => {
            let claimed = tx.claim_accounts(&keys).await?;
            let mut locked = BTreeSet::from_iter(keys);
            for key in &claimed {
                locked.remove(key);
            }
            ledger.lease_spend.record_locked_accounts(locked);
            keys = claimed;
        }
        _ => tx.lock_accounts(&keys).await?,
    }
    // After the lock, so that writes of its previous holder are seen.
    let entries = tx.list_withheld_of_keys(&keys, only_proven).await?;
    if entries.is_empty() {
        return Ok(0);
    }
    let mut units: BTreeMap<&KeyId, i64> = BTreeMap::new();
    for entry in &entries {
        let sum = units.entry(&entry.key_id).or_default();
        *sum = sum.saturating_add(entry.units);
    }
    let units: Vec<_> = units.into_iter().map(|(key, units)| (key.clone(), units)).collect();
    let leases: Vec<_> = entries.iter().map(|e| (e.key_id.clone(), e.lease_number)).collect();
    let leased = tx.return_credits(&units).await?;
    tx.delete_withheld(&leases).await?;
    match actor {
        // Committed without an announcement: no replica needs it before it reads the account again, and no request
        // waits for the locked accounts meanwhile.
        None => drop(tx.commit().await?),
        Some(actor) => {
            record_audit(&ledger.context, &mut tx, actor, &entries).await?;
            for (key, _) in &units {
                tx.record_change(freshness::CacheTag::Key(key.clone()));
            }
            ledger.context.commit(tx).await?;
        }
    }
    let returned = units.iter().map(|(_, units)| *units).fold(0, i64::saturating_add);
    // The balances that their leases report are too low.
    ledger.direct_debits.outdated_accounts.record(leased);
    ledger.context.metrics.credits_returned.inc_by(u64::try_from(returned).unwrap_or(0));
    tracing::info!(units = returned, "returned {returned} withheld credits");
    Ok(returned)
}

/// Records what an operator has returned: one audit entry for each lease.
async fn record_audit(
    context: &Context,
    tx: &mut Tx,
    actor: Actor<'_>,
    entries: &[WithheldCredits],
) -> Result<()> {
    let mut workspaces: BTreeMap<&WorkspaceId, AuditBatch> = BTreeMap::new();
    for WithheldCredits { key_id, workspace_id, .. } in entries {
        let entries = workspaces
            .entry(workspace_id)
            .or_insert_with(|| AuditBatch::new(actor, workspace_id, context.clock.now()));
        entries.add(AuditEvent::KeyUpdated, &[Target::new("key", key_id.as_str())]);
    }
    for entries in workspaces.into_values() {
        entries.write(tx).await?;
    }
    Ok(())
}
