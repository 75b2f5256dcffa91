//! Direct debits of an embedded server.
//!
//! One queue sends all debits over the one connection that writes. It caches the balances of the accounts that it has
//! debited, and writes the debits of a batch as one row of a journal, however many keys they concern; see
//! [`store`]'s journal. The cache is correct as long as no other transaction runs between two of its own.

use std::collections::HashMap;

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::KeyId;
use foundation::model::Credits;
use store::Tx;

use super::debit_queue::DebitRequest;
use super::{ConsumeDecision, direct_debit, leases};
use crate::context::Context;
use crate::credits::CreditLedger;
use crate::refill;

/// The maximum number of journal entries, one per key of a batch, and of keys in the journal, before it is folded
/// into the balances. They bound how long folding takes.
const ENTRIES_MAX: usize = 10_000;
const KEYS_MAX: usize = 1_000;
/// The maximum number of cached accounts.
const ACCOUNTS_MAX: usize = 100_000;

/// The balances of accounts, with all debits of the journal subtracted.
#[derive(Default)]
pub struct BalanceCache {
    accounts: HashMap<KeyId, CachedBalance>,
    /// The number of the next transaction, if nothing else is written before it.
    next_transaction: Option<u64>,
    /// The number of journal entries, and of keys in the journal.
    entry_count: usize,
    key_count: usize,
    /// How often the journal was folded.
    fold_count: u64,
}

struct CachedBalance {
    credits: Credits,
    /// The number of the fold that includes its last debit.
    included_in_fold: u64,
}

impl From<Credits> for CachedBalance {
    fn from(credits: Credits) -> Self {
        Self { credits, included_in_fold: 0 }
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
        let mut tx = context.store.store()?.begin_debits().await?;
        let number = tx.transaction_number();
        if self.next_transaction != number && debits.iter().all(|debit| debit.cost == 0) {
            return peek(context, tx, debits).await;
        }
        if self.next_transaction != number || self.accounts.len() > ACCOUNTS_MAX {
            self.fold(&mut tx).await?;
            self.accounts.clear();
        } else if self.entry_count >= ENTRIES_MAX || self.key_count >= KEYS_MAX {
            self.fold(&mut tx).await?;
        }
        self.load(context, &mut tx, debits).await?;
        let mut spent: HashMap<&KeyId, i64> = HashMap::new();
        let outcomes = debits.iter_mut().map(|debit| {
            let account = self.accounts.get_mut(&debit.key)?;
            if debit.reply_sender.is_closed() {
                return None;
            }
            let balance = &mut account.credits.balance;
            let before = *balance;
            let outcome = direct_debit::decide_debit(context, debit, balance);
            if *balance < before {
                *spent.entry(&debit.key).or_default() += before - *balance;
                self.key_count += usize::from(account.included_in_fold <= self.fold_count);
                account.included_in_fold = self.fold_count + 1;
            }
            Some(outcome)
        });
        let outcomes: Vec<_> = outcomes.collect();
        if !spent.is_empty() {
            self.entry_count += spent.len();
            tx.append_debits(&spent).await?;
        }
        tx.commit().await?;
        self.next_transaction = number.map(|number| number + 1);
        Ok(outcomes)
    }

    async fn fold(&mut self, tx: &mut Tx) -> Result<()> {
        tx.fold_debits().await?;
        (self.entry_count, self.key_count) = (0, 0);
        self.fold_count += 1;
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
            let accounts = accounts.into_iter().map(|(key, credits, _)| (key, credits.into()));
            self.accounts.extend(accounts);
        }
        let now = context.clock.now();
        for DebitRequest { key, .. } in debits {
            let Some(CachedBalance { credits, .. }) = self.accounts.get(key) else { continue };
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
mod tests {
    use std::path::PathBuf;

    use foundation::clock::Clock;
    use foundation::id::{ApiId, WorkspaceId};
    use foundation::model::{Api, ApiSettings, Key};
    use store::Store;
    use tokio::sync::{MutexGuard, oneshot};

    use super::*;
    use crate::credits::tests::embedded_context;

    const NOW: Timestamp = Timestamp(1_000);

    type ReplyReceiver = oneshot::Receiver<Result<Option<ConsumeDecision>>>;

    /// A ledger with a file of its own, which nothing else writes.
    struct Fixture {
        ledger: CreditLedger,
        directory: PathBuf,
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }

    impl Fixture {
        async fn start() -> Self {
            let name = format!("keyward-journal-{}", KeyId::random().as_str());
            let directory = std::env::temp_dir().join(name);
            std::fs::create_dir(&directory).expect("a directory");
            let ledger = CreditLedger::new(embedded_context(Clock::fixed_at(NOW)));
            let fixture = Self { ledger, directory };
            let file = fixture.directory.join("keyward.db");
            let store = Store::open(&file).await.expect("the file is opened");
            store.migrate().await.expect("the schema is migrated");
            fixture.ledger.context.store.set(store);
            fixture
        }

        async fn begin(&self) -> Tx {
            self.ledger.context.store.begin().await.expect("a transaction")
        }

        /// Creates a key with this many credits.
        async fn create_key(&self, balance: i64) -> KeyId {
            let (workspace, api) = (WorkspaceId::random(), ApiId::random());
            let mut tx = self.begin().await;
            tx.insert_workspace(&workspace, "a workspace", NOW).await.expect("a workspace");
            tx.insert_api(&an_api(&workspace, &api)).await.expect("an API");
            let key = a_key(workspace, api, balance);
            tx.insert_key(&key).await.expect("a key");
            tx.commit().await.expect("a commit");
            key.id
        }

        /// Debits a key. Returns the credits left.
        async fn debit(&self, key: &KeyId, cost: i64) -> i64 {
            let (debit, _reply) = request(key, cost);
            let decisions = decide(&self.ledger, &mut [debit]).await.expect("a decision");
            decisions[0].as_ref().and_then(|decision| decision.credits).expect("a metered key")
        }

        async fn balances(&self) -> MutexGuard<'_, BalanceCache> {
            self.ledger.direct_debits.balances.lock().await
        }

        /// Returns the number of folds, and those of the entries and keys in the journal.
        async fn counts(&self) -> (u64, usize, usize) {
            let balances = self.balances().await;
            (balances.fold_count, balances.entry_count, balances.key_count)
        }
    }

    fn request(key: &KeyId, cost: i64) -> (DebitRequest, ReplyReceiver) {
        let (reply_sender, reply) = oneshot::channel();
        let (key, windows, unsettled) = (key.clone(), Vec::new(), None);
        (DebitRequest { key, windows, cost, unsettled, reply_sender }, reply)
    }

    fn an_api(workspace: &WorkspaceId, id: &ApiId) -> Api {
        Api {
            id: id.clone(),
            workspace_id: workspace.clone(),
            name: "an API".into(),
            settings: ApiSettings::default(),
            home: None,
            created_at: NOW,
            deleted_at: None,
        }
    }

    fn a_key(workspace_id: WorkspaceId, api_id: ApiId, balance: i64) -> Key {
        let id = KeyId::random();
        Key {
            workspace_id,
            api_id,
            hash: id.as_str().into(),
            start: "3kQz".into(),
            prefix: None,
            byte_length: 16,
            name: None,
            meta: None,
            identity_id: None,
            owner_id: None,
            environment: None,
            is_enabled: true,
            expires_at: None,
            credits: Some(credits(balance)),
            created_at: NOW,
            updated_at: None,
            id,
        }
    }

    fn credits(balance: i64) -> Credits {
        Credits { balance, last_lease_number: 0, refill: None, refilled_period: 0 }
    }

    #[tokio::test]
    async fn balances_are_loaded_again_only_after_another_transaction() {
        let fixture = Fixture::start().await;
        let key = fixture.create_key(10).await;

        // A peek and a rejected debit are among them.
        for (cost, left) in [(3, 7), (1, 6), (0, 6), (7, 6), (1, 5)] {
            assert_eq!(fixture.debit(&key, cost).await, left);
        }
        assert_eq!(fixture.counts().await, (1, 3, 1), "folded before the first debit");

        fixture.begin().await.commit().await.expect("a commit");
        assert_eq!(fixture.debit(&key, 1).await, 4);
        assert_eq!(fixture.counts().await, (2, 1, 1));
    }

    #[tokio::test]
    async fn debits_of_an_earlier_process_are_in_the_balance() {
        let fixture = Fixture::start().await;
        let key = fixture.create_key(10).await;
        assert_eq!(fixture.debit(&key, 3).await, 7);
        *fixture.balances().await = BalanceCache::default();

        assert_eq!(fixture.debit(&key, 0).await, 7);
        assert_eq!(fixture.counts().await, (0, 0, 0), "a peek folds nothing");
        assert_eq!(fixture.debit(&key, 1).await, 6);
        assert_eq!(fixture.counts().await, (1, 1, 1));
    }

    #[tokio::test]
    async fn journal_is_folded_when_it_has_too_many_entries_or_keys() {
        let fixture = Fixture::start().await;
        let key = fixture.create_key(10).await;
        assert_eq!(fixture.debit(&key, 1).await, 9);
        let cases =
            [(ENTRIES_MAX - 1, KEYS_MAX - 1, false), (ENTRIES_MAX, 1, true), (1, KEYS_MAX, true)];

        for ((entry_count, key_count, is_folded), left) in cases.into_iter().zip([8, 7, 6]) {
            let mut balances = fixture.balances().await;
            (balances.entry_count, balances.key_count) = (entry_count, key_count);
            let folds = balances.fold_count;
            drop(balances);

            assert_eq!(fixture.debit(&key, 1).await, left);

            let expected = match is_folded {
                true => (folds + 1, 1, 1),
                // The journal has the key already.
                false => (folds, entry_count + 1, key_count),
            };
            assert_eq!(fixture.counts().await, expected);
        }
    }

    #[tokio::test]
    async fn cached_balances_are_dropped_when_there_are_too_many() {
        let fixture = Fixture::start().await;
        let key = fixture.create_key(10).await;
        assert_eq!(fixture.debit(&key, 1).await, 9);

        for (count, kept, left) in [(ACCOUNTS_MAX, ACCOUNTS_MAX, 8), (ACCOUNTS_MAX + 1, 1, 7)] {
            let mut balances = fixture.balances().await;
            for number in balances.accounts.len()..count {
                let other = KeyId::from(format!("key_{number}"));
                balances.accounts.insert(other, credits(1).into());
            }
            drop(balances);

            assert_eq!(fixture.debit(&key, 1).await, left);

            assert_eq!(fixture.balances().await.accounts.len(), kept);
        }
    }

    #[tokio::test]
    async fn caller_that_has_stopped_waiting_is_not_debited() {
        let fixture = Fixture::start().await;
        let key = fixture.create_key(10).await;
        let (abandoned, reply) = request(&key, 3);
        let (waiting, _reply) = request(&key, 2);
        drop(reply);

        let decisions =
            decide(&fixture.ledger, &mut [abandoned, waiting]).await.expect("decisions");

        let left: Vec<_> = decisions.into_iter().map(|decision| decision?.credits).collect();
        assert_eq!(left, [None, Some(8)]);
    }
}
