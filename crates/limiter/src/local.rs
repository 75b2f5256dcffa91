//! Counts windows in the memory of one process: for an embedded server, and for a replica while Redis is unreachable.
//! The counts are lost when the process ends.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use foundation::clock::{Clock, Timestamp};
use foundation::error::Result;
use foundation::id::WorkspaceId;
use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard};

use super::window::{WindowCounter, clamp_to_exact, is_within_limit};
use super::{
    Adjustment, ConsumeReply, CounterGroup, GroupChange, Window, WindowCount, WindowCounters,
};

const SHARD_COUNT: usize = 64;
/// A shard is swept when it has twice as many entries as after the last sweep, and at least this many.
const SWEEP_ENTRIES_MIN: usize = 1024;

pub struct LocalCounters {
    shards: Vec<Mutex<LocalShard>>,
    hasher: RandomState,
    clock: Clock,
}

#[derive(Default)]
struct LocalShard {
    entries: HashTable<CounterEntry>,
    sweep_entries: usize,
    groups: HashMap<String, LiveGroup>,
}

/// The live counters of a group: the hash of each name, and when it expires.
struct LiveGroup {
    workspace: WorkspaceId,
    counter_expiries_ms: HashMap<u64, i64>,
}

impl LiveGroup {
    fn retain_live(&mut self, now: Timestamp) -> usize {
        self.counter_expiries_ms.retain(|_, expires_ms| *expires_ms > now.0);
        self.counter_expiries_ms.len()
    }
}

/// A key with its hash, which is computed once per request.
#[derive(Clone, Copy)]
struct HashedKey<'k> {
    key: &'k str,
    hash: u64,
}

impl HashedKey<'_> {
    fn shard_index(self) -> usize {
        // The hash table uses the lowest and the highest bits, so the shard uses others.
        usize::try_from(self.hash >> 32).unwrap_or(0) % SHARD_COUNT
    }
}

struct CounterEntry {
    key: Box<str>,
    hash: u64,
    counter: WindowCounter,
    expires_ms: i64,
}

impl LocalCounters {
    pub fn new(clock: Clock) -> Self {
        Self {
            shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            clock,
        }
    }

    /// Returns the number of counters in memory.
    #[expect(clippy::len_without_is_empty, reason = "it is a number of counters, not a collection")]
    pub fn len(&self) -> usize {
        let lock = |shard: &Mutex<LocalShard>| shard.lock().entries.len();
        self.shards.iter().map(lock).sum()
    }

    fn hash_key<'k>(&self, key: &'k str) -> HashedKey<'k> {
        HashedKey { key, hash: self.hasher.hash_one(key) }
    }

    /// Consumes from all windows or from none, without an await. All shards that the request touches are locked in the
    /// order of the shards, so that two requests never deadlock.
    pub fn consume_at(&self, windows: &[Window], now: Timestamp) -> ConsumeReply {
        self.consume_or_peek(windows, now, true)
    }

    /// Like [`LocalCounters::consume_at`], but consumes nothing. It is used for a caller that is rejected for another
    /// reason.
    pub fn peek_at(&self, windows: &[Window], now: Timestamp) -> ConsumeReply {
        self.consume_or_peek(windows, now, false)
    }

    /// Changes the count of a window, unless it has ended.
    pub fn adjust(&self, Adjustment { window, window_number, units }: &Adjustment) {
        if *units <= 0 {
            return self.refund(&window.key, *window_number, units.saturating_neg());
        }
        let now = self.clock.now();
        let name = self.hash_key(&window.key);
        let mut locked = LockedShards::lock(self, std::iter::once(name));
        let stored = locked.find_counter(name);
        let mut counter = WindowCounter::from_stored(stored, now.0, window.duration_ms);
        let count = match counter.number - window_number {
            ..=0 => &mut counter.count,
            1 => &mut counter.previous_count,
            _ => return,
        };
        *count = clamp_to_exact(count.saturating_add(*units));
        locked.set_counter(name, counter, counter.expires_ms(window.duration_ms), now);
    }

    /// Refunds a cost that was consumed from the window with this number, or from the one before as far as that window has less. A
    /// counter that drops to 0 is removed.
    pub fn refund(&self, key: &str, number: i64, cost: i64) {
        let name = self.hash_key(key);
        let mut shard = self.shards[name.shard_index()].lock();
        let matches_key = |entry: &CounterEntry| *entry.key == *name.key;
        let Ok(mut entry) = shard.entries.find_entry(name.hash, matches_key) else { return };
        let counter = &mut entry.get_mut().counter;
        match counter.number - number {
            0 => {
                let rest = cost.saturating_sub(counter.count).max(0);
                counter.count = (counter.count - cost).max(0);
                counter.previous_count = (counter.previous_count - rest).max(0);
            }
            1 => counter.previous_count = (counter.previous_count - cost).max(0),
            // Nothing was consumed in this window yet.
            -1 => counter.count = (counter.count - cost).max(0),
            _ => {}
        }
        if counter.count == 0 && counter.previous_count == 0 {
            entry.remove();
        }
    }

    fn consume_or_peek(
        &self,
        windows: &[Window],
        now: Timestamp,
        may_consume: bool,
    ) -> ConsumeReply {
        let names: Vec<_> = windows.iter().map(|window| self.hash_key(&window.key)).collect();
        let group = windows.iter().find_map(|window| window.group.as_deref());
        let group = group.map(|group| (group, self.hash_key(&group.name)));
        let touched = names.iter().copied().chain(group.map(|(_, name)| name));
        let mut locked = LockedShards::lock(self, touched);

        let mut counters: Vec<WindowCounter> = Vec::with_capacity(names.len());
        let mut counts = Vec::with_capacity(names.len());
        let mut is_admitted = may_consume;
        let mut created = 0;
        let mut renewed = Vec::new();
        for (window, name) in windows.iter().zip(&names) {
            // Two windows with the same name in one request count against each other.
            let earlier =
                names[..counters.len()].iter().rposition(|earlier| earlier.key == name.key);
            let stored = || {
                WindowCounter::from_stored(locked.find_counter(*name), now.0, window.duration_ms)
            };
            let mut counter = earlier.map_or_else(stored, |at| counters[at]);
            let effective = counter.effective_count(now.0, window.duration_ms);
            is_admitted &= is_within_limit(window, effective);
            counts.push(WindowCount { effective_count: effective, window_number: counter.number });
            if window.group.is_some() && window.cost > 0 {
                let last = locked.find_counter(*name).map_or(i64::MIN, |counter| counter.number);
                created += usize::from(last < counter.number - 1);
                if last < counter.number {
                    renewed.push((name.hash, counter.expires_ms(window.duration_ms)));
                }
            }
            counter.count += window.cost;
            counters.push(counter);
        }
        let mut change = GroupChange::None;
        if let Some((group, name)) = group.filter(|_| is_admitted) {
            change = locked.grow_group(group, name, created, renewed, now);
            is_admitted = change != GroupChange::Full;
        }
        if is_admitted {
            for ((window, name), counter) in windows.iter().zip(&names).zip(counters) {
                if window.cost > 0 {
                    locked.set_counter(*name, counter, counter.expires_ms(window.duration_ms), now);
                }
            }
        }
        ConsumeReply {
            is_admitted,
            windows: counts,
            lease: None,
            group_change: change,
            regional: None,
        }
    }

    /// Returns the number of live counters in the groups of each workspace. Expired counters are removed.
    pub fn count_group_counters(&self) -> HashMap<WorkspaceId, u64> {
        let now = self.clock.now();
        let mut totals = HashMap::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.groups.retain(|_, group| {
                let live = group.retain_live(now);
                if live > 0 {
                    *totals.entry(group.workspace.clone()).or_default() += live as u64;
                }
                live > 0
            });
        }
        totals
    }
}

/// The shards that a request touches, locked until it is done.
struct LockedShards<'a>(Vec<(usize, MutexGuard<'a, LocalShard>)>);

impl<'a> LockedShards<'a> {
    fn lock<'k>(counters: &'a LocalCounters, names: impl Iterator<Item = HashedKey<'k>>) -> Self {
        let mut shards: Vec<_> = names.map(HashedKey::shard_index).collect();
        shards.sort_unstable();
        shards.dedup();
        let lock = |at: usize| counters.shards[at].lock();
        Self(shards.into_iter().map(|at| (at, lock(at))).collect())
    }

    fn shard(&mut self, name: HashedKey<'_>) -> &mut LocalShard {
        let found = self.0.iter_mut().find(|(at, _)| *at == name.shard_index());
        &mut found.expect("every name of a request is locked first").1
    }

    fn find_counter(&mut self, name: HashedKey<'_>) -> Option<WindowCounter> {
        Some(self.shard(name).find(name)?.counter)
    }

    /// Adds counters to a group, unless it would exceed the maximum of live counters.
    fn grow_group(
        &mut self,
        group: &CounterGroup,
        name: HashedKey<'_>,
        created: usize,
        renewed: Vec<(u64, i64)>,
        now: Timestamp,
    ) -> GroupChange {
        if renewed.is_empty() {
            return GroupChange::None;
        }
        let new = || LiveGroup {
            workspace: group.workspace.clone(),
            counter_expiries_ms: HashMap::new(),
        };
        let groups = &mut self.shard(name).groups;
        let live_group = groups.entry(group.name.clone()).or_insert_with(new);
        if created > 0 && live_group.retain_live(now) + created > usize::from(group.live_max) {
            return GroupChange::Full;
        }
        live_group.counter_expiries_ms.extend(renewed);
        GroupChange::Grown
    }

    fn set_counter(
        &mut self,
        name: HashedKey<'_>,
        counter: WindowCounter,
        expires_ms: i64,
        now: Timestamp,
    ) {
        let shard = self.shard(name);
        if let Some(entry) = shard.find(name) {
            (entry.counter, entry.expires_ms) = (counter, expires_ms);
            return;
        }
        shard.sweep(now);
        let entry = CounterEntry { key: name.key.into(), hash: name.hash, counter, expires_ms };
        shard.entries.insert_unique(name.hash, entry, |entry| entry.hash);
    }
}

impl LocalShard {
    fn find(&mut self, name: HashedKey<'_>) -> Option<&mut CounterEntry> {
        self.entries.find_mut(name.hash, |entry| *entry.key == *name.key)
    }

    /// Removes expired counters once there are many entries: a flood of names costs memory for two windows, and each
    /// insertion takes constant time.
    fn sweep(&mut self, now: Timestamp) {
        if self.entries.len() < self.sweep_entries.max(SWEEP_ENTRIES_MIN) {
            return;
        }
        self.entries.retain(|entry| entry.expires_ms > now.0);
        self.sweep_entries = self.entries.len() * 2;
    }
}

impl WindowCounters for LocalCounters {
    async fn consume_windows(
        &self,
        windows: &[Window],
        now: Option<Timestamp>,
    ) -> Result<ConsumeReply> {
        Ok(self.consume_at(windows, now.unwrap_or_else(|| self.clock.now())))
    }
}

#[cfg(test)]
mod tests;
