//! The page of an import: its latest audit entries, and APIs that its select does not list.

use serde_json::json;

use super::super::{Browser, EMAIL, between, count_table_rows, redirect_path};
use super::import;
use crate::on_both_stacks;

/// Returns the entries that the page of an import lists.
fn listed_entries(page: &str) -> Vec<String> {
    let list = between(page, "Latest imports</h2>", "</section>");
    list.split("<li>").skip(1).map(str::to_owned).collect()
}

on_both_stacks! {
    async fn page_of_an_import_lists_its_entries_and_undoes_them(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut viewer = owner.invite("eve@example.com", "viewer").await;
        let api = kw.create_api().await;
        let path = import(&mut owner, "legacy", "sha256").await;
        let other = import(&mut owner, "other", "sha256").await;
        assert!(!owner.get(&path).await.text.contains("Latest imports"));
        for (path, keys) in [
            (&path, "key\nold_one\nold_two"),
            (&path, "key\nold_three"),
            (&other, "key\nold_four"),
        ] {
            owner.post(path, &[("api", api.as_str()), ("keys", keys)]).await;
            kw.clock.advance_ms(1);
        }

        let seen = listed_entries(&viewer.get(&path).await.text);
        let entries = listed_entries(&owner.get(&path).await.text);

        assert_eq!((seen.len(), entries.len()), (2, 2));
        for entry in seen.iter().chain(&entries) {
            assert!(entry.contains(">Keys imported</a>") && entry.contains("legacy, an API"), "{entry}");
            assert!(entry.contains(EMAIL) && entry.contains("<time datetime="), "{entry}");
        }
        assert!(entries[0].contains("1 key ·") && entries[1].contains("2 keys ·"), "{entries:?}");
        assert!(!seen.concat().contains("/undo\""), "{seen:?}");
        let undo = between(&entries[1], "<a class=\"button small\" href=\"", "\"");
        let shown = owner.get(undo.strip_suffix("/undo").unwrap()).await.text;
        assert!(shown.contains(&format!("<a class=\"button\" href=\"{undo}\"")), "{shown}");

        assert!(redirect_path(&owner.post(undo, &[]).await).ends_with("?notice=undone"));

        let code = async |key| kw.verify(key).await.data()["code"].clone();
        assert_eq!((code("old_one").await, code("old_two").await), (json!("NOT_FOUND"), json!("NOT_FOUND")));
        assert_eq!((code("old_three").await, code("old_four").await), (json!("VALID"), json!("VALID")));
        let entries = listed_entries(&owner.get(&path).await.text);
        assert!(entries[1].contains(">Undone</span>") && !entries[1].contains("/undo\""), "{entries:?}");
        assert!(!entries[0].contains(">Undone</span>") && entries[0].contains("/undo\""), "{entries:?}");
    }

    async fn page_of_an_import_omits_imports_into_what_is_named_like_its_id(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let path = import(&mut owner, "legacy", "sha256").await;
        let id = path.rsplit('/').next().unwrap();
        let other = import(&mut owner, id, "sha256").await;
        let api = kw.v2("apis.createApi", json!({ "name": id })).await.text_of("apiId");
        for (path, keys) in [(&path, "key\nold_one"), (&other, "key\nold_two"), (&other, "key\nold_three")] {
            let taken = owner.post(path, &[("api", api.as_str()), ("keys", keys)]).await;
            assert!(taken.text.contains("1 key imported"), "{}", taken.text);
            kw.clock.advance_ms(1);
        }

        let entries = listed_entries(&owner.get(&path).await.text);
        let others = listed_entries(&owner.get(&other).await.text);

        assert_eq!((entries.len(), others.len()), (1, 2));
        assert!(entries[0].contains(&format!("legacy, {id}")), "{entries:?}");
    }

    async fn page_of_an_import_lists_ten_entries_and_links_to_all(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let path = import(&mut owner, "legacy", "sha256").await;

        for number in 1..=11_usize {
            let keys = format!("key\nold_{number}");
            owner.post(&path, &[("api", api.as_str()), ("keys", keys.as_str())]).await;
            kw.clock.advance_ms(1);
            let page = owner.get(&path).await.text;
            assert_eq!(listed_entries(&page).len(), number.min(10), "{page}");
            assert_eq!(page.contains("These are the latest 10."), number > 10, "{page}");
        }

        let page = owner.get(&path).await.text;
        let all = between(&page, "These are the latest 10. <a href=\"", "\"").replace("&#38;", "&");
        assert_eq!(count_table_rows(&owner.get(&all).await.text), 11);
    }

    async fn api_that_is_not_listed_is_entered_by_its_id(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        for _ in 0..100 {
            kw.create_api().await;
        }
        let path = import(&mut owner, "legacy", "sha256").await;
        assert!(!owner.get(&path).await.text.contains("name=\"other-api\""));
        let last = kw.v2("apis.createApi", json!({ "name": "the last" })).await.text_of("apiId");
        let page = owner.get(&path).await.text;
        assert!(page.contains("name=\"other-api\"") && !page.contains(&last), "{page}");
        let listed = between(&page, "<option value=\"", "\"").to_owned();
        let entered = format!(" {last} ");
        let fields = |other| [("api", listed.as_str()), ("other-api", other), ("keys", "key\nold_one")];

        let unknown = owner.post(&format!("{path}/preview"), &fields("api_none")).await;
        let preview = owner.post(&format!("{path}/preview"), &fields(entered.as_str())).await;
        let imported = owner.post(&path, &fields(entered.as_str())).await;

        assert_eq!(unknown.status, 422);
        assert!(unknown.text.contains("value=\"api_none\"") && unknown.text.contains("select the API"), "{}", unknown.text);
        assert!(preview.text.contains(&format!("name=\"api\" value=\"{last}\"")), "{}", preview.text);
        assert!(imported.text.contains("1 key imported"), "{}", imported.text);
        assert_eq!(kw.list_texts("keys", "api_id").await, [last]);
        // The API of a link is listed, and selected.
        let page = owner.get(&format!("{path}?api={listed}")).await.text;
        assert!(page.contains(&format!("<option value=\"{listed}\" selected>")), "{page}");
    }
}
