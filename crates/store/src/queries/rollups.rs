//! Implements reads and writes of rollups per minute, hour, day and month.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::model::{EventKind, RollupUnit};
use futures_util::TryStreamExt as _;
use sqlx::{AssertSqlSafe, query, query_as};

use super::rollup_source::{
    FIRST_SPAN_VALUE, bind_rollup_filter, bind_spans, bound_spans, credit_sum_sql,
    rollup_source_sql, selected_series_sql, series_condition, sum_columns_sql,
};
use super::{Connection, RowQuery, latencies, region_counts, rollup_latencies, top_identifiers};
use crate::events::{
    EventAmounts, EventReads, IdentifierRow, LatencyHistogram, RegionCount, RollupFilter,
    RollupRow, SeriesRollup, TagGrouping, TopIdentifiersFilter, TopMeasure, TotalRow, TotalsFilter,
    too_many_groups,
};

/// The table of totals of one kind of events, and its columns.
struct TotalsTable {
    name: &'static str,
    /// The API or the namespace.
    id: &'static str,
    outcome: &'static str,
    spent_credits: String,
}

impl TotalsTable {
    fn of_kind(kind: EventKind) -> Self {
        match kind {
            EventKind::Verifications => Self {
                name: "verification_totals",
                id: "api_id",
                outcome: "outcome",
                spent_credits: credit_sum_sql("spent_credits"),
            },
            EventKind::Ratelimits => Self {
                name: "ratelimit_totals",
                id: "namespace_id",
                outcome: "CASE WHEN passed THEN 'true' ELSE 'false' END",
                spent_credits: "CAST(0 AS BIGINT)".to_owned(),
            },
        }
    }

    /// Returns the condition for the totals of a filter, whose values are `$1` to `$5`.
    fn condition(&self, filter: &TotalsFilter<'_>) -> String {
        let only = filter.resource_id.map(|_| format!(" AND {} = $5", self.id));
        let only = only.unwrap_or_default();
        format!("workspace_id = $1 AND unit = $2 AND time >= $3 AND time < $4{only}")
    }
}

/// Returns the SQL that groups rollups by each of their tags. `groups` selects them by all tags of a verification.
fn split_by_tag_sql(groups: &str) -> String {
    let counts = [
        "valid",
        "forbidden",
        "usage_exceeded",
        "rate_limited",
        "disabled",
        "insufficient_permissions",
        "expired",
        "total",
    ];
    let sums = counts.map(|count| format!("CAST(SUM(g.{count}) AS BIGINT) AS {count}")).join(", ");
    let (spent_credits, tags) = (credit_sum_sql("g.spent_credits"), texts_of!("g.tags"));
    format!(
        "SELECT g.time, g.key_id, g.identity_id, g.external_id, t.value AS tags, {sums}, {spent_credits} AS spent_credits
        FROM ({groups}) g, {tags} t
        GROUP BY 1, 2, 3, 4, 5"
    )
}

/// The maximum size of the tags of a result, in bytes. A caller chooses the tags, and how many there are.
const TAGS_MAX_BYTES: usize = 32 * 1024 * 1024;

const ADD_HISTOGRAM: &str = concat!(", ", add_histogram!("{histogram}"));

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
    // Only verifications are charted by key and identity.
    let (histogram, of_item, merged) = match kind {
        EventKind::Verifications => (", histogram", ", item -> 6", ADD_HISTOGRAM),
        EventKind::Ratelimits => ("", "", ""),
    };
    let added = [add_rollup_columns!("{table}", "{amount}"), merged].concat();
    let added = added
        .replace("{histogram}", &rollup_latencies::histogram_sql(&table))
        .replace("{table}", &table)
        .replace("{amount}", amount);
    let sql = format!(
        "INSERT INTO {table} (series, time, count, {amount}, latency_us, {latencies}{histogram})
        SELECT {series}, CAST(item ->> 1 AS BIGINT), CAST(item ->> 2 AS BIGINT),
            CAST(item ->> 3 AS BIGINT), CAST(item ->> 4 AS BIGINT),
            CAST(item -> 5 ->> 0 AS BIGINT), CAST(item -> 5 ->> 1 AS BIGINT),
            CAST(item -> 5 ->> 2 AS BIGINT), CAST(item -> 5 ->> 3 AS BIGINT),
            CAST(item -> 5 ->> 4 AS BIGINT), CAST(item -> 5 ->> 5 AS BIGINT){of_item}
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
        let table = TotalsTable::of_kind(filter.kind);
        let time = if filter.is_by_id { "CAST(0 AS BIGINT)" } else { "time" };
        let id_column = if filter.is_by_id { table.id } else { "''" };
        let sql = format!(
            "SELECT {time} AS time, {id_column} AS id, {} AS outcome,
                CAST(SUM(count) AS BIGINT) AS count, {} AS spent_credits,
                CAST(SUM(latency_us) AS BIGINT) AS latency_us
            FROM {} WHERE {} GROUP BY 1, 2, 3",
            table.outcome,
            table.spent_credits,
            table.name,
            table.condition(filter)
        );
        Ok(bind_totals_filter(query_as(AssertSqlSafe(sql)), filter).fetch_all(self).await?)
    }

    async fn list_latencies(
        &mut self,
        filter: &TotalsFilter<'_>,
    ) -> Result<Vec<(Timestamp, LatencyHistogram)>> {
        latencies::list(self, filter).await
    }

    async fn find_first_total(&mut self, filter: &TotalsFilter<'_>) -> Result<Option<Timestamp>> {
        let table = TotalsTable::of_kind(filter.kind);
        let (condition, id) = (table.condition(filter), table.id);
        let sql = format!("SELECT MIN(time) FROM {} WHERE {condition} AND {id} <> ''", table.name);
        let (first,): (Option<Timestamp>,) =
            bind_totals_filter(query_as(AssertSqlSafe(sql)), filter).fetch_one(self).await?;
        Ok(first)
    }

    async fn count_verified_keys(&mut self, filter: &RollupFilter<'_>) -> Result<i64> {
        // The table on the right is read by the ids of the series, without the amounts of their rollups.
        let (series, condition) = (selected_series_sql(filter), series_condition(filter));
        let sql = format!(
            "SELECT COUNT(DISTINCT s.key_id) FROM ({series}) e CROSS JOIN verification_series s
            WHERE s.id = e.series AND {condition}"
        );
        let query = bind_rollup_filter(query_as(AssertSqlSafe(sql)), filter);
        let (count,): (i64,) = bind_spans(query, bound_spans(filter)).fetch_one(self).await?;
        Ok(count)
    }

    async fn list_verification_rollups(
        &mut self,
        filter: &RollupFilter<'_>,
    ) -> Result<Vec<RollupRow>> {
        let grouping = filter.grouping;
        // Columns that do not group the result have the same value in all rows.
        let time = if filter.is_by_time { "e.time" } else { "CAST(0 AS BIGINT)" };
        let column =
            |is_grouped: bool, column: &'static str| if is_grouped { column } else { "''" };
        let key_id = column(grouping.is_by_key, "e.key_id");
        let (identity_id, external_id) = (
            column(grouping.is_by_identity, "e.identity_id"),
            column(grouping.is_by_identity, "e.external_id"),
        );
        let tags = column(grouping.by_tags != TagGrouping::None, "e.tags");
        let sums = sum_columns_sql();
        let source = rollup_source_sql(filter);
        let sql = format!(
            "SELECT {time} AS time, {key_id} AS key_id, {identity_id} AS identity_id,
                {external_id} AS external_id, {tags} AS tags, {sums}
            FROM ({source}) e
            GROUP BY 1, 2, 3, 4, 5"
        );
        let sql = match grouping.by_tags {
            TagGrouping::Each => split_by_tag_sql(&sql),
            TagGrouping::None | TagGrouping::Set => sql,
        };
        let sql = match filter.top_by {
            None => sql,
            Some(measure) => {
                let number = match measure {
                    TopMeasure::Total => "g.total",
                    TopMeasure::Rejected => "g.total - g.valid",
                    TopMeasure::SpentCredits => "g.spent_credits",
                };
                // The columns of counts are named like the outcomes.
                let selected = filter.with_outcome.map_or_else(String::new, |outcome| {
                    format!(" WHERE g.{} > 0", outcome.as_str().to_ascii_lowercase())
                });
                format!(
                    "SELECT * FROM ({sql}) g{selected} ORDER BY {number} DESC, g.key_id, g.identity_id, g.tags"
                )
            }
        };
        let limit = FIRST_SPAN_VALUE + 2 * bound_spans(filter).len();
        let sql = format!("{sql} LIMIT ${limit}");
        let query = bind_rollup_filter(query_as(AssertSqlSafe(sql)), filter);
        let mut rows = bind_spans(query, bound_spans(filter))
            .bind(i64::try_from(filter.rows_max).unwrap_or(i64::MAX))
            .fetch(self);
        let (mut read, mut tags_bytes) = (Vec::new(), 0);
        while let Some(row) = rows.try_next().await? {
            let row: RollupRow = row;
            tags_bytes += row.tags.len();
            if tags_bytes > TAGS_MAX_BYTES {
                return Err(too_many_groups());
            }
            read.push(row);
        }
        Ok(read)
    }

    async fn count_by_region(&mut self, filter: &RollupFilter<'_>) -> Result<Vec<RegionCount>> {
        region_counts::count(self, filter).await
    }

    async fn list_rollups_with_latencies(
        &mut self,
        filter: &RollupFilter<'_>,
    ) -> Result<Vec<(RollupRow, LatencyHistogram)>> {
        rollup_latencies::list(self, filter).await
    }

    async fn list_top_identifiers(
        &mut self,
        filter: &TopIdentifiersFilter<'_>,
    ) -> Result<Vec<IdentifierRow>> {
        top_identifiers::list_top_identifiers(self, filter).await
    }
}

/// Binds the values of [`TotalsTable::condition`].
fn bind_totals_filter<'q, Row>(
    query: RowQuery<'q, Row>,
    filter: &'q TotalsFilter<'_>,
) -> RowQuery<'q, Row> {
    let query = query
        .bind(filter.workspace)
        .bind(filter.unit.as_str())
        .bind(filter.from_time)
        .bind(filter.until_time);
    match filter.resource_id {
        Some(only) => query.bind(only),
        None => query,
    }
}
