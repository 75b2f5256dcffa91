//! Tests the bounds of a query: time, memory and rows.

use std::time::Duration;

use analytics_sql::{Family, QueryContext, SqlDialect};
use store::analytics_query::QueryLimits;

use super::planted::EventFixture;
use super::{query_context, query_limits, run_query};
use crate::support::NOON;

/// Joins the events with themselves so often that each row stands for six to the power of eight.
fn many(select: &str, which: &str) -> String {
    let twice = |of: &str| {
        format!(
            "(SELECT x.request_id AS request_id, x.latency AS latency FROM {of} AS x, {of} AS y)"
        )
    };
    let four = twice(&twice("key_verifications_v1"));
    format!("SELECT {select} AS n FROM {four} AS x, {four} AS y {which}")
}

/// A query that no machine can finish.
fn endless(engine: SqlDialect) -> String {
    if engine == SqlDialect::ClickHouse {
        // It has each row at once, so there cannot be enough rows to take this long by themselves.
        let like = |n: usize| format!("concat(x.request_id, y.request_id) LIKE '%x%y%{n}%'");
        return many(
            "count()",
            &format!("WHERE {}", (0..60).map(like).collect::<Vec<_>>().join(" OR ")),
        );
    }
    let tables: Vec<_> = ('a'..='p').map(|name| format!("key_verifications_v1 {name}")).collect();
    let tables = tables.join(", ");
    format!("SELECT count() AS n FROM {tables} WHERE a.latency + p.latency > 1000000")
}

async fn assert_stopped(planted: EventFixture) {
    let context = query_context(Family::Verifications);
    let code = async |text: &str, bounds: QueryLimits| {
        run_query(&planted, text, &context, &bounds)
            .await
            .expect_err("the query is stopped")
            .code()
            .name()
    };
    let soon = QueryLimits { timeout: Duration::from_millis(300), ..query_limits() };
    let small = QueryLimits { result_max_bytes: 100, ..query_limits() };
    // A machine that is busy must not reach the time limit first.
    let patient = QueryLimits { timeout: Duration::from_mins(2), ..query_limits() };

    let endless = endless(planted.engine());
    assert_eq!(code(&endless, soon).await, "query_execution_timeout");
    assert_eq!(
        code("SELECT * FROM key_verifications_v1", small).await,
        "query_memory_limit_exceeded"
    );
    let enormous = many("groupArray(concat(x.request_id, y.request_id, x.request_id))", "");
    assert_eq!(code(&enormous, patient).await, "query_memory_limit_exceeded");
    // A query that was stopped leaves nothing behind.
    let count = "SELECT count() AS n FROM key_verifications_v1";
    let total = run_query(&planted, count, &context, &query_limits()).await;
    assert_eq!(total.unwrap(), serde_json::json!([{ "n": 6 }]));
}

#[tokio::test]
async fn postgres_stops_query_that_exceeds_its_limits() {
    assert_stopped(EventFixture::postgres().await).await;
}

#[tokio::test]
async fn sqlite_stops_query_that_exceeds_its_limits() {
    assert_stopped(EventFixture::sqlite().await).await;
}

#[tokio::test]
async fn clickhouse_stops_query_that_exceeds_its_limits() {
    assert_stopped(EventFixture::clickhouse().await).await;
}

async fn assert_rows_are_bounded(planted: EventFixture) {
    let mut context = query_context(Family::Verifications);
    context.rows_max = 2;
    let text = "SELECT count() AS n, key_id FROM (SELECT key_id FROM key_verifications_v1) AS k GROUP BY key_id";
    let rows = async |text: &str, context: &QueryContext| {
        let rows = run_query(&planted, text, context, &query_limits()).await.unwrap();
        rows.as_array().unwrap().len()
    };

    assert_eq!(rows("SELECT key_id FROM key_verifications_v1", &context).await, 2);
    assert_eq!(rows("SELECT key_id FROM key_verifications_v1 LIMIT 5", &context).await, 2);
    assert_eq!(rows("SELECT key_id FROM key_verifications_v1 LIMIT 1", &context).await, 1);
    assert_eq!(rows("SELECT key_id FROM key_verifications_v1 UNION ALL SELECT key_id FROM key_verifications_v1", &context).await, 2);
    // Aggregates cover all rows, unless an operator sets another limit.
    let sums = run_query(&planted, &format!("{text} ORDER BY key_id"), &context, &query_limits())
        .await
        .unwrap();
    assert_eq!(
        sums,
        serde_json::json!([{ "n": 4, "key_id": "key_1" }, { "n": 2, "key_id": "key_2" }])
    );
    context.nested_rows_max = Some(3);
    let ones = "SELECT sum(n) AS n FROM (SELECT 1 AS n FROM key_verifications_v1) AS k";
    let sums = run_query(&planted, ones, &context, &query_limits()).await;
    assert_eq!(sums.unwrap(), serde_json::json!([{ "n": 3 }]));
}

#[tokio::test]
async fn postgres_bounds_result_rows() {
    assert_rows_are_bounded(EventFixture::postgres().await).await;
}

#[tokio::test]
async fn sqlite_bounds_result_rows() {
    assert_rows_are_bounded(EventFixture::sqlite().await).await;
}

#[tokio::test]
async fn clickhouse_bounds_result_rows() {
    assert_rows_are_bounded(EventFixture::clickhouse().await).await;
}

/// Postgres has no memory limit per query. The six events yield 36 rows when joined with themselves.
#[tokio::test]
async fn postgres_bounds_lists_and_joins() {
    let planted = EventFixture::postgres().await;
    let context = query_context(Family::Verifications);
    let of = |bounds: QueryLimits| {
        let (planted, context) = (&planted, &context);
        async move |text: &str| match run_query(planted, text, context, &bounds).await {
            Ok(_) => "answered".to_owned(),
            Err(e) => format!("{}: {e}", e.code().name()),
        }
    };
    let joined = "SELECT count() AS n FROM key_verifications_v1 a, key_verifications_v1 b";
    let list = "SELECT length(groupArray(request_id)) AS n FROM key_verifications_v1";
    let lists =
        "SELECT key_id, groupArray(request_id) AS r FROM key_verifications_v1 GROUP BY key_id";
    let unique = "SELECT groupUniqArray(key_id) AS k FROM key_verifications_v1";

    assert_eq!(of(QueryLimits { joined_rows_max: 36, ..query_limits() })(joined).await, "answered");
    assert_eq!(
        of(QueryLimits { joined_rows_max: 35, ..query_limits() })(joined).await,
        "query_rows_limit_exceeded: the joins of the query return more than 35 rows; join less, or aggregate before"
    );
    let unnested = "SELECT arrayJoin(tags) AS t FROM key_verifications_v1";
    assert_eq!(
        of(QueryLimits { joined_rows_max: 7, ..query_limits() })(unnested).await,
        "answered"
    );
    let too_many = of(QueryLimits { joined_rows_max: 6, ..query_limits() })(unnested).await;
    assert!(too_many.starts_with("query_rows_limit_exceeded"), "{too_many}");
    assert_eq!(
        of(QueryLimits { lists_max_bytes: 1_000, ..query_limits() })(list).await,
        "answered"
    );
    assert_eq!(
        of(QueryLimits { lists_max_bytes: 60, ..query_limits() })(list).await,
        "query_memory_limit_exceeded: the lists of the query and the values after IN contain more than 60 bytes, or a list of groupUniqArray more than 10000 values; collect less"
    );
    // All lists share their bytes; equal values count once.
    let too_long = of(QueryLimits { lists_max_bytes: 60, ..query_limits() })(lists).await;
    assert!(too_long.starts_with("query_memory_limit_exceeded"), "{too_long}");
    assert_eq!(of(QueryLimits { list_items_max: 2, ..query_limits() })(unique).await, "answered");
    let too_many = of(QueryLimits { list_items_max: 1, ..query_limits() })(unique).await;
    assert!(too_many.starts_with("query_memory_limit_exceeded"), "{too_many}");
}

/// The largest list that a query could build before: a million values, which took more than a gigabyte in one backend.
#[tokio::test]
async fn postgres_backend_does_not_grow_with_a_list() {
    let planted = EventFixture::postgres().await;
    let EventFixture::Postgres { pool, .. } = &planted else { unreachable!("it is Postgres") };
    sqlx::query(
        "INSERT INTO verifications SELECT $1, series, batch, 'req_' || n || repeat('x', 200), 1, 1, '', ''
        FROM generate_series(1, 300000) n, (SELECT series, batch FROM verifications v
            JOIN verification_series s ON s.id = v.series WHERE s.workspace_id = 'ws_mine' LIMIT 1) v",
    )
    .bind(NOON.0 - 1_000)
    .execute(pool)
    .await
    .unwrap();
    let list = "SELECT length(groupArray(request_id)) AS n FROM key_verifications_v1";

    let refused =
        run_query(&planted, list, &query_context(Family::Verifications), &query_limits()).await;

    assert_eq!(
        refused.expect_err("the list is too long").code().name(),
        "query_memory_limit_exceeded"
    );
    let pids: Vec<i32> =
        sqlx::query_scalar("SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'")
            .fetch_all(pool)
            .await
            .unwrap();
    for pid in pids {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
        let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        let kb: u64 = anonymous.trim().trim_end_matches(" kB").trim().parse().unwrap();
        assert!(kb < 64 * 1024, "the backend has {kb} kB of its own");
    }
}
