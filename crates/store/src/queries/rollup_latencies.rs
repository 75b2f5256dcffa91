//! Implements reads of the histograms of latencies of verifications by key, identity and tag.

use std::collections::BTreeMap;

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::EventKind;
use sqlx::{AssertSqlSafe, query_as};

use super::Connection;
use super::rollup_source::{bind_rollup_filter, join_series_sql, series_condition, unit_start_sql};
use crate::events::{
    BUCKET_COLUMNS, Bucket, LatencyHistogram, RollupFilter, bucket_of, buckets_of_older_versions,
};

/// A number of verifications: of a bucket, or of one latency that is not rolled up yet.
type LatencyRow = (Timestamp, Option<i64>, i64, i64);

/// Returns the latencies of the selected verifications by unit of time, including those that are not rolled up yet.
pub async fn list(
    connection: &mut Connection,
    filter: &RollupFilter<'_>,
) -> Result<Vec<(Timestamp, LatencyHistogram)>> {
    let sql = build_sql(filter);
    let query = bind_rollup_filter(query_as(AssertSqlSafe(sql)), filter);
    let rows: Vec<LatencyRow> = query.fetch_all(connection).await?;
    let mut found: BTreeMap<Timestamp, LatencyHistogram> = BTreeMap::new();
    for (time, bucket, latency_us, count) in rows {
        let bucket = bucket.and_then(|bucket| Bucket::try_from(bucket).ok());
        let bucket = bucket.unwrap_or_else(|| bucket_of(latency_us));
        found.entry(time).or_default().add_to_bucket(bucket, count);
    }
    Ok(found.into_iter().collect())
}

/// Returns the SQL for rows of [`LatencyRow`]. The values are bound by [`bind_rollup_filter`].
fn build_sql(filter: &RollupFilter<'_>) -> String {
    let rollups = format!("{}_per_{}", EventKind::Verifications.table_name(), filter.unit.as_str());
    let (tables, condition) = (join_series_sql(filter, &rollups), series_condition(filter));
    let fields = fields_of!("{histogram}").replace("{histogram}", &histogram_sql("e"));
    let start = unit_start_sql(filter.unit);
    let pending = concat!(
        events_of_batches!("verifications", "e.time, e.series, e.latency_us"),
        with_series!("verification_series")
    );
    let is_pending = is_pending!("b.summed");
    format!(
        "SELECT n.time, n.bucket, n.latency_us, CAST(SUM(n.number) AS BIGINT)
        FROM (
            SELECT e.time, CAST(f.key AS BIGINT) AS bucket, CAST(0 AS BIGINT) AS latency_us, CAST(f.value AS BIGINT) AS number
            FROM {tables} CROSS JOIN {fields} f
            WHERE e.series = s.id AND e.time BETWEEN $6 AND $7 AND {condition}
            UNION ALL
            SELECT {start} AS time, CAST(NULL AS BIGINT) AS bucket, e.latency_us, CAST(1 AS BIGINT) AS number
            FROM {pending}
            WHERE {is_pending} AND s.id = e.series AND {start} BETWEEN $6 AND $7 AND {condition}
        ) n
        GROUP BY n.time, n.bucket, n.latency_us"
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
