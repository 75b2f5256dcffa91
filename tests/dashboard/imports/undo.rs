//! Imports of whole files, and undoing them.

use serde_json::json;

use super::super::{Browser, audit, between, count_table_rows, redirect_path, workspace_path};
use super::{import, unescape};
use crate::on_both_stacks;

/// The page of the audit entry that the summary of an import names.
fn entry_path(summary: &str) -> String {
    let base = workspace_path("/audit/");
    format!("{base}{}", between(summary, &format!("href=\"{base}"), "/undo\""))
}

on_both_stacks! {
    async fn file_of_full_keys_is_previewed_imported_and_undone(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let path = import(&mut owner, "legacy", "sha256").await;
        let key = |at: usize| format!("legacy_live_{at:08}");
        let row = |at: usize| match at {
            7 => format!("{},{},soon\n", key(at), key(at).len()),
            8 => ",no key,\n".to_owned(),
            9 => format!("{},twice,\n", key(1)),
            _ => format!("{},name {at},2030-01-02\n", key(at)),
        };
        let rows: String = (0..200).map(row).collect();

        let file = format!("\u{feff}API token,Label,Expires at\n{rows}");
        let preview = owner.upload(&format!("{path}/preview"), &[("api", &api)], file.as_bytes()).await;

        assert_eq!(preview.status, 200, "{}", preview.text);
        for text in ["<dd>200</dd>", "<dd>197</dd>", "<dd>3</dd>", ">Import 197 keys</button>", "The server hashed the full keys"] {
            assert!(preview.text.contains(text), "{text}: {}", preview.text);
        }
        assert!(!preview.text.contains("legacy_live"));
        assert_eq!(kw.count_rows("keys").await, 0);
        let token = between(&preview.text, "name=\"form-token\" value=\"", "\"").to_owned();
        let table = unescape(between(&preview.text, "name=\"table\" value=\"", "\""));
        let fields = [
            ("api", api.as_str()), ("table", &table), ("skip-invalid", "yes"), ("form-token", &token),
            ("column-0", "hash"), ("column-1", "name"), ("column-2", "expires"), ("column-3", "start"),
        ];
        let imported = owner.post(&path, &fields).await;
        let again = redirect_path(&owner.post(&path, &fields).await);

        assert!(imported.text.contains("197 keys imported"), "{}", imported.text);
        assert!(imported.text.contains("3 not imported") && imported.text.contains("And 97 more."));
        assert!(again.ends_with("?notice=import-repeated"));
        assert_eq!(kw.count_rows("keys").await, 197);
        assert_eq!(kw.list_texts("keys", "start").await, vec!["lega"; 197]);
        let used = kw.verify(&key(0)).await;
        assert_eq!((&used.data()["code"], &used.data()["name"]), (&json!("VALID"), &json!("name 0")));
        assert_eq!(used.data()["expires"], 1_893_542_400_000_i64);

        let key_path = workspace_path(&format!("/keys/{}", used.data()["keyId"].as_str().unwrap()));
        let link = format!("<dt>Imported by</dt><dd class=\"break\"><a href=\"{path}\">legacy</a></dd>");
        assert!(owner.get(&key_path).await.text.contains(&link), "{link}");

        // One entry for the whole import.
        assert_eq!(kw.list_audit_events("legacy").await, ["migration.create", "migration.import"]);
        assert_eq!(kw.list_audit_events(&api).await.iter().filter(|event| *event == "migration.import").count(), 1);
        let entry = entry_path(&imported.text);
        let history = between(&owner.get(&path).await.text, "<a class=\"button\" href=\"", "\"").replace("&#38;", "&");
        let listed = owner.get(&history).await.text;
        assert!(count_table_rows(&listed) == 1 && listed.contains(&entry), "{listed}");
        let page = owner.get(&entry).await.text;
        assert!(page.contains("Unused keys are removed permanently; others stay."), "{page}");
        kw.clock.advance_ms(1);
        // Nothing but the confirmation has a form that removes them.
        let undo = format!("{entry}/undo");
        for page in [&imported.text, &page, &owner.get(&path).await.text] {
            assert!(page.contains(&format!("href=\"{undo}\"")) && !page.contains("/undo\"><input"), "{page}");
        }
        let confirmation = owner.get(&undo).await.text;
        assert!(confirmation.contains("Remove 197 keys of legacy permanently?"), "{confirmation}");
        assert!(confirmation.contains(&format!("<form method=\"post\" action=\"{undo}\"")), "{confirmation}");
        redirect_path(&owner.post(&undo, &[]).await);
        assert_eq!(redirect_path(&owner.get(&undo).await), entry);

        assert_eq!(kw.count_rows("keys").await, 1);
        assert_eq!(kw.verify(&key(0)).await.data()["code"], "VALID");
        assert_eq!(kw.verify(&key(1)).await.data()["code"], "NOT_FOUND");
        let page = owner.get(&path).await.text;
        assert!(page.contains("<dt>Keys imported</dt><dd>1</dd>"), "{page}");
        assert!(owner.get(&history).await.text.contains(">Undone</span>"));
        let twice = owner.post(&format!("{entry}/undo"), &[]).await;
        assert_eq!(twice.status, 422);

        // The corrected file can be imported.
        let fields = [("api", api.as_str()), ("table", &table), ("skip-invalid", "yes")];
        let corrected = owner.post(&path, &fields).await;
        assert!(corrected.text.contains("196 keys imported"), "{}", corrected.text);
        assert_eq!(kw.verify(&key(1)).await.data()["code"], "VALID");
    }

    async fn undo_of_an_import_keeps_other_imports_of_the_same_moment(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let path = import(&mut owner, "legacy", "sha256").await;
        let mut entries = Vec::new();
        for key in ["old_one", "old_two"] {
            let taken = owner.post(&path, &[("api", &api), ("keys", &format!("key\n{key}"))]).await;
            entries.push(format!("{}/undo", entry_path(&taken.text)));
        }

        redirect_path(&owner.post(&entries[0], &[]).await);
        let code = async |key| kw.verify(key).await.data()["code"].clone();
        assert_eq!((code("old_one").await, code("old_two").await), (json!("NOT_FOUND"), json!("VALID")));
        let refused = owner.post(&entries[1], &[]).await;

        assert_eq!(refused.status, 422);
        assert!(refused.text.contains("every key of the import was used or deleted since"), "{}", refused.text);
        assert_eq!(code("old_two").await, "VALID");
        let undoing = audit::entry(&mut owner, "migration.removeKeys").await;
        assert!(owner.get(&undoing).await.text.contains("import the file again"));
    }

    async fn summary_of_an_import_names_its_own_entry_when_other_apis_have_one_of_the_same_moment(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let path = import(&mut owner, "legacy", "sha256").await;
        for number in 0..8 {
            let api = kw.create_api().await;
            let keys = format!("key\nold_{number}");

            let taken = owner.post(&path, &[("api", &api), ("keys", &keys)]).await;
            let entry = owner.get(&entry_path(&taken.text)).await.text;

            assert!(entry.contains(&format!("/apis/{api}\"")), "{number}: {entry}");
        }
    }

    async fn undo_of_prefixed_keys_keeps_those_that_were_verified(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let path = import(&mut owner, "seam", "prefixed-api-key").await;
        let file = "key\nacme_one_long1\nacme_two_long2\nlong3\n";
        let fields = [("api", api.as_str()), ("skip-invalid", "yes")];
        let taken = owner.upload(&path, &fields, file.as_bytes()).await;
        let fault = between(&taken.text, "<p>Row 4", "</li>");
        assert!(fault.contains("key must have the form prefix_short_long"), "{fault}");
        let migration = json!({ "migrationId": path.rsplit('/').next() });
        let code = async |key| kw.verify_with(key, migration.clone()).await.data()["code"].clone();
        assert_eq!(code("acme_one_long1").await, "VALID");

        redirect_path(&owner.post(&format!("{}/undo", entry_path(&taken.text)), &[]).await);

        assert_eq!((code("acme_one_long1").await, code("acme_two_long2").await), (json!("VALID"), json!("NOT_FOUND")));
        assert!(owner.get(&path).await.text.contains("<dt>Keys imported</dt><dd>1</dd>"));
    }

    async fn undo_of_an_import_needs_the_role_and_the_workspace(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let path = import(&mut owner, "legacy", "sha256").await;
        let taken = owner.post(&path, &[("api", &api), ("keys", "key\nold_one")]).await;
        let undo = format!("{}/undo", entry_path(&taken.text));
        let mut viewer = owner.invite("view@example.com", "viewer").await;

        let page = viewer.get(&path).await;
        let refused = viewer.post(&undo, &[]).await;
        let unconfirmed = viewer.get(&undo).await;
        let preview = viewer.post(&format!("{path}/preview"), &[("api", &api), ("keys", "key\nx")]).await;

        assert!(page.text.contains("<dt>Keys imported</dt><dd>1</dd>") && !page.text.contains(">Preview</button>"));
        assert_eq!([refused, unconfirmed, preview].map(|page| page.status.as_u16()), [403; 3]);
        assert_eq!(kw.verify("old_one").await.data()["code"], "VALID");
    }
}
