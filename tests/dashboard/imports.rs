//! Imports: sets of keys that were issued elsewhere, and what is pasted into them.

mod page;
mod undo;

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

/// The value of an attribute.
fn unescape(text: &str) -> String {
    let text = text.replace("&#34;", "\"").replace("&#39;", "'");
    text.replace("&#60;", "<").replace("&#62;", ">").replace("&#38;", "&")
}

fn percent_decode(text: &str) -> String {
    let form = format!("text={text}");
    form_urlencoded::parse(form.as_bytes()).next().expect("a field").1.into_owned()
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
        assert!(!taken.text.contains(&hash("old_one")) && taken.text.contains("two, too"));
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

    async fn known_and_duplicate_keys_are_skipped_with_their_rows(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let path = import(&mut owner, "legacy", "sha256").await;
        let (one, two) = (hash("old_one"), hash("old_two"));
        owner.post(&path, &[("api", &api), ("keys", &format!("hash\n{one}"))]).await;

        let hex = KeyHash::compute("old_two").to_hex();
        let keys = format!("hash,name\n{one},known\n{two},new\n{hex},double\n");
        let fields = [("api", api.as_str()), ("keys", &keys), ("skip-invalid", "yes")];
        let taken = owner.post(&path, &fields).await.text;

        assert!(taken.contains("1 key imported") && taken.contains("2 not imported"), "{taken}");
        for (row, fault) in [("Row 2", "Already imported"), ("Row 4", "Duplicate in this import")] {
            let found = between(&taken, row, "</li>");
            assert!(found.contains(fault), "{found}");
        }
        let csv = between(&taken, "href=\"data:text/csv;charset=utf-8,", "\"");
        let csv = percent_decode(csv);
        let expected = "row,name,external_id,problem\n2,known,,Already imported\n4,double,,Duplicate in this import\n";
        assert_eq!(csv, expected);
        assert!(owner.get(&path).await.text.contains("<dd>2</dd>"));
    }

    async fn form_names_fault_and_field_and_imports_nothing(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let path = import(&mut owner, "legacy", "sha256").await;
        let good = format!("hash\n{}", hash("old_one"));

        for (api, keys, words, field) in [
            (api.as_str(), "", "choose a file, or paste its content", "file"),
            (&api, "[1]", "entry 1 of the file must be an object", "file"),
            ("", &good, "select the API", "api"),
            ("api_none", &good, "select the API", "api"),
        ] {
            for path in [path.clone(), format!("{path}/preview")] {
                let refused = owner.post(&path, &[("api", api), ("keys", keys)]).await;

                assert_eq!(refused.status, 422, "{words}");
                let told = between(&refused.text, "id=\"faults\"", "</div>");
                assert!(told.contains(words), "{told}");
                let of_field = between(&refused.text, &format!("id=\"{field}\""), ">");
                assert!(of_field.contains("aria-invalid=\"true\""), "{of_field}");
                // What was pasted is there to be put right.
                assert!(between(&refused.text, "<textarea", "</textarea>").ends_with(keys));
            }
        }
        assert_eq!(kw.count_rows("keys").await, 0);
    }

    async fn rows_with_errors_are_shown_and_nothing_is_imported_unless_they_are_skipped(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let path = import(&mut owner, "legacy", "sha256").await;
        let good = hash("old_one");
        let rows = [
            ("prod_a_key_itself,,,", "hash must be SHA-256 as 64 hexadecimal digits or 44 base64 characters"),
            (",a,,", "hash is missing"),
            (&format!("{},{},,", hash("a"), "n".repeat(256)), "name must have 1 to 255 characters"),
            (&format!("{},,soon,", hash("b")), "expires must be from 1970-01-01 to 2100-01-01, in Unix milliseconds"),
            (&format!("{},,,often", hash("c")), "enabled must be true or false"),
            (&format!("{},,", hash("d")), "must have 4 values, one for each column"),
        ];
        let lines: Vec<_> = rows.iter().map(|(line, _)| *line).collect();
        let keys = format!("hash,name,expires,enabled\n{good},,,\n{}", lines.join("\n"));

        for path in [path.clone(), format!("{path}/preview")] {
            let shown = owner.post(&path, &[("api", &api), ("keys", &keys)]).await;
            assert_eq!(shown.status, if path.ends_with("preview") { 200 } else { 422 });
            assert!(shown.text.contains("<dt>Ready to import</dt><dd>1</dd>"), "{}", shown.text);
            assert!(shown.text.contains("<dt>With errors</dt><dd>6</dd>"));
            let told = between(&shown.text, "id=\"invalid\"", "</section>");
            for ((_, words), number) in rows.iter().zip(3..) {
                let of_row = between(told, &format!("<p>Row {number}"), "</li>");
                assert!(of_row.contains(words), "{of_row}");
            }
            assert!(!told.contains("prod_a_key_itself"));
        }
        assert_eq!(kw.count_rows("keys").await, 0);
        let none = owner.post(&path, &[("api", &api), ("keys", "hash\nx"), ("skip-invalid", "yes")]).await;
        assert!(none.status == 422 && !none.text.contains("<button class=\"primary\">Import"), "{}", none.text);
        assert_eq!(kw.count_rows("keys").await, 0);
    }

    async fn columns_are_matched_by_the_user(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let path = import(&mut owner, "legacy", "sha256").await;
        let file = "credential,whom\nold_one,user_1\n";

        let preview = owner.upload(&format!("{path}/preview"), &[("api", &api)], file.as_bytes()).await;

        assert!(preview.text.contains("choose the column that is Full key or Hash"), "{}", preview.text);
        assert!(!preview.text.contains("Ready to import"));
        let table = unescape(between(&preview.text, "name=\"table\" value=\"", "\""));
        let fields = |one: &'static str, two: &'static str| {
            [("api", api.clone()), ("table", table.clone()), ("column-0", one.to_owned()), ("column-1", two.to_owned())]
        };
        for (one, two, words) in [
            ("name", "name", "two columns are Name"),
            ("key", "hash", "choose one of them"),
            ("", "name", "choose the column"),
        ] {
            let fields = fields(one, two);
            let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let told = owner.post(&path, &fields).await;
            assert!(told.status == 422 && told.text.contains(words), "{}", told.text);
        }
        let fields = fields("key", "externalId");
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let updated = owner.post(&format!("{path}/preview"), &fields).await.text;
        assert!(updated.contains("Import 1 key</button>") && !updated.contains("old_one"), "{updated}");
        owner.post(&path, &fields).await;
        assert_eq!(kw.verify("old_one").await.data()["identity"]["externalId"], "user_1");
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
        assert!(again.status == 422 && again.text.contains("<dt>With errors</dt><dd>10,000</dd>"));
        assert!(again.text.contains("And 9,000 more.") && again.text.contains("Already imported"));
        assert!(owner.get(&path).await.text.contains("<dd>10,000</dd>"));
    }

    async fn form_is_as_large_as_a_file_and_only_there_and_for_signed_in_users(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let path = import(&mut owner, "large", "sha256").await;
        let preview = format!("{path}/preview");
        let file = |bytes: usize| "\"".repeat(bytes).into_bytes();
        let max = 2 * 1024 * 1024;

        let told = owner.upload(&preview, &[("api", "api_none")], &file(max + 1)).await;
        // Each quotation mark takes three bytes on the way.
        let pasted = owner.post(&preview, &[("api", "api_none"), ("keys", &"\"".repeat(max + 1))]).await;
        let too_much = owner.upload(&preview, &[], &file(3 * max + 64 * 1024)).await;
        let elsewhere = owner.post(&workspace_path("/imports"), &[("name", &"x".repeat(128 * 1024))]).await;
        let upload_elsewhere = owner.upload(&workspace_path("/imports"), &[("name", "a")], b"").await;
        let mut guest = Browser::new(&kw);
        guest.get("/dashboard/login").await;
        let stranger = guest.post(&path, &[("keys", &"x".repeat(128 * 1024))]).await;
        let upload = guest.upload(&path, &[], b"").await;

        for told in [told, pasted] {
            assert_eq!(told.status, 422);
            assert!(told.text.contains("the maximum is 2,097,152"));
        }
        assert_eq!([too_much, elsewhere, stranger].map(|page| page.status.as_u16()), [413; 3]);
        assert_eq!([upload, upload_elsewhere].map(|page| page.status.as_u16()), [403; 2]);
    }

    async fn malformed_upload_is_rejected(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let path = import(&mut owner, "legacy", "sha256").await;
        for (body, status) in [("", 400), ("--limit\r\n", 400), ("--limit\r\nx\r\n\r\n--limit--", 400), ("--limit--", 403)] {
            let request = owner.form(&path).header("origin", "https://keyward.test");
            let mut request = request.body(body.into()).unwrap();
            request.headers_mut().insert("content-type", "multipart/form-data; boundary=limit".parse().unwrap());
            assert_eq!(owner.send(request).await.status, status, "{body}");
        }
        let table = ("table", "{\"columns\":[\"key\"],\"rows\":[[1]]}");
        let refused = owner.post(&path, &[("api", &api), table]).await;
        assert!(refused.status == 422 && refused.text.contains("choose the file again"), "{}", refused.text);
        let latin = owner.upload(&format!("{path}/preview"), &[("api", &api)], b"key,name\nold_one,\xfc").await;
        assert!(latin.status == 422 && latin.text.contains("not UTF-8 text"), "{}", latin.text);
    }

    async fn upload_leads_to_the_sign_in_page_when_the_session_has_ended(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let path = import(&mut owner, "legacy", "sha256").await;
        kw.execute_sql("DELETE FROM sessions".to_owned()).await;

        let refused = owner.upload(&path, &[("api", &api)], b"key\nold_one").await;

        assert!(redirect_path(&refused).starts_with("/dashboard/login"));
        assert_eq!(kw.count_rows("keys").await, 0);
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
        let preview = owner.post(&format!("{path}/preview"), &[("api", &api), ("keys", &keys)]).await;

        assert_eq!([page, taken, faulty, preview].map(|page| page.status.as_u16()), [404; 4]);
        assert_eq!((count_table_rows(&owner.get(&workspace_path("/imports")).await.text), kw.count_rows("keys").await), (0, 0));
    }
}
