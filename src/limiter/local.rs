//! The counters of one process. They are forgotten when it ends; purses are then empty, because an
//! embedded server withdraws from the bank no more than it spends at once.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::window::{Cell, admits};
use super::{Counted, Engine, Purse, PurseState, Spend, Take, Taken, Window};
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
    entries: HashMap<String, Entry>,
    sweep_at: usize,
}

struct Entry {
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

    fn shard_of(&self, key: &str) -> usize {
        usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0)
    }

    /// The take itself, without an await: everything it touches is locked, in the order of the
    /// shards, so that two takes never wait for each other.
    pub fn take_at(&self, take: &Take, now: Timestamp) -> Taken {
        let keys = take.windows.iter().map(|window| window.key.as_str());
        let keys = keys.chain(take.spend.iter().map(|spend| spend.purse.as_str()));
        let mut locked = Locked::lock(self, keys);

        let mut cells: Vec<(&str, Cell, &Window)> = Vec::with_capacity(take.windows.len());
        let mut windows = Vec::with_capacity(take.windows.len());
        let mut taken = true;
        for window in &take.windows {
            // Two windows of one name in one take count on each other.
            let known = cells.iter().rposition(|(key, ..)| *key == window.key);
            let stored = || Cell::at(locked.cell(&window.key), now.0, window.duration_ms);
            let mut cell = known.map_or_else(stored, |at| cells[at].1);
            let effective = cell.effective(now.0, window.duration_ms);
            taken &= admits(window, effective);
            windows.push(Counted { effective, number: cell.number });
            cell.count += window.cost;
            cells.push((&window.key, cell, window));
        }
        let purse = take.spend.as_ref().map(|spend| locked.spend(spend, &mut taken, now));
        if taken {
            for (key, cell, window) in cells.into_iter().filter(|(.., window)| window.cost > 0) {
                locked.put(key, What::Cell(cell), cell.expires_ms(window.duration_ms), now);
            }
        }
        Taken { taken, windows, purse }
    }
}

/// The shards that a take touches, locked until it is done.
struct Locked<'a> {
    counters: &'a LocalCounters,
    guards: Vec<(usize, MutexGuard<'a, Shard>)>,
}

impl<'a> Locked<'a> {
    fn lock<'k>(counters: &'a LocalCounters, keys: impl Iterator<Item = &'k str>) -> Self {
        let mut shards: Vec<_> = keys.map(|key| counters.shard_of(key)).collect();
        shards.sort_unstable();
        shards.dedup();
        let lock = |at: usize| counters.shards[at].lock().unwrap_or_else(PoisonError::into_inner);
        Self { counters, guards: shards.into_iter().map(|at| (at, lock(at))).collect() }
    }

    fn shard(&mut self, key: &str) -> &mut Shard {
        let at = self.counters.shard_of(key);
        let found = self.guards.iter_mut().find(|(shard, _)| *shard == at);
        &mut found.expect("every key of a take is locked first").1
    }

    fn cell(&mut self, key: &str) -> Option<Cell> {
        match self.shard(key).entries.get(key)?.what {
            What::Cell(cell) => Some(cell),
            What::Purse { .. } => None,
        }
    }

    /// Puts in what the bank has debited, and spends when everything else was taken too.
    fn spend(&mut self, spend: &Spend, taken: &mut bool, now: Timestamp) -> Purse {
        let stored = self.shard(&spend.purse).entries.get(&spend.purse).map(|entry| entry.what);
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
            self.put(&spend.purse, purse, now.plus_ms(PURSE_LIFE_MS).0, now);
        }
        Purse { state, units, bank }
    }

    fn put(&mut self, key: &str, what: What, expires_ms: i64, now: Timestamp) {
        let shard = self.shard(key);
        shard.sweep(now);
        match shard.entries.get_mut(key) {
            Some(entry) => *entry = Entry { what, expires_ms },
            None => {
                shard.entries.insert(key.to_owned(), Entry { what, expires_ms });
            }
        }
    }
}

impl Shard {
    /// Forgets what says nothing any more, once there is much of it: a flood of names costs memory
    /// for two windows, and each insertion a constant time.
    fn sweep(&mut self, now: Timestamp) {
        if self.entries.len() < self.sweep_at.max(SWEEP_MIN) {
            return;
        }
        self.entries.retain(|_, entry| {
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
        let mut locked = Locked::lock(self, std::iter::once(purse));
        Ok(match locked.shard(purse).entries.remove(purse).map(|entry| entry.what) {
            Some(What::Purse { units, .. }) => units,
            Some(What::Cell(_)) | None => 0,
        })
    }
}
