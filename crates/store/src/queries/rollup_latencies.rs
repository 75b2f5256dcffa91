//! Implements reads of the histograms of latencies of verifications by key, identity and tag.

use std::collections::BTreeMap;

use foundation::clock::Timestamp;
use foundation::error::Result;
use futures_util::TryStreamExt as _;
use sqlx::{AssertSqlSafe, query_as};

use super::Connection;
use super::rollup_source::{
    bind_rollup_filter, bind_spans, bound_spans, selected_rollups_sql, series_condition,
    unit_start_sql,
};
use crate::events::{
    BUCKET_COLUMNS, LatencyHistogram, RollupFilter, bucket_of, buckets_of_older_versions,
};

/// The histograms of rollups, one after the other, or a number of verifications with one latency that are not rolled up yet.
type LatencyRow = (Timestamp, Option<String>, i64, i64);

/// Returns the latencies of the selected verifications by unit of time, including those that are not rolled up yet. Without grouping
/// by time, the times are any of the selected ones.
///
/// The histograms are added up here: the databases take much longer to expand them.
pub async fn list(
    connection: &mut Connection,
    filter: &RollupFilter<'_>,
) -> Result<Vec<(Timestamp, LatencyHistogram)>> {
    let sql = build_sql(filter);
    let query = bind_rollup_filter(query_as(AssertSqlSafe(sql)), filter);
    let mut rows = bind_spans(query, bound_spans(filter)).fetch(connection);
    let mut found: BTreeMap<Timestamp, LatencyHistogram> = BTreeMap::new();
    while let Some(row) = rows.try_next().await? {
        let (time, histograms, latency_us, count): LatencyRow = row;
        let sum = found.entry(time).or_default();
        match histograms {
            Some(histograms) => sum.merge_all(&histograms)?,
            None => sum.add_to_bucket(bucket_of(latency_us), count),
        }
    }
    Ok(found.into_iter().collect())
}

/// Returns the SQL for rows of [`LatencyRow`]. The values are bound by [`bind_rollup_filter`] and [`bind_spans`].
fn build_sql(filter: &RollupFilter<'_>) -> String {
    let columns = format!("e.time, CAST({} AS TEXT) AS histogram", histogram_sql("e"));
    let rollups = selected_rollups_sql(filter, &columns);
    let (start, condition) = (unit_start_sql(filter.unit), series_condition(filter));
    let pending = concat!(
        events_of_batches!("verifications", "e.time, e.series, e.latency_us"),
        with_series!("verification_series")
    );
    let is_pending = is_pending!("b.summed");
    format!(
        "SELECT r.time, string_agg(r.histogram, '') AS histograms, CAST(0 AS BIGINT) AS latency_us,
            CAST(0 AS BIGINT) AS number
        FROM ({rollups}) r
        GROUP BY r.time
        UNION ALL
        SELECT n.time, CAST(NULL AS TEXT) AS histograms, n.latency_us, COUNT(*) AS number
        FROM (
            SELECT {start} AS time, e.latency_us
            FROM {pending}
            WHERE {is_pending} AND s.id = e.series AND {start} BETWEEN $6 AND $7 AND {condition}
        ) n
        GROUP BY n.time, n.latency_us"
    )
}

/// Returns the SQL for the histogram of a row of rollups. Older versions write none, but the number of latencies in some buckets. What
/// they add to a row that has a histogram is in no bucket.
pub fn histogram_sql(row: &str) -> String {
    let longest = format!("{row}.count - {row}.{}", BUCKET_COLUMNS.join(&format!(" - {row}.")));
    let counts = BUCKET_COLUMNS.iter().map(|column| format!("{row}.{column}")).chain([longest]);
    let buckets = buckets_of_older_versions().into_iter().zip(counts);
    let fields: Vec<_> = buckets.map(|(bucket, count)| format!("'{bucket}', {count}")).collect();
    let older = object!("{fields}").replace("{fields}", &fields.join(", "));
    format!("CASE WHEN {row}.histogram = '{{}}' THEN {older} ELSE {row}.histogram END")
}
