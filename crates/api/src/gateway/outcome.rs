//! The answer to a gateway: what every protocol tells of a decision.

use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use domain::gateways::{ActivePolicy, GatewayDecision};
use domain::keys::{EvaluatedLimit, VerificationCode, VerifyResult};
use domain::refill;
use domain::resolved_key::ResolvedLimit;
use foundation::clock::Timestamp;
use foundation::error::{Error, RetryAfter};
use foundation::id::RequestId;
use foundation::model::FailureFormat;
use serde::Serialize;

use super::assertion::AssertionSigner;
use super::identity_headers::{NO_STORE, REQUEST_ID_HEADER, identity_headers};
use crate::ratelimit_headers::{self, CheckedLimit, RatelimitHeaders};

/// The balance of a key with credits, after the request.
const CREDITS_HEADER: HeaderName = HeaderName::from_static("keyward-credits-remaining");

/// A header with its value.
pub type Header = (HeaderName, String);

/// The answer to one request, independent of the protocol.
#[derive(Debug)]
pub struct GatewayAnswer {
    /// An HTTP status. 200 admits the request.
    pub status: u16,
    /// Tell the upstream who calls, and caches to store no answer; none with a refusal.
    pub identity_headers: HeaderMap,
    /// Tell the client its limits, or why it is refused.
    pub headers: Vec<Header>,
    /// The reason of a refusal, if the policy wants a body.
    pub body: Option<FailureBody>,
}

impl GatewayAnswer {
    /// Takes the identity headers as text, without the one for caches.
    pub fn take_identity_headers(&mut self) -> Vec<Header> {
        let headers = std::mem::take(&mut self.identity_headers);
        // All are ASCII.
        let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let of_caller = headers.iter().filter(|(name, _)| **name != NO_STORE.0);
        of_caller.map(|(name, value)| (name.clone(), text(value))).collect()
    }
}

/// The body of a refusal, and its media type.
#[derive(Debug)]
pub struct FailureBody {
    pub media_type: &'static str,
    pub text: String,
}

/// Problem details (RFC 9457).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Problem<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    request_id: &'a str,
}

/// Why a request is refused.
struct Refusal<'a> {
    status: u16,
    code: &'a str,
    detail: String,
    headers: Vec<Header>,
}

/// Builds the answer to a request that was judged.
pub fn answer_decision(
    policy: &ActivePolicy,
    decision: &GatewayDecision,
    request_id: &RequestId,
    now: Timestamp,
    format: RatelimitHeaders,
    signer: Option<&AssertionSigner<'_>>,
) -> GatewayAnswer {
    let mut answer = answer_without_limits(policy, decision, request_id, now, signer);
    if let GatewayDecision::Verified(verified) = decision {
        let limits = verified.ratelimits.iter().map(CheckedLimit::from);
        answer.headers.extend(ratelimit_headers::list(format, limits, now));
    }
    answer
}

fn answer_without_limits(
    policy: &ActivePolicy,
    decision: &GatewayDecision,
    request_id: &RequestId,
    now: Timestamp,
    signer: Option<&AssertionSigner<'_>>,
) -> GatewayAnswer {
    match decision {
        GatewayDecision::NoKey => {
            let detail = "the request has no API key".to_owned();
            refuse(policy, unauthorized(policy, "NO_KEY", detail), request_id)
        }
        GatewayDecision::Verified(verified) => match (&verified.code, &verified.resolved) {
            (VerificationCode::Valid, Some(resolved)) => {
                let identity_headers =
                    identity_headers(policy, &resolved.value, request_id, signer);
                let headers = usage_headers(verified).into_iter().collect();
                GatewayAnswer { status: 200, identity_headers, headers, body: None }
            }
            _ => refuse(policy, refusal_of(policy, verified, now), request_id),
        },
    }
}

/// Builds the answer to a request that could not be judged. `policy` is absent if the gateway was not authenticated.
pub fn answer_error(
    policy: Option<&ActivePolicy>,
    error: &Error,
    request_id: &RequestId,
) -> GatewayAnswer {
    let code = error.code();
    let mut headers = Vec::new();
    // To a gateway, an error of its policy is neither the client's fault nor a reason to let the request pass.
    let status = match code.status() {
        503 => {
            headers.push((RETRY_AFTER, "1".to_owned()));
            503
        }
        server @ 500.. => server,
        _ => 403,
    };
    let refusal = Refusal { status, code: code.name(), detail: error.detail(), headers };
    let format = policy.map(|policy| policy.policy.config.on_failure).unwrap_or_default();
    refuse_as(format, refusal, request_id)
}

/// Builds the answer to a gateway that tells a request in headers, and `/` by a slash at the end of the URL that it asks.
pub fn answer_stray_slash(policy: &ActivePolicy, request_id: &RequestId) -> GatewayAnswer {
    let detail = "the gateway asks a URL with a slash after the policy, which stands for the path /, and names another path in \
        a header: remove the slash from the URL";
    let (code, headers) = ("CONTRADICTORY_PATH", Vec::new());
    refuse(policy, Refusal { status: 404, code, detail: detail.to_owned(), headers }, request_id)
}

fn usage_headers(verified: &VerifyResult) -> Option<Header> {
    let credits = verified.credits?;
    Some((CREDITS_HEADER, credits.to_string()))
}

fn refusal_of(policy: &ActivePolicy, verified: &VerifyResult, now: Timestamp) -> Refusal<'static> {
    let code = verified.code.as_str();
    match verified.code {
        VerificationCode::Valid | VerificationCode::NotFound => {
            unauthorized(policy, code, "the API key is not valid".to_owned())
        }
        VerificationCode::Expired => {
            unauthorized(policy, code, "the API key has expired".to_owned())
        }
        VerificationCode::Disabled => {
            unauthorized(policy, code, "the API key is disabled".to_owned())
        }
        VerificationCode::Forbidden => {
            forbidden(policy, code, "the API key may not be used for this request".to_owned())
        }
        VerificationCode::InsufficientPermissions => {
            forbidden(policy, code, "the API key lacks a required permission".to_owned())
        }
        VerificationCode::RateLimited => {
            let exceeded = verified.ratelimits.iter().filter(|limit| limit.status.is_exceeded);
            let reset_at = retry_at(exceeded.map(ExceededLimit::from));
            let detail = "the rate limit is exceeded".to_owned();
            too_many(code, detail, verified, reset_at.map(|at| (at, now)))
        }
        VerificationCode::UsageExceeded => {
            let refill_at = refill_at(verified, now);
            let detail = "the API key has too few credits".to_owned();
            too_many(code, detail, verified, refill_at.map(|at| (at, now)))
        }
    }
}

/// A limit that refuses a request.
#[derive(Debug, Clone, Copy)]
pub struct ExceededLimit {
    pub limit: i64,
    /// What the request takes of it.
    pub cost: i64,
    /// What counts against it.
    pub used: i64,
    pub duration_ms: i64,
    pub reset_at: Timestamp,
}

impl From<&EvaluatedLimit> for ExceededLimit {
    fn from(evaluated: &EvaluatedLimit) -> Self {
        let EvaluatedLimit { limit, cost, status } = evaluated;
        let ResolvedLimit { limit, duration_ms, .. } = **limit;
        Self { limit, cost: *cost, used: status.used, duration_ms, reset_at: status.reset_at }
    }
}

/// Returns when a retry can succeed. `None`: never, because the request takes more than a limit has, or a limit is 0 and admits
/// nothing.
pub fn retry_at(exceeded: impl Iterator<Item = ExceededLimit>) -> Option<Timestamp> {
    exceeded.map(has_room_at).collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// Returns when a limit that nobody else uses has room for the cost of a request. At the end of a window, what was taken in it
/// still counts, by the share that a window ending then would cover: at most the whole limit, or what is used where that is more
/// because refused requests count, and less with time.
fn has_room_at(exceeded: ExceededLimit) -> Option<Timestamp> {
    let ExceededLimit { limit, cost, used, duration_ms, reset_at } = exceeded;
    let cost = cost.max(1);
    if cost > limit {
        return None;
    }
    let used = i128::from(used.max(limit));
    let surplus = used - i128::from(limit) + i128::from(cost - 1);
    let wait_ms = i128::from(duration_ms) * surplus / used;
    Some(reset_at.plus_ms(i64::try_from(wait_ms).unwrap_or(i64::MAX)))
}

/// Returns when the credits of a key are refilled next. `None`: never, or not with as many as the request costs.
fn refill_at(verified: &VerifyResult, now: Timestamp) -> Option<Timestamp> {
    let refill = verified.resolved.as_ref()?.value.credits()?.account.refill.as_ref()?;
    (verified.cost <= refill.amount).then(|| refill::next_refill_at(refill, now))
}

fn unauthorized<'a>(policy: &ActivePolicy, code: &'a str, detail: String) -> Refusal<'a> {
    let headers = vec![challenge(policy, "invalid_token")];
    Refusal { status: 401, code, detail, headers }
}

fn forbidden<'a>(policy: &ActivePolicy, code: &'a str, detail: String) -> Refusal<'a> {
    let headers = vec![challenge(policy, "insufficient_scope")];
    Refusal { status: 403, code, detail, headers }
}

/// Returns the challenge of RFC 6750, with the metadata of RFC 9728. Neither name nor URL needs escaping.
fn challenge(policy: &ActivePolicy, error: &str) -> Header {
    let realm = &policy.policy.name;
    let mut challenge = format!("Bearer realm=\"{realm}\", error=\"{error}\"");
    if let Some(url) = &policy.metadata_url {
        challenge = challenge + ", resource_metadata=\"" + url + "\"";
    }
    (WWW_AUTHENTICATE, challenge)
}

/// `until` is when a retry can succeed, and the time now.
fn too_many<'a>(
    code: &'a str,
    detail: String,
    verified: &VerifyResult,
    until: Option<(Timestamp, Timestamp)>,
) -> Refusal<'a> {
    let mut headers: Vec<_> = usage_headers(verified).into_iter().collect();
    headers.extend(until.map(|(until, now)| retry_after(until, now)));
    Refusal { status: 429, code, detail, headers }
}

/// Returns the header that says when a retry can succeed, in whole seconds.
pub fn retry_after(until: Timestamp, now: Timestamp) -> Header {
    (RETRY_AFTER, RetryAfter::until(until, now).seconds().to_string())
}

fn refuse(policy: &ActivePolicy, refusal: Refusal<'_>, request_id: &RequestId) -> GatewayAnswer {
    refuse_as(policy.policy.config.on_failure, refusal, request_id)
}

fn refuse_as(format: FailureFormat, refusal: Refusal<'_>, request_id: &RequestId) -> GatewayAnswer {
    let Refusal { status, code, detail, mut headers } = refusal;
    headers.push((REQUEST_ID_HEADER, request_id.to_string()));
    let body = match format {
        FailureFormat::Empty => None,
        FailureFormat::Text => {
            Some(FailureBody { media_type: "text/plain; charset=utf-8", text: detail + "\n" })
        }
        FailureFormat::ProblemJson => {
            let problem = Problem {
                r#type: "about:blank",
                title: title(status),
                status,
                detail: &detail,
                code,
                request_id: request_id.as_str(),
            };
            let text = serde_json::to_string(&problem).unwrap_or_default();
            Some(FailureBody { media_type: "application/problem+json", text })
        }
    };
    GatewayAnswer { status, identity_headers: HeaderMap::new(), headers, body }
}

fn title(status: u16) -> &'static str {
    match status {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        429 => "Too Many Requests",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}
