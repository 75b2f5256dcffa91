//! The links of pages to the audit log, and of the overview and keys to other pages.

use serde_json::{Value, json};

use super::super::{Browser, between, count_table_rows, workspace_path};
use crate::on_both_stacks;

on_both_stacks! {
    async fn pages_of_objects_link_to_their_history(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut viewer = owner.invite("eve@example.com", "viewer").await;
        let created = async |operation: &str, request: Value, id: &str| {
            kw.v2(operation, request).await.text_of(id)
        };
        let api = created("apis.createApi", json!({ "name": "invoices" }), "apiId").await;
        let identity = created("identities.createIdentity", json!({ "externalId": "ann" }), "identityId").await;
        let role = created("permissions.createRole", json!({ "name": "writer" }), "roleId").await;
        let permission = json!({ "name": "write", "slug": "write" });
        let permission = created("permissions.createPermission", permission, "permissionId").await;
        let policy = created("gateways.createPolicy", json!({ "name": "edge", "apiIds": [api] }), "policyId").await;
        let key = kw.create_key_in(&api, json!({ "name": "job" })).await.id;
        kw.v2("ratelimit.limit", json!({ "namespace": "mail", "identifier": "a", "limit": 1, "duration": 60_000 })).await.data();
        let namespace = kw.find_namespace_id("mail").await;
        owner.post(&workspace_path("/root-keys"), &[("name", "billing"), ("permission", "api.*.create_api")]).await;
        let root_keys = owner.get(&workspace_path("/root-keys?q=billing")).await.text;
        let root_key = between(&root_keys, "popovertarget=\"menu-", "\"").to_owned();

        for (list, id) in [
            ("apis", &api), ("identities", &identity), ("roles", &role), ("permissions", &permission),
            ("ratelimits", &namespace), ("gateways", &policy), ("keys", &key), ("root-keys", &root_key),
        ] {
            let history = workspace_path(&format!("/audit?about={id}"));
            for visitor in [&mut owner, &mut viewer] {
                let page = visitor.get(&workspace_path(&format!("/{list}/{id}"))).await.text;
                assert!(page.contains(&format!("href=\"{history}\">View history</a>")), "{list}: {page}");
                assert!(count_table_rows(&visitor.get(&history).await.text) > 0, "{list}");
            }
        }
        let changes = workspace_path(&format!("/audit?actor={root_key}"));
        let page = owner.get(&workspace_path(&format!("/root-keys/{root_key}"))).await.text;
        assert!(page.contains(&format!("href=\"{changes}\">View its changes</a>")), "{page}");
    }

    async fn key_links_its_activity_and_roles_and_the_overview_its_figures(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.create_role("<b>reader", ["docs.read"]).await;
        let key = kw.create_key(json!({ "roles": ["<b>reader"] })).await.id;

        let page = owner.get(&workspace_path(&format!("/keys/{key}"))).await.text;
        let activity = page.split_once("id=\"deeds\"").expect("the activity").1;
        let entry = format!("{}{}", workspace_path("/audit/log_"), between(activity, "/audit/log_", "\""));
        assert!(activity.contains(&format!("href=\"{entry}\">")) && activity.contains(">Key created</a>"), "{activity}");
        assert_eq!(owner.get(&entry).await.status, 200);
        let role = format!("{}{}", workspace_path("/roles/role_"), between(&page, "/roles/role_", "\""));
        assert!(page.contains(&format!("href=\"{role}\">&#60;b&#62;reader</a>")), "{page}");
        assert_eq!(owner.get(&role).await.status, 200);

        let overview = owner.get(&workspace_path("")).await.text;
        for (path, label, count) in [("/apis", "APIs", "1"), ("/keys", "Keys", "1"), ("/identities", "Identities", "0")] {
            let link = format!("<dd><a href=\"{}\">{count}<span class=\"hidden\"> {label}</span></a>", workspace_path(path));
            assert!(overview.contains(&link), "{overview}");
        }
    }
}
