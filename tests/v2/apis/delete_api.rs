use futures_util::future::join_all;
use serde_json::json;

use crate::on_both_stacks;

on_both_stacks! {
    async fn the_reply_tells_nothing(kw) {
        let id = kw.create_api().await;

        let reply = kw.v2("apis.deleteApi", json!({ "apiId": id })).await;

        assert_eq!(*reply.data(), json!({}));
    }

    async fn keys_of_a_deleted_api_stop_verifying_at_once(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");

        kw.v2("apis.deleteApi", json!({ "apiId": api })).await.data();

        let reply = kw.verify(&key.key).await;
        assert_eq!(*reply.data(), json!({ "valid": false, "code": "NOT_FOUND" }));
    }

    async fn keys_of_other_apis_stay(kw) {
        let key = kw.create_key(json!({})).await;
        let api = kw.create_api().await;

        kw.v2("apis.deleteApi", json!({ "apiId": api })).await.data();

        kw.verify(&key.key).await.assert_code("VALID");
    }

    async fn keys_of_a_deleted_api_cannot_be_addressed(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;

        kw.v2("apis.deleteApi", json!({ "apiId": api })).await.data();

        for (operation, request) in [
            ("keys.getKey", json!({ "keyId": key.id })),
            ("keys.updateKey", json!({ "keyId": key.id, "name": "still there" })),
            ("keys.deleteKey", json!({ "keyId": key.id })),
            ("keys.deleteKey", json!({ "keyId": key.id, "permanent": true })),
            ("keys.whoami", json!({ "key": key.key })),
        ] {
            kw.v2(operation, request).await.assert_error(404, "key_not_found");
        }
    }

    async fn no_key_is_made_in_a_deleted_api(kw) {
        let api = kw.create_api().await;
        kw.v2("apis.deleteApi", json!({ "apiId": api })).await.data();

        let reply = kw.v2("keys.createKey", json!({ "apiId": api })).await;

        reply.assert_error(404, "api_not_found");
        assert_eq!(kw.count_rows("keys").await, 0);
    }

    async fn a_deleted_api_is_not_deleted_again(kw) {
        let id = kw.create_api().await;
        kw.v2("apis.deleteApi", json!({ "apiId": id })).await.data();

        let again = kw.v2("apis.deleteApi", json!({ "apiId": id })).await;

        again.assert_error(404, "api_not_found");
        assert_eq!(kw.list_audit_events(&id).await, ["api.create", "api.delete"]);
    }

    async fn of_many_who_delete_it_at_once_one_does(kw) {
        let id = kw.create_api().await;

        let replies =
            join_all((0..8).map(|_| kw.v2("apis.deleteApi", json!({ "apiId": id })))).await;

        let (deleted, rest): (Vec<_>, Vec<_>) =
            replies.iter().partition(|reply| reply.status == 200);
        assert_eq!(deleted.len(), 1);
        for reply in rest {
            reply.assert_error(404, "api_not_found");
        }
        assert_eq!(kw.list_audit_events(&id).await, ["api.create", "api.delete"]);
    }

    async fn what_was_never_made_is_not_found(kw) {
        let reply = kw.v2("apis.deleteApi", json!({ "apiId": "api_nowhere" })).await;

        reply.assert_error(404, "api_not_found");
    }

    async fn a_permission_for_one_api_deletes_no_other(kw) {
        let (own, other) = (kw.create_api().await, kw.create_api().await);
        let root_key = kw.create_root_key([&*format!("api.{own}.delete_api")]).await;

        let refused = kw.v2_as(&root_key, "apis.deleteApi", json!({ "apiId": other })).await;
        let deleted = kw.v2_as(&root_key, "apis.deleteApi", json!({ "apiId": own })).await;

        refused.assert_error(403, "insufficient_permissions");
        deleted.data();
        kw.v2("apis.getApi", json!({ "apiId": other })).await.data();
    }

    async fn who_may_not_delete_does_not_learn_what_exists(kw) {
        let root_key = kw.create_root_key(["api.*.read_api"]).await;

        let reply = kw.v2_as(&root_key, "apis.deleteApi", json!({ "apiId": "api_nowhere" })).await;

        reply.assert_error(403, "insufficient_permissions");
    }

    async fn the_deletion_is_in_the_audit_log(kw) {
        let id = kw.create_api().await;

        kw.v2("apis.deleteApi", json!({ "apiId": id })).await.data();

        assert_eq!(kw.list_audit_events(&id).await, ["api.create", "api.delete"]);
    }
}
