//! Consumes windows that are counted in other regions, from leases of their units.
//!
//! One script in this region decides a whole request. If a lease is too small, its home is asked for a grant: once for all
//! callers that wait, and ahead of need while others still spend the rest. If a home cannot be reached, the request fails
//! like one whose Redis is unreachable.

mod links;
mod questions;

use std::sync::Arc;
use std::time::Duration;

use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use futures_util::future::join_all;

use self::questions::{Asked, ask, ask_without_waiting};
use super::window_lease::Moved;
use super::{
    Away, ConsumeReply, ConsumeRequest, GroupChange, LeaseState, RegionalReply, Side, Window,
    WindowLease, WindowLeaseState,
};

pub use self::links::{RegionLinks, TakenBack};
pub use self::questions::{Questions, give_back_rests};

/// How often a request asks for grants that others then spend, before it is rejected.
const ROUNDS_MAX: usize = 4;
/// How often a request is decided again because a window is counted on the other side of the move of its home, or had no
/// count there.
const REDIRECTIONS_MAX: usize = 5;
/// How long after its arrival a request is still sent anywhere. The home of its windows may have moved since, which every
/// replica knows ten seconds before; Redis executes what was sent within six seconds, or never.
const SEND_MAX: Duration = Duration::from_secs(3);
/// The home is asked ahead of need when the units left cover the demand of this time.
const AHEAD_MS: i64 = 300;
/// The home is asked ahead of need when a count that is only read is this old. A peek waits for the home when it is older than
/// a second: see `lua/consume.lua`.
const PEEK_AHEAD_MS: i64 = 500;
/// How long a lease is at rest before its units are given back.
pub const REST: Duration = Duration::from_secs(1);

/// Why a window was not counted where its home was believed to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Misplacement {
    OtherSide(i64),
    /// It is the first window after the move, and the count of the one before is not known yet.
    Unseeded,
}

/// A lease, and what is asked for it.
#[derive(Clone, Copy)]
struct Need<'a> {
    /// The position of the window in the request.
    index: usize,
    window: &'a Window,
    away: &'a Away,
    lease: &'a WindowLease,
    regional: &'a RegionalReply,
    /// The part of its cost that the lease lacks; 0 asks ahead of need.
    waiting: i64,
}

/// Returns why a window, the one at this position of a reply, is not counted there.
fn find_misplacement(window: &Window, index: usize, reply: &ConsumeReply) -> Option<Misplacement> {
    let number = reply.windows.get(index)?.window_number;
    let side = window.side.as_ref()?;
    if !reply.regional.as_ref()?.is_misplaced {
        return None;
    }
    if side.is_other(number) {
        return Some(Misplacement::OtherSide(number));
    }
    // Otherwise another window of the request is.
    let is_first = side.start().is_some_and(|start| start.first_window == number);
    is_first.then_some(Misplacement::Unseeded)
}

/// Begins the counting of a window at its new home, with the count of its last window at the old one. If that cannot be
/// read, it counts as used up.
async fn seed(links: &impl RegionLinks, window: &Window) -> Result<()> {
    let Some(Moved { first_window, before, after }) = window.side.as_ref().and_then(Side::start)
    else {
        return Ok(());
    };
    let last_number = first_window - 1;
    let mut counted = links.close_window(before, window, last_number).await;
    if counted.is_err() {
        counted = links.close_window(before, window, last_number).await;
    }
    let count = counted.unwrap_or_else(|e| {
        tracing::warn!(error = %e, "a limit that has moved to another region counts as used up: {e}");
        window.limit
    });
    let count = if Safeguard::MovedCount.is_disabled() { 0 } else { count };
    links.seed_window(after, window, last_number, count).await
}

/// Consumes from windows of several regions, and from a credit lease.
pub async fn consume<L: RegionLinks>(
    links: &L,
    questions: &Arc<Questions>,
    request: &ConsumeRequest,
) -> std::result::Result<ConsumeReply, L::CallError> {
    let began_at = links.now();
    let mut request = request.clone();
    let mut reply = links.consume_here(request.clone()).await?;
    // Only this call carries the top-up, so only its reply tells whether the lease has received it.
    let adds_credits = request.adds_credits();
    if adds_credits && reply.lease.is_some_and(|lease| lease.state.rejects_top_up()) {
        return Ok(reply);
    }
    let (mut rounds, mut redirections, mut group_change) = (0, 0, GroupChange::None);
    loop {
        let Some(regional) = reply.regional.as_deref() else { return Ok(reply) };
        let mut other_side = Vec::new();
        if regional.is_misplaced {
            // It says neither that the request is admitted nor which window rejects it.
            if redirections == REDIRECTIONS_MAX {
                return Err(Arc::new(Error::HomeMoving).into());
            }
            for (index, window) in request.windows.iter().enumerate() {
                match find_misplacement(window, index, &reply).filter(|_| !window.is_away()) {
                    Some(Misplacement::OtherSide(number)) => other_side.push((index, number)),
                    Some(Misplacement::Unseeded) => seed(links, window).await.map_err(Arc::new)?,
                    None => {}
                }
            }
        } else if reply.is_admitted {
            // Whatever it tells of its leases: a request that runs again is charged again.
            break;
        } else {
            let missing = list_missing(&request, &reply, regional);
            if missing.iter().any(|need| need.lease.state == WindowLeaseState::Scarce) {
                for need in missing {
                    ask_without_waiting(links, questions, need);
                }
                break;
            }
            if missing.is_empty() || rounds == ROUNDS_MAX || redirections == REDIRECTIONS_MAX {
                break;
            }
            let change = ask_all(links, questions, &missing, &mut other_side).await?;
            group_change = group_change.max(change);
        }
        match regional.is_misplaced || !other_side.is_empty() {
            true => redirections += 1,
            false => rounds += 1,
        }
        if group_change == GroupChange::Full {
            break;
        }
        request = request.without_top_up();
        for (index, number) in other_side {
            request.windows[index] = request.windows[index].clone().on_side_of(number);
        }
        if links.now().since(began_at) > SEND_MAX {
            return Err(Arc::new(Error::HomeMoving).into());
        }
        reply = links.consume_here(request.clone()).await?;
        if adds_credits {
            hide_close(&mut reply);
        }
    }
    // Homes have grown the group, or one of them may not.
    reply.group_change = reply.group_change.max(group_change);
    let has_waited = rounds + redirections > 0;
    if has_waited && !reply.is_admitted {
        mark_exceeded(&request, &mut reply);
    }
    links.record_decision(has_waited);
    refill_ahead(links, questions, &request, &reply);
    Ok(reply)
}

/// Waits for the grants that a request needs. Returns how their homes have changed the group, and adds the windows that are
/// counted on another side of a move, with their numbers.
async fn ask_all<L: RegionLinks>(
    links: &L,
    questions: &Arc<Questions>,
    missing: &[Need<'_>],
    other_side: &mut Vec<(usize, i64)>,
) -> std::result::Result<GroupChange, Arc<Error>> {
    let mut group_change = GroupChange::None;
    let asking = missing.iter().map(|need| ask(links, questions, *need));
    for (need, outcome) in missing.iter().zip(join_all(asking).await) {
        match outcome? {
            Asked::OtherSide(number) => other_side.push((need.index, number)),
            Asked::Answered(change) => group_change = group_change.max(change),
        }
    }
    Ok(group_change)
}

/// Makes the reply not say that the lease is closed, which means that it has not received the top-up. It was closed later:
/// the next request for it shows that.
fn hide_close(reply: &mut ConsumeReply) {
    if let Some(lease) = &mut reply.lease
        && lease.state == LeaseState::Closed
    {
        lease.state = LeaseState::Insufficient;
    }
}

/// Makes the reply say that the windows whose leases still do not suffice reject the request.
fn mark_exceeded(request: &ConsumeRequest, reply: &mut ConsumeReply) {
    let leases = reply.regional.iter().flat_map(|regional| &regional.leases);
    for ((index, window, _), lease) in request.windows_away().zip(leases) {
        if let Some(count) = reply.windows.get_mut(index)
            && lease.state == WindowLeaseState::Insufficient
        {
            count.effective_count = lease.rejecting_count(window);
        }
    }
}

/// Asks for grants of leases that are nearly spent and for counts that are nearly too old, without waiting.
fn refill_ahead<L: RegionLinks>(
    links: &L,
    questions: &Arc<Questions>,
    request: &ConsumeRequest,
    reply: &ConsumeReply,
) {
    let Some(regional) = reply.regional.as_deref().filter(|_| reply.is_admitted) else { return };
    for ((index, window, away), lease) in request.windows_away().zip(&regional.leases) {
        let left = lease.units - window.cost;
        let is_due = match window.cost {
            0 => lease.since_ms > PEEK_AHEAD_MS,
            _ => left < lease.demand_of(AHEAD_MS) || left.saturating_mul(4) < lease.granted_units,
        };
        if is_due {
            let need = Need { index, window, away, lease, regional, waiting: 0 };
            ask_without_waiting(links, questions, need);
        }
    }
}

/// Lists the windows whose lease is too small and whose home may have more. None if the request is rejected whatever they
/// have.
fn list_missing<'a>(
    request: &'a ConsumeRequest,
    reply: &ConsumeReply,
    regional: &'a RegionalReply,
) -> Vec<Need<'a>> {
    let mut here = request.windows.iter().zip(&reply.windows).filter(|(it, _)| !it.is_away());
    let mut missing = Vec::new();
    let is_rejected = here.any(|(window, count)| !count.is_within_limit(window));
    for ((index, window, away), lease) in request.windows_away().zip(&regional.leases) {
        match lease.state {
            WindowLeaseState::Sufficient => {}
            // A cost above its limit is never admitted.
            WindowLeaseState::Insufficient | WindowLeaseState::Scarce
                if window.limit > 0 && window.cost <= window.limit =>
            {
                let waiting = (window.cost - lease.units).max(0);
                missing.push(Need { index, window, away, lease, regional, waiting });
            }
            WindowLeaseState::Insufficient
            | WindowLeaseState::Denied
            | WindowLeaseState::Scarce => return Vec::new(),
        }
    }
    if is_rejected { Vec::new() } else { missing }
}

#[cfg(test)]
mod tests;
