//! Credit leases: what is spent from them and added to them, and what Redis replies about them.

use foundation::clock::Timestamp;
use foundation::fault_injection::Safeguard;

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
    /// The account balance after the top-up. If it is too small for the request, what is in flight counts as part of it, and
    /// not as debited before.
    pub account_balance: i64,
    /// When the next refill is due; the far future if there is none.
    pub refill_at: Timestamp,
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

impl LeaseState {
    /// Returns whether the lease has not received the top-up of the request, if that had one.
    pub fn rejects_top_up(self) -> bool {
        match self {
            Self::Closed | Self::WrongGeneration | Self::NotFound => true,
            Self::Sufficient | Self::Insufficient | Self::AccountExhausted => false,
        }
    }
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
