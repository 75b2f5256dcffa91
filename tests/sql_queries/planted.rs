//! Provides the events that the queries select from, in two workspaces with the same objects.

mod clickhouse;
mod extreme_rows;

use analytics_sql::SqlDialect;
use foundation::model::DeliverySnapshot;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, PgPool, SqlitePool};

use crate::support::NOON;
use crate::support::clickhouse::ClickHouseDatabase;
use crate::support::database::Database;

pub enum EventFixture {
    Postgres { pool: PgPool, _database: Database },
    Sqlite { pool: SqlitePool, _directory: tempfile::TempDir },
    ClickHouse(Box<ClickHouseDatabase>),
}

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// The last delivery to ClickHouse that counts, and a void one before it.
const LAST: i64 = 5;
const VOID: i64 = 4;

/// Returns which of ClickHouse's rows count: the rollups of the days before this one, and the events of this one.
pub fn delivered() -> DeliverySnapshot {
    DeliverySnapshot {
        last_delivery: LAST,
        void_deliveries: vec![VOID],
        rolled_up_until_ms: NOON.0 / DAY * DAY,
    }
}

impl EventFixture {
    pub fn engine(&self) -> SqlDialect {
        match self {
            Self::Postgres { .. } => SqlDialect::Postgres,
            Self::Sqlite { .. } => SqlDialect::Sqlite,
            Self::ClickHouse(_) => SqlDialect::ClickHouse,
        }
    }

    pub async fn postgres() -> Self {
        Self::postgres_with(Database::empty().await, &WORKSPACES).await
    }

    /// Creates the rows in a database that orders texts as in English.
    pub async fn postgres_with_locale() -> Self {
        Self::postgres_with(Database::with_locale().await, &WORKSPACES).await
    }

    /// Creates the rows of one workspace only.
    pub async fn postgres_alone() -> Self {
        Self::postgres_with(Database::empty().await, &WORKSPACES[..1]).await
    }

    async fn postgres_with(database: Database, workspaces: &[Workspace]) -> Self {
        let options: PgConnectOptions = database.url.parse().unwrap();
        let options = options.options([("search_path", "keyward_events")]);
        let pool = PgPoolOptions::new().max_connections(2).connect_with(options).await.unwrap();
        let (schema, rows) =
            (schema("postgres"), insert_statements(SqlDialect::Postgres, workspaces));
        let sql = format!("CREATE SCHEMA keyward_events; {schema}; {rows}");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.unwrap();
        Self::Postgres { pool, _database: database }
    }

    pub async fn sqlite() -> Self {
        Self::sqlite_with(&WORKSPACES).await
    }

    pub async fn sqlite_alone() -> Self {
        Self::sqlite_with(&WORKSPACES[..1]).await
    }

    async fn sqlite_with(workspaces: &[Workspace]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keyward-events.db");
        let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
        let pool = SqlitePoolOptions::new().max_connections(2).connect_with(options).await.unwrap();
        let sql =
            format!("{}; {}", schema("sqlite"), insert_statements(SqlDialect::Sqlite, workspaces));
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.unwrap();
        Self::Sqlite { pool, _directory: directory }
    }

    pub async fn clickhouse() -> Self {
        Self::ClickHouse(Box::new(clickhouse::create(&WORKSPACES).await))
    }

    pub async fn clickhouse_alone() -> Self {
        Self::ClickHouse(Box::new(clickhouse::create(&WORKSPACES[..1]).await))
    }
}

/// The id of a workspace, the prefix of its series, and how often it has each event.
type Workspace = (&'static str, &'static str, usize);

/// The other workspace has many more events, so that a leak is noticed.
const WORKSPACES: [Workspace; 2] = [("ws_mine", "00", 1), ("ws_theirs", "ff", 7)];

/// Returns every migration of the tables of events.
fn schema(engine: &str) -> String {
    let folder = std::fs::read_dir(format!("migrations/events/{engine}")).unwrap();
    let mut files: Vec<_> = folder.map(|file| file.unwrap().path()).collect();
    files.sort();
    let files = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
    files.collect::<Vec<_>>().join(";\n")
}

/// A series of verifications: its API, key, identity, external id, outcome and tags; and its events: time, batch,
/// credits, latency in microseconds.
type VerificationSeries = (&'static str, [&'static str; 6], &'static [(i64, i64, i64, i64)]);

const VERIFIED: [VerificationSeries; 3] = [
    (
        "a1",
        ["api_1", "key_1", "id_1", "user_1", "VALID", r#"["eu","paid"]"#],
        &[(-2 * HOUR, 1, 1, 50), (-2 * HOUR + MINUTE, 1, 1, 400), (-HOUR, 2, 2, 900)],
    ),
    (
        "b2",
        ["api_1", "key_1", "id_1", "user_1", "RATE_LIMITED", r#"["eu"]"#],
        &[(-HOUR + SECOND, 2, 0, 4_000)],
    ),
    (
        "c3",
        ["api_2", "key_2", "", "", "VALID", "[]"],
        &[(-DAY - HOUR, 1, 5, 20_000), (-MINUTE, 2, 5, 200_000)],
    ),
];

/// A series of checks: its namespace, identifier and whether they passed; and its events: time, batch, tokens, limit,
/// remaining, override.
type CheckSeries =
    (&'static str, [&'static str; 2], bool, &'static [(i64, i64, i64, i64, i64, &'static str)]);

const CHECKED: [CheckSeries; 3] = [
    (
        "d4",
        ["rlns_1", "alice"],
        true,
        &[(-10 * MINUTE, 1, 1, 10, 9, ""), (-9 * MINUTE, 2, 2, 10, 7, "")],
    ),
    ("e5", ["rlns_1", "alice"], false, &[(-8 * MINUTE, 2, 50, 10, 0, "")]),
    ("f6", ["rlns_2", "bob"], true, &[(-30 * MINUTE, 1, 1, 5, 4, "rlor_1")]),
];

/// Returns the statements for Postgres or SQLite.
fn insert_statements(engine: SqlDialect, workspaces: &[Workspace]) -> String {
    let mut sql = Vec::new();
    let truth = |is_true: bool| match engine {
        SqlDialect::Postgres => is_true.to_string(),
        SqlDialect::Sqlite | SqlDialect::ClickHouse => i32::from(is_true).to_string(),
    };
    for (id, summed) in [(1, true), (2, false)] {
        let summed = truth(summed);
        let overriding =
            if engine == SqlDialect::Postgres { "OVERRIDING SYSTEM VALUE " } else { "" };
        sql.push(format!(
            "INSERT INTO batches (id, name, region, written_at, first_at, last_at, summed) {overriding}VALUES ({id}, 'r/{id}', 'here', 0, 0, {}, {summed});",
            NOON.0
        ));
    }
    for &(workspace, prefix, times) in workspaces {
        for (id, of, events) in VERIFIED {
            let series = named(engine, prefix, id);
            let of = of.map(|text| mark(text, workspace)).join("', '");
            sql.push(format!(
                "INSERT INTO verification_series ({SERIES_COLUMNS}) VALUES ({series}, '{workspace}', '{of}', 0);"
            ));
            for (number, (at, batch, credits, latency)) in repeat(events, times) {
                let at = NOON.0 + at;
                sql.push(format!(
                    "INSERT INTO verifications VALUES ({at}, {series}, {batch}, 'req_{prefix}{id}{number}', {credits}, {latency}, 'here', '');"
                ));
                if batch == 1 {
                    sum(&mut sql, "verifications", &series, at, credits, latency);
                }
            }
        }
        for (id, of, passed, events) in CHECKED {
            let series = named(engine, prefix, id);
            let (of, passed) = (of.map(|text| mark(text, workspace)).join("', '"), truth(passed));
            sql.push(format!(
                "INSERT INTO ratelimit_series VALUES ({series}, '{workspace}', '{of}', {passed}, 0);"
            ));
            for (number, (at, batch, tokens, max, remaining, by)) in repeat(events, times) {
                let at = NOON.0 + at;
                sql.push(format!(
                    "INSERT INTO ratelimits VALUES ({at}, {series}, {batch}, 'req_{prefix}{id}{number}', 700, '{by}', {max}, {remaining}, {at}, {tokens});"
                ));
                if batch == 1 {
                    sum(&mut sql, "ratelimits", &series, at, tokens, 700);
                }
            }
        }
    }
    sql.join("\n")
}

fn named(engine: SqlDialect, prefix: &str, id: &str) -> String {
    match engine {
        SqlDialect::Postgres => format!("'\\x{prefix}{id}'::bytea"),
        SqlDialect::Sqlite | SqlDialect::ClickHouse => format!("x'{prefix}{id}'"),
    }
}

/// The other workspace has the same APIs and namespaces, which cannot happen in production, and other keys.
fn mark(text: &str, workspace: &str) -> String {
    match text {
        "key_1" | "key_2" | "alice" | "bob" if workspace == "ws_theirs" => format!("stolen_{text}"),
        text => text.to_owned(),
    }
}

fn repeat<T: Copy>(events: &[T], times: usize) -> impl Iterator<Item = (usize, T)> {
    events.iter().copied().cycle().take(events.len() * times).enumerate()
}

const SERIES_COLUMNS: &str =
    "id, workspace_id, api_id, key_id, identity_id, external_id, outcome, tags, seen_at";
const LATENCIES: [&str; 6] = ["100us", "500us", "1ms", "5ms", "25ms", "100ms"];

fn rollup_columns(table: &str) -> String {
    let amount = if table == "verifications" { "spent_credits" } else { "tokens" };
    let latencies = LATENCIES.map(|le| format!("latency_le_{le}")).join(", ");
    format!("series, time, count, {amount}, latency_us, {latencies}")
}

fn sum(sql: &mut Vec<String>, table: &str, series: &str, at: i64, amount: i64, latency: i64) {
    let amounts = if table == "verifications" { "spent_credits" } else { "tokens" };
    let month = 1_772_323_200_000_i64; // 2026-03-01
    let units = [
        ("minute", at / MINUTE * MINUTE),
        ("hour", at / HOUR * HOUR),
        ("day", at / DAY * DAY),
        ("month", month),
    ];
    let ends = [100, 500, 1_000, 5_000, 25_000, 100_000];
    let bucket = ends.iter().position(|end| latency <= *end);
    let buckets: Vec<_> =
        (0..6).map(|index| i32::from(bucket == Some(index)).to_string()).collect();
    for (unit, start) in units {
        let columns = rollup_columns(table);
        let sums = LATENCIES
            .map(|le| format!("latency_le_{le} = {table}_per_{unit}.latency_le_{le} + excluded.latency_le_{le}"))
            .join(", ");
        sql.push(format!(
            "INSERT INTO {table}_per_{unit} ({columns}) VALUES ({series}, {start}, 1, {amount}, {latency}, {}) ON CONFLICT (series, time) DO UPDATE SET count = {table}_per_{unit}.count + 1, {amounts} = {table}_per_{unit}.{amounts} + excluded.{amounts}, latency_us = {table}_per_{unit}.latency_us + excluded.latency_us, {sums};",
            buckets.join(", ")
        ));
    }
}
