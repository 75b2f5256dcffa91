//! Fuzzes SQL queries: any text is rejected, or becomes a query that SQLite can prepare and that reads only the public
//! tables; in ClickHouse, only visible rows.

use std::panic::{RefUnwindSafe, UnwindSafe};

use analytics_sql::{Family, QueryContext, RowScope, SqlDialect};
use foundation::error::Error;
use foundation::model::{DeliverySnapshot, Retention};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _, SqlSafeStr as _, SqliteConnection};
use tokio::runtime::Runtime;

use crate::compose;
use crate::growth::Growth;

const PIECES: &[&str] = &[
    "SELECT ",
    " FROM ",
    "key_verifications_v1",
    "key_verifications_per_day_v1",
    " WHERE ",
    " GROUP BY ",
    " ORDER BY ",
    " LIMIT ",
    " UNION ALL ",
    "WITH x AS (",
    "(",
    ")",
    ", ",
    " AS ",
    "x",
    "key_id",
    "time",
    "tags",
    "count()",
    "sum(",
    "1",
    "'mark'",
    " = ",
    " + ",
    " AND ",
    " OVER (",
    "PARTITION BY ",
    "arrayJoin(",
    "now()",
    " - INTERVAL 1 DAY",
    "*",
    ".",
    "verifications",
    " JOIN ",
    " ON ",
    "CASE WHEN ",
    " THEN ",
    " END",
    "--",
    "/*",
    "*/",
    ";",
    "\"",
    "`",
    "'",
    "\\",
    "$1",
    "::Int64",
    " IN ",
    " -> ",
    "[",
    "]",
    "{",
    "}",
    "é",
    "SETTINGS ",
    " EXCEPT ",
];

#[test]
fn text_is_rejected_or_compiled() {
    let mut database = Database::new();
    bolero::check!(name = "sql_queries").for_each(|bytes: &[u8]| {
        database.assert_safe(&String::from_utf8_lossy(bytes));
        database.assert_safe(&compose(bytes, PIECES).concat());
        database.assert_safe(&format!(
            "SELECT {} FROM key_verifications_v1",
            compose(bytes, PIECES).concat()
        ));
    });
}

#[test]
fn generated_query_is_compiled() {
    let mut database = Database::new();
    bolero::check!(name = "sql_queries").for_each(|bytes: &[u8]| {
        let text = Growth::new(bytes).query(2);
        database.assert_safe(&text);
        // A single random edit of it.
        let slip = bytes.iter().fold(0, |sum, byte| sum + usize::from(*byte)) % text.len();
        database.assert_safe(&format!("{}{}", &text[..slip], &text[slip + 1..]));
        database.assert_safe(&format!("{}){}", &text[..slip], &text[slip..]));
    });
    assert!(database.accepted > 0);
}

/// SQLite with empty tables of events.
struct Database {
    runtime: Runtime,
    connection: SqliteConnection,
    accepted: usize,
}

/// A failure ends the run, so no inconsistent state is used.
impl UnwindSafe for Database {}
impl RefUnwindSafe for Database {}

impl Database {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let connection = runtime.block_on(async {
            let options = sqlx::sqlite::SqliteConnectOptions::new().in_memory(true);
            let mut connection = options.connect().await.unwrap();
            let schema = include_str!("../../migrations/events/sqlite/0001_events.sql");
            connection.execute(schema).await.unwrap();
            connection
        });
        Self { runtime, connection, accepted: 0 }
    }

    fn assert_safe(&mut self, text: &str) {
        for family in [Family::Verifications, Family::Ratelimits] {
            let context = QueryContext {
                family,
                row_scope: RowScope {
                    workspace_id: "ws_mark".into(),
                    resource_ids: Some(vec!["mark".into()]),
                },
                now_ms: 1_773_144_000_000,
                retention: Retention {
                    raw_days: 90,
                    minute_days: 90,
                    hour_days: 90,
                    day_days: 365,
                    month_days: 1095,
                },
                rows_max: 10,
                nested_rows_max: None,
                delivery_snapshot: DeliverySnapshot {
                    last_delivery: 7,
                    void_deliveries: vec![3, 5],
                    rolled_up_until_ms: 1_773_100_800_000,
                },
            };
            for engine in [SqlDialect::Postgres, SqlDialect::Sqlite, SqlDialect::ClickHouse] {
                match analytics_sql::compile(text, engine, &context) {
                    Err(Error::AnalyticsQuery(_, message)) => {
                        assert!(message.len() < 600, "{message}");
                    }
                    Err(other) => panic!("{text:?}: {other:?}"),
                    Ok(compiled) if engine == SqlDialect::ClickHouse => {
                        assert_reads_restricted(text, &compiled.query.sql);
                    }
                    Ok(compiled) => self.assert_query_safe(text, engine, &compiled.query.sql),
                }
            }
        }
    }

    fn assert_query_safe(&mut self, text: &str, engine: SqlDialect, query: &str) {
        self.accepted += 1;
        let count = |words: &str| query.matches(words).count();
        // Every read of a table is restricted to its workspace's rows, and behind a fence.
        let reads = count("_series s ON s.id = v.series WHERE s.workspace_id = CAST($");
        assert!(reads > 0, "{text:?} became {query}");
        for words in ["_series ", "(SELECT * FROM (SELECT v.", "OFFSET 0) AS t"] {
            assert_eq!(count(words), reads, "{words} in what {text:?} became: {query}");
        }
        // The only function of Postgres' own that a query calls, for lists and rows before they are converted to text.
        let called = query.replace("pg_column_size(", "");
        for own in ["mark", "sqlite_", "pg_"] {
            assert!(!called.contains(own), "{text:?} became {query}");
        }
        assert!(query.is_ascii(), "{query}");
        if engine == SqlDialect::Sqlite {
            let sql = AssertSqlSafe(query.to_owned()).into_sql_str();
            let prepared = self.runtime.block_on(self.connection.prepare(sql));
            assert!(prepared.is_ok(), "{text:?} became {query}: {:?}", prepared.err());
        }
    }
}

/// Everything that ClickHouse reads is restricted by the conditions on visible rows.
fn assert_reads_restricted(text: &str, query: &str) {
    let count = |words: &str| query.matches(words).count();
    let tables = ["verifications", "verification_hours", "ratelimits", "ratelimit_hours"];
    let reads = tables.map(|table| count(&format!("FROM {table} WHERE workspace_id = $")));
    let reads: usize = reads.iter().sum();
    assert!(reads > 0, "{text:?} became {query}");
    for (words, times) in [
        ("verification", count("FROM verification")),
        ("ratelimit", count("FROM ratelimit")),
        ("FROM ", reads + count("FROM (")),
        (" LIMIT 1000000000000) AS t", count("(SELECT * FROM (SELECT ")),
        (" AND delivery <= 7 AND delivery NOT IN (3, 5) AND ", reads),
        ("_id IN ($", reads),
        ("mark", 0),
    ] {
        assert_eq!(count(words), times, "{words} in what {text:?} became: {query}");
    }
    assert!(query.is_ascii(), "{query}");
}
