use std::time::Duration;

use crate::domain::analytics::sql_query;
use crate::rpc::prelude::*;
use crate::rpc::v2::schemas::{ASKING_ERRORS, EventRow};

/// Ask about verifications in SQL.
///
/// The query is one SELECT in the dialect of ClickHouse over the tables `key_verifications_v1` (a row for each
/// verification that found a key), `key_verifications_per_minute_v1`, `…_per_hour_v1`, `…_per_day_v1` and
/// `…_per_month_v1` (sums, of which several rows may be of one time: sum them up). It sees what belongs to the workspace
/// and, where the root key may read the analytics of some APIs only, to these. Times are UTC. There are at most 10,000
/// rows in an answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GetVerifications {
    /// The query, of at most 16 KiB.
    pub query: String,
}

impl Operation for GetVerifications {
    const NAME: &'static str = "analytics.getVerifications";
    const NEEDS: AccessRule = AccessRule::Permission(&[Action::ReadApiAnalytics]);
    const ERRORS: &'static [(u16, &'static str)] = &ASKING_ERRORS;
    const TIMEOUT: Duration = sql_query::TIMEOUT;
    type Reply = Vec<EventRow>;

    fn example() -> Value {
        json!({
            "query": "SELECT time, outcome, sum(count) AS total FROM key_verifications_per_day_v1 \
                WHERE time >= now() - INTERVAL 7 DAY GROUP BY time, outcome ORDER BY time"
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<EventRow>> {
        let rows = sql_query::verifications(app, caller, &self.query).await?;
        Ok(rows.into_iter().map(EventRow).collect())
    }
}
