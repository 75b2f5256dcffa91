//! Consumes rate-limit windows and credit leases, all or nothing, in one atomic step.
//!
//! There are two implementations: [`redis`], which runs one Lua script shared by every replica, and [`local`], which
//! counts in this process and is also the readable specification of how the script handles windows. One test suite runs
//! against both, and a property test drives both with the same sequence. Leases exist in Redis only: with a single
//! process, or without Redis, the account in the database is debited directly.

mod approximate;
mod counter_groups;
mod keyspace;
pub mod local;
pub mod redis;
mod window;

pub use approximate::{ApproximateDecision, ApproximateWindows};
pub use counter_groups::{
    CounterGroup, GROUP_LIVE_MAX, GROUP_WINDOW_MAX_MS, GroupChange, GroupTotals,
};
pub use keyspace::Keyspace;

use std::sync::Arc;

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::fault_injection::Safeguard;
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
        Self { key: key.into(), limit: exact_limit, duration_ms, cost, group: None }
    }

    /// Returns the same window with its counter in a group. All grouped windows of one consume request belong to the
    /// same group.
    pub fn with_group(self, group: Arc<CounterGroup>) -> Self {
        Self { group: Some(group), ..self }
    }

    /// Returns the same window with cost 0.
    pub fn to_peek(&self) -> Self {
        Self { cost: 0, ..self.clone() }
    }

    /// Returns the status of a window that admits the request without being counted.
    pub fn status_if_open(&self, now: Timestamp) -> WindowStatus {
        let remaining = (self.limit - self.cost).max(0);
        WindowStatus { remaining, reset_at: self.reset_at(now), is_exceeded: false }
    }

    /// Returns the status of a window that rejects the request without being counted.
    pub fn status_if_closed(&self, now: Timestamp) -> WindowStatus {
        WindowStatus { remaining: 0, reset_at: self.reset_at(now), is_exceeded: true }
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

/// A spend from a credit lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSpend {
    pub lease: String,
    /// The credits to spend. 0 is a peek, which is never rejected.
    pub cost: i64,
    /// The top-up that the database has just debited for this lease.
    pub top_up: Option<TopUp>,
}

/// The state of a lease in the database, and the top-up debited for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopUp {
    /// The Redis generation that the lease belongs to; the top-up is not applied in any other.
    pub redis_generation: i64,
    /// Whether this top-up creates the lease; otherwise the lease must exist. Only one top-up of a lease creates it.
    pub creates_lease: bool,
    /// The credits debited for this lease before this top-up.
    pub granted_before: i64,
    pub top_up: i64,
    /// The account balance after the top-up.
    pub account_balance: i64,
    /// When the next refill is due; the far future if there is none.
    pub refill_at: Timestamp,
}

/// All windows and credits that one verification consumes, all or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConsumeRequest {
    pub windows: Vec<Window>,
    pub spend: Option<LeaseSpend>,
}

impl ConsumeRequest {
    /// Returns whether the request adds a top-up to its lease.
    fn has_top_up(&self) -> bool {
        self.spend.as_ref().is_some_and(|spend| spend.top_up.is_some())
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

    /// Returns the remaining amount: after this request if it was admitted, 0 if this window rejected it.
    pub fn remaining(self, window: &Window, is_admitted: bool) -> i64 {
        let consumed = if is_admitted { window.cost } else { 0 };
        if self.is_within_limit(window) {
            (window.limit - self.effective_count - consumed).max(0)
        } else {
            0
        }
    }

    /// Returns the end of the window.
    pub fn reset_at(self, window: &Window) -> Timestamp {
        Timestamp((self.window_number + 1).saturating_mul(window.duration_ms))
    }
}

/// The status of a window after a consume request, as reported to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowStatus {
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
            remaining: count.remaining(window, self.is_admitted),
            reset_at: count.reset_at(window),
            is_exceeded: !count.is_within_limit(window),
        };
        self.windows.iter().zip(windows).map(status).collect()
    }
}

/// The status of a lease after a consume request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseStatus {
    pub state: LeaseState,
    pub units: i64,
    /// The account balance that the lease last recorded. Absent if there is no lease.
    pub account_balance: Option<i64>,
    /// The total number of credits spent from the lease.
    pub spent_units: i64,
    /// The generation of the Redis that replied. It changes with each restart and each promotion.
    pub redis_generation: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// The lease holds enough credits. [`ConsumeReply::is_admitted`] says whether they were spent.
    Sufficient,
    /// The lease holds too few credits and the account may have more; or there is no lease; or a refill is due.
    Insufficient,
    /// Neither the lease nor the account holds enough credits.
    AccountExhausted,
    /// The lease is closed; its unspent credits return to the account.
    Closed,
    /// The top-up was not applied because it belongs to another Redis generation.
    WrongGeneration,
    /// The top-up was not applied because the lease does not exist: not yet, or no longer.
    NotFound,
}

/// The result of closing a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseResult {
    /// The lease is closed permanently.
    Closed {
        /// The total number of credits spent from the lease.
        spent_units: i64,
    },
    /// This Redis is of the generation in which the lease was created, and does not have it. From now on the lease
    /// cannot exist.
    NotFound,
    /// This Redis is of another generation. Another Redis may still have the lease, and others may be spending from it.
    WrongGeneration,
    /// The lease is in use and was left open.
    InUse,
}

impl CloseResult {
    /// Interprets the reply of `lua/close_lease.lua`.
    pub fn from_reply(state: i64, spent_units: i64) -> Self {
        match state {
            0 => Self::NotFound,
            1 => Self::Closed { spent_units },
            2 => Self::InUse,
            _ if Safeguard::ProvenClosed.is_disabled() => Self::NotFound,
            _ => Self::WrongGeneration,
        }
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
mod tests {
    use super::*;

    #[test]
    fn shares_of_all_replicas_add_up_to_the_amount() {
        for replicas in [1, 2, 3, 7, 50] {
            for amount in [0, 1, 2, 6, 49, 50, 51, 1_000, EXACT_MAX] {
                for counter in ["a", "b", "kw:w:{key_1}:60000:requests"] {
                    let share = |rank| {
                        ReplicaRank { rank, replica_count: replicas }.share_of(amount, counter)
                    };
                    let (least, most) = (share(0).min(share(1)), share(0).max(share(1)));
                    assert!(most - least <= 1);
                    assert_eq!((0..replicas).map(share).sum::<i64>(), amount);
                }
            }
        }
        assert_eq!(ReplicaRank { rank: 0, replica_count: 0 }.share_of(-3, "a"), 0);
    }

    #[test]
    fn last_unit_goes_to_different_replicas_when_counters_differ() {
        let holder = |counter: &str| {
            (0..3).find(|rank| {
                ReplicaRank { rank: *rank, replica_count: 3 }.share_of(1, counter) == 1
            })
        };
        let holders: std::collections::HashSet<_> =
            (0..20).map(|n| holder(&format!("counter {n}"))).collect();

        assert_eq!(holders.len(), 3);
    }
}
