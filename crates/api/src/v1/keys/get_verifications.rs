use domain::analytics_access::{self, RollupGroup, RollupScope};
use foundation::clock::{DAY_MS, Timestamp};
use foundation::error::Error;
use foundation::id::KeyId;

use crate::prelude::*;
use crate::schemas::UnsignedInt;
use crate::v1::schemas::{IdOrName, OwnerId};

/// Get the verification counts of a key.
///
/// Counts verifications per day (UTC), of one key or of all keys of a user. Days without verifications are omitted.
/// Deprecated: use `analytics.getVerifications`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GetVerifications {
    /// The key id. It takes precedence over `ownerId`.
    #[serde(default)]
    pub key_id: Optional<IdOrName>,
    #[serde(default)]
    pub owner_id: Optional<OwnerId>,
    /// The start of the period in Unix milliseconds. Default: 24 hours before the end.
    #[serde(default)]
    pub start: Optional<UnsignedInt>,
    /// The end of the period in Unix milliseconds. Default: now.
    #[serde(default)]
    pub end: Optional<UnsignedInt>,
    /// Accepted but ignored: there is only one granularity.
    #[serde(default)]
    #[expect(dead_code, reason = "there is only one granularity")]
    pub granularity: Optional<Granularity>,
}

/// The length of the periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Granularity {
    Day,
}

/// Verification counts per day.
#[derive(Debug, Serialize, JsonSchema)]
pub struct GetVerificationsReply {
    verifications: Vec<DayCounts>,
}

/// The verification counts of one day.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct DayCounts {
    /// The start of the day in Unix milliseconds.
    time: Timestamp,
    success: i64,
    rate_limited: i64,
    usage_exceeded: i64,
}

impl Operation for GetVerifications {
    const NAME: &'static str = "keys.getVerifications";
    const METHOD: HttpMethod = HttpMethod::Get;
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadKey]);
    type Reply = GetVerificationsReply;

    fn example() -> Value {
        json!({ "keyId": example::KEY_ID, "granularity": "day" })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<GetVerificationsReply> {
        let to = self.end.0.map_or(app.context.clock.now(), |end| Timestamp(end.0));
        let from = self.start.0.map_or(to.plus_ms(-DAY_MS), |start| Timestamp(start.0));
        let scope = match (self.key_id.0, self.owner_id.0) {
            (Some(id), _) => RollupScope::Key(KeyId::from(id.into_string())),
            (None, Some(owner)) => RollupScope::Owner(owner.into_string()),
            (None, None) => {
                return Err(Error::invalid("keyId", "keyId or ownerId must be provided"));
            }
        };
        let days = analytics_access::list_rollups_by_keys(
            &app.context,
            &app.analytics,
            caller,
            scope,
            from,
            to,
        )
        .await?;
        Ok(GetVerificationsReply { verifications: days.into_iter().map(DayCounts::from).collect() })
    }
}

impl From<RollupGroup> for DayCounts {
    fn from(RollupGroup { time, counts, .. }: RollupGroup) -> Self {
        Self {
            time,
            success: counts.valid,
            rate_limited: counts.rate_limited,
            usage_exceeded: counts.usage_exceeded,
        }
    }
}
