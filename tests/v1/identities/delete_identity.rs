use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::Keyward;

async fn create(kw: &Keyward) -> String {
    let request = json!({
        "externalId": "user_1", "meta": { "plan": "pro" },
        "ratelimits": [{ "name": "one", "limit": 1, "duration": 60_000 }],
    });
    let reply = kw.v1("identities.createIdentity", request).await;
    reply.v1_body()["identityId"].as_str().unwrap().to_owned()
}

on_both_stacks! {
    async fn its_keys_go_on_at_once_without_its_meta_and_its_limits(kw) {
        let id = create(&kw).await;
        let key = kw.create_key(json!({ "externalId": "user_1" })).await;
        let asked = json!({ "ratelimits": [{ "name": "one" }] });
        kw.verify_v1(&key.key, asked.clone()).await.assert_v1_code("VALID");

        let reply = kw.v1("identities.deleteIdentity", json!({ "identityId": id })).await;

        assert_eq!(*reply.v1_body(), json!({}));
        let verified = kw.verify_v1(&key.key, json!({})).await;
        assert_eq!(verified.assert_v1_code("VALID").get("identity"), None);
        assert_eq!(verified.body["ownerId"], "user_1");
        kw.verify_v1(&key.key, asked).await.assert_v1_error(400, "BAD_REQUEST");
        let told = kw.v1_get("keys.getKey", &format!("keyId={}", key.id)).await;
        assert_eq!((told.v1_body().get("identity"), &told.body["ownerId"]), (None, &json!("user_1")));
    }

    async fn it_is_gone_for_good_and_the_user_can_be_made_anew(kw) {
        let id = create(&kw).await;
        let key = kw.create_key(json!({ "externalId": "user_1" })).await;
        kw.v1("identities.deleteIdentity", json!({ "identityId": id })).await.v1_body();
        let missing = kw.v1_get("identities.getIdentity", "externalId=user_1").await;
        missing.assert_v1_error(404, "NOT_FOUND");

        let new = create(&kw).await;

        assert_ne!(new, id);
        let verified = kw.verify_v1(&key.key, json!({})).await;
        assert_eq!(verified.assert_v1_code("VALID").get("identity"), None);
    }

    async fn only_its_id_names_it(kw) {
        create(&kw).await;
        let delete = async |request: Value| kw.v1("identities.deleteIdentity", request).await;

        let by_external_id = delete(json!({ "externalId": "user_1" })).await;
        let as_id = delete(json!({ "identityId": "user_1" })).await;

        assert_eq!(by_external_id.assert_v1_error(400, "BAD_REQUEST"), "identityId: Required");
        let message = as_id.assert_v1_error(404, "NOT_FOUND");
        assert!(message.contains("user_1"), "{message}");
        assert_eq!(kw.count_rows("identities").await, 1);
    }

    async fn a_permission_for_one_identity_deletes_no_other(kw) {
        let own = create(&kw).await;
        let other = json!({ "externalId": "user_2" });
        let other = kw.v1("identities.createIdentity", other).await.v1_body()["identityId"].clone();
        let root_key = kw.create_root_key_with(vec![format!("identity.{own}.delete_identity")]).await;
        let delete = async |id: Value| {
            let request = json!({ "identityId": id });
            kw.v1_as(&root_key, "identities.deleteIdentity", request).await
        };

        delete(other).await.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
        delete(json!("id_nowhere")).await.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
        delete(json!(own)).await.v1_body();

        assert_eq!(kw.count_rows("identities").await, 1);
    }

    async fn the_deletion_is_in_the_audit_log_once(kw) {
        let id = create(&kw).await;
        let request = json!({ "identityId": id });

        kw.v1("identities.deleteIdentity", request.clone()).await.v1_body();
        kw.v1("identities.deleteIdentity", request).await.assert_v1_error(404, "NOT_FOUND");

        assert_eq!(
            kw.list_audit_events(&id).await,
            ["identity.create", "identity.delete", "ratelimit.create", "ratelimit.delete"]
        );
    }
}
