use domain::root_keys::default_workspace;
use foundation::id::RoleId;
use serde_json::json;

use crate::on_both_stacks;
use crate::support::NOON;

on_both_stacks! {
    async fn there_may_be_none(kw) {
        let reply = kw.v1_get("permissions.listRoles", "").await;

        assert_eq!(*reply.v1_body(), json!([]));
    }

    async fn each_is_told_as_get_role_tells_it(kw) {
        kw.create_role("editor", ["docs.edit"]).await;
        let request = json!({ "name": "reader", "description": "all of it" });
        kw.v1("permissions.createRole", request).await.v1_body();

        let reply = kw.v1_get("permissions.listRoles", "").await;

        let list = reply.v1_body().as_array().unwrap();
        let mut names: Vec<_> = list.iter().map(|item| item["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["editor", "reader"]);
        for item in list {
            let query = format!("roleId={}", item["id"].as_str().unwrap());
            assert_eq!(item, kw.v1_get("permissions.getRole", &query).await.v1_body());
        }
    }

    async fn however_many_there_are_all_are_told(kw) {
        let new: Vec<_> = (0..1001).map(|n| (RoleId::random(), format!("role {n}"))).collect();
        let mut tx = kw.store().begin().await.unwrap();
        tx.insert_roles(&default_workspace(), &new, NOON).await.unwrap();
        kw.app.context.commit(tx).await.unwrap();

        let reply = kw.v1_get("permissions.listRoles", "").await;

        let list = reply.v1_body().as_array().unwrap();
        let mut names: Vec<_> = list.iter().map(|item| item["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!((list.len(), names.len()), (1001, 1001));
    }

    async fn those_of_another_workspace_are_not_told(kw) {
        kw.create_role("editor", []).await;
        let stranger = kw.create_other_workspace().await;

        let reply = kw.v1_get_as(&stranger, "permissions.listRoles", "").await;

        assert_eq!(*reply.v1_body(), json!([]));
    }
}
