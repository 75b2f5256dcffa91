//! `ratelimits.limit` with `async: true`: quick rather than exact.

use std::time::Duration;

use domain::admission;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::{Keyward, Reply, Stack};

async fn check(kw: &Keyward, limit: i64, fields: Value) -> Reply {
    let mut request = json!({
        "namespace": "email.send", "identifier": "user_1", "limit": limit, "duration": 60_000, "async": true,
    });
    request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    kw.v1("ratelimits.limit", request).await
}

/// How many of so many checks in a row pass.
async fn passing(kw: &Keyward, limit: i64, checks: usize) -> usize {
    let mut passed = 0;
    for _ in 0..checks {
        passed += usize::from(check(kw, limit, json!({})).await.v1_body()["success"] == true);
    }
    passed
}

on_both_stacks! {
    async fn one_server_admits_what_the_limit_says(kw) {
        assert_eq!(passing(&kw, 5, 20).await, 5);
        let reply = check(&kw, 5, json!({})).await;
        reply.v1_body().assert_has(json!({ "success": false, "limit": 5, "remaining": 0 }));
        assert!(reply.body["reset"].as_i64().unwrap() > kw.clock.now().0);
    }

    async fn an_exact_check_knows_what_was_taken_quickly_once_it_was_sent(kw) {
        assert_eq!(passing(&kw, 10, 4).await, 4);
        admission::sync_approximate(&kw.app.admission).await;
        assert_eq!(check(&kw, 10, json!({ "async": false })).await.v1_body()["remaining"], 5);
        assert_eq!(check(&kw, 10, json!({ "async": false, "cost": 0 })).await.v1_body()["remaining"], 5);
    }

    async fn the_next_window_begins_anew(kw) {
        assert_eq!(passing(&kw, 5, 10).await, 5);
        admission::sync_approximate(&kw.app.admission).await;
        kw.clock.advance_ms(120_000);
        // What is known is old by then.
        tokio::time::sleep(Duration::from_millis(300)).await;

        assert_eq!(passing(&kw, 5, 10).await, 5);
    }

    async fn an_override_counts(kw) {
        check(&kw, 5, json!({})).await.v1_body();
        kw.set_override("email.send", "user_1", json!({ "limit": 2 })).await;
        // The override was counted on the same counter.
        assert_eq!(passing(&kw, 5, 10).await, 1);
    }
}

#[tokio::test]
async fn replicas_admit_no_more_than_each_of_them_could_before_it_heard_of_the_others() {
    let one = Keyward::start(Stack::Replica).await;
    let other = one.replica().await;
    check(&one, 100, json!({ "cost": 0 })).await.v1_body();
    check(&other, 100, json!({ "cost": 0 })).await.v1_body();

    let (here, there) = tokio::join!(passing(&one, 100, 150), passing(&other, 100, 150));
    admission::sync_approximate(&one.app.admission).await;
    admission::sync_approximate(&other.app.admission).await;
    // Each hears of the other with its next batch.
    for kw in [&one, &other] {
        check(kw, 100, json!({})).await.v1_body();
        admission::sync_approximate(&kw.app.admission).await;
    }

    assert!((100..=200).contains(&(here + there)), "{here} and {there}");
    assert_eq!(passing(&one, 100, 10).await + passing(&other, 100, 10).await, 0);
    assert_eq!(check(&one, 100, json!({ "async": false })).await.v1_body()["success"], false);
}

#[tokio::test]
async fn quick_check_is_decided_before_redis_knows_it() {
    let kw = Keyward::start(Stack::Replica).await;
    let mut unknown = 0;
    for checks in 1..=20 {
        assert_eq!(passing(&kw, 100, 1).await, 1);
        let peek = check(&kw, 100, json!({ "async": false, "cost": 0 })).await;
        unknown += usize::from(peek.v1_body()["remaining"].as_i64().unwrap() > 100 - checks);
    }

    assert!(unknown > 0, "Redis knew each check at once");
}
