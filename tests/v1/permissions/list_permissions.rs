use domain::root_keys::default_workspace;
use foundation::id::PermissionId;
use foundation::model::Permission;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::NOON;

on_both_stacks! {
    async fn there_may_be_none(kw) {
        let reply = kw.v1_get("permissions.listPermissions", "").await;

        assert_eq!(*reply.v1_body(), json!([]));
    }

    async fn each_is_told_as_get_permission_tells_it(kw) {
        kw.create_permission("docs.read").await;
        let request = json!({ "name": "Write", "slug": "docs.write", "description": "all of it" });
        kw.v1("permissions.createPermission", request).await.v1_body();

        let reply = kw.v1_get("permissions.listPermissions", "").await;

        let list = reply.v1_body().as_array().unwrap();
        let mut slugs: Vec<_> = list.iter().map(|item| item["slug"].as_str().unwrap()).collect();
        slugs.sort_unstable();
        assert_eq!(slugs, ["docs.read", "docs.write"]);
        for item in list {
            let query = format!("permissionId={}", item["id"].as_str().unwrap());
            assert_eq!(item, kw.v1_get("permissions.getPermission", &query).await.v1_body());
        }
    }

    async fn however_many_there_are_all_are_told(kw) {
        let new: Vec<_> = (0..2001)
            .map(|n| Permission {
                id: PermissionId::random(),
                slug: format!("docs.{n}"),
                name: "docs".into(),
                description: None,
            })
            .collect();
        let mut tx = kw.store().begin().await.unwrap();
        tx.insert_permissions(&default_workspace(), &new, NOON).await.unwrap();
        kw.app.context.commit(tx).await.unwrap();

        let reply = kw.v1_get("permissions.listPermissions", "").await;

        let slug = |item: &Value| item["slug"].as_str().unwrap().to_owned();
        let mut slugs: Vec<_> = reply.v1_body().as_array().unwrap().iter().map(slug).collect();
        assert_eq!(slugs.len(), 2001);
        slugs.sort();
        slugs.dedup();
        assert_eq!(slugs.len(), 2001);
    }

    async fn those_of_another_workspace_are_not_told(kw) {
        kw.create_permission("docs.read").await;
        let stranger = kw.create_other_workspace().await;

        let reply = kw.v1_get_as(&stranger, "permissions.listPermissions", "").await;

        assert_eq!(*reply.v1_body(), json!([]));
    }
}
