//! Adds rows of another workspace with extreme values: the least and the greatest numbers, empty texts, texts that are
//! almost numbers or JSON, and distant times.

use analytics_sql::SqlDialect;
use serde_json::json;
use sqlx::AssertSqlSafe;

use super::{EventFixture, HOUR, LAST, SERIES_COLUMNS, named, rollup_columns};
use crate::support::NOON;

/// In the year 1, and the last millisecond of the year 9999.
const DISTANT_TIMES: [i64; 2] = [-62_135_596_800_000, 253_402_300_799_999];
const EXTREMES: [i64; 8] = [i64::MIN, i64::MIN + 1, -1, 0, 6, 7, i64::MAX - 1, i64::MAX];
/// Keys, and their external ids.
const TEXTS: [(&str, &str); 5] = [
    ("", ""),
    ("strange", "99999999999999999999"),
    ("a'b\\", "{\"a\": [1, \"x\\u0000\"]}"),
    ("%_", "{not json"),
    ("é\u{1f511}", "1e400"),
];

impl EventFixture {
    pub async fn with_extreme_rows(self) -> Self {
        match &self {
            Self::Postgres { pool, .. } => {
                let sql = insert_statements(SqlDialect::Postgres);
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.unwrap();
            }
            Self::Sqlite { pool, .. } => {
                let sql = insert_statements(SqlDialect::Sqlite);
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.unwrap();
            }
            Self::ClickHouse(warehouse) => {
                for (table, lines) in lines() {
                    warehouse.client.insert(table, lines).await.unwrap();
                }
            }
        }
        self
    }
}

/// Returns when each of the extremes occurred: now, and some at distant times.
fn times() -> impl Iterator<Item = (usize, i64, i64)> {
    let at =
        |index: usize| [NOON.0 - HOUR, NOON.0 - 1, DISTANT_TIMES[0], DISTANT_TIMES[1]][index % 4];
    EXTREMES.into_iter().enumerate().map(move |(index, value)| (index, at(index), value))
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn insert_statements(engine: SqlDialect) -> String {
    let mut sql = Vec::new();
    for (index, (key, external)) in TEXTS.into_iter().enumerate() {
        let series = named(engine, "ee", &format!("0{index}"));
        let (key, external) = (quote(key), quote(external));
        sql.push(format!(
            "INSERT INTO verification_series ({SERIES_COLUMNS}) VALUES ({series}, 'ws_strange', 'api_1', {key}, '', {external}, 'STRANGE', '[\"\",\"eu\"]', 0);"
        ));
        let passed = match engine {
            SqlDialect::Postgres => "TRUE",
            SqlDialect::Sqlite | SqlDialect::ClickHouse => "1",
        };
        sql.push(format!(
            "INSERT INTO ratelimit_series VALUES ({series}, 'ws_strange', 'rlns_1', {key}, {passed}, 0);"
        ));
        for (number, at, value) in times() {
            sql.push(format!(
                "INSERT INTO verifications VALUES ({at}, {series}, {}, 'req_ee{index}{number}', {value}, {value}, '', '');",
                1 + number % 2
            ));
            sql.push(format!(
                "INSERT INTO ratelimits VALUES ({at}, {series}, {}, 'req_ee{index}{number}', {value}, '', {value}, {value}, {value}, {value});",
                1 + number % 2
            ));
            for table in ["verifications", "ratelimits"] {
                let columns = rollup_columns(table);
                for unit in ["minute", "hour", "day", "month"] {
                    let start = at + i64::try_from(number).unwrap() * HOUR;
                    sql.push(format!(
                        "INSERT INTO {table}_per_{unit} ({columns}) VALUES ({series}, {start}, {}, {value}, {value}, 1, 0, 0, 0, 0, 0);",
                        1 + 999_999_999_999_i64 * i64::from(number % 2 == 0)
                    ));
                }
            }
        }
    }
    sql.join("\n")
}

/// Returns the rows for ClickHouse, which limits the range of dates and drops values outside of it.
fn lines() -> [(&'static str, String); 4] {
    let mut tables = [const { String::new() }; 4];
    for (key, external) in TEXTS {
        for (number, at, value) in times() {
            let at = if DISTANT_TIMES.contains(&at) { NOON.0 - 2 * HOUR } else { at };
            let series = json!({ "workspace_id": "ws_strange", "api_id": "api_1", "key_id": key,
                "identity_id": "", "external_id": external, "outcome": "STRANGE", "tags": ["", "eu"],
                "namespace_id": "rlns_1", "identifier": key, "passed": 1, "delivery": LAST });
            let event = json!({ "time": at, "request_id": format!("req_ee{number}"), "spent_credits": value,
                "latency_us": value, "region": "", "reason": "", "override_id": "", "max": value,
                "remaining": value, "reset_at": value, "tokens": value });
            let hour = json!({ "time": at / HOUR * HOUR, "count": 1, "spent_credits": value,
                "tokens": value, "latency_us": value, "latency_le_100us": 1 });
            let kinds = [
                ["api_id", "key_id", "identity_id", "external_id", "outcome", "tags"].as_slice(),
                ["namespace_id", "identifier", "passed"].as_slice(),
            ];
            let own = [
                ["request_id", "spent_credits", "latency_us", "region", "reason"].as_slice(),
                [
                    "request_id",
                    "latency_us",
                    "override_id",
                    "max",
                    "remaining",
                    "reset_at",
                    "tokens",
                ]
                .as_slice(),
            ];
            let sums = [["spent_credits"].as_slice(), ["tokens"].as_slice()];
            for kind in 0..2 {
                let all = ["workspace_id", "delivery"];
                let names = all.iter().chain(kinds[kind]);
                let common: serde_json::Map<_, _> =
                    names.map(|name| ((*name).to_owned(), series[*name].clone())).collect();
                let with = |names: &[&str], of: &serde_json::Value| {
                    let mut row = common.clone();
                    for name in names.iter().chain(&["time"]) {
                        row.insert((*name).to_owned(), of[*name].clone());
                    }
                    format!("{}\n", serde_json::Value::Object(row))
                };
                tables[kind].push_str(&with(own[kind], &event));
                let counted = ["count", "latency_us", "latency_le_100us"];
                tables[2 + kind].push_str(&with(&[sums[kind], &counted].concat(), &hour));
            }
        }
    }
    let [verifications, ratelimits, verification_hours, ratelimit_hours] = tables;
    [
        ("verifications", verifications),
        ("ratelimits", ratelimits),
        ("verification_hours", verification_hours),
        ("ratelimit_hours", ratelimit_hours),
    ]
}
