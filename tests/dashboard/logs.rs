//! The log of verifications: what it shows, how it is filtered, its pages, and how it refreshes itself.

mod limit_checks;
mod regions;

use std::collections::BTreeSet;

use analytics::writer;
use foundation::clock::{DAY_MS, MINUTE_MS};
use serde_json::json;

use super::charts::date_fields;
use super::{
    Browser, EMAIL, ESCAPED_NAME, HOSTILE_NAME, PASSWORD, between, count_table_rows,
    next_page_path, workspace_path,
};
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, Stack};
use crate::{on_both_stacks, on_every_event_store};

/// The rows of the page, as HTML.
fn rows(page: &str) -> Vec<String> {
    page.split("<tr><th scope=\"row\">")
        .skip(1)
        .map(|row| row.split("</tr>").next().unwrap().to_owned())
        .collect()
}

/// The request ids of the rows.
fn requests(page: &str) -> Vec<String> {
    rows(page).iter().map(|row| between(row, "<a id=\"", "\"").to_owned()).collect()
}

/// A key of an identity in an API, and a key with a hostile name in another one.
struct Traffic {
    apis: [String; 2],
    ann: IssuedKey,
    other: IssuedKey,
}

impl Traffic {
    /// Three verifications of the first key, and a minute later one of the other.
    async fn create(kw: &Keyward) -> Self {
        let apis = [kw.create_api().await, kw.create_api().await];
        let fields = json!({ "externalId": "ann", "credits": { "remaining": 2 } });
        let ann = kw.create_key_in(&apis[0], fields).await;
        let other = kw.create_key_in(&apis[1], json!({ "name": HOSTILE_NAME })).await;
        for code in ["VALID", "VALID", "USAGE_EXCEEDED"] {
            kw.verify(&ann.key).await.assert_code(code);
            kw.clock.advance_ms(10);
        }
        kw.clock.advance_ms(MINUTE_MS);
        kw.verify(&other.key).await.assert_code("VALID");
        kw.write_events().await;
        Self { apis, ann, other }
    }
}

on_every_event_store! {
    async fn log_shows_verifications_newest_first(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let Traffic { apis, ann, other } = Traffic::create(&kw).await;

        let page = owner.get(&workspace_path("/logs")).await;

        assert_eq!(page.status, 200, "{}", page.text);
        let shown = rows(&page.text);
        assert_eq!(shown.len(), 4, "{}", page.text);
        for text in [
            "12:01:00.030</time>", ">Valid</span>", ESCAPED_NAME, "an API</a>",
            &format!("/keys/{}\"", other.id), &format!("/apis/{}\"", apis[1]),
        ] {
            assert!(shown[0].contains(text), "{text}: {}", shown[0]);
        }
        let start = kw.get_key(&ann.id).await["start"].as_str().unwrap().to_owned();
        for text in ["12:00:00.020</time>", ">Credits exhausted</span>", &format!("{start}…</a>"), "identity?externalId=ann\">ann</a>"] {
            assert!(shown[1].contains(text), "{text}: {}", shown[1]);
        }
        assert!(shown[3].contains("12:00:00.000</time>"), "{}", shown[3]);
        let request = &requests(&page.text)[1];
        let explained = owner.get(&workspace_path(&format!("/keys/why?request={request}"))).await;
        assert!(explained.text.contains("USAGE_EXCEEDED") || explained.text.contains("Credits exhausted"));

        kw.v2("keys.deleteKey", json!({ "keyId": other.id })).await.data();
        let page = owner.get(&workspace_path("/logs")).await.text;
        assert!(rows(&page)[0].contains(&format!(">{}</a></td>", other.id)), "{page}");
    }

    async fn log_is_filtered(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let Traffic { apis, ann, other } = Traffic::create(&kw).await;
        for is_rolled_up in [false, true] {
            if is_rolled_up {
                writer::roll_up(&kw.app.analytics).await.unwrap();
            }
            let mut count = async |query: &str| {
                let page = owner.get(&workspace_path(&format!("/logs?{query}"))).await;
                assert_eq!(page.status, 200, "{query}: {}", page.text);
                count_table_rows(&page.text)
            };

            assert_eq!(count("outcome=VALID").await, 3);
            assert_eq!(count("outcome=USAGE_EXCEEDED").await, 1);
            assert_eq!(count("outcome=EXPIRED").await, 0);
            assert_eq!(count(&format!("only={}", apis[0])).await, 3);
            assert_eq!(count(&format!("only={}", apis[1])).await, 1);
            assert_eq!(count(&format!("only={}&outcome=USAGE_EXCEEDED", apis[1])).await, 0);
            assert_eq!(count(&format!("key=+{}+", ann.id)).await, 3);
            assert_eq!(count(&format!("key={}&outcome=VALID", ann.id)).await, 2);
            assert_eq!(count(&format!("key={}&only={}", ann.id, apis[1])).await, 0);
            assert_eq!(count(&format!("key={}", other.id)).await, 1);
            assert_eq!(count("key=key_none").await, 0);
            assert_eq!(count("identity=+ann+").await, 3);
            assert_eq!(count("identity=ann&outcome=VALID").await, 2);
            assert_eq!(count(&format!("identity=ann&key={}&only={}", ann.id, apis[0])).await, 3);
            assert_eq!(count(&format!("identity=ann&key={}", other.id)).await, 0);
            assert_eq!(count(&format!("identity=ann&only={}", apis[1])).await, 0);
            assert_eq!(count("identity=Ann").await, 0);
            assert_eq!(count("only=%27%20OR%20%271").await, 0);
            assert_eq!(count("from=2026-03-10&until=2026-03-10").await, 4);
            assert_eq!(count("until=2026-03-09").await, 0);
        }
        kw.clock.advance_ms(2 * DAY_MS);
        owner.sign_in(EMAIL, PASSWORD).await;
        let empty = owner.get(&workspace_path("/logs")).await.text;
        assert!(empty.contains("No verifications") && count_table_rows(&empty) == 0, "{empty}");
        assert_eq!(count_table_rows(&owner.get(&workspace_path("/logs?range=week")).await.text), 4);
        let wrong = owner.get(&workspace_path("/logs?from=%3Cb%3E&until=x")).await.text;
        assert!(wrong.contains("must be a date such as 2026-03-31") && !wrong.contains("<b>"), "{wrong}");
    }

    async fn log_has_pages_also_within_a_millisecond(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let key = kw.create_key(json!({ "externalId": "ann" })).await;
        for number in 0..102 {
            kw.verify(&key.key).await.assert_code("VALID");
            if number == 70 {
                kw.clock.advance_ms(MINUTE_MS);
            }
        }
        kw.write_events().await;
        for filter in ["outcome=VALID".to_owned(), format!("key={}", key.id), "identity=ann".to_owned()] {
            let mut page = owner.get(&workspace_path(&format!("/logs?{filter}"))).await;
            let mut found = requests(&page.text);
            assert_eq!(found.len(), 50, "{filter}");
            while page.text.contains("rel=\"next\"") {
                page = owner.get(&next_page_path(&page)).await;
                found.extend(requests(&page.text));
                assert!(found.len() <= 102, "{filter}");
            }

            assert_eq!(requests(&page.text).len(), 2, "{filter}");
            assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 102, "{filter}");
            // 31 are of the later minute. Those of one millisecond are in the order of their ids.
            let (late, early) = found.split_at(31);
            assert!(late.is_sorted() && early.is_sorted(), "{filter}: {found:?}");
        }
    }
}

on_both_stacks! {
    async fn log_of_a_period_with_times_is_applied_again(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;

        for of in ["", "of=limits&"] {
            for period in ["from=2026-03-10T12:00&until=2026-03-10T12:10", "from=2026-03-10T12:00&until=2026-03-10"] {
                let mut fields = [("datetime-local", "2026-03-10T12:00"), ("datetime-local", "2026-03-10T12:10")];
                if !period.ends_with("12:10") {
                    fields[1].1 = "2026-03-11T00:00";
                }
                let page = owner.get(&workspace_path(&format!("/logs?{of}{period}"))).await;
                assert_eq!(date_fields(&page), fields, "{of}{period}");
                let [from, until] = date_fields(&page).map(|(_, value)| value.to_owned());
                let again = owner.get(&workspace_path(&format!("/logs?{of}range=custom&from={from}&until={until}"))).await;
                assert_eq!(date_fields(&again), fields, "{of}{period}");
                assert!(!again.text.contains("id=\"fault\""), "{of}{period}: {}", again.text);
            }
        }
        let days = owner.get(&workspace_path("/logs?from=2026-03-10&until=2026-03-10")).await;
        assert_eq!(date_fields(&days), [("date", "2026-03-10"), ("date", "2026-03-10")]);
    }

    async fn select_of_namespaces_says_so_when_more_exist(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        for number in 0..100 {
            kw.check_limit(&format!("namespace {number:03}"), "ann", json!({})).await.data();
        }

        for (name, is_told) in [("namespace 000", false), ("one more", true)] {
            kw.check_limit(name, "ann", json!({})).await.data();
            for path in ["/analytics?of=limits", "/logs?of=limits"] {
                let page = owner.get(&workspace_path(path)).await.text;
                assert!(page.contains("<option value=\"rlns_") && !page.contains("APIs by name"), "{path}: {page}");
                assert_eq!(page.contains("These are the first 100 namespaces by name"), is_told, "{path}: {page}");
                assert_eq!(page.contains("aria-describedby=\"only-hint\""), is_told, "{path}: {page}");
            }
        }
    }

    async fn log_of_others_is_not_shown(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let other = kw.create_other_workspace().await;
        let api = kw.v2_as(&other, "apis.createApi", json!({ "name": "theirs" })).await.text_of("apiId");
        let fields = json!({ "apiId": api, "externalId": "ann" });
        let made = kw.v2_as(&other, "keys.createKey", fields).await;
        kw.v2_as(&other, "keys.verifyKey", json!({ "key": made.text_of("key") })).await.data();
        let check = json!({ "namespace": "theirs", "identifier": "ann", "limit": 1, "duration": 60_000 });
        kw.v2_as(&other, "ratelimit.limit", check).await.data();
        kw.write_events().await;

        let (of_key, of_api) = (format!("?key={}", made.text_of("keyId")), format!("?only={api}"));
        for query in ["", "?range=week&outcome=VALID", "?identity=ann", "?of=limits", "?of=limits&identifier=ann", &of_key, &of_api] {
            let page = owner.get(&workspace_path(&format!("/logs{query}"))).await;
            assert_eq!(page.status, 200, "{query}");
            assert_eq!(count_table_rows(&page.text), 0, "{query}");
        }
        let mut stranger = Browser::new(&kw);
        assert_eq!(stranger.get(&workspace_path("/logs")).await.status, 303);
    }

    async fn log_position_of_another_form_is_rejected(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        for position in ["x", "-1", "253402300800000", ".req_1"] {
            let page = owner.get(&workspace_path(&format!("/logs?before={position}"))).await;
            assert_eq!(page.status, 400, "{position}");
            assert!(page.text.contains("efore must be the position of a page"), "{}", page.text);
        }
        for position in ["", "0", "253402300799999", "1.%27"] {
            let page = owner.get(&workspace_path(&format!("/logs?before={position}"))).await;
            assert_eq!(page.status, 200, "{position}");
        }
    }

    async fn log_refreshes_itself_for_a_while_on_its_first_page(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut next = async |query: &str| {
            let page = owner.get(&workspace_path(&format!("/logs{query}"))).await.text;
            let has_next = page.contains("hx-trigger=\"every 2s\"");
            has_next.then(|| between(&page, "hx-get=\"", "\" hx-trigger=\"every").replace("&#38;", "&"))
        };
        let to = |rest: &str| Some(workspace_path(&format!("/logs?{rest}")));

        assert_eq!(next("").await, None);
        assert_eq!(next("?outcome=VALID&live=2").await, to("outcome=VALID&live=1"));
        assert_eq!(next("?live=1").await, to("live=0"));
        assert_eq!(next("?live=0").await, None);
        assert_eq!(next("?live=4000000000").await, to("live=299"));
        assert_eq!(next("?live=-1").await, None);
        assert_eq!(next("?live=5&before=1").await, None);
    }

    async fn log_of_many_events_is_compared_in_parts(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let Traffic { ann, .. } = Traffic::create(&kw).await;
        kw.change_events("UPDATE verification_totals SET count = 39999 WHERE unit = 'minute'").await;
        let whole = owner.get(&workspace_path("/logs?outcome=VALID")).await.text;
        kw.change_events("UPDATE verification_totals SET count = 60000 WHERE unit = 'minute'").await;

        // All rows of a minute are in its first slice, which is read last.
        for (filter, expected) in [("outcome=VALID".to_owned(), 3), (format!("key={}", ann.id), 3), ("identity=ann".to_owned(), 3)] {
            let mut page = owner.get(&workspace_path(&format!("/logs?{filter}"))).await;
            let mut found = requests(&page.text);
            assert!(page.text.contains("Compared back to 2026-03-10 12:0"), "{filter}: {}", page.text);
            assert!(found.len() < expected, "{filter}");
            for _ in 0..9 {
                if page.text.contains("rel=\"next\"") {
                    page = owner.get(&next_page_path(&page)).await;
                    found.extend(requests(&page.text));
                }
            }
            assert!(!page.text.contains("rel=\"next\"") && !page.text.contains("Compared back"), "{}", page.text);
            assert_eq!(found.len(), expected, "{filter}");
        }
        assert!(count_table_rows(&whole) >= 1, "{whole}");
    }

    async fn log_is_complete_after_the_retention_of_minutes(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        Traffic::create(&kw).await;
        kw.change_events("DELETE FROM verification_totals WHERE unit = 'minute'").await;

        let page = owner.get(&workspace_path("/logs?outcome=VALID")).await.text;

        assert_eq!(count_table_rows(&page), 3, "{page}");
    }
}

#[tokio::test]
async fn log_has_a_column_of_regions_only_if_a_region_has_a_name() {
    for (region, has_column) in [("", false), ("eu", true)] {
        let kw = Keyward::start_with(Stack::Embedded, |settings| settings.region = region.into());
        let kw = kw.await;
        let mut owner = Browser::sign_in_owner(&kw).await;
        Traffic::create(&kw).await;

        let page = owner.get(&workspace_path("/logs")).await.text;

        assert_eq!(page.contains(">Region</th>"), has_column, "{page}");
        assert_eq!(
            rows(&page).iter().all(|row| row.contains("<td class=\"from-1100\">eu</td>")),
            has_column
        );
    }
}
