//! Implements the number of verifications by region.

use foundation::error::Result;
use sqlx::{AssertSqlSafe, query_as};

use super::Connection;
use super::rollup_source::{bind_rollup_filter, bind_spans, bound_spans, rollup_source_sql};
use crate::events::{RegionCount, RollupFilter};

/// Returns the number of the selected verifications by region, the region with the most first.
pub async fn count(
    connection: &mut Connection,
    filter: &RollupFilter<'_>,
) -> Result<Vec<RegionCount>> {
    let source = rollup_source_sql(filter);
    let sql = format!(
        "SELECT e.region, CAST(SUM(e.count) AS BIGINT) AS count FROM ({source}) e
        GROUP BY e.region ORDER BY 2 DESC, 1"
    );
    let query = bind_rollup_filter(query_as(AssertSqlSafe(sql)), filter);
    Ok(bind_spans(query, bound_spans(filter)).fetch_all(connection).await?)
}
