//! Window leases: units of a window that is counted in another region, its home.
//!
//! The home grants units and counts them at once, by the same rule as any other cost. A region spends them without asking
//! again. So over all regions, what is admitted in a window is at most what its home has counted. Nothing is compared
//! between two clocks: a lease ends as long after the question as its window had left when the home granted it.

use std::sync::Arc;

use foundation::clock::Timestamp;
use foundation::fault_injection::Safeguard;

use super::{ConsumeReply, Window, WindowCount};

/// The shortest time over which the demand is measured.
const MEASURED_MIN_MS: i64 = 250;

/// A home is nearly used up if less than this part of its limit is left.
const SCARCE_PART: i64 = 50;

/// More than the number of any window, and later than the end of any.
const WINDOW_NUMBER_MAX: i64 = (1 << 53) - 1;

/// Another region, by its position in the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionIndex(pub u8);

impl RegionIndex {
    /// A region that is not in the settings.
    pub const UNKNOWN: Self = Self(u8::MAX);
}

/// Where a window is counted, and the name of this region's lease of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away {
    pub home: RegionIndex,
    pub lease: Arc<str>,
}

/// How long after its first window a move is taken into account, so that no clock is late for it.
const MOVE_MARGIN_MS: i64 = 60_000;

/// Where the windows of one counter are counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// Absent: in this region.
    pub away: Option<Arc<Away>>,
    /// Absent: its home has never moved.
    pub moves: Option<Arc<Moves>>,
}

/// The moves of a counter's home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moves {
    /// All homes, the earliest first. There is at least one.
    pub homes: Vec<WindowHome>,
    /// The name in this region's Redis that holds the number of the first window that has begun here.
    pub begun: Arc<str>,
}

/// The region that counts the windows from one number on, until those of the next home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowHome {
    /// 0 for the first home.
    pub first_window: i64,
    /// Absent: this region.
    pub away: Option<Arc<Away>>,
}

impl Placement {
    /// Returns whether the home of windows of this duration moves, or has moved a moment ago.
    pub fn is_moving(&self, duration_ms: i64, now: Timestamp) -> bool {
        let last = self.moves.as_ref().and_then(|moves| moves.homes.last());
        last.is_some_and(|last| {
            let end = last.first_window.saturating_add(1).saturating_mul(duration_ms);
            now.0 < end.saturating_add(MOVE_MARGIN_MS)
        })
    }
}

/// The home that counts a window, among those before and after the moves of its counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    moves: Arc<Moves>,
    index: usize,
}

impl Side {
    /// Returns the side of a window of this number.
    pub fn of(moves: Arc<Moves>, window_number: i64) -> Self {
        let index = moves.homes.iter().rposition(|home| home.first_window <= window_number);
        Self { index: index.unwrap_or(0), moves }
    }

    /// Returns the side of another window of the same counter.
    pub fn other(&self, window_number: i64) -> Self {
        Self::of(self.moves.clone(), window_number)
    }

    /// Returns the name that holds which window has begun here; `None`: this side is the first.
    pub fn begun(&self) -> Option<&str> {
        (self.index > 0).then_some(&*self.moves.begun)
    }

    /// Returns the numbers of the first and the last window that are counted on this side.
    pub fn bounds(&self) -> (i64, i64) {
        let next = self.moves.homes.get(self.index + 1);
        let last = next.map_or(WINDOW_NUMBER_MAX, |next| next.first_window - 1);
        match Safeguard::HomeBounds.is_disabled() {
            true => (0, WINDOW_NUMBER_MAX),
            false => (self.moves.homes[self.index].first_window, last),
        }
    }

    /// Returns whether a window of this number is counted on another side.
    pub fn is_other(&self, window_number: i64) -> bool {
        self.other(window_number).index != self.index
    }

    /// Returns where windows of this side are counted.
    pub fn away(&self) -> Option<Arc<Away>> {
        self.moves.homes[self.index].away.clone()
    }

    /// Returns the move by which this side begins; `None`: it is the first.
    pub fn start(&self) -> Option<Moved> {
        let before = self.moves.homes.get(self.index.checked_sub(1)?)?;
        let home = |home: &WindowHome| home.away.as_ref().map(|away| away.home);
        let after = &self.moves.homes[self.index];
        Some(Moved { first_window: after.first_window, before: home(before), after: home(after) })
    }
}

/// A move of a window's home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// The number of the first window after the move.
    pub first_window: i64,
    /// The regions that count earlier windows, and this one and later ones. Absent: this region.
    pub before: Option<RegionIndex>,
    pub after: Option<RegionIndex>,
}

/// How many units a home grants: what the waiting callers need, and beyond that the demand (the cost of the window), but
/// at most a part of what remains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantTerms {
    /// The cost of all callers that wait.
    pub waiting: i64,
    /// The least cost of a caller that waits; less is not granted. 0 asks for the count only.
    pub least: i64,
    /// In how many parts the remaining units are divided.
    pub parts: i64,
}

/// The reply of a home to a request for a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// 0: nothing.
    pub units: i64,
    /// How long the window continued when it was granted, in milliseconds.
    pub left_ms: i64,
    /// After how many milliseconds another request may succeed, if nothing was granted.
    pub retry_ms: i64,
    /// The generation of the home's Redis.
    pub generation: i64,
}

/// A grant to add to a window lease. Times are in the time of this region's Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub lease: Arc<str>,
    /// The generation of this region's Redis when the home was asked; the grant is not added in any other.
    pub redis_generation: i64,
    pub home_generation: i64,
    pub window_number: i64,
    pub limit: i64,
    pub units: i64,
    /// The count at home after the grant.
    pub count: i64,
    pub ends_at: Timestamp,
    /// Until when a request that lacks `denied_cost` or more is denied without asking the home; a time that has passed if
    /// the home is nearly used up, and 0 if it is not. For a second after that, the home is asked without waiting.
    pub denied_until: Timestamp,
    /// 0: nothing was asked for, or only a reserve that the home did not grant although it has some units.
    pub denied_cost: i64,
}

/// The state of a window lease before a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowLease {
    pub state: WindowLeaseState,
    pub units: i64,
    /// The count at home after the last grant, and the number of the window. Both are 0 if there is no lease of the current
    /// window and this limit or a lower one.
    pub count: i64,
    pub window_number: i64,
    /// The units of the last grant, those that were spent since, and the time since, in milliseconds.
    pub granted_units: i64,
    pub spent_units: i64,
    pub since_ms: i64,
}

impl WindowLease {
    /// Returns the units that are spent in this time at the rate since the last grant.
    pub fn demand_of(&self, ms: i64) -> i64 {
        self.spent_units.saturating_mul(ms) / self.since_ms.max(MEASURED_MIN_MS)
    }

    /// Returns the count that this lease tells of its window at a time of this region: what the home had counted, without
    /// what this region has left. If the window rejects the request, the count says so. It does not before its home was
    /// asked, unless the cost is above the limit.
    pub fn window_count(&self, window: &Window, now: Timestamp) -> WindowCount {
        let is_rejected = match self.state {
            WindowLeaseState::Sufficient => false,
            WindowLeaseState::Insufficient => window.cost > window.limit,
            WindowLeaseState::Denied | WindowLeaseState::Scarce => true,
        };
        let effective_count = match is_rejected {
            true => self.rejecting_count(window),
            false => self.count.saturating_sub(self.units).clamp(0, window.limit - window.cost),
        };
        let window_number = match self.window_number {
            0 => window.number_at(now),
            number => number,
        };
        WindowCount { effective_count, window_number }
    }

    /// Returns the count of a window that rejects the request.
    pub(super) fn rejecting_count(&self, window: &Window) -> i64 {
        self.count.saturating_sub(self.units).max(window.limit - window.cost + 1).max(0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowLeaseState {
    /// It holds enough units.
    Sufficient,
    /// It holds too few units, and its home may have more.
    Insufficient,
    /// It holds too few units, and its home has no more for a moment.
    Denied,
    /// It holds too few units, and its home had nothing or nearly nothing in the last second. The request is rejected, and
    /// the home is asked for later ones.
    Scarce,
}

/// The part of a reply that concerns other regions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegionalReply {
    /// The time and the generation of the Redis that replied.
    pub redis_time: Timestamp,
    pub redis_generation: i64,
    /// The leases of the windows that are counted elsewhere, in their order.
    pub leases: Vec<WindowLease>,
    pub granted: Option<Granted>,
    /// Whether the request was rejected because a window is not counted there, or has no count from before its home moved.
    pub is_misplaced: bool,
}

impl Grant {
    /// Returns the grant that a home's reply means. `asked` is the reply of this region's Redis from before the home was
    /// asked, `reply` that of the home.
    pub fn from_reply(
        lease: Arc<str>,
        limit: i64,
        terms: GrantTerms,
        asked: &RegionalReply,
        reply: &ConsumeReply,
        (retry_min_ms, retry_max_ms): (i64, i64),
    ) -> Option<Self> {
        let granted = reply.regional.as_ref()?.granted?;
        let window = reply.windows.first()?;
        let ends_at = match Safeguard::LeaseEnd.is_disabled() {
            true => WINDOW_NUMBER_MAX,
            false => asked.redis_time.0.saturating_add(granted.left_ms),
        };
        let count = window.effective_count.saturating_add(granted.units);
        let room = limit.saturating_sub(count);
        let is_scarce = room < limit / SCARCE_PART;
        // A reserve that is too small to be divided is not granted, but callers that wait get what is left.
        let is_denied = terms.waiting > 0 || is_scarce || room <= 0;
        let denied_until = match granted.units {
            0 if !is_denied => 0,
            0 => asked.redis_time.0 + granted.retry_ms.clamp(retry_min_ms, retry_max_ms),
            _ if is_scarce => asked.redis_time.0,
            _ => 0,
        };
        Some(Self {
            lease,
            redis_generation: asked.redis_generation,
            home_generation: granted.generation,
            window_number: window.window_number,
            limit,
            units: granted.units,
            count,
            ends_at: Timestamp(ends_at),
            denied_until: Timestamp(denied_until),
            denied_cost: if granted.units > 0 || is_denied { terms.least } else { 0 },
        })
    }
}

#[cfg(test)]
mod tests;
