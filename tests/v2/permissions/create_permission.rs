use domain::root_keys::default_workspace;
use futures_util::future::join_all;
use serde_json::json;

use crate::on_both_stacks;

on_both_stacks! {
    async fn the_reply_is_the_id_and_nothing_else(kw) {
        let request = json!({ "name": "Read documents", "slug": "documents.read" });

        let reply = kw.v2("permissions.createPermission", request).await;

        let fields: Vec<_> = reply.data().as_object().unwrap().keys().collect();
        let id = reply.text_of("permissionId");
        assert_eq!(fields, ["permissionId"]);
        assert!(id.starts_with("perm_") && id.len() >= 21, "{id}");
    }

    async fn a_new_permission_can_be_given_to_a_key(kw) {
        kw.create_permission("documents.read").await;

        let key = kw.create_key(json!({ "permissions": ["documents.read"] })).await;

        kw.verify_with(&key.key, json!({ "permissions": "documents.read" })).await.assert_code("VALID");
    }

    async fn name_slug_and_description_are_kept_to_the_letter(kw) {
        let slug = "Az09_:-.*";
        let (name, description) = ("Lire « tout » 📖", "Para 'leer' \"todo\"\n\\ %s $1");
        let request = json!({ "name": name, "slug": slug, "description": description });

        let id = kw.v2("permissions.createPermission", request).await.text_of("permissionId");

        let mut reader = kw.store().read().await.unwrap();
        let found =
            reader.list_permissions_by_slugs(&default_workspace(), &[slug.to_owned()]).await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].id.as_str(), found[0].name.as_str()), (id.as_str(), name));
        assert_eq!(found[0].description.as_deref(), Some(description));
    }

    async fn an_empty_description_is_none(kw) {
        let request = json!({ "name": "n", "slug": "documents.read", "description": "" });

        kw.v2("permissions.createPermission", request).await.data();

        let mut reader = kw.store().read().await.unwrap();
        let slugs = ["documents.read".to_owned()];
        let found = reader.list_permissions_by_slugs(&default_workspace(), &slugs).await.unwrap();
        assert_eq!(found[0].description, None);
    }

    async fn a_slug_is_taken_once(kw) {
        let first = kw.create_permission("documents.read").await;
        let request = json!({ "name": "Another name", "slug": "documents.read" });

        let reply = kw.v2("permissions.createPermission", request).await;

        let error = reply.assert_error(409, "permission_already_exists");
        assert_eq!(error["title"], "Conflicting Resource");
        assert!(error["detail"].as_str().unwrap().contains("documents.read"), "{error}");
        assert_eq!(kw.count_rows("permissions").await, 1);
        assert_eq!(kw.list_audit_events(&first).await, ["permission.create"]);
    }

    async fn of_many_who_take_a_slug_at_once_one_gets_it(kw) {
        let request = json!({ "name": "Read documents", "slug": "documents.read" });

        let replies =
            join_all((0..8).map(|_| kw.v2("permissions.createPermission", request.clone()))).await;

        let (made, rest): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status == 200);
        assert_eq!(made.len(), 1);
        for reply in rest {
            reply.assert_error(409, "permission_already_exists");
        }
        assert_eq!(kw.count_rows("permissions").await, 1);
    }

    async fn several_permissions_may_have_one_name(kw) {
        for slug in ["documents.read", "documents.write"] {
            let request = json!({ "name": "Documents", "slug": slug });
            kw.v2("permissions.createPermission", request).await.data();
        }

        assert_eq!(kw.count_rows("permissions").await, 2);
    }

    async fn letter_case_matters_in_a_slug(kw) {
        kw.create_permission("documents.read").await;
        kw.create_permission("Documents.Read").await;

        let key = kw.create_key(json!({ "permissions": ["Documents.Read"] })).await;

        assert_eq!(kw.get_key(&key.id).await["permissions"], json!(["Documents.Read"]));
    }

    async fn another_workspace_may_have_the_same_slug(kw) {
        kw.create_permission("documents.read").await;
        let stranger = kw.create_other_workspace().await;
        let request = json!({ "name": "n", "slug": "documents.read" });

        let reply = kw.v2_as(&stranger, "permissions.createPermission", request).await;

        reply.data();
        assert_eq!(kw.count_rows("permissions").await, 2);
    }

    async fn a_permission_for_one_instance_is_not_enough(kw) {
        let root_key = kw.create_root_key(["rbac.perm_1.create_permission"]).await;
        let request = json!({ "name": "n", "slug": "documents.read" });

        let reply = kw.v2_as(&root_key, "permissions.createPermission", request).await;

        let error = reply.assert_error(403, "insufficient_permissions");
        assert!(error["detail"].as_str().unwrap().contains("rbac.*.create_permission"), "{error}");
        assert_eq!(kw.count_rows("permissions").await, 0);
    }

    async fn the_creation_is_in_the_audit_log(kw) {
        let request = json!({ "name": "Read documents", "slug": "documents.read" });

        let reply = kw.v2("permissions.createPermission", request).await;

        let id = reply.text_of("permissionId");
        assert_eq!(kw.list_audit_events(&id).await, ["permission.create"]);
        assert_eq!(kw.list_audit_events("documents.read").await, ["permission.create"]);
    }
}
