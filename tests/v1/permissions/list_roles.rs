use foundation::id::RoleId;
use keyward::domain::root_keys::default_workspace;
use serde_json::json;

use crate::both;
use crate::support::NOON;

both! {
    async fn there_may_be_none(kw) {
        let reply = kw.v1_get("permissions.listRoles", "").await;

        assert_eq!(*reply.bare(), json!([]));
    }

    async fn each_is_told_as_get_role_tells_it(kw) {
        kw.role("editor", ["docs.edit"]).await;
        let request = json!({ "name": "reader", "description": "all of it" });
        kw.v1("permissions.createRole", request).await.bare();

        let reply = kw.v1_get("permissions.listRoles", "").await;

        let list = reply.bare().as_array().unwrap();
        let mut names: Vec<_> = list.iter().map(|item| item["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["editor", "reader"]);
        for item in list {
            let query = format!("roleId={}", item["id"].as_str().unwrap());
            assert_eq!(item, kw.v1_get("permissions.getRole", &query).await.bare());
        }
    }

    async fn however_many_there_are_all_are_told(kw) {
        let new: Vec<_> = (0..1001).map(|n| (RoleId::random(), format!("role {n}"))).collect();
        let mut tx = kw.store().begin().await.unwrap();
        tx.insert_roles(&default_workspace(), &new, NOON).await.unwrap();
        kw.app.commit(tx).await.unwrap();

        let reply = kw.v1_get("permissions.listRoles", "").await;

        let list = reply.bare().as_array().unwrap();
        let mut names: Vec<_> = list.iter().map(|item| item["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!((list.len(), names.len()), (1001, 1001));
    }

    async fn those_of_another_workspace_are_not_told(kw) {
        kw.role("editor", []).await;
        let stranger = kw.other_workspace().await;

        let reply = kw.v1_get_as(&stranger, "permissions.listRoles", "").await;

        assert_eq!(*reply.bare(), json!([]));
    }
}
