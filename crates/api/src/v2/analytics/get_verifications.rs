use std::time::Duration;

use domain::analytics_access;
use foundation::model::EventKind;

use crate::prelude::*;
use crate::v2::schemas::{ANALYTICS_QUERY_ERRORS, EventRow};

/// Query verifications with SQL.
///
/// The query is a single SELECT in the ClickHouse dialect over the tables `key_verifications_v1` (one row per
/// verification that found a key) and `key_verifications_per_minute_v1`, `…_per_hour_v1`, `…_per_day_v1` and
/// `…_per_month_v1` (rollups; several rows may have the same time, so sum them). The query sees the data of the
/// workspace or, if the root key may read the analytics of only some APIs, the data of these APIs. Times are in UTC. A
/// result has at most 10,000 rows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GetVerifications {
    /// The query; at most 16 KiB.
    pub query: String,
}

impl Operation for GetVerifications {
    const NAME: &'static str = "analytics.getVerifications";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadApiAnalytics]);
    const ERRORS: &'static [(u16, &'static str)] = &ANALYTICS_QUERY_ERRORS;
    const TIMEOUT: Duration = analytics_access::QUERY_TIMEOUT;
    type Reply = Vec<EventRow>;

    fn example() -> Value {
        json!({
            "query": "SELECT time, outcome, sum(count) AS total FROM key_verifications_per_day_v1 \
                WHERE time >= now() - INTERVAL 7 DAY GROUP BY time, outcome ORDER BY time"
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<EventRow>> {
        let rows = analytics_access::run_query(
            &app.analytics,
            caller,
            EventKind::Verifications,
            &self.query,
        )
        .await?;
        Ok(rows.into_iter().map(EventRow).collect())
    }
}
