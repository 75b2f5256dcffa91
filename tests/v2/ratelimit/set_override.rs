use std::time::Duration;

use domain::ratelimits::overrides::OVERRIDES_MAX;
use foundation::clock::Stopwatch;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::seed::limit_request;
use crate::support::{Keyward, NOON, Stack};

/// A server on which the namespace `email.send` has been used.
async fn used(kw: &Keyward) {
    kw.check_limit("email.send", "somebody", json!({ "cost": 0 })).await.data();
}

async fn list(kw: &Keyward) -> Value {
    let request = json!({ "namespace": "email.send", "limit": 100 });
    kw.v2("ratelimit.listOverrides", request).await.data().clone()
}

on_both_stacks! {
    async fn what_is_set_again_keeps_its_id_and_is_replaced_as_a_whole(kw) {
        used(&kw).await;
        let first = kw.set_override("email.send", "user_1", json!({ "limit": 1, "expires": NOON.0 + 5 })).await;
        assert_eq!(first, kw.set_override("email.send", "user_1", json!({ "limit": 2, "duration": 1000 })).await);
        assert_eq!(list(&kw).await, json!([{ "overrideId": first, "identifier": "user_1", "limit": 2, "duration": 1000 }]));
        assert_eq!(kw.list_audit_events(&first).await, ["ratelimit.set_override", "ratelimit.set_override"]);
    }

    async fn it_applies_at_once_to_what_is_counted_already(kw) {
        kw.check_limit("email.send", "user_1", json!({ "cost": 3 })).await.data();
        kw.set_override("email.send", "user_1", json!({ "limit": 4 })).await;
        let told = kw.check_limit("email.send", "user_1", json!({})).await;
        assert_eq!((&told.data()["limit"], &told.data()["remaining"]), (&json!(4), &json!(0)));
    }

    async fn one_that_was_deleted_can_be_set_anew(kw) {
        used(&kw).await;
        let first = kw.set_override("email.send", "user_1", json!({ "limit": 1 })).await;
        kw.v2("ratelimit.deleteOverride", json!({ "namespace": "email.send", "identifier": "user_1" })).await.data();
        assert_ne!(first, kw.set_override("email.send", "user_1", json!({ "limit": 2 })).await);
        assert_eq!(kw.check_limit("email.send", "user_1", json!({})).await.data()["limit"], 2);
    }

    async fn a_namespace_is_not_made_and_its_absence_precedes_the_permission(kw) {
        let nobody = kw.create_root_key([]).await;
        let request = limit_request("email.send", "user_1", json!({}));

        let missing = kw.v2_as(&nobody, "ratelimit.setOverride", request.clone()).await;
        used(&kw).await;
        kw.v2_as(&nobody, "ratelimit.setOverride", request.clone()).await.assert_error(403, "insufficient_permissions");
        kw.delete_namespace("email.send").await;
        kw.v2("ratelimit.setOverride", request).await.assert_error(404, "ratelimit_namespace_not_found");

        missing.assert_error_about(404, "ratelimit_namespace_not_found", &["email.send"]);
        assert_eq!(kw.count_rows("overrides").await, 0);
    }

    async fn a_pattern_may_have_eight_stars_and_no_more(kw) {
        used(&kw).await;
        let set = async |stars: usize| {
            let request = limit_request("email.send", &"a*".repeat(stars), json!({}));
            kw.v2("ratelimit.setOverride", request).await
        };

        set(8).await.data();
        set(9).await.assert_field_error_about("/properties/identifier", &["identifier", "8"]);
    }

    async fn no_more_are_kept_than_a_namespace_may_have(kw) {
        used(&kw).await;
        many_overrides(&kw, OVERRIDES_MAX - 1).await;
        let set = async |identifier: &str| {
            let request = limit_request("email.send", identifier, json!({ "limit": 7 }));
            kw.v2("ratelimit.setOverride", request).await
        };

        set("last").await.data();
        set("over").await.assert_error_about(412, "precondition_failed", &["10000"]);
        set("last").await.data();

        assert_eq!(kw.count_rows("overrides").await, OVERRIDES_MAX);
        assert_eq!(kw.check_limit("email.send", "user 17", json!({})).await.data()["limit"], 5);
        assert_eq!(kw.check_limit("email.send", "last", json!({})).await.data()["limit"], 7);
    }

    async fn the_largest_numbers_are_kept_and_counted(kw) {
        used(&kw).await;
        kw.set_override("email.send", "🦀".repeat(512).as_str(), json!({ "limit": i64::MAX, "duration": i64::MAX })).await;
        let told = kw.check_limit("email.send", &"🦀".repeat(512), json!({})).await;
        assert_eq!((&told.data()["success"], &told.data()["limit"]), (&json!(true), &json!(i64::MAX)));
    }

    async fn many_that_set_one_override_at_once_share_its_id(kw) {
        used(&kw).await;
        let set = |limit: i64| kw.set_override("email.send", "user_1", json!({ "limit": limit }));
        let ids = join_all((1..9).map(set)).await;
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        assert_eq!(kw.count_rows("overrides").await, 1);
    }
}

/// Fills the namespace, past the operation.
async fn many_overrides(kw: &Keyward, count: i64) {
    let sql = format!(
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})
        INSERT INTO overrides (id, namespace_id, identifier, \"limit\", duration_ms, created_at)
        SELECT 'rlor_' || n, (SELECT id FROM namespaces), 'user ' || n, 5, 1000, 0 FROM numbers"
    );
    kw.execute_sql(sql).await;
}

#[tokio::test]
async fn another_replica_sees_an_override_come_and_go_in_time() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    used(&kw).await;
    used(&other).await;
    let becomes = async |limit: i64| {
        let since = Stopwatch::new();
        while other.check_limit("email.send", "user_1", json!({ "cost": 0 })).await.data()["limit"]
            != limit
        {
            // One second, and one for a machine that is busy.
            assert!(since.elapsed_ms() < 2_000, "not seen");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };

    kw.set_override("email.send", "user_*", json!({ "limit": 3 })).await;
    becomes(3).await;
    kw.v2("ratelimit.deleteOverride", json!({ "namespace": "email.send", "identifier": "user_*" }))
        .await
        .data();
    becomes(10).await;
}
