//! What a lost Redis holds back, and when that is given back.
//!
//! A script tells with every spend how much has been spent from the purse in all, and nobody is told VALID without
//! that. So each replica knows of each purse an amount that includes all it has said VALID for. When a purse is gone, every
//! replica that may have spent from it tells the bank, and from then on trusts no answer about it. Once all have, the
//! rest is proven unspent and goes back. A replica that was killed says nothing; then it is for an operator to decide.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use super::super::audit::{self, Actor, Target};
use crate::app::App;
use crate::error::Result;
use crate::id::KeyId;
use crate::model::{Purse, Withheld};
use crate::store::freshness;

/// How many purses are accounted for in one transaction.
const AT_ONCE: i64 = 200;
/// How long before a purse was made a replica must have been silent, so that it cannot have known of it.
const SILENT_MS: i64 = 30_000;

/// What this process knows of the purses that it has spent from.
pub struct Spent {
    shards: Vec<Mutex<HashMap<KeyId, Vec<Known>>>>,
    /// Purses of which no answer is trusted any more.
    retired: RwLock<HashSet<(KeyId, i64)>>,
}

/// What is known of one purse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Known {
    epoch: i64,
    /// What was spent from it in all, at least.
    spent: i64,
}

impl Default for Spent {
    fn default() -> Self {
        let shards = (0..64).map(|_| Mutex::default()).collect();
        Self { shards, retired: RwLock::default() }
    }
}

impl Spent {
    fn shard(&self, key: &KeyId) -> MutexGuard<'_, HashMap<KeyId, Vec<Known>>> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        self.shards[(hash % 64) as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, key: &KeyId, epoch: i64, spent: i64) {
        let mut shard = self.shard(key);
        if !shard.contains_key(key) {
            shard.insert(key.clone(), Vec::with_capacity(1));
        }
        let Some(purses) = shard.get_mut(key) else { return };
        if let Some(known) = purses.iter_mut().find(|known| known.epoch == epoch) {
            known.spent = known.spent.max(spent);
            return;
        }
        purses.push(Known { epoch, spent });
    }

    /// A script has told what was spent from a purse in all. Whether that may be relied on: not any more,
    /// once this process has said what it knows of the purse.
    pub fn heard(&self, key: &KeyId, epoch: i64, spent: i64) -> bool {
        // Held until it is written down, so that what is said later includes it.
        let retired = self.retired.read().unwrap_or_else(PoisonError::into_inner);
        if !retired.is_empty() && retired.contains(&(key.clone(), epoch)) {
            return false;
        }
        self.note(key, epoch, spent);
        true
    }

    /// What is known of this purse, for the last time: no answer about it is trusted from now on.
    fn retire(&self, key: &KeyId, epoch: i64) -> Known {
        let mut retired = self.retired.write().unwrap_or_else(PoisonError::into_inner);
        retired.insert((key.clone(), epoch));
        drop(retired);
        let shard = self.shard(key);
        let known = shard.get(key).into_iter().flatten().find(|known| known.epoch == epoch);
        known.copied().unwrap_or(Known { epoch, ..Known::default() })
    }

    /// All that is known.
    fn all(&self) -> Vec<(KeyId, Known)> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, purses) in shard.iter() {
                all.extend(purses.iter().map(|known| (key.clone(), *known)));
            }
        }
        all
    }

    /// Forgets what concerns purses that the bank does not know any more.
    fn forget(&self, asked: &[(KeyId, i64)], there: &HashSet<(KeyId, i64)>) {
        let is_gone = |purse: &(KeyId, i64)| !there.contains(purse);
        for purse in asked.iter().filter(|purse| is_gone(purse)) {
            let mut shard = self.shard(&purse.0);
            if let Some(purses) = shard.get_mut(&purse.0) {
                purses.retain(|known| known.epoch != purse.1);
                if purses.is_empty() {
                    shard.remove(&purse.0);
                }
            }
            drop(shard);
            let mut retired = self.retired.write().unwrap_or_else(PoisonError::into_inner);
            retired.remove(purse);
        }
    }
}

/// Says of every purse that is gone what this replica knows of it, and gives back what is proven unspent.
pub async fn account(app: &App) -> Result<()> {
    loop {
        let mut tx = app.store.begin().await?;
        let gone = tx.purses_to_account(&app.replica, AT_ONCE).await?;
        for (key, epoch) in &gone {
            let Known { spent, .. } = app.spent.retire(key, *epoch);
            tx.account_for_purse(key, *epoch, &app.replica, spent).await?;
        }
        tx.commit().await?;
        if i64::try_from(gone.len()).unwrap_or(AT_ONCE) < AT_ONCE {
            break;
        }
    }
    let proven = app.store.read().await?.purses_proven(SILENT_MS).await?;
    for entry in proven {
        let units = give_back(app, &entry, None).await?;
        tracing::info!(key.id = %entry.key_id, units, "{units} credits are proven unspent");
    }
    Ok(())
}

/// Forgets what this process knows of purses that have been settled.
pub async fn forget_settled(app: &App) -> Result<()> {
    let all: Vec<_> = app.spent.all().into_iter().map(|(key, known)| (key, known.epoch)).collect();
    for asked in all.chunks(1_000) {
        let keys: Vec<_> = asked.iter().map(|(key, _)| key.clone()).collect();
        let there = app.store.read().await?.purses_of(&keys).await?;
        app.spent.forget(asked, &there.into_iter().collect());
    }
    Ok(())
}

/// Says all that this replica knows, before it signs off: nobody will have to wait for its word.
pub async fn sign_off(app: &App) -> Result<()> {
    let mut tx = app.store.begin().await?;
    for (key, Known { epoch, spent }) in app.spent.all() {
        tx.tell_of_purse(&key, epoch, spent).await?;
    }
    tx.drop_replica(&app.replica).await?;
    tx.commit().await.map(drop)
}

/// The ledger: credits that keys cannot spend, because what held them is gone.
pub async fn withheld(app: &App, key: Option<&KeyId>) -> Result<Vec<Withheld>> {
    app.store.read().await?.withheld(key).await
}

/// How many credits the ledger holds.
pub async fn units_withheld(app: &App) -> Result<i64> {
    app.store.read().await?.units_withheld().await
}

/// Gives back what the ledger holds, of one key or of all, proven or not; how many credits that were. Who
/// asks for it knows that what held them will not come back.
pub async fn release(app: &App, key: Option<&KeyId>) -> Result<i64> {
    let mut released: i64 = 0;
    for entry in withheld(app, key).await? {
        released =
            released.saturating_add(give_back(app, &entry, Some(Actor::Command("cli"))).await?);
    }
    Ok(released)
}

async fn give_back(app: &App, entry: &Withheld, actor: Option<Actor<'_>>) -> Result<i64> {
    let key = &entry.key_id;
    let mut tx = app.store.begin().await?;
    let Some(mut account) = tx.lock_account(key).await? else {
        tx.drop_purse(key, entry.epoch).await?;
        return tx.commit().await.map(|_| 0);
    };
    let held = |purse: &&Purse| purse.epoch == entry.epoch && purse.withheld_at.is_some();
    let Some(purse) = account.purses.iter().find(held) else { return Ok(0) };
    let units = purse.unspent();
    account.credits.balance = account.credits.balance.saturating_add(units);
    // Another number, so that no replica goes back to the old purse.
    account.credits.version += 1;
    tx.drop_purse(key, entry.epoch).await?;
    tx.move_credits(key, &account.credits).await?;
    if let Some(actor) = actor {
        let (target, now) = (Target::new("key", key.as_str()), app.clock.now());
        let workspace = &entry.workspace_id;
        audit::record(&mut tx, actor, workspace, now, "key.update", &[target]).await?;
    }
    tx.changed(freshness::Subject::Key(key.clone()));
    app.commit(tx).await?;
    app.metrics.credits_returned.inc_by(u64::try_from(units).unwrap_or(0));
    Ok(units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_heard_is_said_once_and_trusted_no_more() {
        let (spent, key) = (Spent::default(), KeyId::from("key_a"));
        assert!(spent.heard(&key, 1, 7));
        assert!(spent.heard(&key, 1, 5), "an answer that was overtaken");
        assert!(spent.heard(&key, 2, 1));

        assert_eq!(spent.retire(&key, 1), Known { epoch: 1, spent: 7 });
        assert!(!spent.heard(&key, 1, 8));
        assert!(spent.heard(&key, 2, 2));
        assert_eq!(spent.retire(&key, 3), Known { epoch: 3, spent: 0 });
    }

    #[test]
    fn what_the_bank_has_settled_is_forgotten() {
        let (spent, key) = (Spent::default(), KeyId::from("key_a"));
        let purse = |epoch| (key.clone(), epoch);
        spent.heard(&key, 1, 7);
        spent.heard(&key, 2, 7);
        spent.retire(&key, 1);

        spent.forget(&[purse(1), purse(2)], &HashSet::from([purse(2)]));

        assert_eq!(spent.all(), [(key.clone(), Known { epoch: 2, spent: 7 })]);
        assert!(spent.heard(&key, 1, 1), "its number will not come again");
    }
}
