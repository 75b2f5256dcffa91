//! Tests transactions whose begin was cancelled, and transactions that must not wait for each other.

use futures_util::poll;

use super::*;

on_both_stores! {
    async fn writes_are_committed_when_the_begin_before_them_was_cancelled(store) {
        drop(store.read().await.unwrap());
        let mut cancelled = 0;
        for attempt in 1..=20 {
            for mut begin in [store.begin(), store.begin_within(Duration::from_millis(10))] {
                cancelled += usize::from(poll!(&mut begin).is_pending());
            }

            execute(&store, "INSERT INTO changes (at, subject) VALUES (0, 'key:key_a')").await;

            // Each is a connection of its own, and one of them may be the one that wrote.
            let mut readers = Vec::new();
            for _ in 0..4 {
                readers.push(store.read().await.unwrap());
            }
            for reader in &mut readers {
                let page = reader.load_log_page(0, "rep_a").await.unwrap();
                assert_eq!(page.rows.len(), attempt);
            }
        }
        assert!(cancelled >= 10, "{cancelled}");
    }
}

/// A transaction that inserts a key holds a share lock on its workspace until every replica knows of the key.
#[tokio::test]
async fn workspace_is_locked_when_inserts_of_keys_are_not_committed() {
    let database = Database::create().await;
    let store = Store::connect(&database.url, 8).await.unwrap();
    let workspace = workspace(&store).await;
    let key = a_key(&workspace, &api(&store, &workspace).await);
    let mut insert = store.begin().await.unwrap();
    insert.insert_key(&key).await.unwrap();

    let mut locks = store.begin_within(Duration::from_secs(1)).await.unwrap();
    locks.lock_namespaces(&workspace).await.unwrap();
    locks.lock_members(&workspace).await.unwrap();
}

/// Requests wait for a connection while those in use belong to a Postgres that has vanished.
#[tokio::test]
async fn waiting_calls_get_new_connections_when_all_are_replaced() {
    let database = Database::create().await;
    let store = Store::connect(&database.url, 1).await.unwrap();
    let in_use = store.read().await.unwrap();
    let (mut read, mut begin) = (store.read(), store.begin());
    assert!(poll!(&mut read).is_pending() && poll!(&mut begin).is_pending());

    store.reconnect().await.unwrap();

    drop(read.await.unwrap());
    begin.await.unwrap();
    drop(in_use);
}
