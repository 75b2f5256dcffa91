//! The search over everything in a workspace.

use serde_json::json;

use super::super::{between, count_table_rows};
use super::*;
use crate::on_both_stacks;

on_both_stacks! {
    async fn everything_is_found_by_its_name_and_by_its_id(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.v2("apis.createApi", json!({ "name": "Orders of Anna" })).await.text_of("apiId");
        let key = kw.create_key_in(&api, json!({ "name": "Anna's key", "externalId": "anna" })).await;
        kw.create_role("annas_role", ["annas.read"]).await;
        kw.v2("ratelimit.limit", json!({
            "namespace": "annas.requests", "identifier": "a", "limit": 5, "duration": 60_000,
        })).await.data();
        let search = async |owner: &mut Browser<'_>, text: &str| {
            owner.get(&workspace_path(&format!("/search?{}", form_encode(&[("q", text)])))).await.text
        };

        let page = search(&mut owner, "ANNA").await;
        for group in ["Keys", "Identities", "APIs", "Rate-limit namespaces", "Roles", "Permissions"] {
            assert!(page.contains(&format!("\">{group}</h2>")), "{group}: {page}");
        }
        for path in [format!("/keys/{}", key.id), format!("/apis/{api}")] {
            assert!(page.contains(&format!("href=\"{}\"", workspace_path(&path))), "{path}: {page}");
            let id = path.split('/').next_back().unwrap();
            assert!(search(&mut owner, id).await.contains(&workspace_path(&path)), "{path}");
        }
        assert!(!page.contains("View all"), "{page}");
        assert!(search(&mut owner, "<b>none").await.contains("Nothing matches “&#60;b&#62;none”."));
    }

    async fn of_each_kind_there_are_five_and_a_link_to_the_others(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        for number in 0..6 {
            if number == 5 {
                let five = owner.get(&workspace_path("/search?q=worker")).await.text;
                assert!(!five.contains("View all"), "{five}");
            }
            kw.create_key_in(&api, json!({ "name": format!("worker {number}") })).await;
        }

        let page = owner.get(&workspace_path("/search?q=worker")).await.text;

        assert_eq!(page.matches(">worker ").count(), 5, "{page}");
        assert!(page.contains(&format!("href=\"{}\"", workspace_path("/keys?q=worker"))), "{page}");
    }

    async fn what_may_be_a_full_key_is_in_no_url(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({})).await;
        let search = workspace_path("/search");
        let unknown = "live_3xTw9ZbV5yUq1NpLkR7a2C";

        let found = owner.post(&search, &[("q", &key.key)]).await;
        let text = owner.post(&search, &[("q", "two words")]).await;
        let page = owner.post(&search, &[("q", unknown)]).await;

        assert_eq!(to(&found), workspace_path(&format!("/keys/{}", key.id)));
        assert_eq!(to(&text), format!("{search}?q=two+words"));
        assert_eq!(page.status, 422);
        assert!(page.text.contains("Key not found") && !page.text.contains(unknown), "{}", page.text);
    }

    async fn a_full_root_key_leads_to_its_page_and_that_of_another_workspace_to_none(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let search = workspace_path("/search");
        let root_key = kw.root_key.clone();
        let foreign = kw.create_other_workspace().await;

        let list = owner.get(&workspace_path("/root-keys")).await.text;
        let form = between(&list, "<form class=\"search\"", "</form>");
        assert!(form.contains("method=\"post\"") && form.contains(&format!("action=\"{search}\"")), "{form}");
        assert!(form.contains("hx-params=\"not csrf,list\""), "{form}");

        let found = owner.post(&search, &[("list", &workspace_path("/root-keys")), ("q", &root_key)]).await;
        let page = owner.get(to(&found)).await.text;
        assert!(to(&found).starts_with(&workspace_path("/root-keys/")), "{}", to(&found));
        assert!(page.contains("Revoke"), "{page}");
        let of_others = owner.post(&search, &[("q", &foreign)]).await;
        assert!(of_others.status == 422 && !of_others.text.contains(&foreign), "{}", of_others.text);
    }

    async fn a_list_submits_its_search_and_gets_its_other_fields_back(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let list = workspace_path("/root-keys");
        let search = workspace_path("/search");

        let own = owner.post(&search, &[("list", &list), ("q", "a program"), ("show", "all")]).await;
        assert_eq!(to(&own), format!("{list}?q=a+program&show=all"));
        for other in ["https://other.example/", "//other.example", "/dashboard/ws_other/keys", &format!("{list}?a=b"), ""] {
            let reply = owner.post(&search, &[("list", other), ("q", "a program")]).await;
            assert_eq!(to(&reply), format!("{search}?q=a+program"), "{other}");
        }
    }

    async fn overrides_of_a_namespace_are_found_by_a_long_identifier_and_by_their_id(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let made = owner.post(&workspace_path("/ratelimits"), &[("name", "mail")]).await;
        let list = to(&made).strip_suffix("?notice=namespace-created").unwrap();
        let identifier = "550e8400-e29b-41d4-a716-446655440000";
        let id = kw.set_override("mail", identifier, json!({})).await;
        kw.set_override("mail", "0f8fad5b-d9cb-469f-a165-70867728950e", json!({})).await;
        let search = workspace_path("/search");

        for text in [identifier, &id] {
            let found = owner.post(&search, &[("list", list), ("q", text)]).await;

            assert_eq!(found.status, 200, "{}", found.text);
            let path = between(&found.text, "Overrides</h2>", "</section>");
            let path = between(path, "href=\"", "\"");
            assert_eq!(path, format!("{list}?q={identifier}"), "{text}");
            assert_eq!(count_table_rows(&owner.get(path).await.text), 1);
        }
        // That of another list, or of none, does not search them.
        for other in ["", &workspace_path("/ratelimits"), &workspace_path("/ratelimits/new")] {
            let reply = owner.post(&search, &[("list", other), ("q", identifier)]).await;
            assert_eq!(reply.status, 422, "{other}: {}", reply.text);
        }
    }

    async fn policies_imports_and_requests_are_found(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let policy = kw.v2("gateways.createPolicy", json!({ "name": "edge-of-anna", "apiIds": [api] })).await;
        let search = async |owner: &mut Browser<'_>, text: &str| {
            owner.get(&workspace_path(&format!("/search?{}", form_encode(&[("q", text)])))).await.text
        };

        let page = search(&mut owner, "edge-of").await;
        let path = workspace_path(&format!("/gateways/{}", policy.text_of("policyId")));
        assert!(page.contains(&format!("href=\"{path}\"")), "{page}");
        // The id of a request may be a full key, so it is submitted.
        let reply = owner.post(&workspace_path("/search"), &[("q", "req_3xTw9ZbV5yUq1NpLkR7a2C")]).await;
        assert!(reply.text.contains("/keys/why?request=req_3xTw9ZbV5yUq1NpLkR7a2C"), "{}", reply.text);
    }
}
