//! The menus of rows: what each offers to whom, and what it does.

use serde_json::{Value, json};

use super::{Browser, between, redirect_path, workspace_path};
use crate::on_both_stacks;

/// The menu of a row: its links and buttons.
fn menu_of(page: &str, id: &str) -> String {
    between(page, &format!("id=\"menu-{id}\""), "</ul>").to_owned()
}

/// The labels of a menu, in their order.
fn labels(menu: &str) -> Vec<&str> {
    let items = menu.split("<li").skip(1);
    items.map(|item| between(item.split_once("><").expect("an item").1, ">", "<")).collect()
}

on_both_stacks! {
    async fn the_menu_of_a_key_offers_what_its_page_offers(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut viewer = owner.invite("eve@example.com", "viewer").await;
        let key = kw.create_key_in(&kw.create_api().await, json!({ "name": "<b>job" })).await;
        let path = workspace_path(&format!("/keys/{}", key.id));
        let list = workspace_path("/keys");

        let page = owner.get(&list).await.text;
        let menu = menu_of(&page, &key.id);
        assert!(page.contains("aria-label=\"Actions for &#60;b&#62;job, "), "{page}");
        assert_eq!(labels(&menu), ["View", "Edit", "Disable", "Rotate", "Delete", "Copy ID"]);
        for link in ["", "/edit", "/reroll", "/delete"] {
            assert!(menu.contains(&format!("href=\"{path}{link}\"")), "{menu}");
            assert_eq!(owner.get(&format!("{path}{link}")).await.status, 200, "{link}");
        }
        assert!(between(&page, "<form id=\"row-action\" method=\"post\">", "</form>").contains("name=\"csrf\""), "{page}");

        let action = between(&menu, "formaction=\"", "\"").to_owned();
        redirect_path(&owner.post(&action, &[("enabled", between(&menu, "name=\"enabled\" value=\"", "\""))]).await);
        kw.verify(&key.key).await.assert_code("DISABLED");
        let menu = menu_of(&owner.get(&list).await.text, &key.id);
        assert_eq!(labels(&menu)[2], "Enable");
        redirect_path(&owner.post(&action, &[("enabled", between(&menu, "name=\"enabled\" value=\"", "\""))]).await);
        kw.verify(&key.key).await.assert_code("VALID");

        let page = viewer.get(&list).await.text;
        assert_eq!(labels(&menu_of(&page, &key.id)), ["View", "Copy ID"]);
        assert!(!page.contains("row-action"), "{page}");
    }

    async fn the_menu_of_a_root_key_offers_what_is_left_to_do(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut viewer = owner.invite("eve@example.com", "viewer").await;
        let list = workspace_path("/root-keys?show=all&q=billing");
        owner.post(&workspace_path("/root-keys"), &[("name", "billing"), ("permission", "api.*.verify_key")]).await;
        let page = owner.get(&list).await.text;
        let id = between(&page, "popovertarget=\"menu-", "\"").to_owned();
        let path = workspace_path(&format!("/root-keys/{id}"));

        let menu = menu_of(&page, &id);
        assert_eq!(labels(&menu), ["View", "Rotate", "Revoke", "Copy ID"]);
        for link in ["", "/rotate", "/revoke"] {
            assert!(menu.contains(&format!("href=\"{path}{link}\"")), "{menu}");
            assert_eq!(owner.get(&format!("{path}{link}")).await.status, 200, "{link}");
        }
        assert_eq!(labels(&menu_of(&viewer.get(&list).await.text, &id)), ["View", "Copy ID"]);

        redirect_path(&owner.post(&format!("{path}/revoke"), &[]).await);
        assert_eq!(labels(&menu_of(&owner.get(&list).await.text, &id)), ["View", "Copy ID"]);
    }

    async fn the_menu_of_an_import_offers_what_its_page_offers(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut viewer = owner.invite("eve@example.com", "viewer").await;
        kw.create_api().await;
        owner.post(&workspace_path("/imports"), &[("name", "<b>old"), ("algorithm", "sha256")]).await;
        let list = workspace_path("/imports");
        let page = owner.get(&list).await.text;
        let id = between(&page, "popovertarget=\"menu-", "\"").to_owned();
        let path = workspace_path(&format!("/imports/{id}"));

        let menu = menu_of(&page, &id);
        assert!(page.contains("aria-label=\"Actions for &#60;b&#62;old\""), "{page}");
        assert_eq!(labels(&menu), ["View", "Import keys", "View history", "Copy ID"]);
        assert!(menu.contains(&format!("href=\"{path}\"")) && menu.contains(&format!("href=\"{path}#more\"")), "{menu}");
        let shown = owner.get(&path).await.text;
        assert!(between(&shown, "id=\"more\"", "</section>").contains(">Preview</button>"), "{shown}");
        let history = between(&menu, &format!("href=\"{}", workspace_path("/audit")), "\"");
        assert!(shown.contains(&format!("{}{history}\">View history", workspace_path("/audit"))), "{shown}");

        assert_eq!(labels(&menu_of(&viewer.get(&list).await.text, &id)), ["View", "View history", "Copy ID"]);
    }

    async fn the_menu_of_every_list_offers_what_the_user_may_do(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut viewer = owner.invite("eve@example.com", "viewer").await;
        let api = kw.create_api().await;
        let created = async |operation: &str, request: Value, id: &str| {
            kw.v2(operation, request).await.text_of(id)
        };
        let identity = created("identities.createIdentity", json!({ "externalId": "ann" }), "identityId").await;
        let role = created("permissions.createRole", json!({ "name": "writer" }), "roleId").await;
        let permission = json!({ "name": "write", "slug": "write" });
        let permission = created("permissions.createPermission", permission, "permissionId").await;
        let policy = json!({ "name": "edge", "apiIds": [api] });
        let policy = created("gateways.createPolicy", policy, "policyId").await;
        kw.v2("ratelimit.limit", json!({ "namespace": "mail", "identifier": "a", "limit": 1, "duration": 60_000 })).await.data();
        let namespaces = owner.get(&workspace_path("/ratelimits?q=mail")).await.text;
        let namespace = between(&namespaces, "popovertarget=\"menu-", "\"").to_owned();

        for (list, id, offered, open_to_all) in [
            ("/apis", api, &["Settings", "Delete"][..], 0),
            ("/identities", identity, &["Edit", "Delete"], 0),
            ("/roles", role, &["Settings", "Delete"], 0),
            ("/permissions", permission, &["Delete"], 0),
            ("/ratelimits", namespace, &["Simulator", "Create override", "Delete"], 1),
            ("/gateways", policy, &["Try a request", "Settings", "Rotate secret", "Delete"], 1),
        ] {
            let path = workspace_path(list);
            let menu = menu_of(&owner.get(&path).await.text, &id);
            assert_eq!(labels(&menu), [&["View"], offered, &["Copy ID"]].concat(), "{list}");
            let links: Vec<_> = menu.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
            assert_eq!(links.len(), offered.len() + 1, "{menu}");
            for link in links {
                assert!(link.starts_with(&format!("{path}/{id}")), "{menu}");
                assert_eq!(owner.get(link).await.status, 200, "{link}");
            }
            let menu = menu_of(&viewer.get(&path).await.text, &id);
            assert_eq!(labels(&menu), [&["View"], &offered[..open_to_all], &["Copy ID"]].concat(), "{list}");
        }
    }
}
