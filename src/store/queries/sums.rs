//! Events summed up per minute, hour, day and month, and what they come to.

use async_trait::async_trait;
use serde_json::json;
use sqlx::{AssertSqlSafe, query, query_as};

use super::Connection;
use crate::error::Result;
use crate::model::Unit;
use crate::store::events::{EventReads, SumRow, WantedSums};

/// How the beginning of the unit of time is written in which an event lies.
fn beginning(unit: Unit) -> &'static str {
    match unit {
        Unit::Minute => "e.time - e.time % 60000",
        Unit::Hour => "e.time - e.time % 3600000",
        Unit::Day => "e.time - e.time % 86400000",
        Unit::Month => month_of!("e.time"),
    }
}

/// How many of the events of a group fell into each bucket of latencies.
const COUNTED_LATENCIES: &str = "
    CAST(SUM(CASE WHEN e.latency_us <= 100 THEN 1 ELSE 0 END) AS BIGINT),
    CAST(SUM(CASE WHEN e.latency_us > 100 AND e.latency_us <= 500 THEN 1 ELSE 0 END) AS BIGINT),
    CAST(SUM(CASE WHEN e.latency_us > 500 AND e.latency_us <= 1000 THEN 1 ELSE 0 END) AS BIGINT),
    CAST(SUM(CASE WHEN e.latency_us > 1000 AND e.latency_us <= 5000 THEN 1 ELSE 0 END) AS BIGINT),
    CAST(SUM(CASE WHEN e.latency_us > 5000 AND e.latency_us <= 25000 THEN 1 ELSE 0 END) AS BIGINT),
    CAST(SUM(CASE WHEN e.latency_us > 25000 AND e.latency_us <= 100000 THEN 1 ELSE 0 END) AS BIGINT)";

/// Sums up batches that have not been, each exactly once: the sums and the mark that they are made are one
/// transaction, and who comes second waits and finds the mark.
pub async fn sum_up(connection: &mut Connection, max: usize) -> Result<usize> {
    let sql =
        locked!("SELECT id, first_at, last_at FROM batches WHERE summed = $1 ORDER BY id LIMIT $2");
    let batches: Vec<(i64, i64, i64)> = query_as(sql)
        .bind(false)
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .fetch_all(&mut *connection)
        .await?;
    let (Some(first), Some(last)) = (
        batches.iter().map(|(_, first, _)| *first).min(),
        batches.iter().map(|(_, _, last)| *last).max(),
    ) else {
        return Ok(0);
    };
    let ids = json!(batches.iter().map(|(id, ..)| id.to_string()).collect::<Vec<_>>()).to_string();
    for (raw, amount) in [("verifications", "spent_credits"), ("ratelimits", "tokens")] {
        for unit in Unit::ALL {
            let sql = statement(raw, amount, unit);
            query(AssertSqlSafe(sql))
                .bind(&ids)
                .bind(first)
                .bind(last)
                .execute(&mut *connection)
                .await?;
        }
    }
    let sql = concat!(
        "UPDATE batches SET summed = $2 WHERE id IN (SELECT CAST(item AS BIGINT) FROM ",
        texts!("$1"),
        ")"
    );
    query(sql).bind(&ids).bind(true).execute(connection).await?;
    Ok(batches.len())
}

fn statement(raw: &str, amount: &str, unit: Unit) -> String {
    let (sums, latencies) = (format!("{raw}_per_{}", unit.as_str()), latencies!());
    let beginning = beginning(unit);
    let of_batches = texts!("$1");
    let added = added!("{sums}", "{amount}").replace("{sums}", &sums).replace("{amount}", amount);
    // In order: who adds to the same sums at once waits instead of holding the other one up.
    format!(
        "INSERT INTO {sums} (series, time, count, {amount}, latency_us, {latencies})
        SELECT e.series, {beginning} AS beginning, COUNT(*), CAST(SUM(e.{amount}) AS BIGINT),
            CAST(SUM(e.latency_us) AS BIGINT), {COUNTED_LATENCIES}
        FROM {raw} e
        WHERE e.batch IN (SELECT CAST(item AS BIGINT) FROM {of_batches})
            AND e.time BETWEEN $2 AND $3
        GROUP BY e.series, beginning
        ORDER BY e.series, beginning
        ON CONFLICT (series, time) DO UPDATE SET {added}"
    )
}

#[async_trait]
impl EventReads for Connection {
    async fn verification_sums(&mut self, wanted: &WantedSums<'_>) -> Result<Vec<SumRow>> {
        let (unit, beginning) = (wanted.unit.as_str(), beginning(wanted.unit));
        let by = wanted.by;
        // What is not told for itself is the same in all rows.
        let time = if wanted.by_time { "e.time" } else { "CAST(0 AS BIGINT)" };
        let column = |is_told: bool, column: &'static str| if is_told { column } else { "''" };
        let key_id = column(by.key, "s.key_id");
        let (identity_id, external_id) =
            (column(by.identity, "s.identity_id"), column(by.identity, "s.external_id"));
        let tags = column(by.tags, "s.tags");
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
            .bind(wanted.workspace)
            .bind(json!(wanted.apis).to_string())
            .bind(wanted.external_id.unwrap_or_default())
            .bind(json!(wanted.keys).to_string())
            .bind(json!(wanted.tags).to_string())
            .bind(wanted.from)
            .bind(wanted.to)
            .bind(false)
            .bind(i64::try_from(wanted.max).unwrap_or(i64::MAX))
            .fetch_all(self)
            .await?)
    }
}
