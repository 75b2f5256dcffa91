//! Tests the single connection that writes to the SQLite file.

use std::path::Path;
use std::time::Duration;

use store::WRITER_QUEUE_MAX;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;

/// Creates a migrated store in a private directory.
async fn sqlite() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("keyward.db")).await.unwrap();
    store.migrate().await.unwrap();
    (directory, store)
}

async fn add(store: &Store, id: &str) -> Result<bool> {
    let id = WorkspaceId::from(id);
    commit_with(store, async |tx| tx.insert_workspace(&id, "a workspace", NOON).await).await
}

async fn ids(store: &Store) -> Vec<String> {
    let Store::Sqlite { pool, .. } = store else { panic!("not SQLite") };
    sqlx::query_scalar("SELECT id FROM workspaces ORDER BY id").fetch_all(pool).await.unwrap()
}

/// Returns how many commits the write-ahead log contains.
fn commits(directory: &Path) -> usize {
    let log = std::fs::read(directory.join("keyward.db-wal")).unwrap();
    let page = u32::from_be_bytes(log[8..12].try_into().unwrap()) as usize;
    let salt = &log[16..24];
    let frames = log[32..].chunks_exact(24 + page).filter(|frame| frame[8..16] == *salt);
    frames.filter(|frame| frame[4..8] != [0; 4]).count()
}

#[tokio::test]
async fn waiting_transactions_share_a_commit() {
    let (directory, store) = sqlite().await;
    let before = commits(directory.path());
    let holder = store.begin().await.unwrap();
    let mut waiting = JoinSet::new();
    for number in 0..50 {
        let store = store.clone();
        waiting.spawn(async move { add(&store, &format!("ws_{number}")).await });
    }
    tokio::time::sleep(Duration::from_millis(50)).await;

    holder.commit().await.unwrap();
    while let Some(added) = waiting.join_next().await {
        assert!(added.unwrap().unwrap());
    }

    assert_eq!(ids(&store).await.len(), 50);
    // Each commit has at least two transactions, even if the machine is so slow that a batch closes after each.
    let shared = commits(directory.path()) - before;
    assert!(shared < 50, "{shared} commits of 50 transactions");
}

#[tokio::test]
async fn failing_transaction_rolls_back_only_itself() {
    let (_directory, store) = sqlite().await;
    let key = key(&store, None).await;
    let holder = store.begin().await.unwrap();
    let taken = Key { id: KeyId::random(), ..key.clone() };
    let failing = async {
        commit_with(&store, async |tx| {
            tx.ensure_identity(&key.workspace_id, "user_1", None, NOON).await?;
            tx.insert_key(&taken).await
        })
        .await
    };

    let (before, failed, after, held) = tokio::join!(
        biased;
        add(&store, "ws_before"),
        failing,
        add(&store, "ws_later"),
        holder.commit()
    );

    assert!(before.unwrap() && after.unwrap() && held.is_ok());
    assert!(failed.unwrap_err().is_unique_violation_of("keys_hash_unique"));
    let workspaces = ids(&store).await;
    assert_eq!(workspaces.len(), 3);
    assert!(["ws_before", "ws_later"].iter().all(|id| workspaces.iter().any(|found| found == id)));
    assert_eq!((count(&store, "identities").await, count(&store, "keys").await), (0, 1));
}

#[tokio::test]
async fn transactions_return_503_when_their_shared_commit_is_lost() {
    // Like after a disk failure, SQLite rolls back the whole transaction, including savepoints.
    let trigger = "CREATE TRIGGER broken BEFORE INSERT ON workspaces WHEN new.id = 'ws_broken'
        BEGIN SELECT RAISE(ROLLBACK, 'broken'); END";
    // On a busy machine, the first may be committed before the second joins it.
    for _ in 0..20 {
        let (_directory, store) = sqlite().await;
        execute(&store, trigger).await;
        let holder = store.begin().await.unwrap();

        let (before, broken, held) = tokio::join!(
            biased;
            add(&store, "ws_before"),
            add(&store, "ws_broken"),
            holder.commit()
        );

        assert!(broken.is_err());
        let Err(before) = before else { continue };
        assert_eq!(before.code(), Code::ServiceUnavailable, "{before}");
        assert!(held.is_err());
        assert_eq!(ids(&store).await, [""; 0]);
        assert!(add(&store, "ws_later").await.unwrap());
        return;
    }
    panic!("they never shared a commit");
}

#[tokio::test]
async fn reader_sees_the_row_that_caused_a_unique_violation() {
    let (_directory, store) = sqlite().await;
    let first = key(&store, None).await;
    for _ in 0..50 {
        let holder = store.begin().await.unwrap();
        let fresh = a_key(&first.workspace_id, &first.api_id);
        let twin = Key { id: KeyId::random(), ..fresh.clone() };
        let insert =
            async |key: &Key| commit_with(&store, async |tx| tx.insert_key(key).await).await;
        let refused = async {
            let refused = insert(&twin).await.unwrap_err();
            assert!(refused.is_unique_violation_of("keys_hash_unique"));
            store.read().await.unwrap().find_key_by_hash(&twin.hash).await.unwrap()
        };

        let (inserted, found, held) =
            tokio::join!(biased; insert(&fresh), refused, async { holder.commit().await });

        assert!(inserted.is_ok() && held.is_ok());
        assert_eq!(found.map(|found| found.key.id), Some(fresh.id));
    }
}

#[tokio::test]
async fn cancelled_transactions_roll_back_only_themselves() {
    let (_directory, store) = sqlite().await;
    let mut last = Vec::new();
    for number in 0..100 {
        let mut leaving = JoinSet::new();
        for part in 0..4 {
            let store = store.clone();
            leaving.spawn(async move { add(&store, &format!("left_{number}_{part}")).await });
        }
        let kept = tokio::spawn({
            let store = store.clone();
            async move { add(&store, &format!("kept_{number}")).await }
        });
        // At another point of the transactions each time.
        tokio::time::sleep(Duration::from_micros(number * 20)).await;
        leaving.abort_all();
        assert!(kept.await.unwrap().unwrap());
        last.push(format!("kept_{number}"));
    }

    let found = ids(&store).await;
    assert!(last.iter().all(|kept| found.contains(kept)), "{found:?}");
    let mut tx = store.begin().await.unwrap();
    assert!(tx.insert_workspace(&WorkspaceId::from("ws_last"), "a", NOON).await.unwrap());
    drop(tx);
    assert!(!ids(&store).await.contains(&"ws_last".to_owned()));
}

#[tokio::test]
async fn full_queue_rejects_at_once_and_serves_waiting_calls() {
    let (_directory, store) = sqlite().await;
    let holder = store.begin().await.unwrap();
    let mut waiting = JoinSet::new();
    for number in 0..WRITER_QUEUE_MAX {
        let store = store.clone();
        waiting.spawn(async move { add(&store, &format!("ws_{number}")).await });
    }
    tokio::time::sleep(Duration::from_millis(100)).await;

    let refused = timeout(Duration::from_secs(1), store.begin()).await.expect("at once").err();
    drop(holder);
    let mut served = 0;
    while let Some(added) = waiting.join_next().await {
        served += usize::from(added.unwrap().unwrap());
    }

    assert_eq!(refused.unwrap().code(), Code::ServiceUnavailable);
    assert_eq!((served, ids(&store).await.len()), (WRITER_QUEUE_MAX, WRITER_QUEUE_MAX));
    assert!(add(&store, "ws_last").await.unwrap());
}

#[tokio::test]
async fn transaction_returns_503_when_it_waits_for_more_than_five_seconds() {
    let (_directory, store) = sqlite().await;
    let holder = store.begin().await.unwrap();

    // Five seconds, and three for a machine that is busy.
    let refused = timeout(Duration::from_secs(8), store.begin()).await.expect("in time").err();
    drop(holder);

    assert_eq!(refused.unwrap().code(), Code::ServiceUnavailable);
    assert!(add(&store, "ws_later").await.unwrap());
}

#[tokio::test]
async fn writer_waits_for_another_process_and_continues() {
    let (directory, store) = sqlite().await;
    let other = Store::open(&directory.path().join("keyward.db")).await.unwrap();
    let mut tx = other.begin().await.unwrap();
    tx.insert_workspace(&WorkspaceId::from("ws_other"), "a", NOON).await.unwrap();

    let (added, committed) = tokio::join!(add(&store, "ws_own"), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        tx.commit().await
    });

    assert!(added.unwrap() && committed.is_ok());
    assert_eq!(ids(&store).await, ["ws_other", "ws_own"]);
}

#[tokio::test]
async fn transactions_are_served_in_request_order() {
    let (_directory, store) = sqlite().await;
    let holder = store.begin().await.unwrap();
    let order = std::sync::Mutex::new(Vec::new());
    let turn = async |number: usize| {
        let tx = store.begin().await.unwrap();
        order.lock().unwrap().push(number);
        tx.commit().await.unwrap();
    };

    let turns = join_all((0..200).map(turn));
    tokio::join!(biased; turns, async { drop(holder) });

    assert_eq!(order.into_inner().unwrap(), (0..200).collect::<Vec<_>>());
}
