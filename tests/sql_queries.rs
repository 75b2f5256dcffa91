//! Tests SQL queries on events: their results, rejections, and the isolation of workspaces. Every query of the corpus
//! runs on every engine; all hold the same events of two workspaces.

mod bounds;
mod compiler_bounds;
mod growth;
mod isolation;
mod memory;
mod planted;

use analytics_sql::{Family, QueryContext, RowScope, SqlDialect};
use foundation::error::{Error, Result};
use foundation::model::Retention;
use planted::EventFixture;
use serde_json::Value;
use store::analytics_query::{self, QueryLimits};

use crate::support::NOON;

const VALID_QUERIES: &str = "tests/sql_queries/good.txt";
const ATTACKS: &str = "tests/sql_queries/attacks.txt";

fn query_context(family: Family) -> QueryContext {
    QueryContext {
        family,
        row_scope: RowScope { workspace_id: "ws_mine".into(), resource_ids: None },
        now_ms: NOON.0,
        retention: Retention {
            raw_days: 90,
            minute_days: 90,
            hour_days: 90,
            day_days: 365,
            month_days: 1095,
        },
        rows_max: 10_000,
        nested_rows_max: None,
        delivery_snapshot: planted::delivered(),
    }
}

fn query_limits() -> QueryLimits {
    analytics::sql_query::QUERY_LIMITS
}

/// Returns the family of the first table that the text names.
fn family(text: &str) -> Family {
    match text.find("ratelimits_").zip(text.find("key_verifications_")) {
        Some((a, b)) if a < b => Family::Ratelimits,
        None if text.contains("ratelimits_") => Family::Ratelimits,
        _ => Family::Verifications,
    }
}

#[expect(clippy::disallowed_methods, reason = "the fixture has a pool, and no store")]
async fn run_query(
    planted: &EventFixture,
    text: &str,
    context: &QueryContext,
    bounds: &QueryLimits,
) -> Result<Value> {
    let compiled = analytics_sql::compile(text, planted.engine(), context)?;
    let rows = match planted {
        EventFixture::Postgres { pool, .. } => {
            analytics_query::query_postgres(pool.begin().await?, &compiled.query, bounds).await?
        }
        EventFixture::Sqlite { pool, .. } => {
            analytics_query::query_sqlite(pool, &compiled.query, bounds).await?
        }
        EventFixture::ClickHouse(warehouse) => {
            warehouse.client.run_query(&compiled.query, bounds).await?
        }
    };
    let objects = rows.iter().map(|row| analytics_sql::row_to_object(&compiled.columns, row));
    let objects = objects.collect::<Result<Vec<_>>>()?;
    Ok(serde_json::from_str(&serde_json::to_string(&objects).unwrap()).unwrap())
}

/// Returns the blocks of a corpus, except headings, which begin with `#`.
fn blocks(path: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text.split("\n\n").map(|block| block.trim().to_owned());
    blocks.filter(|block| !block.is_empty() && !block.starts_with('#')).collect()
}

/// A query of the corpus and its expected result.
struct ExpectedResult<'b> {
    text: &'b str,
    rows: Value,
    may_be_too_old: bool,
}

/// An engine may have its own expected rows, and ClickHouse may be too old for the query.
fn parse_expected(block: &str, engine: SqlDialect) -> ExpectedResult<'_> {
    let (text, answers) = block.split_once("\n-> ").expect("a query has a result");
    let own = match engine {
        SqlDialect::Postgres => "postgres-> ",
        SqlDialect::Sqlite => "sqlite-> ",
        SqlDialect::ClickHouse => "clickhouse-> ",
    };
    let own = answers.lines().find_map(|line| line.strip_prefix(own));
    let may_be_too_old = own == Some("too old");
    let usual = answers.lines().next().unwrap_or_default();
    let rows = own.filter(|_| !may_be_too_old).unwrap_or(usual);
    let rows = serde_json::from_str(rows).unwrap_or_else(|e| panic!("{e}: {block}"));
    ExpectedResult { text, rows, may_be_too_old }
}

async fn assert_valid_queries_are_answered(planted: EventFixture) {
    let mut faults = Vec::new();
    for block in blocks(VALID_QUERIES) {
        let ExpectedResult { text, rows: expected, may_be_too_old } =
            parse_expected(&block, planted.engine());
        let result = run_query(&planted, text, &query_context(family(text)), &query_limits()).await;
        match result {
            Ok(result) if result == expected => {}
            Err(e) if may_be_too_old && e.to_string().contains("too old for this query") => {}
            Ok(result) => faults.push(format!("{text}\n   is {result}\n  not {expected}\n\n")),
            Err(e) => {
                let sql =
                    analytics_sql::compile(text, planted.engine(), &query_context(family(text)));
                let sql = sql.map(|compiled| compiled.query.sql).unwrap_or_default();
                faults.push(format!("{text}\n   {}: {e}\n   {sql}\n\n", e.code().name()));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.concat());
}

#[tokio::test]
async fn postgres_answers_every_valid_query() {
    assert_valid_queries_are_answered(EventFixture::postgres().await).await;
}

#[tokio::test]
async fn postgres_answers_every_valid_query_when_database_has_a_locale() {
    assert_valid_queries_are_answered(EventFixture::postgres_with_locale().await).await;
}

#[tokio::test]
async fn sqlite_answers_every_valid_query() {
    assert_valid_queries_are_answered(EventFixture::sqlite().await).await;
}

#[tokio::test]
async fn clickhouse_answers_every_valid_query() {
    assert_valid_queries_are_answered(EventFixture::clickhouse().await).await;
}

#[test]
fn compiler_rejects_every_attack_with_its_error() {
    let mut faults = Vec::new();
    for block in blocks(ATTACKS) {
        let (text, name) = block.split_once("\n-> ").expect("an attack has a name");
        for engine in [SqlDialect::Postgres, SqlDialect::Sqlite, SqlDialect::ClickHouse] {
            let result = match analytics_sql::compile(text, engine, &query_context(family(text))) {
                Ok(compiled) => format!("accepted: {}", compiled.query.sql),
                Err(e) if e.code().name() == name => continue,
                Err(e) => format!("{}: {e}", e.code().name()),
            };
            faults.push(format!("{text}\n   not {name}\n   {result}\n\n"));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.concat());
}

#[test]
fn query_scope_contains_only_permitted_apis() {
    let mut context = query_context(Family::Verifications);
    context.row_scope.resource_ids = Some(vec!["api_2'".into(), "api_2".into()]);

    let compiled = analytics_sql::compile(
        "SELECT key_id FROM key_verifications_v1",
        SqlDialect::Postgres,
        &context,
    );

    let query = compiled.unwrap().query;
    assert!(!query.sql.contains("api_2"), "{}", query.sql);
    assert_eq!(query.parameters.len(), 2);
}

async fn assert_sees_only_its_apis(planted: EventFixture) {
    let mut only = query_context(Family::Verifications);
    only.row_scope.resource_ids = Some(vec!["api_2".into(), "api_3".into()]);
    let mut nothing = only.clone();
    nothing.row_scope.resource_ids = Some(Vec::new());
    let mut limits = query_context(Family::Ratelimits);
    limits.row_scope.resource_ids = Some(vec!["rlns_2".into()]);
    let keys = "SELECT DISTINCT key_id FROM key_verifications_v1";
    let sums = "SELECT sum(count) AS n FROM key_verifications_per_day_v1";
    let names = "SELECT identifier, total FROM ratelimits_per_day_v1";

    let seen =
        async |text, context| run_query(&planted, text, context, &query_limits()).await.unwrap();

    assert_eq!(seen(keys, &only).await, serde_json::json!([{ "key_id": "key_2" }]));
    assert_eq!(seen(keys, &nothing).await, serde_json::json!([]));
    assert_eq!(seen(sums, &only).await, serde_json::json!([{ "n": 2 }]));
    assert_eq!(seen(sums, &nothing).await, serde_json::json!([{ "n": 0 }]));
    assert_eq!(
        seen(names, &limits).await,
        serde_json::json!([{ "identifier": "bob", "total": 1 }])
    );
}

#[tokio::test]
async fn postgres_returns_only_permitted_apis() {
    assert_sees_only_its_apis(EventFixture::postgres().await).await;
}

#[tokio::test]
async fn sqlite_returns_only_permitted_apis() {
    assert_sees_only_its_apis(EventFixture::sqlite().await).await;
}

#[tokio::test]
async fn clickhouse_returns_only_permitted_apis() {
    assert_sees_only_its_apis(EventFixture::clickhouse().await).await;
}

async fn assert_failure_reveals_nothing(planted: EventFixture) {
    for text in [
        "SELECT toInt64(1e300) AS x FROM key_verifications_v1",
        "SELECT spent_credits * 9223372036854775807 AS x FROM key_verifications_v1",
        "SELECT sum(9223372036854775807) AS x FROM key_verifications_v1",
        "SELECT JSONExtractString('not json', 'a') AS x FROM key_verifications_v1",
        "SELECT count() AS x FROM key_verifications_v1 WHERE outcome = (SELECT outcome FROM key_verifications_v1)",
        "SELECT DISTINCT key_id FROM key_verifications_v1 ORDER BY outcome",
        "SELECT time + toIntervalMonth(spent_credits * 100000000000) AS x FROM key_verifications_per_day_v1",
    ] {
        match run_query(&planted, text, &query_context(Family::Verifications), &query_limits())
            .await
        {
            Ok(_) => {}
            Err(Error::AnalyticsQuery(_, result)) => {
                for word in ["SELECT", "CAST", "json", "verification_series", "ws_mine", "$"] {
                    assert!(!result.contains(word), "{text}: {result}");
                }
            }
            Err(other) => panic!("{text}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn postgres_failure_reveals_nothing_of_the_compiled_query() {
    assert_failure_reveals_nothing(EventFixture::postgres().await).await;
}

#[tokio::test]
async fn sqlite_failure_reveals_nothing_of_the_compiled_query() {
    assert_failure_reveals_nothing(EventFixture::sqlite().await).await;
}

#[tokio::test]
async fn clickhouse_failure_reveals_nothing_of_the_compiled_query() {
    assert_failure_reveals_nothing(EventFixture::clickhouse().await).await;
}

#[tokio::test]
async fn clickhouse_rollups_are_equal_wherever_the_hourly_rollup_stops() {
    let planted = EventFixture::clickhouse().await;
    for text in [
        "SELECT * FROM key_verifications_per_hour_v1 ORDER BY time, key_id, outcome",
        "SELECT * FROM key_verifications_per_day_v1 ORDER BY time, key_id, outcome",
        "SELECT * FROM key_verifications_per_month_v1 ORDER BY time, key_id, outcome",
        "SELECT * FROM ratelimits_per_hour_v1 ORDER BY time, identifier, passed",
        "SELECT * FROM ratelimits_per_month_v1 ORDER BY time, identifier, passed",
    ] {
        let mut context = query_context(family(text));
        let now = run_query(&planted, text, &context, &query_limits()).await.unwrap();
        for summed_until in [0, context.delivery_snapshot.rolled_up_until_ms + 24 * 3_600_000] {
            context.delivery_snapshot.rolled_up_until_ms = summed_until;
            assert_eq!(
                run_query(&planted, text, &context, &query_limits()).await.unwrap(),
                now,
                "{text}"
            );
        }
    }
}
