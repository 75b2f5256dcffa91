//! Implements reads and writes of rollups per minute, hour, day and month.

use async_trait::async_trait;
use foundation::error::{Error, Result};
use foundation::model::{EventKind, RollupUnit};
use serde_json::json;
use sqlx::{AssertSqlSafe, query, query_as};

use super::Connection;
use crate::events::{
    EventAmounts, EventReads, RollupFilter, RollupRow, SeriesRollup, TotalRow, TotalsFilter,
};

/// Returns the SQL expression for the start of the unit of time that contains an event.
fn unit_start_sql(unit: RollupUnit) -> &'static str {
    match unit {
        RollupUnit::Minute => "e.time - e.time % 60000",
        RollupUnit::Hour => "e.time - e.time % 3600000",
        RollupUnit::Day => "e.time - e.time % 86400000",
        RollupUnit::Month => month_of!("e.time"),
    }
}

/// The number of rollups that one statement adds.
const STATEMENT_ROLLUPS_MAX: usize = 5_000;

/// Adds amounts to the rollups of a unit, in the given order.
pub async fn add_rollups(
    connection: &mut Connection,
    kind: EventKind,
    unit: RollupUnit,
    series_rollups: &[SeriesRollup],
) -> Result<()> {
    let (raw, amount, latencies) = (kind.table_name(), kind.amount_column(), latency_columns!());
    let (table, items) = (format!("{raw}_per_{}", unit.as_str()), items!("$1"));
    let series = hex_bytes!("item ->> 0");
    let added = add_rollup_columns!("{table}", "{amount}")
        .replace("{table}", &table)
        .replace("{amount}", amount);
    let sql = format!(
        "INSERT INTO {table} (series, time, count, {amount}, latency_us, {latencies})
        SELECT {series}, CAST(item ->> 1 AS BIGINT), CAST(item ->> 2 AS BIGINT),
            CAST(item ->> 3 AS BIGINT), CAST(item ->> 4 AS BIGINT),
            CAST(item -> 5 ->> 0 AS BIGINT), CAST(item -> 5 ->> 1 AS BIGINT),
            CAST(item -> 5 ->> 2 AS BIGINT), CAST(item -> 5 ->> 3 AS BIGINT),
            CAST(item -> 5 ->> 4 AS BIGINT), CAST(item -> 5 ->> 5 AS BIGINT)
        FROM {items} WHERE TRUE
        ON CONFLICT (series, time) DO UPDATE SET {added}"
    );
    for chunk in series_rollups.chunks(STATEMENT_ROLLUPS_MAX) {
        let list = serde_json::to_string(chunk).map_err(|e| Error::Internal(e.to_string()))?;
        query(AssertSqlSafe(sql.clone())).bind(list).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Returns the amounts of the events of batches, to be rolled up. `batches` is a JSON list of texts.
pub async fn load_event_amounts(
    connection: &mut Connection,
    kind: EventKind,
    batches: &str,
) -> Result<Vec<EventAmounts>> {
    let (raw, amount, batches_of) = (kind.table_name(), kind.amount_column(), texts!("$1"));
    let sql = format!(
        "SELECT e.series, e.time, e.{amount} AS amount, e.latency_us
        FROM batches b JOIN {raw} e ON e.batch = b.id AND e.time BETWEEN b.first_at AND b.last_at
        WHERE b.id IN (SELECT CAST(item AS BIGINT) FROM {batches_of})"
    );
    Ok(query_as(AssertSqlSafe(sql)).bind(batches).fetch_all(connection).await?)
}

#[async_trait]
impl EventReads for Connection {
    async fn list_totals(&mut self, filter: &TotalsFilter<'_>) -> Result<Vec<TotalRow>> {
        let (table, id, outcome) = match filter.kind {
            EventKind::Verifications => ("verification_totals", "api_id", "outcome"),
            EventKind::Ratelimits => (
                "ratelimit_totals",
                "namespace_id",
                "CASE WHEN passed THEN 'true' ELSE 'false' END",
            ),
        };
        let time = if filter.is_by_id { "CAST(0 AS BIGINT)" } else { "time" };
        let id_column = if filter.is_by_id { id } else { "''" };
        let only = filter.resource_id.map(|_| format!(" AND {id} = $5")).unwrap_or_default();
        let sum = |name: &str| format!("CAST(SUM({name}) AS BIGINT) AS {name}");
        let buckets = latency_columns!().split(", ").map(sum).collect::<Vec<_>>().join(", ");
        let sql = format!(
            "SELECT {time} AS time, {id_column} AS id, {outcome} AS outcome,
                CAST(SUM(count) AS BIGINT) AS count,
                CAST(SUM(latency_us) AS BIGINT) AS latency_us, {buckets}
            FROM {table}
            WHERE workspace_id = $1 AND unit = $2 AND time >= $3 AND time < $4{only}
            GROUP BY 1, 2, 3"
        );
        let mut query = query_as(AssertSqlSafe(sql))
            .bind(filter.workspace)
            .bind(filter.unit.as_str())
            .bind(filter.from_time)
            .bind(filter.until_time);
        if let Some(only) = filter.resource_id {
            query = query.bind(only.to_owned());
        }
        Ok(query.fetch_all(self).await?)
    }

    async fn list_verification_rollups(
        &mut self,
        filter: &RollupFilter<'_>,
    ) -> Result<Vec<RollupRow>> {
        let (unit, beginning) = (filter.unit.as_str(), unit_start_sql(filter.unit));
        let grouping = filter.grouping;
        // Columns that do not group the result have the same value in all rows.
        let time = if filter.is_by_time { "e.time" } else { "CAST(0 AS BIGINT)" };
        let column =
            |is_grouped: bool, column: &'static str| if is_grouped { column } else { "''" };
        let key_id = column(grouping.is_by_key, "s.key_id");
        let (identity_id, external_id) = (
            column(grouping.is_by_identity, "s.identity_id"),
            column(grouping.is_by_identity, "s.external_id"),
        );
        let tags = column(grouping.is_by_tags, "s.tags");
        let (apis, keys) = (texts!("$2"), texts!("$4"));
        let (wanted_tags, tags_of_series) = (texts!("$5"), texts!("s.tags"));
        let count = |outcome: &str| {
            format!(
                "CAST(SUM(CASE WHEN s.outcome = '{outcome}' THEN e.count ELSE 0 END) AS BIGINT)"
            )
        };
        let (valid, forbidden) = (count("VALID"), count("FORBIDDEN"));
        let (usage_exceeded, rate_limited) = (count("USAGE_EXCEEDED"), count("RATE_LIMITED"));
        let (disabled, expired) = (count("DISABLED"), count("EXPIRED"));
        let insufficient_permissions = count("INSUFFICIENT_PERMISSIONS");
        let sql = format!(
            "SELECT {time} AS time, {key_id} AS key_id, {identity_id} AS identity_id,
                {external_id} AS external_id, {tags} AS tags,
                {valid} AS valid, {forbidden} AS forbidden, {usage_exceeded} AS usage_exceeded,
                {rate_limited} AS rate_limited, {disabled} AS disabled,
                {insufficient_permissions} AS insufficient_permissions, {expired} AS expired,
                CAST(SUM(e.count) AS BIGINT) AS total
            FROM verification_series s JOIN (
                SELECT series, time, count FROM verifications_per_{unit}
                UNION ALL
                SELECT e.series, {beginning} AS time, CAST(1 AS BIGINT) AS count
                FROM verifications e JOIN batches b ON b.id = e.batch
                WHERE b.summed = $8 AND e.time BETWEEN b.first_at AND b.last_at
            ) e ON e.series = s.id
            WHERE s.workspace_id = $1 AND s.api_id IN (SELECT item FROM {apis})
                AND ($3 = '' OR s.external_id = $3)
                AND ($4 = '[]' OR s.key_id IN (SELECT item FROM {keys}))
                AND ($5 = '[]' OR NOT EXISTS (
                    SELECT 1 FROM {wanted_tags}
                    WHERE item NOT IN (SELECT item FROM {tags_of_series})))
                AND e.time BETWEEN $6 AND $7
            GROUP BY 1, 2, 3, 4, 5
            LIMIT $9"
        );
        Ok(query_as(AssertSqlSafe(sql))
            .bind(filter.workspace)
            .bind(json!(filter.api_ids).to_string())
            .bind(filter.external_id.unwrap_or_default())
            .bind(json!(filter.key_ids).to_string())
            .bind(json!(filter.tags).to_string())
            .bind(filter.from_time)
            .bind(filter.to_time)
            .bind(false)
            .bind(i64::try_from(filter.rows_max).unwrap_or(i64::MAX))
            .fetch_all(self)
            .await?)
    }
}
