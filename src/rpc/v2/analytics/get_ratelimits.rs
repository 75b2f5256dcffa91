use std::time::Duration;

use crate::domain::analytics::sql_query;
use crate::rpc::prelude::*;
use crate::rpc::v2::schemas::{ASKING_ERRORS, EventRow};

/// Ask about checks of the standalone limiter in SQL.
///
/// The query is one SELECT in the dialect of ClickHouse over the tables `ratelimits_v1` (a row for each check of
/// `ratelimit.limit` and `ratelimit.multiLimit`), `ratelimits_per_minute_v1`, `…_per_hour_v1`, `…_per_day_v1` and
/// `…_per_month_v1` (sums, of which several rows may be of one time: sum them up). It sees what belongs to the workspace
/// and, where the root key may read the analytics of some namespaces only, to these. Times are UTC. There are at most
/// 10,000 rows in an answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GetRatelimits {
    /// The query, of at most 16 KiB.
    pub query: String,
}

impl Operation for GetRatelimits {
    const NAME: &'static str = "analytics.getRatelimits";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::ReadRatelimitAnalytics]);
    const ERRORS: &'static [(u16, &'static str)] = &ASKING_ERRORS;
    const TIMEOUT: Duration = sql_query::TIMEOUT;
    type Reply = Vec<EventRow>;

    fn example() -> Value {
        json!({
            "query": "SELECT identifier, sum(total) AS checks, sum(passed) AS passed FROM ratelimits_per_hour_v1 \
                WHERE time >= now() - INTERVAL 1 DAY GROUP BY identifier ORDER BY checks DESC LIMIT 10"
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<EventRow>> {
        let rows = sql_query::ratelimits(app, caller, &self.query).await?;
        Ok(rows.into_iter().map(EventRow).collect())
    }
}
