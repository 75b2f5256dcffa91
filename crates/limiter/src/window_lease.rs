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
    /// 0: nothing was asked for.
    pub denied_cost: i64,
}

/// The state of a window lease before a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowLease {
    pub state: WindowLeaseState,
    pub units: i64,
    /// The count at home after the last grant.
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

    /// Returns the count that this lease tells of its window: what the home had counted, without what this region has left.
    /// If the window rejects the request, the count says so.
    pub fn window_count(&self, window: &Window) -> WindowCount {
        let count = self.count.saturating_sub(self.units);
        let effective_count = match self.state {
            WindowLeaseState::Sufficient => count.clamp(0, window.limit - window.cost),
            WindowLeaseState::Insufficient
            | WindowLeaseState::Denied
            | WindowLeaseState::Scarce => count.max(window.limit - window.cost + 1).max(0),
        };
        WindowCount { effective_count, window_number: self.window_number }
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
        least: i64,
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
        let is_scarce = limit.saturating_sub(count) < limit / SCARCE_PART;
        let denied_until = match granted.units {
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
            denied_cost: least,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::GroupChange;
    use super::*;

    const MINUTE: i64 = 60_000;

    fn away(home: u8) -> Arc<Away> {
        Arc::new(Away { home: RegionIndex(home), lease: "a".into() })
    }

    /// Returns the moves of a counter from the second region to this one, and then to the third.
    fn moves() -> Arc<Moves> {
        let home = |first_window, away| WindowHome { first_window, away };
        let homes = vec![home(0, Some(away(1))), home(10, None), home(20, Some(away(2)))];
        Arc::new(Moves { homes, begun: "b".into() })
    }

    #[test]
    fn side_has_the_bounds_and_the_home_of_its_windows() {
        let moved = |first_window, before, after| Some(Moved { first_window, before, after });
        let [second, third] = [1, 2].map(|home| Some(RegionIndex(home)));
        for (number, bounds, home, begun, start) in [
            (0, (0, 9), second, None, None),
            (9, (0, 9), second, None, None),
            (10, (10, 19), None, Some("b"), moved(10, second, None)),
            (19, (10, 19), None, Some("b"), moved(10, second, None)),
            (20, (20, WINDOW_NUMBER_MAX), third, Some("b"), moved(20, None, third)),
        ] {
            let side = Side::of(moves(), number);

            assert_eq!(side.bounds(), bounds, "window {number}");
            assert_eq!(side.away().map(|away| away.home), home, "window {number}");
            assert_eq!((side.begun(), side.start()), (begun, start), "window {number}");
        }
    }

    #[test]
    fn window_is_on_another_side_when_a_move_lies_between() {
        let side = Side::of(moves(), 10);

        let others: Vec<_> = [9, 10, 19, 20].map(|number| side.is_other(number)).into();

        assert_eq!(others, [true, false, false, true]);
        assert_eq!(side.other(20), Side::of(moves(), 20));
    }

    fn lease(state: WindowLeaseState, count: i64, units: i64) -> WindowLease {
        let (spent_units, since_ms) = (100, 500);
        let window_number = 3;
        WindowLease { state, units, count, window_number, granted_units: 0, spent_units, since_ms }
    }

    #[test]
    fn demand_is_measured_over_a_quarter_of_a_second_at_least() {
        let mut lease = lease(WindowLeaseState::Sufficient, 0, 0);
        assert_eq!(lease.demand_of(3_000), 600);

        lease.since_ms = 10;
        assert_eq!(lease.demand_of(3_000), 1_200);
    }

    #[test]
    fn window_count_of_a_lease_agrees_with_its_state() {
        use WindowLeaseState::{Denied, Insufficient, Scarce, Sufficient};
        let window = Window::new("w", 10, MINUTE, 3);
        for (state, count, units, expected) in [
            (Sufficient, 5, 2, 3),
            (Sufficient, 1, 5, 0),
            (Sufficient, 30, 2, 7),
            (Insufficient, 5, 0, 8),
            (Scarce, 10, 2, 8),
            (Denied, 12, 0, 12),
        ] {
            let counted = lease(state, count, units).window_count(&window);

            assert_eq!(counted, WindowCount { effective_count: expected, window_number: 3 });
            assert_eq!(counted.is_within_limit(&window), state == Sufficient);
        }
    }

    #[test]
    fn grant_says_until_when_its_home_has_no_more() {
        let asked = RegionalReply { redis_time: Timestamp(50_000), ..RegionalReply::default() };
        for (effective_count, units, retry_ms, denied_until) in [
            // A fiftieth of the limit is left, and less.
            (970, 10, 0, 0),
            (971, 10, 0, 50_000),
            (995, 0, 5, 50_200),
            (995, 0, 700, 50_700),
            (995, 0, 7_000, 51_000),
        ] {
            let granted = Granted { units, left_ms: 400, retry_ms, generation: 3 };
            let regional = RegionalReply { granted: Some(granted), ..RegionalReply::default() };
            let reply = ConsumeReply {
                is_admitted: units > 0,
                windows: vec![WindowCount { effective_count, window_number: 9 }],
                lease: None,
                group_change: GroupChange::None,
                regional: Some(Box::new(regional)),
            };

            let grant = Grant::from_reply("a".into(), 1_000, 7, &asked, &reply, (200, 1_000));

            let grant = grant.expect("a grant");
            assert_eq!(grant.denied_until, Timestamp(denied_until), "{effective_count}");
            assert_eq!((grant.units, grant.count), (units, effective_count + units));
            assert_eq!((grant.ends_at, grant.denied_cost), (Timestamp(50_400), 7));
        }
    }
}
