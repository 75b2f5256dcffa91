//! Tests how much memory and disk space a query uses, whatever it contains.

use std::time::Duration;

use analytics_sql::Family;
use sqlx::PgPool;
use store::analytics_query::QueryLimits;

use super::planted::EventFixture;
use super::{query_context, query_limits, run_query};
use crate::support::NOON;
use crate::support::memory::growth_kb;

/// The maximum growth of a backend: it sorts and merges several times in the 16 MB of `work_mem`.
const GROWTH_MAX_KB: u64 = 72 * 1024;

/// Texts of about 3 kB, a different one for each event.
const WIDE: &str = "concat(request_id, request_id, request_id, request_id, request_id, request_id, request_id, \
    request_id, request_id, request_id, request_id, request_id, request_id, request_id)";

/// Adds events with ids of 200 characters.
const ADD_EVENTS: &str = "INSERT INTO verifications
    SELECT $1, series, batch, substr('req_' || n || '_0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz', 1, 200), 1, 1, '', ''
    FROM (WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $2) SELECT n FROM numbers) AS numbers,
        (SELECT series, batch FROM verifications v JOIN verification_series s ON s.id = v.series WHERE s.workspace_id = 'ws_mine' LIMIT 1) AS v";

async fn postgres_with(events: i64) -> (EventFixture, PgPool) {
    let planted = EventFixture::postgres().await;
    let EventFixture::Postgres { pool, .. } = &planted else { unreachable!("it is Postgres") };
    let pool = pool.clone();
    sqlx::query(ADD_EVENTS).bind(NOON.0 - 1_000).bind(events).execute(&pool).await.unwrap();
    sqlx::raw_sql("ANALYZE").execute(&pool).await.unwrap();
    (planted, pool)
}

async fn sqlite_with(events: i64) -> EventFixture {
    let planted = EventFixture::sqlite().await;
    let EventFixture::Sqlite { pool, .. } = &planted else { unreachable!("it is SQLite") };
    sqlx::query(ADD_EVENTS).bind(NOON.0 - 1_000).bind(events).execute(pool).await.unwrap();
    planted
}

/// Runs a query. Returns how it ended, and by how many kB its backend grew.
async fn growth_of_backend(planted: &EventFixture, pool: &PgPool, text: &str) -> (String, u64) {
    let bounds =
        QueryLimits { timeout: Duration::from_mins(1), joined_rows_max: 50_000, ..query_limits() };
    let pids: Vec<i32> =
        sqlx::query_scalar("SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'")
            .fetch_all(pool)
            .await
            .unwrap();
    let context = query_context(Family::Verifications);
    let (answer, grown_kb) = growth_kb(&pids, run_query(planted, text, &context, &bounds)).await;
    let ended = match answer {
        Ok(rows) => rows.to_string(),
        Err(e) => format!("{}: {e}", e.code().name()),
    };
    (ended, grown_kb)
}

/// Returns a query that selects the same list of about 3 MB sixty-two times.
fn copied_list() -> String {
    let copies: Vec<_> = (1..=62).map(|n| format!("l AS a{n}")).collect();
    let ids = "SELECT request_id FROM key_verifications_v1 LIMIT 15000";
    format!(
        "SELECT {} FROM (SELECT groupArray(request_id) AS l FROM ({ids}) y) x",
        copies.join(", ")
    )
}

#[tokio::test]
async fn postgres_backend_does_not_grow_when_one_list_is_selected_often() {
    let (planted, pool) = postgres_with(15_000).await;

    let (ended, grown_kb) = growth_of_backend(&planted, &pool, &copied_list()).await;

    assert!(ended.starts_with("query_memory_limit_exceeded: the result is larger"), "{ended:.300}");
    assert!(grown_kb < GROWTH_MAX_KB, "the backend grew by {grown_kb} kB");
}

#[tokio::test]
async fn postgres_backend_does_not_grow_when_texts_of_one_list_are_selected_often() {
    let (planted, pool) = postgres_with(15_000).await;
    let texts: Vec<_> =
        (1..=60).map(|n| format!("length(concat(toString(l), '{n}')) AS n{n}")).collect();
    let ids = "SELECT request_id FROM key_verifications_v1 LIMIT 15000";
    let text = format!(
        "SELECT {} FROM (SELECT groupArray(request_id) AS l FROM ({ids}) y) x",
        texts.join(", ")
    );

    let (ended, grown_kb) = growth_of_backend(&planted, &pool, &text).await;

    assert!(ended.starts_with(r#"[{"n1":null,"#), "{ended:.300}");
    assert!(grown_kb < GROWTH_MAX_KB, "the backend grew by {grown_kb} kB");
}

#[tokio::test]
async fn postgres_backend_does_not_grow_when_all_rows_of_a_join_share_a_key() {
    let (planted, pool) = postgres_with(60_000).await;
    let events = format!("(SELECT key_id, {WIDE} AS wide FROM key_verifications_v1 LIMIT 1000000)");
    let text = format!(
        "SELECT sum(length(a.wide) + length(b.wide)) AS n FROM {events} AS a JOIN {events} AS b ON a.key_id = b.key_id"
    );

    let (ended, grown_kb) = growth_of_backend(&planted, &pool, &text).await;

    assert!(ended.starts_with("query_rows_limit_exceeded"), "{ended:.300}");
    assert!(grown_kb < GROWTH_MAX_KB, "the backend grew by {grown_kb} kB");
}

#[tokio::test]
async fn postgres_backend_does_not_grow_when_a_set_is_large() {
    let (planted, pool) = postgres_with(60_000).await;
    let (wide, from) = (WIDE, "FROM key_verifications_v1");
    let of_both = |words: &str| {
        format!(
            "SELECT count() AS n FROM (SELECT {wide} AS w {from} {words} SELECT {wide} AS w {from}) AS x"
        )
    };
    let member = |words: &str| {
        format!("SELECT countIf({wide} {words} (SELECT {wide} AS w {from})) AS n {from}")
    };

    for (text, expected) in [
        (of_both("EXCEPT"), r#"[{"n":0}]"#),
        (of_both("INTERSECT"), r#"[{"n":60006}]"#),
        (member("IN"), "query_memory_limit_exceeded: the lists of the query"),
        (member("NOT IN"), "query_memory_limit_exceeded: the lists of the query"),
    ] {
        let (ended, grown_kb) = growth_of_backend(&planted, &pool, &text).await;
        assert!(grown_kb < GROWTH_MAX_KB, "the backend grew by {grown_kb} kB by {text}");
        assert!(ended.starts_with(expected), "{text}: {ended:.300}");
    }
}

/// Only the distinct values of a set count.
#[tokio::test]
async fn postgres_set_is_bounded_by_its_distinct_values() {
    let (planted, _pool) = postgres_with(100).await;
    let context = query_context(Family::Verifications);
    let events = "FROM key_verifications_v1";
    let few = format!("SELECT count() AS n {events} WHERE key_id IN (SELECT key_id {events})");
    let many =
        format!("SELECT count() AS n {events} WHERE request_id IN (SELECT request_id {events})");
    let small = QueryLimits { lists_max_bytes: 1_000, ..query_limits() };

    let few = run_query(&planted, &few, &context, &small).await;
    assert_eq!(few.unwrap(), serde_json::json!([{ "n": 106 }]));
    let refused = run_query(&planted, &many, &context, &small).await;
    assert_eq!(
        refused.expect_err("the set is too large").code().name(),
        "query_memory_limit_exceeded"
    );
    let answered = run_query(&planted, &many, &context, &query_limits()).await;
    assert_eq!(answered.unwrap(), serde_json::json!([{ "n": 106 }]));
}

#[tokio::test]
async fn sqlite_list_is_limited_to_four_megabytes() {
    let planted = sqlite_with(30_000).await;
    let context = query_context(Family::Verifications);
    let list = |function: &str, events: u32| {
        let ids = format!("SELECT request_id FROM key_verifications_v1 LIMIT {events}");
        format!("SELECT length({function}(request_id)) AS n FROM ({ids}) AS x")
    };

    for function in ["groupArray", "groupUniqArray"] {
        let answered =
            run_query(&planted, &list(function, 20_000), &context, &query_limits()).await;
        assert_eq!(answered.unwrap(), serde_json::json!([{ "n": 20_000 }]));
        let refused = run_query(&planted, &list(function, 25_000), &context, &query_limits()).await;
        assert_eq!(
            refused.expect_err("the list is too large").code().name(),
            "query_memory_limit_exceeded"
        );
    }
}

/// Returns a query that multiplies each event, with distinct texts without end.
fn spilling() -> String {
    format!(
        "SELECT count(DISTINCT concat(a.request_id, b.request_id, {})) AS n FROM key_verifications_v1 a, key_verifications_v1 b",
        WIDE.replace("request_id", "a.request_id")
    )
}

#[tokio::test]
async fn sqlite_query_stops_when_disk_falls_below_its_reserve() {
    let planted = sqlite_with(2_000).await;
    let EventFixture::Sqlite { _directory: directory, .. } = &planted else {
        unreachable!("it is SQLite")
    };
    let disk = rustix::fs::statvfs(directory.path()).unwrap();
    let reserve_bytes = disk.f_bavail * disk.f_frsize - 64 * 1024 * 1024;
    let bounds = QueryLimits {
        timeout: Duration::from_mins(1),
        disk_reserve_bytes: reserve_bytes,
        ..query_limits()
    };

    let refused =
        run_query(&planted, &spilling(), &query_context(Family::Verifications), &bounds).await;

    let refused = refused.expect_err("the disk is too small");
    assert_eq!(refused.code().name(), "query_memory_limit_exceeded", "{refused}");
    assert!(refused.to_string().contains("disk"), "{refused}");
}

#[tokio::test]
async fn sqlite_query_does_not_use_disk_when_below_its_reserve() {
    let planted = sqlite_with(2_000).await;
    let context = query_context(Family::Verifications);
    let bounds = QueryLimits {
        timeout: Duration::from_mins(1),
        disk_reserve_bytes: u64::MAX,
        memory_max_bytes: 128 * 1024 * 1024,
        ..query_limits()
    };

    let refused = run_query(&planted, &spilling(), &context, &bounds).await;

    let refused = refused.expect_err("the query exceeds its memory limit");
    assert_eq!(refused.code().name(), "query_memory_limit_exceeded", "{refused}");
    let small = "SELECT count(DISTINCT request_id) AS n FROM key_verifications_v1";
    let answered =
        run_query(&planted, small, &context, &QueryLimits { memory_max_bytes: u64::MAX, ..bounds })
            .await;
    assert_eq!(answered.unwrap(), serde_json::json!([{ "n": 2_006 }]));
}
