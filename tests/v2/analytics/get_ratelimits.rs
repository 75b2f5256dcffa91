use serde_json::json;

use crate::on_every_event_store;
use crate::support::{Keyward, NOON, Reply};

const OPERATION: &str = "analytics.getRatelimits";

async fn ask(kw: &Keyward, query: &str) -> Reply {
    kw.v2(OPERATION, json!({ "query": query })).await
}

on_every_event_store! {
    async fn a_check_is_told_with_all_that_is_known_of_it(kw) {
        kw.check_limit("email.send", "user_1", json!({ "limit": 3, "cost": 2 })).await.data();
        kw.check_limit("email.send", "user_1", json!({ "limit": 3, "cost": 2 })).await.data();
        kw.write_events().await;
        let columns = "identifier, passed, limit, remaining, tokens, override_id, time";

        let query = format!("SELECT {columns} FROM ratelimits_v1 ORDER BY passed DESC");
        let told = ask(&kw, &query).await.data().clone();

        let row = |passed: bool, remaining: i64| {
            json!({
                "identifier": "user_1", "passed": passed, "limit": 3, "remaining": remaining, "tokens": 2,
                "override_id": "", "time": NOON.0
            })
        };
        assert_eq!(told, json!([row(true, 1), row(false, 0)]));
    }

    async fn sums_tell_what_passed_and_what_did_not(kw) {
        for cost in [1, 2, 3] {
            kw.check_limit("email.send", "user_1", json!({ "limit": 3, "cost": cost })).await.data();
        }
        kw.write_events().await;

        for unit in ["minute", "hour", "day", "month"] {
            let query = format!(
                "SELECT sum(passed) AS a, sum(total) AS b, sum(passed_tokens) AS c, sum(total_tokens) AS d \
                FROM ratelimits_per_{unit}_v1"
            );
            assert_eq!(*ask(&kw, &query).await.data(), json!([{ "a": 2, "b": 3, "c": 3, "d": 6 }]));
        }
    }

    async fn a_root_key_for_one_namespace_sees_that_one(kw) {
        for namespace in ["one", "other"] {
            kw.check_limit(namespace, "user_1", json!({})).await.data();
        }
        kw.write_events().await;
        let query = "SELECT namespace_id FROM ratelimits_v1";
        let all = ask(&kw, query).await.data().clone();
        let one = all[0]["namespace_id"].as_str().unwrap();
        let root_key = kw.create_root_key_with(vec![format!("ratelimit.{one}.read_analytics")]).await;
        let stranger = kw.create_other_workspace().await;

        assert_eq!(*kw.v2_as(&root_key, OPERATION, json!({ "query": query })).await.data(), json!([{ "namespace_id": one }]));
        assert_eq!(*kw.v2_as(&stranger, OPERATION, json!({ "query": query })).await.data(), json!([]));

        assert_eq!(all.as_array().unwrap().len(), 2);
    }

    async fn the_permission_of_apis_is_not_that_of_limits(kw) {
        let root_key = kw.create_root_key(["api.*.read_analytics"]).await;
        kw.v2_as(&root_key, OPERATION, json!({ "query": "SELECT" })).await.assert_error(403, "insufficient_permissions");
    }

    async fn verifications_are_asked_for_elsewhere(kw) {
        kw.write_events().await;
        let reply = ask(&kw, "SELECT key_id FROM key_verifications_v1").await;
        reply.assert_error_about(400, "invalid_analytics_table", &["ratelimits_per_hour_v1"]);
    }
}
