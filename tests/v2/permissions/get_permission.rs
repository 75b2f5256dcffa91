use serde_json::json;

use crate::on_both_stacks;

on_both_stacks! {
    async fn a_permission_is_found_by_id_and_by_slug(kw) {
        let request = json!({ "name": "Read documents", "slug": "docs.read", "description": "all" });
        let id = kw.v2("permissions.createPermission", request).await.text_of("permissionId");

        for named in [id.as_str(), "docs.read"] {
            let reply = kw.v2("permissions.getPermission", json!({ "permission": named })).await;

            let told = json!({
                "id": id, "name": "Read documents", "slug": "docs.read", "description": "all",
            });
            assert_eq!(*reply.data(), told);
        }
    }

    async fn a_description_that_was_not_given_is_left_out(kw) {
        let id = kw.create_permission("docs.read").await;

        let reply = kw.v2("permissions.getPermission", json!({ "permission": "docs.read" })).await;

        assert_eq!(*reply.data(), json!({ "id": id, "name": "docs.read", "slug": "docs.read" }));
    }

    async fn id_of_a_permission_is_never_the_slug_of_another_one(kw) {
        let id = kw.create_permission("docs.read").await;
        let request = json!({ "name": "another one", "slug": id });

        let created = kw.v2("permissions.createPermission", request).await;

        created.assert_error(409, "permission_already_exists");
        let reply = kw.v2("permissions.getPermission", json!({ "permission": id })).await;
        assert_eq!(reply.data()["slug"], "docs.read");
    }

    async fn a_slug_in_other_letters_is_another_one(kw) {
        kw.create_permission("docs.read").await;

        let reply = kw.v2("permissions.getPermission", json!({ "permission": "Docs.Read" })).await;

        let detail = reply.assert_error(404, "permission_not_found")["detail"].clone();
        assert!(detail.as_str().unwrap().contains("Docs.Read"), "{detail}");
    }
}
