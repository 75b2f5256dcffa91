use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn add<const N: usize>(kw: &Keyward, key: &str, slugs: [&str; N]) -> Reply {
    let request = json!({ "keyId": key, "permissions": slugs.as_slice() });
    kw.v2("keys.addPermissions", request).await
}

fn slugs(reply: &Reply) -> Vec<&Value> {
    reply.data().as_array().unwrap().iter().map(|item| &item["slug"]).collect()
}

on_both_stacks! {
    async fn the_key_has_them_at_once_and_the_reply_tells_all_it_has_of_itself(kw) {
        kw.create_role("editor", ["docs.edit"]).await;
        kw.create_permission("docs.read").await;
        kw.create_permission("docs.move").await;
        let fields = json!({ "roles": ["editor"], "permissions": ["docs.read", "docs.move"] });
        let key = kw.create_key(fields).await;
        kw.verify(&key.key).await.assert_code("VALID");

        let reply = add(&kw, &key.id, ["docs.write", "docs.list"]).await;

        assert_eq!(slugs(&reply), ["docs.move", "docs.read", "docs.list", "docs.write"]);
        assert!(reply.data()[0]["id"].as_str().unwrap().starts_with("perm_"));
        kw.verify_with(&key.key, json!({ "permissions": "docs.write AND docs.read" }))
            .await
            .assert_code("VALID");
    }

    async fn one_that_it_has_already_is_passed_over(kw) {
        kw.create_permission("docs.read").await;
        let key = kw.create_key(json!({ "permissions": ["docs.read"] })).await;
        let before = kw.list_audit_events(&key.id).await;

        let reply = add(&kw, &key.id, ["docs.read", "docs.read"]).await;

        assert_eq!(slugs(&reply), ["docs.read"]);
        assert_eq!(kw.list_audit_events(&key.id).await, before);
    }

    async fn a_missing_one_is_made_if_the_root_key_may_else_nothing_changes(kw) {
        let key = kw.create_key(json!({})).await;
        kw.create_permission("docs.read").await;
        let root_key = kw.create_root_key(["api.*.update_key", "rbac.*.add_permission_to_key"]).await;
        let request = json!({ "keyId": key.id, "permissions": ["docs.read", "docs.new"] });

        let refused = kw.v2_as(&root_key, "keys.addPermissions", request.clone()).await;
        let untouched = kw.get_key(&key.id).await;
        let made = kw.v2("keys.addPermissions", request).await;

        let detail = refused.assert_error(403, "insufficient_permissions")["detail"].clone();
        assert!(detail.as_str().unwrap().contains("rbac.*.create_permission"), "{detail}");
        assert_eq!(untouched.get("permissions"), None);
        assert_eq!(slugs(&made), ["docs.new", "docs.read"]);
        assert_eq!(
            kw.list_audit_events("docs.new").await,
            ["authorization.connect_permission_and_key", "permission.create"]
        );
    }

    async fn the_id_of_a_permission_means_that_permission(kw) {
        let id = kw.create_permission("docs.read").await;
        kw.create_permission("docs.write").await;
        let key = kw.create_key(json!({ "permissions": ["docs.write"] })).await;
        let call = async |operation: &str, permissions: Value| {
            kw.v2(operation, json!({ "keyId": key.id, "permissions": permissions })).await
        };

        let added = call("keys.addPermissions", json!([id])).await;
        let removed = call("keys.removePermissions", json!([id])).await;
        let set = call("keys.setPermissions", json!([id, "docs.read"])).await;
        call("keys.updateKey", json!([id])).await.data();

        assert_eq!(slugs(&added), ["docs.write", "docs.read"]);
        assert_eq!(slugs(&removed), ["docs.write"]);
        assert_eq!(slugs(&set), ["docs.read"]);
        assert_eq!(kw.get_key(&key.id).await["permissions"], json!(["docs.read"]));
        assert_eq!(kw.count_rows("permissions").await, 2);
    }

    async fn the_id_wins_over_a_permission_that_was_called_so(kw) {
        let id = kw.create_permission("docs.read").await;
        let other = kw.create_permission("docs.write").await;
        // As one was made before ids were looked for.
        kw.execute_sql(format!("UPDATE permissions SET slug = '{id}' WHERE id = '{other}'")).await;
        let key = kw.create_key(json!({})).await;

        let added = add(&kw, &key.id, [id.as_str()]).await;

        assert_eq!(slugs(&added), ["docs.read"]);
    }

    async fn no_permission_is_called_as_the_id_of_another_one(kw) {
        let id = kw.create_permission("docs.read").await;
        let create = json!({ "name": "a name", "slug": id });

        let made = kw.v2("permissions.createPermission", create.clone()).await;
        let made_v1 = kw.v1("permissions.createPermission", json!({ "name": id })).await;
        let key = kw.create_key(json!({})).await;
        let item = json!([{ "name": id, "create": true }]);
        let by_v1 = json!({ "keyId": key.id, "permissions": item });
        let added_v1 = kw.v1("keys.addPermissions", by_v1).await;
        let stranger = kw.create_other_workspace().await;
        let elsewhere = kw.v2_as(&stranger, "permissions.createPermission", create).await;

        made.assert_error(409, "permission_already_exists");
        made_v1.assert_v1_error(409, "CONFLICT");
        added_v1.assert_v1_error(409, "CONFLICT");
        elsewhere.data();
        assert_eq!(kw.count_rows("permissions").await, 2);
    }

    async fn a_grant_on_the_keys_api_is_enough_and_on_another_is_not(kw) {
        let (api, other) = (kw.create_api().await, kw.create_api().await);
        let key = kw.create_key_in(&api, json!({})).await;
        kw.create_permission("docs.read").await;
        let request = json!({ "keyId": key.id, "permissions": ["docs.read"] });
        let may = |api: &str| {
            let grants = [format!("api.{api}.update_key"), "rbac.*.add_permission_to_key".into()];
            kw.create_root_key_with(grants.to_vec())
        };

        let refused = kw.v2_as(&may(&other).await, "keys.addPermissions", request.clone()).await;
        let done = kw.v2_as(&may(&api).await, "keys.addPermissions", request).await;

        refused.assert_error(403, "insufficient_permissions");
        assert_eq!(slugs(&done), ["docs.read"]);
    }

    async fn a_key_has_a_thousand_of_itself_and_no_more(kw) {
        let key = kw.create_key(json!({})).await;
        let many: Vec<_> = (0..1000).map(|n| format!("docs.{n}")).collect();
        let request = json!({ "keyId": key.id, "permissions": many });
        kw.v2("keys.addPermissions", request).await.data();

        let over = add(&kw, &key.id, ["docs.over"]).await;
        let known = add(&kw, &key.id, ["docs.7"]).await;

        let detail = over.assert_error(412, "precondition_failed")["detail"].clone();
        assert!(detail.as_str().unwrap().contains("1000"), "{detail}");
        assert_eq!(known.data().as_array().unwrap().len(), 1000);
    }
}
