use foundation::clock::Timestamp;
use foundation::id::OverrideId;

use crate::domain::ratelimits::{self, LimitCheck, LimitResult};
use crate::rpc::prelude::*;
use crate::rpc::reply::DegradableReply;
use crate::rpc::schemas::{DURATION_MIN_MS, Positive, Unsigned};
use crate::rpc::v2::schemas::LimitedName;

/// The longest window that a check may ask for: 30 days.
const DURATION_MAX_MS: i64 = 2_592_000_000;

/// Check a rate limit.
///
/// The answer is 200 whatever comes of it; `success` tells. A namespace that does not exist is made,
/// which needs `ratelimit.*.create_namespace` too. Where an override is set for the identifier, its
/// limit and duration count instead of those given.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limit {
    /// The id or the name of a namespace: what is counted in one has nothing to do with another.
    pub namespace: LimitedName,
    /// Whom to count: a user, an address, or any text.
    pub identifier: LimitedName,
    /// What may be taken in one window.
    pub limit: Positive,
    /// The window's length in milliseconds.
    pub duration: Int<DURATION_MIN_MS, DURATION_MAX_MS>,
    /// What is taken. Left out: 1. 0 only looks.
    #[serde(default)]
    pub cost: Optional<Unsigned>,
}

/// What came of it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    success: bool,
    /// The limit that was applied.
    limit: i64,
    /// What is left in the window; 0 for a check that did not succeed.
    remaining: i64,
    /// The end of the window, in unix milliseconds.
    reset: Timestamp,
    /// The override that was applied, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    override_id: Option<OverrideId>,
}

impl Operation for Limit {
    const NAME: &'static str = "ratelimit.limit";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::Limit]);
    const MAY_WRITE: bool = true;
    const MAY_GO_UNRECORDED: bool = true;
    type Reply = DegradableReply<Outcome>;

    fn example() -> Value {
        json!({
            "namespace": example::NAMESPACE_ID,
            "identifier": "user_1234",
            "limit": 10,
            "duration": 60_000,
            "cost": 2
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<DegradableReply<Outcome>> {
        let (limited, degraded) = ratelimits::limit(app, caller, self.into()).await?;
        Ok(DegradableReply { data: limited.into(), degraded })
    }
}

impl From<Limit> for LimitCheck {
    fn from(request: Limit) -> Self {
        Self {
            is_quick: false,
            namespace: request.namespace.into_string(),
            identifier: request.identifier.into_string(),
            limit: request.limit.0,
            duration_ms: request.duration.0,
            cost: request.cost.0.map_or(1, |cost| cost.0),
        }
    }
}

impl From<LimitResult> for Outcome {
    fn from(limited: LimitResult) -> Self {
        let LimitResult { limit, standing, override_id } = limited;
        let success = !standing.exceeded;
        Self { success, limit, remaining: standing.remaining, reset: standing.reset, override_id }
    }
}
