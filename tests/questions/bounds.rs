//! What an answer may take: time, memory and rows.

use std::time::Duration;

use keyward::domain::analytics::sql::{Asked, Engine, Family};
use keyward::store::questions::Bounds;

use super::planted::Planted;
use super::{answer, asked, bounds};

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
fn endless(engine: Engine) -> String {
    if engine == Engine::ClickHouse {
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
    let code = async |text: &str, bounds: Bounds| {
        answer(&planted, text, &asked, &bounds).await.expect_err("it is stopped").code().name()
    };
    let soon = Bounds { time: Duration::from_millis(300), ..bounds() };
    let small = Bounds { answer_max_bytes: 100, ..bounds() };

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
    let rows = async |text: &str, asked: &Asked| {
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
