//! Implements reads of the rollups of verifications by key, identity and tag together with their histograms of latencies.

use std::collections::BTreeMap;

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::model::{EventKind, RollupUnit};
use futures_util::TryStreamExt as _;
use serde::Deserialize as _;
use sqlx::{AssertSqlSafe, query_as};

use super::Connection;
use super::rollup_source::{
    bind_rollup_filter, bind_spans, bound_spans, credit_sum_sql, selected_units, series_condition,
    unit_start_sql,
};
use crate::events::{
    BUCKET_COLUMNS, GROUPS_MAX, LatencyHistogram, RollupFilter, RollupRow, bucket_of,
    buckets_of_older_versions,
};

/// The rollups of a series, or the verifications of a unit of time that have the same outcome and latency and are not rolled up yet.
#[derive(sqlx_macros::FromRow)]
struct LatencyRow {
    outcome: String,
    /// The number of rollups, and of each a list of its time and amounts and its histogram, which is empty if they are not rolled up.
    rollups: String,
    /// The latency of verifications that are not rolled up.
    pending_us: Option<i64>,
}

type LatencyGroups = BTreeMap<Timestamp, (RollupRow, LatencyHistogram)>;

/// Returns the selected verifications, grouped by nothing but time, with their latencies, including those that are not rolled up yet.
/// It stops after one group more than [`GROUPS_MAX`].
///
/// The rollups are added up here: the databases take much longer to expand histograms, and would sort all rollups by their time. Those
/// of a series are joined, because a row for each costs more than the histogram. A series has one for each unit of time, so their
/// text is small, however many series a tag or an identity has.
pub async fn list(
    connection: &mut Connection,
    filter: &RollupFilter<'_>,
) -> Result<Vec<(RollupRow, LatencyHistogram)>> {
    let sql = build_sql(filter);
    let query = bind_rollup_filter(query_as(AssertSqlSafe(sql)), filter);
    let mut rows = bind_spans(query, bound_spans(filter)).fetch(connection);
    let mut groups = LatencyGroups::new();
    while let Some(row) = rows.try_next().await? {
        let row: LatencyRow = row;
        row.add_to(&mut groups, filter.is_by_time)
            .map_err(|e| Error::Internal(format!("rollups of a series: {e}")))?;
        if groups.len() > GROUPS_MAX {
            break;
        }
    }
    Ok(groups.into_values().collect())
}

impl LatencyRow {
    fn add_to(&self, groups: &mut LatencyGroups, is_by_time: bool) -> serde_json::Result<()> {
        let mut json = serde_json::Deserializer::from_str(&self.rollups);
        for _ in 0..u64::deserialize(&mut json)? {
            let [time, count, spent_credits, latency_us] = <[i64; 4]>::deserialize(&mut json)?;
            let time = Timestamp(if is_by_time { time } else { 0 });
            let (sums, histogram) = groups.entry(time).or_default();
            sums.time = time;
            sums.counts.add(&self.outcome, count);
            sums.spent_credits = sums.spent_credits.saturating_add(spent_credits);
            sums.latency_us = sums.latency_us.saturating_add(latency_us);
            histogram.merge_json(&mut json)?;
            if let Some(latency_us) = self.pending_us {
                histogram.add_to_bucket(bucket_of(latency_us), count);
            }
        }
        Ok(())
    }
}

/// Returns the SQL for rows of [`LatencyRow`]. The values are bound by [`bind_rollup_filter`] and [`bind_spans`].
fn build_sql(filter: &RollupFilter<'_>) -> String {
    let (raw, histogram) = (EventKind::Verifications.table_name(), histogram_sql("e"));
    let of_unit = |(unit, times): (RollupUnit, String)| {
        format!(
            "SELECT '[' || e.time || ',' || e.count || ',' || e.spent_credits || ',' || e.latency_us || ']'
                || CAST({histogram} AS TEXT) AS rollup
            FROM {raw}_per_{} e WHERE e.series = s.id AND {times}",
            unit.as_str()
        )
    };
    let rollups: Vec<_> = selected_units(filter).into_iter().map(of_unit).collect();
    let rollups = rollups.join(" UNION ALL ");
    let (start, condition) = (unit_start_sql(filter.unit), series_condition(filter));
    let pending = concat!(
        events_of_batches!("verifications", "e.time, e.series, e.spent_credits, e.latency_us"),
        with_series!("verification_series")
    );
    let (is_pending, spent_credits) = (is_pending!("b.summed"), credit_sum_sql("e.spent_credits"));
    format!(
        "SELECT g.outcome, g.rollups, CAST(NULL AS BIGINT) AS pending_us
        FROM (
            SELECT s.outcome, (SELECT COUNT(*) || string_agg(r.rollup, '') FROM ({rollups}) r) AS rollups
            FROM verification_series s
            WHERE {condition}
            -- Otherwise the databases would build the text twice, once for the condition.
            LIMIT 9223372036854775807
        ) g
        WHERE g.rollups IS NOT NULL
        UNION ALL
        SELECT e.outcome, '1[' || e.time || ',' || COUNT(*) || ',' || {spent_credits} || ','
                || CAST(SUM(e.latency_us) AS BIGINT) || ']{{}}' AS rollups,
            e.latency_us AS pending_us
        FROM (
            SELECT s.outcome, {start} AS time, e.spent_credits, e.latency_us
            FROM {pending}
            WHERE {is_pending} AND s.id = e.series AND {start} BETWEEN $6 AND $7 AND {condition}
        ) e
        GROUP BY e.outcome, e.time, e.latency_us"
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
