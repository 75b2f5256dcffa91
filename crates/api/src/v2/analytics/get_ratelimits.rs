use std::time::Duration;

use domain::analytics_access;
use foundation::model::EventKind;

use crate::prelude::*;
use crate::v2::schemas::{ANALYTICS_QUERY_ERRORS, EventRow};

/// Query standalone rate limit checks with SQL.
///
/// The query is a single SELECT in the ClickHouse dialect over the tables `ratelimits_v1` (one row per check of
/// `ratelimit.limit` and `ratelimit.multiLimit`) and `ratelimits_per_minute_v1`, `…_per_hour_v1`, `…_per_day_v1` and
/// `…_per_month_v1` (rollups; several rows may have the same time, so sum them). The query sees the data of the
/// workspace or, if the root key may read the analytics of only some namespaces, the data of these namespaces. Times
/// are in UTC. A result has at most 10,000 rows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GetRatelimits {
    /// The query; at most 16 KiB.
    pub query: String,
}

impl Operation for GetRatelimits {
    const NAME: &'static str = "analytics.getRatelimits";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadRatelimitAnalytics]);
    const ERRORS: &'static [(u16, &'static str)] = &ANALYTICS_QUERY_ERRORS;
    const TIMEOUT: Duration = analytics_access::QUERY_TIMEOUT;
    type Reply = Vec<EventRow>;

    fn example() -> Value {
        json!({
            "query": "SELECT identifier, sum(total) AS checks, sum(passed) AS passed FROM ratelimits_per_hour_v1 \
                WHERE time >= now() - INTERVAL 1 DAY GROUP BY identifier ORDER BY checks DESC LIMIT 10"
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<EventRow>> {
        let rows =
            analytics_access::run_query(&app.analytics, caller, EventKind::Ratelimits, &self.query)
                .await?;
        Ok(rows.into_iter().map(EventRow).collect())
    }
}
