//! Builds the source of reads of rollups: the selected rollups, and the events that are not rolled up yet, with their series.

use foundation::model::{EventKind, RollupUnit};
use serde_json::json;

use super::RowQuery;
use crate::events::{RollupFilter, RollupSpan};

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
pub fn credit_sum_sql(column: &str) -> String {
    format!(
        "CAST(CASE WHEN SUM({column} / 1000000) >= 9000000000000 THEN 9223372036854775807
            ELSE SUM({column} / 1000000) * 1000000 + SUM({column} % 1000000) END AS BIGINT)"
    )
}

/// Returns the SQL for the columns of a group that add up its rows `e`, which have an outcome and amounts.
pub fn sum_columns_sql() -> String {
    let count = |outcome: &str| {
        format!("CAST(SUM(CASE WHEN e.outcome = '{outcome}' THEN e.count ELSE 0 END) AS BIGINT)")
    };
    let (valid, forbidden) = (count("VALID"), count("FORBIDDEN"));
    let (usage_exceeded, rate_limited) = (count("USAGE_EXCEEDED"), count("RATE_LIMITED"));
    let (disabled, expired) = (count("DISABLED"), count("EXPIRED"));
    let insufficient_permissions = count("INSUFFICIENT_PERMISSIONS");
    let spent_credits = credit_sum_sql("e.spent_credits");
    format!(
        "{valid} AS valid, {forbidden} AS forbidden, {usage_exceeded} AS usage_exceeded,
            {rate_limited} AS rate_limited, {disabled} AS disabled,
            {insufficient_permissions} AS insufficient_permissions, {expired} AS expired,
            CAST(SUM(e.count) AS BIGINT) AS total, {spent_credits} AS spent_credits"
    )
}

/// Binds the values `$1` to `$8` of [`rollup_source_sql`].
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
        .bind(filter.region.unwrap_or_default())
}

/// The number of the first value that [`bind_spans`] binds for [`rollup_source_sql`].
pub const FIRST_SPAN_VALUE: usize = 9;

/// Returns the spans whose bounds [`bind_spans`] must bind for [`rollup_source_sql`]: none if the rollups are grouped by time.
pub fn bound_spans<'a>(filter: &'a RollupFilter<'_>) -> &'a [RollupSpan] {
    if filter.is_by_time { &[] } else { &filter.spans }
}

/// Returns the SQL for the sums of the rollups of spans by series. The values are bound by [`bind_spans`] and begin at
/// `first_value`.
pub fn series_sums_sql(kind: EventKind, spans: &[RollupSpan], first_value: usize) -> String {
    let (raw, amount) = (kind.table_name(), kind.amount_column());
    let part = |(index, span): (usize, &RollupSpan)| {
        let (unit, from) = (span.unit.as_str(), first_value + 2 * index);
        format!(
            "SELECT series, count, {amount} FROM {raw}_per_{unit} WHERE time >= ${from} AND time < ${}",
            from + 1
        )
    };
    let parts = spans.iter().enumerate().map(part).collect::<Vec<_>>().join(" UNION ALL ");
    let amount_sum = credit_sum_sql(&format!("r.{amount}"));
    format!(
        "SELECT r.series, CAST(SUM(r.count) AS BIGINT) AS count, {amount_sum} AS {amount}
        FROM ({parts}) r GROUP BY r.series"
    )
}

/// Binds the values of [`series_sums_sql`].
pub fn bind_spans<'q, Row>(query: RowQuery<'q, Row>, spans: &'q [RollupSpan]) -> RowQuery<'q, Row> {
    spans.iter().fold(query, |query, span| query.bind(span.from_time).bind(span.until_time))
}

/// Returns the SQL for the selected rollups and for the events that are not rolled up yet, as rows with columns of
/// their series. The values are `$1` to `$8`, and those of the spans.
///
/// Without grouping by time, the time of a row is any of the selected ones.
pub fn rollup_source_sql(filter: &RollupFilter<'_>) -> String {
    let columns = "s.key_id, s.identity_id, s.external_id, s.tags, s.outcome, s.region";
    let rollup_columns = format!("{columns}, e.time, e.count, e.spent_credits");
    let (start, condition) = (unit_start_sql(filter.unit), series_condition(filter));
    let rollups = match filter.is_by_time || has_few_series(filter) {
        true => selected_rollups_sql(filter, &rollup_columns),
        // Each series is joined once instead of once for each unit of time.
        false => {
            let kind = EventKind::Verifications;
            let sums = series_sums_sql(kind, &filter.spans, FIRST_SPAN_VALUE);
            let sums = format!("(SELECT r.*, CAST($6 AS BIGINT) AS time FROM ({sums}) r)");
            let tables = join_series_sql(filter, &sums);
            format!("SELECT {rollup_columns} FROM {tables} WHERE e.series = s.id AND {condition}")
        }
    };
    let pending = concat!(
        events_of_batches!("verifications", "e.time, e.series, e.spent_credits"),
        with_series!("verification_series")
    );
    let is_pending = is_pending!("b.summed");
    format!(
        "{rollups}
        UNION ALL
        SELECT {columns}, {start} AS time, CAST(1 AS BIGINT) AS count, e.spent_credits
        FROM {pending}
        WHERE {is_pending} AND s.id = e.series AND {start} BETWEEN $6 AND $7 AND {condition}"
    )
}

/// Returns the SQL that selects columns of the selected rollups `e` and their series `s`. The values are those of
/// [`rollup_source_sql`].
fn selected_rollups_sql(filter: &RollupFilter<'_>, columns: &str) -> String {
    let raw = EventKind::Verifications.table_name();
    let condition = series_condition(filter);
    let select = |(unit, times): (RollupUnit, String)| {
        let tables = join_series_sql(filter, &format!("{raw}_per_{}", unit.as_str()));
        format!("SELECT {columns} FROM {tables} WHERE e.series = s.id AND {times} AND {condition}")
    };
    selected_units(filter).into_iter().map(select).collect::<Vec<_>>().join(" UNION ALL ")
}

/// Returns the units of the selected rollups `e`, each with the condition for their times: the unit if the result is grouped by time,
/// else those of the spans. The values are those of [`rollup_source_sql`].
pub fn selected_units(filter: &RollupFilter<'_>) -> Vec<(RollupUnit, String)> {
    if filter.is_by_time {
        return vec![(filter.unit, "e.time BETWEEN $6 AND $7".to_owned())];
    }
    let of_span = |(index, span): (usize, &RollupSpan)| {
        let from = FIRST_SPAN_VALUE + 2 * index;
        (span.unit, format!("e.time >= ${from} AND e.time < ${}", from + 1))
    };
    filter.spans.iter().enumerate().map(of_span).collect()
}

/// Returns the SQL for the ids of the series with selected verifications, each once, as `series`. The values are those of
/// [`rollup_source_sql`]. Series of other APIs and regions may be among them.
pub fn selected_series_sql(filter: &RollupFilter<'_>) -> String {
    let raw = EventKind::Verifications.table_name();
    let rollups = match has_few_series(filter) {
        true => selected_rollups_sql(filter, "e.series"),
        // An index on the time has the series.
        false => {
            let select = |(unit, times): (RollupUnit, String)| {
                format!("SELECT e.series FROM {raw}_per_{} e WHERE {times}", unit.as_str())
            };
            selected_units(filter).into_iter().map(select).collect::<Vec<_>>().join(" UNION ")
        }
    };
    let (pending, is_pending, start) = (
        events_of_batches!("verifications", "e.time, e.series"),
        is_pending!("b.summed"),
        unit_start_sql(filter.unit),
    );
    format!(
        "{rollups} UNION SELECT e.series FROM {pending} WHERE {is_pending} AND {start} BETWEEN $6 AND $7"
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

/// Returns the condition for the series `s`, with the values `$1` to `$5` and `$8`. Where nothing is selected, it only mentions
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
    let region = match filter.region.unwrap_or_default() {
        "" => "$8 = ''",
        _ => "s.region = $8",
    };
    format!("s.workspace_id = $1 AND {apis} AND {external_id} AND {keys} AND {tags} AND {region}")
}
