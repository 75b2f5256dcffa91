//! Reads the identifiers with the most checks of the standalone limiter.

use foundation::error::Result;
use foundation::model::EventKind;
use sqlx::{AssertSqlSafe, query_as};

use super::Connection;
use super::rollup_source::{bind_spans, series_sums_sql, unit_start_sql};
use crate::events::{IdentifierOrder, IdentifierRow, TopIdentifiersFilter};

/// Returns the first identifiers in the order of the filter, from the rollups and from the checks that are not rolled up
/// yet.
pub async fn list_top_identifiers(
    connection: &mut Connection,
    filter: &TopIdentifiersFilter<'_>,
) -> Result<Vec<IdentifierRow>> {
    let rejected = "SUM(CASE WHEN e.passed THEN 0 ELSE e.count END)";
    let (condition, order) = match filter.order {
        IdentifierOrder::Requests => (String::new(), "total DESC"),
        IdentifierOrder::Rejected => {
            (format!(" HAVING {rejected} > 0"), "rejected DESC, total DESC")
        }
    };
    let source = source_sql(filter);
    let sql = format!(
        "SELECT e.namespace_id, e.identifier, CAST(SUM(e.count) AS BIGINT) AS total,
            CAST({rejected} AS BIGINT) AS rejected
        FROM ({source}) e
        GROUP BY 1, 2{condition}
        ORDER BY {order}, 1, 2
        LIMIT $5"
    );
    let query = query_as(AssertSqlSafe(sql))
        .bind(filter.workspace)
        .bind(filter.namespace_id.unwrap_or_default())
        .bind(filter.from_time)
        .bind(filter.until_time)
        .bind(i64::try_from(filter.rows_max).unwrap_or(i64::MAX));
    Ok(bind_spans(query, &filter.spans).fetch_all(connection).await?)
}

/// The number of the first value of the spans.
const FIRST_SPAN_VALUE: usize = 6;

/// Returns the SQL for the selected rollups and for the checks that are not rolled up yet. The values are `$1` to `$4`, and
/// those of the spans.
///
/// SQLite joins tables in this order: first the sums of the rollups, so that each series is joined once.
fn source_sql(filter: &TopIdentifiersFilter<'_>) -> String {
    // A statement must use every value.
    let namespace = match filter.namespace_id {
        None => "$2 = ''",
        Some(_) => "s.namespace_id = $2",
    };
    let condition = format!("s.workspace_id = $1 AND {namespace}");
    let columns = "s.namespace_id, s.identifier, s.passed";
    let (sums, start) = (
        series_sums_sql(EventKind::Ratelimits, &filter.spans, FIRST_SPAN_VALUE),
        unit_start_sql(filter.unit),
    );
    let pending = concat!(
        events_of_batches!("ratelimits", "e.time, e.series"),
        with_series!("ratelimit_series")
    );
    let is_pending = is_pending!("b.summed");
    format!(
        "SELECT {columns}, e.count
        FROM ({sums}) e CROSS JOIN ratelimit_series s
        WHERE e.series = s.id AND {condition}
        UNION ALL
        SELECT {columns}, CAST(1 AS BIGINT) AS count
        FROM {pending}
        WHERE {is_pending} AND s.id = e.series AND {start} >= $3 AND {start} < $4 AND {condition}"
    )
}
