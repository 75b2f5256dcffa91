//! `envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit`: checks descriptors in a namespace.

use std::pin::pin;
use std::sync::Arc;

use api::gateway::{
    self, ExceededLimit, Header, bearer_token, non_empty_secret, retry_after, retry_at,
};
use api::ratelimit_headers::{self, CheckedLimit};
use axum::http::header::AUTHORIZATION;
use axum::http::{self, HeaderName};
use domain::app::App;
use domain::bounds::IDENTIFIER_MAX;
use domain::caller::{Caller, ClientInfo};
use domain::gateways::{self, GatewayIdentity};
use domain::ratelimits::{
    self, DescriptorCheck, DescriptorReply, DescriptorRules, Hits, LimitResult,
};
use domain::root_keys;
use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use envoy_types::pb::google::protobuf::Duration;
use foundation::clock::{DAY_MS, Timestamp};
use foundation::error::{AuthenticationError, Error, Result};
use foundation::id::RequestId;
use foundation::metrics::Requests;
use foundation::model::{DefaultLimit, EnforcementMode};
use foundation::traces;
use request::address;
use tonic::{Request, Response, Status};

use crate::POLICY;
use crate::call_guard::{AbandonedCalls, CallGuard, CallOrigin};
use crate::identifier::{bound_identifier, is_storable, to_identifier};
use crate::rate_limit_call::{Descriptor, RateLimitCall};

/// The maximum number of descriptors of a call.
const DESCRIPTORS_MAX: usize = 100;
/// The maximum number of units that a descriptor takes or gives back.
const HITS_MAX: u64 = 1_000_000_000_000;
/// The lengths of windows by the unit of a limit. A month has 30 days, a year 365. No limit is sent by the week, but one that
/// Keyward applies may be.
const UNITS: [(Option<RateLimitUnit>, Unit, i64); 7] = [
    (Some(RateLimitUnit::Second), Unit::Second, 1_000),
    (Some(RateLimitUnit::Minute), Unit::Minute, 60_000),
    (Some(RateLimitUnit::Hour), Unit::Hour, 3_600_000),
    (Some(RateLimitUnit::Day), Unit::Day, DAY_MS),
    (None, Unit::Week, 7 * DAY_MS),
    (Some(RateLimitUnit::Month), Unit::Month, 30 * DAY_MS),
    (Some(RateLimitUnit::Year), Unit::Year, 365 * DAY_MS),
];

/// The service.
pub struct RateLimits {
    app: Arc<App>,
    requests: Requests,
    abandoned_calls: AbandonedCalls,
}

impl RateLimits {
    pub fn new(app: Arc<App>) -> Self {
        let requests = app.context.metrics.requests_for_operation("none", "gateway.limit");
        Self { abandoned_calls: AbandonedCalls::new(app.clone()), app, requests }
    }
}

impl RateLimits {
    pub async fn should_rate_limit(
        &self,
        request: Request<RateLimitCall>,
    ) -> std::result::Result<Response<RateLimitResponse>, Status> {
        let request_id = RequestId::new(self.app.context.clock.now());
        traces::request_id(&request_id);
        let (metadata, _, request) = request.into_parts();
        let origin = CallOrigin { metadata, request_id, peer: address::peer() };
        let guard = CallGuard::new(&self.abandoned_calls, origin, request);
        let answer = pin!(answer(&self.app, guard));
        let answer = gateway::within_bounds(answer).await;
        let status = answer.as_ref().map_or_else(|error| error.code().status(), |_| 200);
        self.requests.record_status(status);
        answer.map(Response::new).map_err(|error| to_status(&error, &request_id))
    }
}

async fn answer(app: &App, guard: CallGuard<'_>) -> Result<RateLimitResponse> {
    let authenticated = authenticate(app, guard.origin(), &guard.request().domain).await;
    let request = guard.disarm();
    let (caller, rules) = authenticated?;
    let checks = to_checks(&request)?;
    let namespace = request.domain;
    let reply =
        ratelimits::check_descriptors(&app.ratelimits, &caller, namespace, rules, &checks).await?;
    Ok(to_response(app, rules.mode, &checks, &reply))
}

/// Returns the caller, by the secret of a policy or by a root key, and what applies in the namespace.
pub async fn authenticate(
    app: &App,
    origin: &CallOrigin,
    namespace: &str,
) -> Result<(Caller, DescriptorRules)> {
    let text = |name: &HeaderName| origin.headers().get(name).map(http::HeaderValue::as_bytes);
    let client = ClientInfo { address: origin.peer, user_agent: None };
    let to_caller = |principal| Caller {
        principal,
        client,
        idempotency_key: None,
        form_submission: None,
        request_id: origin.request_id,
        skips_analytics: false,
        undone_entry_id: None,
    };
    if let Some(bearer) = text(&AUTHORIZATION) {
        let token = std::str::from_utf8(bearer).ok().and_then(bearer_token);
        let token = token.ok_or(Error::Unauthenticated(AuthenticationError::Malformed))?;
        let principal = root_keys::authenticate(&app.root_keys, token.as_bytes()).await?;
        check_domain(namespace)?;
        return Ok((to_caller(principal), DescriptorRules::default()));
    }
    let named = text(&POLICY).map(|name| std::str::from_utf8(name).unwrap_or_default());
    let secret = non_empty_secret(text(&gateway::SECRET_HEADER));
    let gateway = GatewayIdentity { policy: named, secret, peer: origin.peer };
    let policy = gateways::authenticate(&app.gateways, &gateway).await?;
    check_domain(namespace)?;
    let Some(known) = policy.value.find_namespace(namespace) else {
        return Err(Error::NamespaceNotListed(namespace.to_owned()));
    };
    let rules = DescriptorRules {
        default_limit: known.default_limit,
        mode: known.mode,
        counts_refused: known.count_refused,
    };
    Ok((to_caller(policy.value.principal.clone()), rules))
}

fn check_domain(domain: &str) -> Result<()> {
    if is_storable(domain) {
        return Ok(());
    }
    let message = format!("domain must have 1 to {IDENTIFIER_MAX} characters and no NUL");
    Err(Error::invalid("domain", message))
}

pub fn to_checks(request: &RateLimitCall) -> Result<Vec<DescriptorCheck>> {
    let descriptors = &request.descriptors;
    if !(1..=DESCRIPTORS_MAX).contains(&descriptors.len()) {
        let message = format!("descriptors must have 1 to {DESCRIPTORS_MAX} items");
        return Err(Error::invalid("descriptors", message));
    }
    // 0 stands for an absent number.
    let hits_of_call = u64::from(request.hits_addend.max(1));
    let to_check = |(at, descriptor)| to_check(at, descriptor, hits_of_call);
    descriptors.iter().enumerate().map(to_check).collect()
}

fn to_check(at: usize, descriptor: &Descriptor, hits_of_call: u64) -> Result<DescriptorCheck> {
    let invalid = |field: &str, rule: String| {
        let field = format!("descriptors[{at}].{field}");
        Error::invalid(field.clone(), format!("{field} {rule}"))
    };
    let (identifier, long_identifier) = bound_identifier(to_identifier(descriptor));
    if !is_storable(&identifier) {
        return Err(invalid("entries", "must not be empty".to_owned()));
    }
    let hits = descriptor.hits_addend.as_ref().map_or(hits_of_call, |hits| hits.value);
    if hits > HITS_MAX {
        return Err(invalid("hits_addend", format!("must be at most {HITS_MAX}")));
    }
    let units = i64::try_from(hits).unwrap_or(i64::MAX);
    let limit = descriptor.limit.map(to_limit).transpose();
    Ok(DescriptorCheck {
        identifier,
        long_identifier,
        limit: limit.map_err(|rule| invalid("limit.unit", rule))?,
        hits: if descriptor.is_negative_hits { Hits::GiveBack(units) } else { Hits::Take(units) },
    })
}

fn to_limit(own: RateLimitOverride) -> std::result::Result<DefaultLimit, String> {
    let unit =
        UNITS.iter().find(|(unit, _, _)| unit.is_some_and(|unit| i32::from(unit) == own.unit));
    let (_, _, duration) =
        unit.ok_or_else(|| "must be SECOND, MINUTE, HOUR, DAY, MONTH or YEAR".to_owned())?;
    Ok(DefaultLimit { limit: own.requests_per_unit.into(), duration: *duration })
}

fn to_response(
    app: &App,
    mode: EnforcementMode,
    checks: &[DescriptorCheck],
    reply: &DescriptorReply,
) -> RateLimitResponse {
    let now = app.context.clock.now();
    let is_shadow = mode == EnforcementMode::Shadow;
    let results = &reply.results;
    let statuses =
        results.iter().map(|result| to_descriptor_status(result.as_ref(), is_shadow, now));
    let limits = checks.iter().zip(results).filter_map(|(check, result)| {
        result.as_ref().map(|result| CheckedLimit {
            name: &check.identifier,
            limit: result.limit,
            duration_ms: result.duration_ms,
            status: result.window_status,
        })
    });
    let format = app.context.settings.ratelimit_headers.for_gateways();
    let mut headers = ratelimit_headers::list(format, limits, now);
    if !reply.is_admitted {
        headers.extend(retry_at(exceeded_limits(checks, results)).map(|at| retry_after(at, now)));
    }
    let header = |(name, value): Header| HeaderValue {
        key: name.as_str().to_owned(),
        value,
        raw_value: Vec::new(),
    };
    RateLimitResponse {
        overall_code: code(reply.is_admitted).into(),
        statuses: statuses.collect(),
        response_headers_to_add: headers.into_iter().map(header).collect(),
        ..RateLimitResponse::default()
    }
}

/// Returns the limits that refuse a call, with what the call takes of each: descriptors may share a counter.
fn exceeded_limits<'a>(
    checks: &'a [DescriptorCheck],
    results: &'a [Option<LimitResult>],
) -> impl Iterator<Item = ExceededLimit> + 'a {
    let counted = move || {
        checks.iter().zip(results).filter_map(|(check, result)| Some((check, result.as_ref()?)))
    };
    let exceeded = counted().filter(|(_, result)| result.window_status.is_exceeded);
    exceeded.map(move |(check, result)| {
        let shares_counter = |(other, of_other): &(&DescriptorCheck, &LimitResult)| {
            other.identifier == check.identifier && of_other.duration_ms == result.duration_ms
        };
        let units = counted().filter(shares_counter).map(|(other, _)| match other.hits {
            Hits::Take(units) => units,
            Hits::GiveBack(_) => 0,
        });
        ExceededLimit {
            limit: result.limit,
            cost: units.fold(0, i64::saturating_add),
            used: result.window_status.used,
            duration_ms: result.duration_ms,
            reset_at: result.window_status.reset_at,
        }
    })
}

fn to_descriptor_status(
    result: Option<&LimitResult>,
    is_shadow: bool,
    now: Timestamp,
) -> DescriptorStatus {
    let Some(result) = result else {
        return DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
    };
    let status = result.window_status;
    let to_u32 = |number: i64| u32::try_from(number.max(0)).unwrap_or(u32::MAX);
    let unit = UNITS.iter().find(|(_, _, duration)| *duration == result.duration_ms);
    let left_ms = status.reset_at.0.saturating_sub(now.0).max(0);
    DescriptorStatus {
        code: code(is_shadow || !status.is_exceeded).into(),
        current_limit: Some(RateLimit {
            name: String::new(),
            requests_per_unit: to_u32(result.limit),
            unit: unit.map_or(Unit::Unknown, |(_, unit, _)| *unit).into(),
        }),
        limit_remaining: to_u32(status.remaining),
        duration_until_reset: Some(Duration {
            seconds: left_ms / 1_000,
            nanos: i32::try_from(left_ms % 1_000 * 1_000_000).unwrap_or(0),
        }),
        quota: None,
    }
}

fn code(is_admitted: bool) -> Code {
    if is_admitted { Code::Ok } else { Code::OverLimit }
}

/// Converts an error, and logs it if it is the server's.
fn to_status(error: &Error, request_id: &RequestId) -> Status {
    let code = match error.code().status() {
        400 => tonic::Code::InvalidArgument,
        401 => tonic::Code::Unauthenticated,
        403 => tonic::Code::PermissionDenied,
        404 => tonic::Code::NotFound,
        410 | 412 => tonic::Code::FailedPrecondition,
        503 => tonic::Code::Unavailable,
        _ => tonic::Code::Internal,
    };
    log_failure(error, request_id);
    Status::new(code, error.detail())
}

/// Logs an error if it is the server's.
pub fn log_failure(error: &Error, request_id: &RequestId) {
    if error.code().status() >= 500 {
        tracing::error!(
            request.id = %request_id, error = %error,
            "the rate-limit service failed: {error}"
        );
    }
}
