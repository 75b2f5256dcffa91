//! Implements reads and writes of rollups per minute, hour, day and month.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::model::{EventKind, RollupUnit};
use futures_util::TryStreamExt as _;
use serde_json::json;
use sqlx::{AssertSqlSafe, query, query_as};

use super::{Connection, RowQuery, latencies, region_counts, rollup_latencies, top_identifiers};
use crate::events::{
    EventAmounts, EventReads, IdentifierRow, LatencyHistogram, RegionCount, RollupFilter,
    RollupRow, RollupSpan, SeriesRollup, TagGrouping, TopIdentifiersFilter, TopMeasure, TotalRow,
    TotalsFilter, too_many_groups,
};

/// Returns the SQL expression for the start of the unit of time that contains an event.
pub fn unit_start_sql(unit: RollupUnit) -> &'static str {
    match unit {
        RollupUnit::Minute => "e.time - e.time % 60000",
        RollupUnit::Hour => "e.time - e.time % 3600000",
        RollupUnit::Day => "e.time - e.time % 86400000",
        RollupUnit::Month => month_of!("e.time"),
    }
}

/// Returns the SQL for a sum of credits, which is the largest number if it exceeds 9 * 10^18. A plain sum would make the
/// query fail.
fn credit_sum_sql(column: &str) -> String {
    format!(
        "CAST(CASE WHEN SUM({column} / 1000000) >= 9000000000000 THEN 9223372036854775807
            ELSE SUM({column} / 1000000) * 1000000 + SUM({column} % 1000000) END AS BIGINT)"
    )
}

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
        "SELECT g.time, g.key_id, g.identity_id, g.external_id, t.value AS tags, {sums}, {spent_credits} AS spent_credits,
            CAST(SUM(g.latency_us) AS BIGINT) AS latency_us
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
        let source = rollup_source_sql(filter);
        let sql = format!("SELECT COUNT(DISTINCT e.key_id) FROM ({source}) e");
        let query = bind_rollup_filter(query_as(AssertSqlSafe(sql)), filter);
        let (count,): (i64,) = bind_spans(query, summed_spans(filter)).fetch_one(self).await?;
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
        let count = |outcome: &str| {
            format!(
                "CAST(SUM(CASE WHEN e.outcome = '{outcome}' THEN e.count ELSE 0 END) AS BIGINT)"
            )
        };
        let (valid, forbidden) = (count("VALID"), count("FORBIDDEN"));
        let (usage_exceeded, rate_limited) = (count("USAGE_EXCEEDED"), count("RATE_LIMITED"));
        let (disabled, expired) = (count("DISABLED"), count("EXPIRED"));
        let insufficient_permissions = count("INSUFFICIENT_PERMISSIONS");
        let spent_credits = credit_sum_sql("e.spent_credits");
        let source = rollup_source_sql(filter);
        let sql = format!(
            "SELECT {time} AS time, {key_id} AS key_id, {identity_id} AS identity_id,
                {external_id} AS external_id, {tags} AS tags,
                {valid} AS valid, {forbidden} AS forbidden, {usage_exceeded} AS usage_exceeded,
                {rate_limited} AS rate_limited, {disabled} AS disabled,
                {insufficient_permissions} AS insufficient_permissions, {expired} AS expired,
                CAST(SUM(e.count) AS BIGINT) AS total, {spent_credits} AS spent_credits,
                CAST(SUM(e.latency_us) AS BIGINT) AS latency_us
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
        let limit = FIRST_SPAN_VALUE + 2 * summed_spans(filter).len();
        let sql = format!("{sql} LIMIT ${limit}");
        let query = bind_rollup_filter(query_as(AssertSqlSafe(sql)), filter);
        let mut rows = bind_spans(query, summed_spans(filter))
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

    async fn list_rollup_latencies(
        &mut self,
        filter: &RollupFilter<'_>,
    ) -> Result<Vec<(Timestamp, LatencyHistogram)>> {
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

/// Binds the values `$1` to `$7` of [`rollup_source_sql`].
pub fn bind_rollup_filter<'q, Row>(
    query: RowQuery<'q, Row>,
    filter: &'q RollupFilter<'_>,
) -> RowQuery<'q, Row> {
    query
        .bind(filter.workspace)
        .bind(json!(filter.api_ids).to_string())
        .bind(filter.external_id.unwrap_or_default())
        .bind(json!(filter.key_ids).to_string())
        .bind(json!(filter.tags).to_string())
        .bind(filter.from_time)
        .bind(filter.to_time)
}

/// The number of the first value that [`bind_spans`] binds for [`rollup_source_sql`].
const FIRST_SPAN_VALUE: usize = 8;

/// Returns the spans that [`rollup_source_sql`] adds up by series before it joins these. Without any, the rollups are joined.
pub fn summed_spans<'a>(filter: &'a RollupFilter<'_>) -> &'a [RollupSpan] {
    let is_summed = !filter.is_by_time && !has_few_series(filter);
    if is_summed { &filter.spans } else { &[] }
}

/// Returns the SQL for the sums of the rollups of spans by series. The values are bound by [`bind_spans`] and begin at
/// `first_value`.
pub fn series_sums_sql(kind: EventKind, spans: &[RollupSpan], first_value: usize) -> String {
    let (raw, amount) = (kind.table_name(), kind.amount_column());
    let part = |(index, span): (usize, &RollupSpan)| {
        let (unit, from) = (span.unit.as_str(), first_value + 2 * index);
        format!(
            "SELECT series, count, {amount}, latency_us FROM {raw}_per_{unit} WHERE time >= ${from} AND time < ${}",
            from + 1
        )
    };
    let parts = spans.iter().enumerate().map(part).collect::<Vec<_>>().join(" UNION ALL ");
    let amount_sum = credit_sum_sql(&format!("r.{amount}"));
    format!(
        "SELECT r.series, CAST(SUM(r.count) AS BIGINT) AS count, {amount_sum} AS {amount},
            CAST(SUM(r.latency_us) AS BIGINT) AS latency_us
        FROM ({parts}) r GROUP BY r.series"
    )
}

/// Binds the values of [`series_sums_sql`].
pub fn bind_spans<'q, Row>(query: RowQuery<'q, Row>, spans: &'q [RollupSpan]) -> RowQuery<'q, Row> {
    spans.iter().fold(query, |query, span| query.bind(span.from_time).bind(span.until_time))
}

/// Returns the SQL for the selected rollups and for the events that are not rolled up yet, as rows with columns of
/// their series. The values are `$1` to `$7`, and those of the summed spans.
///
/// Without grouping by time, the time of a row is any of the selected ones.
pub fn rollup_source_sql(filter: &RollupFilter<'_>) -> String {
    let rollups = format!("verifications_per_{}", filter.unit.as_str());
    let tables = match summed_spans(filter) {
        [] => join_series_sql(filter, &rollups),
        // Each series is then joined once instead of once for each unit of time.
        spans => {
            let sums = series_sums_sql(EventKind::Verifications, spans, FIRST_SPAN_VALUE);
            join_series_sql(
                filter,
                &format!("(SELECT r.*, CAST($6 AS BIGINT) AS time FROM ({sums}) r)"),
            )
        }
    };
    let (start, condition) = (unit_start_sql(filter.unit), series_condition(filter));
    let columns = "s.key_id, s.identity_id, s.external_id, s.tags, s.outcome, s.region";
    let pending = concat!(
        events_of_batches!("verifications", "e.time, e.series, e.spent_credits, e.latency_us"),
        with_series!("verification_series")
    );
    let is_pending = is_pending!("b.summed");
    format!(
        "SELECT {columns}, e.time, e.count, e.spent_credits, e.latency_us
        FROM {tables}
        WHERE e.series = s.id AND e.time BETWEEN $6 AND $7 AND {condition}
        UNION ALL
        SELECT {columns}, {start} AS time, CAST(1 AS BIGINT) AS count, e.spent_credits, e.latency_us
        FROM {pending}
        WHERE {is_pending} AND s.id = e.series AND {start} BETWEEN $6 AND $7 AND {condition}"
    )
}

/// Returns the SQL that joins rollups `e` and their series `s`. SQLite joins tables in this order: first the series if few are
/// selected, else the rollups, which are selected by time.
pub fn join_series_sql(filter: &RollupFilter<'_>, rollups: &str) -> String {
    match has_few_series(filter) {
        true => format!("verification_series s CROSS JOIN {rollups} e"),
        false => format!("{rollups} e CROSS JOIN verification_series s"),
    }
}

/// Returns the condition for the series `s` of an identity. The index has only series with one, which SQLite must read.
pub fn has_external_id_sql(value: &str) -> String {
    format!("s.external_id = {value} AND s.external_id <> ''")
}

/// Returns whether a filter selects the series of some keys, of an identity or with tags, which indexes find.
fn has_few_series(filter: &RollupFilter<'_>) -> bool {
    let has_identity = filter.external_id.is_some_and(|id| !id.is_empty());
    has_identity || !filter.key_ids.is_empty() || !filter.tags.is_empty()
}

/// Returns the condition for the series `s`, with the values `$1` to `$5`. Where nothing is selected, it only mentions
/// the value, because a statement must use every value.
pub fn series_condition(filter: &RollupFilter<'_>) -> String {
    let apis = match filter.api_ids.is_empty() {
        true => "$2 = '[]'",
        false => concat!("s.api_id ", is_one_of!("$2")),
    };
    let external_id = match filter.external_id.unwrap_or_default() {
        "" => "$3 = ''",
        _ => &has_external_id_sql("$3"),
    };
    let keys = match filter.key_ids.is_empty() {
        true => "$4 = '[]'",
        false => concat!("s.key_id ", is_one_of!("$4")),
    };
    let tags = match filter.tags.is_empty() {
        true => "$5 = '[]'",
        // The index has only series with tags.
        false => concat!(
            "s.tags <> '[]' AND NOT EXISTS (SELECT 1 FROM ",
            texts!("$5"),
            " WHERE item NOT IN (SELECT item FROM ",
            texts!("s.tags"),
            "))"
        ),
    };
    format!("s.workspace_id = $1 AND {apis} AND {external_id} AND {keys} AND {tags}")
}
