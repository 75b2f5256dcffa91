//! What a lost Redis holds back, and when that is given back.
//!
//! A script tells with every spend how much has been spent from the lease in all, and nobody is told VALID without
//! that. So each replica knows of each lease an amount that includes all it has said VALID for. When a lease is withheld,
//! every replica that may have spent from it reports that amount, and from then on trusts no answer about it. Once all
//! have, the rest is proven unspent and goes back. A replica that was killed reports nothing; then it is for an operator
//! to decide.
//!
//! Which replicas may have spent from a lease follows from what they can know of it, and no clock takes part. A replica
//! learns of a lease in one statement, or one transaction, in which it is registered and the lease is not withheld.
//! Others end the registration of one that is silent, and draw a number for it once that is committed: whatever lease it
//! has learned of was opened before, and has a lower one. So a lease waits for the reports of all replicas but those that
//! were counted out under a lower number than its own.

use std::collections::BTreeMap;

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::fault_injection::Safeguard;
use foundation::id::{KeyId, WorkspaceId};
use foundation::model::WithheldCredits;
use store::{Tx, Unreported, freshness};

use super::super::audit::{Actor, AuditBatch, Target};
use crate::app::App;

/// How many leases are reported, or given back, in one transaction.
const AT_ONCE: i64 = 1_000;
/// After how long without a word a replica is counted out. A wrong guess costs it a registration, and nobody a credit.
const SILENT_MS: i64 = 30_000;
/// How many times [`AT_ONCE`] leases are looked at that are withheld for longer, in one go.
const SWEPT_AT_ONCE: usize = 10;
/// How much earlier than others a lease may seem to be withheld that appears after them.
const LATE_MS: i64 = 10_000;

/// Reports the withheld leases that appeared lately, and gives back those of them that every replica has reported.
pub async fn report_lost_leases(app: &App) -> Result<()> {
    let from = app.lease_spend.latest().saturating_sub(LATE_MS).max(0);
    report(app, from).await
}

/// As [`account`], of all that are withheld. Some wait for no report any more: of a replica that has signed off, or was
/// counted out. A part of them is looked at each time, one after the other.
pub async fn account_for_all(app: &App) -> Result<()> {
    report(app, 0).await?;
    for _ in 0..SWEPT_AT_ONCE {
        let after = app.lease_spend.swept();
        let page =
            app.store.read().await?.list_unreported_leases("", after.as_ref(), AT_ONCE).await?;
        app.lease_spend.sweep_on(page.last().cloned());
        if page.is_empty() {
            break;
        }
        give_back(app, page.into_iter().map(|lease| lease.key_id), true, None).await?;
    }
    Ok(())
}

/// Says of every lease that is withheld since then what this replica knows of it. Whoever reports last gives back.
async fn report(app: &App, since: i64) -> Result<()> {
    let mut after = Unreported { since: Timestamp(since), key_id: KeyId::from(""), epoch: 0 };
    loop {
        let mut reader = app.store.read().await?;
        let gone = reader.list_unreported_leases(&app.replica_id, Some(&after), AT_ONCE).await?;
        drop(reader);
        let Some(last) = gone.last().cloned() else { break };
        let spent = app.lease_spend.freeze(&gone);
        let mut tx = app.store.begin().await?;
        tx.report_final_spends(&app.replica_id, &spent).await?;
        tx.commit().await?;
        app.lease_spend.reported_until(last.since.0);
        after = last;
        give_back(app, gone.into_iter().map(|lease| lease.key_id), true, None).await?;
    }
    if app.lease_spend.has_too_many_marks() {
        // First: what is read from now on was read after the marks were made.
        app.freshness.invalidate_all();
        app.lease_spend.drop_marks();
    }
    Ok(())
}

/// Counts out replicas that have long been silent: leases opened from then on are given back without their reports. One
/// that was only stopped registers again before it learns of such a lease.
pub async fn count_out(app: &App) -> Result<()> {
    let mut tx = app.store.begin().await?;
    tx.count_out_replicas().await?;
    tx.commit().await?;
    let mut tx = app.store.begin().await?;
    tx.silence_replicas(SILENT_MS).await?;
    tx.commit().await.map(drop)
}

/// Forgets what this process knows of purses that have been settled.
pub async fn forget_settled(app: &App) -> Result<()> {
    let all: Vec<_> =
        app.lease_spend.all().into_iter().map(|(key, epoch, _)| (key, epoch)).collect();
    for asked in all.chunks(1_000) {
        let keys: Vec<_> = asked.iter().map(|(key, _)| key.clone()).collect();
        let there = app.store.read().await?.purses_of(&keys).await?;
        app.lease_spend.forget(asked, &there.into_iter().collect());
    }
    Ok(())
}

/// Says all that this replica knows, before it signs off: nobody will have to wait for its word. No answer about a lease
/// is trusted from then on.
pub async fn report_and_deregister(app: &App) -> Result<()> {
    let mut all = app.lease_spend.end();
    // In one order, so that two that sign off at once do not wait for each other.
    all.sort_unstable();
    let mut tx = app.store.begin().await?;
    for some in all.chunks(1_000) {
        tx.report_spends(some).await?;
    }
    tx.drop_replica(&app.replica_id).await?;
    tx.commit().await.map(drop)
}

/// The ledger: credits that keys cannot spend, because what held them is gone.
pub async fn withheld(app: &App, key: Option<&KeyId>) -> Result<Vec<WithheldCredits>> {
    app.store.read().await?.withheld(key).await
}

/// How many credits the ledger holds.
pub async fn sum_withheld(app: &App) -> Result<i64> {
    app.store.read().await?.units_withheld().await
}

/// Gives back what the ledger holds, of one key or of all, proven or not; how many credits that were. Who
/// asks for it knows that what held them will not come back.
pub async fn release(app: &App, key: Option<&KeyId>) -> Result<i64> {
    let actor = Some(Actor::Command("cli"));
    if let Some(key) = key {
        return give_back(app, std::iter::once(key.clone()), false, actor).await;
    }
    let mut released: i64 = 0;
    loop {
        let page = app.store.read().await?.list_unreported_leases("", None, AT_ONCE).await?;
        if page.is_empty() {
            return Ok(released);
        }
        let keys = page.into_iter().map(|lease| lease.key_id);
        released = released.saturating_add(give_back(app, keys, false, actor).await?);
    }
}

/// Gives back what is withheld of these keys, in one transaction of as many statements whatever it holds; how many
/// credits that were.
async fn give_back(
    app: &App,
    keys: impl Iterator<Item = KeyId>,
    only_proven: bool,
    actor: Option<Actor<'_>>,
) -> Result<i64> {
    let only_proven = only_proven && !Safeguard::EveryReport.is_disabled();
    let mut keys: Vec<_> = keys.collect();
    if only_proven {
        let proven = app.store.read().await?.withheld_of(&keys, true).await?;
        keys = proven.into_iter().map(|lease| lease.key_id).collect();
    }
    if keys.is_empty() {
        return Ok(0);
    }
    keys.sort_unstable();
    keys.dedup();
    let mut tx = app.store.begin().await?;
    match actor {
        // Another pass gives back what belongs to an account that somebody holds: the rest need not wait for it.
        None if !Safeguard::Claim.is_disabled() => keys = tx.claim_accounts(&keys).await?,
        _ => tx.lock_accounts(&keys).await?,
    }
    // Only now: what the one who held an account before has written is seen.
    let entries = tx.withheld_of(&keys, only_proven).await?;
    if entries.is_empty() {
        return Ok(0);
    }
    let mut units: BTreeMap<&KeyId, i64> = BTreeMap::new();
    for entry in &entries {
        let sum = units.entry(&entry.key_id).or_default();
        *sum = sum.saturating_add(entry.units);
    }
    let units: Vec<_> = units.into_iter().map(|(key, units)| (key.clone(), units)).collect();
    let leases: Vec<_> = entries.iter().map(|e| (e.key_id.clone(), e.epoch)).collect();
    let leased = tx.return_units(&units).await?;
    tx.drop_withheld(&leases).await?;
    match actor {
        // No replica need know of it before it asks for the account again, and nobody waits while accounts are held.
        None => drop(tx.commit().await?),
        Some(actor) => {
            write_down(app, &mut tx, actor, &entries).await?;
            for (key, _) in &units {
                tx.changed(freshness::CacheTag::Key(key.clone()));
            }
            app.commit(tx).await?;
        }
    }
    let returned = units.iter().map(|(_, units)| *units).fold(0, i64::saturating_add);
    // What their leases tell of these balances is too low.
    app.debits.note_debited(leased);
    app.metrics.credits_returned.inc_by(u64::try_from(returned).unwrap_or(0));
    tracing::info!(units = returned, "{returned} credits are given back");
    Ok(returned)
}

/// Records what was given back at somebody's word: one entry for each lease.
async fn write_down(
    app: &App,
    tx: &mut Tx,
    actor: Actor<'_>,
    entries: &[WithheldCredits],
) -> Result<()> {
    let mut workspaces: BTreeMap<&WorkspaceId, AuditBatch> = BTreeMap::new();
    for WithheldCredits { key_id, workspace_id, .. } in entries {
        let entries = workspaces
            .entry(workspace_id)
            .or_insert_with(|| AuditBatch::new(actor, workspace_id, app.clock.now()));
        entries.add("key.update", &[Target::new("key", key_id.as_str())]);
    }
    for entries in workspaces.into_values() {
        entries.write(tx).await?;
    }
    Ok(())
}
