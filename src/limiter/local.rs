//! The counters of one process. They are forgotten when it ends; purses are then empty, because an
//! embedded server withdraws from the bank no more than it spends at once.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;

use super::window::{Cell, admits};
use super::{Counted, Engine, Purse, PurseState, Spend, Take, Taken};
use crate::clock::{Clock, Timestamp};
use crate::error::Result;

const SHARDS: usize = 64;
/// A shard is swept when it has twice as many entries as after the last sweep, and at least these.
const SWEEP_MIN: usize = 1024;
/// How long an untouched purse is kept.
const PURSE_LIFE_MS: i64 = 24 * 60 * 60 * 1000;

pub struct LocalCounters {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    clock: Clock,
}

#[derive(Default)]
struct Shard {
    entries: HashTable<Entry>,
    sweep_at: usize,
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
    what: What,
    expires_ms: i64,
}

#[derive(Clone, Copy)]
enum What {
    Cell(Cell),
    Purse { units: i64, bank: Option<i64> },
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
    pub fn take_at(&self, take: &Take, now: Timestamp) -> Taken {
        let names: Vec<_> = take.windows.iter().map(|window| self.name(&window.key)).collect();
        let purse = take.spend.as_ref().map(|spend| (spend, self.name(&spend.purse)));
        let purse_name = purse.map(|(_, name)| name);
        let mut locked = Locked::lock(self, names.iter().copied().chain(purse_name));

        let mut cells: Vec<Cell> = Vec::with_capacity(names.len());
        let mut windows = Vec::with_capacity(names.len());
        let mut taken = true;
        for (window, name) in take.windows.iter().zip(&names) {
            // Two windows of one name in one take count on each other.
            let known = names[..cells.len()].iter().rposition(|known| known.key == name.key);
            let stored = || Cell::at(locked.cell(*name), now.0, window.duration_ms);
            let mut cell = known.map_or_else(stored, |at| cells[at]);
            let effective = cell.effective(now.0, window.duration_ms);
            taken &= admits(window, effective);
            windows.push(Counted { effective, number: cell.number });
            cell.count += window.cost;
            cells.push(cell);
        }
        let purse = purse.map(|(spend, name)| locked.spend(spend, name, &mut taken, now));
        if taken {
            for ((window, name), cell) in take.windows.iter().zip(&names).zip(cells) {
                if window.cost > 0 {
                    locked.put(*name, What::Cell(cell), cell.expires_ms(window.duration_ms), now);
                }
            }
        }
        Taken { taken, windows, purse }
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

    fn cell(&mut self, name: Name<'_>) -> Option<Cell> {
        match self.shard(name).find(name)?.what {
            What::Cell(cell) => Some(cell),
            What::Purse { .. } => None,
        }
    }

    /// Puts in what the bank has debited, and spends when everything else was taken too.
    fn spend(&mut self, spend: &Spend, name: Name<'_>, taken: &mut bool, now: Timestamp) -> Purse {
        let stored = self.shard(name).find(name).map(|entry| entry.what);
        let (mut units, mut bank) = match stored {
            Some(What::Purse { units, bank }) => (units, bank),
            Some(What::Cell(_)) | None => (0, None),
        };
        units += spend.put;
        bank = match (bank, spend.bank) {
            (Some(known), Some(told)) => Some(known.min(told)),
            (known, told) => known.or(told),
        };
        let state = match bank {
            None => PurseState::Short,
            Some(_) if units >= spend.cost => PurseState::Enough,
            Some(bank) if units.saturating_add(bank) >= spend.cost => PurseState::Short,
            Some(_) => PurseState::Exceeded,
        };
        *taken &= state == PurseState::Enough;
        if *taken {
            units -= spend.cost;
        }
        if bank.is_some() {
            let purse = What::Purse { units, bank };
            self.put(name, purse, now.plus_ms(PURSE_LIFE_MS).0, now);
        }
        Purse { state, units, bank }
    }

    fn put(&mut self, name: Name<'_>, what: What, expires_ms: i64, now: Timestamp) {
        let shard = self.shard(name);
        if let Some(entry) = shard.find(name) {
            (entry.what, entry.expires_ms) = (what, expires_ms);
            return;
        }
        shard.sweep(now);
        let entry = Entry { key: name.key.into(), hash: name.hash, what, expires_ms };
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
        self.entries.retain(|entry| {
            let holds_units = matches!(entry.what, What::Purse { units, .. } if units > 0);
            entry.expires_ms > now.0 || holds_units
        });
        self.sweep_at = self.entries.len() * 2;
    }
}

impl Engine for LocalCounters {
    async fn take(&self, take: &Take, now: Option<Timestamp>) -> Result<Taken> {
        Ok(self.take_at(take, now.unwrap_or_else(|| self.clock.now())))
    }

    async fn recall(&self, purse: &str) -> Result<i64> {
        let name = self.name(purse);
        let mut locked = Locked::lock(self, std::iter::once(name));
        let shard = locked.shard(name);
        let found = shard.entries.find_entry(name.hash, |entry| *entry.key == *name.key);
        Ok(match found.map(|entry| entry.remove().0.what) {
            Ok(What::Purse { units, .. }) => units,
            Ok(What::Cell(_)) | Err(_) => 0,
        })
    }
}
