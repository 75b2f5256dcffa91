use serde_json::json;

use crate::on_both_stacks;

on_both_stacks! {
    async fn its_keys_lose_what_they_had_through_it(kw) {
        kw.create_role("editor", ["docs.read"]).await;
        let key = kw.create_key(json!({ "roles": ["editor"] })).await;
        let query = json!({ "permissions": "docs.read" });
        kw.verify_with(&key.key, query.clone()).await.assert_code("VALID");

        kw.v2("permissions.deleteRole", json!({ "role": "editor" })).await.data();

        kw.verify_with(&key.key, query.clone()).await.assert_code("INSUFFICIENT_PERMISSIONS");
        assert_eq!(kw.get_key(&key.id).await.get("roles"), None);
    }

    async fn its_permissions_stay(kw) {
        kw.create_role("editor", ["docs.read"]).await;

        kw.v2("permissions.deleteRole", json!({ "role": "editor" })).await.data();

        kw.v2("permissions.getPermission", json!({ "permission": "docs.read" })).await.data();
    }

    async fn its_id_deletes_it_as_well_and_only_once(kw) {
        let id = kw.create_role("editor", []).await;

        let first = kw.v2("permissions.deleteRole", json!({ "role": id })).await;
        let second = kw.v2("permissions.deleteRole", json!({ "role": id })).await;

        assert_eq!(*first.data(), json!({}));
        second.assert_error(404, "role_not_found");
        assert_eq!(kw.list_audit_events(&id).await, ["role.create", "role.delete"]);
    }
}
