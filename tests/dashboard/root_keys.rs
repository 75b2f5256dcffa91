//! Root keys, as people make, rotate and revoke them.

use domain::last_used;
use serde_json::json;

use super::{Browser, EMAIL, between, workspace_path};
use crate::on_both_stacks;
use crate::support::{Keyward, Reply};

/// The root key that a page shows.
fn secret(page: &Reply) -> String {
    assert_eq!(page.status, 200, "{}", page.text);
    between(&page.text, "<code id=\"secret\">", "<").to_owned()
}

fn id(page: &Reply) -> String {
    between(&page.text, "href=\"/dashboard/ws_default/root-keys/key_", "\"").to_owned()
}

async fn status(kw: &Keyward, root_key: &str) -> u16 {
    kw.v2_as(root_key, "apis.createApi", json!({ "name": "an API" })).await.status.as_u16()
}

on_both_stacks! {
    async fn a_root_key_may_do_what_was_chosen_and_nothing_else(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let (mine, other) = (kw.create_api().await, kw.create_api().await);
        let one = format!("api.{mine}.read_api");

        let fields = [("name", "billing"), ("permission", "api.*.create_api"), ("permission", one.as_str())];
        let made = secret(&owner.post(&workspace_path("/root-keys"), &fields).await);

        assert_eq!(status(&kw, &made).await, 200);
        let read = async |api: &str| kw.v2_as(&made, "apis.getApi", json!({ "apiId": api })).await;
        assert_eq!(read(&mine).await.status, 200);
        assert_ne!(read(&other).await.status, 200);
        assert!(kw.list_audit_events("billing").await.contains(&"rootKey.create".to_owned()));
        assert!(kw.list_texts("audit", "actor_name").await.contains(&EMAIL.to_owned()));
    }

    async fn a_root_key_is_shown_once_and_kept_as_a_hash(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let page = owner.post(&workspace_path("/root-keys"), &[("permission", "api.*.verify_key")]).await;
        let (made, id) = (secret(&page), id(&page));

        for path in ["/root-keys".to_owned(), format!("/root-keys/key_{id}")] {
            assert!(!owner.get(&workspace_path(&path)).await.text.contains(&made));
        }
        assert!(!kw.list_texts("root_keys", "hash").await.contains(&made));
    }

    async fn what_is_wrong_with_a_choice_is_told_and_the_choice_is_kept(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let before = kw.count_rows("root_keys").await;

        let none = owner.post(&workspace_path("/root-keys"), &[("name", "<script>x</script>")]).await;
        let unknown = owner.post(&workspace_path("/root-keys"), &[("permission", "api.*.fly")]).await;
        let long = "n".repeat(256);
        let fields = [("name", long.as_str()), ("permission", "api.*.verify_key")];
        let long = owner.post(&workspace_path("/root-keys"), &fields).await;

        assert_eq!([none.status, unknown.status, long.status].map(|s| s.as_u16()), [422; 3]);
        assert!(none.text.contains("&#60;script&#62;x") && !none.text.contains("<script>x"));
        assert!(long.text.contains("value=\"api.*.verify_key\" checked"), "{}", long.text);
        assert_eq!(kw.count_rows("root_keys").await, before);
    }

    async fn an_api_of_another_workspace_does_not_exist_for_a_root_key(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let stranger = kw.create_other_workspace().await;
        let made = kw.v2_as(&stranger, "apis.createApi", json!({ "name": "theirs" })).await;
        let theirs = made.text_of("apiId");

        for tuple in [format!("api.{theirs}.read_api"), "api.api_none.read_api".into(), "ratelimit.rlns_none.limit".into()] {
            let refused = owner.post(&workspace_path("/root-keys"), &[("permission", tuple.as_str())]).await;
            assert_eq!(refused.status, 404, "{tuple}");
        }
        let page = owner.get(&workspace_path(&format!("/root-keys/new?on-api={theirs}&find-api=theirs"))).await;
        assert!(!page.text.contains(&format!("api.{theirs}.read_api")));
    }

    async fn a_template_fills_the_choice_in_and_a_search_finds_an_api(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.v2("apis.createApi", json!({ "name": "Payments <b>" })).await.text_of("apiId");

        let filled = owner.get(&workspace_path("/root-keys/new?template=verify&name=kept")).await.text;
        let found = owner.get(&workspace_path("/root-keys/new?find-api=payMENTS")).await.text;
        let added = owner.get(&workspace_path(&format!("/root-keys/new?add=api+{api}"))).await.text;

        assert_eq!(filled.matches(" checked").count(), 1);
        assert!(filled.contains("value=\"api.*.verify_key\" checked") && filled.contains("value=\"kept\""));
        assert!(found.contains(&format!("value=\"api {api}\"")) && !found.contains("Payments <b>"));
        assert!(added.contains(&format!("value=\"api.{api}.verify_key\"")));
    }

    async fn the_answer_about_apis_decides_what_is_granted(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let single = format!("api.{api}.verify_key");
        let permissions = [("permission", "api.*.verify_key"), ("permission", &single), ("permission", "ratelimit.*.limit")];
        let all = &["APIs and their keys", "rate-limit namespaces"][..];

        for (scope, expected) in [
            ("all", all),
            ("specific", &["rate-limit namespaces", "Only an API"]),
            ("none", &["rate-limit namespaces"]),
        ] {
            let fields: Vec<_> = [("scope", scope)].into_iter().chain(permissions).collect();
            let page = owner.post(&workspace_path("/root-keys"), &fields).await;
            let path = workspace_path(&format!("/root-keys/key_{}", id(&page)));
            let page = owner.get(&path).await.text;
            let titles = page.split("<h3 class=\"break\">").skip(1);
            let titles = titles.map(|title| title.split("</h3>").next().unwrap().trim_start_matches("All "));
            let mut found: Vec<_> = titles.collect();
            found.sort_by_key(|title| expected.iter().position(|known| known == title));
            assert_eq!(found, expected, "{scope}");
            assert_eq!(page.contains(&format!("<code>{api}</code>")), scope == "specific");
        }
    }

    async fn specific_apis_must_be_added(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let before = kw.count_rows("root_keys").await;

        let fields = [("scope", "specific"), ("permission", "api.*.verify_key"), ("permission", "ratelimit.*.limit")];
        let page = owner.post(&workspace_path("/root-keys"), &fields).await;

        assert_eq!(page.status, 422);
        assert!(page.text.contains("Add an API and select its permissions"), "{}", page.text);
        assert!(page.text.contains("id=\"scope\" aria-describedby=\"scope-error\""), "{}", page.text);
        assert!(page.text.contains("value=\"specific\" required checked"), "{}", page.text);
        assert_eq!(kw.count_rows("root_keys").await, before);
    }

    async fn a_template_is_applied_to_an_api_that_is_added(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;

        let asked = owner.get(&workspace_path("/root-keys/new?template=verify")).await.text;
        let added = format!("/root-keys/new?preset=verify&scope=specific&add=api+{api}");
        let added = owner.get(&workspace_path(&added)).await.text;

        assert!(!asked.contains("required checked") && asked.contains("name=\"preset\" value=\"verify\""));
        assert!(asked.contains(&format!("value=\"api {api}\"")), "{asked}");
        assert!(added.contains("value=\"specific\" required checked"), "{added}");
        assert!(added.contains(&format!("value=\"api.{api}.verify_key\" checked")), "{added}");
        assert!(!added.contains(&format!("value=\"api.{api}.read_key\" checked")), "{added}");
    }

    async fn a_rotated_root_key_is_good_until_its_grace_is_over(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let page = owner.post(&workspace_path("/root-keys"), &[("permission", "api.*.create_api")]).await;
        let (old, id) = (secret(&page), id(&page));

        let page = owner.post(&workspace_path(&format!("/root-keys/key_{id}/rotate")), &[("grace", "900000")]).await;
        let new = secret(&page);

        assert_eq!((status(&kw, &old).await, status(&kw, &new).await), (200, 200));
        kw.clock.advance_ms(900_000 - 1);
        assert_eq!(status(&kw, &old).await, 200);
        kw.clock.advance_ms(1);
        assert_eq!((status(&kw, &old).await, status(&kw, &new).await), (401, 200));
        assert_eq!(kw.list_audit_events(&format!("key_{id}")).await, ["rootKey.create", "rootKey.reroll"]);
        // What has ended is not replaced again.
        let again = owner.post(&workspace_path(&format!("/root-keys/key_{id}/rotate")), &[("grace", "0")]).await;
        assert_eq!(again.status, 404);
    }

    async fn rotating_without_a_grace_ends_the_old_root_key_at_once(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let page = owner.post(&workspace_path("/root-keys"), &[("permission", "api.*.create_api")]).await;
        let (old, id) = (secret(&page), id(&page));
        assert_eq!(status(&kw, &old).await, 200);

        let wrong = owner.post(&workspace_path(&format!("/root-keys/key_{id}/rotate")), &[("grace", "5")]).await;
        assert_eq!(wrong.status, 400);
        let new = secret(&owner.post(&workspace_path(&format!("/root-keys/key_{id}/rotate")), &[("grace", "0")]).await);

        assert_eq!((status(&kw, &old).await, status(&kw, &new).await), (401, 200));
    }

    async fn a_revoked_root_key_is_refused_at_once(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let page = owner.post(&workspace_path("/root-keys"), &[("permission", "api.*.create_api")]).await;
        let (made, id) = (secret(&page), id(&page));
        assert_eq!(status(&kw, &made).await, 200);

        let revoked = owner.post(&workspace_path(&format!("/root-keys/key_{id}/revoke")), &[]).await;

        assert_eq!(revoked.status, 303);
        assert_eq!(status(&kw, &made).await, 401);
        assert!(!owner.get(&workspace_path("/root-keys")).await.text.contains(&id));
        assert!(owner.get(&workspace_path("/root-keys?show=all")).await.text.contains(&id));
    }

    async fn a_root_key_that_ends_by_itself_is_good_until_then(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let fields = [("permission", "api.*.create_api"), ("lasts", "1")];
        let made = secret(&owner.post(&workspace_path("/root-keys"), &fields).await);

        kw.clock.advance_ms(24 * 3_600_000);
        assert_eq!(status(&kw, &made).await, 200);
        kw.clock.advance_ms(1);

        assert_eq!(status(&kw, &made).await, 401);
    }

    async fn a_root_key_tells_when_it_was_last_used(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let page = owner.post(&workspace_path("/root-keys"), &[("permission", "api.*.create_api")]).await;
        let (made, id) = (secret(&page), id(&page));
        let path = workspace_path(&format!("/root-keys/key_{id}"));
        assert!(owner.get(&path).await.text.contains("Last used</dt><dd>Never"));

        status(&kw, &made).await;
        kw.clock.advance_ms(120_000);
        last_used::flush(&kw.app.last_used).await.unwrap();

        let told = owner.get(&path).await.text;
        assert!(told.contains("2 minutes ago") && !told.contains("Last used</dt><dd>Never"), "{told}");
    }

    async fn the_list_is_searched_and_paged_the_latest_first(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        for number in 0..27 {
            kw.clock.advance_ms(1);
            let name = format!("Program {number:02}");
            let fields = [("name", name.as_str()), ("permission", "api.*.verify_key")];
            secret(&owner.post(&workspace_path("/root-keys"), &fields).await);
        }

        let first = owner.get(&workspace_path("/root-keys?q=PROGRAM")).await.text;
        let next = between(&first, "rel=\"next\" href=\"", "\"").replace("&amp;", "&").replace("&#38;", "&");
        let second = owner.get(&next).await.text;
        let found = owner.get(&workspace_path("/root-keys?q=program+13")).await.text;

        assert!(first.contains("Program 26") && first.contains("Program 02"));
        assert!(!first.contains("Program 01"));
        assert!(second.contains("Program 01") && second.contains("Program 00"));
        assert_eq!(second.matches(">Program ").count(), 2);
        assert_eq!(found.matches("<tr><th").count(), 2, "{found}");
    }

    async fn a_root_key_of_another_workspace_does_not_exist(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.create_other_workspace().await;
        let (ids, of) = (kw.list_texts("root_keys", "id").await, kw.list_texts("root_keys", "workspace_id").await);
        let theirs = ids.iter().zip(&of).find(|(_, of)| *of != "ws_default").unwrap().0;

        for rest in ["", "/rotate", "/revoke"] {
            let path = workspace_path(&format!("/root-keys/{theirs}{rest}"));
            assert_eq!(owner.get(&path).await.status, 404, "{rest}");
            if !rest.is_empty() {
                assert_eq!(owner.post(&path, &[("grace", "0")]).await.status, 404, "{rest}");
            }
        }
    }
}
