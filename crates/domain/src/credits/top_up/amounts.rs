//! Computes how much a top-up debits: as much as the demand requires and the bound on leased credits permits.

use foundation::clock::Timestamp;
use foundation::fault_injection::Safeguard;
use foundation::model::Lease;

use super::LeaseObservation;
use crate::credits::SCRIPT_BALANCE_MAX;

/// The demand that one top-up covers, in milliseconds: a busy key tops up less than once per second.
const TOP_UP_COVERS_MS: i64 = 1_500;
/// The minimum top-up, in multiples of the request's cost: many rarely used keys together cause few database calls.
const TOP_UP_COSTS_MIN: i64 = 100;
/// The divisor for the maximum leased share of a key's remaining credits in a region: a tenth, or one cost if that is
/// more.
const LEASED_DIVISOR: i64 = 10;
/// The maximum total that one lease is granted before a new one is opened, and the maximum top-up: scripts count in doubles,
/// which are exact up to the sum of both.
pub const LEASE_GRANTED_MAX: i64 = 1 << 52;

/// Estimates the spend from a lease in [`TOP_UP_COVERS_MS`], based on the spend since the last top-up.
pub fn estimate_demand(lease: &Lease, observed: LeaseObservation, now: Timestamp) -> i64 {
    if lease.lease_number != observed.lease_number {
        return 0;
    }
    let spent = i128::from((observed.spent - lease.spent).max(0));
    let elapsed = i128::from((now.0 - lease.topped_up_at.0).max(1));
    i64::try_from(spent * i128::from(TOP_UP_COVERS_MS) / elapsed).unwrap_or(i64::MAX)
}

/// Returns how much of a key's remaining credits, including all leased credits that are not known to be spent, may be
/// leased in a region: a tenth, or one cost.
pub fn leased_max(left: i64, cost: i64) -> i64 {
    (left / LEASED_DIVISOR).max(cost)
}

/// Returns the amount of a top-up: 0 if the balance is too small, `None` if the bound on leased credits is reached or a
/// script cannot count as much. The first values are the balance, what the key has left in total, and what is leased in this
/// region.
pub fn top_up_amount(
    (balance, left, leased): (i64, i64, i64),
    need: i64,
    cost: i64,
    demand: i64,
) -> Option<i64> {
    // A script does not know how much more than this the account holds.
    if need > LEASE_GRANTED_MAX && balance >= need.min(SCRIPT_BALANCE_MAX) {
        return None;
    }
    if need == 0 || balance < need {
        return Some(0);
    }
    let room = match Safeguard::LeaseBound.is_disabled() {
        true => leased_max(balance, cost),
        false => leased_max(left, cost) - leased,
    };
    let ahead = demand.max(cost.saturating_mul(TOP_UP_COSTS_MIN)).min(room).min(LEASE_GRANTED_MAX);
    (room >= need).then(|| ahead.max(need).min(balance))
}
