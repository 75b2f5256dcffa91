//! Direct debits of an embedded server.
//!
//! One queue sends all debits over the one connection that writes. It caches the balances of the accounts that it has
//! debited, and writes the debits of a batch as one row of a journal, however many keys they concern; see
//! [`store`]'s journal. The cache is correct as long as no other transaction runs between two of its own.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use foundation::clock::{Stopwatch, Timestamp};
use foundation::error::Result;
use foundation::id::KeyId;
use foundation::model::Credits;
use store::Tx;

use super::debit_queue::DebitRequest;
use super::{ConsumeDecision, direct_debit, leases};
use crate::context::Context;
use crate::credits::CreditLedger;
use crate::refill;

/// The bounds of the number of journal entries, one per key of a batch, from which it is folded into the balances.
const FOLDED_ENTRIES: RangeInclusive<usize> = 1_000..=20_000;
/// How long the statement that folds the journal may take. The more entries it has, the fewer pages are written for
/// each debit, the fewer debits wait for a fold, and the longer these do.
const FOLD_TIME: Duration = Duration::from_millis(25);
/// The maximum number of cached accounts.
const ACCOUNTS_MAX: usize = 100_000;

/// The balances of accounts, with all debits of the journal subtracted.
pub struct BalanceCache {
    accounts: HashMap<KeyId, Credits>,
    /// The number of the next transaction, if nothing else is written before it.
    next_transaction: Option<u64>,
    /// The number of journal entries, and from which number on they are folded.
    entry_count: usize,
    entries_max: usize,
}

impl Default for BalanceCache {
    fn default() -> Self {
        let entries_max = *FOLDED_ENTRIES.start();
        Self { accounts: HashMap::new(), next_transaction: None, entry_count: 0, entries_max }
    }
}

/// Decides debits in their order and commits them. Returns `None` for a key that is not metered.
pub async fn decide(
    ledger: &CreditLedger,
    debits: &mut [DebitRequest],
) -> Result<Vec<Option<ConsumeDecision>>> {
    let mut remembered = ledger.direct_debits.balances.lock().await;
    // If a transaction fails, the cache stays empty.
    let mut balances = std::mem::take(&mut *remembered);
    let outcomes = balances.decide(&ledger.context, debits).await?;
    *remembered = balances;
    Ok(outcomes)
}

impl BalanceCache {
    async fn decide(
        &mut self,
        context: &Context,
        debits: &mut [DebitRequest],
    ) -> Result<Vec<Option<ConsumeDecision>>> {
        if let Some(outcomes) = self.decide_from_cache(context, debits).await? {
            return Ok(outcomes);
        }
        let mut tx = context.store.store()?.begin_debits().await?;
        let number = tx.transaction_number();
        if self.next_transaction != number && debits.iter().all(|debit| debit.cost == 0) {
            return peek(context, tx, debits).await;
        }
        if self.next_transaction != number || self.accounts.len() > ACCOUNTS_MAX {
            // The other transaction has probably folded the journal: this fold tells nothing about how long one takes.
            tx.fold_debits().await?;
            self.entry_count = 0;
            self.accounts.clear();
        } else if self.entry_count >= self.entries_max {
            self.fold(&mut tx).await?;
        }
        self.load(context, &mut tx, debits).await?;
        let (outcomes, spent) = self.decide_each(context, debits);
        if !spent.is_empty() {
            tx.append_debits(&spent).await?;
        }
        tx.commit().await?;
        self.next_transaction = number.map(|number| number + 1);
        self.subtract(spent);
        Ok(outcomes)
    }

    /// Decides debits whose balances are all cached, with a single statement. Returns `None`, and decides nothing, if
    /// anything else has been written since, or if the debits need a transaction: to load, refill or fold something, or
    /// because they spend nothing, so that no row would prove that the balances are current. Windows need one, too:
    /// a decision consumes them, so it must not be repeated.
    async fn decide_from_cache(
        &mut self,
        context: &Context,
        debits: &mut [DebitRequest],
    ) -> Result<Option<Vec<Option<ConsumeDecision>>>> {
        let Some(number) = self.next_transaction else { return Ok(None) };
        let now = context.clock.now();
        let is_cached = |debit: &DebitRequest| {
            let is_current = |credits: &Credits| refill::apply_refill(*credits, now) == *credits;
            debit.windows.is_empty() && self.accounts.get(&debit.key).is_some_and(is_current)
        };
        if self.entry_count >= self.entries_max
            || self.accounts.len() > ACCOUNTS_MAX
            || !debits.iter().all(is_cached)
        {
            return Ok(None);
        }
        let (outcomes, spent) = self.decide_each(context, debits);
        if spent.is_empty() || !context.store.store()?.append_debits(number, &spent).await? {
            return Ok(None);
        }
        self.next_transaction = Some(number + 1);
        self.subtract(spent);
        Ok(Some(outcomes))
    }

    /// Decides debits in their order. Returns also what each key spends, which is not subtracted yet.
    fn decide_each<'a>(
        &self,
        context: &Context,
        debits: &'a mut [DebitRequest],
    ) -> (Vec<Option<ConsumeDecision>>, HashMap<&'a KeyId, i64>) {
        let mut spent: HashMap<&KeyId, i64> = HashMap::new();
        let outcomes = debits.iter_mut().map(|debit| {
            let account = self.accounts.get(&debit.key)?;
            if debit.reply_sender.is_closed() {
                return None;
            }
            let before = account.balance - spent.get(&debit.key).copied().unwrap_or(0);
            let mut balance = before;
            let outcome = direct_debit::decide_debit(context, debit, &mut balance);
            if balance < before {
                *spent.entry(&debit.key).or_default() += before - balance;
            }
            Some(outcome)
        });
        (outcomes.collect(), spent)
    }

    /// Subtracts what a row of the journal has.
    fn subtract(&mut self, spent: HashMap<&KeyId, i64>) {
        self.entry_count += spent.len();
        for (key, units) in spent {
            if let Some(account) = self.accounts.get_mut(key) {
                account.balance -= units;
            }
        }
    }

    async fn fold(&mut self, tx: &mut Tx) -> Result<()> {
        let began = Stopwatch::new();
        tx.fold_debits().await?;
        if let Some(next) = next_fold_size(self.entry_count, began.elapsed()) {
            self.entries_max = next;
        }
        self.entry_count = 0;
        Ok(())
    }

    /// Loads the accounts that are not cached, and applies the refills that are due.
    async fn load(
        &mut self,
        context: &Context,
        tx: &mut Tx,
        debits: &[DebitRequest],
    ) -> Result<()> {
        let unknown = debits.iter().map(|debit| &debit.key);
        let unknown = sorted_keys(unknown.filter(|key| !self.accounts.contains_key(key)));
        if !unknown.is_empty() {
            let accounts = tx.lock_credits(&unknown).await?;
            self.accounts.extend(accounts.into_iter().map(|(key, credits, _)| (key, credits)));
        }
        let now = context.clock.now();
        for DebitRequest { key, .. } in debits {
            let Some(credits) = self.accounts.get(key) else { continue };
            if refill::apply_refill(*credits, now) == *credits {
                continue;
            }
            self.fold(tx).await?;
            let Some(mut account) = tx.lock_account(key).await? else { continue };
            leases::refill_if_due(tx, key, &mut account, now).await?;
            tx.update_balance(key, &account.credits).await?;
            self.accounts.insert(key.clone(), account.credits);
        }
        Ok(())
    }
}

/// Returns how many entries to fold together next, after a fold of `count` entries that took this long. Returns `None`
/// if they were too few to tell how long more of them take.
fn next_fold_size(count: usize, took: Duration) -> Option<usize> {
    let (min, max) = FOLDED_ENTRIES.into_inner();
    let folded = u32::try_from(count).ok().filter(|_| count >= min)?;
    let fitting = FOLD_TIME.as_nanos() / (took / folded).as_nanos().max(1);
    Some(usize::try_from(fitting).unwrap_or(max).clamp(min, max))
}

/// Decides debits that spend nothing, without a write: balances can be read even if the disk is full.
async fn peek(
    context: &Context,
    mut tx: Tx,
    debits: &mut [DebitRequest],
) -> Result<Vec<Option<ConsumeDecision>>> {
    let keys = sorted_keys(debits.iter().map(|debit| &debit.key));
    let spent = tx.load_debits(&keys).await?;
    let now = context.clock.now();
    let balance = |(key, credits, _): (KeyId, Credits, Timestamp)| {
        let spent = spent.get(&key).copied().unwrap_or(0);
        let credits = Credits { balance: credits.balance - spent, ..credits };
        (key, refill::apply_refill(credits, now).balance)
    };
    let mut balances: HashMap<_, _> =
        tx.lock_credits(&keys).await?.into_iter().map(balance).collect();
    let outcomes = debits.iter_mut().map(|debit| {
        let balance = balances.get_mut(&debit.key)?;
        Some(direct_debit::decide_debit(context, debit, balance))
    });
    let outcomes = outcomes.collect();
    // Changes by earlier statements of the same group commit are reported only after they are durable.
    tx.commit().await?;
    Ok(outcomes)
}

/// Returns the keys sorted, without duplicates.
fn sorted_keys<'a>(keys: impl Iterator<Item = &'a KeyId>) -> Vec<KeyId> {
    let mut keys: Vec<_> = keys.cloned().collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

#[cfg(test)]
mod tests;
