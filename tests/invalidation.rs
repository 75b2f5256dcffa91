//! Tests that no invalidation is lost.

use std::sync::Arc;
use std::time::Duration;

use foundation::clock::{Monotonic, Stopwatch};
use foundation::id::KeyId;
use foundation::secret::KeyHash;
use serde_json::json;
use store::freshness::{CacheTag, ReadVersion, VersionSlot};

use crate::support::{Keyward, Stack};

/// The race that could lose invalidations: a load is in flight while the key is revoked.
#[tokio::test]
async fn cache_ignores_load_when_key_was_revoked() {
    for stack in [Stack::Embedded, Stack::Replica] {
        let kw = Arc::new(Keyward::start(stack).await);
        let api = kw.create_api().await;
        for _ in 0..60 {
            let key = kw.create_key_in(&api, json!({})).await;
            let loads: Vec<_> = (0..4)
                .map(|_| {
                    let (kw, key) = (kw.clone(), key.key.clone());
                    tokio::spawn(async move { kw.verify(&key).await })
                })
                .collect();
            kw.v2("keys.updateKey", json!({ "keyId": key.id, "enabled": false })).await.data();

            kw.verify(&key.key).await.assert_code("DISABLED");
            for load in loads {
                load.await.unwrap().data();
            }
            kw.verify(&key.key).await.assert_code("DISABLED");
        }
    }
}

/// Whether a value of this key that was read at this version becomes stale within two seconds.
async fn becomes_stale(kw: &Keyward, read_version: ReadVersion, key: &str) -> bool {
    let slots = [VersionSlot::from_tag(&CacheTag::Key(KeyId::from(key)))];
    let since = Stopwatch::new();
    while since.elapsed() < Duration::from_secs(2) {
        if !kw.app.context.freshness.is_fresh(read_version, &slots, Monotonic::now()) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

/// Waits until the reader no longer invalidates everything, as it does at startup.
async fn wait_until_caught_up(kw: &Keyward) {
    let since = Stopwatch::new();
    loop {
        let read_version = kw.app.context.freshness.read_version(Monotonic::now());
        tokio::time::sleep(Duration::from_millis(700)).await;
        if kw.app.context.freshness.is_fresh(read_version, &[], Monotonic::now()) {
            return;
        }
        assert!(since.elapsed() < Duration::from_secs(10), "everything stays invalidated");
    }
}

async fn log_change(kw: &Keyward, subject: &str) {
    let mut tx = kw.store().begin().await.unwrap();
    tx.insert_changes(&[subject.to_owned()]).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn late_commit_is_seen_and_rollback_does_not_block_the_reader() {
    let kw = Keyward::start(Stack::Replica).await;
    wait_until_caught_up(&kw).await;
    let mut late = kw.store().begin().await.unwrap();
    late.insert_changes(&["key:late".to_owned()]).await.unwrap();
    let mut undone = kw.store().begin().await.unwrap();
    undone.insert_changes(&["key:undone".to_owned()]).await.unwrap();
    drop(undone);
    let read_version = kw.app.context.freshness.read_version(Monotonic::now());

    log_change(&kw, "key:soon").await;
    assert!(becomes_stale(&kw, read_version, "soon").await);
    // The reader continues after the missing rows.
    log_change(&kw, "key:next").await;
    assert!(becomes_stale(&kw, read_version, "next").await);
    let slots = [VersionSlot::from_tag(&CacheTag::Key(KeyId::from("late")))];
    assert!(kw.app.context.freshness.is_fresh(read_version, &slots, Monotonic::now()));
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    late.commit().await.unwrap();

    assert!(becomes_stale(&kw, read_version, "late").await);
    assert!(!becomes_stale(&kw, read_version, "undone").await);
}

#[tokio::test]
async fn reader_invalidates_everything_when_far_behind() {
    for stack in [Stack::Embedded, Stack::Replica] {
        let kw = Keyward::start(stack).await;
        let first = kw.app.context.freshness.read_version(Monotonic::now());
        log_change(&kw, "key:first").await;
        assert!(becomes_stale(&kw, first, "first").await);
        let many: Vec<_> = (0..100_010).map(|n| format!("key:of_many_{n}")).collect();

        let read_version = kw.app.context.freshness.read_version(Monotonic::now());
        let mut tx = kw.store().begin().await.unwrap();
        tx.insert_changes(&many).await.unwrap();
        tx.commit().await.unwrap();

        assert!(becomes_stale(&kw, read_version, "not among them").await);
        let after = kw.app.context.freshness.read_version(Monotonic::now());
        log_change(&kw, "key:afterwards").await;
        assert!(becomes_stale(&kw, after, "afterwards").await);
    }
}

#[tokio::test]
async fn import_is_one_change_log_row_and_invalidates_negative_cache_entries() {
    for stack in [Stack::Embedded, Stack::Replica] {
        let kw = Keyward::start(stack).await;
        let other = kw.replica().await;
        let api = kw.create_api().await;
        let secrets: Vec<_> = (0..50).map(|n| format!("brought_along_{n:020}")).collect();
        other.verify(&secrets[7]).await.assert_code("NOT_FOUND");
        let before = count_log_rows(&kw).await;

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
        assert_eq!(count_log_rows(&kw).await, before + 1);
        let since = Stopwatch::new();
        while other.verify(&secrets[7]).await.data()["code"] != "VALID" {
            assert!(since.elapsed() < Duration::from_millis(1_500), "still unknown");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn hash(secret: &str) -> String {
    KeyHash::compute(secret).to_base64()
}

async fn count_log_rows(kw: &Keyward) -> usize {
    kw.store().read().await.unwrap().load_log_page(0, "").await.unwrap().rows.len()
}

#[tokio::test]
async fn key_is_not_read_again_when_only_its_identity_changes() {
    for stack in [Stack::Embedded, Stack::Replica] {
        let kw = Keyward::start(stack).await;
        let key = kw.create_key(json!({ "externalId": "ada" })).await;
        kw.verify(&key.key).await.assert_code("VALID");
        wait_until_caught_up(&kw).await;
        kw.verify(&key.key).await.assert_code("VALID");
        let loads = &kw.app.context.metrics.cache_loads;
        let count = || (loads.keys.get(), loads.identities.get(), loads.views.get());
        let before = count();

        let limit =
            json!({ "name": "tokens", "limit": 1, "duration": 3_600_000, "autoApply": true });
        let change = json!({ "identity": "ada", "ratelimits": [limit] });
        kw.v2("identities.updateIdentity", change).await.data();
        kw.verify(&key.key).await.assert_code("VALID");
        kw.verify(&key.key).await.assert_code("RATE_LIMITED");

        let (keys, identities, resolved) = count();
        assert_eq!(keys, before.0);
        assert!(identities > before.1 && resolved > before.2);
        wait_until_caught_up(&kw).await;
        kw.verify(&key.key).await.assert_code("RATE_LIMITED");
        let after = count();
        for _ in 0..10 {
            kw.verify(&key.key).await.assert_code("RATE_LIMITED");
        }
        assert_eq!(count(), after, "what was loaded after the change is cached");

        // The row of the identity, which was loaded before, is used again.
        kw.v2("keys.updateKey", json!({ "keyId": key.id, "name": "Ada" })).await.data();
        wait_until_caught_up(&kw).await;
        kw.verify(&key.key).await.assert_code("RATE_LIMITED");
        let (_, identities, _) = after;
        let after = count();
        assert_eq!(after.1, identities);
        for _ in 0..10 {
            kw.verify(&key.key).await.assert_code("RATE_LIMITED");
        }
        assert_eq!(count(), after, "what was loaded after the change is cached");
    }
}
