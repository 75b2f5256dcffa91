//! Caches rows by name and returns them while they are fresh. Concurrent readers of one name share one load.
//!
//! Errors are never cached. The absence of a row is cached for two seconds, in a small cache of its own, so that a
//! flood of unknown names cannot evict existing rows.

use std::future::Future;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use foundation::clock::Monotonic;
use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use foundation::metrics::Counter;
use foundation::traces;
use futures_util::future::{BoxFuture, Either, Ready, ready};

use super::freshness::{CacheTag, Freshness, ReadVersion, VersionSlot};

/// A cached row, or a value computed from rows, with the version slots of its cache tags.
#[derive(Debug)]
pub struct Cached<T> {
    pub value: T,
    read_version: ReadVersion,
    slots: Box<[VersionSlot]>,
}

impl<T> Cached<T> {
    /// Creates an entry. `version` must be taken before the first read. `tags` name every entity from which `value`
    /// was computed.
    pub fn new(value: T, version: ReadVersion, tags: impl IntoIterator<Item = CacheTag>) -> Self {
        Self {
            value,
            read_version: version,
            slots: tags.into_iter().map(|tag| VersionSlot::from_tag(&tag)).collect(),
        }
    }

    /// Returns the version at which the value was read. A value that is computed from it is not newer.
    pub fn read_version(&self) -> ReadVersion {
        self.read_version
    }

    /// Returns whether the value may still be used.
    pub fn is_fresh(&self, freshness: &Freshness, now: Monotonic) -> bool {
        freshness.is_fresh(self.read_version, &self.slots, now)
    }
}

/// The time for which the absence of a row is cached.
const ABSENT_TTL: Duration = Duration::from_secs(2);
const ABSENT_ROWS_MAX: u64 = 100_000;
/// The number of attempts of a shared load. A load that began before a change is stale when it completes. If changes
/// arrive faster than that, the caller loads for itself: data read after its request began is new enough for the
/// caller.
const SHARED_ATTEMPTS_MAX: u8 = 3;

/// Stores recently used rows, each in the one slot that its name hashes to. It avoids the bookkeeping of the main
/// cache, which costs more than everything else that a verification looks up.
struct DirectMappedCache<K, T>(Box<[CacheSlot<K, T>]>);

/// A slot with a row and its name.
type CacheSlot<K, T> = ArcSwapOption<(K, Arc<Cached<T>>)>;

impl<K: Hash + Eq + Clone, T> DirectMappedCache<K, T> {
    fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| ArcSwapOption::empty()).collect())
    }

    fn slot(&self, name: &K) -> Option<&CacheSlot<K, T>> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
        let slots = u64::try_from(self.0.len()).ok().filter(|slots| *slots > 0)?;
        self.0.get(usize::try_from(hash % slots).ok()?)
    }

    fn get(&self, name: &K) -> Option<Arc<Cached<T>>> {
        let entry = self.slot(name)?.load();
        entry.as_ref().filter(|entry| entry.0 == *name).map(|entry| entry.1.clone())
    }

    fn put(&self, name: &K, row: &Arc<Cached<T>>) {
        if let Some(slot) = self.slot(name) {
            slot.store(Some(Arc::new((name.clone(), row.clone()))));
        }
    }
}

/// A row by name, or `None` if it does not exist.
pub type RowFuture<'a, T> = CacheFuture<'a, Result<Option<Arc<Cached<T>>>>>;
/// What is cached for a name: nothing, the row, or that it does not exist.
pub type PeekFuture<'a, T> = CacheFuture<'a, Option<Option<Arc<Cached<T>>>>>;
/// Ready on a hit; otherwise boxed.
type CacheFuture<'a, T> = Either<Ready<T>, BoxFuture<'a, T>>;

/// A cache of rows of one type.
pub struct RowCache<K, T> {
    freshness: Arc<Freshness>,
    direct_mapped: DirectMappedCache<K, T>,
    present: moka::future::Cache<K, Arc<Cached<T>>>,
    absent: moka::sync::Cache<K, ReadVersion>,
    loads: Counter,
    /// Returns the cache tag of a row that is created with this name, if the name determines it.
    tag_of_new_row: fn(&K) -> Option<CacheTag>,
    now: fn() -> Monotonic,
}

impl<K, T> RowCache<K, T>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    pub fn new(
        freshness: &Arc<Freshness>,
        rows_max: u64,
        front_slots_max: usize,
        loads: &Counter,
        newcomer: fn(&K) -> Option<CacheTag>,
    ) -> Self {
        Self {
            freshness: freshness.clone(),
            loads: loads.clone(),
            direct_mapped: DirectMappedCache::new(
                usize::try_from(rows_max).map_or(front_slots_max, |rows| rows.min(front_slots_max)),
            ),
            present: moka::future::Cache::new(rows_max),
            absent: moka::sync::Cache::builder()
                .max_capacity(ABSENT_ROWS_MAX)
                .time_to_live(ABSENT_TTL)
                .build(),
            tag_of_new_row: newcomer,
            now: Monotonic::now,
        }
    }

    /// Returns the same cache with another clock, which a simulation sets.
    pub fn with_clock(self, now: fn() -> Monotonic) -> Self {
        Self { now, ..self }
    }

    fn is_fresh(&self, row: &Cached<T>) -> bool {
        row.is_fresh(&self.freshness, (self.now)())
    }

    /// Returns the row of this name from the cache or by `load`, which receives the read version that its result must
    /// carry. Concurrent calls share one load.
    ///
    /// A hit, which nearly every call is, does not carry the state of the load. Call this in a function that is not
    /// `async`: then the cache is compiled once, with that function, and not in every crate that awaits it.
    pub fn get<'a, L, F>(&'a self, name: &'a K, load: L) -> RowFuture<'a, T>
    where
        L: Fn(ReadVersion) -> F + Send + Sync + 'a,
        F: Future<Output = Result<Option<Cached<T>>>> + Send + 'a,
    {
        match self.peek_front(name) {
            Some(row) => Either::Left(ready(Ok(Some(row)))),
            None => Either::Right(Box::pin(self.peek_or_load(name, load))),
        }
    }

    /// Returns the row of this name if it was used most recently of those that share its slot.
    fn peek_front(&self, name: &K) -> Option<Arc<Cached<T>>> {
        self.direct_mapped.get(name).filter(|row| self.is_fresh(row))
    }

    /// Returns the cached result for this name without a load: the row, or `Some(None)` for a row known to be absent.
    /// `None` means that a load is needed. As [`Self::get`], it belongs in a function that is not `async`.
    pub fn peek<'a>(&'a self, name: &'a K) -> PeekFuture<'a, T> {
        match self.peek_front(name) {
            Some(row) => Either::Left(ready(Some(Some(row)))),
            None => Either::Right(Box::pin(self.peek_main(name))),
        }
    }

    async fn peek_main(&self, name: &K) -> Option<Option<Arc<Cached<T>>>> {
        match self.present.get(name).await {
            Some(row) if self.is_fresh(&row) => {
                self.direct_mapped.put(name, &row);
                Some(Some(row))
            }
            Some(_) => None,
            None => self.is_known_absent(name).then_some(None),
        }
    }

    async fn peek_or_load<L, F>(&self, name: &K, load: L) -> Result<Option<Arc<Cached<T>>>>
    where
        L: Fn(ReadVersion) -> F,
        F: Future<Output = Result<Option<Cached<T>>>> + Send,
    {
        match self.peek_main(name).await {
            Some(cached) => Ok(cached),
            None => self.load(name, load).await,
        }
    }

    async fn load<L, F>(&self, name: &K, load: L) -> Result<Option<Arc<Cached<T>>>>
    where
        L: Fn(ReadVersion) -> F,
        F: Future<Output = Result<Option<Cached<T>>>> + Send,
    {
        for _ in 0..SHARED_ATTEMPTS_MAX {
            let stale = self.remove_stale(name).await;
            let loaded = self.present.try_get_with_by_ref(name, self.load_once(&load)).await;
            match loaded.map_err(|error| (*error).clone()) {
                Ok(row) if self.is_fresh(&row) => return Ok(Some(row)),
                Err(LoadError::Absent(version)) if self.is_still_absent(name, version) => {
                    self.absent.insert(name.clone(), version);
                    return Ok(None);
                }
                Ok(_) | Err(LoadError::Absent(_)) => {}
                Err(LoadError::Failed(cause)) => {
                    // A row that is not trusted while the database is unreachable becomes trusted again if the
                    // pending change to it is rolled back.
                    if let Some(row) = stale {
                        self.present.entry_by_ref(name).or_insert(row).await;
                    }
                    return Err(Error::Shared(cause));
                }
            }
        }
        match self.load_once(&load).await {
            Ok(row) => Ok(Some(row)),
            Err(LoadError::Absent(_)) => Ok(None),
            Err(LoadError::Failed(cause)) => Err(Error::Shared(cause)),
        }
    }

    async fn load_once<L, F>(&self, load: &L) -> std::result::Result<Arc<Cached<T>>, LoadError>
    where
        L: Fn(ReadVersion) -> F,
        F: Future<Output = Result<Option<Cached<T>>>> + Send,
    {
        let version = self.freshness.read_version((self.now)());
        self.loads.inc();
        match traces::step("database.load", load(version)).await {
            Ok(Some(row)) if Safeguard::ReadVersion.is_disabled() => {
                let read_version = self.freshness.read_version((self.now)());
                Ok(Arc::new(Cached { read_version, ..row }))
            }
            Ok(Some(row)) => Ok(Arc::new(row)),
            Ok(None) => Err(LoadError::Absent(version)),
            Err(cause) => Err(LoadError::Failed(Arc::new(cause))),
        }
    }

    /// Removes and returns the row, unless another caller has replaced it with a fresh one.
    async fn remove_stale(&self, name: &K) -> Option<Arc<Cached<T>>> {
        use moka::ops::compute::{CompResult, Op};
        let found = self
            .present
            .entry_by_ref(name)
            .and_compute_with(|entry| {
                let stale = entry.is_some_and(|entry| !self.is_fresh(entry.value()));
                std::future::ready(if stale { Op::Remove } else { Op::Nop })
            })
            .await;
        match found {
            CompResult::Removed(entry) => Some(entry.into_value()),
            _ => None,
        }
    }

    fn is_known_absent(&self, name: &K) -> bool {
        self.absent.get(name).is_some_and(|version| self.is_still_absent(name, version))
    }

    /// Returns whether no row of this name has been created since `version`.
    fn is_still_absent(&self, name: &K, version: ReadVersion) -> bool {
        let tag = (self.tag_of_new_row)(name);
        let slots: Vec<_> =
            tag.iter().chain([&CacheTag::NewKeys]).map(VersionSlot::from_tag).collect();
        self.freshness.is_fresh(version, &slots, (self.now)())
    }
}

#[derive(Clone)]
enum LoadError {
    Absent(ReadVersion),
    Failed(Arc<Error>),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(rows_max: u64) -> RowCache<u64, u64> {
        let freshness = Arc::new(Freshness::new(0, Monotonic::now()));
        RowCache::new(&freshness, rows_max, 8, &Counter::default(), |_| None)
    }

    #[tokio::test]
    async fn rows_are_evicted_when_there_are_more_than_the_maximum() {
        let cache = cache(100);

        for name in 0..1_000 {
            let load = |version| async move { Ok(Some(Cached::new(name, version, []))) };
            cache.get(&name, load).await.expect("it loads").expect("a row");
        }

        cache.present.run_pending_tasks().await;
        assert_eq!(cache.present.entry_count(), 100);
        assert_eq!(cache.direct_mapped.0.len(), 8);
    }

    #[tokio::test]
    async fn absent_rows_are_evicted_when_there_are_too_many() {
        let cache = cache(100);
        let version = cache.freshness.read_version(Monotonic::now());
        let row = cache.get(&0, |_| async { Ok(None) }).await.expect("it loads");
        assert!(row.is_none() && cache.is_known_absent(&0));

        for name in 0..ABSENT_ROWS_MAX + 10_000 {
            cache.absent.insert(name, version);
        }

        cache.absent.run_pending_tasks();
        assert!(cache.absent.entry_count() <= ABSENT_ROWS_MAX);
        assert_eq!(cache.present.entry_count(), 0, "unknown names evict no rows");
    }
}
