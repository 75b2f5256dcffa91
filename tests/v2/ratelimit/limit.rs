//! The check of one limit.

mod overrides;

use std::time::Duration;

use axum::body::Body;
use domain::ratelimits::namespaces::NAMESPACES_MAX;
use futures_util::future::join_all;
use serde_json::{Value, json};
use store::Store;

use crate::on_both_stacks;
use crate::support::seed::limit_request;
use crate::support::{Keyward, NOON, Stack, post};

const MINUTE: i64 = 60_000;

/// Success and what is left, of several checks one after the other.
async fn counted<const N: usize>(kw: &Keyward, checks: [Value; N]) -> Vec<Value> {
    let mut told = Vec::new();
    for fields in checks {
        let reply = kw.check_limit("email.send", "user_1", fields).await;
        told.push(json!([reply.data()["success"], reply.data()["remaining"]]));
    }
    told
}

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
    async fn the_reply_tells_the_limit_what_is_left_and_the_end_of_the_window(kw) {
        let reply = kw.check_limit("email.send", "user_1", json!({})).await;

        assert_eq!(
            *reply.data(),
            json!({ "success": true, "limit": 10, "remaining": 9, "reset": NOON.0 + MINUTE })
        );
    }

    async fn a_limit_admits_as_many_as_it_says_and_a_refusal_is_no_error(kw) {
        let told =
            counted(&kw, [json!({ "limit": 2 }), json!({ "limit": 2 }), json!({ "limit": 2 })]);

        assert_eq!(told.await, [json!([true, 1]), json!([true, 0]), json!([false, 0])]);
    }

    async fn cost_is_taken_as_a_whole_or_not_at_all(kw) {
        let told = counted(
            &kw,
            [
                json!({ "cost": 4 }),
                json!({ "cost": 7 }),
                json!({ "cost": 6 }),
                json!({ "cost": 0 }),
                json!({ "cost": 1 }),
            ],
        )
        .await;

        assert_eq!(
            told,
            [
                json!([true, 6]),
                json!([false, 0]),
                json!([true, 0]),
                json!([true, 0]),
                json!([false, 0]),
            ]
        );
    }

    async fn a_window_frees_what_it_no_longer_covers(kw) {
        kw.check_limit("email.send", "user_1", json!({ "cost": 10 })).await.data();

        kw.clock.advance_ms(MINUTE + MINUTE / 2);

        let reply = kw.check_limit("email.send", "user_1", json!({ "cost": 5 })).await;
        assert_eq!(
            *reply.data(),
            json!({ "success": true, "limit": 10, "remaining": 0, "reset": NOON.0 + 2 * MINUTE })
        );
    }

    async fn a_changed_limit_keeps_the_count_and_a_changed_duration_does_not(kw) {
        let told = counted(
            &kw,
            [json!({ "cost": 5 }), json!({ "limit": 6 }), json!({ "duration": 2 * MINUTE })],
        );

        assert_eq!(told.await, [json!([true, 5]), json!([true, 0]), json!([true, 9])]);
    }

    async fn each_namespace_and_each_identifier_counts_for_itself(kw) {
        for (namespace, identifier) in
            [("a", "b"), ("a", "B"), ("A", "b"), ("a:b", "b"), ("a", "b:60000"), ("a", "é\n🦀*")]
        {
            let reply = kw.check_limit(namespace, identifier, json!({ "cost": 10 })).await;

            assert_eq!(reply.data()["success"], true, "{namespace} {identifier}");
        }
    }

    async fn a_namespace_goes_by_its_name_and_by_its_id(kw) {
        kw.create_examples().await;
        let id = api::example::NAMESPACE_ID;

        kw.check_limit("email.send", "nobody", json!({ "cost": 4 })).await.data();
        let reply = kw.check_limit(id, "nobody", json!({})).await;

        assert_eq!(reply.data()["remaining"], 5);
        assert_eq!(kw.count_rows("namespaces").await, 1);
    }

    async fn where_one_namespace_is_called_like_the_id_of_another_the_id_counts(kw) {
        kw.check_limit("first", "user_1", json!({ "cost": 4 })).await.data();
        let id = namespace_id(&kw, "first").await;
        let sql = "UPDATE namespaces SET name = $1 WHERE name = 'second'";
        kw.check_limit("second", "user_1", json!({ "cost": 1 })).await.data();
        match kw.store() {
            Store::Postgres { pool, .. } => drop(sqlx::query(sql).bind(&id).execute(&pool.get()).await.unwrap()),
            Store::Sqlite { pool, .. } => drop(sqlx::query(sql).bind(&id).execute(pool).await.unwrap()),
        }

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
        let succeeded = Keyward::count_concurrent_checks(&[&kw], "email.send", 20).await;

        assert_eq!(succeeded, 10);
        assert_eq!(kw.count_rows("namespaces").await, 1);
        assert_eq!(kw.list_audit_events("email.send").await.len(), 1);
    }

    async fn a_missing_namespace_needs_two_permissions_and_the_error_names_those_that_lack(kw) {
        for (grants, lacking) in [
            (vec!["ratelimit.*.limit"], "ratelimit.*.create_namespace"),
            (vec!["ratelimit.*.create_namespace"], "ratelimit.*.limit"),
            (
                vec!["ratelimit.rlns_other.limit"],
                "ratelimit.*.limit and ratelimit.*.create_namespace",
            ),
        ] {
            let grants = grants.into_iter().map(str::to_owned).collect();
            let root_key = kw.create_root_key_with(grants).await;

            let request = limit_request("email.send", "user_1", json!({}));
            let reply = kw.v2_as(&root_key, "ratelimit.limit", request).await;

            let detail = reply.assert_error(403, "insufficient_permissions")["detail"].clone();
            assert!(
                detail.as_str().unwrap().ends_with(&format!("permission {lacking}")),
                "{detail}"
            );
        }
        assert_eq!(kw.count_rows("namespaces").await, 0);
    }

    async fn an_existing_namespace_needs_its_own_permission_only(kw) {
        kw.check_limit("email.send", "user_1", json!({})).await.data();
        let id = namespace_id(&kw, "email.send").await;
        let request = limit_request("email.send", "user_1", json!({}));
        let own = kw.create_root_key_with(vec![format!("ratelimit.{id}.limit")]).await;
        let other = kw.create_root_key(["ratelimit.rlns_other.limit"]).await;

        let allowed = kw.v2_as(&own, "ratelimit.limit", request.clone()).await;
        let refused = kw.v2_as(&other, "ratelimit.limit", request).await;

        assert_eq!(allowed.data()["remaining"], 8);
        let detail = refused.assert_error(403, "insufficient_permissions")["detail"].clone();
        let both = format!("ratelimit.*.limit or ratelimit.{id}.limit");
        assert!(detail.as_str().unwrap().ends_with(&both), "{detail}");
    }

    async fn workspaces_may_use_one_name_and_count_apart(kw) {
        let stranger = kw.create_other_workspace().await;
        kw.check_limit("email.send", "user_1", json!({ "cost": 10 })).await.data();

        let request = limit_request("email.send", "user_1", json!({}));
        let reply = kw.v2_as(&stranger, "ratelimit.limit", request).await;

        assert_eq!(reply.data()["remaining"], 9);
        assert_eq!(kw.count_rows("namespaces").await, 2);
    }

    async fn a_deleted_namespace_is_gone_at_once_and_its_name_stays_taken(kw) {
        kw.check_limit("email.send", "user_1", json!({})).await.data();
        let id = namespace_id(&kw, "email.send").await;

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

        let last = kw.check_limit("the last", "user_1", json!({})).await;
        let over = kw.check_limit("one more", "user_1", json!({})).await;

        last.data();
        let detail = over.assert_error(412, "precondition_failed")["detail"].clone();
        assert!(detail.as_str().unwrap().contains("1000"), "{detail}");
        assert_eq!(kw.count_rows("namespaces").await, NAMESPACES_MAX);
        kw.delete_namespace("the last").await;
        kw.check_limit("one more", "user_1", json!({})).await.data();
    }
}

/// The id of a namespace of the default workspace, by its name.
async fn namespace_id(kw: &Keyward, name: &str) -> String {
    let workspace = domain::root_keys::default_workspace();
    let found = kw.store().read().await.unwrap().find_namespace(&workspace, name).await.unwrap();
    found.unwrap().id.to_string()
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
        let succeeded = Keyward::count_concurrent_checks(&[&kw, &second, &third], name, 30).await;

        assert_eq!(succeeded, 10, "{name}");
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
    let found = other.check_limit("email.send", "user_1", json!({})).await;

    assert_eq!(made.data()["remaining"], 9);
    assert_eq!(found.data()["remaining"], 8);
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
