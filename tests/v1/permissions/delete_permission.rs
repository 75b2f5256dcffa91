use serde_json::json;

use crate::both;

both! {
    async fn keys_and_roles_lose_it_at_once(kw) {
        let id = kw.permission("docs.read").await;
        kw.role("editor", ["docs.read"]).await;
        let own = kw.key(json!({ "permissions": ["docs.read"] })).await;
        let through_role = kw.key(json!({ "roles": ["editor"] })).await;
        let asked = json!({ "authorization": { "permissions": "docs.read" } });
        for key in [&own, &through_role] {
            kw.verify_v1(&key.key, asked.clone()).await.is_v1("VALID");
        }

        let reply = kw.v1("permissions.deletePermission", json!({ "permissionId": id })).await;

        assert_eq!(*reply.bare(), json!({}));
        for key in [&own, &through_role] {
            let verified = kw.verify_v1(&key.key, asked.clone()).await;
            assert_eq!(verified.is_v1("INSUFFICIENT_PERMISSIONS")["permissions"], json!([]));
        }
    }

    async fn it_is_gone_and_its_slug_can_be_given_anew(kw) {
        let id = kw.permission("docs.read").await;
        let request = json!({ "permissionId": id });
        kw.v1("permissions.deletePermission", request.clone()).await.bare();

        let again = kw.v1("permissions.deletePermission", request).await;
        let told = kw.v1_get("permissions.getPermission", &format!("permissionId={id}")).await;
        let new = kw.v1("permissions.createPermission", json!({ "name": "docs.read" })).await;

        for missing in [again, told] {
            let message = missing.error_v1(404, "NOT_FOUND");
            assert!(message.contains(&id), "{message}");
        }
        assert_ne!(new.bare()["permissionId"], id);
        assert_eq!(kw.events_of(&id).await, ["permission.create", "permission.delete"]);
    }
}
