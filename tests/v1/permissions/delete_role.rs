use serde_json::json;

use crate::on_both_stacks;

on_both_stacks! {
    async fn keys_lose_it_and_its_permissions_at_once(kw) {
        let id = kw.create_role("editor", ["docs.edit"]).await;
        kw.create_permission("docs.read").await;
        let key = kw.create_key(json!({ "roles": ["editor"], "permissions": ["docs.read"] })).await;
        let asked = json!({ "authorization": { "permissions": "docs.edit" } });
        kw.verify_v1(&key.key, asked.clone()).await.assert_v1_code("VALID");

        let reply = kw.v1("permissions.deleteRole", json!({ "roleId": id })).await;

        assert_eq!(*reply.v1_body(), json!({}));
        let verified = kw.verify_v1(&key.key, asked).await;
        assert_eq!(verified.assert_v1_code("INSUFFICIENT_PERMISSIONS")["roles"], json!([]));
        assert_eq!(verified.body["permissions"], json!(["docs.read"]));
    }

    async fn it_is_gone_and_its_name_can_be_given_anew(kw) {
        let id = kw.create_role("editor", []).await;
        let request = json!({ "roleId": id });
        kw.v1("permissions.deleteRole", request.clone()).await.v1_body();

        let again = kw.v1("permissions.deleteRole", request).await;
        let told = kw.v1_get("permissions.getRole", &format!("roleId={id}")).await;
        let new = kw.v1("permissions.createRole", json!({ "name": "editor" })).await;

        for missing in [again, told] {
            let message = missing.assert_v1_error(404, "NOT_FOUND");
            assert!(message.contains(&id), "{message}");
        }
        assert_ne!(new.v1_body()["roleId"], id);
        assert_eq!(kw.list_audit_events(&id).await, ["role.create", "role.delete"]);
    }
}
