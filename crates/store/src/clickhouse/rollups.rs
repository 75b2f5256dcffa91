//! Reads rollups and totals in ClickHouse.

use std::fmt::Write as _;

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{ApiId, KeyId};
use foundation::model::EventKind;
use serde_json::json;

use super::Reader;
use super::source::Source;
use crate::events::{Counts, EventReads, RollupFilter, RollupRow, TotalRow, TotalsFilter};

/// Collects bound texts, and returns the placeholders that stand for them.
#[derive(Default)]
struct Bound(Vec<String>);

impl Bound {
    fn text(&mut self, text: &str) -> String {
        self.0.push(text.to_owned());
        format!("${}", self.0.len())
    }

    fn list<'t>(&mut self, texts: impl Iterator<Item = &'t str>) -> String {
        texts.map(|text| self.text(text)).collect::<Vec<_>>().join(", ")
    }

    fn texts(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }
}

/// The outcomes in the order of [`Counts`].
const OUTCOMES: [&str; 7] = [
    "VALID",
    "FORBIDDEN",
    "USAGE_EXCEEDED",
    "RATE_LIMITED",
    "DISABLED",
    "INSUFFICIENT_PERMISSIONS",
    "EXPIRED",
];

type Total = (i64, String, String, i64, i64, i64, i64, i64, i64, i64, i64);

type Sums = (i64, String, String, String, Vec<String>, i64, i64, i64, i64, i64, i64, i64, i64);

#[async_trait]
impl EventReads for Reader {
    async fn totals(&mut self, filter: &TotalsFilter<'_>) -> Result<Vec<TotalRow>> {
        let (id, outcome) = match filter.kind {
            EventKind::Verifications => ("api_id", "outcome"),
            EventKind::Ratelimits => ("namespace_id", "passed"),
        };
        let mut bound = Bound::default();
        let mut condition = format!("workspace_id = {}", bound.text(filter.workspace.as_str()));
        if let Some(only) = filter.only {
            let _ = write!(condition, " AND {id} = {}", bound.text(only));
        }
        let columns = format!("{id}, {outcome}");
        let source = Source {
            kind: filter.kind,
            unit: filter.unit,
            delivered: &self.delivered,
            columns: &columns,
            condition: &condition,
            from: filter.from,
            until: filter.until,
        };
        let time = if filter.by_id { "toInt64(0)" } else { "at" };
        let id_column = if filter.by_id { id } else { "''" };
        let outcome_column = match filter.kind {
            EventKind::Verifications => outcome,
            EventKind::Ratelimits => "if(passed = 1, 'true', 'false')",
        };
        let sql = format!(
            "SELECT {time} AS k1, {id_column} AS k2, {outcome_column} AS k3, sum(n), sum(took), sum(b0),
                sum(b1), sum(b2), sum(b3), sum(b4), sum(b5)
            FROM ({}) GROUP BY k1, k2, k3",
            source.sql()
        );
        let rows: Vec<Total> = self.clickhouse.rows(&sql, &bound.texts()).await?;
        let to_row = |(time, id, outcome, count, latency_us, a, b, c, d, e, f): Total| TotalRow {
            time: Timestamp(time),
            id,
            outcome,
            count,
            latency_us,
            latencies: [a, b, c, d, e, f].into(),
        };
        Ok(rows.into_iter().map(to_row).collect())
    }

    async fn verification_sums(&mut self, filter: &RollupFilter<'_>) -> Result<Vec<RollupRow>> {
        if filter.apis.is_empty() {
            return Ok(Vec::new());
        }
        let mut bound = Bound::default();
        let condition = condition(filter, &mut bound);
        let by = filter.by;
        let mut columns = vec!["outcome"];
        if by.key {
            columns.push("key_id");
        }
        if by.identity {
            columns.extend(["identity_id", "external_id"]);
        }
        if by.tags {
            columns.push("tags");
        }
        let source = Source {
            kind: EventKind::Verifications,
            unit: filter.unit,
            delivered: &self.delivered,
            columns: &columns.join(", "),
            condition: &condition,
            from: filter.from,
            until: filter.to.plus_ms(1),
        };
        // A dimension that is not grouped by is equal in all rows.
        let time = if filter.by_time { "at" } else { "toInt64(0)" };
        let column =
            |is_grouped: bool, column: &'static str| if is_grouped { column } else { "''" };
        let tags = if by.tags { "tags" } else { "emptyArrayString()" };
        let counts = OUTCOMES.map(|outcome| format!("sumIf(n, outcome = '{outcome}')")).join(", ");
        let sql = format!(
            "SELECT {time} AS k1, {} AS k2, {} AS k3, {} AS k4, {tags} AS k5, {counts}, sum(n)
            FROM ({}) GROUP BY k1, k2, k3, k4, k5 LIMIT {}",
            column(by.key, "key_id"),
            column(by.identity, "identity_id"),
            column(by.identity, "external_id"),
            source.sql(),
            filter.max
        );
        let rows: Vec<Sums> = self.clickhouse.rows(&sql, &bound.texts()).await?;
        Ok(rows.into_iter().map(rollup_row_from_tuple).collect())
    }
}

/// Returns the condition for the requested events.
fn condition(filter: &RollupFilter<'_>, bound: &mut Bound) -> String {
    let mut condition = format!(
        "workspace_id = {} AND api_id IN ({})",
        bound.text(filter.workspace.as_str()),
        bound.list(filter.apis.iter().map(ApiId::as_str))
    );
    if let Some(external_id) = filter.external_id.filter(|id| !id.is_empty()) {
        let _ = write!(condition, " AND external_id = {}", bound.text(external_id));
    }
    if !filter.keys.is_empty() {
        let keys = bound.list(filter.keys.iter().map(KeyId::as_str));
        let _ = write!(condition, " AND key_id IN ({keys})");
    }
    if !filter.tags.is_empty() {
        let tags = bound.list(filter.tags.iter().map(String::as_str));
        let _ = write!(condition, " AND hasAll(tags, [{tags}])");
    }
    condition
}

fn rollup_row_from_tuple(row: Sums) -> RollupRow {
    let (time, key_id, identity_id, external_id, tags, valid, forbidden, usage_exceeded, ..) = row;
    let (.., rate_limited, disabled, insufficient_permissions, expired, total) = row;
    RollupRow {
        time: Timestamp(time),
        key_id,
        identity_id,
        external_id,
        tags: json!(tags).to_string(),
        counts: Counts {
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
