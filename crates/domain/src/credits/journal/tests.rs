//! Tests which balances of an embedded server are cached, and what is written to its journal.

use std::path::PathBuf;

use foundation::clock::Clock;
use foundation::id::{ApiId, WorkspaceId};
use foundation::model::{Api, ApiSettings, Key, Refill, RefillInterval};
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
        let store = fixture.open().await;
        store.migrate().await.expect("the schema is migrated");
        fixture.ledger.context.store.set(store);
        fixture
    }

    /// Opens the file, as each process does for itself.
    async fn open(&self) -> Store {
        Store::open(&self.directory.join("keyward.db")).await.expect("the file is opened")
    }

    async fn begin(&self) -> Tx {
        self.ledger.context.store.begin().await.expect("a transaction")
    }

    /// Creates a key with this many credits.
    async fn create_key(&self, balance: i64) -> KeyId {
        self.create_key_with(credits(balance)).await
    }

    async fn create_key_with(&self, credits: Credits) -> KeyId {
        let (workspace, api) = (WorkspaceId::random(), ApiId::random());
        let mut tx = self.begin().await;
        tx.insert_workspace(&workspace, "a workspace", NOW).await.expect("a workspace");
        tx.insert_api(&an_api(&workspace, &api)).await.expect("an API");
        let key = a_key(workspace, api, credits);
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

    /// Returns the number of entries in the journal since it was folded.
    async fn entry_count(&self) -> usize {
        self.balances().await.entry_count
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

fn a_key(workspace_id: WorkspaceId, api_id: ApiId, credits: Credits) -> Key {
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
        credits: Some(credits),
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
    assert_eq!(fixture.entry_count().await, 3);

    fixture.begin().await.commit().await.expect("a commit");
    assert_eq!(fixture.debit(&key, 1).await, 4);
    assert_eq!(fixture.entry_count().await, 1, "folded after the other transaction");
}

#[tokio::test]
async fn debits_that_spend_nothing_are_not_written() {
    let fixture = Fixture::start().await;
    let key = fixture.create_key(10).await;
    assert_eq!(fixture.debit(&key, 1).await, 9);
    let other = fixture.open().await;
    // A number is skipped when another process has written.
    let next_number = async || {
        let tx = other.begin_debits().await.expect("a transaction");
        let number = tx.transaction_number().expect("a number");
        tx.commit().await.expect("a commit");
        number
    };
    let before = next_number().await;

    for cost in [0, 10] {
        assert_eq!(fixture.debit(&key, cost).await, 9);
    }

    assert_eq!(next_number().await, before + 1);
    assert_eq!(fixture.debit(&key, 1).await, 8);
    assert_eq!(next_number().await, before + 3);
}

#[tokio::test]
async fn debits_of_a_batch_are_decided_in_their_order() {
    let fixture = Fixture::start().await;
    let key = fixture.create_key(10).await;
    let other = fixture.create_key(10).await;
    // The first batch loads the accounts.
    for (costs, expected) in
        [([3, 4, 2], [7, 6, 5]), ([6, 1, 2], [5, 5, 3]), ([2, 3, 1], [1, 2, 0])]
    {
        let keys = [&key, &other, &key];
        let (mut debits, _replies): (Vec<_>, Vec<_>) =
            keys.into_iter().zip(costs).map(|(key, cost)| request(key, cost)).unzip();

        let decisions = decide(&fixture.ledger, &mut debits).await.expect("decisions");

        let left: Vec<_> = decisions.into_iter().map(|decision| decision?.credits).collect();
        assert_eq!(left, expected.map(Some), "{costs:?}");
    }
    assert_eq!(fixture.entry_count().await, 6);
    let mut tx = fixture.begin().await;
    for (key, left) in [(key, 0), (other, 2)] {
        let account = tx.lock_account(&key).await.expect("an account").expect("a metered key");
        assert_eq!(account.credits.balance, left);
    }
}

#[tokio::test]
async fn write_of_another_process_is_seen_by_the_next_debit() {
    let fixture = Fixture::start().await;
    let key = fixture.create_key(10).await;
    assert_eq!(fixture.debit(&key, 1).await, 9);
    assert_eq!(fixture.debit(&key, 1).await, 8);
    let other = fixture.open().await;

    let mut tx = other.begin().await.expect("a transaction");
    tx.update_balance(&key, &credits(50)).await.expect("an update");
    tx.commit().await.expect("a commit");

    assert_eq!(fixture.debit(&key, 1).await, 49);
    assert_eq!(fixture.debit(&key, 1).await, 48);
}

#[tokio::test]
async fn refill_that_is_due_is_applied_to_a_cached_balance() {
    let fixture = Fixture::start().await;
    let refill = Some(Refill { interval: RefillInterval::Daily, amount: 100 });
    let due = Credits { refill, refilled_period: -1, ..credits(9) };
    let key = fixture.create_key_with(due).await;
    let other = fixture.create_key(10).await;
    assert_eq!(fixture.debit(&other, 1).await, 9);
    fixture.balances().await.accounts.insert(key.clone(), due);

    assert_eq!(fixture.debit(&key, 1).await, 99);
    assert_eq!(fixture.debit(&key, 1).await, 98);
}

#[tokio::test]
async fn debits_of_an_earlier_process_are_in_the_balance() {
    let fixture = Fixture::start().await;
    let key = fixture.create_key(10).await;
    assert_eq!(fixture.debit(&key, 3).await, 7);
    *fixture.balances().await = BalanceCache::default();

    assert_eq!(fixture.debit(&key, 0).await, 7);
    assert_eq!(fixture.entry_count().await, 0, "a peek writes nothing");
    assert_eq!(fixture.debit(&key, 1).await, 6);
    assert_eq!(fixture.entry_count().await, 1);
}

#[tokio::test]
async fn journal_is_folded_when_it_has_too_many_entries() {
    let fixture = Fixture::start().await;
    let key = fixture.create_key(10).await;
    assert_eq!(fixture.debit(&key, 1).await, 9);
    let min = *FOLDED_ENTRIES.start();
    assert_eq!(fixture.balances().await.entries_max, min);

    for (entry_count, expected, left) in [(min - 1, min, 8), (min, 1, 7)] {
        fixture.balances().await.entry_count = entry_count;
        assert_eq!(fixture.debit(&key, 1).await, left);
        assert_eq!(fixture.entry_count().await, expected);
    }
    // There was one entry in truth.
    assert!(fixture.balances().await.entries_max > min, "after a fast fold");
}

#[tokio::test]
async fn fold_after_another_transaction_does_not_change_the_next_one() {
    let fixture = Fixture::start().await;
    let key = fixture.create_key(10).await;
    assert_eq!(fixture.debit(&key, 1).await, 9);
    let min = *FOLDED_ENTRIES.start();
    fixture.balances().await.entry_count = min;

    // It folds the journal itself.
    fixture.begin().await.commit().await.expect("a commit");
    assert_eq!(fixture.debit(&key, 1).await, 8);

    assert_eq!(fixture.entry_count().await, 1);
    assert_eq!(fixture.balances().await.entries_max, min);
}

#[test]
fn next_fold_is_as_large_as_fits_into_its_time() {
    let ms = Duration::from_millis;
    let (min, max) = FOLDED_ENTRIES.into_inner();
    let cases = [
        (min - 1, ms(1), None),
        (min, FOLD_TIME * 2, Some(min)),
        (min, FOLD_TIME, Some(min)),
        (min, FOLD_TIME / 5, Some(5 * min)),
        (5 * min, FOLD_TIME * 2, Some(5 * min / 2)),
        (min, FOLD_TIME / 20, Some(max)),
        (min, FOLD_TIME / 40, Some(max)),
        (min, Duration::ZERO, Some(max)),
    ];
    for (count, took, expected) in cases {
        assert_eq!(next_fold_size(count, took), expected, "{count} in {took:?}");
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
            balances.accounts.insert(other, credits(1));
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

    let decisions = decide(&fixture.ledger, &mut [abandoned, waiting]).await.expect("decisions");

    let left: Vec<_> = decisions.into_iter().map(|decision| decision?.credits).collect();
    assert_eq!(left, [None, Some(8)]);
}
