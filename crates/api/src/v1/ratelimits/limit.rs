use domain::ratelimits::{self, LimitCheck};
use foundation::clock::Timestamp;

use crate::bounds::AnyChar;
use crate::prelude::*;
use crate::reply::DegradableReply;
use crate::schemas::{PositiveInt, UnsignedInt, WindowLength};
use crate::v1::schemas::{DEFAULT_LIMIT_NAME, non_empty};

/// Check a rate limit.
///
/// Consumes `cost` from the window of an identifier in a namespace, or nothing if the limit would be exceeded. A
/// missing namespace is created if the root key has `ratelimit.*.create_namespace`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// The namespace name. Default, also if it is empty: `default`.
    #[serde(default)]
    pub namespace: Optional<Text<0, 512>>,
    /// The identifier to limit: any text that identifies a user or a resource.
    pub identifier: Text<0, 512, AnyChar>,
    /// The maximum total cost per window, unless an override applies.
    pub limit: PositiveInt,
    /// The window length in milliseconds.
    pub duration: WindowLength,
    /// The cost to consume. Default: 1. A cost of 0 only peeks.
    #[serde(default)]
    pub cost: Optional<UnsignedInt>,
    /// Whether a fast approximate answer is preferred to an exact one.
    #[serde(default)]
    pub r#async: Optional<bool>,
    /// Accepted but not stored.
    #[serde(default)]
    #[expect(dead_code, reason = "it is not stored")]
    pub meta: Optional<serde_json::Map<String, Value>>,
    /// The resources to be accessed. Accepted but not stored.
    #[serde(default)]
    #[expect(dead_code, reason = "they are not stored")]
    pub resources: Optional<List<Object<Resource>, 0, 100>>,
}

/// A resource to be accessed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "it is not stored")]
pub struct Resource {
    r#type: Text<0, 256, AnyChar>,
    id: Text<0, 256, AnyChar>,
    #[serde(default)]
    name: Optional<Text<0, 256, AnyChar>>,
    #[serde(default)]
    meta: Optional<serde_json::Map<String, Value>>,
}

/// The limit decision.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitReply {
    /// Whether the request is within the limit.
    success: bool,
    /// The limit that was applied.
    limit: i64,
    /// The remaining cost in the current window.
    remaining: i64,
    /// The end of the window in Unix milliseconds.
    reset: Timestamp,
}

impl Operation for Limit {
    const NAME: &'static str = "ratelimits.limit";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::Limit]);
    const MAY_WRITE: bool = true;
    const BODY_MAX_BYTES: usize = 64 * 1024;
    type Reply = DegradableReply<LimitReply>;

    fn example() -> Value {
        json!({
            "namespace": example::NAMESPACE,
            "identifier": "user_1234",
            "limit": 10,
            "duration": 60_000
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<DegradableReply<LimitReply>> {
        let check = LimitCheck {
            namespace: non_empty(self.namespace).unwrap_or_else(|| DEFAULT_LIMIT_NAME.to_owned()),
            identifier: self.identifier.into_string(),
            limit: self.limit.0,
            duration_ms: self.duration.0,
            cost: self.cost.0.map_or(1, |cost| cost.0),
            is_approximate: self.r#async.unwrap_or(false),
        };
        let (result, degraded) = ratelimits::check_limit(&app.ratelimits, caller, check).await?;
        let data = LimitReply {
            success: !result.window_status.is_exceeded,
            limit: result.limit,
            remaining: result.window_status.remaining,
            reset: result.window_status.reset_at,
        };
        Ok(DegradableReply { data, is_degraded: degraded })
    }
}
