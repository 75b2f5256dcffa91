use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, NOON, Reply};

async fn list(kw: &Keyward, api: &str, mut fields: Value) -> Reply {
    fields["apiId"] = json!(api);
    kw.v2("apis.listKeys", fields).await
}

fn ids(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["keyId"].as_str().unwrap()).collect()
}

fn items(reply: &Reply) -> &[Value] {
    reply.data().as_array().unwrap()
}

on_both_stacks! {
    async fn each_key_is_told_as_get_key_tells_it(kw) {
        kw.create_role("editor", ["docs.edit", "docs.read"]).await;
        kw.create_role("reader", ["docs.read"]).await;
        let api = kw.create_api().await;
        let limit = json!([{ "name": "one", "limit": 5, "duration": 60_000, "autoApply": true }]);
        let daily = json!({ "interval": "daily", "amount": 10 });
        for fields in [
            json!({}),
            json!({ "enabled": false, "expires": 1, "name": "old", "meta": { "a": 1 } }),
            json!({ "externalId": "user_1", "roles": ["editor", "reader"], "ratelimits": limit }),
            json!({ "externalId": "user_1", "permissions": ["docs.edit"] }),
            json!({ "credits": { "remaining": 7, "refill": daily } }),
            json!({ "credits": { "remaining": 1_000_000 } }),
            json!({ "credits": { "remaining": 0 } }),
        ] {
            let key = kw.create_key_in(&api, fields).await;
            kw.verify(&key.key).await;
        }
        kw.set_identity_limits(kw.get_identity("user_1").await["id"].as_str().unwrap(), &[("shared", 2, 60_000, true)]).await;

        let reply = list(&kw, &api, json!({})).await;

        assert_eq!(items(&reply).len(), 7);
        for item in items(&reply) {
            assert_eq!(*item, kw.get_key(item["keyId"].as_str().unwrap()).await);
        }
        let left = items(&reply).iter().filter_map(|item| item["credits"]["remaining"].as_i64());
        let mut left: Vec<_> = left.collect();
        left.sort_unstable();
        assert_eq!(left, [0, 6, 999_999]);
    }

    async fn a_refill_that_is_due_is_told(kw) {
        let daily = json!({ "interval": "daily", "amount": 10 });
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({ "credits": { "remaining": 7, "refill": daily } })).await;
        kw.verify(&key.key).await.assert_code("VALID");

        kw.clock.advance_ms(12 * 3_600_000);

        assert_eq!(items(&list(&kw, &api, json!({})).await)[0]["credits"]["remaining"], 10);
    }

    async fn an_external_id_lists_the_keys_of_its_user_in_this_api(kw) {
        let api = kw.create_api().await;
        let mut mine = Vec::new();
        for n in 0..6 {
            let user = json!({ "externalId": format!("user_{}", n % 2) });
            let key = kw.create_key_in(&api, user.clone()).await;
            kw.create_key(user).await;
            if n % 2 == 1 {
                mine.push(key.id);
            }
        }
        mine.sort();

        assert_eq!(ids(&kw.list_all_pages("apis.listKeys", json!({ "apiId": api, "externalId": "user_1" })).await), mine);
        let nobody = list(&kw, &api, json!({ "externalId": "nobody" })).await;

        assert_eq!(*nobody.data(), json!([]));
        assert_eq!(nobody.body["pagination"], json!({ "hasMore": false }));
    }

    async fn deleted_keys_are_not_told(kw) {
        let api = kw.create_api().await;
        let (kept, soft, hard) = (
            kw.create_key_in(&api, json!({})).await,
            kw.create_key_in(&api, json!({})).await,
            kw.create_key_in(&api, json!({})).await,
        );
        kw.v2("keys.deleteKey", json!({ "keyId": soft.id })).await.data();
        kw.v2("keys.deleteKey", json!({ "keyId": hard.id, "permanent": true })).await.data();

        assert_eq!(ids(items(&list(&kw, &api, json!({})).await)), [kept.id]);
    }

    async fn who_may_not_read_both_api_and_keys_is_told_that_there_is_none(kw) {
        let api = kw.create_api().await;
        let both = vec![format!("api.{api}.read_key"), format!("api.{api}.read_api")];
        let one = kw.create_root_key_with(vec![both[0].clone()]).await;
        let both = kw.create_root_key_with(both).await;
        let request = json!({ "apiId": api });

        kw.v2_as(&one, "apis.listKeys", request.clone()).await.assert_error(404, "api_not_found");
        kw.v2_as(&both, "apis.listKeys", request).await.data();
    }

    async fn what_a_verification_has_just_changed_is_told(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({ "credits": { "remaining": 3 } })).await;
        assert_eq!(kw.get_key(&key.id).await["createdAt"], NOON.0);
        for left in [2, 1, 0] {
            kw.verify(&key.key).await.assert_code("VALID");

            let reply = list(&kw, &api, json!({ "revalidateKeysCache": true })).await;

            assert_eq!(items(&reply)[0]["credits"]["remaining"], left);
        }
    }
}
