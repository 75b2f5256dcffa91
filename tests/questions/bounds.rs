//! What an answer may take: time, memory and rows.

use std::time::Duration;

use analytics_sql::{Family, QueryContext, SqlDialect};
use store::analytics_query::QueryLimits;

use super::planted::Planted;
use super::{answer, asked, bounds};
use crate::support::NOON;

/// The events beside each other so often that each row stands for six to the power of eight.
fn many(select: &str, which: &str) -> String {
    let twice = |of: &str| {
        format!(
            "(SELECT x.request_id AS request_id, x.latency AS latency FROM {of} AS x, {of} AS y)"
        )
    };
    let four = twice(&twice("key_verifications_v1"));
    format!("SELECT {select} AS n FROM {four} AS x, {four} AS y {which}")
}

/// So much work that no machine comes to an end.
fn endless(engine: SqlDialect) -> String {
    if engine == SqlDialect::ClickHouse {
        // It has each row at once, so there cannot be as many as would take this long by themselves.
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

async fn is_stopped(planted: Planted) {
    let asked = asked(Family::Verifications);
    let code = async |text: &str, bounds: QueryLimits| {
        answer(&planted, text, &asked, &bounds).await.expect_err("it is stopped").code().name()
    };
    let soon = QueryLimits { time: Duration::from_millis(300), ..bounds() };
    let small = QueryLimits { answer_max_bytes: 100, ..bounds() };

    let endless = endless(planted.engine());
    assert_eq!(code(&endless, soon).await, "query_execution_timeout");
    assert_eq!(
        code("SELECT * FROM key_verifications_v1", small).await,
        "query_memory_limit_exceeded"
    );
    let enormous = many("groupArray(concat(x.request_id, y.request_id, x.request_id))", "");
    assert_eq!(code(&enormous, bounds()).await, "query_memory_limit_exceeded");
    // Who was stopped leaves nothing behind.
    let count = "SELECT count() AS n FROM key_verifications_v1";
    let total = answer(&planted, count, &asked, &bounds()).await;
    assert_eq!(total.unwrap(), serde_json::json!([{ "n": 6 }]));
}

#[tokio::test]
async fn a_question_that_takes_too_much_is_stopped_in_postgres() {
    is_stopped(Planted::postgres().await).await;
}

#[tokio::test]
async fn a_question_that_takes_too_much_is_stopped_in_sqlite() {
    is_stopped(Planted::sqlite().await).await;
}

#[tokio::test]
async fn a_question_that_takes_too_much_is_stopped_in_clickhouse() {
    is_stopped(Planted::clickhouse().await).await;
}

async fn has_bounded_rows(planted: Planted) {
    let mut asked = asked(Family::Verifications);
    asked.rows_max = 2;
    let text = "SELECT count() AS n, key_id FROM (SELECT key_id FROM key_verifications_v1) AS k GROUP BY key_id";
    let rows = async |text: &str, asked: &QueryContext| {
        let rows = answer(&planted, text, asked, &bounds()).await.unwrap();
        rows.as_array().unwrap().len()
    };

    assert_eq!(rows("SELECT key_id FROM key_verifications_v1", &asked).await, 2);
    assert_eq!(rows("SELECT key_id FROM key_verifications_v1 LIMIT 5", &asked).await, 2);
    assert_eq!(rows("SELECT key_id FROM key_verifications_v1 LIMIT 1", &asked).await, 1);
    assert_eq!(rows("SELECT key_id FROM key_verifications_v1 UNION ALL SELECT key_id FROM key_verifications_v1", &asked).await, 2);
    // Sums are of all rows, unless an operator wants it otherwise.
    let sums =
        answer(&planted, &format!("{text} ORDER BY key_id"), &asked, &bounds()).await.unwrap();
    assert_eq!(
        sums,
        serde_json::json!([{ "n": 4, "key_id": "key_1" }, { "n": 2, "key_id": "key_2" }])
    );
    asked.inner_rows_max = Some(3);
    let ones = "SELECT sum(n) AS n FROM (SELECT 1 AS n FROM key_verifications_v1) AS k";
    let sums = answer(&planted, ones, &asked, &bounds()).await;
    assert_eq!(sums.unwrap(), serde_json::json!([{ "n": 3 }]));
}

#[tokio::test]
async fn an_answer_has_bounded_rows_in_postgres() {
    has_bounded_rows(Planted::postgres().await).await;
}

#[tokio::test]
async fn an_answer_has_bounded_rows_in_sqlite() {
    has_bounded_rows(Planted::sqlite().await).await;
}

#[tokio::test]
async fn an_answer_has_bounded_rows_in_clickhouse() {
    has_bounded_rows(Planted::clickhouse().await).await;
}

/// Postgres has no bound of memory for a query. The six events give 36 rows joined with themselves.
#[tokio::test]
async fn lists_and_joins_are_bounded_in_postgres() {
    let planted = Planted::postgres().await;
    let asked = asked(Family::Verifications);
    let of = |bounds: QueryLimits| {
        let (planted, asked) = (&planted, &asked);
        async move |text: &str| match answer(planted, text, asked, &bounds).await {
            Ok(_) => "answered".to_owned(),
            Err(e) => format!("{}: {e}", e.code().name()),
        }
    };
    let joined = "SELECT count() AS n FROM key_verifications_v1 a, key_verifications_v1 b";
    let list = "SELECT length(groupArray(request_id)) AS n FROM key_verifications_v1";
    let lists =
        "SELECT key_id, groupArray(request_id) AS r FROM key_verifications_v1 GROUP BY key_id";
    let unique = "SELECT groupUniqArray(key_id) AS k FROM key_verifications_v1";

    assert_eq!(of(QueryLimits { joined_rows_max: 36, ..bounds() })(joined).await, "answered");
    assert_eq!(
        of(QueryLimits { joined_rows_max: 35, ..bounds() })(joined).await,
        "query_rows_limit_exceeded: the joins of the query give more than 35 rows: join less, or sum up before"
    );
    let unnested = "SELECT arrayJoin(tags) AS t FROM key_verifications_v1";
    assert_eq!(of(QueryLimits { joined_rows_max: 7, ..bounds() })(unnested).await, "answered");
    let too_many = of(QueryLimits { joined_rows_max: 6, ..bounds() })(unnested).await;
    assert!(too_many.starts_with("query_rows_limit_exceeded"), "{too_many}");
    assert_eq!(of(QueryLimits { lists_max_bytes: 1_000, ..bounds() })(list).await, "answered");
    assert_eq!(
        of(QueryLimits { lists_max_bytes: 60, ..bounds() })(list).await,
        "query_memory_limit_exceeded: the lists of the query and the values after IN hold more than 60 bytes, or a list of groupUniqArray more than 10000 values: gather less"
    );
    // All lists share their bytes; of equal values one counts.
    let too_long = of(QueryLimits { lists_max_bytes: 60, ..bounds() })(lists).await;
    assert!(too_long.starts_with("query_memory_limit_exceeded"), "{too_long}");
    assert_eq!(of(QueryLimits { list_items_max: 2, ..bounds() })(unique).await, "answered");
    let too_many = of(QueryLimits { list_items_max: 1, ..bounds() })(unique).await;
    assert!(too_many.starts_with("query_memory_limit_exceeded"), "{too_many}");
}

/// The largest list that a query could build before: a million values, once more than a gigabyte of one backend.
#[tokio::test]
async fn backend_of_postgres_does_not_grow_with_a_list() {
    let planted = Planted::postgres().await;
    let Planted::Postgres { pool, .. } = &planted else { unreachable!("it is Postgres") };
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

    let refused = answer(&planted, list, &asked(Family::Verifications), &bounds()).await;

    assert_eq!(refused.expect_err("it is too long").code().name(), "query_memory_limit_exceeded");
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
