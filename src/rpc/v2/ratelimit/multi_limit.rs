use foundation::clock::Timestamp;
use foundation::id::OverrideId;

use super::limit::Limit;
use crate::domain::ratelimits::{self, LimitCheck, LimitResult};
use crate::rpc::prelude::*;
use crate::rpc::reply::DegradableReply;

/// Check several rate limits.
///
/// All of them are taken, or none. The answer is 200 whatever comes of it; `passed` tells. Members
/// with the same namespace, identifier and duration add up. Namespaces that do not exist are made, as
/// `ratelimit.limit` does, once it is known that the root key may use all of them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct MultiLimit(List<Object<Limit>, 1, 100>);

/// What came of it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Whether all passed, and were taken.
    passed: bool,
    /// In the order of the request.
    limits: Vec<Member>,
}

/// One of the limits.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Member {
    /// As it was sent.
    namespace: String,
    identifier: String,
    /// The limit that was applied.
    limit: i64,
    /// What is left in the window; 0 for one that did not pass.
    remaining: i64,
    /// The end of the window, in unix milliseconds.
    reset: Timestamp,
    /// Whether this limit by itself would have admitted its cost.
    passed: bool,
    /// The override that was applied, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    override_id: Option<OverrideId>,
}

impl Operation for MultiLimit {
    const NAME: &'static str = "ratelimit.multiLimit";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::Limit]);
    const MAY_WRITE: bool = true;
    const IS_LIST: bool = true;
    type Reply = DegradableReply<Outcome>;

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

    async fn run(self, app: &App, caller: &Caller) -> Result<DegradableReply<Outcome>> {
        let checks: Vec<LimitCheck> =
            self.0.0.into_iter().map(|Object(limit)| limit.into()).collect();
        let (limited, degraded) = ratelimits::limit_all(app, caller, &checks).await?;
        let limits: Vec<_> = checks.into_iter().zip(limited).map(Member::from).collect();
        let data = Outcome { passed: limits.iter().all(|member| member.passed), limits };
        Ok(DegradableReply { data, degraded })
    }
}

impl From<(LimitCheck, LimitResult)> for Member {
    fn from((check, limited): (LimitCheck, LimitResult)) -> Self {
        let LimitResult { limit, standing, override_id } = limited;
        Self {
            namespace: check.namespace,
            identifier: check.identifier,
            limit,
            remaining: standing.remaining,
            reset: standing.reset,
            passed: !standing.exceeded,
            override_id,
        }
    }
}
