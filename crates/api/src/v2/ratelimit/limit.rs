use domain::bounds::{CHECK_DURATION_MAX_MS, DURATION_MIN_MS};
use domain::ratelimits::{self, LimitCheck, LimitResult};
use foundation::clock::Timestamp;
use foundation::id::OverrideId;

use crate::prelude::*;
use crate::reply::DegradableReply;
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

/// The limit decision.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitReply {
    success: bool,
    /// The limit that was applied.
    limit: i64,
    /// The remaining cost in the window; 0 if the check did not succeed.
    remaining: i64,
    /// The end of the window in Unix milliseconds.
    reset: Timestamp,
    /// The override that was applied, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    override_id: Option<OverrideId>,
}

impl Operation for Limit {
    const NAME: &'static str = "ratelimit.limit";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::Limit]);
    const MAY_WRITE: bool = true;
    const CAN_SKIP_EVENTS: bool = true;
    type Reply = DegradableReply<LimitReply>;

    fn example() -> Value {
        json!({
            "namespace": example::NAMESPACE_ID,
            "identifier": "user_1234",
            "limit": 10,
            "duration": 60_000,
            "cost": 2
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<DegradableReply<LimitReply>> {
        let (result, degraded) =
            ratelimits::check_limit(&app.ratelimits, caller, self.into()).await?;
        Ok(DegradableReply { data: result.into(), is_degraded: degraded })
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

impl From<LimitResult> for LimitReply {
    fn from(result: LimitResult) -> Self {
        let LimitResult { limit, window_status: standing, override_id } = result;
        let success = !standing.is_exceeded;
        Self {
            success,
            limit,
            remaining: standing.remaining,
            reset: standing.reset_at,
            override_id,
        }
    }
}
