//! Stores the rows of all caches within one budget in bytes.
//!
//! Rows of all types are behind one trait, and the functions here that wait return boxed futures. So this is compiled
//! once, and not for every type of row in every crate that reads one.

use std::any::{Any, TypeId};
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use foundation::clock::Monotonic;
use foundation::error::{Error, Result};
use foundation::metrics::Counter;
use foundation::secret::KeyHash;
use foundation::traces;
use futures_util::future::BoxFuture;
use moka::ops::compute::{CompResult, Op};

use super::{CacheValue, Cached};
use crate::freshness::{CacheTag, Freshness, ReadVersion, VersionSlot};

/// The time for which the absence of a row is cached.
const ABSENT_TTL: Duration = Duration::from_secs(2);
const ABSENT_ROWS_MAX: u64 = 100_000;
/// What an entry takes besides its row: its name, the bookkeeping of the cache, and what the allocator rounds up.
const ENTRY_BYTES: usize = 320;
/// The budget for which a cache keeps one more row. Larger than most rows, so that these are a part of the budget.
const FRONT_SLOT_BYTES: u64 = 4_096;
/// The number of attempts of a shared load. A load that began before a change is stale when it completes. If changes
/// arrive faster than that, the caller loads for itself: data read after its request began is new enough for the
/// caller.
const SHARED_ATTEMPTS_MAX: u8 = 3;

/// The name of a row among those of all caches: the type of its value, and the digest of its name.
pub(super) type RowName = (TypeId, KeyHash);

/// A cached row of any type.
pub(super) trait AnyRow: Send + Sync {
    fn is_fresh(&self, freshness: &Freshness, now: Monotonic) -> bool;
    /// Returns the approximate size in bytes.
    fn size(&self) -> usize;
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<T: CacheValue> AnyRow for Cached<T> {
    fn is_fresh(&self, freshness: &Freshness, now: Monotonic) -> bool {
        self.is_fresh(freshness, now)
    }

    fn size(&self) -> usize {
        self.size()
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// What is cached for a name: nothing, the row, or that it does not exist.
pub(super) type CachedFuture<'a> = BoxFuture<'a, Option<Option<Arc<dyn AnyRow>>>>;
/// Loads a row, given the read version that it must carry and the stale row that it replaces.
pub(super) type LoadRow<'a> =
    dyn Fn(ReadVersion, Option<Arc<dyn AnyRow>>) -> LoadFuture<'a> + Send + Sync + 'a;
/// The row that a load finds.
pub(super) type LoadFuture<'a> = BoxFuture<'a, Result<Option<Arc<dyn AnyRow>>>>;

/// A row to find.
#[derive(Clone, Copy)]
pub(super) struct Lookup<'a> {
    pub name: RowName,
    /// The cache tag of a row that is created with this name, if the name determines it.
    pub tag: Option<&'a CacheTag>,
    pub loads: &'a Counter,
    pub now: fn() -> Monotonic,
}

/// The rows of all caches. If they take more than the budget, those that are used least are evicted.
pub struct CacheMemory {
    pub(super) freshness: Arc<Freshness>,
    pub(super) present: moka::future::Cache<RowName, Arc<dyn AnyRow>>,
    /// The names of no row, in a small cache of their own, so that a flood of unknown names cannot evict rows.
    pub(super) absent: moka::sync::Cache<RowName, ReadVersion>,
    /// The maximum number of rows that a cache keeps besides, which may have been evicted from here.
    pub(super) front_slots_max: usize,
}

impl CacheMemory {
    /// Creates an empty memory of up to `bytes_max` bytes.
    pub fn new(freshness: Arc<Freshness>, bytes_max: u64) -> Self {
        Self {
            freshness,
            present: moka::future::Cache::builder()
                .max_capacity(bytes_max)
                .weigher(|_, row: &Arc<dyn AnyRow>| {
                    u32::try_from(ENTRY_BYTES + row.size()).unwrap_or(u32::MAX)
                })
                .build(),
            absent: moka::sync::Cache::builder()
                .max_capacity(ABSENT_ROWS_MAX)
                .time_to_live(ABSENT_TTL)
                .build(),
            front_slots_max: usize::try_from(bytes_max / FRONT_SLOT_BYTES).unwrap_or(usize::MAX),
        }
    }

    /// Returns the approximate size of the rows in bytes. It may be a moment old.
    pub fn size(&self) -> u64 {
        self.present.weighted_size()
    }

    /// Returns what is cached for a name: the row, or `Some(None)` for one that is known to be absent.
    pub(super) fn peek<'a>(&'a self, lookup: Lookup<'a>) -> CachedFuture<'a> {
        Box::pin(async move {
            match self.present.get(&lookup.name).await {
                Some(row) => row.is_fresh(&self.freshness, (lookup.now)()).then_some(Some(row)),
                None => self.is_known_absent(lookup).then_some(None),
            }
        })
    }

    /// Returns the row by `load`. Concurrent calls for one name share one load.
    pub(super) fn load<'a>(
        &'a self,
        lookup: Lookup<'a>,
        load: &'a LoadRow<'a>,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn AnyRow>>>> {
        Box::pin(self.load_shared(lookup, load))
    }

    async fn load_shared<'a>(
        &self,
        lookup: Lookup<'a>,
        load: &'a LoadRow<'a>,
    ) -> Result<Option<Arc<dyn AnyRow>>> {
        let name = &lookup.name;
        for _ in 0..SHARED_ATTEMPTS_MAX {
            let stale = self.remove_stale(lookup).await;
            let loading = self.load_once(lookup, load, stale.clone());
            let loaded = self.present.try_get_with_by_ref(name, loading).await;
            match loaded.map_err(|error| (*error).clone()) {
                Ok(row) if row.is_fresh(&self.freshness, (lookup.now)()) => return Ok(Some(row)),
                Err(LoadError::Absent(version)) if self.is_still_absent(lookup, version) => {
                    self.absent.insert(*name, version);
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
        match self.load_once(lookup, load, None).await {
            Ok(row) => Ok(Some(row)),
            Err(LoadError::Absent(_)) => Ok(None),
            Err(LoadError::Failed(cause)) => Err(Error::Shared(cause)),
        }
    }

    async fn load_once(
        &self,
        lookup: Lookup<'_>,
        load: &LoadRow<'_>,
        stale: Option<Arc<dyn AnyRow>>,
    ) -> std::result::Result<Arc<dyn AnyRow>, LoadError> {
        let version = self.freshness.read_version((lookup.now)());
        lookup.loads.inc();
        match traces::step("database.load", load(version, stale)).await {
            Ok(Some(row)) => Ok(row),
            Ok(None) => Err(LoadError::Absent(version)),
            Err(cause) => Err(LoadError::Failed(Arc::new(cause))),
        }
    }

    /// Removes and returns the row, unless another caller has replaced it with a fresh one.
    async fn remove_stale(&self, lookup: Lookup<'_>) -> Option<Arc<dyn AnyRow>> {
        let is_stale = |row: &Arc<dyn AnyRow>| !row.is_fresh(&self.freshness, (lookup.now)());
        let found = self
            .present
            .entry_by_ref(&lookup.name)
            .and_compute_with(|entry| {
                let is_stale = entry.is_some_and(|entry| is_stale(entry.value()));
                ready(if is_stale { Op::Remove } else { Op::Nop })
            })
            .await;
        match found {
            CompResult::Removed(entry) => Some(entry.into_value()),
            _ => None,
        }
    }

    fn is_known_absent(&self, lookup: Lookup<'_>) -> bool {
        let version = self.absent.get(&lookup.name);
        version.is_some_and(|version| self.is_still_absent(lookup, version))
    }

    /// Returns whether no row of this name has been created since `version`.
    fn is_still_absent(&self, lookup: Lookup<'_>, version: ReadVersion) -> bool {
        let tags = lookup.tag.into_iter().chain([&CacheTag::NewKeys]);
        let slots: Vec<_> = tags.map(VersionSlot::from_tag).collect();
        self.freshness.is_fresh(version, &slots, (lookup.now)())
    }
}

#[derive(Clone)]
enum LoadError {
    Absent(ReadVersion),
    Failed(Arc<Error>),
}

#[cfg(test)]
mod tests;
