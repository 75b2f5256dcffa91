use serde_json::json;

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn get(kw: &Keyward, id: &str) -> Reply {
    kw.v1_get("permissions.getPermission", &format!("permissionId={id}")).await
}

on_both_stacks! {
    async fn a_permission_is_told_by_id_name_slug_and_description(kw) {
        let request = json!({ "name": "Reading", "slug": "docs.read", "description": "all of it" });
        let made = kw.v1("permissions.createPermission", request).await;
        let id = made.v1_body()["permissionId"].as_str().unwrap();

        let reply = get(&kw, id).await;

        let told = json!({
            "id": id, "name": "Reading", "slug": "docs.read", "description": "all of it",
        });
        assert_eq!(*reply.v1_body(), told);
    }

    async fn without_a_description_there_is_none(kw) {
        let id = kw.create_permission("docs.read").await;

        let reply = get(&kw, &id).await;

        assert_eq!(*reply.v1_body(), json!({ "id": id, "name": "docs.read", "slug": "docs.read" }));
    }

    async fn one_that_is_not_there_is_named(kw) {
        let reply = get(&kw, "perm_nowhere").await;

        let message = reply.assert_v1_error(404, "NOT_FOUND");
        assert!(message.contains("permission perm_nowhere"), "{message}");
    }
}
