//! Identities with their limits, namespaces with their overrides.

use serde_json::{Value, json};

use super::MINUTE;
use crate::on_both_stacks;
use crate::support::Keyward;
use crate::support::json::Fields as _;

async fn identity_v1(kw: &Keyward, external_id: &str) -> Value {
    let query = format!("externalId={external_id}");
    kw.v1_get("identities.getIdentity", &query).await.v1_body().clone()
}

async fn override_v1(kw: &Keyward, identifier: &str) -> Value {
    let query = format!("namespaceName=uploads&identifier={identifier}");
    kw.v1_get("ratelimits.getOverride", &query).await.v1_body().clone()
}

on_both_stacks! {
    async fn an_identity_of_version_1_is_told_by_version_2(kw) {
        let user = json!({
            "externalId": "user_1", "meta": { "plan": "pro" },
            "ratelimits": [{ "name": "tokens", "limit": 10, "duration": MINUTE }],
        });
        let id = kw.v1("identities.createIdentity", user).await.v1_body()["identityId"].clone();

        let told = kw.get_identity("user_1").await;

        assert_eq!(told, json!({
            "id": id, "externalId": "user_1", "meta": { "plan": "pro" },
            "ratelimits": [{
                "id": told["ratelimits"][0]["id"], "name": "tokens", "limit": 10,
                "duration": MINUTE, "autoApply": false,
            }],
        }));
    }

    async fn an_identity_of_version_2_is_told_by_version_1(kw) {
        let limit = json!({ "name": "tokens", "limit": 10, "duration": MINUTE, "autoApply": true });
        let user = json!({ "externalId": "user_1", "ratelimits": [limit] });
        let id = kw.v2("identities.createIdentity", user).await.text_of("identityId");

        let told = identity_v1(&kw, "user_1").await;

        assert_eq!(told, json!({
            "id": id, "externalId": "user_1", "meta": {},
            "ratelimits": [{ "name": "tokens", "limit": 10, "duration": MINUTE }],
        }));
    }

    async fn a_change_of_an_identity_is_told_by_the_other_version(kw) {
        let id = kw.v1("identities.createIdentity", json!({ "externalId": "user_1" })).await.v1_body()["identityId"].clone();
        let limit = |limit: i64| json!([{ "name": "tokens", "limit": limit, "duration": MINUTE }]);

        let change = json!({ "identityId": id, "meta": { "a": 1 }, "ratelimits": limit(5) });
        kw.v1("identities.updateIdentity", change).await.v1_body();
        let by_v2 = kw.get_identity("user_1").await;
        let change = json!({ "identity": "user_1", "meta": { "b": 2 }, "ratelimits": limit(6) });
        kw.v2("identities.updateIdentity", change).await.data();
        let by_v1 = identity_v1(&kw, "user_1").await;

        assert_eq!((&by_v2["meta"], &by_v2["ratelimits"][0]["limit"]), (&json!({ "a": 1 }), &json!(5)));
        assert_eq!((&by_v1["meta"], &by_v1["ratelimits"]), (&json!({ "b": 2 }), &limit(6)));
        kw.v2("identities.deleteIdentity", json!({ "identity": "user_1" })).await.data();
        kw.v1_get("identities.getIdentity", "externalId=user_1").await.assert_v1_error(404, "NOT_FOUND");
        assert_eq!(*kw.v1_get("identities.listIdentities", "").await.v1_body(), json!({ "identities": [], "total": 0 }));
    }

    async fn a_key_of_either_version_finds_the_identity_of_the_other(kw) {
        let api = kw.create_api().await;
        kw.v2("identities.createIdentity", json!({ "externalId": "user_1" })).await.data();
        kw.v1("identities.createIdentity", json!({ "externalId": "user_2" })).await.v1_body();

        let first = kw.create_key_v1(&api, json!({ "externalId": "user_1" })).await;
        let second = kw.create_key_in(&api, json!({ "externalId": "user_2" })).await;

        for (key, user) in [(first, "user_1"), (second, "user_2")] {
            let linked = kw.get_key(&key.id).await["identity"]["id"].clone();
            assert_eq!(linked, identity_v1(&kw, user).await["id"]);
        }
        assert_eq!(kw.count_rows("identities").await, 2);
    }

    async fn limits_of_an_identity_are_counted_together_by_both_versions(kw) {
        let limit = json!({ "name": "tokens", "limit": 10, "duration": MINUTE, "autoApply": true });
        kw.v2("identities.createIdentity", json!({ "externalId": "user_1", "ratelimits": [limit] })).await.data();
        let api = kw.create_api().await;
        let (first, second) = (
            kw.create_key_v1(&api, json!({ "externalId": "user_1" })).await,
            kw.create_key_in(&api, json!({ "externalId": "user_1" })).await,
        );

        assert_eq!(kw.verify_v1(&first.key, json!({})).await.assert_v1_code("VALID")["ratelimit"]["remaining"], 9);
        assert_eq!(kw.verify(&second.key).await.data()["ratelimits"][0]["remaining"], 8);
        kw.verify_v1(&second.key, json!({ "ratelimits": [{ "name": "tokens", "cost": 8 }] })).await.assert_v1_code("VALID");

        kw.verify(&first.key).await.assert_code("RATE_LIMITED");
    }

    async fn an_identifier_is_counted_together_by_both_versions(kw) {
        let check = |cost: i64| json!({
            "namespace": "uploads", "identifier": "user_1", "limit": 10, "duration": MINUTE, "cost": cost,
        });

        assert_eq!(kw.v1("ratelimits.limit", check(4)).await.v1_body()["remaining"], 6);
        let by_v2 = kw.v2("ratelimit.limit", check(5)).await;
        let refused = kw.v1("ratelimits.limit", check(2)).await;

        assert_eq!(by_v2.data()["remaining"], 1);
        refused.v1_body().assert_has(json!({ "success": false, "reset": by_v2.data()["reset"] }));
        assert_eq!(kw.count_rows("namespaces").await, 1);
    }

    async fn an_override_of_either_version_applies_in_both(kw) {
        kw.check_limit("uploads", "user_1", json!({})).await.data();
        let by_v1 = json!({ "namespaceName": "uploads", "identifier": "user_1", "limit": 3, "duration": MINUTE });
        let first = kw.v1("ratelimits.setOverride", by_v1).await.v1_body()["overrideId"].clone();
        let second = kw.set_override("uploads", "team_*", json!({ "limit": 4, "duration": 2 * MINUTE })).await;

        for (id, identifier, limit, duration) in [(first, "user_1", 3, MINUTE), (json!(second), "team_*", 4, 2 * MINUTE)] {
            let told = json!({ "id": id, "identifier": identifier, "limit": limit, "duration": duration, "async": false });
            assert_eq!(override_v1(&kw, identifier).await, told);
            let request = json!({ "namespace": "uploads", "identifier": identifier });
            let told = json!({ "overrideId": id, "identifier": identifier, "limit": limit, "duration": duration });
            assert_eq!(*kw.v2("ratelimit.getOverride", request).await.data(), told);
        }
        for (identifier, limit) in [("user_1", 3), ("team_1", 4), ("user_2", 10)] {
            let by_v1 = json!({ "namespace": "uploads", "identifier": identifier, "limit": 10, "duration": MINUTE });
            assert_eq!(kw.v1("ratelimits.limit", by_v1).await.v1_body()["limit"], limit);
            assert_eq!(kw.check_limit("uploads", identifier, json!({})).await.data()["limit"], limit);
        }
    }

    async fn an_override_is_replaced_listed_and_deleted_by_either_version(kw) {
        kw.check_limit("uploads", "user_1", json!({})).await.data();
        let first = kw.set_override("uploads", "user_1", json!({ "limit": 3 })).await;
        let second = kw.set_override("uploads", "user_2", json!({ "limit": 4 })).await;

        let again = json!({ "namespaceName": "uploads", "identifier": "user_1", "limit": 5, "duration": MINUTE });
        assert_eq!(kw.v1("ratelimits.setOverride", again).await.v1_body()["overrideId"], first);
        let by_v1 = kw.v1_get("ratelimits.listOverrides", "namespaceName=uploads").await;
        let by_v2 = kw.v2("ratelimit.listOverrides", json!({ "namespace": "uploads" })).await;
        kw.v1("ratelimits.deleteOverride", json!({ "namespaceName": "uploads", "identifier": "user_1" })).await.v1_body();
        kw.v2("ratelimit.deleteOverride", json!({ "namespace": "uploads", "identifier": "user_2" })).await.data();
        let none = kw.v1_get("ratelimits.listOverrides", "namespaceName=uploads").await;

        let ids = |list: &Value, field: &str| -> Vec<String> {
            let ids = list.as_array().unwrap().iter();
            ids.map(|one| one[field].as_str().unwrap().to_owned()).collect()
        };
        let mut expected = [first, second];
        expected.sort();
        assert_eq!(ids(&by_v1.v1_body()["overrides"], "id"), expected);
        assert_eq!(ids(by_v2.data(), "overrideId"), expected);
        assert_eq!(by_v1.v1_body()["total"], 2);
        assert_eq!(*none.v1_body(), json!({ "overrides": [], "total": 0 }));
    }
}
