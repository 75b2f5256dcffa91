//! What is done to keys with a button.

use serde_json::json;

use super::*;
use crate::on_both_stacks;

on_both_stacks! {
    async fn a_key_is_disabled_and_enabled_again(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({})).await;
        let path = workspace_path(&format!("/keys/{}/enabled", key.id));

        let off = owner.post(&path, &[("enabled", "false")]).await;
        kw.verify(&key.key).await.assert_code("DISABLED");
        let told = owner.get(to(&off)).await.text;
        owner.post(&path, &[("enabled", "true")]).await;
        kw.verify(&key.key).await.assert_code("VALID");

        assert!(told.contains("Key disabled.") && told.contains("The key is disabled"), "{told}");
    }

    async fn what_a_viewer_may_not_do_is_not_offered(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut viewer = owner.invite("eve@example.com", "viewer").await;
        let key = kw.create_key(json!({})).await;
        let offers = [
            "/keys/new", "/edit\"", "/enabled\"", "/reroll\"", "/delete\"", "name=\"act\"",
            "type=\"checkbox\"", "/apis/new", "/settings\"",
        ];

        for path in ["/keys".to_owned(), format!("/keys/{}", key.id), "/apis".to_owned()] {
            let (to_owner, to_viewer) = (owner.get(&workspace_path(&path)).await, viewer.get(&workspace_path(&path)).await);
            assert_eq!(to_viewer.status, 200, "{path}");
            assert!(offers.iter().any(|offer| to_owner.text.contains(offer)), "{path}");
            for offer in offers {
                assert!(!to_viewer.text.contains(offer), "{path} {offer}: {}", to_viewer.text);
            }
        }
    }

    async fn a_rerolled_key_is_good_until_its_grace_is_over(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({ "name": "old one", "credits": { "remaining": 9 } })).await;
        let path = workspace_path(&format!("/keys/{}/reroll", key.id));
        assert!(owner.get(&path).await.text.contains("Rotate old one"));

        let wrong = owner.post(&path, &[("grace", "5")]).await;
        let page = owner.post(&path, &[("grace", "3600000")]).await;
        let new = secret(&page);

        assert_eq!(wrong.status, 422);
        assert!(page.text.contains("in 1 hour"), "{}", page.text);
        kw.verify(&key.key).await.assert_code("VALID");
        kw.verify(&new).await.assert_code("VALID");
        kw.clock.advance_ms(3_600_001);
        kw.verify(&key.key).await.assert_code("EXPIRED");
        kw.verify(&new).await.assert_code("VALID");
        let late = owner.post(&path, &[("grace", "0")]).await;
        assert_eq!(late.status, 422);
        assert!(late.text.contains("re-roll the key that replaced it"), "{}", late.text);
        let verified = kw.verify(&new).await;
        let new_path = path.replace(&key.id, verified.data()["keyId"].as_str().expect("a key"));
        let at_once = owner.post(&new_path, &[("grace", "0")]).await;
        assert!(!secret(&at_once).is_empty());
    }

    async fn deleting_asks_first_and_then_nothing_accepts_the_key(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({ "name": "<script>key" })).await;
        let path = workspace_path(&format!("/keys/{}/delete", key.id));

        let asked = owner.get(&path).await.text;
        kw.verify(&key.key).await.assert_code("VALID");
        let deleted = owner.post(&path, &[]).await;

        assert!(asked.contains("Delete &#60;script&#62;key?") && !asked.contains("<script>key"));
        assert!(asked.contains("You can restore the key on its page."), "{asked}");
        assert_eq!(to(&deleted), workspace_path(&format!("/keys/{}?notice=key-deleted", key.id)));
        kw.verify(&key.key).await.assert_code("NOT_FOUND");
        let page = owner.get(to(&deleted)).await;
        assert_eq!(page.status, 410);
        assert!(page.text.contains("Key deleted. It is no longer accepted."), "{}", page.text);
        assert!(page.text.contains(">Restore</button>"), "{}", page.text);
        assert_eq!(owner.post(&path, &[]).await.status, 404);
    }

    async fn several_keys_are_asked_about_and_then_changed_each_for_itself(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let mut keys = Vec::new();
        for name in ["<script>one", "two", "three"] {
            keys.push(kw.create_key_in(&api, json!({ "name": name })).await);
        }
        let chosen = |act: &'static str| {
            let ids = keys[..2].iter().map(|key| ("key", key.id.as_str()));
            ids.chain([("act", act), ("key", "key_none"), ("key", keys[0].id.as_str())]).collect::<Vec<_>>()
        };

        let asked = owner.post(&workspace_path("/keys/bulk"), &chosen("disable")).await;
        kw.verify(&keys[0].key).await.assert_code("VALID");
        let done = owner.post(&workspace_path("/keys/bulk/do"), &chosen("disable")).await;

        assert_eq!((asked.status.as_u16(), done.status.as_u16()), (200, 200));
        assert!(asked.text.contains("<title>Disable 3 keys · Keys · Keyward</title>"), "{}", asked.text);
        assert!(done.text.contains("<title>2 keys disabled · Keys · Keyward</title>"), "{}", done.text);
        assert!(asked.text.contains("Disable 3 keys?") && asked.text.contains("&#60;script&#62;one"));
        assert!(!asked.text.contains("<script>one") && !asked.text.contains(">three<"));
        assert!(done.text.contains("2 keys disabled") && done.text.contains("1 failed"), "{}", done.text);
        assert!(done.text.contains("key key_none does not exist"), "{}", done.text);
        for (key, code) in keys.iter().zip(["DISABLED", "DISABLED", "VALID"]) {
            kw.verify(&key.key).await.assert_code(code);
        }
        owner.post(&workspace_path("/keys/bulk/do"), &chosen("enable")).await;
        kw.verify(&keys[0].key).await.assert_code("VALID");
        owner.post(&workspace_path("/keys/bulk/do"), &chosen("delete")).await;
        kw.verify(&keys[0].key).await.assert_code("NOT_FOUND");
        assert!(kw.list_audit_events(&keys[1].id).await.contains(&"key.delete".to_owned()));
    }

    async fn bulk_actions_lead_back_to_the_filtered_list(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({ "name": "night job" })).await.id;
        let query = format!("api={api}&q=night+job");
        let back = format!("{}?{}\"", workspace_path("/keys"), query.replace('&', "&#38;"));

        let list = owner.get(&workspace_path(&format!("/keys?{query}&notice=key-enabled"))).await.text;
        let address = between(&list, "action=\"/dashboard/ws_default/keys/bulk", "\"").replace("&#38;", "&");
        assert_eq!(address, format!("?{query}"));
        let disable = [("act", "disable"), ("key", key.as_str())];
        let asked = owner.post(&workspace_path(&format!("/keys/bulk?{query}")), &disable).await.text;
        assert_eq!(asked.matches(&back).count(), 2, "{asked}");
        let run = between(&asked, "action=\"/dashboard/ws_default/keys/bulk/do", "\"").replace("&#38;", "&");
        assert_eq!(run, format!("?{query}"));
        let run = workspace_path(&format!("/keys/bulk/do{run}"));
        let done = owner.post(&run, &disable).await.text;
        assert_eq!(done.matches(&back).count(), 2, "{done}");
        let history = |event: &str| format!("href=\"{}?event={event}&#38;actor=ada%40example.com\"", workspace_path("/audit"));
        assert!(done.contains(&history("key.update")), "{done}");
        let invalid = owner.post(&workspace_path(&format!("/keys/bulk?{query}")), &[("act", "disable")]).await.text;
        assert_eq!(invalid.matches(&back).count(), 2, "{invalid}");
        assert_eq!(to(&owner.post(&run, &[("act", "disable")]).await), workspace_path(&format!("/keys?{query}")));

        let deleted = owner.post(&run, &[("act", "delete"), ("key", key.as_str())]).await.text;
        assert!(deleted.contains(&history("key.delete")), "{deleted}");
        let entries = workspace_path("/audit?event=key.delete&actor=ada%40example.com");
        assert!(owner.get(&entries).await.text.contains("night job"));
    }

    async fn a_bulk_action_is_undone_for_each_key_that_it_changed(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let mut keys = Vec::new();
        for name in ["one", "two"] {
            keys.push(kw.create_key_in(&api, json!({ "name": name })).await);
        }
        let off = kw.create_key_in(&api, json!({ "name": "off", "enabled": false })).await;
        let ids = keys.iter().chain([&off]).map(|key| ("key", key.id.as_str())).collect::<Vec<_>>();
        let run = workspace_path(&format!("/keys/bulk/do?api={api}"));
        let undo = workspace_path(&format!("/keys/bulk/undo?api={api}"));

        for (act, code, changed) in [("disable", "DISABLED", 2), ("delete", "NOT_FOUND", 3)] {
            kw.clock.advance_ms(1);
            let chosen = ids.iter().copied().chain([("act", act)]).collect::<Vec<_>>();
            let done = owner.post(&run, &chosen).await.text;
            kw.verify(&keys[0].key).await.assert_code(code);
            let entries = done.split("name=\"entry\" value=\"").skip(1);
            let entries = entries.map(|rest| ("entry", rest.split_once('"').expect("an entry").0)).collect::<Vec<_>>();
            assert_eq!(entries.len(), changed, "{done}");
            kw.clock.advance_ms(1);
            let undone = owner.post(&undo, &entries).await;

            assert_eq!(to(&undone), workspace_path(&format!("/keys?api={api}&notice=all-undone")));
            for key in &keys {
                kw.verify(&key.key).await.assert_code("VALID");
            }
            kw.verify(&off.key).await.assert_code("DISABLED");
            let again = owner.post(&undo, &entries).await.text;
            assert!(again.contains("0 changes undone") && again.contains(&format!("{changed} failed")), "{again}");
            assert!(again.contains("this entry has already been undone"), "{again}");
        }
    }

    async fn address_of_a_bulk_action_contains_no_text_that_may_be_a_key(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let external_id = "550e8400-e29b-41d4-a716-446655440000";
        let key = kw.create_key(json!({ "name": "of a customer", "externalId": external_id })).await;

        let found = owner.post(&workspace_path("/keys/search/live"), &[("q", external_id), ("state", "active")]).await.text;
        let asked = owner.post(&workspace_path(&format!("/keys/bulk?q={}&state=active", key.key)), &[("act", "disable"), ("key", &key.id)]).await.text;

        assert!(found.contains("action=\"/dashboard/ws_default/keys/bulk?state=active\""), "{found}");
        assert!(asked.contains("/keys?state=active\"") && !asked.contains(&key.key), "{asked}");
    }

    async fn at_most_a_hundred_keys_go_at_once_and_at_least_one(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let ids: Vec<_> = (0..101).map(|number| format!("key_{number}")).collect();
        let chosen = |many: usize| {
            let ids = ids[..many].iter().map(|id| ("key", id.as_str()));
            ids.chain([("act", "delete")]).collect::<Vec<_>>()
        };

        for (many, status) in [(0, 422), (1, 200), (100, 200), (101, 422)] {
            assert_eq!(owner.post(&workspace_path("/keys/bulk"), &chosen(many)).await.status, status, "{many}");
        }
        let one = owner.post(&workspace_path("/keys/bulk"), &chosen(1)).await.text;
        assert!(one.contains("<title>Delete 1 key · Keys · Keyward</title>"), "{one}");
        assert_eq!(owner.post(&workspace_path("/keys/bulk/do"), &chosen(0)).await.status, 303);
        assert_eq!(owner.post(&workspace_path("/keys/bulk/do"), &chosen(101)).await.status, 422);
        assert_eq!(owner.post(&workspace_path("/keys/bulk"), &[("act", "burn"), ("key", "key_1")]).await.status, 400);
    }
}
