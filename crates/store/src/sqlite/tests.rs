//! Tests how files are opened, and plans of statements.

use sqlx::{ConnectOptions as _, Row as _, query_scalar};

use super::*;
use crate::Store;

/// The values of `PRAGMA synchronous`: NORMAL, FULL.
const NORMAL: i64 = 1;
const FULL: i64 = 2;

#[tokio::test]
async fn data_outlives_a_power_cut_and_events_a_crash() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("keyward.db");
    let mut data = options(&path).connect().await.expect("the file is opened");
    let [events, ..] = event_pools(&directory.path().join("keyward-events.db"));

    let synchronous = "PRAGMA synchronous";
    let of_data: i64 = query_scalar(synchronous).fetch_one(&mut data).await.expect("a value");
    let of_events: i64 = query_scalar(synchronous).fetch_one(&events).await.expect("a value");

    assert_eq!((of_data, of_events), (FULL, NORMAL));
}

#[tokio::test]
async fn uses_of_keys_are_read_once_and_each_key_is_found_by_an_index() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("keyward.db");
    let store = Store::open(&path).await.expect("the file is opened");
    store.migrate().await.expect("the schema is migrated");
    let mut connection = options(&path).connect().await.expect("the file is opened");

    let sql = format!("EXPLAIN QUERY PLAN {}", queries::writes::RECORD_KEY_USES_SQL);
    let steps = sqlx::query(sqlx::AssertSqlSafe(sql)).bind("[]").fetch_all(&mut connection);
    let steps = steps.await.expect("a plan");

    let steps: Vec<String> = steps.iter().map(|step| step.get("detail")).collect();
    assert!(steps[0].starts_with("SCAN json_each"), "{steps:?}");
    assert!(steps[1].starts_with("SEARCH e USING COVERING INDEX"), "{steps:?}");
    assert_eq!(steps[2..], ["USE TEMP B-TREE FOR ORDER BY"]);
}
