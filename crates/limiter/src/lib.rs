//! Consumes rate-limit windows and credit leases, all or nothing, in one atomic step.
//!
//! There are two implementations: [`redis`], which runs one Lua script shared by every replica, and [`local`], which
//! counts in this process and is also the readable specification of how the script handles windows. One test suite runs
//! against both, and a property test drives both with the same sequence. Leases exist in Redis only: with a single
//! process, or without Redis, the account in the database is debited directly.

mod approximate;
mod counter_groups;
mod keyspace;
mod lease;
pub mod local;
pub mod redis;
pub mod regions;
mod window;
mod window_lease;

pub use approximate::{ApproximateDecision, ApproximateWindows};
pub use counter_groups::{
    CounterGroup, GROUP_LIVE_MAX, GROUP_WINDOW_MAX_MS, GroupChange, GroupTotals,
};
pub use keyspace::Keyspace;
pub use lease::{CloseResult, LeaseSpend, LeaseState, LeaseStatus, TopUp};
pub use window_lease::{
    Away, Grant, GrantTerms, Granted, Moves, Placement, RegionIndex, RegionalReply, Side,
    WindowHome, WindowLease, WindowLeaseState,
};

use std::sync::Arc;

use foundation::clock::Timestamp;
use foundation::error::Result;
use sha2::{Digest as _, Sha256};

/// The largest limit and cost, about 3.5 × 10^13; larger values are clamped to it. A script counts in doubles, which
/// are exact up to 2^53: more than a hundred times this value.
pub const EXACT_MAX: i64 = (1 << 45) - 1;
/// The longest window: about 140,000 years.
const DURATION_MAX_MS: i64 = 1 << 52;

/// One window to consume from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    key: Arc<str>,
    limit: i64,
    duration_ms: i64,
    cost: i64,
    /// The group that bounds how many counters like this one are live.
    group: Option<Arc<CounterGroup>>,
    /// Present if the window is counted in another region.
    away: Option<Arc<Away>>,
    /// Present while the home of the window moves.
    side: Option<Side>,
}

impl Window {
    /// Creates a request to consume `cost` from a window of `duration_ms` with this `limit`. Cost 0 is a peek.
    pub fn new(key: impl Into<Arc<str>>, limit: i64, duration_ms: i64, cost: i64) -> Self {
        let exact_limit = window::clamp_to_exact(limit);
        // A cost above its limit stays above it after clamping.
        let cost = if cost > limit {
            (exact_limit + 1).max(window::clamp_to_exact(cost))
        } else {
            window::clamp_to_exact(cost)
        };
        let duration_ms = duration_ms.clamp(1, DURATION_MAX_MS);
        Self {
            key: key.into(),
            limit: exact_limit,
            duration_ms,
            cost,
            group: None,
            away: None,
            side: None,
        }
    }

    /// Returns the same window with its counter in a group. All grouped windows of one consume request belong to the
    /// same group.
    pub fn with_group(self, group: Arc<CounterGroup>) -> Self {
        Self { group: Some(group), ..self }
    }

    /// Returns the same window, counted elsewhere. `now` tells on which side of a move it probably is, if there is one.
    pub fn placed(self, placement: &Placement, now: impl FnOnce() -> Timestamp) -> Self {
        if let Some(moves) = &placement.moves {
            let now = now();
            if placement.is_moving(self.duration_ms, now) {
                let number = self.number_at(now);
                return self.on_side(Side::of(moves.clone(), number));
            }
        }
        Self { away: placement.away.clone(), ..self }
    }

    /// Returns the same window, counted on this side of the moves of its home.
    fn on_side(self, side: Side) -> Self {
        Self { away: side.away(), side: Some(side), ..self }
    }

    /// Returns the same window on the side of this number.
    fn on_side_of(self, window_number: i64) -> Self {
        match self.side.as_ref().map(|side| side.other(window_number)) {
            Some(side) => self.on_side(side),
            None => self,
        }
    }

    /// Returns whether its home is, or has just been, another region.
    fn is_regional(&self) -> bool {
        self.away.is_some() || self.side.is_some()
    }

    /// Returns whether the window is counted in another region.
    pub fn is_away(&self) -> bool {
        self.away.is_some()
    }

    /// Returns the same window at its home, with the demand as its cost.
    fn to_demand_at_home(&self, demand: i64) -> Self {
        Self { cost: window::clamp_to_exact(demand), away: None, ..self.clone() }
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn limit(&self) -> i64 {
        self.limit
    }

    pub fn duration_ms(&self) -> i64 {
        self.duration_ms
    }

    pub fn cost(&self) -> i64 {
        self.cost
    }

    /// Returns where the window is counted, if that is another region.
    pub fn away(&self) -> Option<&Away> {
        self.away.as_deref()
    }

    /// Returns the numbers of the first and the last window that its home counts, while the home moves.
    pub fn bounds(&self) -> Option<(i64, i64)> {
        self.side.as_ref().map(Side::bounds)
    }

    /// Returns the same window with cost 0.
    pub fn to_peek(&self) -> Self {
        Self { cost: 0, ..self.clone() }
    }

    /// Returns the status of a window that admits the request without being counted.
    pub fn status_if_open(&self, now: Timestamp) -> WindowStatus {
        let remaining = (self.limit - self.cost).max(0);
        let reset_at = self.reset_at(now);
        WindowStatus { used: self.cost, remaining, reset_at, is_exceeded: false }
    }

    /// Returns the status of a window that rejects the request without being counted.
    pub fn status_if_closed(&self, now: Timestamp) -> WindowStatus {
        WindowStatus { used: 0, remaining: 0, reset_at: self.reset_at(now), is_exceeded: true }
    }

    /// Returns the same window with its limit reduced by `units`. The limit of a peek is not reduced, so a peek
    /// succeeds however little is left.
    pub fn reduce_limit_by(self, units: i64) -> Self {
        let limit = if self.cost > 0 { (self.limit - units).max(0) } else { self.limit };
        Self { limit, ..self }
    }

    /// Returns the number of the window that contains `now`.
    pub fn number_at(&self, now: Timestamp) -> i64 {
        now.0 / self.duration_ms
    }

    /// Returns the end of the window that contains `now`.
    fn reset_at(&self, now: Timestamp) -> Timestamp {
        Timestamp((self.number_at(now) + 1).saturating_mul(self.duration_ms))
    }
}

/// A replica's position in the order of all replicas. Limits are divided among replicas by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaRank {
    pub rank: u32,
    pub replica_count: u32,
}

impl ReplicaRank {
    /// Returns this replica's share of an amount: the same for all, plus one for as many replicas as there are units
    /// left over. Which replicas get one more depends on the counter, so that small limits do not all go to one
    /// replica. The shares of all replicas add up to the amount.
    pub fn share_of(self, amount: i64, counter: &str) -> i64 {
        let (amount, replicas) = (amount.max(0), i64::from(self.replica_count.max(1)));
        let hash: [u8; 32] = Sha256::digest(counter).into();
        let offset = i64::from(u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]));
        let rank = (i64::from(self.rank) + offset) % replicas;
        amount / replicas + i64::from(rank < amount % replicas)
    }
}

/// All windows and credits that one verification consumes, all or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConsumeRequest {
    pub windows: Vec<Window>,
    pub spend: Option<LeaseSpend>,
    /// Asks for a grant of the only window, which is counted here; its cost is the demand.
    pub grant_terms: Option<GrantTerms>,
    /// Grants to add to window leases first.
    pub grants: Vec<Grant>,
}

impl ConsumeRequest {
    /// Returns a request that consumes from windows.
    pub fn of_windows(windows: Vec<Window>) -> Self {
        Self { windows, ..Self::default() }
    }

    /// Returns a request that consumes from windows and a lease.
    pub fn with_spend(windows: Vec<Window>, spend: LeaseSpend) -> Self {
        Self { windows, spend: Some(spend), ..Self::default() }
    }

    /// Returns the same request without its top-up, which is applied once.
    fn without_top_up(&self) -> Self {
        let mut request = self.clone();
        request.spend.iter_mut().for_each(|spend| spend.top_up = None);
        request
    }

    /// Returns the windows that are counted in this region.
    fn windows_here(&self) -> impl Iterator<Item = &Window> {
        self.windows.iter().filter(|window| !window.is_away())
    }

    /// Returns the windows that are counted in other regions, with their positions.
    fn windows_away(&self) -> impl Iterator<Item = (usize, &Window, &Away)> {
        let windows = self.windows.iter().enumerate();
        windows.filter_map(|(at, window)| Some((at, window, window.away.as_deref()?)))
    }

    fn uses_window_leases(&self) -> bool {
        !self.grants.is_empty() || self.windows.iter().any(Window::is_away)
    }

    /// Returns whether the home of a window that is counted in this region moves.
    fn has_bounds(&self) -> bool {
        self.windows_here().any(|window| window.side.is_some())
    }

    /// Returns whether the request adds a top-up to its lease.
    fn has_top_up(&self) -> bool {
        self.spend.as_ref().is_some_and(|spend| spend.top_up.is_some())
    }

    /// Returns whether a lease receives credits.
    fn adds_credits(&self) -> bool {
        let top_up = self.spend.as_ref().and_then(|spend| spend.top_up);
        top_up.is_some_and(|top_up| top_up.top_up > 0)
    }
}

/// The reply to a [`ConsumeRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumeReply {
    /// Whether everything was consumed. If not, nothing was consumed, but a top-up stays in the lease.
    pub is_admitted: bool,
    pub windows: Vec<WindowCount>,
    pub lease: Option<LeaseStatus>,
    /// How the request changed the group of its windows.
    pub group_change: GroupChange,
    /// Present if the request concerns other regions.
    pub regional: Option<Box<RegionalReply>>,
}

/// The count of a window when the script read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowCount {
    /// The amount that counted against the limit before this request.
    pub effective_count: i64,
    /// The number of the window since the Unix epoch.
    pub window_number: i64,
}

impl WindowCount {
    /// Returns whether this window alone would have admitted its cost.
    pub fn is_within_limit(self, window: &Window) -> bool {
        window::is_within_limit(window, self.effective_count)
    }

    /// Returns the amount that counts against the limit after this request.
    pub fn used(self, window: &Window, is_admitted: bool) -> i64 {
        let consumed = if is_admitted { window.cost } else { 0 };
        self.effective_count.saturating_add(consumed)
    }

    /// Returns the remaining amount: after this request if it was admitted, 0 if this window rejected it.
    pub fn remaining(self, window: &Window, is_admitted: bool) -> i64 {
        if self.is_within_limit(window) {
            (window.limit - self.used(window, is_admitted)).max(0)
        } else {
            0
        }
    }

    /// Returns the end of the window.
    pub fn reset_at(self, window: &Window) -> Timestamp {
        Timestamp((self.window_number + 1).saturating_mul(window.duration_ms))
    }
}

/// A change of the count of the window with this number, whatever its limit.
#[derive(Debug)]
pub struct Adjustment {
    pub window: Window,
    pub window_number: i64,
    /// The units to add; negative gives back units that were consumed.
    pub units: i64,
}

/// The status of a window after a consume request, as reported to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowStatus {
    /// The amount that counts against the limit, as far as it is known. It is more than the limit where rejected requests count, or
    /// if the limit was higher before.
    pub used: i64,
    /// The remaining amount.
    pub remaining: i64,
    /// The end of the window.
    pub reset_at: Timestamp,
    /// Whether this window rejected the request.
    pub is_exceeded: bool,
}

impl ConsumeReply {
    /// Returns the status of the request's windows after it.
    pub fn window_statuses(&self, windows: &[Window]) -> Vec<WindowStatus> {
        let status = |(count, window): (&WindowCount, &Window)| WindowStatus {
            used: count.used(window, self.is_admitted),
            remaining: count.remaining(window, self.is_admitted),
            reset_at: count.reset_at(window),
            is_exceeded: !count.is_within_limit(window),
        };
        self.windows.iter().zip(windows).map(status).collect()
    }
}

/// Counts windows, in Redis or in this process.
pub trait WindowCounters {
    /// Consumes from all windows or from none. `now` is the time to count at. It is absent in production, where Redis
    /// uses its own time, so that no replica's clock matters.
    fn consume_windows(
        &self,
        windows: &[Window],
        now: Option<Timestamp>,
    ) -> impl Future<Output = Result<ConsumeReply>> + Send;
}

#[cfg(test)]
mod tests;
