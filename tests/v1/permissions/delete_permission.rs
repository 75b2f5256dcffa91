use serde_json::json;

use crate::on_both_stacks;

on_both_stacks! {
    async fn keys_and_roles_lose_it_at_once(kw) {
        let id = kw.create_permission("docs.read").await;
        kw.create_role("editor", ["docs.read"]).await;
        let own = kw.create_key(json!({ "permissions": ["docs.read"] })).await;
        let through_role = kw.create_key(json!({ "roles": ["editor"] })).await;
        let asked = json!({ "authorization": { "permissions": "docs.read" } });
        for key in [&own, &through_role] {
            kw.verify_v1(&key.key, asked.clone()).await.assert_v1_code("VALID");
        }

        let reply = kw.v1("permissions.deletePermission", json!({ "permissionId": id })).await;

        assert_eq!(*reply.v1_body(), json!({}));
        for key in [&own, &through_role] {
            let verified = kw.verify_v1(&key.key, asked.clone()).await;
            assert_eq!(verified.assert_v1_code("INSUFFICIENT_PERMISSIONS")["permissions"], json!([]));
        }
    }

    async fn it_is_gone_and_its_slug_can_be_given_anew(kw) {
        let id = kw.create_permission("docs.read").await;
        let request = json!({ "permissionId": id });
        kw.v1("permissions.deletePermission", request.clone()).await.v1_body();

        let again = kw.v1("permissions.deletePermission", request).await;
        let told = kw.v1_get("permissions.getPermission", &format!("permissionId={id}")).await;
        let new = kw.v1("permissions.createPermission", json!({ "name": "docs.read" })).await;

        for missing in [again, told] {
            let message = missing.assert_v1_error(404, "NOT_FOUND");
            assert!(message.contains(&id), "{message}");
        }
        assert_ne!(new.v1_body()["permissionId"], id);
        assert_eq!(kw.list_audit_events(&id).await, ["permission.create", "permission.delete"]);
    }
}
