use domain::ratelimits::{self, LimitCheck, LimitResult};
use foundation::clock::Timestamp;
use foundation::id::OverrideId;

use super::limit::Limit;
use crate::prelude::*;
use crate::reply::DegradableReply;

/// Check several rate limits.
///
/// Either all costs are consumed or none. The response is 200 in both cases; `passed` contains the result. The costs of
/// checks with the same namespace, identifier and duration are added. Missing namespaces are created as in
/// `ratelimit.limit`, after the root key's access to all namespaces has been checked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct MultiLimit(List<Object<Limit>, 1, 100>);

/// The decision on all limits.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultiLimitReply {
    /// Whether all checks passed and their costs were consumed.
    passed: bool,
    /// The decisions, in the order of the request.
    limits: Vec<LimitDecisionBody>,
}

/// The decision on one of the limits.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct LimitDecisionBody {
    /// The namespace as the request named it.
    namespace: String,
    identifier: String,
    /// The limit that was applied.
    limit: i64,
    /// The remaining cost in the window; 0 if the check did not pass.
    remaining: i64,
    /// The end of the window in Unix milliseconds.
    reset: Timestamp,
    /// Whether this limit alone would have admitted the cost.
    passed: bool,
    /// The override that was applied, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    override_id: Option<OverrideId>,
}

impl Operation for MultiLimit {
    const NAME: &'static str = "ratelimit.multiLimit";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::Limit]);
    const MAY_WRITE: bool = true;
    type Reply = DegradableReply<MultiLimitReply>;

    fn parse(body: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(body)
    }

    fn example() -> Value {
        json!([
            {
                "namespace": example::NAMESPACE_ID,
                "identifier": "user_1234",
                "limit": 10,
                "duration": 60_000
            },
            {
                "namespace": example::NAMESPACE_ID,
                "identifier": "user_1234",
                "limit": 1000,
                "duration": 86_400_000
            }
        ])
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<DegradableReply<MultiLimitReply>> {
        let checks: Vec<LimitCheck> =
            self.0.0.into_iter().map(|Object(limit)| limit.into()).collect();
        let (results, degraded) =
            ratelimits::check_limits(&app.ratelimits, caller, &checks).await?;
        let limits: Vec<_> = checks.into_iter().zip(results).map(LimitDecisionBody::from).collect();
        let data = MultiLimitReply { passed: limits.iter().all(|member| member.passed), limits };
        Ok(DegradableReply { data, is_degraded: degraded })
    }
}

impl From<(LimitCheck, LimitResult)> for LimitDecisionBody {
    fn from((check, result): (LimitCheck, LimitResult)) -> Self {
        let LimitResult { limit, window_status: standing, override_id, duration_ms: _ } = result;
        Self {
            namespace: check.namespace,
            identifier: check.identifier,
            limit,
            remaining: standing.remaining,
            reset: standing.reset_at,
            passed: !standing.is_exceeded,
            override_id,
        }
    }
}
