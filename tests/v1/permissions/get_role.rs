use serde_json::json;

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn get(kw: &Keyward, id: &str) -> Reply {
    kw.v1_get("permissions.getRole", &format!("roleId={id}")).await
}

on_both_stacks! {
    async fn a_role_is_told_by_id_name_and_description_without_its_permissions(kw) {
        let request =
            json!({ "name": "editor", "description": "all of it", "permissions": ["docs.edit"] });
        let id = kw.v2("permissions.createRole", request).await.text_of("roleId");

        let reply = get(&kw, &id).await;

        let told = json!({ "id": id, "name": "editor", "description": "all of it" });
        assert_eq!(*reply.v1_body(), told);
    }

    async fn without_a_description_there_is_none(kw) {
        let id = kw.create_role("editor", []).await;

        let reply = get(&kw, &id).await;

        assert_eq!(*reply.v1_body(), json!({ "id": id, "name": "editor" }));
    }

    async fn one_that_is_not_there_is_named(kw) {
        let reply = get(&kw, "role_nowhere").await;

        let message = reply.assert_v1_error(404, "NOT_FOUND");
        assert!(message.contains("role role_nowhere"), "{message}");
    }
}
