use serde_json::json;

use crate::on_both_stacks;

on_both_stacks! {
    async fn keys_and_roles_lose_it_at_once(kw) {
        kw.create_permission("docs.read").await;
        kw.create_role("editor", ["docs.read"]).await;
        let own = kw.create_key(json!({ "permissions": ["docs.read"] })).await;
        let through_role = kw.create_key(json!({ "roles": ["editor"] })).await;
        let query = json!({ "permissions": "docs.read" });
        for key in [&own, &through_role] {
            kw.verify_with(&key.key, query.clone()).await.assert_code("VALID");
        }

        kw.v2("permissions.deletePermission", json!({ "permission": "docs.read" })).await.data();

        for key in [&own, &through_role] {
            kw.verify_with(&key.key, query.clone()).await.assert_code("INSUFFICIENT_PERMISSIONS");
        }
        let role = kw.v2("permissions.getRole", json!({ "role": "editor" })).await;
        assert_eq!(role.data().get("permissions"), None);
        assert_eq!(kw.get_key(&own.id).await.get("permissions"), None);
    }

    async fn its_id_deletes_it_as_well_and_only_once(kw) {
        let id = kw.create_permission("docs.read").await;
        let request = json!({ "permission": id });

        let first = kw.v2("permissions.deletePermission", request.clone()).await;
        let second = kw.v2("permissions.deletePermission", request).await;

        assert_eq!(*first.data(), json!({}));
        second.assert_error(404, "permission_not_found");
        assert_eq!(kw.list_audit_events(&id).await, ["permission.create", "permission.delete"]);
    }

    async fn its_slug_can_be_given_again_and_nobody_has_it_then(kw) {
        kw.create_permission("docs.read").await;
        let key = kw.create_key(json!({ "permissions": ["docs.read"] })).await;
        kw.v2("permissions.deletePermission", json!({ "permission": "docs.read" })).await.data();

        kw.create_permission("docs.read").await;

        let query = json!({ "permissions": "docs.read" });
        kw.verify_with(&key.key, query).await.assert_code("INSUFFICIENT_PERMISSIONS");
    }
}
