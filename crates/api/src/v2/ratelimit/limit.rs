use std::borrow::Cow;

use axum::http::HeaderMap;
use domain::bounds::{CHECK_DURATION_MAX_MS, DURATION_MIN_MS};
use domain::ratelimits::{self, LimitCheck, LimitResult};
use foundation::clock::Timestamp;
use foundation::id::OverrideId;
use schemars::{Schema, SchemaGenerator};

use crate::prelude::*;
use crate::ratelimit_headers::{self, CheckedLimit, RatelimitHeaders};
use crate::reply::Reply;
use crate::schemas::{PositiveInt, UnsignedInt};
use crate::v2::schemas::NamespaceOrIdentifier;

/// Check a rate limit.
///
/// The response is 200 whether or not the check succeeds; `success` contains the result. A missing namespace is
/// created, which also requires `ratelimit.*.create_namespace`. If an override applies to the identifier, its limit and
/// duration replace the requested ones.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limit {
    /// A namespace id or name. Namespaces have separate counters.
    pub namespace: NamespaceOrIdentifier,
    /// The identifier to limit: a user, an address, or any other text.
    pub identifier: NamespaceOrIdentifier,
    /// The maximum total cost per window.
    pub limit: PositiveInt,
    /// The window length in milliseconds.
    pub duration: Int<DURATION_MIN_MS, CHECK_DURATION_MAX_MS>,
    /// The cost to consume. Default: 1. A cost of 0 only peeks.
    #[serde(default)]
    pub cost: Optional<UnsignedInt>,
}

/// The reply of a check.
#[derive(Debug)]
pub struct LimitReply {
    result: LimitResult,
    is_degraded: bool,
    /// The name of the limit in headers. Absent: there are none.
    header_name: Option<String>,
}

/// The limit decision.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LimitBody<'a> {
    success: bool,
    /// The limit that was applied.
    limit: i64,
    /// The remaining cost in the window; 0 if the check did not succeed.
    remaining: i64,
    /// The end of the window in Unix milliseconds.
    reset: Timestamp,
    /// The override that was applied, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    override_id: Option<&'a OverrideId>,
}

impl Operation for Limit {
    const NAME: &'static str = "ratelimit.limit";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::Limit]);
    const MAY_WRITE: bool = true;
    const CAN_SKIP_EVENTS: bool = true;
    type Reply = LimitReply;

    fn example() -> Value {
        json!({
            "namespace": example::NAMESPACE_ID,
            "identifier": "user_1234",
            "limit": 10,
            "duration": 60_000,
            "cost": 2
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<LimitReply> {
        let has_headers = app.context.settings.ratelimit_headers != RatelimitHeaders::Off;
        let header_name = has_headers.then(|| self.namespace.as_str().to_owned());
        let (result, is_degraded) =
            ratelimits::check_limit(&app.ratelimits, caller, self.into()).await?;
        Ok(LimitReply { result, is_degraded, header_name })
    }
}

impl From<Limit> for LimitCheck {
    fn from(request: Limit) -> Self {
        Self {
            is_approximate: false,
            namespace: request.namespace.into_string(),
            identifier: request.identifier.into_string(),
            limit: request.limit.0,
            duration_ms: request.duration.0,
            cost: request.cost.0.map_or(1, |cost| cost.0),
        }
    }
}

impl Reply for LimitReply {
    fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()> {
        let LimitResult { limit, window_status, override_id, .. } = &self.result;
        let body = LimitBody {
            success: !window_status.is_exceeded,
            limit: *limit,
            remaining: window_status.remaining,
            reset: window_status.reset_at,
            override_id: override_id.as_ref(),
        };
        serde_json::to_writer(into, &body)
    }

    fn is_degraded(&self) -> bool {
        self.is_degraded
    }

    fn add_ratelimit_headers(
        &self,
        headers: &mut HeaderMap,
        format: RatelimitHeaders,
        now: Timestamp,
    ) {
        let LimitResult { limit, duration_ms, window_status, .. } = self.result;
        let limit = self.header_name.as_deref().map(|name| CheckedLimit {
            name,
            limit,
            duration_ms,
            status: window_status,
        });
        ratelimit_headers::add(headers, format, limit, now);
    }
}

impl JsonSchema for LimitReply {
    fn schema_name() -> Cow<'static, str> {
        "LimitReply".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        LimitBody::json_schema(generator)
    }
}
