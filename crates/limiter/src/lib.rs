//! Counting: windows and purses, all or nothing, in one atomic act.
//!
//! There are two engines: [`redis`], whose act is one Lua script shared by every replica, and
//! [`local`], in this process, which is also the readable specification of what the script does to
//! windows. One suite of tests runs over both, and a property test drives both with the same sequence.
//! Purses are in Redis only: where there is one process, or no Redis, the bank itself is debited.

mod approximate;
mod counter_groups;
mod keyspace;
pub mod local;
pub mod redis;
mod window;

pub use approximate::{ApproximateWindows, Quickly};
pub use counter_groups::{
    CounterGroup, GROUP_LIVE_MAX, GROUP_WINDOW_MAX_MS, GroupChange, GroupTotals,
};
pub use keyspace::Keyspace;

use std::sync::Arc;

use foundation::clock::Timestamp;
use foundation::error::Result;
use sha2::{Digest as _, Sha256};

/// The largest limit and cost, about 3.5 × 10^13; what is beyond is taken for it. A script counts in
/// doubles, which are exact up to 2^53: more than a hundred of these together.
pub const EXACT_MAX: i64 = (1 << 45) - 1;
/// The longest window: about 140,000 years.
const DURATION_MAX_MS: i64 = 1 << 52;

/// One window to take from.
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
    /// Takes `cost` of the `limit` that one window of `duration_ms` has. Cost 0 only looks.
    pub fn new(key: impl Into<Arc<str>>, limit: i64, duration_ms: i64, cost: i64) -> Self {
        let exact_limit = window::clamp_to_exact(limit);
        // A cost above its limit stays above it.
        let cost = if cost > limit {
            (exact_limit + 1).max(window::clamp_to_exact(cost))
        } else {
            window::clamp_to_exact(cost)
        };
        let duration_ms = duration_ms.clamp(1, DURATION_MAX_MS);
        Self { key: key.into(), limit: exact_limit, duration_ms, cost, group: None }
    }

    /// The same window, whose counter belongs to a group. All windows of one take that are in a group
    /// are in the same one.
    pub fn in_group(self, group: Arc<CounterGroup>) -> Self {
        Self { group: Some(group), ..self }
    }

    /// The same window, from which nothing is taken.
    pub fn to_peek(&self) -> Self {
        Self { cost: 0, ..self.clone() }
    }

    /// How it stands where nobody counts, and it passes.
    pub fn status_if_open(&self, now: Timestamp) -> WindowStatus {
        let remaining = (self.limit - self.cost).max(0);
        WindowStatus { remaining, reset: self.reset(now), exceeded: false }
    }

    /// How it stands where nobody counts, and nothing passes.
    pub fn status_if_closed(&self, now: Timestamp) -> WindowStatus {
        WindowStatus { remaining: 0, reset: self.reset(now), exceeded: true }
    }

    /// The same window with a limit that is lower by so much. A peek succeeds however little is left.
    pub fn reduced_by(self, units: i64) -> Self {
        let limit = if self.cost > 0 { (self.limit - units).max(0) } else { self.limit };
        Self { limit, ..self }
    }

    /// The number of the window that `now` falls into.
    pub fn number(&self, now: Timestamp) -> i64 {
        now.0 / self.duration_ms
    }

    /// The end of the window that `now` falls into.
    fn reset(&self, now: Timestamp) -> Timestamp {
        Timestamp((self.number(now) + 1).saturating_mul(self.duration_ms))
    }
}

/// A replica's place in the order of all replicas, by which limits are divided among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaRank {
    pub rank: u32,
    pub replicas: u32,
}

impl ReplicaRank {
    /// Returns this replica's share of an amount: the same for all, and one more for as many replicas as there are units
    /// left over. Which ones depends on the counter, so that small limits do not all fall to one replica. The shares of
    /// all replicas add up to the amount.
    pub fn share_of(self, amount: i64, counter: &str) -> i64 {
        let (amount, replicas) = (amount.max(0), i64::from(self.replicas.max(1)));
        let hash: [u8; 32] = Sha256::digest(counter).into();
        let offset = i64::from(u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]));
        let rank = (i64::from(self.rank) + offset) % replicas;
        amount / replicas + i64::from(rank < amount % replicas)
    }
}

/// A purse to spend from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSpend {
    pub purse: String,
    /// 0 only looks, and is never refused.
    pub cost: i64,
    /// What the bank has just said.
    pub fill: Option<TopUp>,
}

/// What the bank says of a purse, and the block that it has debited for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopUp {
    /// The life of Redis that the purse belongs to; it is put into no other.
    pub life: i64,
    /// Whether this makes the purse; else there must be one. Only one fill of a purse makes it.
    pub creates_lease: bool,
    /// What the bank had debited for this purse before this block.
    pub granted_before: i64,
    pub block: i64,
    /// The bank's balance after it.
    pub bank: i64,
    /// When the next refill falls due; the far future where none does.
    pub refill_at: Timestamp,
}

/// What one verification takes: all of it, or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConsumeRequest {
    pub windows: Vec<Window>,
    pub spend: Option<LeaseSpend>,
}

impl ConsumeRequest {
    /// Whether it puts something into its purse.
    fn fills(&self) -> bool {
        self.spend.as_ref().is_some_and(|spend| spend.fill.is_some())
    }
}

/// What came of a [`Take`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumeReply {
    /// Whether everything was taken. If not, nothing was, but what was put into the purse is there.
    pub is_admitted: bool,
    pub windows: Vec<WindowCount>,
    pub purse: Option<LeaseStatus>,
    /// What it did to the group that its windows belong to.
    pub group: GroupChange,
}

/// A window as it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowCount {
    /// What counted against the limit before this take.
    pub effective: i64,
    /// The number of the window since the unix epoch.
    pub number: i64,
}

impl WindowCount {
    /// Whether this window alone would have admitted its cost.
    pub fn passed(self, window: &Window) -> bool {
        window::is_within_limit(window, self.effective)
    }

    /// What is left for others: after this take if it was taken, nothing if this window refused.
    pub fn remaining(self, window: &Window, taken: bool) -> i64 {
        let spent = if taken { window.cost } else { 0 };
        if self.passed(window) { (window.limit - self.effective - spent).max(0) } else { 0 }
    }

    /// The end of the window, in unix milliseconds.
    pub fn reset(self, window: &Window) -> Timestamp {
        Timestamp((self.number + 1).saturating_mul(window.duration_ms))
    }
}

/// A window as it stands after a take, as its caller is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowStatus {
    /// What is left for others.
    pub remaining: i64,
    /// The end of the window.
    pub reset: Timestamp,
    /// Whether it refused.
    pub exceeded: bool,
}

impl ConsumeReply {
    /// How the windows of the take stand now.
    pub fn standings(&self, windows: &[Window]) -> Vec<WindowStatus> {
        let standing = |(counted, window): (&WindowCount, &Window)| WindowStatus {
            remaining: counted.remaining(window, self.is_admitted),
            reset: counted.reset(window),
            exceeded: !counted.passed(window),
        };
        self.windows.iter().zip(windows).map(standing).collect()
    }
}

/// A purse as it stands after a take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseStatus {
    pub state: LeaseState,
    pub units: i64,
    /// The bank's balance as the purse last heard of it; absent where there is no purse.
    pub bank: Option<i64>,
    /// What has been spent from it in all.
    pub spent: i64,
    /// The life of the Redis that answered: another one after each restart and each promotion.
    pub life: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// The purse holds enough; whether it was spent is for [`Taken::taken`] to say.
    Sufficient,
    /// It does not, and the bank may have more; or there is none; or a refill is due.
    Insufficient,
    /// It does not, and neither has the bank.
    AccountExhausted,
    /// It has been closed, to be settled with the bank.
    Closed,
    /// What was to be put in was not, for it belongs to another life.
    WrongGeneration,
    /// What was to be put in was not, for there is no purse: not yet, or not any more.
    NotFound,
}

/// What came of closing a purse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseResult {
    /// It is closed for good.
    Closed {
        /// What was spent from it in all.
        spent: i64,
    },
    /// This Redis is of the generation that the lease was made in, and does not have it: from now on there cannot be
    /// such a lease.
    NotFound,
    /// This Redis is of another generation: another one may still have the lease, and others may be spending from it.
    WrongGeneration,
    /// It is in use, and was left open.
    InUse,
}

/// What both engines do.
pub trait WindowCounters {
    /// Takes from all windows or from none. `now`: the moment to count at; absent in production, where
    /// Redis counts by its own time, so that no replica's clock matters.
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
                    let share = |rank| ReplicaRank { rank, replicas }.share_of(amount, counter);
                    let (least, most) = (share(0).min(share(1)), share(0).max(share(1)));
                    assert!(most - least <= 1);
                    assert_eq!((0..replicas).map(share).sum::<i64>(), amount);
                }
            }
        }
        assert_eq!(ReplicaRank { rank: 0, replicas: 0 }.share_of(-3, "a"), 0);
    }

    #[test]
    fn the_last_unit_falls_to_different_replicas_for_different_counters() {
        let holder = |counter: &str| {
            (0..3).find(|rank| ReplicaRank { rank: *rank, replicas: 3 }.share_of(1, counter) == 1)
        };
        let holders: std::collections::HashSet<_> =
            (0..20).map(|n| holder(&format!("counter {n}"))).collect();

        assert_eq!(holders.len(), 3);
    }
}
