//! The check of several limits.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::seed::limit_request;
use crate::support::{Keyward, NOON, Reply, Stack};

const MINUTE: i64 = 60_000;

async fn multi(kw: &Keyward, checks: Value) -> Reply {
    kw.v2("ratelimit.multiLimit", checks).await
}

/// Whether all passed, and of each member whether it did and what is left.
fn told(reply: &Reply) -> (bool, Vec<Value>) {
    let members = reply.data()["limits"].as_array().unwrap().iter();
    let members = members.map(|member| json!([member["passed"], member["remaining"]]));
    (reply.data()["passed"].as_bool().unwrap(), members.collect())
}

on_both_stacks! {
    async fn the_reply_tells_each_member_in_the_order_of_the_request(kw) {
        kw.check_limit("zoo", "user_1", json!({ "cost": 0 })).await.data();
        let id = kw.set_override("zoo", "user_*", json!({ "limit": 5 })).await;

        let reply = multi(
            &kw,
            json!([
                limit_request("zoo", "user_1", json!({ "cost": 2 })),
                limit_request("ant", "*", json!({ "duration": 1000 })),
            ]),
        )
        .await;

        assert_eq!(
            *reply.data(),
            json!({
                "passed": true,
                "limits": [
                    {
                        "namespace": "zoo", "identifier": "user_1", "limit": 5, "remaining": 3,
                        "reset": NOON.0 + MINUTE, "passed": true, "overrideId": id,
                    },
                    {
                        "namespace": "ant", "identifier": "*", "limit": 10, "remaining": 9,
                        "reset": NOON.0 + 1000, "passed": true,
                    },
                ],
            })
        );
    }

    async fn a_namespace_is_told_as_it_was_sent(kw) {
        kw.create_examples().await;
        let id = api::example::NAMESPACE_ID;
        let by_name = limit_request("email.send", "nobody", json!({}));

        let reply = multi(&kw, json!([limit_request(id, "nobody", json!({})), by_name])).await;

        let limits = &reply.data()["limits"];
        assert_eq!((&limits[0]["namespace"], &limits[1]["namespace"]), (&json!(id), &json!("email.send")));
        assert_eq!(limits[1]["remaining"], 8);
    }

    async fn all_are_taken_or_none(kw) {
        let checks = |cost: i64| {
            json!([
                limit_request("a", "user_1", json!({})),
                limit_request("b", "user_1", json!({ "limit": 3, "cost": cost })),
                limit_request("c", "user_1", json!({ "limit": 1 })),
            ])
        };

        assert_eq!(told(&multi(&kw, checks(4)).await), (false, vec![json!([true, 10]), json!([false, 0]), json!([true, 1])]));
        assert_eq!(told(&multi(&kw, checks(3)).await), (true, vec![json!([true, 9]), json!([true, 0]), json!([true, 0])]));
        assert_eq!(told(&multi(&kw, checks(0)).await), (false, vec![json!([true, 9]), json!([true, 0]), json!([false, 0])]));
    }

    async fn members_of_one_counter_add_up(kw) {
        let member = |cost: i64| limit_request("a", "user_1", json!({ "cost": cost }));
        let over = multi(&kw, json!([member(6), member(5)])).await;
        assert_eq!(told(&multi(&kw, json!([member(6), member(4)])).await), (true, vec![json!([true, 4]), json!([true, 0])]));
        assert_eq!(kw.check_limit("a", "user_1", json!({})).await.data()["success"], false);
        assert_eq!(told(&over), (false, vec![json!([true, 10]), json!([false, 0])]));
    }

    async fn a_hundred_members_are_taken_at_once(kw) {
        let member = |n: i64| limit_request(&format!("namespace {n}"), "user_1", json!({ "limit": 1 }));
        let checks = Value::Array((0..100).map(member).collect());
        assert_eq!(multi(&kw, checks.clone()).await.data()["passed"], true);
        assert_eq!(multi(&kw, checks).await.data()["passed"], false);
        assert_eq!(kw.count_rows("namespaces").await, 100);
    }

    async fn all_is_authorised_before_any_namespace_is_made(kw) {
        kw.check_limit("known", "user_1", json!({})).await.data();
        let create = "ratelimit.*.create_namespace";
        let root_key = kw.create_root_key([create, "ratelimit.rlns_other.limit"]).await;
        let checks = json!([limit_request("new", "user_1", json!({})), limit_request("known", "user_1", json!({}))]);

        kw.v2_as(&root_key, "ratelimit.multiLimit", checks).await.assert_error(403, "insufficient_permissions");

        assert_eq!(kw.count_rows("namespaces").await, 1);
        assert_eq!(kw.check_limit("known", "user_1", json!({})).await.data()["remaining"], 8);
    }

    async fn of_several_missing_namespaces_all_are_made_or_none(kw) {
        let checks = json!([
            limit_request("a", "user_1", json!({})),
            limit_request("b", "user_1", json!({})),
            limit_request("a", "user_2", json!({})),
        ]);
        let may_not = kw.create_root_key(["ratelimit.*.limit"]).await;

        let reply = kw.v2_as(&may_not, "ratelimit.multiLimit", checks.clone()).await;
        reply.assert_error_about(403, "insufficient_permissions", &["ratelimit.*.create_namespace"]);
        assert_eq!(kw.count_rows("namespaces").await, 0);

        multi(&kw, checks).await.data();
        assert_eq!(kw.count_rows("namespaces").await, 2);
        assert_eq!(kw.list_audit_events("a").await, ["ratelimitNamespace.create"]);
    }

    async fn a_deleted_namespace_ends_it_before_anything_is_made_or_counted(kw) {
        for name in ["known", "gone"] {
            kw.check_limit(name, "user_1", json!({})).await.data();
        }
        kw.delete_namespace("gone").await;
        let names = ["new", "known", "gone"];
        let checks = names.map(|name| limit_request(name, "user_1", json!({})));

        multi(&kw, json!(checks)).await.assert_error(410, "ratelimit_namespace_gone");

        assert_eq!(kw.count_rows("namespaces").await, 2);
        assert_eq!(kw.check_limit("known", "user_1", json!({})).await.data()["remaining"], 8);
    }

    async fn twenty_at_once_over_two_namespaces_admit_exactly_the_smaller_limit(kw) {
        assert_exact(&[&kw]).await;
    }
}

/// Half of the callers name the namespaces the other way round.
async fn assert_exact(replicas: &[&Keyward]) {
    let one = |at: usize| {
        let mut checks = vec![
            limit_request("wide", "user_1", json!({ "limit": 100 })),
            limit_request("narrow", "user_1", json!({})),
        ];
        if at.is_multiple_of(2) {
            checks.reverse();
        }
        multi(replicas[at % replicas.len()], Value::Array(checks))
    };

    let replies = join_all((0..20).map(one)).await;

    let passed = replies.iter().filter(|reply| reply.data()["passed"] == true).count();
    assert_eq!(passed, 10);
    let wide = replicas[0].check_limit("wide", "user_1", json!({ "limit": 100, "cost": 0 })).await;
    assert_eq!(wide.data()["remaining"], 90);
}

#[tokio::test]
async fn replicas_admit_together_exactly_the_smaller_limit() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    assert_exact(&[&kw, &other]).await;
}
