//! Explains why a request was rejected, by its request ID.

use askama::Template;
use domain::analytics_access::{self, RecentCheck, RecentVerification, RequestEvents};
use domain::keys::{DecryptMode, VerificationCode, get};
use domain::permission::Action;
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::NamespaceId;
use foundation::model::Key;

use super::super::format::{
    TimeLabel, format_count, format_latency, format_moment_to_ms, format_start, outcome_label,
};
use super::super::layout::{Layout, Section};
use super::super::namespace_names::NamespaceNames;
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, render_page};

#[derive(Template)]
#[template(path = "keys/why.html")]
struct ExplainPage<'a> {
    layout: Layout,
    workspace: String,
    request: &'a str,
    verification: Option<VerificationExplanation>,
    checks: Vec<LimitCheckExplanation>,
}

/// A verification, explained.
struct VerificationExplanation {
    at: TimeLabel,
    /// The time to the millisecond, as in the logs.
    exact: String,
    outcome: String,
    /// The outcome as the response has it.
    code: String,
    is_valid: bool,
    meaning: String,
    reason: Option<String>,
    todo: &'static str,
    latency: String,
    tags: Vec<String>,
    spent_credits: Option<String>,
    external_id: Option<String>,
    region: String,
    key_id: String,
    /// The name or start of the key; `None` if the key no longer exists.
    key: Option<String>,
}

/// A standalone limit check, explained.
struct LimitCheckExplanation {
    at: TimeLabel,
    exact: String,
    namespace_id: String,
    /// The name of the namespace; its ID if it no longer exists.
    namespace: String,
    identifier: String,
    is_admitted: bool,
    summary: String,
    latency: String,
    override_id: Option<String>,
    resets: TimeLabel,
}

impl VerificationExplanation {
    fn new(event: RecentVerification, key: Option<&Key>, now: Timestamp) -> Self {
        let (happened, todo) = explain_outcome(&event.outcome);
        Self {
            at: TimeLabel::new(event.occurred_at, now),
            exact: exact_time(event.occurred_at),
            is_valid: event.outcome == VerificationCode::Valid.as_str(),
            code: event.outcome.clone(),
            outcome: outcome_label(event.outcome),
            meaning: happened.to_owned(),
            reason: event.reason,
            todo,
            latency: format_latency(event.latency_us),
            tags: event.tags,
            spent_credits: (event.spent_credits > 0)
                .then(|| format_count(event.spent_credits, i64::MAX)),
            external_id: event.external_id,
            region: event.region,
            key_id: event.key_id.to_string(),
            key: key
                .map(|key| key.name.clone().unwrap_or_else(|| format_start(&key.start, &key.id))),
        }
    }
}

fn exact_time(at: Timestamp) -> String {
    format!("{} UTC", format_moment_to_ms(at))
}

/// Returns what an outcome means and what to do about it.
pub fn explain_outcome(outcome: &str) -> (&'static str, &'static str) {
    match VerificationCode::parse(outcome) {
        Some(VerificationCode::Valid) => (
            "The key was valid and the request was allowed.",
            "No action needed. If the request failed, your backend rejected it after verification.",
        ),
        Some(VerificationCode::RateLimited) => (
            "A rate limit of the key or its identity was exceeded.",
            "Wait until the window resets, or raise the limit of the key or its identity.",
        ),
        Some(VerificationCode::UsageExceeded) => (
            "The key had fewer remaining credits than the request cost.",
            "Add credits to the key, or configure a refill.",
        ),
        Some(VerificationCode::Disabled) => {
            ("The key was disabled.", "Enable the key to allow its use again.")
        }
        Some(VerificationCode::InsufficientPermissions) => (
            "The key is valid but lacked a permission that your backend required.",
            "Assign the permission or a role that includes it, or require another permission in your backend.",
        ),
        Some(VerificationCode::Expired) => {
            ("The key had expired.", "Extend the key's expiry, or rotate the key.")
        }
        Some(VerificationCode::Forbidden) => (
            "The key was used from a network that its API does not allow, or was verified for a different API.",
            "Check the allowed networks in the API settings, and the API that your backend specifies.",
        ),
        // Verifications of unknown keys are counted, but are no events.
        Some(VerificationCode::NotFound) | None => {
            ("The request had this outcome.", "See the reason for details.")
        }
    }
}

impl LimitCheckExplanation {
    fn new(check: RecentCheck, namespace: String, now: Timestamp) -> Self {
        let number = |number: i64| format_count(number, i64::MAX);
        let (limit, tokens) = (number(check.limit), number(check.tokens));
        let remaining = number(check.remaining);
        let told = match check.passed {
            true => {
                format!("Cost {tokens} of a limit of {limit}; {remaining} remained.")
            }
            false => format!("Cost {tokens}; fewer remained of a limit of {limit}."),
        };
        Self {
            at: TimeLabel::new(check.occurred_at, now),
            exact: exact_time(check.occurred_at),
            namespace_id: check.namespace_id,
            namespace,
            identifier: check.identifier,
            is_admitted: check.passed,
            summary: told,
            latency: format_latency(check.latency_us),
            override_id: check.override_id,
            resets: TimeLabel::new(check.reset_at, now),
        }
    }
}

pub async fn show(request: WorkspaceRequest) -> PageResult {
    for action in [Action::ReadKey, Action::ReadApiAnalytics] {
        request.caller.require(action)?;
    }
    let app = &request.page_request.app;
    let request_id = request.page_request.query.text("request").trim();
    let found = match request_id.is_empty() {
        true => None,
        false => {
            analytics_access::find_by_request(&app.analytics, &request.caller, request_id).await?
        }
    };
    let now = app.context.clock.now();
    let (mut verified, mut checks) = (None, Vec::new());
    match found {
        None => {}
        Some(RequestEvents::Verification(event)) => {
            let key = match get(&app.keys, &request.caller, &event.key_id, DecryptMode::None).await
            {
                Ok(found) => Some(found.stored.key),
                Err(Error::NotFound(_)) => None,
                Err(error) => return Err(error.into()),
            };
            verified = Some(VerificationExplanation::new(*event, key.as_ref(), now));
        }
        Some(RequestEvents::Checks(found)) => {
            let ids = found.iter().map(|check| NamespaceId::from(&*check.namespace_id)).collect();
            let names = NamespaceNames::load(&request, ids).await?;
            for check in found {
                let namespace = names.label(&check.namespace_id);
                checks.push(LimitCheckExplanation::new(check, namespace, now));
            }
        }
    }
    render_page(&ExplainPage {
        layout: Layout::for_workspace(&request, Section::Keys, "Explain a request").await?,
        workspace: request.membership.workspace_id.to_string(),
        request: request_id,
        verification: verified,
        checks,
    })
}
