//! Imports: sets of keys that were issued elsewhere, and what is pasted into them.

use foundation::secret::KeyHash;
use serde_json::json;

use super::{
    Browser, ESCAPED_NAME, HOSTILE_NAME, between, count_table_rows, next_page_path, redirect_path,
    workspace_path,
};
use crate::on_both_stacks;

/// Makes an import; its page.
async fn import(owner: &mut Browser<'_>, name: &str, algorithm: &str) -> String {
    let made =
        owner.post(&workspace_path("/imports"), &[("name", name), ("algorithm", algorithm)]).await;
    let to = redirect_path(&made);
    to.strip_suffix("?notice=import-created").unwrap().to_owned()
}

fn hash(key: &str) -> String {
    KeyHash::compute(key).to_base64()
}

on_both_stacks! {
    async fn keys_are_taken_in_by_their_hashes_and_verify(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let path = import(&mut owner, "legacy", "sha256").await;
        let csv = format!("hash,name,externalId,credits\n{},one,user_1,\n{},\"two, too\",,5\n",
            hash("old_one"), KeyHash::compute("old_two").to_hex());

        let taken = owner.post(&path, &[("api", &api), ("keys", &csv)]).await;

        assert_eq!(taken.status, 200, "{}", taken.text);
        assert!(taken.text.contains("2 keys imported") && !taken.text.contains("not imported"));
        assert!(!taken.text.contains(&hash("old_one")));
        let one = kw.verify("old_one").await;
        assert_eq!(one.data()["identity"]["externalId"], "user_1");
        let two = kw.verify("old_two").await;
        assert_eq!((&two.data()["name"], &two.data()["credits"]), (&json!("two, too"), &json!(4)));
        let page = owner.get(&path).await.text;
        assert!(page.contains("<dt>Keys imported</dt><dd>2</dd>") && !page.contains("Not yet verified"));
        let id = path.rsplit('/').next().unwrap();
        assert!(page.contains(&format!("&#34;migrationId&#34;:&#34;{id}&#34;")), "{page}");
        assert!(owner.get(&workspace_path("/imports")).await.text.contains("<td class=\"number\">2</td>"));
        assert_eq!(kw.list_audit_events("legacy").await, ["migration.create", "migration.import"]);
    }

    async fn an_imported_key_without_a_name_is_shown_by_its_id(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let path = import(&mut owner, "legacy", "sha256").await;
        let csv = format!("hash\n{}", hash("old_one"));
        let taken = owner.post(&path, &[("api", &api), ("keys", &csv)]).await;
        let id = between(&taken.text, "/ws_default/keys/", "\"").to_owned();

        for path in ["/keys", &format!("/keys/{id}"), &format!("/keys/{id}/reroll"), &format!("/keys/{id}/edit")] {
            let page = owner.get(&workspace_path(path)).await.text;
            assert!(page.contains(&id) && !page.contains(">…") && !page.contains(" …"), "{path}: {page}");
        }
    }

    async fn json_is_taken_as_the_operation_takes_it(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let path = import(&mut owner, "", "sha256").await;
        let keys = json!([{ "hash": hash("old_one"), "permissions": ["documents.read"], "meta": { "a": 1 } }]);
        let whole = json!({
            "migrationId": path.rsplit('/').next(), "apiId": api, "keys": [{ "hash": hash("old_two") }],
        });

        for text in [keys.to_string(), whole.to_string()] {
            let taken = owner.post(&path, &[("api", &api), ("keys", &text)]).await;
            assert!(taken.text.contains("1 key imported"), "{}", taken.text);
        }

        let one = kw.verify("old_one").await;
        assert_eq!((&one.data()["permissions"], &one.data()["meta"]), (&json!(["documents.read"]), &json!({ "a": 1 })));
        assert_eq!(kw.verify("old_two").await.data()["code"], "VALID");
    }

    async fn what_is_known_or_there_twice_is_told_and_the_others_are_taken_in(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let path = import(&mut owner, "legacy", "sha256").await;
        let (one, two) = (hash("old_one"), hash("old_two"));
        owner.post(&path, &[("api", &api), ("keys", &format!("hash\n{one}"))]).await;

        let hex = KeyHash::compute("old_two").to_hex();
        let keys = format!("hash\n{one}\n{two}\n{hex}\n");
        let taken = owner.post(&path, &[("api", &api), ("keys", &keys)]).await.text;

        assert!(taken.contains("1 key imported") && taken.contains("2 not imported"), "{taken}");
        let known = between(&taken, &one[..12], "</p></div>");
        assert!(known.contains("Already imported"), "{known}");
        assert!(between(&taken, &hex[..12], "</p></div>").contains("Duplicate in this import"));
        assert!(owner.get(&path).await.text.contains("<dd>2</dd>"));
    }

    async fn what_is_wrong_is_told_at_its_field_and_nothing_is_taken_in(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let path = import(&mut owner, "legacy", "sha256").await;
        let good = format!("hash\n{}", hash("old_one"));
        let mixed = format!("{good}\nprod_a_key_itself\n");
        let late = format!("hash,expires\n{},soon\n", hash("old_one"));
        let both = format!("hash,name,enabled\n{},{},often\n", hash("old_one"), "n".repeat(256));

        for (api, keys, words, field) in [
            (api.as_str(), "", "paste at least one hash", "keys"),
            (&api, &mixed, "keys[1].hash must be SHA-256", "keys"),
            (&api, &late, "keys[0].expires", "keys"),
            (&api, &both, "keys[0].name must have 1 to 255 characters", "keys"),
            (&api, &both, "keys[0].enabled must be true or false", "keys"),
            (&api, "{\"keys\":[{\"name\":\"a\"}]}", "hash", "keys"),
            ("", &good, "apiId", "api"),
            ("api_none", &good, "select the API", "api"),
        ] {
            let refused = owner.post(&path, &[("api", api), ("keys", keys)]).await;

            assert_eq!(refused.status, 422, "{words}");
            let told = between(&refused.text, "id=\"faults\"", "</div>");
            assert!(told.contains(words) && !told.contains("prod_a_key_itself"), "{told}");
            let of_field = between(&refused.text, &format!("id=\"{field}\""), ">");
            assert!(of_field.contains("aria-invalid=\"true\""), "{of_field}");
            // What was pasted is there to be put right.
            assert!(refused.text.contains(keys.lines().last().unwrap_or_default().trim_matches(['{', '}'])) || keys.contains('"'));
        }
        assert_eq!(kw.count_rows("keys").await, 0);
    }

    async fn an_import_is_made_with_a_name_within_bounds_and_a_known_algorithm(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;

        for (name, algorithm, words) in [
            ("x".repeat(256), "sha256", "at most 255 characters"),
            (String::new(), "md5", "sha256 or prefixed-api-key"),
        ] {
            let fields = [("name", name.as_str()), ("algorithm", algorithm)];
            let refused = owner.post(&workspace_path("/imports"), &fields).await;
            assert_eq!(refused.status, 422);
            assert!(refused.text.contains(words), "{}", refused.text);
        }
        import(&mut owner, &"ü".repeat(255), "sha256").await;
        let hostile = import(&mut owner, HOSTILE_NAME, "sha256").await;

        for page in [owner.get(&workspace_path("/imports")).await.text, owner.get(&hostile).await.text] {
            assert!(page.contains(ESCAPED_NAME) && !page.contains(HOSTILE_NAME));
        }
    }

    async fn imports_are_listed_the_latest_first_page_by_page_and_searched(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        assert!(owner.get(&workspace_path("/imports")).await.text.contains("Create one import for each system"));
        for at in 0..27 {
            import(&mut owner, &format!("From {at:02}"), "sha256").await;
            kw.clock.advance_ms(1);
        }

        let first = owner.get(&workspace_path("/imports")).await;
        let second = owner.get(&next_page_path(&first)).await;
        let found = owner.get(&workspace_path("/imports?q=from%200")).await;

        assert_eq!([&first, &second, &found].map(|page| count_table_rows(&page.text)), [25, 2, 10]);
        assert!(first.text.contains("From 26") && second.text.contains("From 00"));
        import(&mut owner, "ÜBERNAHME", "sha256").await;
        let capitals = owner.get(&workspace_path("/imports?q=%C3%BCbernahme")).await.text;
        assert_eq!(count_table_rows(&capitals), 1);
        let none = owner.get(&workspace_path("/imports?q=elsewhere")).await.text;
        assert!(none.contains("No matching imports"));
    }

    async fn keys_of_prefixed_api_key_wait_until_they_are_shown(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let path = import(&mut owner, "seam", "prefixed-api-key").await;
        let keys = format!("hash\n{}\n{}", KeyHash::compute("long1").to_hex(), KeyHash::compute("long2").to_hex());
        owner.post(&path, &[("api", &api), ("keys", &keys)]).await;

        let migration = path.rsplit('/').next().unwrap();
        let verified = kw.verify_with("acme_short_long1", json!({ "migrationId": migration })).await;

        assert_eq!(verified.data()["code"], "VALID");
        let page = owner.get(&path).await.text;
        assert!(page.contains("<dt>Keys imported</dt><dd>2</dd>"), "{page}");
        assert!(page.contains("<dt>Not yet verified</dt><dd>1</dd>") && page.contains("keys.verifyKey"));
    }

    async fn as_many_go_at_once_as_the_operation_takes(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let path = import(&mut owner, "many", "sha256").await;
        let csv = |many: usize| {
            let hashes: Vec<_> = (0..many).map(|at| hash(&at.to_string())).collect();
            format!("hash\n{}", hashes.join("\r\n"))
        };

        let refused = owner.post(&path, &[("api", &api), ("keys", &csv(10_001))]).await;
        let taken = owner.post(&path, &[("api", &api), ("keys", &csv(10_000))]).await;
        let again = owner.post(&path, &[("api", &api), ("keys", &csv(10_000))]).await;

        assert_eq!(refused.status, 422);
        assert!(refused.text.contains("import at most 10,000"));
        assert!(taken.text.contains("10,000 keys imported") && taken.text.contains("And 9,900 more."));
        assert!(again.text.contains("10,000 not imported") && again.text.contains("And 9,000 more."));
        assert!(owner.get(&path).await.text.contains("<dd>10,000</dd>"));
    }

    async fn a_form_is_as_large_as_what_may_be_pasted_and_only_there_and_for_who_is_signed_in(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let path = import(&mut owner, "large", "sha256").await;
        // Each of them takes three bytes on the way.
        let largest = "\"".repeat(1024 * 1024 + 1);

        let told = owner.post(&path, &[("api", "api_none"), ("keys", &largest)]).await;
        let too_much = owner.post(&path, &[("keys", &"\"".repeat(1024 * 1024 + 32 * 1024))]).await;
        let elsewhere = owner.post(&workspace_path("/imports"), &[("name", &"x".repeat(128 * 1024))]).await;
        let mut guest = Browser::new(&kw);
        guest.get("/dashboard/login").await;
        let stranger = guest.post(&path, &[("keys", &"x".repeat(128 * 1024))]).await;

        assert_eq!(told.status, 422);
        assert!(told.text.contains("the maximum is 1,048,576"));
        assert_eq!([too_much, elsewhere, stranger].map(|page| page.status.as_u16()), [413; 3]);
    }

    async fn an_import_of_another_workspace_does_not_exist(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        kw.create_other_workspace().await;
        let ids = kw.list_texts("workspaces", "id").await;
        let other = ids.iter().find(|id| *id != "ws_default").unwrap();
        let path = import(&mut owner, "theirs", "sha256").await;
        kw.execute_sql(format!("UPDATE migrations SET workspace_id = '{other}'")).await;

        let page = owner.get(&path).await;
        let keys = format!("hash\n{}", hash("old_one"));
        let taken = owner.post(&path, &[("api", &api), ("keys", &keys)]).await;
        let faulty = owner.post(&path, &[("api", &api), ("keys", "")]).await;

        assert_eq!([page, taken, faulty].map(|page| page.status.as_u16()), [404; 3]);
        assert_eq!((count_table_rows(&owner.get(&workspace_path("/imports")).await.text), kw.count_rows("keys").await), (0, 0));
    }
}
