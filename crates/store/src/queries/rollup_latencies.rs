//! Implements reads of the rollups of verifications by key, identity and tag together with their histograms of latencies.

use std::collections::BTreeMap;

use foundation::clock::Timestamp;
use foundation::error::Result;
use futures_util::TryStreamExt as _;
use sqlx::{AssertSqlSafe, query_as};

use super::Connection;
use super::rollup_source::{
    bind_rollup_filter, bind_spans, bound_spans, selected_rollups_sql, series_condition,
    sum_columns_sql, unit_start_sql,
};
use crate::events::{
    BUCKET_COLUMNS, GROUPS_MAX, JOINED_HISTOGRAMS_MAX, LatencyHistogram, RollupFilter, RollupRow,
    bucket_of, buckets_of_older_versions,
};

/// Rollups of a unit of time, at most [`JOINED_HISTOGRAMS_MAX`], or the verifications in it that have the same latency and are not
/// rolled up yet.
#[derive(sqlx_macros::FromRow)]
struct LatencyRow {
    #[sqlx(flatten)]
    sums: RollupRow,
    /// The histograms of the rollups, one after the other. `None`: the row has verifications that are not rolled up.
    histograms: Option<String>,
}

/// Returns the selected verifications, grouped by nothing but time, with their latencies, including those that are not rolled up yet.
/// It stops after one group more than [`GROUPS_MAX`].
///
/// The histograms are added up here: the databases take much longer to expand them. They are joined, because a row for each costs
/// more than the histogram. Nothing bounds the series of a tag or an identity in a unit, which has a rollup of each, so a text has
/// those of a part of them. Without grouping by time, the database still joins those of each unit.
pub async fn list(
    connection: &mut Connection,
    filter: &RollupFilter<'_>,
) -> Result<Vec<(RollupRow, LatencyHistogram)>> {
    let sql = build_sql(filter);
    let query = bind_rollup_filter(query_as(AssertSqlSafe(sql)), filter);
    let mut rows = bind_spans(query, bound_spans(filter)).fetch(connection);
    let mut found: BTreeMap<Timestamp, (RollupRow, LatencyHistogram)> = BTreeMap::new();
    while let Some(row) = rows.try_next().await? {
        let LatencyRow { sums, histograms } = row;
        let time = if filter.is_by_time { sums.time } else { Timestamp(0) };
        let (total, histogram) = found.entry(time).or_default();
        total.time = time;
        total.merge(&sums);
        match histograms {
            Some(histograms) => histogram.merge_all(&histograms)?,
            None => {
                let count = sums.counts.total;
                let latency_us = sums.latency_us.checked_div(count).unwrap_or_default();
                histogram.add_to_bucket(bucket_of(latency_us), count);
            }
        }
        if found.len() > GROUPS_MAX {
            break;
        }
    }
    Ok(found.into_values().collect())
}

/// Returns the SQL for rows of [`LatencyRow`]. The values are bound by [`bind_rollup_filter`] and [`bind_spans`].
fn build_sql(filter: &RollupFilter<'_>) -> String {
    let (histogram, number) = (histogram_sql("e"), row_number!());
    let columns = format!(
        "s.outcome, e.time, e.count, e.spent_credits, e.latency_us, CAST({histogram} AS TEXT) AS histogram,
            {number} / {JOINED_HISTOGRAMS_MAX} AS part"
    );
    let rollups = selected_rollups_sql(filter, &columns);
    let (start, condition) = (unit_start_sql(filter.unit), series_condition(filter));
    let pending = concat!(
        events_of_batches!("verifications", "e.time, e.series, e.spent_credits, e.latency_us"),
        with_series!("verification_series")
    );
    let is_pending = is_pending!("b.summed");
    let dimensions = "'' AS key_id, '' AS identity_id, '' AS external_id, '' AS tags";
    let sums = sum_columns_sql();
    format!(
        "SELECT e.time AS time, {dimensions}, {sums}, string_agg(e.histogram, '') AS histograms
        FROM ({rollups}) e
        GROUP BY e.time, e.part
        UNION ALL
        SELECT e.time AS time, {dimensions}, {sums}, CAST(NULL AS TEXT) AS histograms
        FROM (
            SELECT s.outcome, {start} AS time, CAST(1 AS BIGINT) AS count, e.spent_credits, e.latency_us
            FROM {pending}
            WHERE {is_pending} AND s.id = e.series AND {start} BETWEEN $6 AND $7 AND {condition}
        ) e
        GROUP BY e.time, e.latency_us"
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
