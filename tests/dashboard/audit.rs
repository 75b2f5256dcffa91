//! The audit log: what it tells, and how it is searched.

mod homes;
mod identities;
mod links;
mod restore;
mod undo;

use serde_json::json;

use super::{
    Browser, EMAIL, ESCAPED_NAME, HOSTILE_NAME, between, count_table_rows, form_encode,
    next_page_path, redirect_path, workspace_path,
};
use crate::on_both_stacks;
use crate::support::Keyward;

/// The pages of all entries of an event, the latest first.
async fn entries(visitor: &mut Browser<'_>, event: &str) -> Vec<String> {
    let page = visitor.get(&workspace_path(&format!("/audit?event={event}"))).await.text;
    let rows = page.split("<tr><th scope=\"row\"><a href=\"").skip(1);
    rows.map(|row| row.split_once('"').expect("a link").0.to_owned()).collect()
}

/// The page of the latest entry of an event.
pub async fn entry(visitor: &mut Browser<'_>, event: &str) -> String {
    let found = entries(visitor, event).await;
    found.first().unwrap_or_else(|| panic!("no entry of {event}")).clone()
}

/// Has the next act be later than the last one: entries of one moment have no order.
pub fn tick(kw: &Keyward) {
    kw.clock.advance_ms(1);
}

on_both_stacks! {
    async fn an_entry_tells_what_became_of_what_as_text(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({ "name": "first", "meta": { "n": 1.50 } })).await;
        kw.update_key(&key.id, json!({ "name": HOSTILE_NAME, "expires": 1_900_000_000_000_i64 })).await.data();

        let path = entry(&mut owner, "key.update").await;
        let page = owner.get(&path).await.text;

        assert!(page.contains(r#"<pre class="was break">first</pre>"#), "{page}");
        assert!(page.contains(&format!(r#"<pre class="is break">{ESCAPED_NAME}</pre>"#)));
        assert!(page.contains(r#"<pre class="is break">2030-03-17 17:46:40 UTC</pre>"#));
        assert!(!page.contains(HOSTILE_NAME) && !page.contains("<code>meta</code>"));
        assert!(page.contains(&format!("/dashboard/ws_default/keys/{}", key.id)));
        assert!(!page.contains(&key.key));
        let actor = "Root key &#34;KEYWARD_ROOT_KEY&#34;";
        let page_of_key = owner.get(&workspace_path(&format!("/keys/{}", key.id))).await.text;
        for page in [&page, &page_of_key, &owner.get(&workspace_path("/audit")).await.text] {
            assert!(page.contains(actor), "{page}");
        }
    }

    async fn entries_are_found_by_what_who_about_and_when(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let one = kw.create_key(json!({ "name": "one" })).await;
        kw.create_key(json!({ "name": "two" })).await;
        owner.post(&workspace_path("/apis"), &[("name", "by a person")]).await;
        let mut found = async |fields: &[(&str, &str)]| {
            count_table_rows(&owner.get(&workspace_path(&format!("/audit?{}", form_encode(fields)))).await.text)
        };

        assert_eq!(found(&[("event", "key.create")]).await, 2);
        assert_eq!(found(&[("about", "one")]).await, 1);
        assert_eq!(found(&[("about", &one.id)]).await, 1);
        assert_eq!(found(&[("actor", EMAIL), ("event", "api.create")]).await, 1);
        assert_eq!(found(&[("event", "api.create")]).await, 3);
        assert_eq!(found(&[("from", "2026-03-10"), ("until", "2026-03-10"), ("event", "key.create")]).await, 2);
        assert_eq!(found(&[("until", "2026-03-09")]).await, 0);
        assert_eq!(found(&[("from", "2026-03-11")]).await, 0);
        let created = ("event", "key.create");
        for (range, dates, count) in [
            ("day", ("until", ""), 2),
            // Dates apply to a custom range only.
            ("this-month", ("until", "2026-03-09"), 2),
            ("last-month", ("until", ""), 0),
            ("custom", ("until", ""), 2),
            ("custom", ("until", "2026-03-09"), 0),
            ("all", ("until", "2026-03-09"), 2),
        ] {
            assert_eq!(found(&[created, ("range", range), dates]).await, count, "{range} {dates:?}");
        }
        let page = owner.get(&workspace_path("/audit")).await.text;
        assert!(page.contains("<option value=\"all\" selected>All time</option>"), "{page}");
        let page = owner.get(&workspace_path("/audit?until=2026-03-09")).await.text;
        assert!(page.contains("<option value=\"custom\" selected>"), "{page}");
        for range in ["all", "day"] {
            let page = owner.get(&workspace_path(&format!("/audit?range={range}&until=2026-03-09"))).await.text;
            assert!(page.contains(&format!("<option value=\"{range}\" selected>")), "{page}");
            assert!(page.contains("so they were not used"), "{page}");
        }
    }

    async fn dates_of_no_period_are_an_error(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.create_key(json!({})).await;

        for (query, error) in [
            ("from=tomorrow", "Start date must be a date such as 2026-03-31"),
            ("from=2026-03-11&until=2026-03-10", "Start date must not be after end date"),
            ("range=custom", "Custom needs a start date or an end date"),
            ("from=a&until=b", "Start date must be a date such as 2026-03-31. End date must be a date such as 2026-03-31"),
        ] {
            let page = owner.get(&workspace_path(&format!("/audit?event=key.create&{query}"))).await.text;
            assert_eq!(between(&page, "id=\"fault\" role=\"alert\">", "<"), error, "{query}");
            assert_eq!(count_table_rows(&page), 1, "{query}");
        }
        let day = owner.get(&workspace_path("/audit?event=key.create&from=2026-03-10&until=2026-03-10")).await.text;
        assert!(!day.contains("id=\"fault\"") && count_table_rows(&day) == 1, "{day}");
    }

    async fn undo_of_a_change_of_members_is_offered_to_owners_only(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut admin = owner.invite("grace@example.com", "admin").await;
        let grace = admin.load_session().await.user.id;
        let set_role = workspace_path(&format!("/members/{grace}/role"));
        for role in ["viewer", "admin"] {
            tick(&kw);
            redirect_path(&owner.post(&set_role, &[("role", role)]).await);
        }
        kw.create_key(json!({})).await;

        for (event, is_for_owners) in
            [("member.invite", true), ("member.join", true), ("member.setRole", true), ("key.create", false)]
        {
            let path = entry(&mut owner, event).await;
            let (of_owner, of_admin) = (owner.get(&path).await.text, admin.get(&path).await.text);
            let undo = format!("action=\"{path}/undo\"");
            assert!(of_owner.contains(&undo), "{event}: {of_owner}");
            assert_eq!(of_admin.contains(&undo), !is_for_owners, "{event}: {of_admin}");
            assert_eq!(of_admin.contains("Only owners can undo this."), is_for_owners, "{event}: {of_admin}");
        }
    }

    async fn a_long_log_is_paged(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        for number in 0..30 {
            tick(&kw);
            kw.create_key_in(&api, json!({ "name": format!("key {number}") })).await;
        }

        let first = owner.get(&workspace_path("/audit?event=key.create")).await;
        let second = owner.get(&next_page_path(&first)).await;

        assert_eq!((count_table_rows(&first.text), count_table_rows(&second.text)), (25, 5));
        assert!(second.text.contains("key 0") && !second.text.contains("key 7"));
        assert!(!second.text.contains("rel=\"next\""));
    }

    async fn entry_lists_no_later_changes_of_what_is_named_like_its_target(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        tick(&kw);
        kw.v2("apis.createApi", json!({ "name": api })).await.data();
        let path = entries(&mut owner, "api.create").await.pop().expect("the first entry");

        let before = owner.get(&path).await.text;
        tick(&kw);
        kw.v2("apis.deleteApi", json!({ "apiId": api })).await.data();
        let after = owner.get(&path).await.text;

        assert!(before.contains(&format!("data-id>{api}<")) && !before.contains("Later changes"), "{before}");
        assert!(between(&after, "Later changes", "</section>").contains(">API deleted</a>"), "{after}");
    }

    async fn log_is_listed_the_oldest_first_with_the_same_filter(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        for number in 0..26 {
            tick(&kw);
            kw.create_key_in(&api, json!({ "name": format!("key {number:02}") })).await;
        }
        let latest_first = workspace_path("/audit?event=key.create&from=2026-03-10");
        let head = |page: &str, direction: &str| {
            let before = format!("aria-sort=\"{direction}\"><a href=\"");
            between(page, &before, "\"").replace("&#38;", "&")
        };

        let oldest_first = head(&owner.get(&latest_first).await.text, "descending");
        let first = owner.get(&oldest_first).await;
        let second = owner.get(&next_page_path(&first)).await;

        assert_eq!(oldest_first, format!("{latest_first}&order=ascending"));
        assert_eq!(head(&first.text, "ascending"), latest_first);
        assert_eq!((count_table_rows(&first.text), count_table_rows(&second.text)), (25, 1));
        let at = |name: &str| first.text.find(name);
        assert!(at("key 00").is_some() && at("key 00") < at("key 24") && at("key 25").is_none(), "{}", first.text);
        assert!(second.text.contains("key 25") && !second.text.contains("rel=\"next\""));
        // The filter form keeps the order.
        assert!(first.text.contains("<input type=\"hidden\" name=\"order\" value=\"ascending\">"));
    }
}
