//! Measures how much memory this process needs for a query of SQLite.

use std::time::Duration;

use analytics_sql::{Family, QueryContext, RowScope, SqlDialect};
use foundation::model::{DeliverySnapshot, Retention};
use store::analytics_query::QueryLimits;
use store::events::{EventDatabase, EventStore};

use crate::acquire_turn;
use crate::support::NOON;
use crate::support::memory::growth_kb;

/// A key with 15,000 events whose ids have 200 characters.
const EVENTS: &str = "
    INSERT INTO verification_series (id, workspace_id, api_id, key_id, identity_id, external_id, outcome, tags, seen_at)
        VALUES (x'01', 'ws_1', 'api_1', 'key_1', '', '', 'VALID', '[]', 0);
    WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 15000)
    INSERT INTO verifications
        SELECT 0, x'01', 1, printf('req_%0196d', n), 1, 1, '', '' FROM numbers;";

#[test]
fn process_does_not_grow_when_one_list_is_selected_often() {
    let _turn = acquire_turn();
    let directory = tempfile::tempdir().unwrap();
    let copies: Vec<_> = (1..=63).map(|n| format!("l AS a{n}")).collect();
    let text = format!(
        "SELECT {} FROM (SELECT groupArray(request_id) AS l FROM key_verifications_v1) x",
        copies.join(", ")
    );
    let context = QueryContext {
        family: Family::Verifications,
        row_scope: RowScope { workspace_id: "ws_1".into(), resource_ids: None },
        now_ms: NOON.0,
        retention: Retention {
            raw_days: 90,
            minute_days: 90,
            hour_days: 90,
            day_days: 365,
            month_days: 1095,
        },
        rows_max: 10,
        nested_rows_max: None,
        delivery_snapshot: DeliverySnapshot::default(),
    };
    let bounds =
        QueryLimits { timeout: Duration::from_mins(1), ..analytics::sql_query::QUERY_LIMITS };
    let query = analytics_sql::compile(&text, SqlDialect::Sqlite, &context).unwrap();
    let pid = i32::try_from(std::process::id()).unwrap();

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (answer, grown_kb) = runtime.block_on(async {
        let events = EventStore::open(&directory.path().join("keyward-events.db"));
        events.migrate().await.unwrap();
        let EventDatabase::Sqlite { write, .. } = &events.database else {
            unreachable!("it is SQLite")
        };
        sqlx::raw_sql(EVENTS).execute(write).await.unwrap();
        growth_kb(&[pid], events.run_query(&query.query, &bounds)).await
    });

    let refused = answer.expect_err("the result is too large").to_string();
    assert!(refused.starts_with("the result is larger"), "{refused}");
    assert!(grown_kb < 64 * 1024, "the process grew by {grown_kb} kB");
}
