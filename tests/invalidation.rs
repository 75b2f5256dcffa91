//! No invalidation is lost.

use std::sync::Arc;
use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::id::KeyId;
use foundation::secret::KeyHash;
use serde_json::json;
use store::freshness::{CacheTag, ReadVersion, VersionSlot};

use crate::support::{Keyward, Stack};

/// The race that loses invalidations: a load is under way while the key is revoked.
#[tokio::test]
async fn a_load_under_way_never_puts_a_revoked_key_back() {
    for stack in [Stack::Embedded, Stack::Replica] {
        let kw = Arc::new(Keyward::start(stack).await);
        let api = kw.api().await;
        for _ in 0..60 {
            let key = kw.key_in(&api, json!({})).await;
            let loads: Vec<_> = (0..4)
                .map(|_| {
                    let (kw, key) = (kw.clone(), key.key.clone());
                    tokio::spawn(async move { kw.verify(&key).await })
                })
                .collect();
            kw.v2("keys.updateKey", json!({ "keyId": key.id, "enabled": false })).await.data();

            kw.verify(&key.key).await.is("DISABLED");
            for load in loads {
                load.await.unwrap().data();
            }
            kw.verify(&key.key).await.is("DISABLED");
        }
    }
}

/// Whether what is read now of this key is stale within two seconds.
async fn goes_stale(kw: &Keyward, stamp: ReadVersion, key: &str) -> bool {
    let places = [VersionSlot::of(&CacheTag::Key(KeyId::from(key)))];
    let since = Stopwatch::new();
    while since.elapsed() < Duration::from_secs(2) {
        if !kw.app.freshness.is_fresh(stamp, &places) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

/// Waits until the reader no longer takes everything for changed, as it does when it begins.
async fn caught_up(kw: &Keyward) {
    let since = Stopwatch::new();
    loop {
        let stamp = kw.app.freshness.read_version();
        tokio::time::sleep(Duration::from_millis(700)).await;
        if kw.app.freshness.is_fresh(stamp, &[]) {
            return;
        }
        assert!(since.elapsed() < Duration::from_secs(10), "everything changes all the time");
    }
}

async fn log(kw: &Keyward, subject: &str) {
    let mut tx = kw.store().begin().await.unwrap();
    tx.insert_changes(&[subject.to_owned()]).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_change_that_is_committed_late_is_seen_and_one_that_is_undone_holds_nothing_up() {
    let kw = Keyward::start(Stack::Replica).await;
    caught_up(&kw).await;
    let mut late = kw.store().begin().await.unwrap();
    late.insert_changes(&["key:late".to_owned()]).await.unwrap();
    let mut undone = kw.store().begin().await.unwrap();
    undone.insert_changes(&["key:undone".to_owned()]).await.unwrap();
    drop(undone);
    let stamp = kw.app.freshness.read_version();

    log(&kw, "key:soon").await;
    assert!(goes_stale(&kw, stamp, "soon").await);
    // The reader goes past the missing ones.
    log(&kw, "key:next").await;
    assert!(goes_stale(&kw, stamp, "next").await);
    let places = [VersionSlot::of(&CacheTag::Key(KeyId::from("late")))];
    assert!(kw.app.freshness.is_fresh(stamp, &places));
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    late.commit().await.unwrap();

    assert!(goes_stale(&kw, stamp, "late").await);
    assert!(!goes_stale(&kw, stamp, "undone").await);
}

#[tokio::test]
async fn a_reader_that_is_far_behind_takes_everything_for_changed() {
    for stack in [Stack::Embedded, Stack::Replica] {
        let kw = Keyward::start(stack).await;
        let first = kw.app.freshness.read_version();
        log(&kw, "key:first").await;
        assert!(goes_stale(&kw, first, "first").await);
        let many: Vec<_> = (0..100_010).map(|n| format!("key:of_many_{n}")).collect();

        let stamp = kw.app.freshness.read_version();
        let mut tx = kw.store().begin().await.unwrap();
        tx.insert_changes(&many).await.unwrap();
        tx.commit().await.unwrap();

        assert!(goes_stale(&kw, stamp, "not among them").await);
        let after = kw.app.freshness.read_version();
        log(&kw, "key:afterwards").await;
        assert!(goes_stale(&kw, after, "afterwards").await);
    }
}

#[tokio::test]
async fn an_import_is_one_row_of_the_change_log_and_ends_the_memory_of_keys_that_were_not_there() {
    for stack in [Stack::Embedded, Stack::Replica] {
        let kw = Keyward::start(stack).await;
        let other = kw.replica().await;
        let api = kw.api().await;
        let secrets: Vec<_> = (0..50).map(|n| format!("brought_along_{n:020}")).collect();
        other.verify(&secrets[7]).await.is("NOT_FOUND");
        let before = rows(&kw).await;

        let keys: Vec<_> = secrets
            .iter()
            .map(|secret| {
                json!({
                    "apiId": api, "start": "brought",
                    "hash": { "value": hash(secret), "variant": "sha256_base64" },
                })
            })
            .collect();
        let imported = kw.v1("migrations.createKeys", json!(keys)).await;

        assert_eq!(imported.status.as_u16(), 200, "{}", imported.text);
        assert_eq!(rows(&kw).await, before + 1);
        let since = Stopwatch::new();
        while other.verify(&secrets[7]).await.data()["code"] != "VALID" {
            assert!(since.elapsed() < Duration::from_millis(1_500), "still unknown");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn hash(secret: &str) -> String {
    KeyHash::of(secret).base64()
}

async fn rows(kw: &Keyward) -> usize {
    kw.store().read().await.unwrap().log_page(0, "").await.unwrap().rows.len()
}
