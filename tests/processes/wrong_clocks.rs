//! Tests a replica whose clock is wrong.

use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::json;
use sqlx::{Connection as _, PgConnection, query_scalar};
use tokio::runtime::Runtime;

use crate::engines::set_clock;
use crate::faults::{assert_valid, create_key, database, replica_command, verify};
use crate::share_turn;
use crate::support::process::Server;
use crate::support::redis_url;

/// Longer than any data is stored.
const AHEAD_DAYS: i64 = 10_000;
const EVENTS: &str = "SELECT COUNT(*) FROM keyward_events.verifications";

#[test]
fn replica_whose_clock_is_ahead_deletes_no_events() {
    let _turn = share_turn();
    let database = database();
    let right = Server::start(replica_command(&database.url, &redis_url()));
    assert_valid(&verify(&right, &create_key(&right, &json!({}))));
    wait_for_count(&database.url, EVENTS);

    let mut command = replica_command(&database.url, &redis_url());
    set_clock(&mut command, AHEAD_DAYS * 86_400);
    let _wrong = Server::start(command);
    // Partitions of rate limits are the last ones that it maintains.
    wait_for_count(
        &database.url,
        "SELECT COUNT(*) FROM pg_class WHERE relname BETWEEN 'ratelimits_per_hour_p205' AND 'ratelimits_per_hour_p9'",
    );

    assert_eq!(count(&database.url, EVENTS).unwrap(), 1);
}

/// Returns what a query counts; an error before the tables exist.
fn count(url: &str, sql: &'static str) -> sqlx::Result<i64> {
    Runtime::new().unwrap().block_on(async {
        let mut connection = PgConnection::connect(url).await?;
        query_scalar(sql).fetch_one(&mut connection).await
    })
}

/// Waits until a query counts something.
fn wait_for_count(url: &str, sql: &'static str) {
    let began = Stopwatch::new();
    while count(url, sql).unwrap_or_default() == 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "none: {sql}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
