//! Tests that no schedule of loads, changes and failures leaves a stale row in the cache, or loads a row needlessly.

use std::sync::Arc;

use foundation::clock::Monotonic;
use foundation::error::Error;
use foundation::id::KeyId;
use foundation::metrics::Counter;
use foundation::secret::KeyHash;
use tokio::sync::Notify;
use tokio::task::yield_now;

use super::{AnyRow, CacheMemory, LoadFuture};
use crate::cache::{CacheValue, Cached, Load, RowCache};
use crate::freshness::{CacheTag, Freshness, ReadVersion};

/// A row that contains the number of its load.
#[derive(Debug, PartialEq, Eq)]
struct Row(u64);

impl CacheValue for Row {
    fn heap_size(&self) -> usize {
        0
    }
}

/// The time of each call of the cache: a minute after the process started.
fn now() -> Monotonic {
    Monotonic::from_ms(60_000)
}

fn tag() -> CacheTag {
    CacheTag::Key(KeyId::from("key_a"))
}

/// A cache with one name, whose rows are found in the memory alone.
struct Fixture {
    freshness: Arc<Freshness>,
    cache: RowCache<KeyHash, Row>,
    loads: Counter,
    name: KeyHash,
}

impl Fixture {
    /// Creates an empty cache of a replica that last read the change log at this time.
    fn new(proved_at: Monotonic) -> Self {
        let (freshness, loads) = (Arc::new(Freshness::new(900_000, proved_at)), Counter::default());
        let memory = Arc::new(CacheMemory::new(freshness.clone(), 1 << 20));
        let tag = |name: &KeyHash| Some(CacheTag::NewKey(name.fingerprint()));
        let cache = RowCache::new(&memory, 0, &loads, tag).with_clock(now);
        Self { freshness, cache, loads, name: KeyHash::compute("a") }
    }

    fn row(&self, version: ReadVersion) -> Cached<Row> {
        Cached::new(Row(self.loads.get()), version, [tag()])
    }

    /// Returns the number of the load whose row the cache returns.
    async fn get(&self) -> Option<u64> {
        let load = |load: Load<Row>| {
            let row = self.row(load.version);
            async { Ok(Some(row)) }
        };
        self.cache.get(&self.name, load).await.expect("it loads").map(|row| row.value.0)
    }

    /// Returns whether the cache returns a row, if the database has none.
    async fn is_found(&self) -> bool {
        self.cache.get(&self.name, |_| async { Ok(None) }).await.expect("it loads").is_some()
    }
}

#[tokio::test]
async fn row_is_loaded_again_only_when_its_entity_has_changed() {
    let rows = Fixture::new(now());
    assert_eq!([rows.get().await, rows.get().await], [Some(1), Some(1)]);

    rows.freshness.record_invalidation(&tag());

    assert_eq!([rows.get().await, rows.get().await], [Some(2), Some(2)]);
    assert_eq!(rows.loads.get(), 2);
}

#[tokio::test]
async fn load_replaces_no_row_that_another_caller_has_loaded_since() {
    let rows = Fixture::new(now());
    rows.get().await;

    // A caller that has found a stale row, or none.
    let load = |_: ReadVersion, _: Option<Arc<dyn AnyRow>>| -> LoadFuture<'_> {
        Box::pin(async { Ok(None) })
    };
    let found = rows.cache.memory.load(rows.cache.lookup(&rows.name, None), &load).await;

    assert!(found.expect("it loads").is_some());
    assert_eq!(rows.get().await, Some(1));
}

/// Begins a load, which finds a row or none, records a change, calls the cache again, and lets the load end. Returns what
/// the two calls return. The loads after the first one find a row.
async fn change_during_load(finds_row: bool, change: &CacheTag) -> [Option<u64>; 2] {
    let (rows, end) = (Fixture::new(now()), Notify::new());
    let load = |load: Load<Row>| {
        let (row, is_first, end) = (rows.row(load.version), rows.loads.get() == 1, &end);
        async move {
            if is_first {
                end.notified().await;
            }
            Ok(Some(row).filter(|_| finds_row || !is_first))
        }
    };
    let earlier = rows.cache.get(&rows.name, load);
    let later = async {
        while rows.loads.get() == 0 {
            yield_now().await;
        }
        rows.freshness.record_invalidation(change);
        rows.cache.get(&rows.name, load).await
    };
    let ending = async {
        for _ in 0..100 {
            yield_now().await;
        }
        end.notify_one();
    };
    let (earlier, later, ()) = tokio::join!(earlier, later, ending);
    [earlier, later].map(|found| found.expect("it loads").map(|row| row.value.0))
}

#[tokio::test]
async fn load_that_began_before_a_change_is_returned_to_no_caller_after_it() {
    let name = KeyHash::compute("a");
    let new_key = CacheTag::NewKey(name.fingerprint());
    for (finds_row, change) in
        [(true, tag()), (true, CacheTag::All), (false, new_key), (false, CacheTag::NewKeys)]
    {
        let found = change_during_load(finds_row, &change).await;

        assert_eq!(found, [Some(2), Some(2)], "{finds_row} {change:?}");
    }
}

#[tokio::test]
async fn absence_is_cached_until_a_row_of_this_name_may_have_been_created() {
    let rows = Fixture::new(now());
    assert!(!rows.is_found().await && !rows.is_found().await);
    rows.freshness.record_invalidation(&tag());
    assert!(!rows.is_found().await);
    assert_eq!(rows.loads.get(), 1);

    rows.freshness.record_invalidation(&CacheTag::NewKey(rows.name.fingerprint()));
    assert!(!rows.is_found().await);
    assert_eq!(rows.loads.get(), 2);
    rows.freshness.record_invalidation(&CacheTag::NewKeys);

    assert_eq!(rows.get().await, Some(3));
}

#[tokio::test]
async fn row_is_returned_when_its_entity_changes_faster_than_it_is_loaded() {
    let rows = Fixture::new(now());
    let load = |load: Load<Row>| {
        let row = rows.row(load.version);
        rows.freshness.record_invalidation(&tag());
        async { Ok(Some(row)) }
    };

    let found = rows.cache.get(&rows.name, load).await.expect("it loads").expect("a row");

    assert_eq!(found.value, Row(4), "three loads that others may share, and its own");
    assert_eq!(rows.get().await, Some(5));
}

#[tokio::test]
async fn untrusted_row_is_kept_while_it_cannot_be_loaded_and_used_when_its_change_is_rolled_back() {
    // The database has been unreachable for a minute.
    let rows = Fixture::new(Monotonic::default());
    assert_eq!(rows.get().await, Some(1));
    rows.freshness.intents.open(7, "key:key_a\n");

    let failed = rows.cache.get(&rows.name, |_| async { Err(Error::StoreNotReady) }).await;

    assert!(matches!(failed, Err(Error::Shared(_))));
    rows.freshness.intents.close(7);
    assert_eq!(rows.get().await, Some(1));
    assert_eq!(rows.loads.get(), 2);
}
