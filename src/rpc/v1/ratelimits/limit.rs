use foundation::clock::Timestamp;

use crate::domain::ratelimits::{self, LimitCheck};
use crate::rpc::bounds::Unkept;
use crate::rpc::prelude::*;
use crate::rpc::reply::DegradableReply;
use crate::rpc::schemas::{DURATION_MIN_MS, Positive, Unsigned};
use crate::rpc::v1::schemas::DEFAULT;

/// Check a rate limit.
///
/// Takes `cost` from the window of an identifier in a namespace, or nothing. A namespace that does not exist is
/// made when the root key holds `ratelimit.*.create_namespace`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// Left out: `default`.
    #[serde(default)]
    pub namespace: Optional<Text<1, 512>>,
    /// Who is limited: any text that stands for a user or a thing.
    pub identifier: Text<0, 512, Unkept>,
    /// What may be taken in one window, unless an override says otherwise.
    pub limit: Positive,
    /// The window's length in milliseconds.
    pub duration: Int<DURATION_MIN_MS, { i64::MAX }>,
    /// What is taken. Left out: 1. 0 only looks.
    #[serde(default)]
    pub cost: Optional<Unsigned>,
    /// Whether a quick answer is preferred to an exact one.
    #[serde(default)]
    pub r#async: Optional<bool>,
    /// Accepted, and not kept.
    #[serde(default)]
    #[expect(dead_code, reason = "it is not kept")]
    pub meta: Optional<serde_json::Map<String, Value>>,
    /// What is about to be accessed: accepted, and not kept.
    #[serde(default)]
    #[expect(dead_code, reason = "they are not kept")]
    pub resources: Optional<List<Object<Resource>, 0, 100>>,
}

/// Something that is about to be accessed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "it is not kept")]
pub struct Resource {
    r#type: Text<0, 256, Unkept>,
    id: Text<0, 256, Unkept>,
    #[serde(default)]
    name: Optional<Text<0, 256, Unkept>>,
    #[serde(default)]
    meta: Optional<serde_json::Map<String, Value>>,
}

/// What came of it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limited {
    /// Whether it passes.
    success: bool,
    /// The limit that was applied.
    limit: i64,
    /// What is left in this window.
    remaining: i64,
    /// The end of the window, in unix milliseconds.
    reset: Timestamp,
}

impl Operation for Limit {
    const NAME: &'static str = "ratelimits.limit";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::Limit]);
    const MAY_WRITE: bool = true;
    const BODY_MAX_BYTES: usize = 64 * 1024;
    type Reply = DegradableReply<Limited>;

    fn example() -> Value {
        json!({
            "namespace": example::NAMESPACE,
            "identifier": "user_1234",
            "limit": 10,
            "duration": 60_000
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<DegradableReply<Limited>> {
        let check = LimitCheck {
            namespace: self.namespace.0.map_or_else(|| DEFAULT.to_owned(), Text::into_string),
            identifier: self.identifier.into_string(),
            limit: self.limit.0,
            duration_ms: self.duration.0,
            cost: self.cost.0.map_or(1, |cost| cost.0),
            is_quick: self.r#async.unwrap_or(false),
        };
        let (limited, degraded) = ratelimits::limit(app, caller, check).await?;
        let data = Limited {
            success: !limited.standing.exceeded,
            limit: limited.limit,
            remaining: limited.standing.remaining,
            reset: limited.standing.reset,
        };
        Ok(DegradableReply { data, degraded })
    }
}
