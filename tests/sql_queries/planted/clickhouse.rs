//! Creates the same events in ClickHouse: each as a row, with hourly rollups. It adds rows of deliveries that do not
//! count, and rows beyond every retention.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{CHECKED, DAY, HOUR, VERIFIED, mark, repeat};
use crate::support::NOON;
use crate::support::clickhouse::ClickHouseDatabase;

/// The delivery of the hourly rollups; those of the events have the numbers of their batches.
const HOURS: i64 = 3;
/// The deliveries whose rows must never be visible: a void one, and one that is not recorded yet.
const INVISIBLE: [i64; 2] = [super::VOID, super::LAST + 1];

/// The rows of each table.
#[derive(Default)]
struct TableRows {
    rows: BTreeMap<&'static str, String>,
    /// The hourly rollups by table, series and hour.
    hours: BTreeMap<(&'static str, String, i64), Value>,
}

pub async fn create(workspaces: &[super::Workspace]) -> ClickHouseDatabase {
    let warehouse = ClickHouseDatabase::create().await;
    let mut tables = TableRows::default();
    for &(workspace, prefix, times) in workspaces {
        for (id, of, events) in VERIFIED {
            let of = of.map(|text| mark(text, workspace));
            let [api, key, identity, external, outcome, tags] = of;
            let tags: Value = serde_json::from_str(&tags).unwrap();
            let series = json!({ "workspace_id": workspace, "api_id": api, "key_id": key,
                "identity_id": identity, "external_id": external, "outcome": outcome, "tags": tags });
            for (number, (at, batch, credits, latency)) in repeat(events, times) {
                let own = json!({ "request_id": format!("req_{prefix}{id}{number}"),
                    "spent_credits": credits, "latency_us": latency, "region": "here", "reason": "" });
                tables.add("verifications", &series, at, batch, &own);
                let sums = ("verification_hours", "spent_credits", credits);
                tables.sum(sums, &series, at, latency);
            }
        }
        for (id, [namespace, identifier], passed, events) in CHECKED {
            let series = json!({ "workspace_id": workspace, "namespace_id": mark(namespace, workspace),
                "identifier": mark(identifier, workspace), "passed": u8::from(passed) });
            for (number, (at, batch, tokens, max, remaining, by)) in repeat(events, times) {
                let own = json!({ "request_id": format!("req_{prefix}{id}{number}"),
                    "latency_us": 700, "override_id": by, "max": max, "remaining": remaining,
                    "reset_at": NOON.0 + at, "tokens": tokens });
                tables.add("ratelimits", &series, at, batch, &own);
                tables.sum(("ratelimit_hours", "tokens", tokens), &series, at, 700);
            }
        }
    }
    for ((table, ..), sums) in std::mem::take(&mut tables.hours) {
        tables.put(table, &sums, HOURS);
        for delivery in INVISIBLE {
            tables.put(table, &sums, delivery);
        }
    }
    for (table, rows) in tables.rows {
        warehouse.client.insert(table, rows).await.unwrap();
    }
    warehouse
}

impl TableRows {
    fn add(&mut self, table: &'static str, series: &Value, at: i64, delivery: i64, own: &Value) {
        let row = merged(&[series, own, &json!({ "time": NOON.0 + at })]);
        self.put(table, &row, delivery);
        for delivery in INVISIBLE {
            self.put(table, &row, delivery);
        }
        let ancient = merged(&[&row, &json!({ "time": NOON.0 + at - 2_000 * DAY })]);
        self.put(table, &ancient, delivery);
    }

    fn sum(
        &mut self,
        (table, amounts, amount): (&'static str, &str, i64),
        series: &Value,
        at: i64,
        latency: i64,
    ) {
        let hour = (NOON.0 + at) / HOUR * HOUR;
        let sums = self
            .hours
            .entry((table, series.to_string(), hour))
            .or_insert_with(|| merged(&[series, &json!({ "time": hour })]));
        let ends = [100, 500, 1_000, 5_000, 25_000, 100_000];
        let bucket = ends.iter().position(|end| latency <= *end);
        let names = ["100us", "500us", "1ms", "5ms", "25ms", "100ms"];
        let bucket = bucket.map(|bucket| format!("latency_le_{}", names[bucket]));
        let added = [("count", 1), (amounts, amount), ("latency_us", latency)];
        for (name, by) in added.into_iter().chain(bucket.iter().map(|name| (&**name, 1))) {
            sums[name] = (sums[name].as_i64().unwrap_or(0) + by).into();
        }
    }

    fn put(&mut self, table: &'static str, row: &Value, delivery: i64) {
        let row = merged(&[row, &json!({ "delivery": delivery })]);
        let rows = self.rows.entry(table).or_default();
        rows.push_str(&row.to_string());
        rows.push('\n');
    }
}

/// Merges objects into one.
fn merged(parts: &[&Value]) -> Value {
    let fields = parts.iter().flat_map(|part| part.as_object().unwrap().clone());
    Value::Object(fields.collect())
}
