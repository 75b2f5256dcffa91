//! The counters of one process, forgotten when it ends: those of an embedded server, and those of a replica
//! while Redis is away.

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
/// A shard is swept when it has twice as many entries as after the last sweep, and at least these.
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

/// The live counters of a group: a hash of the name of each, and when it expires.
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

/// A key with its hash, which is worked out once for each take.
#[derive(Clone, Copy)]
struct Name<'k> {
    key: &'k str,
    hash: u64,
}

impl Name<'_> {
    fn shard(self) -> usize {
        // A table goes by the lowest and the highest bits.
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

    /// How many names are in memory.
    #[expect(clippy::len_without_is_empty, reason = "a figure, not a collection")]
    pub fn len(&self) -> usize {
        let lock = |shard: &Mutex<Shard>| {
            shard.lock().unwrap_or_else(PoisonError::into_inner).entries.len()
        };
        self.shards.iter().map(lock).sum()
    }

    fn name<'k>(&self, key: &'k str) -> Name<'k> {
        Name { key, hash: self.hasher.hash_one(key) }
    }

    /// The take itself, without an await: everything it touches is locked, in the order of the
    /// shards, so that two takes never wait for each other.
    pub fn consume_at(&self, windows: &[Window], now: Timestamp) -> ConsumeReply {
        self.take(windows, now, true)
    }

    /// As [`LocalCounters::count_at`], and nothing is taken: how the windows stand for somebody who is
    /// refused for another reason.
    pub fn peek_at(&self, windows: &[Window], now: Timestamp) -> ConsumeReply {
        self.take(windows, now, false)
    }

    /// Gives back what was taken from a window with this number. A counter of nothing is forgotten.
    pub fn give_back(&self, key: &str, number: i64, cost: i64) {
        let name = self.name(key);
        let mut shard = self.shards[name.shard()].lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |entry: &Entry| *entry.key == *name.key;
        let Ok(mut entry) = shard.entries.find_entry(name.hash, is_it) else { return };
        let cell = &mut entry.get_mut().cell;
        if cell.number == number {
            cell.count = (cell.count - cost).max(0);
        } else if cell.number == number + 1 {
            cell.before = (cell.before - cost).max(0);
        }
        if cell.count == 0 && cell.before == 0 {
            entry.remove();
        }
    }

    fn take(&self, windows: &[Window], now: Timestamp, may_take: bool) -> ConsumeReply {
        let names: Vec<_> = windows.iter().map(|window| self.name(&window.key)).collect();
        let group = windows.iter().find_map(|window| window.group.as_deref());
        let group = group.map(|group| (group, self.name(&group.name)));
        let touched = names.iter().copied().chain(group.map(|(_, name)| name));
        let mut locked = Locked::lock(self, touched);

        let mut cells: Vec<WindowCounter> = Vec::with_capacity(names.len());
        let mut counted = Vec::with_capacity(names.len());
        let mut taken = may_take;
        let mut created = 0;
        let mut renewed = Vec::new();
        for (window, name) in windows.iter().zip(&names) {
            // Two windows of one name in one take count on each other.
            let known = names[..cells.len()].iter().rposition(|known| known.key == name.key);
            let stored = || WindowCounter::at(locked.cell(*name), now.0, window.duration_ms);
            let mut cell = known.map_or_else(stored, |at| cells[at]);
            let effective = cell.effective(now.0, window.duration_ms);
            taken &= is_within_limit(window, effective);
            counted.push(WindowCount { effective, number: cell.number });
            if window.group.is_some() && window.cost > 0 {
                let last = locked.cell(*name).map_or(i64::MIN, |cell| cell.number);
                created += usize::from(last < cell.number - 1);
                if last < cell.number {
                    renewed.push((name.hash, cell.expires_ms(window.duration_ms)));
                }
            }
            cell.count += window.cost;
            cells.push(cell);
        }
        let mut change = GroupChange::None;
        if let Some((group, name)) = group.filter(|_| taken) {
            change = locked.grow(group, name, created, renewed, now);
            taken = change != GroupChange::Full;
        }
        if taken {
            for ((window, name), cell) in windows.iter().zip(&names).zip(cells) {
                if window.cost > 0 {
                    locked.put(*name, cell, cell.expires_ms(window.duration_ms), now);
                }
            }
        }
        ConsumeReply { is_admitted: taken, windows: counted, purse: None, group: change }
    }

    /// How many live counters the groups of each workspace have. What has expired is forgotten.
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

/// The shards that a take touches, locked until it is done.
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
        &mut found.expect("every name of a take is locked first").1
    }

    fn cell(&mut self, name: Name<'_>) -> Option<WindowCounter> {
        Some(self.shard(name).find(name)?.cell)
    }

    /// Adds counters to a group, unless it would have too many that are live.
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
        let known = groups.entry(group.name.clone()).or_insert_with(new);
        if created > 0 && known.retain_live(now) + created > usize::from(group.live_max) {
            return GroupChange::Full;
        }
        known.expires_ms.extend(renewed);
        GroupChange::Grown
    }

    fn put(&mut self, name: Name<'_>, cell: WindowCounter, expires_ms: i64, now: Timestamp) {
        let shard = self.shard(name);
        if let Some(entry) = shard.find(name) {
            (entry.cell, entry.expires_ms) = (cell, expires_ms);
            return;
        }
        shard.sweep(now);
        let entry = Entry { key: name.key.into(), hash: name.hash, cell, expires_ms };
        shard.entries.insert_unique(name.hash, entry, |entry| entry.hash);
    }
}

impl Shard {
    fn find(&mut self, name: Name<'_>) -> Option<&mut Entry> {
        self.entries.find_mut(name.hash, |entry| *entry.key == *name.key)
    }

    /// Forgets what says nothing any more, once there is much of it: a flood of names costs memory
    /// for two windows, and each insertion a constant time.
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
