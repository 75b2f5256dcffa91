//! Implements the histograms of latencies by API or namespace, and of a whole workspace.

use std::collections::BTreeMap;

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::model::EventKind;
use sqlx::{query, query_as};

use super::Connection;
use crate::events::{LatencyHistogram, TotalDelta, TotalsFilter};

/// Stands for all APIs, or all namespaces, of a workspace. So a chart of the workspace reads one row for each unit of time.
const ALL_RESOURCES: &str = "*";

/// Adds the latencies of totals, whatever their outcomes, to one histogram for each API and unit of time. All replicas change the
/// rows in the same order.
pub async fn add(
    connection: &mut Connection,
    kind: EventKind,
    totals: impl Iterator<Item = &TotalDelta>,
) -> Result<()> {
    let mut sums: BTreeMap<_, LatencyHistogram> = BTreeMap::new();
    for TotalDelta { total_key, aggregate } in totals {
        for resource in [&*total_key.id, ALL_RESOURCES] {
            let row = (&*total_key.workspace_id, resource, total_key.unit, total_key.time);
            sums.entry(row).or_default().merge(&aggregate.histogram);
        }
    }
    if sums.is_empty() {
        return Ok(());
    }
    let sql = concat!(
        "INSERT INTO latencies (kind, workspace_id, resource_id, unit, time, histogram)
        SELECT $1, item -> 0 ->> 0, item -> 0 ->> 1, item -> 0 ->> 2, CAST(item -> 0 ->> 3 AS BIGINT), item -> 1
        FROM ",
        items!("$2"),
        " WHERE TRUE
        ON CONFLICT (kind, workspace_id, resource_id, unit, time) DO UPDATE SET ",
        add_histogram!("latencies.histogram")
    );
    let rows: Vec<_> = sums.into_iter().collect();
    let rows = serde_json::to_string(&rows).map_err(|e| Error::Internal(e.to_string()))?;
    query(sql).bind(kind.table_name()).bind(rows).execute(connection).await?;
    Ok(())
}

/// Returns the histograms of the events of a filter by unit of time.
pub async fn list(
    connection: &mut Connection,
    filter: &TotalsFilter<'_>,
) -> Result<Vec<(Timestamp, LatencyHistogram)>> {
    let sql = "SELECT time, CAST(histogram AS TEXT) FROM latencies
        WHERE kind = $1 AND workspace_id = $2 AND resource_id = $3 AND unit = $4 AND time >= $5 AND time < $6";
    let rows: Vec<(Timestamp, String)> = query_as(sql)
        .bind(filter.kind.table_name())
        .bind(filter.workspace)
        .bind(filter.resource_id.unwrap_or(ALL_RESOURCES))
        .bind(filter.unit.as_str())
        .bind(filter.from_time)
        .bind(filter.until_time)
        .fetch_all(connection)
        .await?;
    rows.into_iter().map(|(time, json)| Ok((time, LatencyHistogram::parse(&json)?))).collect()
}
