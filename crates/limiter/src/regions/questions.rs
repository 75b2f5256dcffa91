//! What a replica asks the homes of windows, and what it gives back to them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foundation::clock::Monotonic;
use foundation::error::{Error, Result};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;

use super::super::{
    Away, ConsumeRequest, Grant, GrantTerms, GroupChange, RegionIndex, RegionalReply, Window,
};
use super::{Misplacement, Need, RegionLinks, SEND_MAX, find_misplacement, seed};

/// The demand that a grant covers.
const DEMAND_MS: i64 = 3_000;
/// The demand that is assumed at least, because that of a counter that was at rest is unknown: a hundredth of the limit, and
/// at least this many units.
const DEMAND_MIN: i64 = 10;
/// For how long a home that has granted nothing is not asked again: units of other regions may have returned.
const DENIED_MAX: Duration = Duration::from_secs(1);
/// For how long a home that has granted nothing is not asked again, at least: this time, but only a fiftieth of the window.
const DENIED_MIN_MS: i64 = 200;
/// The maximum number of leases that one call takes units from.
const LEASES_PER_CALL_MAX: usize = 100;

/// What this replica asks other regions.
pub struct Questions {
    /// In how many parts a home divides what remains: two for each region.
    parts: i64,
    pub(super) by_lease: Mutex<HashMap<Arc<str>, Question>>,
}

/// The state of the questions for one lease.
pub(super) struct Question {
    window: Window,
    home: RegionIndex,
    /// The question that is under way.
    running: Option<Running>,
    /// What the callers that joined the question under way lack.
    joined: i64,
    /// The home is not asked ahead of need before this time.
    refill_after: Monotonic,
}

pub(super) type Running = Shared<BoxFuture<'static, std::result::Result<Asked, Arc<Error>>>>;

/// The result of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// What was granted, if anything, has been added to the lease. If the group of the counter is full, the home has
    /// neither granted nor denied anything.
    Answered(GroupChange),
    /// The window, which has this number, is counted on another side of the moves of its home.
    OtherSide(i64),
}

impl Questions {
    /// Creates the state of a replica of one of this many regions.
    pub fn new(region_count: usize) -> Self {
        let parts = 2 * i64::try_from(region_count).unwrap_or(i64::MAX / 2);
        Self { parts, by_lease: Mutex::default() }
    }

    /// Joins the question for a lease that is under way, or begins one. `None`: it is too early to ask.
    pub(super) fn begin<L: RegionLinks>(
        self: &Arc<Self>,
        links: &L,
        need: Need,
    ) -> Option<Running> {
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
                questions.end(&away.lease, Some(false).filter(|_| !is_peek), links.now());
                return Err(Arc::new(Error::HomeMoving));
            }
            let outcome = fetch_grant(&links, &away, request, terms, &asked).await;
            let is_granted = outcome.as_ref().is_ok_and(|(units, _)| *units > 0);
            questions.end(&away.lease, Some(is_granted).filter(|_| !is_peek), links.now());
            outcome.map(|(_, asked)| asked).map_err(Arc::new)
        };
        let running = running.boxed().shared();
        question.running = Some(running.clone());
        Some(running)
    }

    /// Ends a question. `is_granted`: whether it has granted units; `None`: it asked for the count only, which does not tell
    /// whether there are units.
    fn end(&self, lease: &str, is_granted: Option<bool>, now: Monotonic) {
        if let Some(question) = self.by_lease.lock().get_mut(lease) {
            question.running = None;
            if let Some(is_granted) = is_granted {
                question.refill_after = if is_granted { now } else { now + DENIED_MAX };
            }
        }
    }

    /// Forgets a lease without units, unless its home was asked since `refill_after` was read or must not be asked yet.
    pub(super) fn forget(&self, lease: &str, refill_after: Monotonic, now: Monotonic) {
        let mut by_lease = self.by_lease.lock();
        let is_over = |question: &Question| {
            question.running.is_none()
                && question.refill_after == refill_after
                && refill_after <= now
        };
        if by_lease.get(lease).is_some_and(is_over) {
            by_lease.remove(lease);
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
    if reply.group_change == GroupChange::Full {
        // The limit does not deny anything, so the next request asks again.
        return Ok((0, Asked::Answered(GroupChange::Full)));
    }
    let retry_max_ms = i64::try_from(DENIED_MAX.as_millis()).unwrap_or(0);
    let retry_min_ms = DENIED_MIN_MS.min(window.duration_ms / 50);
    let grant = Grant::from_reply(
        away.lease.clone(),
        window.limit,
        terms,
        asked,
        &reply,
        (retry_min_ms, retry_max_ms),
    )
    .ok_or_else(|| Error::Internal("no grant in the reply of a home".into()))?;
    let units = grant.units;
    // So is what is not added.
    links.add_grants(vec![grant]).await?;
    Ok((units, Asked::Answered(reply.group_change)))
}

/// Waits for a grant, and returns after it was added.
pub(super) async fn ask<L: RegionLinks>(
    links: &L,
    questions: &Arc<Questions>,
    need: Need<'_>,
) -> std::result::Result<Asked, Arc<Error>> {
    let Some(running) = questions.begin(links, need) else {
        return Ok(Asked::Answered(GroupChange::None));
    };
    // It goes on when its callers have stopped waiting, so that what is granted is not lost.
    links.spawn(running.clone().map(drop).boxed());
    running.await
}

pub(super) fn ask_without_waiting<L: RegionLinks>(
    links: &L,
    questions: &Arc<Questions>,
    need: Need,
) {
    if let Some(running) = questions.begin(links, need) {
        links.spawn(running.map(drop).boxed());
    }
}

/// Gives the units of leases at rest back to their homes. A unit is taken out of its lease first, so it is never both spent
/// and given back.
pub async fn give_back_rests(links: &impl RegionLinks, questions: &Questions) -> Result<()> {
    let known: Vec<_> = {
        let by_lease = questions.by_lease.lock();
        let known = |(lease, it): (&Arc<str>, &Question)| {
            (lease.clone(), it.window.clone(), it.home, it.refill_after)
        };
        by_lease.iter().map(known).collect()
    };
    for known in known.chunks(LEASES_PER_CALL_MAX) {
        let leases: Vec<_> = known.iter().map(|(lease, ..)| lease.clone()).collect();
        let taken = links.take_back(&leases).await?;
        for ((lease, window, home, refill_after), taken) in known.iter().zip(taken) {
            if !taken.had_units {
                questions.forget(lease, *refill_after, links.now());
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
