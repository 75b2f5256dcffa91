//! Why a request was refused, by its id.

use askama::Template;
use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::model::Key;

use super::super::format::{TimeLabel, count, latency};
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{Answer, page};
use crate::domain::analytics::recent::{self, Check, Request, Verification};
use crate::domain::keys::{DecryptMode, get};
use crate::domain::permission::Action;
use crate::domain::ratelimits::namespaces;

#[derive(Template)]
#[template(path = "keys/why.html")]
struct Why<'a> {
    shell: Layout,
    workspace: String,
    request: &'a str,
    verified: Option<Verified>,
    checks: Vec<Checked>,
}

/// A verification, explained.
struct Verified {
    at: TimeLabel,
    outcome: String,
    is_good: bool,
    happened: String,
    reason: Option<String>,
    todo: &'static str,
    latency: String,
    tags: Vec<String>,
    spent: Option<String>,
    external_id: Option<String>,
    region: String,
    key_id: String,
    /// Absent: there is no such key any more.
    key: Option<String>,
}

/// A check of the standalone limiter, explained.
struct Checked {
    at: TimeLabel,
    namespace: String,
    identifier: String,
    passed: bool,
    told: String,
    latency: String,
    override_id: Option<String>,
    resets: TimeLabel,
}

impl Verified {
    fn new(event: Verification, key: Option<&Key>, now: Timestamp) -> Self {
        let (happened, todo) = explained(&event.outcome);
        Self {
            at: TimeLabel::new(event.at, now),
            is_good: event.outcome == "VALID",
            outcome: event.outcome,
            happened: happened.to_owned(),
            reason: event.reason,
            todo,
            latency: latency(event.latency_us),
            tags: event.tags,
            spent: (event.spent_credits > 0).then(|| count(event.spent_credits, i64::MAX)),
            external_id: event.external_id,
            region: event.region,
            key_id: event.key_id.to_string(),
            key: key.map(|key| key.name.clone().unwrap_or_else(|| format!("{}…", key.start))),
        }
    }
}

/// What an outcome means, and what to do about it.
fn explained(outcome: &str) -> (&'static str, &'static str) {
    match outcome {
        "VALID" => (
            "The key was good, and the request was let through.",
            "There is nothing to do here. If it failed all the same, your own backend refused it afterwards.",
        ),
        "RATE_LIMITED" => (
            "A rate limit of the key, or one that its identity shares, was used up.",
            "Wait until the window ends, or raise the limit of the key or of its identity.",
        ),
        "USAGE_EXCEEDED" => (
            "The key had fewer credits left than the request cost.",
            "Add credits to the key, or let them come back by themselves.",
        ),
        "DISABLED" => (
            "The key was switched off.",
            "Enable the key, if whoever shows it is to come in again.",
        ),
        "INSUFFICIENT_PERMISSIONS" => (
            "The key is good, but was not allowed to do what your backend asked for.",
            "Give the key the permission, or a role that has it, or ask for another one in the backend.",
        ),
        "EXPIRED" => ("The key's time was over.", "Give the key another end, or re-roll it."),
        "FORBIDDEN" => (
            "The key was used from a network that its API does not allow, or was shown for another API.",
            "Look at the networks in the settings of the API, and at the API that your backend names.",
        ),
        _ => ("The request came to this outcome.", "Its reason says more."),
    }
}

impl Checked {
    fn new(check: Check, namespace: String, now: Timestamp) -> Self {
        let number = |number: i64| count(number, i64::MAX);
        let (limit, tokens) = (number(check.limit), number(check.tokens));
        let remaining = number(check.remaining);
        let told = match check.passed {
            true => {
                format!("{tokens} asked for of a limit of {limit}; {remaining} were left then.")
            }
            false => format!("{tokens} asked for, and fewer were left of a limit of {limit}."),
        };
        Self {
            at: TimeLabel::new(check.at, now),
            namespace,
            identifier: check.identifier,
            passed: check.passed,
            told,
            latency: latency(check.latency_us),
            override_id: check.override_id,
            resets: TimeLabel::new(check.reset_at, now),
        }
    }
}

pub async fn page_of(asked: WorkspaceRequest) -> Answer {
    for action in [Action::ReadKey, Action::ReadApiAnalytics] {
        asked.caller.require(action)?;
    }
    let app = &asked.visit.app;
    let request = asked.visit.query.text("request").trim();
    let found = match request.is_empty() {
        true => None,
        false => recent::of_request(app, &asked.caller, request).await?,
    };
    let now = app.clock.now();
    let (mut verified, mut checks) = (None, Vec::new());
    match found {
        None => {}
        Some(Request::Verification(event)) => {
            let key = match get(app, &asked.caller, &event.key_id, DecryptMode::None).await {
                Ok(found) => Some(found.view.stored().key.clone()),
                Err(Error::NotFound(_)) => None,
                Err(error) => return Err(error.into()),
            };
            verified = Some(Verified::new(*event, key.as_ref(), now));
        }
        Some(Request::Checks(found)) => {
            for check in found {
                let namespace = namespace(&asked, &check.namespace_id).await?;
                checks.push(Checked::new(check, namespace, now));
            }
        }
    }
    page(&Why {
        shell: Layout::of(&asked, Section::Keys, "Why was it refused?").await?,
        workspace: asked.membership.workspace_id.to_string(),
        request,
        verified,
        checks,
    })
}

/// What a namespace is called; its id, where there is none of it any more.
async fn namespace(asked: &WorkspaceRequest, id: &str) -> Result<String> {
    match namespaces::get(&asked.visit.app, &asked.caller, id).await {
        Ok(namespace) => Ok(namespace.name),
        Err(Error::NotFound(_) | Error::NamespaceGone(_)) => Ok(id.to_owned()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::keys::VerificationCode;

    #[test]
    fn every_outcome_that_leaves_an_event_is_explained() {
        let (unknown, _) = explained("SOMETHING");
        for code in [
            VerificationCode::Valid,
            VerificationCode::InsufficientPermissions,
            VerificationCode::UsageExceeded,
            VerificationCode::RateLimited,
            VerificationCode::Disabled,
            VerificationCode::Expired,
            VerificationCode::Forbidden,
        ] {
            assert_ne!(explained(code.as_str()).0, unknown, "{}", code.as_str());
        }
    }
}
