use serde_json::json;

use crate::on_both_stacks;

on_both_stacks! {
    async fn a_role_is_found_by_id_and_by_name_with_its_permissions(kw) {
        let read = kw.create_permission("docs.read").await;
        let request =
            json!({ "name": "editor", "description": "all", "permissions": ["docs.read"] });
        let id = kw.v2("permissions.createRole", request).await.text_of("roleId");

        for named in [id.as_str(), "editor"] {
            let reply = kw.v2("permissions.getRole", json!({ "role": named })).await;

            let permission = json!({ "id": read, "name": "docs.read", "slug": "docs.read" });
            let told = json!({
                "id": id, "name": "editor", "description": "all", "permissions": [permission],
            });
            assert_eq!(*reply.data(), told);
        }
    }

    async fn what_a_role_does_not_have_is_left_out(kw) {
        let id = kw.create_role("editor", []).await;

        let reply = kw.v2("permissions.getRole", json!({ "role": "editor" })).await;

        assert_eq!(*reply.data(), json!({ "id": id, "name": "editor" }));
    }

    async fn a_role_that_does_not_exist_is_not_found(kw) {
        let reply = kw.v2("permissions.getRole", json!({ "role": "editor" })).await;

        reply.assert_error(404, "role_not_found");
    }
}
