use domain::root_keys::default_workspace;
use futures_util::future::join_all;
use serde_json::json;

use crate::on_both_stacks;
use crate::support::Keyward;

/// The description of a role and the slugs of its permissions.
async fn role(kw: &Keyward, name: &str) -> (Option<String>, Vec<String>) {
    let mut reader = kw.store().read().await.unwrap();
    let mut found =
        reader.list_roles_by_names(&default_workspace(), &[name.to_owned()]).await.unwrap();
    let role = found.pop().expect("the role");
    (role.description, role.permissions.into_iter().map(|permission| permission.slug).collect())
}

on_both_stacks! {
    async fn the_reply_is_the_id_and_nothing_else(kw) {
        let reply = kw.v2("permissions.createRole", json!({ "name": "editor" })).await;

        let fields: Vec<_> = reply.data().as_object().unwrap().keys().collect();
        let id = reply.text_of("roleId");
        assert_eq!(fields, ["roleId"]);
        assert!(id.starts_with("role_") && id.len() >= 21, "{id}");
    }

    async fn a_role_without_permissions_gives_none(kw) {
        kw.v2("permissions.createRole", json!({ "name": "editor" })).await.data();

        let key = kw.create_key(json!({ "roles": ["editor"] })).await;

        let told = kw.get_key(&key.id).await;
        assert_eq!(told["roles"], json!(["editor"]));
        assert_eq!(told.get("permissions"), None);
    }

    async fn the_keys_of_a_role_have_its_permissions(kw) {
        kw.create_permission("documents.read").await;
        kw.create_role("editor", ["documents.read"]).await;

        let key = kw.create_key(json!({ "roles": ["editor"] })).await;

        kw.verify_with(&key.key, json!({ "permissions": "documents.read" })).await.assert_code("VALID");
    }

    async fn a_missing_permission_is_made_under_its_slug(kw) {
        kw.create_role("editor", ["documents.write"]).await;

        let mut reader = kw.store().read().await.unwrap();
        let slugs = ["documents.write".to_owned()];
        let made = reader.list_permissions_by_slugs(&default_workspace(), &slugs).await.unwrap();
        assert_eq!((made.len(), made[0].name.as_str()), (1, "documents.write"));
        assert_eq!(
            kw.list_audit_events("documents.write").await,
            ["authorization.connect_role_and_permission", "permission.create"]
        );
    }

    async fn name_and_description_are_kept_to_the_letter(kw) {
        let name = "Chefredakteur:in 'Süd' 🖋";
        let request = json!({ "name": name, "description": "darf \"alles\"\n\\ $1" });

        kw.v2("permissions.createRole", request).await.data();

        assert_eq!(role(&kw, name).await.0.as_deref(), Some("darf \"alles\"\n\\ $1"));
    }

    async fn an_empty_description_is_none(kw) {
        let request = json!({ "name": "editor", "description": "" });

        kw.v2("permissions.createRole", request).await.data();

        assert_eq!(role(&kw, "editor").await.0, None);
    }

    async fn a_permission_that_is_named_twice_is_given_once(kw) {
        kw.create_permission("a").await;

        kw.create_role("editor", ["b", "a", "b", "a"]).await;

        assert_eq!(role(&kw, "editor").await.1, ["a", "b"]);
        assert_eq!(kw.count_rows("permissions").await, 2);
    }

    async fn slugs_that_differ_in_letter_case_are_two(kw) {
        kw.create_role("editor", ["documents.read", "Documents.Read"]).await;

        assert_eq!(role(&kw, "editor").await.1, ["Documents.Read", "documents.read"]);
    }

    async fn a_name_is_taken_once(kw) {
        let first = kw.create_role("editor", []).await;

        let reply = kw.v2("permissions.createRole", json!({ "name": "editor" })).await;

        let error = reply.assert_error(409, "role_already_exists");
        assert_eq!(error["title"], "Conflicting Resource");
        assert!(error["detail"].as_str().unwrap().contains("editor"), "{error}");
        assert_eq!(kw.count_rows("roles").await, 1);
        assert_eq!(kw.list_audit_events(&first).await, ["role.create"]);
    }

    async fn a_refused_role_makes_no_permission(kw) {
        kw.create_role("editor", []).await;
        let request = json!({ "name": "editor", "permissions": ["documents.read"] });

        kw.v2("permissions.createRole", request).await.assert_error(409, "role_already_exists");

        assert_eq!(kw.count_rows("permissions").await, 0);
        assert!(kw.list_audit_events("documents.read").await.is_empty());
    }

    async fn letter_case_matters_in_a_name(kw) {
        kw.create_role("editor", []).await;
        kw.create_role("Editor", []).await;

        let key = kw.create_key(json!({ "roles": ["Editor"] })).await;

        assert_eq!(kw.get_key(&key.id).await["roles"], json!(["Editor"]));
    }

    async fn another_workspace_may_have_the_same_name(kw) {
        kw.create_role("editor", []).await;
        let stranger = kw.create_other_workspace().await;

        let request = json!({ "name": "editor" });
        let reply = kw.v2_as(&stranger, "permissions.createRole", request).await;

        reply.data();
        assert_eq!(kw.count_rows("roles").await, 2);
    }

    async fn of_many_who_take_a_name_at_once_one_gets_it(kw) {
        let request = json!({ "name": "editor" });

        let replies =
            join_all((0..8).map(|_| kw.v2("permissions.createRole", request.clone()))).await;

        let (made, rest): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status == 200);
        assert_eq!(made.len(), 1);
        for reply in rest {
            reply.assert_error(409, "role_already_exists");
        }
    }

    async fn roles_that_are_given_the_same_new_permission_at_once_are_all_made(kw) {
        let requests = (0..8).map(|n| {
            let request = json!({ "name": format!("role {n}"), "permissions": ["documents.read"] });
            kw.v2("permissions.createRole", request)
        });

        let replies = join_all(requests).await;

        for reply in replies {
            reply.data();
        }
        assert_eq!(kw.count_rows("permissions").await, 1);
        assert_eq!(kw.count_rows("role_permissions").await, 8);
    }

    async fn giving_permissions_needs_a_permission_of_its_own(kw) {
        kw.create_permission("documents.read").await;
        let root_key = kw.create_root_key(["rbac.*.create_role", "rbac.*.create_permission"]).await;
        let with = json!({ "name": "editor", "permissions": ["documents.read"] });
        let without = json!({ "name": "reader", "permissions": [] });

        let refused = kw.v2_as(&root_key, "permissions.createRole", with).await;
        let made = kw.v2_as(&root_key, "permissions.createRole", without).await;

        let detail = refused.assert_error(403, "insufficient_permissions")["detail"].clone();
        let detail = detail.as_str().unwrap();
        assert!(detail.contains("rbac.*.add_permission_to_role"), "{detail}");
        made.data();
        assert_eq!(kw.count_rows("roles").await, 1);
    }

    async fn making_permissions_needs_a_permission_of_its_own(kw) {
        kw.create_permission("documents.read").await;
        let grants = ["rbac.*.create_role", "rbac.*.add_permission_to_role"];
        let root_key = kw.create_root_key(grants).await;
        let known = json!({ "name": "reader", "permissions": ["documents.read"] });
        let new = json!({ "name": "editor", "permissions": ["documents.read", "documents.write"] });

        let made = kw.v2_as(&root_key, "permissions.createRole", known).await;
        let refused = kw.v2_as(&root_key, "permissions.createRole", new).await;

        made.data();
        let detail = refused.assert_error(403, "insufficient_permissions")["detail"].clone();
        assert!(detail.as_str().unwrap().contains("rbac.*.create_permission"), "{detail}");
        assert_eq!((kw.count_rows("roles").await, kw.count_rows("permissions").await), (1, 1));
    }

    async fn a_permission_for_one_instance_is_not_enough(kw) {
        let root_key = kw.create_root_key(["rbac.role_1.create_role"]).await;
        let request = json!({ "name": "editor" });

        let reply = kw.v2_as(&root_key, "permissions.createRole", request).await;

        reply.assert_error(403, "insufficient_permissions");
        assert_eq!(kw.count_rows("roles").await, 0);
    }

    async fn the_creation_is_in_the_audit_log(kw) {
        let request = json!({ "name": "editor", "permissions": ["documents.read", "a"] });

        let plain = kw.v2("permissions.createRole", json!({ "name": "reader" })).await;
        let full = kw.v2("permissions.createRole", request).await;

        assert_eq!(kw.list_audit_events(&plain.text_of("roleId")).await, ["role.create"]);
        assert_eq!(
            kw.list_audit_events(&full.text_of("roleId")).await,
            [
                "authorization.connect_role_and_permission",
                "authorization.connect_role_and_permission",
                "role.create",
            ]
        );
    }
}
