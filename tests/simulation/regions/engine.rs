//! A model of a region's Redis: what `lua/consume.lua`, `lua/take_back.lua` and `lua/charge.lua` do with windows.

use std::collections::BTreeMap;

use foundation::clock::Timestamp;
use foundation::fault_injection::Safeguard;
use limiter::regions::TakenBack;
use limiter::{
    ConsumeReply, ConsumeRequest, Grant, Granted, GroupChange, RegionalReply, Window, WindowCount,
    WindowLease, WindowLeaseState,
};

/// The state of a Redis.
#[derive(Debug, Clone, Default)]
pub struct Engine {
    /// It changes with each restart and each promotion.
    pub generation: i64,
    windows: BTreeMap<String, StoredWindow>,
    leases: BTreeMap<String, StoredLease>,
    /// The numbers of the first windows that have begun after a move.
    begun: BTreeMap<String, i64>,
    /// The last counts of windows whose counter has moved, with their numbers.
    closed: BTreeMap<String, (i64, i64)>,
}

/// For how long nobody waits for the home after it has denied.
const SCARCE_MS: i64 = 1_000;
/// How old a count may be that is only read.
const PEEK_MAX_AGE_MS: i64 = 1_000;
/// The count of a window that was closed.
const FULL: i64 = 1 << 40;

#[derive(Debug, Clone, Copy, Default)]
struct StoredWindow {
    number: i64,
    count: i64,
    before: i64,
}

#[derive(Debug, Clone, Copy)]
struct StoredLease {
    generation: i64,
    home_generation: i64,
    number: i64,
    limit: i64,
    units: i64,
    count: i64,
    ends_at: i64,
    denied_until: i64,
    denied_cost: i64,
    granted: i64,
    spent: i64,
    since: i64,
    used_at: i64,
}

impl Engine {
    pub fn empty(generation: i64) -> Self {
        Self { generation, ..Self::default() }
    }

    /// Runs a request as the script does.
    pub fn consume(&mut self, request: &ConsumeRequest, now: i64) -> ConsumeReply {
        for grant in &request.grants {
            self.add_grant(grant, now);
        }
        let mut next = self.clone();
        let (mut is_admitted, mut is_misplaced, mut has_bounds) = (true, false, false);
        let (mut windows, mut leases, mut granted) = (Vec::new(), Vec::new(), None);
        for window in &request.windows {
            let count = match window.away() {
                Some(away) => {
                    let (lease, is_taken) = next.take_from_lease(&away.lease, window, now);
                    is_admitted &= is_taken;
                    leases.push(lease);
                    lease.window_count(window, Timestamp(now))
                }
                None => {
                    let stored = next.window_at(window.key(), window.duration_ms(), now);
                    let left = stored.left(window.duration_ms(), now);
                    let effective_count = stored.effective_count(window.duration_ms(), now);
                    let mut cost = window.cost();
                    if let Some(terms) = &request.grant_terms {
                        let room = window.limit() - effective_count;
                        cost = room.min(terms.waiting.max(cost.min(room.div_euclid(terms.parts))));
                        let is_granted = cost >= terms.least;
                        let retry_ms =
                            if is_granted { 0 } else { stored.retry_ms(window, terms.least, now) };
                        is_admitted &= is_granted;
                        cost = if is_granted { cost } else { 0 };
                        let generation = self.generation;
                        granted =
                            Some(Granted { units: cost, left_ms: left, retry_ms, generation });
                    }
                    is_admitted &= window.limit() > 0 && effective_count + cost <= window.limit();
                    if let Some((first, last)) = window.bounds() {
                        let is_unseeded = first > 0
                            && stored.number == first
                            && self.begun.get(window.key()) != Some(&first);
                        let is_inside = (first..=last).contains(&stored.number);
                        is_misplaced |= is_unseeded || !is_inside;
                        has_bounds = true;
                    }
                    let is_uncounted =
                        request.grant_terms.is_some() && Safeguard::GrantCounted.is_disabled();
                    let counted = if is_uncounted { 0 } else { cost };
                    let counted = StoredWindow { count: stored.count + counted, ..stored };
                    next.windows.insert(window.key().to_owned(), counted);
                    WindowCount { effective_count, window_number: stored.number }
                }
            };
            windows.push(count);
        }
        is_admitted &= !is_misplaced;
        if is_admitted {
            *self = next;
        } else if let Some(granted) = &mut granted {
            granted.units = 0;
        }
        let is_regional =
            granted.is_some() || !leases.is_empty() || !request.grants.is_empty() || has_bounds;
        let regional = is_regional.then(|| {
            let (redis_time, redis_generation) = (Timestamp(now), self.generation);
            Box::new(RegionalReply { redis_time, redis_generation, leases, granted, is_misplaced })
        });
        ConsumeReply {
            is_admitted,
            windows,
            lease: None,
            group_change: GroupChange::None,
            regional,
        }
    }

    /// Ends the counting of a window, and returns the count of its last number.
    pub fn close_window(&mut self, window: &Window, number: i64) -> i64 {
        if let Some((_, count)) = self.closed.get(window.key()).filter(|(of, _)| *of == number) {
            return *count;
        }
        let stored = self.windows.get(window.key()).copied();
        let counted = match stored {
            Some(stored) if stored.number == number => stored.count,
            Some(stored) if stored.number == number + 1 => stored.before,
            Some(_) | None => 0,
        };
        let is_current = stored.is_none_or(|stored| stored.number <= number);
        if is_current && !Safeguard::ClosedWindow.is_disabled() {
            let full = StoredWindow { number, count: FULL, before: 0 };
            self.windows.insert(window.key().to_owned(), full);
        }
        self.closed.insert(window.key().to_owned(), (number, counted));
        counted
    }

    /// Begins the counting of a window with the count of the number before.
    pub fn seed_window(&mut self, window: &Window, number: i64, count: i64) {
        if self.begun.get(window.key()).is_some_and(|begun| *begun > number) {
            return;
        }
        let stored = self.windows.get(window.key()).copied();
        let begun = match stored {
            Some(stored) if stored.number == number + 1 => StoredWindow { before: count, ..stored },
            Some(stored) if stored.number > number + 1 => stored,
            Some(stored) if stored.number == number => {
                StoredWindow { number, count: count.max(stored.count), before: 0 }
            }
            Some(_) | None => StoredWindow { number, count, before: 0 },
        };
        self.windows.insert(window.key().to_owned(), begun);
        self.begun.insert(window.key().to_owned(), number + 1);
    }

    fn window_at(&self, key: &str, duration: i64, now: i64) -> StoredWindow {
        let current = now.div_euclid(duration);
        match self.windows.get(key) {
            Some(stored) if stored.number >= current => *stored,
            Some(stored) => {
                let before = if stored.number == current - 1 { stored.count } else { 0 };
                StoredWindow { number: current, count: 0, before }
            }
            None => StoredWindow { number: current, count: 0, before: 0 },
        }
    }

    fn take_from_lease(&mut self, name: &str, window: &Window, now: i64) -> (WindowLease, bool) {
        let generation = self.generation;
        let stored = self.leases.get_mut(name).filter(|stored| stored.is_of(generation));
        let Some(stored) = stored else {
            let lease = WindowLease {
                state: WindowLeaseState::Insufficient,
                units: 0,
                count: 0,
                window_number: 0,
                granted_units: 0,
                spent_units: 0,
                since_ms: 0,
            };
            return (lease, false);
        };
        let lasts = stored.limit <= window.limit() && now < stored.ends_at;
        let units = if lasts { stored.units } else { 0 };
        let is_as_much =
            lasts && stored.limit == window.limit() && window.cost() - units >= stored.denied_cost;
        let is_old = window.cost() == 0 && now - stored.since > PEEK_MAX_AGE_MS;
        let is_taken = lasts && !is_old && window.cost() <= units;
        let state = match is_taken {
            true => WindowLeaseState::Sufficient,
            false if is_as_much && now < stored.denied_until => WindowLeaseState::Denied,
            false if is_as_much && now < stored.denied_until + SCARCE_MS => {
                WindowLeaseState::Scarce
            }
            false => WindowLeaseState::Insufficient,
        };
        let lease = WindowLease {
            state,
            units,
            count: if lasts { stored.count } else { 0 },
            window_number: if lasts { stored.number } else { 0 },
            granted_units: stored.granted,
            spent_units: stored.spent,
            since_ms: now - stored.since,
        };
        if is_taken && window.cost() > 0 {
            stored.units -= window.cost();
            stored.spent += window.cost();
            stored.used_at = now;
        }
        (lease, is_taken)
    }

    fn add_grant(&mut self, grant: &Grant, now: i64) {
        if !may_use(grant.redis_generation, self.generation) {
            return;
        }
        let generation = self.generation;
        let stored = self.leases.get(&*grant.lease).copied();
        let stored = stored.filter(|stored| stored.is_of(generation));
        let is_same = |stored: &StoredLease| {
            stored.home_generation == grant.home_generation
                && stored.number == grant.window_number
                && stored.limit <= grant.limit
        };
        let is_later = |stored: &StoredLease| {
            stored.home_generation == grant.home_generation && stored.number > grant.window_number
        };
        if stored.is_some_and(|stored| !is_same(&stored) && is_later(&stored)) {
            return;
        }
        let same = stored.filter(is_same);
        let (units, ends_at, used_at) =
            same.map_or((0, grant.ends_at.0, now), |it| (it.units, it.ends_at, it.used_at));
        let of_this_limit = same.filter(|stored| stored.limit == grant.limit);
        let denied_before = of_this_limit.map_or((0, 0), |it| (it.denied_until, it.denied_cost));
        let denied_until = match grant.units {
            0 => grant.denied_until.0,
            _ => denied_before.0.max(grant.denied_until.0).min(now),
        };
        let (denied_until, denied_cost) = match grant.denied_cost {
            0 => denied_before,
            cost => (denied_until, cost),
        };
        let lease = StoredLease {
            generation,
            home_generation: grant.home_generation,
            number: grant.window_number,
            limit: grant.limit,
            units: units + grant.units,
            count: grant.count,
            ends_at: ends_at.max(grant.ends_at.0),
            denied_until,
            denied_cost,
            granted: grant.units,
            spent: 0,
            since: now,
            used_at,
        };
        self.leases.insert(grant.lease.to_string(), lease);
    }

    /// Takes units out of a lease at rest.
    pub fn take_back(&mut self, lease: &str, rest_ms: i64, now: i64) -> TakenBack {
        let generation = self.generation;
        let stored = self.leases.get_mut(lease).filter(|stored| stored.is_of(generation));
        let Some(stored) = stored else { return TakenBack::default() };
        let is_at_rest = now - stored.used_at >= rest_ms || now >= stored.ends_at;
        let (had_units, units) = (stored.units > 0, if is_at_rest { stored.units } else { 0 });
        if !Safeguard::TakenFirst.is_disabled() {
            stored.units -= units;
        }
        TakenBack {
            had_units,
            home_generation: stored.home_generation,
            window_number: stored.number,
            units,
        }
    }

    /// Subtracts units from a window, if they were counted in this generation.
    pub fn give_back(&mut self, window: &Window, taken: TakenBack, now: i64) {
        let stored = self.window_at(window.key(), window.duration_ms(), now);
        if taken.home_generation != self.generation {
            return;
        }
        let mut changed = stored;
        if taken.window_number >= stored.number {
            changed.count = (stored.count - taken.units).max(0);
        } else if taken.window_number == stored.number - 1 {
            changed.before = (stored.before - taken.units).max(0);
        }
        self.windows.insert(window.key().to_owned(), changed);
    }
}

/// Returns whether a Redis of a generation may use a value of another one.
fn may_use(generation: i64, current: i64) -> bool {
    generation == current || Safeguard::FenceGeneration.is_disabled()
}

impl StoredLease {
    fn is_of(&self, generation: i64) -> bool {
        may_use(self.generation, generation)
    }
}

impl StoredWindow {
    fn left(&self, duration: i64, now: i64) -> i64 {
        duration.min((self.number + 1) * duration - now)
    }

    fn effective_count(&self, duration: i64, now: i64) -> i64 {
        self.count + (self.before * self.left(duration, now)).div_euclid(duration)
    }

    fn retry_ms(&self, window: &Window, least: i64, now: i64) -> i64 {
        let (duration, left) = (window.duration_ms(), self.left(window.duration_ms(), now));
        let lacking = window.limit() - self.count - least;
        match lacking {
            ..0 => left,
            _ if self.before == 0 => 0,
            _ => (left - (lacking + 1) * duration / self.before).max(0),
        }
    }
}
