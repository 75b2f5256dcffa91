//! The check of one limit.

mod overrides;

use std::time::Duration;

use axum::body::Body;
use domain::ratelimits::namespaces::NAMESPACES_MAX;
use futures_util::future::join_all;
use serde_json::json;
use store::Store;

use crate::on_both_stacks;
use crate::support::seed::limit_request;
use crate::support::{Keyward, NOON, Stack, post};

const MINUTE: i64 = 60_000;

/// From where each namespace was made.
async fn origins(kw: &Keyward) -> Vec<(Option<String>, Option<String>)> {
    let sql = "
        SELECT remote_address, user_agent
        FROM audit
        WHERE event = 'ratelimitNamespace.create'";
    match kw.store() {
        Store::Postgres { pool, .. } => sqlx::query_as(sql).fetch_all(&pool.get()).await.unwrap(),
        Store::Sqlite { pool, .. } => sqlx::query_as(sql).fetch_all(pool).await.unwrap(),
    }
}

on_both_stacks! {
    async fn checks_count(kw) {
        let told = |limit: i64, remaining: i64, minutes: i64| json!({
            "success": true, "limit": limit, "remaining": remaining, "reset": NOON.0 + minutes * MINUTE,
        });
        let refused = || json!({ "success": false, "remaining": 0 });
        let admitted = |remaining: i64| json!({ "success": true, "remaining": remaining });
        for (case, checks) in [
            ("the reply tells the limit, what is left and the end of the window", vec![(0, json!({}), told(10, 9, 1))]),
            ("a limit admits as many as it says and a refusal is no error", vec![
                (0, json!({ "limit": 2 }), admitted(1)), (0, json!({ "limit": 2 }), admitted(0)), (0, json!({ "limit": 2 }), refused()),
            ]),
            ("cost is taken as a whole or not at all", vec![
                (0, json!({ "cost": 4 }), admitted(6)), (0, json!({ "cost": 7 }), refused()), (0, json!({ "cost": 6 }), admitted(0)),
                (0, json!({ "cost": 0 }), admitted(0)), (0, json!({ "cost": 1 }), refused()),
            ]),
            ("a window frees what it no longer covers", vec![
                (0, json!({ "cost": 10 }), admitted(0)), (MINUTE + MINUTE / 2, json!({ "cost": 5 }), told(10, 0, 2)),
            ]),
            ("a changed limit keeps the count and a changed duration does not", vec![
                (0, json!({ "cost": 5 }), admitted(5)), (0, json!({ "limit": 6 }), admitted(0)), (0, json!({ "duration": 2 * MINUTE }), admitted(9)),
            ]),
        ] {
            let start = kw.clock.now();
            for (ms, fields, told) in checks {
                kw.clock.advance_ms(ms);
                let reply = kw.check_limit(case, "user_1", fields).await;
                reply.assert_fields(reply.data(), &told);
            }
            kw.clock.advance_ms(start.0 - kw.clock.now().0);
        }
        assert_eq!(kw.check_limit("email.send", "user_1", json!({})).await.data().as_object().unwrap().len(), 4);
    }

    async fn each_namespace_and_each_identifier_counts_for_itself(kw) {
        for (namespace, identifier) in [("a", "b"), ("a", "B"), ("A", "b"), ("a:b", "b"), ("a", "b:60000"), ("a", "é\n🦀*")] {
            let reply = kw.check_limit(namespace, identifier, json!({ "cost": 10 })).await;
            assert_eq!(reply.data()["success"], true, "{namespace} {identifier}");
        }
    }

    async fn a_namespace_goes_by_its_name_and_by_its_id(kw) {
        kw.create_examples().await;
        let id = api::example::NAMESPACE_ID;
        kw.check_limit("email.send", "nobody", json!({ "cost": 4 })).await.data();
        assert_eq!(kw.check_limit(id, "nobody", json!({})).await.data()["remaining"], 5);
        assert_eq!(kw.count_rows("namespaces").await, 1);
    }

    async fn where_one_namespace_is_called_like_the_id_of_another_the_id_counts(kw) {
        kw.check_limit("first", "user_1", json!({ "cost": 4 })).await.data();
        kw.check_limit("second", "user_1", json!({ "cost": 1 })).await.data();
        let id = kw.find_namespace_id("first").await;
        kw.execute_sql(format!("UPDATE namespaces SET name = '{id}' WHERE name = 'second'")).await;
        assert_eq!(kw.check_limit(&id, "user_1", json!({})).await.data()["remaining"], 5);
    }

    async fn a_namespace_is_made_once_and_audited(kw) {
        for _ in 0..3 {
            kw.check_limit("email.send", "user_1", json!({})).await.data();
        }
        assert_eq!(kw.list_audit_events("email.send").await, ["ratelimitNamespace.create"]);
        assert_eq!(kw.count_rows("namespaces").await, 1);
    }

    async fn the_audit_log_tells_who_made_a_namespace(kw) {
        let request = post("ratelimit.limit")
            .header("authorization", format!("Bearer {}", kw.root_key))
            .header("user-agent", "x".repeat(600));
        let body = limit_request("email.send", "user_1", json!({})).to_string();

        kw.send(request.body(Body::from(body)).unwrap()).await.data();

        assert_eq!(origins(&kw).await, [(None, Some("x".repeat(512)))]);
    }

    async fn many_that_make_one_namespace_at_once_share_its_counters(kw) {
        assert_eq!(Keyward::count_concurrent_checks(&[&kw], "email.send", 20).await, 10);
        assert_eq!(kw.count_rows("namespaces").await, 1);
        assert_eq!(kw.list_audit_events("email.send").await.len(), 1);
    }

    async fn a_missing_namespace_needs_two_permissions_and_the_error_names_those_that_lack(kw) {
        for (grants, lacking) in [
            (vec!["ratelimit.*.limit"], "ratelimit.*.create_namespace"),
            (vec!["ratelimit.*.create_namespace"], "ratelimit.*.limit"),
            (vec!["ratelimit.rlns_other.limit"], "ratelimit.*.limit and ratelimit.*.create_namespace"),
        ] {
            let grants = grants.into_iter().map(str::to_owned).collect();
            let root_key = kw.create_root_key_with(grants).await;

            let request = limit_request("email.send", "user_1", json!({}));
            let reply = kw.v2_as(&root_key, "ratelimit.limit", request).await;

            let detail = reply.assert_error(403, "insufficient_permissions")["detail"].clone();
            assert!(detail.as_str().unwrap().ends_with(&format!("permission {lacking}")), "{detail}");
        }
        assert_eq!(kw.count_rows("namespaces").await, 0);
    }

    async fn an_existing_namespace_needs_its_own_permission_only(kw) {
        kw.check_limit("email.send", "user_1", json!({})).await.data();
        let id = kw.find_namespace_id("email.send").await;
        let request = limit_request("email.send", "user_1", json!({}));
        let own = kw.create_root_key_with(vec![format!("ratelimit.{id}.limit")]).await;
        let other = kw.create_root_key(["ratelimit.rlns_other.limit"]).await;

        assert_eq!(kw.v2_as(&own, "ratelimit.limit", request.clone()).await.data()["remaining"], 8);
        let refused = kw.v2_as(&other, "ratelimit.limit", request).await;

        let detail = refused.assert_error(403, "insufficient_permissions")["detail"].clone();
        let both = format!("ratelimit.*.limit or ratelimit.{id}.limit");
        assert!(detail.as_str().unwrap().ends_with(&both), "{detail}");
    }

    async fn workspaces_may_use_one_name_and_count_apart(kw) {
        let stranger = kw.create_other_workspace().await;
        kw.check_limit("email.send", "user_1", json!({ "cost": 10 })).await.data();
        let request = limit_request("email.send", "user_1", json!({}));
        assert_eq!(kw.v2_as(&stranger, "ratelimit.limit", request).await.data()["remaining"], 9);
        assert_eq!(kw.count_rows("namespaces").await, 2);
    }

    async fn a_deleted_namespace_is_gone_at_once_and_its_name_stays_taken(kw) {
        kw.check_limit("email.send", "user_1", json!({})).await.data();
        let id = kw.find_namespace_id("email.send").await;

        kw.delete_namespace("email.send").await;

        for name in ["email.send", &id] {
            let reply = kw.check_limit(name, "user_1", json!({})).await;
            let error = reply.assert_error(410, "ratelimit_namespace_gone");
            assert_eq!(error["title"], "Resource Gone");
        }
        assert_eq!(kw.count_rows("namespaces").await, 1);
    }

    async fn no_more_namespaces_are_made_than_a_workspace_may_have(kw) {
        let full = NAMESPACES_MAX - 1;
        many_namespaces(&kw, full).await;

        kw.check_limit("the last", "user_1", json!({})).await.data();
        kw.check_limit("one more", "user_1", json!({})).await.assert_error_about(412, "precondition_failed", &["1000"]);

        assert_eq!(kw.count_rows("namespaces").await, NAMESPACES_MAX);
        kw.delete_namespace("the last").await;
        kw.check_limit("one more", "user_1", json!({})).await.data();
    }
}

/// Fills the default workspace with namespaces, past the operation.
async fn many_namespaces(kw: &Keyward, count: i64) {
    use foundation::id::NamespaceId;
    use foundation::model::{Namespace, OutagePolicy};
    let workspace_id = domain::root_keys::default_workspace();
    let namespace = |n: i64| Namespace {
        id: NamespaceId::random(),
        workspace_id: workspace_id.clone(),
        name: format!("namespace {n}"),
        outage_policy: OutagePolicy::Local,
        home: None,
        created_at: NOON,
        deleted_at: None,
    };
    let all: Vec<_> = (0..count).map(namespace).collect();
    let mut tx = kw.store().begin().await.unwrap();
    tx.insert_namespaces(&workspace_id, &all).await.unwrap();
    kw.app.context.commit(tx).await.unwrap();
}

#[tokio::test]
async fn replicas_that_make_one_namespace_at_once_share_its_counters() {
    let kw = Keyward::start(Stack::Replica).await;
    let (second, third) = (kw.replica().await, kw.replica().await);
    for name in ["a", "b", "c", "d", "e"] {
        assert_eq!(
            Keyward::count_concurrent_checks(&[&kw, &second, &third], name, 30).await,
            10,
            "{name}"
        );

        assert_eq!(kw.list_audit_events(name).await, ["ratelimitNamespace.create"]);
    }
}

#[tokio::test]
async fn a_replica_that_remembers_that_a_namespace_is_missing_hears_that_it_was_made() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    let root_key = kw.create_root_key(["ratelimit.*.limit"]).await;
    let request = limit_request("email.send", "user_1", json!({}));
    other
        .v2_as(&root_key, "ratelimit.limit", request.clone())
        .await
        .assert_error(403, "insufficient_permissions");

    let made = kw.check_limit("email.send", "user_1", json!({})).await;
    // This one may make it, and finds it made.
    assert_eq!(other.check_limit("email.send", "user_1", json!({})).await.data()["remaining"], 8);

    assert_eq!(made.data()["remaining"], 9);
    other.v2_as(&root_key, "ratelimit.limit", request).await.data();
    assert_eq!(kw.count_rows("namespaces").await, 1);
}

#[tokio::test]
async fn a_check_asks_the_database_nothing_once_its_namespace_is_known() {
    for stack in [Stack::Embedded, Stack::Replica] {
        let kw = Keyward::start(stack).await;
        kw.check_limit("email.send", "user_1", json!({})).await.data();
        // When the server finds its own change in the change log, it loads the namespace once more.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        kw.check_limit("email.send", "user_1", json!({})).await.data();

        kw.store().close().await;

        let replies =
            join_all((0..3).map(|_| kw.check_limit("email.send", "user_1", json!({})))).await;
        assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    }
}
