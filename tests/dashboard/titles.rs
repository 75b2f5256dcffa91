//! The titles of pages, which the tabs and the history of a browser show.

use serde_json::json;

use super::{Browser, ESCAPED_NAME, HOSTILE_NAME, between, redirect_path, workspace_path};
use crate::on_both_stacks;

on_both_stacks! {
    async fn a_title_names_the_object_of_its_page(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({ "name": "payments-key" })).await.id;
        let hostile = kw.create_key_in(&api, json!({ "name": HOSTILE_NAME })).await.id;
        let unnamed = kw.create_key_in(&api, json!({ "prefix": "live" })).await.id;
        kw.v2("permissions.createPermission", json!({ "name": "Read", "slug": "documents.read" })).await;
        let namespace = owner.post(&workspace_path("/ratelimits"), &[("name", "email.outbound")]).await;
        let namespace = redirect_path(&namespace);
        let namespace = between(&namespace, "/ws_default", "?");

        for (path, title) in [
            (String::new(), "default · Overview"),
            ("/keys".into(), "Keys"),
            ("/workspace".into(), "default · Workspace"),
            ("/logs".into(), "Logs"),
            (format!("/keys/{key}"), "payments-key · Keys"),
            (format!("/keys/{key}/edit"), "payments-key · Edit key"),
            (format!("/keys/{key}/credits"), "payments-key · Change credits"),
            (format!("/keys/{key}/reroll"), "payments-key · Rotate key"),
            (format!("/keys/{key}/delete"), "payments-key · Delete key"),
            (format!("/keys/{hostile}"), format!("{ESCAPED_NAME} · Keys").as_str()),
            (format!("/keys/{unnamed}"), "Unnamed key · Keys"),
            (format!("/apis/{api}"), "an API · APIs"),
            (format!("/apis/{api}/settings"), "an API · API settings"),
            (format!("/apis/{api}/delete"), "an API · Delete API"),
            ("/permissions/documents.read".into(), "documents.read · Permissions"),
            (namespace.to_owned(), "email.outbound · Rate limits"),
            (format!("{namespace}/override"), "email.outbound · Create override"),
            (format!("{namespace}/outage"), "email.outbound · Outage policy"),
            (format!("{namespace}/simulator"), "email.outbound · Simulator"),
        ] {
            let page = owner.get(&workspace_path(&path)).await;

            assert_eq!(page.status, 200, "{path}");
            assert_eq!(between(&page.text, "<title>", "</title>"), format!("{title} · Keyward"), "{path}");
        }
    }

    async fn title_of_a_new_secret_names_its_object(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let api = ("api", api.as_str());
        let policy = [
            ("name", "edge"), api, ("keyFrom", "authorization:bearer"), ("headers-mode", "all"), ("onFailure", "problem+json"),
        ];
        for (path, fields, title) in [
            ("/keys", &[api, ("name", HOSTILE_NAME)][..], format!("{ESCAPED_NAME} · Your new key")),
            ("/keys", &[api], "Unnamed key · Your new key".into()),
            ("/root-keys", &[("name", "ci"), ("permission", "api.*.create_api")], "ci · Your new root key".into()),
            ("/gateways", &policy, "edge · Your new policy".into()),
        ] {
            let page = owner.post(&workspace_path(path), fields).await;

            assert_eq!(between(&page.text, "<title>", "</title>"), format!("{title} · Keyward"), "{path}");
        }
    }

    async fn key_has_one_name_and_one_color_on_every_page(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let soon = kw.clock.now().0 + 1_000;
        let disabled = kw.create_key_in(&api, json!({ "externalId": "ann", "enabled": false })).await;
        let expired = kw.create_key_in(&api, json!({ "externalId": "ann", "expires": soon })).await;
        let exhausted = kw.create_key_in(&api, json!({ "externalId": "ann", "credits": { "remaining": 0 } })).await;
        let active = kw.create_key_in(&api, json!({ "externalId": "ann", "name": HOSTILE_NAME })).await;
        kw.clock.advance_ms(1_001);
        let identity = redirect_path(&owner.get(&workspace_path("/identity?externalId=ann")).await);
        let list = owner.get(&workspace_path("/keys")).await.text;
        let of_identity = owner.get(&identity).await.text;

        for (key, name, badge) in [
            (&disabled, "Unnamed key", "<span class=\"badge\">Disabled</span>"),
            (&expired, "Unnamed key", "<span class=\"badge bad\">Expired</span>"),
            (&exhausted, "Unnamed key", "<span class=\"badge bad\">Credits exhausted</span>"),
            (&active, ESCAPED_NAME, "<span class=\"badge good\">Active</span>"),
        ] {
            let path = workspace_path(&format!("/keys/{}", key.id));
            for rows in [&list, &of_identity] {
                let row = between(rows, &format!("href=\"{path}\">"), "</td>");
                assert!(row.starts_with(&format!("{name}</a>")) && row.contains(badge), "{row}");
            }
            let page = owner.get(&path).await.text;
            assert!(page.contains(badge) && page.contains(&format!("<h1 class=\"break\">{name}</h1>")), "{page}");
            let start = between(between(&page, "<p class=\"muted\"><code", "/code>"), ">", "<");
            assert!(list.contains(&format!("aria-label=\"Actions for {name}, {start}\"")), "{start}: {list}");
            for (rest, title) in [("edit", "Edit "), ("reroll", "Rotate "), ("delete", "Delete ")] {
                let page = owner.get(&format!("{path}/{rest}")).await.text;
                assert!(page.contains(&format!("{title}{name}")), "{page}");
                assert!(page.contains(&format!("<p class=\"crumbs\"><a class=\"break\" href=\"{path}\" title=\"{name}\">{name}</a></p>")), "{page}");
            }
        }
    }
}
