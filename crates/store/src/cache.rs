//! Caches rows by name and returns them while they are fresh. Concurrent readers of one name share one load.
//!
//! All caches share one budget in bytes ([`CacheMemory`]); each has, besides, the rows that it used most recently.
//! Errors are never cached. The absence of a row is cached for two seconds.

mod memory;
mod sizes;

use std::any::TypeId;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use foundation::clock::Monotonic;
use foundation::error::Result;
use foundation::fault_injection::Safeguard;
use foundation::id::{IdentityId, RoleId};
use foundation::metrics::Counter;
use foundation::secret::KeyHash;
use futures_util::future::{BoxFuture, Either, Ready, ready};

pub use self::memory::CacheMemory;
use self::memory::{AnyRow, LoadFuture, Lookup};
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
        let slots = tags.into_iter().map(|tag| VersionSlot::from_tag(&tag));
        Self::from_slots(value, version, slots.collect())
    }

    /// Creates an entry like [`Self::new`] with the version slots of the cache tags.
    pub fn from_slots(value: T, version: ReadVersion, slots: Box<[VersionSlot]>) -> Self {
        Self { value, read_version: version, slots }
    }

    /// Returns the version at which the value was read. A value that is computed from it is not newer.
    pub fn read_version(&self) -> ReadVersion {
        self.read_version
    }

    /// Returns the version slots of the cache tags, in their order.
    pub fn slots(&self) -> &[VersionSlot] {
        &self.slots
    }

    /// Returns the approximate size in bytes.
    pub fn size(&self) -> usize
    where
        T: CacheValue,
    {
        size_of::<Self>() + size_of_val(&*self.slots) + self.value.heap_size()
    }

    /// Returns whether the value may still be used.
    pub fn is_fresh(&self, freshness: &Freshness, now: Monotonic) -> bool {
        freshness.is_fresh(self.read_version, &self.slots, now)
    }
}

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

/// A load of a row.
pub struct Load<T> {
    /// The read version that the result must carry.
    pub version: ReadVersion,
    /// The row that the result replaces, if it was still cached. It is stale, but what it was computed from may not be.
    pub stale: Option<Arc<Cached<T>>>,
}

/// A value that can be cached.
pub trait CacheValue: Send + Sync + 'static {
    /// Returns the approximate size in bytes of what it owns outside of itself.
    fn heap_size(&self) -> usize;
}

/// A name by which a value is cached.
pub trait CacheName: Hash + Eq + Clone + Send + Sync + 'static {
    /// Returns a hash that no two names of one cache share.
    fn digest(&self) -> KeyHash;
}

impl CacheName for KeyHash {
    fn digest(&self) -> KeyHash {
        *self
    }
}

impl CacheName for IdentityId {
    fn digest(&self) -> KeyHash {
        KeyHash::compute(self.as_str())
    }
}

impl CacheName for RoleId {
    fn digest(&self) -> KeyHash {
        KeyHash::compute(self.as_str())
    }
}

/// The name of the only row of a cache.
impl CacheName for () {
    fn digest(&self) -> KeyHash {
        KeyHash::compute("")
    }
}

/// A cache of rows of one type.
pub struct RowCache<K, T> {
    memory: Arc<CacheMemory>,
    direct_mapped: DirectMappedCache<K, T>,
    loads: Counter,
    /// Returns the cache tag of a row that is created with this name, if the name determines it.
    tag_of_new_row: fn(&K) -> Option<CacheTag>,
    now: fn() -> Monotonic,
}

impl<K: CacheName, T: CacheValue> RowCache<K, T> {
    /// Creates an empty cache, the only one of its type in this memory. It finds up to `front_slots` of the most recently
    /// used rows fastest.
    pub fn new(
        memory: &Arc<CacheMemory>,
        front_slots: usize,
        loads: &Counter,
        newcomer: fn(&K) -> Option<CacheTag>,
    ) -> Self {
        Self {
            memory: memory.clone(),
            direct_mapped: DirectMappedCache::new(front_slots.min(memory.front_slots_max)),
            loads: loads.clone(),
            tag_of_new_row: newcomer,
            now: Monotonic::now,
        }
    }

    /// Returns the same cache with another clock, which a simulation sets.
    pub fn with_clock(self, now: fn() -> Monotonic) -> Self {
        Self { now, ..self }
    }

    /// Returns the row of this name from the cache or by `load`. Concurrent calls share one load.
    ///
    /// A hit, which nearly every call is, does not carry the state of the load. Call this in a function that is not
    /// `async`: then the cache is compiled once, with that function, and not in every crate that awaits it.
    pub fn get<'a, L, F>(&'a self, name: &'a K, load: L) -> RowFuture<'a, T>
    where
        L: Fn(Load<T>) -> F + Send + Sync + 'a,
        F: Future<Output = Result<Option<Cached<T>>>> + Send + 'a,
    {
        match self.peek_front(name) {
            Some(row) => Either::Left(ready(Ok(Some(row)))),
            None => Either::Right(Box::pin(self.peek_or_load(name, load))),
        }
    }

    /// Returns the row of this name if it was used most recently of those that share its slot.
    fn peek_front(&self, name: &K) -> Option<Arc<Cached<T>>> {
        let is_fresh = |row: &Arc<Cached<T>>| row.is_fresh(&self.memory.freshness, (self.now)());
        self.direct_mapped.get(name).filter(is_fresh)
    }

    /// Returns the cached result for this name without a load: the row, or `Some(None)` for a row known to be absent.
    /// `None` means that a load is needed. As [`Self::get`], it belongs in a function that is not `async`.
    pub fn peek<'a>(&'a self, name: &'a K) -> PeekFuture<'a, T> {
        match self.peek_front(name) {
            Some(row) => Either::Left(ready(Some(Some(row)))),
            None => Either::Right(Box::pin(self.peek_memory(name))),
        }
    }

    async fn peek_memory(&self, name: &K) -> Option<Option<Arc<Cached<T>>>> {
        let tag = (self.tag_of_new_row)(name);
        let cached = self.memory.peek(self.lookup(name, tag.as_ref())).await?;
        let row = cached.and_then(downcast);
        if let Some(row) = &row {
            self.direct_mapped.put(name, row);
        }
        Some(row)
    }

    async fn peek_or_load<L, F>(&self, name: &K, load: L) -> Result<Option<Arc<Cached<T>>>>
    where
        L: Fn(Load<T>) -> F + Send + Sync,
        F: Future<Output = Result<Option<Cached<T>>>> + Send,
    {
        if let Some(cached) = self.peek_memory(name).await {
            return Ok(cached);
        }
        let tag = (self.tag_of_new_row)(name);
        let load = |version, stale: Option<Arc<dyn AnyRow>>| -> LoadFuture<'_> {
            let loading = load(Load { version, stale: stale.and_then(downcast) });
            Box::pin(async { Ok(loading.await?.map(|row| self.prepare(row) as Arc<dyn AnyRow>)) })
        };
        let loaded = self.memory.load(self.lookup(name, tag.as_ref()), &load).await?;
        Ok(loaded.and_then(downcast))
    }

    /// Returns a loaded row as it is cached.
    fn prepare(&self, row: Cached<T>) -> Arc<Cached<T>> {
        match Safeguard::ReadVersion.is_disabled() {
            true => {
                let read_version = self.memory.freshness.read_version((self.now)());
                Arc::new(Cached { read_version, ..row })
            }
            false => Arc::new(row),
        }
    }

    fn lookup<'a>(&'a self, name: &K, tag: Option<&'a CacheTag>) -> Lookup<'a> {
        let name = (TypeId::of::<T>(), name.digest());
        Lookup { name, tag, loads: &self.loads, now: self.now }
    }
}

/// Returns the row as what it is: its type is part of its name.
fn downcast<T: CacheValue>(row: Arc<dyn AnyRow>) -> Option<Arc<Cached<T>>> {
    row.into_any().downcast().ok()
}

#[cfg(test)]
mod tests {
    use foundation::id::KeyId;

    use super::*;

    struct Row;
    struct OtherRow;

    impl CacheValue for Row {
        fn heap_size(&self) -> usize {
            1_000
        }
    }

    impl CacheValue for OtherRow {
        fn heap_size(&self) -> usize {
            1_000
        }
    }

    fn memory(bytes_max: u64) -> Arc<CacheMemory> {
        let freshness = Arc::new(Freshness::new(0, Monotonic::now()));
        Arc::new(CacheMemory::new(freshness, bytes_max))
    }

    fn cache<T: CacheValue>(memory: &Arc<CacheMemory>) -> RowCache<KeyHash, T> {
        RowCache::new(memory, 8, &Counter::default(), |_| None)
    }

    fn name(number: u32) -> KeyHash {
        KeyHash::compute(number.to_string())
    }

    async fn load<T: CacheValue>(cache: &RowCache<KeyHash, T>, number: u32, row: fn() -> T) {
        let load = |load: Load<T>| async move { Ok(Some(Cached::new(row(), load.version, []))) };
        cache.get(&name(number), load).await.expect("it loads").expect("a row");
    }

    #[tokio::test]
    async fn rows_of_all_caches_are_evicted_when_they_take_more_than_the_budget() {
        let memory = memory(1_000_000);
        let (rows, others) = (cache(&memory), cache(&memory));

        for number in 0..2_000 {
            load(&rows, number, || Row).await;
            load(&others, number, || OtherRow).await;
        }

        memory.present.run_pending_tasks().await;
        let count = memory.present.entry_count();
        assert!((700..800).contains(&count), "{count} rows of 1,350 bytes");
        assert!((900_000..=1_000_000).contains(&memory.size()), "{}", memory.size());
        assert_eq!(rows.direct_mapped.0.len(), 8);
        assert_eq!(cache::<Row>(&self::memory(8_192)).direct_mapped.0.len(), 2);
    }

    #[test]
    fn size_of_a_row_includes_its_value_and_its_slots() {
        let now = Monotonic::now();
        let version = Freshness::new(0, now).read_version(now);
        let tag = |id| CacheTag::Key(KeyId::from(id));

        let (plain, tagged) =
            (Cached::new(Row, version, []), Cached::new(Row, version, [tag("a"), tag("b")]));

        assert_eq!(plain.size(), size_of::<Cached<Row>>() + 1_000);
        assert_eq!(tagged.size(), plain.size() + 2 * size_of::<VersionSlot>());
    }

    #[tokio::test]
    async fn row_that_is_used_again_is_found_without_the_shared_memory_until_it_is_stale() {
        let memory = memory(1_000_000);
        let rows = cache::<Row>(&memory);

        load(&rows, 1, || Row).await;
        assert!(rows.peek_front(&name(1)).is_none());
        load(&rows, 1, || Row).await;
        assert!(rows.peek_front(&name(1)).is_some() && rows.peek_front(&name(2)).is_none());

        memory.freshness.invalidate_all();
        assert!(rows.peek_front(&name(1)).is_none());
    }

    #[tokio::test]
    async fn caches_do_not_share_names() {
        let memory = memory(1_000_000);
        let (rows, others) = (cache::<Row>(&memory), cache::<OtherRow>(&memory));

        load(&rows, 1, || Row).await;

        assert!(rows.peek_memory(&name(1)).await.is_some_and(|found| found.is_some()));
        assert!(others.peek_memory(&name(1)).await.is_none());
    }

    #[tokio::test]
    async fn absent_rows_are_evicted_when_there_are_too_many() {
        let memory = memory(1_000_000);
        let cache = cache::<Row>(&memory);
        let version = memory.freshness.read_version(Monotonic::now());
        let row = cache.get(&name(0), |_| async { Ok(None) }).await.expect("it loads");
        assert!(row.is_none() && cache.peek_memory(&name(0)).await.is_some());

        for number in 0..110_000 {
            memory.absent.insert(cache.lookup(&name(number), None).name, version);
        }

        memory.absent.run_pending_tasks();
        assert!(memory.absent.entry_count() <= 100_000);
        assert_eq!(memory.present.entry_count(), 0, "unknown names evict no rows");
    }
}
