use domain::audit::{self, AuditFilter};
use domain::root_keys::default_workspace;
use domain::{undo, workspaces};
use foundation::error::Error;
use foundation::id::AuditId;
use serde_json::json;

use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

async fn set<const N: usize>(kw: &Keyward, role: &str, slugs: [&str; N]) -> Reply {
    let request = json!({ "roleId": role, "permissions": slugs.as_slice() });
    kw.v2("permissions.setRolePermissions", request).await
}

fn slugs(reply: &Reply) -> Vec<&str> {
    reply.data().as_array().unwrap().iter().map(|item| item["slug"].as_str().unwrap()).collect()
}

on_both_stacks! {
    async fn they_replace_those_that_the_role_had_for_all_its_keys(kw) {
        let role = kw.create_role("editor", ["docs.read", "docs.list"]).await;
        let key = kw.create_key(json!({ "roles": ["editor"] })).await;
        let (read, write) = (json!({ "permissions": "docs.read" }), json!({ "permissions": "docs.write" }));
        kw.verify_with(&key.key, read.clone()).await.assert_code("VALID");

        assert_eq!(slugs(&set(&kw, &role, ["docs.write", "docs.list"]).await), ["docs.list", "docs.write"]);

        kw.verify_with(&key.key, read.clone()).await.assert_code("INSUFFICIENT_PERMISSIONS");
        kw.verify_with(&key.key, write.clone()).await.assert_code("VALID");
    }

    async fn none_at_all_takes_every_one(kw) {
        let role = kw.create_role("editor", ["docs.read"]).await;
        assert_eq!(*set(&kw, &role, []).await.data(), json!([]));
        assert_eq!(kw.v2("permissions.getRole", json!({ "role": role })).await.data().get("permissions"), None);
    }

    async fn only_what_changes_is_recorded_and_a_repeat_changes_nothing(kw) {
        let role = kw.create_role("editor", ["docs.read", "docs.list"]).await;
        set(&kw, &role, ["docs.write", "docs.list", "docs.write"]).await.data();
        let before = kw.list_audit_events(&role).await;

        assert_eq!(slugs(&set(&kw, &role, ["docs.write", "docs.list"]).await), ["docs.list", "docs.write"]);

        let connect = "authorization.connect_role_and_permission";
        let disconnect = "authorization.disconnect_role_and_permissions";
        assert_eq!(before, [connect, connect, connect, disconnect, "role.create"]);
        assert_eq!(kw.list_audit_events(&role).await, before);
    }

    async fn undo_of_a_removal_is_refused_when_the_permission_was_deleted(kw) {
        let role = kw.create_role("editor", ["docs.read"]).await;
        set(&kw, &role, []).await.data();
        kw.v2("permissions.deletePermission", json!({ "permission": "docs.read" })).await.data();
        let (context, workspace) = (&kw.app.context, default_workspace());
        let filter = AuditFilter {
            event: Some("authorization.disconnect_role_and_permissions".to_owned()),
            rows_max: 1,
            ..AuditFilter::default()
        };
        let removal = async || audit::list(context, &workspace, &filter).await.unwrap().remove(0);
        let id = AuditId::from(removal().await.id.as_str());
        let caller = workspaces::authorize_operator(context, &workspace).await.unwrap();

        let refused = undo::undo(&kw.app.keys, &caller, &id).await;

        assert!(matches!(refused, Err(Error::NotFound(_))), "{refused:?}");
        assert_eq!((kw.count_rows("permissions").await, removal().await.undone_by), (0, None));
        kw.create_permission("docs.read").await;
        undo::undo(&kw.app.keys, &caller, &id).await.unwrap();
        assert!(removal().await.undone_by.is_some());
    }

    async fn a_missing_one_is_made_if_the_root_key_may(kw) {
        let role = kw.create_role("editor", ["docs.read"]).await;
        let root_key = kw.create_root_key(["rbac.*.add_permission_to_role", "rbac.*.remove_permission_from_role"]).await;
        let request = json!({ "roleId": role, "permissions": ["docs.new"] });

        let refused = kw.v2_as(&root_key, "permissions.setRolePermissions", request.clone()).await;
        assert_eq!(kw.v2("permissions.getRole", json!({ "role": role })).await.data()["permissions"][0]["slug"], "docs.read");
        assert_eq!(slugs(&kw.v2("permissions.setRolePermissions", request).await), ["docs.new"]);

        refused.assert_error_about(403, "insufficient_permissions", &["rbac.*.create_permission"]);
    }
}
