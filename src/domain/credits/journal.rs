//! Direct debits of an embedded server.
//!
//! One queue debits, on the one connection that writes. It remembers the balances of the accounts that it has debited, and
//! writes what a batch has spent as one row of a journal, whatever number of keys that concerns; see
//! [`store`]'s journal. What it remembers is true as long as no other transaction comes between two of its own.

use std::collections::HashMap;

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::KeyId;
use foundation::model::Credits;
use store::Tx;

use super::debit_queue::Debit;
use super::{ConsumeDecision, direct_debit, leases};
use crate::app::App;
use crate::domain::refill;

/// How many entries the journal has, one for each key of a batch, and of how many keys, before it is folded into the
/// balances. They bound how long that takes.
const ENTRIES_MAX: usize = 10_000;
const KEYS_MAX: usize = 1_000;
/// How many accounts are remembered.
const ACCOUNTS_MAX: usize = 100_000;

/// The balances of accounts, with all debits of the journal taken off.
#[derive(Default)]
pub struct Balances {
    accounts: HashMap<KeyId, Balance>,
    /// The number that the next transaction has if nothing else has been written until then.
    next: Option<u64>,
    /// How many entries the journal has, and of how many keys.
    entries: usize,
    keys: usize,
    /// How often the journal was folded.
    folds: u64,
}

struct Balance {
    credits: Credits,
    /// The number of the fold that its last debit waits for.
    waits_for: u64,
}

impl From<Credits> for Balance {
    fn from(credits: Credits) -> Self {
        Self { credits, waits_for: 0 }
    }
}

/// Decides debits in their order and commits them. Returns `None` for a key that is not metered.
pub async fn decide(app: &App, debits: &mut [Debit]) -> Result<Vec<Option<ConsumeDecision>>> {
    let mut remembered = app.debits.balances.lock().await;
    // Where a transaction fails, nothing is remembered.
    let mut balances = std::mem::take(&mut *remembered);
    let outcomes = balances.decide(app, debits).await?;
    *remembered = balances;
    Ok(outcomes)
}

impl Balances {
    async fn decide(
        &mut self,
        app: &App,
        debits: &mut [Debit],
    ) -> Result<Vec<Option<ConsumeDecision>>> {
        let mut tx = app.store.store()?.begin_debits().await?;
        let number = tx.number();
        if self.next != number && debits.iter().all(|debit| debit.cost == 0) {
            return peek(app, tx, debits).await;
        }
        if self.next != number || self.accounts.len() > ACCOUNTS_MAX {
            self.fold(&mut tx).await?;
            self.accounts.clear();
        } else if self.entries >= ENTRIES_MAX || self.keys >= KEYS_MAX {
            self.fold(&mut tx).await?;
        }
        self.load(app, &mut tx, debits).await?;
        let mut spent: HashMap<&KeyId, i64> = HashMap::new();
        let outcomes = debits.iter_mut().map(|debit| {
            let account = self.accounts.get_mut(&debit.key)?;
            if debit.answer.is_closed() {
                return None;
            }
            let balance = &mut account.credits.balance;
            let before = *balance;
            let outcome = direct_debit::debit_one(app, debit, balance);
            if *balance < before {
                *spent.entry(&debit.key).or_default() += before - *balance;
                self.keys += usize::from(account.waits_for <= self.folds);
                account.waits_for = self.folds + 1;
            }
            Some(outcome)
        });
        let outcomes: Vec<_> = outcomes.collect();
        if !spent.is_empty() {
            self.entries += spent.len();
            tx.append_debits(&spent).await?;
        }
        tx.commit().await?;
        self.next = number.map(|number| number + 1);
        Ok(outcomes)
    }

    async fn fold(&mut self, tx: &mut Tx) -> Result<()> {
        tx.fold_debits().await?;
        (self.entries, self.keys) = (0, 0);
        self.folds += 1;
        Ok(())
    }

    /// Reads the accounts that are not remembered, and refills those that are due.
    async fn load(&mut self, app: &App, tx: &mut Tx, debits: &[Debit]) -> Result<()> {
        let unknown = debits.iter().map(|debit| &debit.key);
        let unknown = keys(unknown.filter(|key| !self.accounts.contains_key(key)));
        if !unknown.is_empty() {
            let accounts = tx.lock_credits(&unknown).await?;
            let accounts = accounts.into_iter().map(|(key, credits, _)| (key, credits.into()));
            self.accounts.extend(accounts);
        }
        let now = app.clock.now();
        for Debit { key, .. } in debits {
            let Some(Balance { credits, .. }) = self.accounts.get(key) else { continue };
            if refill::apply_refill(*credits, now) == *credits {
                continue;
            }
            self.fold(tx).await?;
            let Some(mut account) = tx.lock_account(key).await? else { continue };
            leases::refill_if_due(tx, key, &mut account, now).await?;
            tx.update_balance(key, &account.credits).await?;
            self.accounts.insert(key.clone(), account.credits.into());
        }
        Ok(())
    }
}

/// Decides debits that spend nothing, and writes nothing: balances are told although the disk may be full.
async fn peek(app: &App, mut tx: Tx, debits: &mut [Debit]) -> Result<Vec<Option<ConsumeDecision>>> {
    let keys = keys(debits.iter().map(|debit| &debit.key));
    let spent = tx.debits_of(&keys).await?;
    let now = app.clock.now();
    let balance = |(key, credits, _): (KeyId, Credits, Timestamp)| {
        let spent = spent.get(&key).copied().unwrap_or(0);
        let credits = Credits { balance: credits.balance - spent, ..credits };
        (key, refill::apply_refill(credits, now).balance)
    };
    let mut balances: HashMap<_, _> =
        tx.lock_credits(&keys).await?.into_iter().map(balance).collect();
    let outcomes = debits.iter_mut().map(|debit| {
        let balance = balances.get_mut(&debit.key)?;
        Some(direct_debit::debit_one(app, debit, balance))
    });
    let outcomes = outcomes.collect();
    // What others have changed before it in the same commit is told once it is durable.
    tx.commit().await?;
    Ok(outcomes)
}

/// In order, each once.
fn keys<'a>(keys: impl Iterator<Item = &'a KeyId>) -> Vec<KeyId> {
    let mut keys: Vec<_> = keys.cloned().collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}
