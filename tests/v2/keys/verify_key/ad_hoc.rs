//! Limits that are given with the request: how long they may be, and how many a key and a workspace may have.

use domain::admission;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, Reply};

const MINUTE: i64 = 60_000;
const DAYS_30: i64 = 2_592_000_000;

/// A request for so many limits, whose names begin so.
fn limits(name: &str, count: usize) -> Value {
    let limit = |n| json!({ "name": format!("{name}{n}"), "limit": 5, "duration": MINUTE });
    json!({ "ratelimits": (0..count).map(limit).collect::<Vec<_>>() })
}

fn detail(reply: &Reply) -> String {
    reply.assert_error(400, "invalid_input")["errors"][0]["message"].as_str().unwrap().to_owned()
}

async fn with_at_most(kw: &Keyward, counters: u64) -> Keyward {
    let change = |settings: &mut foundation::config::Settings| {
        settings.security.ad_hoc_counters_max = counters;
    };
    Keyward::start_with(kw.stack, change).await
}

async fn creates(kw: &Keyward, key: &IssuedKey, name: &str, count: usize) {
    kw.verify_with(&key.key, limits(name, count)).await.assert_code("VALID");
}

on_both_stacks! {
    async fn verify_takes_durations_up_to_30_days(kw) {
        let key = kw.create_key(json!({})).await;
        let ask = |duration: i64| { json!({ "ratelimits": [{ "name": "once", "limit": 5, "duration": duration }] }) };

        for duration in [1000, DAYS_30] {
            kw.verify_with(&key.key, ask(duration)).await.assert_code("VALID");
        }
        for duration in [0, 999, DAYS_30 + 1, i64::MAX] {
            let told = detail(&kw.verify_with(&key.key, ask(duration)).await);
            assert!(told.contains("ratelimits[0].duration must be from 1000 to 2592000000"), "{told}");
        }
    }

    async fn verify_v1_takes_durations_up_to_30_days(kw) {
        let key = kw.create_key(json!({})).await;
        let ask = |duration: i64| { json!({ "ratelimits": [{ "name": "once", "limit": 5, "duration": duration }] }) };

        for duration in [1, DAYS_30] {
            kw.verify_v1(&key.key, ask(duration)).await.assert_v1_code("VALID");
        }
        for duration in [0, DAYS_30 + 1, i64::MAX] {
            let told = kw.verify_v1(&key.key, ask(duration)).await.assert_v1_error(400, "BAD_REQUEST");
            assert_eq!(told, "ratelimits.0: duration must be from 1 to 2592000000 with a limit");
        }
    }

    async fn verify_v1_ignores_any_duration_without_a_limit(kw) {
        let stored = json!({ "name": "stored", "limit": 5, "duration": MINUTE });
        let key = kw.create_key(json!({ "ratelimits": [stored] })).await;
        let ask = async |name: &str, duration: i64| {
            kw.verify_v1(&key.key, json!({ "ratelimits": [{ "name": name, "duration": duration }] })).await
        };

        for duration in [0, DAYS_30 + 1, i64::MAX] {
            ask("stored", duration).await.assert_v1_code("VALID");
            ask("none", duration).await.assert_v1_error_about(400, "BAD_REQUEST", &["has no ratelimit named none"]);
        }
    }

    async fn key_has_a_thousand_live_counters_and_no_more(kw) {
        let (key, other) = (kw.create_key(json!({})).await, kw.create_key(json!({})).await);
        for n in 0..10 {
            creates(&kw, &key, &format!("batch{n}_"), 100).await;
        }

        let over = kw.verify_with(&key.key, limits("over", 1)).await;
        let over_v1 = kw.verify_v1(&key.key, limits("over", 1)).await;

        let told = detail(&over);
        assert!(told.contains("the key has 1000 live"), "{told}");
        assert!(over_v1.assert_v1_error(400, "BAD_REQUEST").contains("the key has 1000 live"));
        creates(&kw, &key, "batch3_", 100).await;
        kw.verify(&key.key).await.assert_code("VALID");
        creates(&kw, &other, "over", 1).await;

        kw.clock.advance_ms(2 * MINUTE);
        creates(&kw, &key, "later", 100).await;
    }

    async fn refused_counter_spends_no_credits(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 1_000 } })).await;
        for n in 0..10 {
            creates(&kw, &key, &format!("batch{n}_"), 100).await;
        }

        for _ in 0..5 {
            detail(&kw.verify_with(&key.key, limits("over", 1)).await);
        }

        assert_eq!(kw.verify(&key.key).await.data()["credits"], 989);
    }

    async fn stored_limits_do_not_count_as_ad_hoc(kw) {
        let stored: Vec<_> = (0..50)
            .map(|n| json!({ "name": format!("own{n}"), "limit": 100, "duration": MINUTE, "autoApply": true }))
            .collect();
        let key = kw.create_key(json!({ "ratelimits": stored })).await;
        for n in 0..10 {
            creates(&kw, &key, &format!("batch{n}_"), 100).await;
            kw.update_key(&key.id, json!({ "ratelimits": stored })).await.data();
        }

        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn workspace_has_a_bound_of_counters_over_all_keys(kw) {
        let kw = with_at_most(&kw, 20).await;
        let (key, other) = (kw.create_key(json!({})).await, kw.create_key(json!({})).await);
        creates(&kw, &key, "first", 19).await;
        admission::estimate_ad_hoc_counters(&kw.app.admission).await;
        creates(&kw, &key, "last", 1).await;
        admission::estimate_ad_hoc_counters(&kw.app.admission).await;

        let over = kw.verify_with(&other.key, limits("over", 1)).await;

        let told = detail(&over);
        assert!(told.contains("the workspace has 20 live"), "{told}");
        creates(&kw, &key, "first", 19).await;
        kw.verify(&other.key).await.assert_code("VALID");

        // Counters of a minute are estimated by periods of up to 79 seconds, three of them.
        kw.clock.advance_ms(4 * MINUTE);
        admission::estimate_ad_hoc_counters(&kw.app.admission).await;
        creates(&kw, &other, "over", 1).await;
    }

    async fn workspace_bound_leaves_other_workspaces_alone(kw) {
        let kw = with_at_most(&kw, 1).await;
        let key = kw.create_key(json!({})).await;
        creates(&kw, &key, "first", 5).await;
        admission::estimate_ad_hoc_counters(&kw.app.admission).await;
        detail(&kw.verify_with(&key.key, limits("over", 1)).await);

        let stranger = kw.create_other_workspace().await;
        let made = kw.v2_as(&stranger, "apis.createApi", json!({ "name": "payments" })).await;
        let made = kw.v2_as(&stranger, "keys.createKey", json!({ "apiId": made.data()["apiId"] })).await;
        let mut request = limits("over", 1);
        request["key"] = made.data()["key"].clone();

        kw.v2_as(&stranger, "keys.verifyKey", request).await.assert_code("VALID");
    }
}
