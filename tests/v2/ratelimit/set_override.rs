use domain::ratelimits::overrides::OVERRIDES_MAX;
use foundation::clock::Stopwatch;
use futures_util::future::join_all;
use serde_json::{Value, json};
use store::Store;

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
    async fn the_reply_is_the_id(kw) {
        used(&kw).await;

        let request = limit_request("email.send", "user_1", json!({}));
        let reply = kw.v2("ratelimit.setOverride", request).await;

        let fields: Vec<_> = reply.data().as_object().unwrap().keys().collect();
        assert_eq!(fields, ["overrideId"]);
        assert!(reply.text_of("overrideId").starts_with("rlor_"));
    }

    async fn what_is_set_again_keeps_its_id_and_is_replaced_as_a_whole(kw) {
        used(&kw).await;
        let fields = json!({ "limit": 1, "expires": NOON.0 + 5 });
        let first = kw.set_override("email.send", "user_1", fields).await;

        let fields = json!({ "limit": 2, "duration": 1000 });
        let second = kw.set_override("email.send", "user_1", fields).await;

        assert_eq!(first, second);
        assert_eq!(
            list(&kw).await,
            json!([{ "overrideId": first, "identifier": "user_1", "limit": 2, "duration": 1000 }])
        );
        assert_eq!(
            kw.list_audit_events(&first).await,
            ["ratelimit.set_override", "ratelimit.set_override"]
        );
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
        let named = json!({ "namespace": "email.send", "identifier": "user_1" });
        kw.v2("ratelimit.deleteOverride", named).await.data();

        let second = kw.set_override("email.send", "user_1", json!({ "limit": 2 })).await;

        assert_ne!(first, second);
        assert_eq!(kw.check_limit("email.send", "user_1", json!({})).await.data()["limit"], 2);
    }

    async fn a_namespace_is_not_made_and_its_absence_precedes_the_permission(kw) {
        let nobody = kw.create_root_key([]).await;
        let request = limit_request("email.send", "user_1", json!({}));

        let missing = kw.v2_as(&nobody, "ratelimit.setOverride", request.clone()).await;
        used(&kw).await;
        let refused = kw.v2_as(&nobody, "ratelimit.setOverride", request.clone()).await;
        kw.delete_namespace("email.send").await;
        let deleted = kw.v2("ratelimit.setOverride", request).await;

        let error = missing.assert_error(404, "ratelimit_namespace_not_found");
        assert!(error["detail"].as_str().unwrap().contains("email.send"), "{error}");
        refused.assert_error(403, "insufficient_permissions");
        deleted.assert_error(404, "ratelimit_namespace_not_found");
        assert_eq!(kw.count_rows("overrides").await, 0);
    }

    async fn the_permission_for_this_namespace_is_enough(kw) {
        used(&kw).await;
        let workspace = domain::root_keys::default_workspace();
        let mut reader = kw.store().read().await.unwrap();
        let id = reader.find_namespace(&workspace, "email.send").await.unwrap().unwrap().id;
        drop(reader);
        let own = kw.create_root_key_with(vec![format!("ratelimit.{id}.set_override")]).await;

        let request = limit_request(id.as_str(), "user_1", json!({}));
        kw.v2_as(&own, "ratelimit.setOverride", request).await.data();
    }

    async fn a_pattern_may_have_eight_stars_and_no_more(kw) {
        used(&kw).await;
        let set = async |stars: usize| {
            let request = limit_request("email.send", &"a*".repeat(stars), json!({}));
            kw.v2("ratelimit.setOverride", request).await
        };

        set(8).await.data();
        let message = set(9).await.assert_field_error("/properties/identifier");

        assert!(message.contains("identifier") && message.contains('8'), "{message}");
    }

    async fn no_more_are_kept_than_a_namespace_may_have(kw) {
        used(&kw).await;
        many_overrides(&kw, OVERRIDES_MAX - 1).await;
        let set = async |identifier: &str| {
            let request = limit_request("email.send", identifier, json!({ "limit": 7 }));
            kw.v2("ratelimit.setOverride", request).await
        };

        set("last").await.data();
        let over = set("over").await;
        let again = set("last").await;

        let detail = over.assert_error(412, "precondition_failed")["detail"].clone();
        assert!(detail.as_str().unwrap().contains("10000"), "{detail}");
        again.data();
        assert_eq!(kw.count_rows("overrides").await, OVERRIDES_MAX);
        assert_eq!(kw.check_limit("email.send", "user 17", json!({})).await.data()["limit"], 5);
        assert_eq!(kw.check_limit("email.send", "last", json!({})).await.data()["limit"], 7);
    }

    async fn the_largest_numbers_are_kept_and_counted(kw) {
        used(&kw).await;
        let fields = json!({ "limit": i64::MAX, "duration": i64::MAX });
        kw.set_override("email.send", "🦀".repeat(512).as_str(), fields).await;

        let told = kw.check_limit("email.send", &"🦀".repeat(512), json!({})).await;

        assert_eq!(
            (&told.data()["success"], &told.data()["limit"]),
            (&json!(true), &json!(i64::MAX))
        );
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
    let sql = "
        WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $1)
        INSERT INTO overrides (id, namespace_id, identifier, \"limit\", duration_ms, created_at)
        SELECT 'rlor_' || n, (SELECT id FROM namespaces), 'user ' || n, 5, 1000, 0
        FROM numbers";
    match kw.store() {
        Store::Postgres { pool, .. } => {
            sqlx::query(sql).bind(count).execute(&pool.get()).await.map(drop).unwrap();
        }
        Store::Sqlite { pool, .. } => {
            sqlx::query(sql).bind(count).execute(pool).await.map(drop).unwrap();
        }
    }
}

#[tokio::test]
async fn another_replica_sees_an_override_come_and_go_within_a_second() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    used(&kw).await;
    used(&other).await;
    let becomes = async |limit: i64| {
        let since = Stopwatch::new();
        while other.check_limit("email.send", "user_1", json!({ "cost": 0 })).await.data()["limit"]
            != limit
        {
            assert!(since.elapsed_ms() < 1_000, "not seen");
            tokio::task::yield_now().await;
        }
    };

    kw.set_override("email.send", "user_*", json!({ "limit": 3 })).await;
    becomes(3).await;
    let named = json!({ "namespace": "email.send", "identifier": "user_*" });
    kw.v2("ratelimit.deleteOverride", named).await.data();
    becomes(10).await;
}
