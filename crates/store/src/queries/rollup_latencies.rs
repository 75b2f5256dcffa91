//! Implements the histograms of latencies of verifications by key, identity and tag.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::model::EventKind;
use sqlx::{AssertSqlSafe, query_as};

use super::Connection;
use super::rollups::{bind_rollup_filter, join_series_sql, series_condition, unit_start_sql};
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
    let selected = format!("e.series = s.id AND e.time BETWEEN $6 AND $7 AND {condition}");
    let fields = fields_of!("e.histogram");
    let (older_buckets, older_count) = older_buckets_sql();
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
            WHERE {selected}
            UNION ALL
            SELECT e.time, o.bucket, CAST(0 AS BIGINT) AS latency_us, {older_count} AS number
            FROM {tables} CROSS JOIN ({older_buckets}) o
            WHERE {selected} AND e.histogram = '{{}}'
            UNION ALL
            SELECT {start} AS time, CAST(NULL AS BIGINT) AS bucket, e.latency_us, CAST(1 AS BIGINT) AS number
            FROM {pending}
            WHERE {is_pending} AND s.id = e.series AND {start} BETWEEN $6 AND $7 AND {condition}
        ) n
        GROUP BY n.time, n.bucket, n.latency_us"
    )
}

/// Returns the SQL for the buckets that stand for those of older versions, and for the number of a rollup's latencies in one.
fn older_buckets_sql() -> (String, String) {
    let longest = format!("e.count - e.{}", BUCKET_COLUMNS.join(" - e."));
    let columns = BUCKET_COLUMNS.map(|column| format!("e.{column}"));
    let counts = columns.into_iter().chain([longest]);
    let (mut buckets, mut cases) = (Vec::new(), String::new());
    for (bucket, count) in buckets_of_older_versions().into_iter().zip(counts) {
        buckets.push(format!("SELECT CAST({bucket} AS BIGINT) AS bucket"));
        let _ = write!(cases, " WHEN {bucket} THEN {count}");
    }
    (buckets.join(" UNION ALL "), format!("CASE o.bucket{cases} END"))
}
