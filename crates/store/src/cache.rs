//! What has been read and is still true: rows by name, read once however many ask at once.
//!
//! Errors are never kept. What is not there is remembered for two seconds, in a small cache of its
//! own that a flood of unknown names cannot push the real rows out of.

use std::future::Future;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use foundation::error::{Error, Result};
use foundation::metrics::Counter;
use foundation::traces;

use super::freshness::{CacheTag, Freshness, ReadVersion, VersionSlot};

/// A row, or something made of rows, and what it depends on.
#[derive(Debug)]
pub struct Cached<T> {
    pub value: T,
    stamp: ReadVersion,
    places: Box<[VersionSlot]>,
}

impl<T> Cached<T> {
    /// `stamp` was taken before the first read; `subjects` are all that `value` was made from.
    pub fn new(value: T, stamp: ReadVersion, subjects: impl IntoIterator<Item = CacheTag>) -> Self {
        Self { value, stamp, places: subjects.into_iter().map(|s| VersionSlot::of(&s)).collect() }
    }
}

/// How long it is remembered that something is not there.
const ABSENT_FOR: Duration = Duration::from_secs(2);
const ABSENT_MAX: u64 = 100_000;
/// How often a load that others share is tried. One that began before a change is stale on arrival;
/// where changes come faster than that, the caller reads for itself: what it reads after it was
/// asked is no older than the question.
const SHARED_ATTEMPTS: u8 = 3;

/// The rows asked for lately, each at the one place that its name allows. It spares the cache's own
/// bookkeeping, which costs more than everything else that a verification looks up.
struct DirectMappedCache<K, T>(Box<[Slot<K, T>]>);

/// A row and its name.
type Slot<K, T> = ArcSwapOption<(K, Arc<Cached<T>>)>;

impl<K: Hash + Eq + Clone, T> DirectMappedCache<K, T> {
    fn new(places: usize) -> Self {
        Self((0..places).map(|_| ArcSwapOption::empty()).collect())
    }

    fn place(&self, name: &K) -> Option<&Slot<K, T>> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
        let places = u64::try_from(self.0.len()).ok().filter(|places| *places > 0)?;
        self.0.get(usize::try_from(hash % places).ok()?)
    }

    fn get(&self, name: &K) -> Option<Arc<Cached<T>>> {
        let entry = self.place(name)?.load();
        entry.as_ref().filter(|entry| entry.0 == *name).map(|entry| entry.1.clone())
    }

    fn put(&self, name: &K, row: &Arc<Cached<T>>) {
        if let Some(place) = self.place(name) {
            place.store(Some(Arc::new((name.clone(), row.clone()))));
        }
    }
}

/// A cache of one kind of row.
pub struct RowCache<K, T> {
    freshness: Arc<Freshness>,
    front: DirectMappedCache<K, T>,
    present: moka::future::Cache<K, Arc<Cached<T>>>,
    absent: moka::sync::Cache<K, ReadVersion>,
    loads: Counter,
    /// What a row of this name would be called when it is made, where others can tell.
    newcomer: fn(&K) -> Option<CacheTag>,
}

impl<K, T> RowCache<K, T>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    pub fn new(
        freshness: &Arc<Freshness>,
        rows_max: u64,
        front_places: usize,
        loads: &Counter,
        newcomer: fn(&K) -> Option<CacheTag>,
    ) -> Self {
        Self {
            freshness: freshness.clone(),
            loads: loads.clone(),
            front: DirectMappedCache::new(front_places),
            present: moka::future::Cache::new(rows_max),
            absent: moka::sync::Cache::builder()
                .max_capacity(ABSENT_MAX)
                .time_to_live(ABSENT_FOR)
                .build(),
            newcomer,
        }
    }

    fn is_fresh(&self, row: &Cached<T>) -> bool {
        self.freshness.is_fresh(row.stamp, &row.places)
    }

    /// The row of this name, from the cache or by `load`, which is given the stamp that its result is
    /// to carry. One load runs for all who ask at once.
    pub async fn get<L, F>(&self, name: &K, load: L) -> Result<Option<Arc<Cached<T>>>>
    where
        L: Fn(ReadVersion) -> F,
        F: Future<Output = Result<Option<Cached<T>>>> + Send,
    {
        match self.front.get(name).filter(|row| self.is_fresh(row)) {
            Some(row) => Ok(Some(row)),
            // Boxed: a hit, which is what nearly every call is, does not carry the rest around.
            None => Box::pin(self.find(name, load)).await,
        }
    }

    /// What is known of this name without a load: the row, or that there is none. `None`: nothing.
    pub async fn peek(&self, name: &K) -> Option<Option<Arc<Cached<T>>>> {
        if let Some(row) = self.front.get(name).filter(|row| self.is_fresh(row)) {
            return Some(Some(row));
        }
        match self.present.get(name).await {
            Some(row) if self.is_fresh(&row) => {
                self.front.put(name, &row);
                Some(Some(row))
            }
            Some(_) => None,
            None => self.is_known_absent(name).then_some(None),
        }
    }

    async fn find<L, F>(&self, name: &K, load: L) -> Result<Option<Arc<Cached<T>>>>
    where
        L: Fn(ReadVersion) -> F,
        F: Future<Output = Result<Option<Cached<T>>>> + Send,
    {
        match self.peek(name).await {
            Some(known) => Ok(known),
            None => self.load(name, load).await,
        }
    }

    async fn load<L, F>(&self, name: &K, load: L) -> Result<Option<Arc<Cached<T>>>>
    where
        L: Fn(ReadVersion) -> F,
        F: Future<Output = Result<Option<Cached<T>>>> + Send,
    {
        for _ in 0..SHARED_ATTEMPTS {
            let stale = self.take_stale(name).await;
            let loaded = self.present.try_get_with_by_ref(name, self.load_once(&load)).await;
            match loaded.map_err(|missing| (*missing).clone()) {
                Ok(row) if self.is_fresh(&row) => return Ok(Some(row)),
                Err(LoadError::Absent(stamp)) if self.is_still_absent(name, stamp) => {
                    self.absent.insert(name.clone(), stamp);
                    return Ok(None);
                }
                Ok(_) | Err(LoadError::Absent(_)) => {}
                Err(LoadError::Failed(cause)) => {
                    // What is not trusted without the database may be trusted again when its change is undone.
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
        let stamp = self.freshness.read_version();
        self.loads.inc();
        match traces::step("database.load", load(stamp)).await {
            Ok(Some(row)) => Ok(Arc::new(row)),
            Ok(None) => Err(LoadError::Absent(stamp)),
            Err(cause) => Err(LoadError::Failed(Arc::new(cause))),
        }
    }

    /// Removes the row, and gives it back, unless somebody has put a fresh one there meanwhile.
    async fn take_stale(&self, name: &K) -> Option<Arc<Cached<T>>> {
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
        self.absent.get(name).is_some_and(|stamp| self.is_still_absent(name, stamp))
    }

    /// Whether no row of this name has been made since `stamp`.
    fn is_still_absent(&self, name: &K, stamp: ReadVersion) -> bool {
        let own = (self.newcomer)(name);
        let places: Vec<_> = own.iter().chain([&CacheTag::NewKeys]).map(VersionSlot::of).collect();
        self.freshness.is_fresh(stamp, &places)
    }
}

#[derive(Clone)]
enum LoadError {
    Absent(ReadVersion),
    Failed(Arc<Error>),
}
