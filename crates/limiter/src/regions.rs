//! Consumes windows that are counted in other regions, from leases of their units.
//!
//! One script in this region decides a whole request. If a lease is too small, its home is asked for a grant: once for all
//! callers that wait, and ahead of need while others still spend the rest. If a home cannot be reached, the request fails
//! like one whose Redis is unreachable.

mod links;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foundation::clock::Monotonic;
use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, join_all};
use parking_lot::Mutex;

use super::window_lease::Moved;
use super::{
    Away, ConsumeReply, ConsumeRequest, Grant, GrantTerms, RegionIndex, RegionalReply, Side,
    Window, WindowLease, WindowLeaseState,
};

pub use self::links::{RegionLinks, TakenBack};

/// How often a request asks for grants that others then spend, before it is rejected.
const ROUNDS_MAX: usize = 4;
/// How often a request is decided again because a window is counted on the other side of the move of its home, or had no
/// count there.
const REDIRECTIONS_MAX: usize = 5;
/// How long after its arrival a request is still sent anywhere. The home of its windows may have moved since, which every
/// replica knows ten seconds before; Redis executes what was sent within six seconds, or never.
const SEND_MAX: Duration = Duration::from_secs(3);
/// The demand that a grant covers.
const DEMAND_MS: i64 = 3_000;
/// The demand that is assumed at least, because that of a counter that was at rest is unknown: a hundredth of the limit, and
/// at least this many units.
const DEMAND_MIN: i64 = 10;
/// The home is asked ahead of need when the units left cover the demand of this time.
const AHEAD_MS: i64 = 300;
/// For how long a home that has granted nothing is not asked again: units of other regions may have returned.
const DENIED_MAX: Duration = Duration::from_secs(1);
/// For how long a home that has granted nothing is not asked again, at least: this time, but only a fiftieth of the window.
const DENIED_MIN_MS: i64 = 200;
/// How long a lease is at rest before its units are given back.
pub const REST: Duration = Duration::from_secs(1);
/// The maximum number of leases that one call takes units from.
const LEASES_PER_CALL_MAX: usize = 100;

/// What this replica asks other regions.
pub struct Questions {
    /// In how many parts a home divides what remains: two for each region.
    parts: i64,
    by_lease: Mutex<HashMap<Arc<str>, Question>>,
}

/// The state of the questions for one lease.
struct Question {
    window: Window,
    home: RegionIndex,
    /// The question that is under way.
    running: Option<Running>,
    /// What the callers that joined the question under way lack.
    joined: i64,
    /// The home is not asked ahead of need before this time.
    refill_after: Monotonic,
}

type Running = Shared<BoxFuture<'static, std::result::Result<Asked, Arc<Error>>>>;

/// The result of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// What was granted, if anything, has been added to the lease.
    Answered,
    /// The window, which has this number, is counted on another side of the moves of its home.
    OtherSide(i64),
}

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

impl Questions {
    /// Creates the state of a replica of one of this many regions.
    pub fn new(region_count: usize) -> Self {
        let parts = 2 * i64::try_from(region_count).unwrap_or(i64::MAX / 2);
        Self { parts, by_lease: Mutex::default() }
    }

    /// Joins the question for a lease that is under way, or begins one. `None`: it is too early to ask.
    fn begin<L: RegionLinks>(self: &Arc<Self>, links: &L, need: Need) -> Option<Running> {
        let (window, away, at) = (need.window, need.away, links.now());
        let mut by_lease = self.by_lease.lock();
        let question = by_lease.entry(away.lease.clone()).or_insert_with(|| Question {
            window: window.clone(),
            home: away.home,
            running: None,
            joined: 0,
            refill_after: at,
        });
        // The home and the limit may have changed.
        (question.window, question.home) = (window.clone(), away.home);
        if let Some(running) = &question.running {
            question.joined = question.joined.saturating_add(need.waiting);
            return Some(running.clone());
        }
        let (is_peek, is_ahead) = (window.cost == 0, need.waiting == 0);
        if is_ahead && !is_peek && at < question.refill_after {
            return None;
        }
        let demand = need.lease.demand_of(DEMAND_MS).max(window.limit / 100).max(DEMAND_MIN);
        let (terms, demand) = if is_peek {
            (GrantTerms { waiting: 0, least: 0, parts: self.parts }, 0)
        } else {
            let waiting = need.waiting.max(question.joined);
            (GrantTerms { waiting, least: need.waiting.max(1), parts: self.parts }, demand)
        };
        question.joined = 0;
        let request = ConsumeRequest {
            grant_terms: Some(terms),
            ..ConsumeRequest::of_windows(vec![window.to_demand_at_home(demand)])
        };
        let asked = RegionalReply { leases: Vec::new(), granted: None, ..*need.regional };
        let (questions, links, away) = (self.clone(), links.clone(), away.clone());
        let running = async move {
            if links.now().since(at) > SEND_MAX {
                questions.end(&away.lease, false, links.now());
                return Err(Arc::new(Error::HomeMoving));
            }
            let outcome = fetch_grant(&links, &away, request, terms, &asked).await;
            let is_granted = outcome.as_ref().is_ok_and(|(units, _)| *units > 0);
            questions.end(&away.lease, is_granted, links.now());
            outcome.map(|(_, asked)| asked).map_err(Arc::new)
        };
        let running = running.boxed().shared();
        question.running = Some(running.clone());
        Some(running)
    }

    fn end(&self, lease: &str, is_granted: bool, now: Monotonic) {
        if let Some(question) = self.by_lease.lock().get_mut(lease) {
            question.running = None;
            question.refill_after = if is_granted { now } else { now + DENIED_MAX };
        }
    }
}

/// Asks for a grant of the only window of a request, and adds it to this region's lease. Returns the units.
async fn fetch_grant(
    links: &impl RegionLinks,
    away: &Away,
    request: ConsumeRequest,
    terms: GrantTerms,
    asked: &RegionalReply,
) -> Result<(i64, Asked)> {
    let window = request.windows.first().cloned();
    let window = window.ok_or_else(|| Error::Internal("a question without a window".into()))?;
    // If the reply is lost, what was granted stays counted.
    let mut reply = links.ask_home(away.home, request.clone()).await?;
    match find_misplacement(&window, 0, &reply) {
        Some(Misplacement::OtherSide(number)) => return Ok((0, Asked::OtherSide(number))),
        Some(Misplacement::Unseeded) => {
            seed(links, &window).await?;
            reply = links.ask_home(away.home, request).await?;
        }
        None => {}
    }
    let retry_max_ms = i64::try_from(DENIED_MAX.as_millis()).unwrap_or(0);
    let retry_min_ms = DENIED_MIN_MS.min(window.duration_ms / 50);
    let grant = Grant::from_reply(
        away.lease.clone(),
        window.limit,
        terms.least,
        asked,
        &reply,
        (retry_min_ms, retry_max_ms),
    )
    .ok_or_else(|| Error::Internal("no grant in the reply of a home".into()))?;
    let units = grant.units;
    // So is what is not added.
    links.add_grants(vec![grant]).await?;
    Ok((units, Asked::Answered))
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

/// Waits for a grant, and returns after it was added.
async fn ask<L: RegionLinks>(
    links: &L,
    questions: &Arc<Questions>,
    need: Need<'_>,
) -> std::result::Result<Asked, Arc<Error>> {
    let Some(running) = questions.begin(links, need) else { return Ok(Asked::Answered) };
    // It goes on when its callers have stopped waiting, so that what is granted is not lost.
    links.spawn(running.clone().map(drop).boxed());
    running.await
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
    let (mut rounds, mut redirections) = (0, 0);
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
            let asking = missing.iter().map(|need| ask(links, questions, *need));
            for (need, outcome) in missing.iter().zip(join_all(asking).await) {
                if let Asked::OtherSide(number) = outcome? {
                    other_side.push((need.index, number));
                }
            }
        }
        match regional.is_misplaced || !other_side.is_empty() {
            true => redirections += 1,
            false => rounds += 1,
        }
        request = request.without_top_up();
        for (index, number) in other_side {
            request.windows[index] = request.windows[index].clone().on_side_of(number);
        }
        if links.now().since(began_at) > SEND_MAX {
            return Err(Arc::new(Error::HomeMoving).into());
        }
        reply = links.consume_here(request.clone()).await?;
    }
    let has_waited = rounds + redirections > 0;
    links.record_decision(has_waited);
    refill_ahead(links, questions, &request, &reply);
    Ok(reply)
}

/// Asks for grants of leases that are nearly spent, without waiting.
fn refill_ahead<L: RegionLinks>(
    links: &L,
    questions: &Arc<Questions>,
    request: &ConsumeRequest,
    reply: &ConsumeReply,
) {
    let Some(regional) = reply.regional.as_deref().filter(|_| reply.is_admitted) else { return };
    for ((index, window, away), lease) in request.windows_away().zip(&regional.leases) {
        let left = lease.units - window.cost;
        let is_low =
            left < lease.demand_of(AHEAD_MS) || left.saturating_mul(4) < lease.granted_units;
        if is_low && window.cost > 0 {
            let need = Need { index, window, away, lease, regional, waiting: 0 };
            ask_without_waiting(links, questions, need);
        }
    }
}

fn ask_without_waiting<L: RegionLinks>(links: &L, questions: &Arc<Questions>, need: Need) {
    if let Some(running) = questions.begin(links, need) {
        links.spawn(running.map(drop).boxed());
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

/// Gives the units of leases at rest back to their homes. A unit is taken out of its lease first, so it is never both spent
/// and given back.
pub async fn give_back_rests(links: &impl RegionLinks, questions: &Questions) -> Result<()> {
    let known: Vec<_> = {
        let by_lease = questions.by_lease.lock();
        by_lease.iter().map(|(lease, it)| (lease.clone(), it.window.clone(), it.home)).collect()
    };
    for known in known.chunks(LEASES_PER_CALL_MAX) {
        let leases: Vec<_> = known.iter().map(|(lease, ..)| lease.clone()).collect();
        let taken = links.take_back(&leases).await?;
        for ((lease, window, home), taken) in known.iter().zip(taken) {
            if !taken.exists {
                let mut by_lease = questions.by_lease.lock();
                if by_lease.get(lease).is_some_and(|question| question.running.is_none()) {
                    by_lease.remove(lease);
                }
            }
            if taken.units > 0
                && let Err(e) = links.give_back(*home, window, taken).await
            {
                tracing::debug!(error = %e, "failed to give {} units back: {e}", taken.units);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
