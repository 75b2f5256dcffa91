mod credits;
mod rbac;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::NOON;
use crate::support::json::Fields as _;
use crate::support::scenario::{Scenario, fail, field, pass, plain, read, update};
use crate::support::version::Version::V2;

/// Returns name, limit, duration and autoApply of each limit that getKey tells.
fn limits(told: &Value) -> Vec<Value> {
    let limits = told["ratelimits"].as_array().into_iter().flatten();
    limits.map(|l| json!([l["name"], l["limit"], l["duration"], l["autoApply"]])).collect()
}

on_both_stacks! {
    async fn what_is_left_out_stays(kw) {
        kw.create_permission("documents.read").await;
        kw.create_role("editor", []).await;
        let key = kw.create_key(json!({
            "prefix": "prod", "name": "for billing", "externalId": "user_1", "meta": { "plan": "pro" },
            "roles": ["editor"], "permissions": ["documents.read"], "expires": NOON.0 + 1, "enabled": false,
            "credits": { "remaining": 7, "refill": { "interval": "daily", "amount": 9 } },
            "ratelimits": [{ "name": "requests", "limit": 60, "duration": 60_000 }],
        })).await;
        let mut before = kw.get_key(&key.id).await;

        assert_eq!(*kw.update_key(&key.id, json!({})).await.data(), json!({}));

        before["updatedAt"] = json!(NOON.0);
        assert_eq!(kw.get_key(&key.id).await, before);
    }

    async fn fields_are_set_and_cleared(kw) {
        let none = || json!({});
        let unknown = |credits: Value, location: &'static str| fail("keys.updateKey", json!({ "credits": credits }), field(location, &["surprise"]));
        let limit = json!({ "name": "requests", "limit": 1, "duration": 1000, "autoApply": true });
        let scenarios: Vec<Scenario> = vec![
            ("a change is told with its time", none(), vec![
                pass(1234), update(json!({ "name": "for billing" })), read(json!({ "createdAt": NOON.0, "updatedAt": NOON.0 + 1234 })),
            ]),
            ("a name", none(), vec![
                update(json!({ "name": "für Rechnungen 🧾" })), read(json!({ "name": "für Rechnungen 🧾" })),
                update(json!({ "name": null })), read(json!({ "name": null })),
            ]),
            ("meta", json!({ "meta": { "plan": "pro", "seats": 3 } }), vec![
                update(json!({ "meta": { "plan": { "name": "free" } } })), plain("VALID", json!({ "meta": { "plan": { "name": "free" } } })),
                update(json!({ "meta": null })), plain("VALID", json!({ "meta": null })),
            ]),
            ("an empty meta clears it", json!({ "meta": { "plan": "pro" } }), vec![update(json!({ "meta": {} })), read(json!({ "meta": null }))]),
            ("an expiry", none(), vec![
                update(json!({ "expires": NOON.0 - 1 })), plain("EXPIRED", none()), update(json!({ "expires": NOON.0 })), plain("VALID", none()),
                update(json!({ "expires": null })), read(json!({ "expires": null })), plain("VALID", none()),
            ]),
            ("a key is disabled and enabled at once", none(), vec![
                plain("VALID", none()), update(json!({ "enabled": false })), plain("DISABLED", none()), update(json!({ "enabled": true })), plain("VALID", none()),
            ]),
            ("of two limits with one name the last counts", none(), vec![
                update(json!({ "ratelimits": [
                    { "name": "requests", "limit": 1, "duration": 1000 }, { "name": "requests", "limit": 2, "duration": 2000 },
                ] })),
                read(json!({
                    "ratelimits.0.name": "requests", "ratelimits.0.limit": 2, "ratelimits.0.duration": 2000, "ratelimits.0.autoApply": false,
                    "ratelimits.1": null,
                })),
            ]),
            ("an empty list removes all limits", json!({ "ratelimits": [limit] }), vec![
                update(json!({ "ratelimits": [] })), read(json!({ "ratelimits": null })), plain("VALID", json!({ "ratelimits": null })),
            ]),
            ("credits may carry no field that nobody knows", none(), vec![
                unknown(json!({ "remaining": 1, "surprise": 1 }), "/properties/credits/additionalProperties"),
                unknown(
                    json!({ "refill": { "interval": "daily", "amount": 1, "surprise": 1 } }),
                    "/properties/credits/properties/refill/additionalProperties",
                ),
            ]),
        ];
        kw.run(V2, scenarios).await;
    }

    async fn an_external_id_is_linked_and_unlinked(kw) {
        let other = kw.create_key(json!({ "externalId": "user_1" })).await;
        let key = kw.create_key(json!({})).await;
        let link = async |user: Value| {
            kw.update_key(&key.id, json!({ "externalId": user })).await.data();
            kw.verify(&key.key).await.data()["identity"].clone()
        };

        let known = link(json!("user_1")).await;
        let new = link(json!("user_2")).await;

        assert_eq!(known, kw.get_key(&other.id).await["identity"]);
        assert_eq!(new["externalId"], "user_2");
        assert_ne!(new["id"], known["id"]);
        assert_eq!(link(Value::Null).await, Value::Null);
        assert_eq!(kw.count_rows("identities").await, 2);
    }

    async fn limits_are_replaced_by_name(kw) {
        let reads = json!({ "name": "reads", "limit": 1, "duration": 1000 });
        let key = kw.create_key(json!({ "ratelimits": [reads, { "name": "writes", "limit": 2, "duration": 2000 }] })).await;
        let before = kw.get_key(&key.id).await;

        let writes = json!({ "name": "writes", "limit": 20, "duration": 20_000, "autoApply": true });
        let change = json!({ "ratelimits": [writes, { "name": "Writes", "limit": 3, "duration": 3000 }] });
        kw.update_key(&key.id, change).await.data();

        let after = kw.get_key(&key.id).await;
        assert_eq!(limits(&after), [json!(["Writes", 3, 3000, false]), json!(["writes", 20, 20_000, true])]);
        assert_eq!(after["ratelimits"][1]["id"], before["ratelimits"][1]["id"]);
        assert_ne!(after["ratelimits"][0]["id"], before["ratelimits"][0]["id"]);
    }

    async fn changes_of_different_fields_at_once_are_all_kept(kw) {
        let key = kw.create_key(json!({ "name": "before", "expires": NOON.0 + 1 })).await;
        let changes = [
            json!({ "name": "after" }), json!({ "externalId": "user_1" }), json!({ "meta": { "plan": "pro" } }),
            json!({ "expires": null }), json!({ "enabled": false }),
        ];

        for reply in join_all(changes.map(|change| kw.update_key(&key.id, change))).await {
            reply.data();
        }

        kw.get_key(&key.id).await.assert_has(json!({
            "name": "after", "identity.externalId": "user_1", "meta": { "plan": "pro" }, "expires": null, "enabled": false,
        }));
    }

    async fn replacements_at_once_leave_one_of_them(kw) {
        let key = kw.create_key(json!({})).await;
        let change = |n: i64| json!({
            "permissions": ["shared", format!("own.{n}")],
            "ratelimits": [
                { "name": "shared", "limit": n, "duration": 1000 }, { "name": format!("own {n}"), "limit": n, "duration": 1000 },
            ],
        });

        for reply in join_all((1..=6).map(|n| kw.update_key(&key.id, change(n)))).await {
            reply.data();
        }

        let told = kw.get_key(&key.id).await;
        let n = told["ratelimits"][1]["limit"].as_i64().unwrap();
        assert_eq!(told["permissions"], json!([format!("own.{n}"), "shared"]));
        assert_eq!(limits(&told), [json!([format!("own {n}"), n, 1000, false]), json!(["shared", n, 1000, false])]);
    }

    async fn the_change_is_in_the_audit_log(kw) {
        kw.create_role("editor", []).await;
        let key = kw.create_key(json!({ "name": "before" })).await;
        let change = json!({ "name": "after", "roles": ["editor"], "permissions": ["documents.read"] });

        kw.update_key(&key.id, change).await.data();

        let connect = "authorization.connect_permission_and_key";
        assert_eq!(
            kw.list_audit_events(&key.id).await,
            [connect, "authorization.connect_role_and_key", "key.create", "key.update"]
        );
        assert_eq!(kw.list_audit_events("documents.read").await, [connect, "permission.create"]);
    }
}
