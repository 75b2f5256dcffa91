use domain::root_keys::default_workspace;
use foundation::id::{PermissionId, RoleId};
use foundation::model::Permission;
use serde_json::Value;

use crate::on_both_stacks;
use crate::support::NOON;

on_both_stacks! {
    async fn however_many_permissions_and_roles_there_are_all_are_told(kw) {
        let permissions: Vec<_> = (0..2001)
            .map(|n| Permission { id: PermissionId::random(), slug: format!("docs.{n}"), name: "docs".into(), description: None })
            .collect();
        let roles: Vec<_> = (0..1001).map(|n| (RoleId::random(), format!("role {n}"))).collect();
        let mut tx = kw.store().begin().await.unwrap();
        tx.insert_permissions(&default_workspace(), &permissions, NOON).await.unwrap();
        tx.insert_roles(&default_workspace(), &roles, NOON).await.unwrap();
        kw.app.context.commit(tx).await.unwrap();

        for (operation, name, count) in [("permissions.listPermissions", "slug", 2001), ("permissions.listRoles", "name", 1001)] {
            let reply = kw.v1_get(operation, "").await;
            let text = |item: &Value| item[name].as_str().unwrap().to_owned();
            let mut names: Vec<_> = reply.v1_body().as_array().unwrap().iter().map(text).collect();
            assert_eq!(names.len(), count, "{operation}");
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "{operation}");
        }
    }
}
