//! APIs, as people make, set and delete them.

use serde_json::json;

use super::{Browser, EMAIL, between, form_encode, workspace_path};
use crate::on_both_stacks;
use crate::support::Reply;

/// Where an answer sends.
fn to(reply: &Reply) -> &str {
    assert_eq!(reply.status, 303, "{}", reply.text);
    reply.headers["location"].to_str().expect("a text")
}

/// The API that has just been made.
fn id(reply: &Reply) -> String {
    between(to(reply), "/apis/", "?").to_owned()
}

/// The settings as their form is sent where nothing is changed.
const AS_THEY_ARE: [(&str, &str); 4] =
    [("name", "payments"), ("was-name", "payments"), ("prefix", ""), ("was-prefix", "")];

on_both_stacks! {
    async fn an_api_is_made_and_keys_are_issued_in_it(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;

        let made = owner.post(&workspace_path("/apis"), &[("name", " payments ")]).await;
        let api = id(&made);
        let key = kw.create_key_in(&api, json!({})).await;

        kw.verify(&key.key).await.assert_code("VALID");
        let page = owner.get(to(&made)).await.text;
        assert!(page.contains("API created") && page.contains("<dd>1</dd>"), "{page}");
        assert!(page.contains(&format!("&#34;apiId&#34;:&#34;{api}&#34;")), "{page}");
        assert!(page.contains(&format!("/keys?api={api}")), "{page}");
        assert_eq!(kw.list_audit_events("payments").await, ["api.create"]);
        assert!(kw.list_texts("audit", "actor_name").await.contains(&EMAIL.to_owned()));
    }

    async fn select_of_apis_says_so_when_more_exist(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        for _ in 0..100 {
            kw.create_api().await;
        }
        owner.post(&workspace_path("/imports"), &[("name", "legacy"), ("algorithm", "sha256")]).await;
        let import = format!("/imports/{}", kw.list_texts("migrations", "id").await[0]);

        for (more, is_told) in [(0, false), (1, true)] {
            for _ in 0..more {
                kw.create_api().await;
            }
            for path in ["/keys/new", "/get-started", "/keys", "/analytics", "/logs", &import] {
                let page = owner.get(&workspace_path(path)).await.text;
                assert!(page.contains("<option value=\"api_"), "{path}: {page}");
                assert_eq!(page.contains("These are the first 100 APIs by name"), is_told, "{path}: {page}");
            }
        }
    }

    async fn a_name_within_its_bounds_is_taken_and_another_is_told_and_kept(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;

        for (length, status) in [(2, 422), (3, 303), (256, 303), (257, 422)] {
            let name = "é".repeat(length);
            let made = owner.post(&workspace_path("/apis"), &[("name", name.as_str())]).await;
            assert_eq!(made.status, status, "{length}");
            assert_eq!(made.text.contains("aria-invalid"), status == 422);
            assert_eq!(made.text.contains(&format!("value=\"{name}\"")), status == 422);
        }
        assert_eq!(kw.count_rows("apis").await, 2);
    }

    async fn the_list_is_searched_and_paged_and_tells_how_many_keys_there_are(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        for number in 0..27 {
            kw.v2("apis.createApi", json!({ "name": format!("API {number:02}") })).await.data();
        }
        let named = kw.v2("apis.createApi", json!({ "name": "<script>Mail</script>" })).await;
        let mail = named.text_of("apiId");
        kw.create_key_in(&mail, json!({})).await;
        let gone = kw.create_key_in(&mail, json!({})).await;
        kw.v2("keys.deleteKey", json!({ "keyId": gone.id })).await.data();

        let first = owner.get(&workspace_path("/apis")).await.text;
        let next = between(&first, "rel=\"next\" href=\"", "\"").replace("&#38;", "&");
        let second = owner.get(&next).await.text;
        let found = owner.get(&workspace_path("/apis?q=mAIL")).await.text;
        let nothing = owner.get(&workspace_path("/apis?q=none")).await.text;

        assert_eq!((first.matches("<tr><th").count(), second.matches("<tr><th").count()), (26, 4));
        assert!(found.contains("&#60;script&#62;Mail") && !found.contains("<script>Mail"));
        assert!(found.contains(">1<span class=\"hidden\"> keys of"), "{found}");
        assert!(nothing.contains("No results"));
    }

    async fn a_search_knows_capitals_of_every_alphabet(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        owner.post(&workspace_path("/apis"), &[("name", "Ärzte")]).await;
        owner.post(&workspace_path("/ratelimits"), &[("name", "ÉCOLES")]).await;
        kw.set_override("ÉCOLES", "Ωmega", json!({})).await;
        let namespace = kw.list_texts("namespaces", "id").await.remove(0);

        for (list, sought) in [
            (workspace_path("/apis"), "äRZTE"),
            (workspace_path("/ratelimits"), "éColes"),
            (workspace_path(&format!("/ratelimits/{namespace}")), "ωMEGA"),
        ] {
            let found = owner.get(&format!("{list}?{}", form_encode(&[("q", sought)]))).await.text;
            assert_eq!(found.matches("<tr><th scope=\"row\"").count(), 1, "{sought}: {found}");
        }
        let api = kw.list_texts("apis", "id").await.remove(0);
        owner.post(&workspace_path(&format!("/apis/{api}/settings")), &[("name", "Öl und Gas")]).await;
        let found = owner.get(&workspace_path("/apis?q=%C3%B6l")).await.text;
        assert!(found.contains("Öl und Gas"), "{found}");
    }

    async fn settings_hold_from_the_next_key_on(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = id(&owner.post(&workspace_path("/apis"), &[("name", "payments")]).await);
        let path = workspace_path(&format!("/apis/{api}/settings"));

        let fields = [
            ("name", "billing"), ("was-name", "payments"), ("prefix", "live"), ("was-prefix", ""),
            ("bytes", "24"), ("networks", "10.0.0.0/8"), ("recoverable", "on"), ("protected", "on"),
        ];
        let set = owner.post(&path, &fields).await;

        assert_eq!(to(&set), workspace_path(&format!("/apis/{api}?notice=api-updated")));
        let key = kw.create_key_in(&api, json!({ "recoverable": true })).await;
        assert!(key.key.starts_with("live_"));
        kw.verify(&key.key).await.assert_code("FORBIDDEN");
        kw.v2("apis.deleteApi", json!({ "apiId": api })).await.assert_error(412, "protected_resource");
        let page = owner.get(&workspace_path(&format!("/apis/{api}"))).await.text;
        assert!(page.contains("<h1 class=\"break\">billing</h1>") && page.contains("10.0.0.0/8"));
        assert_eq!(kw.list_audit_events(&api).await, ["api.create", "api.update"]);
    }

    async fn what_others_have_set_in_the_meantime_stays(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = id(&owner.post(&workspace_path("/apis"), &[("name", "payments")]).await);
        let path = workspace_path(&format!("/apis/{api}/settings"));

        kw.update_api(&api, |settings| settings.default_prefix = Some("live".into())).await;
        owner.post(&path, &[AS_THEY_ARE.as_slice(), &[("protected", "on")]].concat()).await;

        assert!(kw.create_key_in(&api, json!({})).await.key.starts_with("live_"));
        kw.v2("apis.deleteApi", json!({ "apiId": api })).await.assert_error(412, "protected_resource");
    }

    async fn settings_that_are_wrong_are_told_and_kept(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = id(&owner.post(&workspace_path("/apis"), &[("name", "payments")]).await);
        let path = workspace_path(&format!("/apis/{api}/settings"));

        for (field, wrong) in [
            ("name", "ab"), ("prefix", "a-b"), ("prefix", "aaaaaaaaaaaaaaaaa"), ("bytes", "15"),
            ("bytes", "256"), ("bytes", "many"), ("networks", "here"),
        ] {
            let mut fields = AS_THEY_ARE.to_vec();
            fields.retain(|(name, _)| *name != field);
            fields.push((field, wrong));
            let refused = owner.post(&path, &fields).await;
            assert_eq!(refused.status, 422, "{field}");
            assert!(refused.text.contains(&format!("value=\"{wrong}\"")), "{field}");
            assert!(refused.text.contains("aria-invalid"), "{field}");
        }
        assert_eq!(kw.list_audit_events(&api).await, ["api.create"]);
    }

    async fn an_api_is_deleted_by_its_name_and_its_keys_stop(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = id(&owner.post(&workspace_path("/apis"), &[("name", "payments")]).await);
        let key = kw.create_key_in(&api, json!({})).await;
        let path = workspace_path(&format!("/apis/{api}/delete"));

        let asked = owner.get(&path).await.text;
        let wrong = owner.post(&path, &[("name", "mail")]).await;
        kw.verify(&key.key).await.assert_code("VALID");
        let deleted = owner.post(&path, &[("name", "payments")]).await;

        assert!(asked.contains("<strong>1 key</strong> stops working"), "{asked}");
        assert_eq!(wrong.status, 422);
        assert_eq!(to(&deleted), workspace_path("/apis?notice=api-deleted"));
        kw.verify(&key.key).await.assert_code("NOT_FOUND");
        assert_eq!(owner.get(&workspace_path(&format!("/apis/{api}"))).await.status, 404);
    }

    async fn a_protected_api_is_not_deleted_and_the_page_tells_what_to_do(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = id(&owner.post(&workspace_path("/apis"), &[("name", "payments")]).await);
        kw.update_api(&api, |settings| settings.is_delete_protected = true).await;
        let path = workspace_path(&format!("/apis/{api}/delete"));

        let asked = owner.get(&path).await;
        let refused = owner.post(&path, &[("name", "payments")]).await;

        assert_eq!((asked.status.as_u16(), refused.status.as_u16()), (200, 422));
        for page in [asked.text, refused.text] {
            assert!(page.contains("Turn it off in its"), "{page}");
            assert!(!page.contains("to confirm"), "{page}");
        }
        assert_eq!(kw.list_audit_events(&api).await, ["api.create", "api.update"]);
    }

    async fn an_api_of_another_workspace_does_not_exist(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let stranger = kw.create_other_workspace().await;
        let made = kw.v2_as(&stranger, "apis.createApi", json!({ "name": "theirs" })).await;
        let theirs = made.text_of("apiId");

        for rest in ["", "/settings", "/delete"] {
            let path = workspace_path(&format!("/apis/{theirs}{rest}"));
            assert_eq!(owner.get(&path).await.status, 404, "{rest}");
            if !rest.is_empty() {
                assert_eq!(owner.post(&path, &[("name", "theirs")]).await.status, 404, "{rest}");
            }
        }
        assert!(!owner.get(&workspace_path("/apis")).await.text.contains(&theirs));
        kw.v2_as(&stranger, "apis.getApi", json!({ "apiId": theirs })).await.data();
    }
}
