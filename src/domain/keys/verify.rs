//! Verifying a key.
//!
//! [`decide`] is pure: it yields the refusal or what is to be taken. Then at most one call to the
//! counters takes windows and credits together, all or nothing.

use std::sync::Arc;

use super::super::caller::Caller;
use super::super::credits::{self, Outcome};
use super::super::permission::Action;
use super::super::query::Query;
use super::view::{self, View};
use crate::app::App;
use crate::clock::Timestamp;
use crate::error::{Error, Refusal, Result};
use crate::limiter::{Counted, Keyspace, Window};
use crate::model::Ratelimit;
use crate::secret::KeyHash;
use crate::store::cache::Cached;

/// What is asked.
#[derive(Debug, Default)]
pub struct Verification {
    pub key: String,
    /// A permission query.
    pub permissions: Option<String>,
    /// Credits to spend; 1 where the key is metered and nothing is said.
    pub cost: Option<i64>,
    pub ratelimits: Vec<Wanted>,
}

/// A limit to check.
#[derive(Debug)]
pub struct Wanted {
    pub name: String,
    pub cost: i64,
    pub limit: WantedLimit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedLimit {
    /// As the key or its identity has it.
    Stored,
    /// Given with the request, and counted for the key.
    AdHoc { limit: i64, duration_ms: i64 },
}

/// The outcome. Not an error: the answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    Valid,
    NotFound,
    InsufficientPermissions,
    UsageExceeded,
    RateLimited,
    Disabled,
    Expired,
}

#[derive(Debug)]
pub struct Verified {
    pub code: Code,
    /// Absent for [`Code::NotFound`], which tells nothing.
    pub view: Option<Arc<Cached<View>>>,
    /// What is left, bank and purse; absent for an unlimited key.
    pub credits: Option<i64>,
    /// The limits that were evaluated.
    pub ratelimits: Vec<Checked>,
}

/// A limit that was evaluated, and how it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Empty for a limit given with the request.
    pub id: String,
    pub name: String,
    pub limit: i64,
    pub duration_ms: i64,
    pub auto_apply: bool,
    pub remaining: i64,
    pub reset: Timestamp,
    pub exceeded: bool,
}

/// What a key must still pass: a window for each limit, by name, and credits.
struct Plan {
    limits: Vec<Planned>,
    cost: i64,
}

struct Planned {
    limit: Checked,
    /// The id of the key or the identity that is counted.
    owner: String,
    cost: i64,
}

/// Verifies a key. A key of another workspace, or of an API for which the root key may not verify,
/// is as unknown as one that was never issued.
pub async fn verify(app: &App, caller: &Caller, request: Verification) -> Result<Verified> {
    let found = view::by_hash(app, KeyHash::of(&request.key)).await?;
    let Some(view) = found.filter(|view| is_visible(caller, &view.value)) else {
        let code = Code::NotFound;
        return Ok(Verified { code, view: None, credits: None, ratelimits: Vec::new() });
    };
    let query = request.permissions.as_deref().map(Query::parse).transpose()?;
    let key = &view.value.stored().key;
    let plan = match decide(&view.value, &request, query.as_ref(), app.clock.now())? {
        Ok(plan) => plan,
        Err(code) => {
            let credits = Box::pin(credits::known_balance(app, key)).await;
            return Ok(Verified { code, view: Some(view), credits, ratelimits: Vec::new() });
        }
    };
    let windows: Vec<_> = plan.limits.iter().map(|limit| limit.window(&app.keyspace)).collect();
    let outcome = credits::take(app, key, windows.clone(), plan.cost).await?;
    let ratelimits = checked(plan.limits, &windows, &outcome);
    let code = match outcome.taken {
        true => Code::Valid,
        false if ratelimits.iter().any(|limit| limit.exceeded) => Code::RateLimited,
        false => Code::UsageExceeded,
    };
    Ok(Verified { code, credits: outcome.credits, ratelimits, view: Some(view) })
}

fn is_visible(caller: &Caller, view: &View) -> bool {
    let key = &view.stored().key;
    key.workspace_id == *caller.workspace() && caller.may_on(Action::VerifyKey, &key.api_id)
}

/// The checks that need nothing but what is known, in order; the first that fails decides.
fn decide(
    view: &View,
    request: &Verification,
    query: Option<&Query>,
    now: Timestamp,
) -> Result<std::result::Result<Plan, Code>> {
    let key = &view.stored().key;
    if !key.enabled {
        return Ok(Err(Code::Disabled));
    }
    if key.expires_at.is_some_and(|expires| now > expires) {
        return Ok(Err(Code::Expired));
    }
    if query.is_some_and(|query| !query.holds(|slug| view.has(slug))) {
        return Ok(Err(Code::InsufficientPermissions));
    }
    let limits = plan(view, &request.ratelimits)?;
    Ok(Ok(Plan { limits, cost: request.cost.unwrap_or(1) }))
}

/// The limits to check, by name: those that apply by themselves, and those asked for, which replace
/// them. A key's own limit hides its identity's of the same name.
fn plan(view: &View, wanted: &[Wanted]) -> Result<Vec<Planned>> {
    let stored = view.stored();
    let own = stored.ratelimits.iter().map(|limit| (limit, stored.key.id.as_str()));
    let identity = view.identity().map_or("", |identity| identity.id.as_str());
    let shared = view.shared_ratelimits().map(|limit| (limit, identity));
    let visible = own.chain(shared);

    let applied = visible.clone().filter(|(limit, _)| limit.auto_apply);
    let mut planned: Vec<_> =
        applied.map(|(limit, owner)| Planned::stored(limit, owner, 1)).collect();
    for wanted in wanted {
        let limit = match wanted.limit {
            WantedLimit::AdHoc { limit, duration_ms } => {
                Planned::ad_hoc(wanted, stored.key.id.as_str(), limit, duration_ms)
            }
            WantedLimit::Stored => {
                let (limit, owner) =
                    visible.clone().find(|(limit, _)| limit.name == wanted.name).ok_or_else(
                        || Error::Refused(Refusal::UnknownRatelimit(wanted.name.clone())),
                    )?;
                Planned::stored(limit, owner, wanted.cost)
            }
        };
        planned.retain(|known| known.limit.name != wanted.name);
        planned.push(limit);
    }
    planned.sort_by(|a, b| a.limit.name.cmp(&b.limit.name));
    Ok(planned)
}

impl Planned {
    fn stored(limit: &Ratelimit, owner: &str, cost: i64) -> Self {
        let checked = Checked {
            id: limit.id.as_str().to_owned(),
            name: limit.name.clone(),
            limit: limit.limit,
            duration_ms: limit.duration_ms,
            auto_apply: limit.auto_apply,
            remaining: 0,
            reset: Timestamp(0),
            exceeded: false,
        };
        Self { limit: checked, owner: owner.to_owned(), cost }
    }

    fn ad_hoc(wanted: &Wanted, key: &str, limit: i64, duration_ms: i64) -> Self {
        let checked = Checked {
            id: String::new(),
            name: wanted.name.clone(),
            limit,
            duration_ms,
            auto_apply: false,
            remaining: 0,
            reset: Timestamp(0),
            exceeded: false,
        };
        Self { limit: checked, owner: key.to_owned(), cost: wanted.cost }
    }

    fn window(&self, keyspace: &Keyspace) -> Window {
        let Checked { name, limit, duration_ms, .. } = &self.limit;
        let key = keyspace.window(&self.owner, *duration_ms, name);
        Window::new(key, *limit, *duration_ms, self.cost)
    }
}

fn checked(limits: Vec<Planned>, windows: &[Window], outcome: &Outcome) -> Vec<Checked> {
    let found = windows.iter().zip(&outcome.windows);
    let standing = |(planned, (window, found)): (Planned, (&Window, &Counted))| Checked {
        remaining: found.remaining(window, outcome.taken),
        reset: found.reset(window),
        exceeded: !found.passed(window),
        ..planned.limit
    };
    limits.into_iter().zip(found).map(standing).collect()
}
