//! Counts windows in the memory of one process: for an embedded server, and for a replica while Redis is unreachable.
//! The counts are lost when the process ends.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use foundation::clock::{Clock, Timestamp};
use foundation::error::Result;
use foundation::id::WorkspaceId;
use hashbrown::HashTable;

use super::window::{WindowCounter, is_within_limit};
use super::{ConsumeReply, CounterGroup, GroupChange, Window, WindowCount, WindowCounters};

const SHARDS: usize = 64;
/// A shard is swept when it has twice as many entries as after the last sweep, and at least this many.
const SWEEP_MIN: usize = 1024;

pub struct LocalCounters {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    clock: Clock,
}

#[derive(Default)]
struct Shard {
    entries: HashTable<Entry>,
    sweep_at: usize,
    groups: HashMap<String, Group>,
}

/// The live counters of a group: the hash of each name, and when it expires.
struct Group {
    workspace: WorkspaceId,
    expires_ms: HashMap<u64, i64>,
}

impl Group {
    fn retain_live(&mut self, now: Timestamp) -> usize {
        self.expires_ms.retain(|_, expires_ms| *expires_ms > now.0);
        self.expires_ms.len()
    }
}

/// A key with its hash, which is computed once per request.
#[derive(Clone, Copy)]
struct Name<'k> {
    key: &'k str,
    hash: u64,
}

impl Name<'_> {
    fn shard(self) -> usize {
        // The hash table uses the lowest and the highest bits, so the shard uses others.
        usize::try_from(self.hash >> 32).unwrap_or(0) % SHARDS
    }
}

struct Entry {
    key: Box<str>,
    hash: u64,
    cell: WindowCounter,
    expires_ms: i64,
}

impl LocalCounters {
    pub fn new(clock: Clock) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            clock,
        }
    }

    /// Returns the number of counters in memory.
    #[expect(clippy::len_without_is_empty, reason = "it is a number of counters, not a collection")]
    pub fn len(&self) -> usize {
        let lock = |shard: &Mutex<Shard>| {
            shard.lock().unwrap_or_else(PoisonError::into_inner).entries.len()
        };
        self.shards.iter().map(lock).sum()
    }

    fn name<'k>(&self, key: &'k str) -> Name<'k> {
        Name { key, hash: self.hasher.hash_one(key) }
    }

    /// Consumes from all windows or from none, without an await. All shards that the request touches are locked in the
    /// order of the shards, so that two requests never deadlock.
    pub fn consume_at(&self, windows: &[Window], now: Timestamp) -> ConsumeReply {
        self.take(windows, now, true)
    }

    /// Like [`LocalCounters::consume_at`], but consumes nothing. It is used for a caller that is rejected for another
    /// reason.
    pub fn peek_at(&self, windows: &[Window], now: Timestamp) -> ConsumeReply {
        self.take(windows, now, false)
    }

    /// Refunds a cost that was consumed from the window with this number. A counter that drops to 0 is removed.
    pub fn give_back(&self, key: &str, number: i64, cost: i64) {
        let name = self.name(key);
        let mut shard = self.shards[name.shard()].lock().unwrap_or_else(PoisonError::into_inner);
        let matches_key = |entry: &Entry| *entry.key == *name.key;
        let Ok(mut entry) = shard.entries.find_entry(name.hash, matches_key) else { return };
        let counter = &mut entry.get_mut().cell;
        if counter.number == number {
            counter.count = (counter.count - cost).max(0);
        } else if counter.number == number + 1 {
            counter.before = (counter.before - cost).max(0);
        }
        if counter.count == 0 && counter.before == 0 {
            entry.remove();
        }
    }

    fn take(&self, windows: &[Window], now: Timestamp, may_consume: bool) -> ConsumeReply {
        let names: Vec<_> = windows.iter().map(|window| self.name(&window.key)).collect();
        let group = windows.iter().find_map(|window| window.group.as_deref());
        let group = group.map(|group| (group, self.name(&group.name)));
        let touched = names.iter().copied().chain(group.map(|(_, name)| name));
        let mut locked = Locked::lock(self, touched);

        let mut counters: Vec<WindowCounter> = Vec::with_capacity(names.len());
        let mut counts = Vec::with_capacity(names.len());
        let mut is_admitted = may_consume;
        let mut created = 0;
        let mut renewed = Vec::new();
        for (window, name) in windows.iter().zip(&names) {
            // Two windows with the same name in one request count against each other.
            let earlier =
                names[..counters.len()].iter().rposition(|earlier| earlier.key == name.key);
            let stored = || WindowCounter::at(locked.cell(*name), now.0, window.duration_ms);
            let mut counter = earlier.map_or_else(stored, |at| counters[at]);
            let effective = counter.effective(now.0, window.duration_ms);
            is_admitted &= is_within_limit(window, effective);
            counts.push(WindowCount { effective, number: counter.number });
            if window.group.is_some() && window.cost > 0 {
                let last = locked.cell(*name).map_or(i64::MIN, |counter| counter.number);
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
            change = locked.grow(group, name, created, renewed, now);
            is_admitted = change != GroupChange::Full;
        }
        if is_admitted {
            for ((window, name), counter) in windows.iter().zip(&names).zip(counters) {
                if window.cost > 0 {
                    locked.put(*name, counter, counter.expires_ms(window.duration_ms), now);
                }
            }
        }
        ConsumeReply { is_admitted, windows: counts, purse: None, group: change }
    }

    /// Returns the number of live counters in the groups of each workspace. Expired counters are removed.
    pub fn count_groups(&self) -> HashMap<WorkspaceId, u64> {
        let now = self.clock.now();
        let mut totals = HashMap::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
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
struct Locked<'a>(Vec<(usize, MutexGuard<'a, Shard>)>);

impl<'a> Locked<'a> {
    fn lock<'k>(counters: &'a LocalCounters, names: impl Iterator<Item = Name<'k>>) -> Self {
        let mut shards: Vec<_> = names.map(Name::shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let lock = |at: usize| counters.shards[at].lock().unwrap_or_else(PoisonError::into_inner);
        Self(shards.into_iter().map(|at| (at, lock(at))).collect())
    }

    fn shard(&mut self, name: Name<'_>) -> &mut Shard {
        let found = self.0.iter_mut().find(|(at, _)| *at == name.shard());
        &mut found.expect("every name of a request is locked first").1
    }

    fn cell(&mut self, name: Name<'_>) -> Option<WindowCounter> {
        Some(self.shard(name).find(name)?.cell)
    }

    /// Adds counters to a group, unless it would exceed the maximum of live counters.
    fn grow(
        &mut self,
        group: &CounterGroup,
        name: Name<'_>,
        created: usize,
        renewed: Vec<(u64, i64)>,
        now: Timestamp,
    ) -> GroupChange {
        if renewed.is_empty() {
            return GroupChange::None;
        }
        let new = || Group { workspace: group.workspace.clone(), expires_ms: HashMap::new() };
        let groups = &mut self.shard(name).groups;
        let live_group = groups.entry(group.name.clone()).or_insert_with(new);
        if created > 0 && live_group.retain_live(now) + created > usize::from(group.live_max) {
            return GroupChange::Full;
        }
        live_group.expires_ms.extend(renewed);
        GroupChange::Grown
    }

    fn put(&mut self, name: Name<'_>, counter: WindowCounter, expires_ms: i64, now: Timestamp) {
        let shard = self.shard(name);
        if let Some(entry) = shard.find(name) {
            (entry.cell, entry.expires_ms) = (counter, expires_ms);
            return;
        }
        shard.sweep(now);
        let entry = Entry { key: name.key.into(), hash: name.hash, cell: counter, expires_ms };
        shard.entries.insert_unique(name.hash, entry, |entry| entry.hash);
    }
}

impl Shard {
    fn find(&mut self, name: Name<'_>) -> Option<&mut Entry> {
        self.entries.find_mut(name.hash, |entry| *entry.key == *name.key)
    }

    /// Removes expired counters once there are many entries: a flood of names costs memory for two windows, and each
    /// insertion takes constant time.
    fn sweep(&mut self, now: Timestamp) {
        if self.entries.len() < self.sweep_at.max(SWEEP_MIN) {
            return;
        }
        self.entries.retain(|entry| entry.expires_ms > now.0);
        self.sweep_at = self.entries.len() * 2;
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
