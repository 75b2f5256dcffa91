//! Looking for keys.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use domain::keys::search::{INDEXED_ROWS_MAX, SEARCH_ROWS_MAX};
use domain::last_used;
use serde_json::json;

use super::super::next_page_path;
use super::*;
use crate::on_both_stacks;
use crate::support::Keyward;

/// All that is logged on this thread, kept to be looked at.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A text that may be a key, and is none.
const UNKNOWN_KEY: &str = "live_3xTw9ZbV5yUq1NpLkR7a2C";

/// Stores keys with the numbers `first` to `last`, each a millisecond after the one before.
async fn insert_keys(kw: &Keyward, api: &str, first: i64, last: i64) {
    let now = kw.clock.now().0;
    kw.execute_sql(format!(
        "WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})
        INSERT INTO keys (id, workspace_id, api_id, hash, start, byte_length, enabled, created_at, search)
        SELECT 'key_' || i, 'ws_default', '{api}', 'hash ' || i, 'none', 16, 1 = 1, {now} + i, 'job ' || i FROM n"
    ))
    .await;
}

/// How many keys a page lists.
fn listed(page: &str) -> usize {
    page.matches("<th scope=\"row\">").count()
}

/// The ids of the keys that a list has, in its order, over all pages.
async fn list_all(owner: &mut Browser<'_>, path: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let mut page = owner.get(path).await;
    loop {
        assert_eq!(page.status, 200, "{}", page.text);
        let rows = page.text.split("<th scope=\"row\">").skip(1);
        ids.extend(rows.map(|row| between(row, "/keys/", "\"").to_owned()));
        if !page.text.contains("rel=\"next\"") {
            return ids;
        }
        page = owner.get(&next_page_path(&page)).await;
    }
}

on_both_stacks! {
    async fn keys_are_sorted_by_their_creation_in_both_orders_over_all_pages(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        insert_keys(&kw, &api, 1, 55).await;
        kw.execute_sql("UPDATE keys SET enabled = (1 = 0) WHERE id IN ('key_3', 'key_50')".to_owned()).await;
        let latest_first: Vec<_> = (1..=55).rev().map(|number| format!("key_{number}")).collect();
        let oldest_first: Vec<_> = latest_first.iter().rev().cloned().collect();

        for filter in [String::new(), format!("api={api}")] {
            let path = workspace_path(&format!("/keys?{filter}"));
            let page = owner.get(&path).await.text;
            let head = between(&page, "aria-sort=\"", "</th>").replace("&#38;", "&");
            assert!(head.starts_with("descending\""), "{head}");
            let reversed = between(&head, "href=\"", "\"").to_owned();
            assert!(reversed.contains("order=ascending") && reversed.contains(&filter), "{reversed}");

            assert_eq!(list_all(&mut owner, &path).await, latest_first);
            assert_eq!(list_all(&mut owner, &reversed).await, oldest_first);
            let page = owner.get(&reversed).await.text;
            let head = between(&page, "aria-sort=\"", "</th>").replace("&#38;", "&");
            assert!(head.starts_with("ascending\"") && !head.contains("order="), "{head}");
            assert_eq!(owner.get(between(&head, "href=\"", "\"")).await.status, 200);
        }
        let disabled = workspace_path("/keys?state=disabled");
        assert_eq!(list_all(&mut owner, &disabled).await, ["key_50", "key_3"]);
        assert_eq!(list_all(&mut owner, &format!("{disabled}&order=ascending")).await, ["key_3", "key_50"]);
        // No index has the results of a search in this order.
        for filter in ["q=job+5", "state=active"] {
            let page = owner.get(&workspace_path(&format!("/keys?{filter}&order=ascending"))).await.text;
            assert!(!page.contains("aria-sort") && page.find("key_55").is_some_and(|at| page.find("key_51").is_none_or(|later| at < later)), "{page}");
        }
    }

    async fn list_of_all_keys_compares_a_bounded_number_of_keys_of_a_deleted_api(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let (api, deleted, last) = (kw.create_api().await, kw.create_api().await, SEARCH_ROWS_MAX + 2);
        insert_keys(&kw, &api, 1, 1).await;
        insert_keys(&kw, &deleted, 2, last - 1).await;
        insert_keys(&kw, &api, last, last).await;
        kw.v2("apis.deleteApi", json!({ "apiId": deleted })).await.data();

        for (order, expected) in [("descending", [last, 1]), ("ascending", [1, last])] {
            let first = owner.get(&workspace_path(&format!("/keys?order={order}"))).await;
            let second = owner.get(&next_page_path(&first)).await;

            for (page, number) in [first, second].iter().zip(expected) {
                assert_eq!(listed(&page.text), 1, "{}", page.text);
                assert!(page.text.contains(&format!("/keys/key_{number}\"")), "{}", page.text);
            }
        }
    }

    async fn a_key_is_found_by_its_id_its_name_its_start_and_its_external_id(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let fields = json!({ "name": "Night job", "externalId": "User_77", "prefix": "live" });
        let key = kw.create_key_in(&api, fields).await;
        kw.create_key_in(&api, json!({ "name": "another" })).await;
        let start = key.key[..8].to_owned();

        for search in [key.id.as_str(), &key.id[..12], "night", "JOB", "ser_7", "user_77", &start] {
            let page = owner.get(&workspace_path(&format!("/keys?{}", form_encode(&[("q", search)])))).await.text;
            assert!(page.contains("Night job") && listed(&page) == 1, "{search}: {page}");
        }
        for search in ["none", "key_none", &key.key[9..14], "IVE_"] {
            let page = owner.get(&workspace_path(&format!("/keys?{}", form_encode(&[("q", search)])))).await.text;
            assert!(page.contains("No results"), "{search}: {page}");
        }
    }

    async fn a_name_may_begin_like_an_id(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.create_key(json!({ "name": "key_rotation" })).await;

        let page = owner.get(&workspace_path("/keys?q=key_rot")).await.text;

        assert_eq!(listed(&page), 1, "{page}");
    }

    async fn keys_are_told_apart_by_their_state_as_a_verification_does(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let soon = kw.clock.now().0 + 1_000;
        kw.create_key_in(&api, json!({ "name": "is good" })).await;
        kw.create_key_in(&api, json!({ "name": "is off", "enabled": false, "expires": soon })).await;
        kw.create_key_in(&api, json!({ "name": "is over", "expires": soon, "credits": { "remaining": 0 } })).await;
        kw.create_key_in(&api, json!({ "name": "is spent", "credits": { "remaining": 0 } })).await;
        let refilled = json!({ "remaining": 0, "refill": { "interval": "daily", "amount": 5 } });
        kw.create_key_in(&api, json!({ "name": "comes back", "credits": refilled })).await;
        let found = async |owner: &mut Browser<'_>, state: &str| {
            let page = owner.get(&workspace_path(&format!("/keys?state={state}"))).await.text;
            let mut names = ["is good", "is off", "is over", "is spent", "comes back"].to_vec();
            names.retain(|name| page.contains(name));
            names
        };

        assert_eq!(found(&mut owner, "active").await, ["is good"]);
        assert_eq!(found(&mut owner, "disabled").await, ["is off"]);
        assert_eq!(found(&mut owner, "exhausted").await, ["is over", "is spent", "comes back"]);
        kw.clock.advance_ms(1_001);
        assert_eq!(found(&mut owner, "expired").await, ["is over"]);
        assert_eq!(found(&mut owner, "exhausted").await, ["is spent", "comes back"]);
        assert_eq!(found(&mut owner, "").await.len(), 5);
    }

    async fn credits_that_have_come_back_make_a_key_active(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let refilled = json!({ "remaining": 1, "refill": { "interval": "daily", "amount": 5 } });
        let key = kw.create_key(json!({ "name": "a day job", "credits": refilled })).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.verify(&key.key).await.assert_code("USAGE_EXCEEDED");

        let spent = owner.get(&workspace_path("/keys?state=exhausted")).await.text;
        kw.clock.advance_ms(24 * 3_600_000);
        owner.sign_in(EMAIL, PASSWORD).await;
        let active = owner.get(&workspace_path("/keys?state=active")).await.text;

        assert!(spent.contains("a day job") && spent.contains("Credits exhausted"), "{spent}");
        assert!(active.contains("a day job") && active.contains(">Active</span>"), "{active}");
    }

    async fn the_list_is_of_one_api_or_of_all_and_paged_the_latest_first(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let (one, other) = (kw.create_api().await, kw.create_api().await);
        for number in 0..27 {
            // Several of one moment, so that the order is told by the ids too.
            kw.clock.advance_ms(i64::from(number % 3 == 0));
            kw.create_key_in(&one, json!({ "name": format!("Number {number:02}") })).await;
        }
        kw.create_key_in(&other, json!({ "name": "elsewhere" })).await;

        let first = owner.get(&workspace_path(&format!("/keys?api={one}&q=NUMBER"))).await.text;
        let next = between(&first, "rel=\"next\" href=\"", "\"").replace("&#38;", "&");
        let second = owner.get(&next).await.text;
        let all = owner.get(&workspace_path("/keys")).await.text;

        assert_eq!((listed(&first), listed(&second)), (25, 2));
        for number in 0..27 {
            let name = format!(">Number {number:02}<");
            assert!(first.contains(&name) != second.contains(&name), "{name}");
        }
        assert!(first.contains("Number 26") && second.contains("First page"));
        assert!(all.contains("elsewhere") && !first.contains("elsewhere"));
        assert_eq!(owner.get(&workspace_path("/keys?from=nonsense")).await.status, 200);
    }

    async fn a_key_is_found_among_more_keys_than_a_search_compares(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let soon = kw.clock.now().0 + 1;
        let fields = json!({
            "name": "Lagerhaus ÄPFEL", "externalId": "User_WIEN", "prefix": "alone", "expires": soon
        });
        let key = kw.create_key_in(&api, fields).await;
        let off = kw.create_key_in(&api, json!({ "name": "switched off", "enabled": false })).await;
        kw.clock.advance_ms(2);
        insert_keys(&kw, &api, 1, SEARCH_ROWS_MAX + 1).await;
        let found = async |owner: &mut Browser<'_>, query: &[(&str, &str)]| {
            let query = form_encode(query);
            owner.get(&workspace_path(&format!("/keys?{query}"))).await.text
        };

        for text in ["äpfel", "LAGERHAUS", "haus Ä", "er_wien", key.id.as_str(), &key.id[..14], "alone_", &key.key[..9]] {
            let page = found(&mut owner, &[("q", text)]).await;
            assert!(page.contains("Lagerhaus ÄPFEL") && listed(&page) == 1, "{text}: {page}");
            assert!(!page.contains("Next page"), "{text}: {page}");
        }
        for query in [
            [("state", "expired"), ("q", "")], [("state", "expired"), ("q", "äpfel")],
            [("api", api.as_str()), ("q", "äpfel")],
        ] {
            let page = found(&mut owner, &query).await;
            assert!(page.contains("Lagerhaus ÄPFEL") && listed(&page) == 1, "{query:?}: {page}");
        }
        let page = found(&mut owner, &[("state", "disabled")]).await;
        assert!(page.contains(&off.id) && listed(&page) == 1, "{page}");
        for query in [[("state", "active"), ("q", "äpfel")], [("state", ""), ("q", "no such text")]] {
            let page = found(&mut owner, &query).await;
            assert!(page.contains("No results"), "{query:?}: {page}");
        }
    }

    async fn a_text_that_is_too_short_for_the_index_is_compared_with_so_many_keys(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        kw.create_key_in(&api, json!({ "name": "xy" })).await;
        kw.clock.advance_ms(1);
        let next = |page: &str| between(page, "rel=\"next\" href=\"", "\"").replace("&#38;", "&");
        insert_keys(&kw, &api, 1, SEARCH_ROWS_MAX - 1).await;
        let search = workspace_path("/keys?q=XY");
        assert_eq!(listed(&owner.get(&search).await.text), 1);

        insert_keys(&kw, &api, SEARCH_ROWS_MAX, SEARCH_ROWS_MAX).await;
        let first = owner.get(&search).await.text;
        let second = owner.get(&next(&first)).await.text;

        assert!(first.contains("No matches so far") && first.contains("Enter more characters"), "{first}");
        assert_eq!(listed(&second), 1, "{second}");
        let of_api = owner.get(&workspace_path(&format!("/keys?q=xy&api={api}&state=active"))).await.text;
        assert_eq!(listed(&owner.get(&next(&of_api)).await.text), 1);
        assert_eq!(listed(&owner.get(&workspace_path("/keys")).await.text), 25);
    }

    async fn a_text_of_more_keys_than_the_index_finds_is_paged_in_the_order_of_the_list(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let rename = |name: &str, many: i64| {
            let until = kw.clock.now().0 + many;
            format!("UPDATE keys SET name = '{name}', search = '{name}' WHERE created_at <= {until}")
        };
        insert_keys(&kw, &api, 1, INDEXED_ROWS_MAX + 2_000).await;
        for (name, many) in [("fewer", INDEXED_ROWS_MAX), ("another", INDEXED_ROWS_MAX + 1)] {
            kw.execute_sql(rename(name, many)).await;

            // None is among the latest keys, which are compared first.
            let page = owner.get(&workspace_path(&format!("/keys?q={name}"))).await.text;

            assert_eq!(listed(&page), 25, "{page}");
            assert!(page.contains(&format!(">{name}</a>")), "{page}");
            let first = between(&page, "name=\"key\" value=\"", "\"").to_owned();
            assert_eq!(first, format!("key_{many}"));
        }
    }

    async fn what_is_listed_is_shown_as_text(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let named = kw.v2("apis.createApi", json!({ "name": "<script>api" })).await;
        kw.create_key_in(&named.text_of("apiId"), json!({ "name": "<script>key" })).await;

        let page = owner.get(&workspace_path("/keys?q=%3Cscript%3Ekey")).await.text;

        assert!(page.contains("&#60;script&#62;key") && page.contains("&#60;script&#62;api"));
        assert!(!page.contains("<script>key") && !page.contains("<script>api"));
    }

    async fn a_key_tells_when_it_was_last_used(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({})).await;
        assert!(owner.get(&workspace_path("/keys")).await.text.contains(">Never</span>"));

        kw.verify(&key.key).await.assert_code("VALID");
        kw.clock.advance_ms(120_000);
        last_used::flush(&kw.app.last_used).await.unwrap();

        assert!(owner.get(&workspace_path("/keys")).await.text.contains("2 minutes ago"));
    }

    async fn a_pasted_key_is_found_and_goes_nowhere(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({ "name": "pasted" })).await;
        let before = kw.count_audit_entries().await;
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || writer.clone())
            .finish();
        let logging = tracing::subscriber::set_default(subscriber);

        let search = workspace_path("/keys/search");
        let found = owner.post(&search, &[("q", &format!(" {} \n", key.key))]).await;
        let page = owner.get(to(&found)).await;
        let live = owner.post(&format!("{search}/live"), &[("q", &key.key)]).await;
        let unknown = owner.post(&search, &[("q", UNKNOWN_KEY)]).await;
        let live_unknown = owner.post(&format!("{search}/live"), &[("q", UNKNOWN_KEY)]).await;

        // So that it is known that what is logged would be seen.
        tracing::info!("the end of what is logged");
        drop(logging);
        let logged = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
        assert!(logged.contains("the end of what is logged"));
        assert!(!logged.contains(&key.key) && !logged.contains(UNKNOWN_KEY), "{logged}");
        assert_eq!(to(&found), workspace_path(&format!("/keys/{}", key.id)));
        assert!(page.text.contains("pasted") && !page.text.contains(&key.key));
        assert_eq!(live.headers["hx-redirect"].to_str().unwrap(), to(&found));
        assert_eq!((unknown.status.as_u16(), live_unknown.status.as_u16()), (422, 200));
        assert!(!live.headers.contains_key("hx-replace-url"));
        for page in [unknown, live_unknown] {
            assert!(page.text.contains("Key not found in this workspace."));
            assert!(!page.text.contains(UNKNOWN_KEY), "{}", page.text);
        }
        assert_eq!(kw.count_audit_entries().await, before);
    }

    async fn keys_of_an_external_id_that_may_be_a_full_key_are_paged(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let external_id = "550e8400-e29b-41d4-a716-446655440000";
        for _ in 0..26 {
            kw.create_key_in(&api, json!({ "externalId": external_id })).await;
        }
        let prefixed = kw.create_key_in(&api, json!({ "prefix": "prefix_of_16_chr" })).await;
        let search = workspace_path("/keys/search");

        let first = owner.post(&search, &[("q", external_id)]).await;
        assert_eq!(first.status, 200, "{}", first.text);
        let second = owner.get(&next_page_path(&first)).await.text;
        assert_eq!((listed(&first.text), listed(&second)), (25, 1));
        for page in [&first.text, &second] {
            assert!(page.contains(&format!("value=\"{external_id}\"")), "{page}");
        }

        // The beginning of a key is part of a secret.
        let beginning = &prefixed.key[..20];
        let found = owner.post(&search, &[("q", beginning)]).await;
        assert_eq!((found.status.as_u16(), listed(&found.text)), (200, 1), "{}", found.text);
        assert!(!found.text.contains(&format!("value=\"{beginning}\"")), "{}", found.text);
    }

    async fn a_key_of_another_workspace_is_found_in_no_way(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let stranger = kw.create_other_workspace().await;
        let made = kw.v2_as(&stranger, "apis.createApi", json!({ "name": "theirs" })).await;
        let theirs = made.text_of("apiId");
        let made = kw.v2_as(&stranger, "keys.createKey", json!({ "apiId": theirs, "name": "theirs" })).await;
        let (id, key) = (made.text_of("keyId"), made.text_of("key"));

        for path in ["/keys/search", "/search"] {
            assert_eq!(owner.post(&workspace_path(path), &[("q", key.as_str())]).await.status, 422, "{path}");
        }
        assert_eq!(owner.get(&workspace_path(&format!("/keys?api={theirs}"))).await.status, 404);
        for rest in ["", "/edit", "/reroll", "/delete"] {
            assert_eq!(owner.get(&workspace_path(&format!("/keys/{id}{rest}"))).await.status, 404, "{rest}");
        }
        for rest in ["/edit", "/credits", "/enabled", "/reroll", "/delete"] {
            let fields = [("grace", "0"), ("operation", "set"), ("value", "1"), ("was", "{}")];
            let sent = owner.post(&workspace_path(&format!("/keys/{id}{rest}")), &fields).await;
            assert_eq!(sent.status, 404, "{rest}");
        }
        let search = owner.get(&workspace_path(&format!("/keys?q={id}"))).await.text;
        assert!(search.contains("No results"));
        kw.v2_as(&stranger, "keys.getKey", json!({ "keyId": id })).await.data();
    }
}
