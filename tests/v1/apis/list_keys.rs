use domain::root_keys::default_workspace;
use foundation::secret::KeyHash;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, NOON, Reply};

async fn list(kw: &Keyward, api: &str, query: &str) -> Reply {
    kw.v1_get("apis.listKeys", &format!("apiId={api}&{query}")).await
}

fn keys(reply: &Reply) -> &[Value] {
    reply.v1_body()["keys"].as_array().unwrap()
}

fn ids(reply: &Reply) -> Vec<&str> {
    keys(reply).iter().map(|key| key["id"].as_str().unwrap()).collect()
}

/// Takes in a key whose owner is a name and no identity; its id.
async fn owned(kw: &Keyward, api: &str, owner: &str) -> String {
    let hash = KeyHash::compute(format!("{api} {owner}")).to_base64();
    let key = json!({ "apiId": api, "hash": { "value": hash, "variant": "sha256_base64" }, "ownerId": owner });
    let reply = kw.v1("migrations.createKeys", json!([key])).await;
    reply.v1_body()["keyIds"][0].as_str().unwrap().to_owned()
}

on_both_stacks! {
    async fn what_a_key_does_not_have_is_left_out(kw) {
        let api = kw.create_api().await;
        let made = kw.v1("keys.createKey", json!({ "apiId": api })).await;

        let reply = list(&kw, &api, "").await;

        let start = keys(&reply)[0]["start"].as_str().unwrap();
        assert!(made.v1_body()["key"].as_str().unwrap().starts_with(start) && start.len() < 6);
        assert_eq!(
            keys(&reply),
            [json!({
                "id": made.body["keyId"], "start": start, "workspaceId": default_workspace(), "apiId": api,
                "createdAt": NOON.0, "enabled": true, "roles": [], "permissions": [],
            })],
        );
    }

    async fn all_that_a_key_has_is_told(kw) {
        kw.create_role("editor", ["docs.edit", "docs.read"]).await;
        let (api, expires) = (kw.create_api().await, NOON.0 + 5);
        let fields = json!({
            "prefix": "prod", "name": "the key", "externalId": "user_1", "meta": { "a": 1 }, "roles": ["editor"],
            "permissions": ["docs.read"], "expires": expires, "remaining": 7,
            "refill": { "interval": "monthly", "amount": 9, "refillDay": 15 },
            "ratelimit": { "type": "fast", "limit": 5, "duration": 60_000 }, "enabled": false, "environment": "test",
        });
        let id = kw.create_key_v1(&api, fields).await.id;

        let reply = list(&kw, &api, "").await;

        let mut key = keys(&reply)[0].clone();
        let taken = key.as_object_mut().unwrap();
        assert!(taken.remove("start").unwrap().as_str().unwrap().starts_with("prod_"));
        let identity = taken["identity"]["id"].clone();
        assert!(identity.as_str().unwrap().starts_with("id_"), "{identity}");
        let wanted = json!({
            "id": id, "workspaceId": default_workspace(), "apiId": api, "createdAt": NOON.0, "name": "the key",
            "ownerId": "user_1", "meta": { "a": 1 }, "expires": expires, "remaining": 7,
            "refill": { "interval": "monthly", "amount": 9, "refillDay": 15, "lastRefillAt": NOON.0 },
            "ratelimit": {
                "async": true, "type": "fast", "limit": 5, "duration": 60_000, "refillRate": 5, "refillInterval": 60_000,
            },
            "roles": ["editor"], "permissions": ["docs.edit", "docs.read"], "enabled": false,
            "identity": { "id": identity, "externalId": "user_1", "meta": {} }, "environment": "test",
        });
        assert_eq!(key, wanted);
    }

    async fn each_key_is_told_as_get_key_tells_it(kw) {
        let api = kw.create_api().await;
        let daily = json!({ "interval": "daily", "amount": 10 });
        for fields in [
            json!({ "remaining": 7, "refill": daily }),
            json!({ "externalId": "user_1", "expires": 1 }),
            json!({ "ratelimit": { "limit": 5, "duration": 60_000, "async": false } }),
        ] {
            let id = kw.create_key_v1(&api, fields).await.id;
            kw.v1("keys.updateKey", json!({ "keyId": id, "name": "changed" })).await.v1_body();
        }

        let reply = list(&kw, &api, "").await;

        assert_eq!(keys(&reply).len(), 3);
        for key in keys(&reply) {
            assert_eq!(key["updatedAt"], NOON.0, "{key}");
            let query = format!("keyId={}", key["id"].as_str().unwrap());
            assert_eq!(key, kw.v1_get("keys.getKey", &query).await.v1_body());
        }
    }

    async fn a_user_is_found_by_external_id_and_by_owner_id(kw) {
        let api = kw.create_api().await;
        kw.create_key_v1(&api, json!({ "externalId": "user_2" })).await;
        kw.create_key(json!({ "externalId": "user_1" })).await;
        let linked = kw.create_key_v1(&api, json!({ "externalId": "user_1" })).await.id;
        let older = kw.create_key_v1(&api, json!({ "ownerId": "user_1" })).await.id;
        let unlinked = owned(&kw, &api, "user_1").await;
        let (mut of_identity, mut of_owner) = (vec![linked.clone(), older.clone()], vec![linked, older, unlinked]);
        of_identity.sort();
        of_owner.sort();

        assert_eq!(ids(&list(&kw, &api, "externalId=user_1").await), of_identity);
        assert_eq!(ids(&list(&kw, &api, "ownerId=user_1").await), of_owner);
        let both = list(&kw, &api, "externalId=user_2&ownerId=user_1").await;
        let paged = list(&kw, &api, "ownerId=user_1&limit=2").await;

        assert_eq!(keys(&both)[0]["identity"]["externalId"], "user_2");
        assert_eq!(keys(&both).len(), 1);
        assert_eq!((ids(&paged).len(), paged.v1_body()["cursor"].is_string()), (2, true));
    }

    async fn of_a_user_who_is_not_there_nothing_is_told_or_counted(kw) {
        let api = kw.create_api().await;
        kw.create_key_v1(&api, json!({ "externalId": "user_1" })).await;
        kw.v1("identities.createIdentity", json!({ "externalId": "user_2" })).await.v1_body();

        assert_eq!(*list(&kw, &api, "externalId=nobody").await.v1_body(), json!({ "keys": [], "total": 0 }));
        assert_eq!(*list(&kw, &api, "externalId=user_2").await.v1_body(), json!({ "keys": [], "total": 1 }));
        assert_eq!(*list(&kw, &api, "ownerId=nobody").await.v1_body(), json!({ "keys": [], "total": 1 }));
    }

    async fn the_total_is_of_the_whole_api_without_deleted_keys(kw) {
        let api = kw.create_api().await;
        let gone = kw.create_key_v1(&api, json!({})).await.id;
        kw.create_key_v1(&api, json!({ "externalId": "user_1" })).await;
        kw.create_key_v1(&api, json!({ "enabled": false })).await;
        assert_eq!(list(&kw, &api, "").await.v1_body()["total"], 3);

        kw.v1("keys.deleteKey", json!({ "keyId": gone })).await.v1_body();

        let reply = list(&kw, &api, "externalId=user_1").await;
        assert_eq!((keys(&reply).len(), &reply.body["total"]), (1, &json!(2)));
        assert!(!ids(&list(&kw, &api, "").await).contains(&gone.as_str()));
    }

    async fn a_recoverable_key_is_shown_to_who_may_decrypt_and_asks(kw) {
        let api = kw.create_api().await;
        kw.update_api(&api, |settings| settings.allows_recoverable_keys = true).await;
        let kept = kw.v1("keys.createKey", json!({ "apiId": api, "recoverable": true })).await;
        kw.create_key_v1(&api, json!({})).await;
        let grants = ["api.*.read_key".to_owned(), format!("api.{api}.read_api")].to_vec();
        let reader = kw.create_root_key_with(grants).await;
        let ask = async |decrypt: &str| {
            let query = format!("apiId={api}&decrypt={decrypt}");
            kw.v1_get_as(&reader, "apis.listKeys", &query).await
        };

        let shown = list(&kw, &api, "decrypt=true").await;
        let hidden = list(&kw, &api, "").await;

        for key in keys(&shown) {
            let is_kept = key["id"] == kept.v1_body()["keyId"];
            assert_eq!(key.get("plaintext"), is_kept.then(|| &kept.body["key"]));
        }
        assert!(keys(&hidden).iter().all(|key| key.get("plaintext").is_none()));
        assert_eq!(keys(&ask("false").await).len(), 2);
        ask("true").await.assert_v1_error_about(403, "INSUFFICIENT_PERMISSIONS", &["decrypt_key"]);
        let id = kept.body["keyId"].as_str().unwrap();
        assert_eq!(kw.list_audit_events(id).await, ["key.create", "key.decrypt"]);
        // Where no recoverable keys are kept, there is nothing to show.
        let api = kw.create_api().await;
        kw.create_key_v1(&api, json!({})).await;
        let reply = list(&kw, &api, "decrypt=true").await;
        assert_eq!((keys(&reply).len(), keys(&reply)[0].get("plaintext")), (1, None));
    }

    async fn a_list_is_never_stale_whether_that_is_asked_or_not(kw) {
        let api = kw.create_api().await;
        let id = kw.create_key_v1(&api, json!({ "name": "before" })).await.id;
        for (name, query) in [("one", "revalidateKeysCache=false"), ("two", ""), ("three", "revalidateKeysCache=true")] {
            kw.v1("keys.updateKey", json!({ "keyId": id, "name": name })).await.v1_body();

            assert_eq!(keys(&list(&kw, &api, query).await)[0]["name"], name);
        }
    }

    async fn reading_takes_the_api_and_its_keys_and_who_may_not_is_told_there_is_none(kw) {
        let api = kw.create_api().await;
        kw.create_key_in(&api, json!({})).await;
        let (read_key, read_api) = (format!("api.{api}.read_key"), format!("api.{api}.read_api"));
        let ask = async |grants: Vec<String>| {
            let root_key = kw.create_root_key_with(grants).await;
            kw.v1_get_as(&root_key, "apis.listKeys", &format!("apiId={api}")).await
        };

        assert_eq!(keys(&ask(vec![read_key.clone(), read_api.clone()]).await).len(), 1);
        for lacking in [vec![read_key], vec![read_api], vec!["api.api_1.read_key".to_owned()]] {
            ask(lacking).await.assert_v1_error_about(404, "NOT_FOUND", &[&api]);
        }
    }
}
