//! Reads rollups and totals in ClickHouse.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{ApiId, KeyId};
use foundation::model::EventKind;
use futures_util::future::try_join;
use serde_json::json;

use super::ClickHouseReader;
use super::source::RollupSource;
use crate::events::{
    EventReads, IdentifierOrder, IdentifierRow, LatencyHistogram, OutcomeCounts, RegionCount,
    RollupFilter, RollupRow, TagGrouping, TopIdentifiersFilter, TopMeasure, TotalRow, TotalsFilter,
};

/// Collects bound texts, and returns the placeholders that stand for them.
#[derive(Default)]
struct BoundTexts(Vec<String>);

impl BoundTexts {
    fn bind(&mut self, text: &str) -> String {
        self.0.push(text.to_owned());
        format!("${}", self.0.len())
    }

    fn bind_list<'t>(&mut self, texts: impl Iterator<Item = &'t str>) -> String {
        texts.map(|text| self.bind(text)).collect::<Vec<_>>().join(", ")
    }

    fn to_strs(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }
}

/// The outcomes in the order of [`crate::events::OutcomeCounts`].
const COUNTED_OUTCOMES: [&str; 7] = [
    "VALID",
    "FORBIDDEN",
    "USAGE_EXCEEDED",
    "RATE_LIMITED",
    "DISABLED",
    "INSUFFICIENT_PERMISSIONS",
    "EXPIRED",
];

type TotalTuple = (i64, String, String, i64, i64, i64);

type RollupTuple =
    (i64, String, String, String, Vec<String>, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64);

#[async_trait]
impl EventReads for ClickHouseReader {
    async fn list_totals(&mut self, filter: &TotalsFilter<'_>) -> Result<Vec<TotalRow>> {
        let (id, outcome) = total_columns(filter.kind);
        let mut bound = BoundTexts::default();
        let condition = total_condition(filter, &mut bound);
        let columns = format!("{id}, {outcome}");
        let source = self.source_of_totals(filter, &columns, &condition);
        let time = if filter.is_by_id { "toInt64(0)" } else { "at" };
        let id_column = if filter.is_by_id { id } else { "''" };
        let outcome_column = match filter.kind {
            EventKind::Verifications => outcome,
            EventKind::Ratelimits => "if(passed = 1, 'true', 'false')",
        };
        let sql = format!(
            "SELECT {time} AS k1, {id_column} AS k2, {outcome_column} AS k3, sum(n), sum(spent), sum(took)
            FROM ({}) GROUP BY k1, k2, k3",
            source.build_sql()
        );
        let rows: Vec<TotalTuple> = self.clickhouse.fetch_rows(&sql, &bound.to_strs()).await?;
        Ok(rows.into_iter().map(total_row_from_tuple).collect())
    }

    async fn list_latencies(
        &mut self,
        filter: &TotalsFilter<'_>,
    ) -> Result<Vec<(Timestamp, LatencyHistogram)>> {
        let mut bound = BoundTexts::default();
        let condition = total_condition(filter, &mut bound);
        let source = self.source_of_totals(filter, "bucket", &condition);
        self.list_histograms(&source, &bound).await
    }

    async fn find_first_total(&mut self, filter: &TotalsFilter<'_>) -> Result<Option<Timestamp>> {
        let mut bound = BoundTexts::default();
        let condition = total_condition(filter, &mut bound);
        let source = self.source_of_totals(filter, total_columns(filter.kind).0, &condition);
        let sql = format!("SELECT toInt64(count()), min(at) FROM ({})", source.build_sql());
        let rows: Vec<(i64, i64)> = self.clickhouse.fetch_rows(&sql, &bound.to_strs()).await?;
        // Without rows, the minimum is 0.
        Ok(rows.first().filter(|(count, _)| *count > 0).map(|(_, first)| Timestamp(*first)))
    }

    async fn count_verified_keys(&mut self, filter: &RollupFilter<'_>) -> Result<i64> {
        let mut bound = BoundTexts::default();
        let condition = rollup_condition(filter, &mut bound);
        let source = self.source_of_rollups(filter, "outcome, key_id", &condition);
        let sql = format!("SELECT toInt64(uniqExact(key_id)) FROM ({})", source.build_sql());
        let rows: Vec<(i64,)> = self.clickhouse.fetch_rows(&sql, &bound.to_strs()).await?;
        Ok(rows.first().map_or(0, |(count,)| *count))
    }

    async fn list_verification_rollups(
        &mut self,
        filter: &RollupFilter<'_>,
    ) -> Result<Vec<RollupRow>> {
        self.fetch_rollups(filter).await
    }

    async fn count_by_region(&mut self, filter: &RollupFilter<'_>) -> Result<Vec<RegionCount>> {
        let mut bound = BoundTexts::default();
        let condition = rollup_condition(filter, &mut bound);
        let source = self.source_of_rollups(filter, "region", &condition);
        let sql = format!(
            "SELECT region, sum(n) FROM ({}) GROUP BY region ORDER BY sum(n) DESC, region",
            source.build_sql()
        );
        let rows: Vec<(String, i64)> = self.clickhouse.fetch_rows(&sql, &bound.to_strs()).await?;
        Ok(rows.into_iter().map(|(region, count)| RegionCount { region, count }).collect())
    }

    async fn list_rollups_with_latencies(
        &mut self,
        filter: &RollupFilter<'_>,
    ) -> Result<Vec<(RollupRow, LatencyHistogram)>> {
        let mut bound = BoundTexts::default();
        let condition = rollup_condition(filter, &mut bound);
        let source = self.source_of_rollups(filter, "bucket", &condition);
        let (rows, found) =
            try_join(self.fetch_rollups(filter), self.list_histograms(&source, &bound)).await?;
        let mut histograms: HashMap<Timestamp, LatencyHistogram> = HashMap::new();
        for (time, histogram) in found {
            let time = if filter.is_by_time { time } else { Timestamp(0) };
            histograms.entry(time).or_default().merge(&histogram);
        }
        let with_latencies = |row: RollupRow| {
            let histogram = histograms.remove(&row.time).unwrap_or_default();
            (row, histogram)
        };
        Ok(rows.into_iter().map(with_latencies).collect())
    }

    async fn list_top_identifiers(
        &mut self,
        filter: &TopIdentifiersFilter<'_>,
    ) -> Result<Vec<IdentifierRow>> {
        let mut bound = BoundTexts::default();
        let mut condition = format!("workspace_id = {}", bound.bind(filter.workspace.as_str()));
        if let Some(namespace) = filter.namespace_id {
            let _ = write!(condition, " AND namespace_id = {}", bound.bind(namespace));
        }
        let source = RollupSource {
            kind: EventKind::Ratelimits,
            unit: filter.unit,
            delivery_snapshot: &self.delivery_snapshot,
            columns: "namespace_id, identifier, passed",
            condition: &condition,
            from: filter.from_time,
            until: filter.until_time,
        };
        let (having, order) = match filter.order {
            IdentifierOrder::Requests => ("", "total DESC"),
            IdentifierOrder::Rejected => (" HAVING rejected > 0", "rejected DESC, total DESC"),
        };
        let sql = format!(
            "SELECT namespace_id, identifier, sum(n) AS total, sumIf(n, passed = 0) AS rejected
            FROM ({}) GROUP BY namespace_id, identifier{having}
            ORDER BY {order}, namespace_id, identifier LIMIT {}",
            source.build_sql(),
            filter.rows_max
        );
        let rows: Vec<(String, String, i64, i64)> =
            self.clickhouse.fetch_rows(&sql, &bound.to_strs()).await?;
        let row = |(namespace_id, identifier, total, rejected)| IdentifierRow {
            namespace_id,
            identifier,
            total,
            rejected,
        };
        Ok(rows.into_iter().map(row).collect())
    }
}

impl ClickHouseReader {
    fn source_of_totals<'a>(
        &'a self,
        filter: &TotalsFilter<'_>,
        columns: &'a str,
        condition: &'a str,
    ) -> RollupSource<'a> {
        RollupSource {
            kind: filter.kind,
            unit: filter.unit,
            delivery_snapshot: &self.delivery_snapshot,
            columns,
            condition,
            from: filter.from_time,
            until: filter.until_time,
        }
    }

    fn source_of_rollups<'a>(
        &'a self,
        filter: &RollupFilter<'_>,
        columns: &'a str,
        condition: &'a str,
    ) -> RollupSource<'a> {
        RollupSource {
            kind: EventKind::Verifications,
            unit: filter.unit,
            delivery_snapshot: &self.delivery_snapshot,
            columns,
            condition,
            from: filter.from_time,
            until: filter.to_time.plus_ms(1),
        }
    }

    /// Returns the groups of a filter, as [`EventReads::list_verification_rollups`].
    async fn fetch_rollups(&self, filter: &RollupFilter<'_>) -> Result<Vec<RollupRow>> {
        let mut bound = BoundTexts::default();
        let condition = rollup_condition(filter, &mut bound);
        let by = filter.grouping;
        let mut columns = vec!["outcome"];
        if by.is_by_key {
            columns.push("key_id");
        }
        if by.is_by_identity {
            columns.extend(["identity_id", "external_id"]);
        }
        if by.by_tags != TagGrouping::None {
            columns.push("tags");
        }
        let columns = columns.join(", ");
        let source = self.source_of_rollups(filter, &columns, &condition);
        // A dimension that is not grouped by is equal in all rows.
        let time = if filter.is_by_time { "at" } else { "toInt64(0)" };
        let column =
            |is_grouped: bool, column: &'static str| if is_grouped { column } else { "''" };
        let tags = match by.by_tags {
            TagGrouping::Each => "[arrayJoin(tags)]",
            TagGrouping::Set => "tags",
            TagGrouping::None => "emptyArrayString()",
        };
        let counts =
            COUNTED_OUTCOMES.map(|outcome| format!("sumIf(n, outcome = '{outcome}')")).join(", ");
        let having = filter.with_outcome.filter(|_| filter.top_by.is_some());
        let having = having.map_or_else(String::new, |outcome| {
            format!(" HAVING sumIf(n, outcome = '{}') > 0", outcome.as_str())
        });
        let order = match filter.top_by {
            None => "",
            Some(TopMeasure::Total) => " ORDER BY sum(n) DESC, k2, k3, k5",
            Some(TopMeasure::Rejected) => " ORDER BY sumIf(n, outcome <> 'VALID') DESC, k2, k3, k5",
            Some(TopMeasure::SpentCredits) => " ORDER BY sum(spent) DESC, k2, k3, k5",
        };
        let sql = format!(
            "SELECT {time} AS k1, {} AS k2, {} AS k3, {} AS k4, {tags} AS k5, {counts}, sum(n), sum(spent), sum(took)
            FROM ({}) GROUP BY k1, k2, k3, k4, k5{having}{order} LIMIT {}",
            column(by.is_by_key, "key_id"),
            column(by.is_by_identity, "identity_id"),
            column(by.is_by_identity, "external_id"),
            source.build_sql(),
            filter.rows_max
        );
        let rows: Vec<RollupTuple> = self.clickhouse.fetch_rows(&sql, &bound.to_strs()).await?;
        let to_row = |row| rollup_row_from_tuple(row, by.by_tags);
        Ok(rows.into_iter().map(to_row).collect())
    }

    /// Returns the histograms of the events of a source by unit of time.
    async fn list_histograms(
        &self,
        source: &RollupSource<'_>,
        bound: &BoundTexts,
    ) -> Result<Vec<(Timestamp, LatencyHistogram)>> {
        let sql = format!(
            "SELECT at, bucket, sum(n) FROM ({}) GROUP BY at, bucket",
            source.build_latencies_sql()
        );
        let rows: Vec<(i64, u8, i64)> = self.clickhouse.fetch_rows(&sql, &bound.to_strs()).await?;
        let mut found: BTreeMap<Timestamp, LatencyHistogram> = BTreeMap::new();
        for (at, bucket, count) in rows {
            found.entry(Timestamp(at)).or_default().add_to_bucket(bucket, count);
        }
        Ok(found.into_iter().collect())
    }
}

/// Returns the columns of the API or namespace, and of the outcome.
fn total_columns(kind: EventKind) -> (&'static str, &'static str) {
    match kind {
        EventKind::Verifications => ("api_id", "outcome"),
        EventKind::Ratelimits => ("namespace_id", "passed"),
    }
}

/// Returns the condition for the events of totals.
fn total_condition(filter: &TotalsFilter<'_>, bound: &mut BoundTexts) -> String {
    let mut condition = format!("workspace_id = {}", bound.bind(filter.workspace.as_str()));
    if let Some(only) = filter.resource_id {
        let (id, _) = total_columns(filter.kind);
        let _ = write!(condition, " AND {id} = {}", bound.bind(only));
    }
    condition
}

fn total_row_from_tuple(row: TotalTuple) -> TotalRow {
    let (time, id, outcome, count, spent_credits, latency_us) = row;
    TotalRow { time: Timestamp(time), id, outcome, count, spent_credits, latency_us }
}

/// Returns the condition for the requested events.
fn rollup_condition(filter: &RollupFilter<'_>, bound: &mut BoundTexts) -> String {
    let mut condition = format!("workspace_id = {}", bound.bind(filter.workspace.as_str()));
    if !filter.api_ids.is_empty() {
        let apis = bound.bind_list(filter.api_ids.iter().map(ApiId::as_str));
        let _ = write!(condition, " AND api_id IN ({apis})");
    }
    if let Some(external_id) = filter.external_id.filter(|id| !id.is_empty()) {
        let _ = write!(condition, " AND external_id = {}", bound.bind(external_id));
    }
    if !filter.key_ids.is_empty() {
        let keys = bound.bind_list(filter.key_ids.iter().map(KeyId::as_str));
        let _ = write!(condition, " AND key_id IN ({keys})");
    }
    if !filter.tags.is_empty() {
        let tags = bound.bind_list(filter.tags.iter().map(String::as_str));
        let _ = write!(condition, " AND hasAll(tags, [{tags}])");
    }
    if let Some(region) = filter.region.filter(|region| !region.is_empty()) {
        let _ = write!(condition, " AND region = {}", bound.bind(region));
    }
    condition
}

fn rollup_row_from_tuple(row: RollupTuple, by_tags: TagGrouping) -> RollupRow {
    let (time, key_id, identity_id, external_id, tags, valid, forbidden, usage_exceeded, ..) = row;
    let (.., rate_limited, disabled, insufficient_permissions, expired, total, spent, took) = row;
    RollupRow {
        time: Timestamp(time),
        key_id,
        identity_id,
        external_id,
        tags: match by_tags {
            TagGrouping::Each => tags.into_iter().next().unwrap_or_default(),
            TagGrouping::None | TagGrouping::Set => json!(tags).to_string(),
        },
        spent_credits: spent,
        latency_us: took,
        counts: OutcomeCounts {
            valid,
            forbidden,
            usage_exceeded,
            rate_limited,
            disabled,
            insufficient_permissions,
            expired,
            total,
        },
    }
}
