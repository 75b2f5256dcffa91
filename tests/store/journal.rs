//! Tests the debit journal of an embedded server.

use std::collections::HashMap;

use futures_util::FutureExt as _;

use super::*;

/// Returns the store of a server, that of another process on the same file, and a key with ten credits.
async fn stores() -> (tempfile::TempDir, Store, Store, KeyId) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keyward.db");
    let server = Store::open(&file).await.unwrap();
    server.migrate().await.unwrap();
    let credits = Credits { balance: 10, refill: None, last_lease_number: 0, refilled_period: 0 };
    let key = key(&server, Some(credits)).await;
    let command = Store::open(&file).await.unwrap();
    (directory, server, command, key.id)
}

/// Debits a key. Returns the number of the transaction.
async fn debit(store: &Store, key: &KeyId, units: i64) -> u64 {
    let mut tx = store.begin_debits().await.unwrap();
    let number = tx.transaction_number().unwrap();
    tx.append_debits(&HashMap::from([(key, units)])).await.unwrap();
    tx.commit().await.unwrap();
    number
}

async fn balance(store: &Store, key: &KeyId) -> i64 {
    store.read().await.unwrap().find_account(key).await.unwrap().unwrap().credits.balance
}

/// Returns the balance as a transaction sees it.
async fn balance_in(tx: &mut Tx, key: &KeyId) -> i64 {
    tx.lock_account(key).await.unwrap().unwrap().credits.balance
}

#[tokio::test]
async fn journal_is_folded_into_balances_once() {
    let (_directory, server, _, key) = stores().await;
    debit(&server, &key, 2).await;
    debit(&server, &key, 1).await;
    assert_eq!(balance(&server, &key).await, 10, "not yet");

    server.fold_debits().await.unwrap();
    server.fold_debits().await.unwrap();

    assert_eq!(balance(&server, &key).await, 7);
    debit(&server, &key, 1).await;
    server.fold_debits().await.unwrap();
    assert_eq!(balance(&server, &key).await, 6);
}

#[tokio::test]
async fn begin_folds_journal_again_when_transaction_is_rolled_back() {
    let (_directory, server, _, key) = stores().await;
    debit(&server, &key, 3).await;

    let mut tx = server.begin().await.unwrap();
    assert_eq!(balance_in(&mut tx, &key).await, 7);
    drop(tx);
    let mut tx = server.begin().await.unwrap();

    assert_eq!(balance_in(&mut tx, &key).await, 7);
}

#[tokio::test]
async fn fold_keeps_debit_of_the_same_transaction() {
    let (_directory, server, _, key) = stores().await;
    debit(&server, &key, 3).await;
    let mut tx = server.begin_debits().await.unwrap();
    tx.fold_debits().await.unwrap();
    tx.append_debits(&HashMap::from([(&key, 2)])).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(balance(&server, &key).await, 7);

    server.fold_debits().await.unwrap();

    assert_eq!(balance(&server, &key).await, 5);
}

#[tokio::test]
async fn begin_folds_journal_of_another_process() {
    let (_directory, server, command, key) = stores().await;
    for left in [9, 8, 7] {
        debit(&server, &key, 1).await;

        let mut tx = command.begin().await.unwrap();
        assert_eq!(balance_in(&mut tx, &key).await, left);
        tx.commit().await.unwrap();
    }
    // Debits that another process has folded are not folded again.
    server.fold_debits().await.unwrap();
    assert_eq!(balance(&server, &key).await, 7);
}

#[tokio::test]
async fn transaction_number_is_consecutive_unless_another_process_wrote() {
    let (_directory, server, command, key) = stores().await;
    let first = debit(&server, &key, 1).await;
    assert_eq!(debit(&server, &key, 1).await, first + 1);

    server.begin().await.unwrap().commit().await.unwrap();
    let second = debit(&server, &key, 1).await;
    assert_eq!(second, first + 3);

    let name = WorkspaceId::from("ws_other");
    commit_with(&command, async |tx| tx.insert_workspace(&name, "other", NOON).await)
        .await
        .unwrap();
    let third = debit(&server, &key, 1).await;
    assert!(third > second + 1, "{third} follows {second}");
    assert_eq!(debit(&server, &key, 1).await, third + 1);
}

#[tokio::test]
async fn row_is_appended_only_as_the_next_transaction() {
    let (_directory, server, command, key) = stores().await;
    let units = HashMap::from([(&key, 1)]);
    let append = async |number| server.append_debits(number, &units).await.unwrap();
    let first = debit(&server, &key, 1).await;

    for (number, is_next) in [(first, false), (first + 2, false), (first + 1, true)] {
        assert_eq!(append(number).await, is_next, "{number} after {first}");
    }
    assert!(!append(first + 1).await, "the number is taken");
    assert_eq!(debit(&server, &key, 1).await, first + 2, "the row was a transaction");

    server.begin().await.unwrap().commit().await.unwrap();
    assert!(!append(first + 3).await, "a transaction was");

    let last = debit(&server, &key, 1).await;
    command.begin().await.unwrap().commit().await.unwrap();
    assert!(!append(last + 1).await, "another process has folded the journal");
    let next = debit(&server, &key, 1).await;
    assert!(next > last + 1, "{next} follows {last}");
    assert!(append(next + 1).await);

    server.fold_debits().await.unwrap();
    assert_eq!(balance(&server, &key).await, 10 - 4 - 2);
}

#[tokio::test]
async fn row_is_appended_after_the_transaction_in_progress() {
    let (_directory, server, _, key) = stores().await;
    let first = debit(&server, &key, 1).await;
    let units = HashMap::from([(&key, 2)]);
    let tx = server.begin_debits().await.unwrap();

    let append = async |number| server.append_debits(number, &units).await.unwrap();
    let (is_next, is_later, ()) = tokio::join!(append(first + 1), append(first + 2), async {
        tx.commit().await.unwrap();
    });

    assert_eq!((is_next, is_later), (false, true));
    server.fold_debits().await.unwrap();
    assert_eq!(balance(&server, &key).await, 7);
}

#[tokio::test]
async fn nothing_is_appended_for_a_caller_that_has_left_the_queue() {
    let (_directory, server, _, key) = stores().await;
    let first = debit(&server, &key, 1).await;
    let units = HashMap::from([(&key, 2)]);
    let tx = server.begin_debits().await.unwrap();

    assert!(server.append_debits(first + 2, &units).now_or_never().is_none(), "it waits");
    tx.commit().await.unwrap();

    assert_eq!(debit(&server, &key, 1).await, first + 2);
    server.fold_debits().await.unwrap();
    assert_eq!(balance(&server, &key).await, 8);
}
