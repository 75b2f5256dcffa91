//! Charts of what came of requests, and who asked most.

mod identifiers;
mod many_groups;
mod rankings;
mod regions;

use analytics::{clickhouse_delivery, writer};
use foundation::config::RegionSettings;
use serde_json::json;

use super::{
    Browser, EMAIL, ESCAPED_NAME, HOSTILE_NAME, PASSWORD, between, redirect_path, workspace_path,
};
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, NOON, Stack, redis_url};
use crate::{on_both_stacks, on_every_event_store};

const DAY_MS: i64 = 86_400_000;

/// The figures above the charts, in their order.
fn figures(text: &str) -> Vec<String> {
    let list = between(text, "<dl class=\"figures\">", "</dl>");
    list.split("<dd>").skip(1).map(|rest| rest.split("</dd>").next().unwrap().to_owned()).collect()
}

/// What the legend of the chart of requests says.
fn legend(text: &str) -> Vec<String> {
    let list = between(text, "<ul class=\"legend\">", "</ul>");
    let words = |item: &str| {
        let texts = item.split('<').skip(1).filter_map(|tag| tag.split_once('>'));
        texts.map(|(_, text)| text.trim()).collect::<Vec<_>>().join(" ").trim().to_owned()
    };
    list.split("<li>").skip(1).map(words).collect()
}

/// Three verifications of one key, one of another, each in an API of its own.
async fn some_traffic(kw: &Keyward) -> (String, [IssuedKey; 2]) {
    let api = kw.create_api().await;
    let ann =
        kw.create_key_in(&api, json!({ "externalId": "ann", "credits": { "remaining": 2 } })).await;
    // Version 1 takes any name.
    let theirs = kw.create_api().await;
    let other = kw.create_key_v1(&theirs, json!({ "ownerId": "<script>bob</script>" })).await;
    for code in ["VALID", "VALID", "USAGE_EXCEEDED"] {
        kw.verify(&ann.key).await.assert_code(code);
    }
    kw.v2("keys.verifyKey", json!({ "key": other.key, "tags": ["path=/a", "<i>"] })).await.data();
    kw.write_events().await;
    (api, [ann, other])
}

on_every_event_store! {
    async fn tags_are_counted_one_by_one(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let plain = owner.get(&workspace_path("/analytics")).await.text;
        assert!(!plain.contains("Top tags"), "{plain}");
        let key = kw.create_key(json!({ "credits": { "remaining": 3 } })).await;
        let verifications = [
            (json!(["path=/a", "<i>"]), 2, "VALID"), (json!(["path=/a"]), 0, "VALID"), (json!(["<i>"]), 2, "USAGE_EXCEEDED"), (json!([]), 0, "VALID"),
        ];
        for (tags, cost, code) in verifications {
            let fields = json!({ "key": key.key, "tags": tags, "credits": { "cost": cost } });
            assert_eq!(kw.v2("keys.verifyKey", fields).await.data()["code"], code);
        }
        kw.write_events().await;
        let mut rows = async |query: &str| {
            let page = owner.get(&workspace_path(&format!("/analytics?{query}"))).await;
            assert_eq!(page.status, 200, "{query}: {}", page.text);
            let list = page.text.split("<h2>Top tags</h2>").nth(1).unwrap_or_default();
            let rows = list.split("</section>").next().unwrap_or_default().split("<tr><th scope=\"row\">").skip(1);
            rows.map(|row| {
                let cells = row.split('>').filter_map(|part| part.split('<').next()).filter(|text| !text.trim().is_empty());
                cells.collect::<Vec<_>>().join(" ")
            }).collect::<Vec<_>>()
        };

        assert_eq!(rows("").await, ["&#60;i&#62; 2 1 2", "path=/a 2 0 2"]);
        assert_eq!(rows("outcome=USAGE_EXCEEDED").await, ["&#60;i&#62; 1 2 1 2"]);
        assert_eq!(rows("tag=path%3D%2Fa").await, ["path=/a 2 0 2", "&#60;i&#62; 1 0 2"]);
        assert_eq!(rows("only=api_none").await, Vec::<String>::new());
        let mut csv = async |query: &str| owner.get(&workspace_path(&format!("/analytics.csv?table=tags{query}"))).await;
        assert_eq!(csv("").await.text, "tag,total,rejected,spent_credits\n<i>,2,1,2\npath=/a,2,0,2\n");
        assert_eq!(csv("&of=limits").await.status, 400);
    }

    async fn a_chart_shows_what_came_of_verifications(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        some_traffic(&kw).await;

        let page = owner.get(&workspace_path("/analytics")).await;

        assert_eq!(page.status, 200, "{}", page.text);
        assert_eq!(figures(&page.text)[..2], ["4", "25.0%"]);
        assert_eq!(legend(&page.text), ["Valid 3", "Credits exhausted 1"]);
        assert!(page.text.contains("<title>12:00: 4 requests</title>"), "{}", page.text);
        // A table says the same.
        let table = between(&page.text, "<tr><th scope=\"row\">12:00</th>", "</tr>");
        assert_eq!(table, "<td class=\"number\">3</td><td class=\"number\">1</td>");
        let overview = owner.get(&workspace_path("")).await;
        assert!(overview.text.contains("<title>12:00: 4 requests</title>"));
        assert!(overview.text.contains(" to compare with"), "{}", overview.text);
    }

    async fn only_what_is_asked_for_is_shown(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let (api, [ann, other]) = some_traffic(&kw).await;
        let empty = kw.create_api().await;

        let mut shown = async |query: &str| {
            let page = owner.get(&workspace_path(&format!("/analytics?{query}"))).await;
            assert_eq!(page.status, 200, "{query}: {}", page.text);
            figures(&page.text)[0].clone()
        };
        assert_eq!(shown(&format!("key={}", ann.id)).await, "3");
        assert_eq!(shown(&format!("key={}&identity=ann", other.id)).await, "0");
        assert_eq!(shown("identity=ann").await, "3");
        assert_eq!(shown("identity=nobody").await, "0");
        assert_eq!(shown("tag=%3Ci%3E").await, "1");
        assert_eq!(shown("tag=i").await, "0");
        assert_eq!(shown(&format!("only={empty}")).await, "0");
        assert_eq!(shown(&format!("only={api}")).await, "3");
        let mut active_keys = async |query: &str| {
            let page = owner.get(&workspace_path(&format!("/analytics?{query}"))).await;
            between(&page.text, "<dt>Active keys</dt><dd>", "</dd>").to_owned()
        };
        assert_eq!(active_keys("").await, "2");
        assert_eq!(active_keys(&format!("only={api}")).await, "1");
        assert_eq!(active_keys("identity=nobody").await, "0");
        for (query, is_known) in [(format!("key={}", ann.id), true), ("tag=%3Ci%3E".into(), true), ("tag=i".into(), false)] {
            let page = owner.get(&workspace_path(&format!("/analytics?{query}"))).await.text;
            for percentile in ["p50", "p95", "p99"] {
                let latency = between(&page, &format!("<dt>{percentile} latency</dt><dd>"), "</dd>");
                assert_eq!(latency != "–", is_known, "{query}: {latency}");
            }
            assert!(page.contains("aria-label=\"Latency\""), "{query}");
        }
        let page = owner.get(&workspace_path("/analytics?outcome=USAGE_EXCEEDED")).await;
        assert_eq!(legend(&page.text), ["Credits exhausted 1"]);
    }

    async fn time_is_looked_at_by_range_or_by_days(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        some_traffic(&kw).await;

        let shown = async |visitor: &mut Browser<'_>, query: &str| {
            let page = visitor.get(&workspace_path(&format!("/analytics?{query}"))).await;
            assert_eq!(page.status, 200, "{query}");
            figures(&page.text)[0].clone()
        };
        assert_eq!(shown(&mut owner, "range=hour").await, "4");
        kw.clock.advance_ms(3_600_000);
        assert_eq!(shown(&mut owner, "range=hour").await, "0");
        assert_eq!(shown(&mut owner, "range=day").await, "4");
        kw.clock.advance_ms(2 * DAY_MS);
        owner.sign_in(EMAIL, PASSWORD).await;
        let mut shown = async |query: &str| shown(&mut owner, query).await;
        assert_eq!(shown("range=day").await, "0");
        for range in ["week", "month", "quarter", "year"] {
            assert_eq!(shown(&format!("range={range}")).await, "4", "{range}");
        }
        let day = |days: i64| {
            let at = jiff::Timestamp::from_millisecond(NOON.0 + days * DAY_MS).unwrap();
            at.strftime("%Y-%m-%d").to_string()
        };
        assert_eq!(shown(&format!("from={}&until={}", day(0), day(0))).await, "4");
        assert_eq!(shown(&format!("from={}", day(1))).await, "0");
        assert_eq!(shown(&format!("until={}", day(-1))).await, "0");
        let wrong = owner.get(&workspace_path("/analytics?from=%3Cb%3E&until=x")).await;
        assert_eq!(wrong.status, 200);
        assert!(wrong.text.contains("must be a date such as 2026-03-31"));
        assert!(!wrong.text.contains("<b>"));
    }

    async fn who_asked_most_is_told_as_text(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let (_, [ann, other]) = some_traffic(&kw).await;

        let page = owner.get(&workspace_path("/analytics")).await;

        let at_ann = page.text.find(&format!("/keys/{}\"", ann.id)).expect("the key");
        let at_other = page.text.find(&format!("/keys/{}\"", other.id)).expect("the other key");
        assert!(at_ann < at_other, "three are more than one");
        assert!(page.text.contains("&#60;script&#62;bob") && !page.text.contains("<script>bob"));
    }

    async fn an_outcome_lists_the_keys_that_have_most_of_it(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let (_, [ann, other]) = some_traffic(&kw).await;

        for (outcome, label, of_ann, of_other) in [
            ("USAGE_EXCEEDED", "Credits exhausted", Some("1"), None),
            ("VALID", "Valid", Some("2"), Some("1")),
            ("EXPIRED", "Expired", None, None),
        ] {
            let page = owner.get(&workspace_path(&format!("/analytics?outcome={outcome}"))).await.text;
            let file = owner.get(&workspace_path(&format!("/analytics.csv?table=keys&outcome={outcome}"))).await.text;
            let list = between(&page, "<h2>Top keys</h2>", "</section>");
            let header = format!("Key</th><th scope=\"col\" class=\"number\">{label}</th>");
            assert_eq!(list.contains(&header), of_ann.is_some(), "{list}");
            for (key, number) in [(&ann, of_ann), (&other, of_other)] {
                let row = list.split("<tr>").find(|row| row.contains(key.id.as_str()));
                let column = number.map(|number| format!("</th><td class=\"number\">{number}</td>"));
                assert_eq!(row.is_some(), column.is_some(), "{outcome}: {list}");
                assert!(column.is_none_or(|column| row.unwrap().contains(&column)), "{outcome}: {list}");
                assert_eq!(file.contains(key.id.as_str()), number.is_some(), "{outcome}: {file}");
            }
        }
        // A key without credits is not shown as active.
        let keys = owner.get(&workspace_path("/identity?externalId=ann")).await;
        let identity = owner.get(&redirect_path(&keys)).await.text;
        assert!(identity.contains("<span class=\"badge bad\">Credits exhausted</span>"), "{identity}");
    }

    async fn a_top_key_is_called_by_its_name_until_it_is_deleted(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let named = kw.create_key_in(&api, json!({ "name": HOSTILE_NAME, "externalId": "ann.b" })).await;
        let unnamed = kw.create_key_in(&api, json!({})).await;
        for key in [&named, &named, &unnamed] {
            kw.verify(&key.key).await.assert_code("VALID");
        }
        kw.write_events().await;

        let page = owner.get(&workspace_path("/analytics?range=hour&tag=")).await.text;

        let row = |page: &str, query: &str, id: &str| {
            let found = page.split("<tr>").find(|row| row.contains(query) && row.contains(id));
            found.unwrap_or_else(|| panic!("no row with {query} and {id}: {page}")).to_owned()
        };
        let of_key = |id: &str| format!("/analytics?range=hour&#38;key={id}\"");
        let first = row(&page, &of_key(&named.id), &format!("/keys/{}\"", named.id));
        assert!(first.contains(&format!("{ESCAPED_NAME}</a><span class=\"from-768 nowrap\"><br><code data-id>{}", named.id)), "{first}");
        let start = kw.get_key(&unnamed.id).await["start"].as_str().unwrap().to_owned();
        let second = row(&page, &of_key(&unnamed.id), &format!("/keys/{}\"", unnamed.id));
        assert!(second.contains(&format!("{start}…</a><span")), "{second}");
        let identity = row(&page, "/analytics?range=hour&#38;identity=ann.b\"", "/identities/id_");
        assert!(identity.contains("ann.b</a></th>"), "{identity}");
        let filtered = owner.get(&workspace_path(&format!("/analytics?range=hour&key={}", unnamed.id))).await;
        assert_eq!(figures(&filtered.text)[0], "1");

        kw.v2("keys.deleteKey", json!({ "keyId": named.id })).await.data();
        let page = owner.get(&workspace_path("/analytics?range=hour")).await.text;
        let deleted = row(&page, &of_key(&named.id), &format!("/keys/{}\"", named.id));
        assert!(deleted.contains(&format!(">{}</a></th>", named.id)), "{deleted}");
    }

    async fn limit_checks_have_charts_of_their_own(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        for identifier in ["ann", "ann", "bob"] {
            let check = json!({ "namespace": "email", "identifier": identifier, "limit": 1, "duration": 60_000 });
            kw.v2("ratelimit.limit", check).await.data();
        }
        kw.write_events().await;

        let page = owner.get(&workspace_path("/analytics?of=limits&key=ignored")).await;

        assert_eq!(figures(&page.text)[..2], ["3", "33.3%"]);
        assert_eq!(legend(&page.text), ["Allowed 2", "Rejected 1"]);
        let other = owner.get(&workspace_path("/analytics?of=limits&only=rlns_none")).await;
        assert_eq!(figures(&other.text)[0], "0");
    }
}

on_both_stacks! {
    async fn the_traffic_of_others_is_not_shown(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let other = kw.create_other_workspace().await;
        let api = kw.v2_as(&other, "apis.createApi", json!({ "name": "theirs" })).await;
        let api = api.text_of("apiId");
        let fields = json!({ "apiId": api, "externalId": "ann" });
        let made = kw.v2_as(&other, "keys.createKey", fields).await;
        let shown = json!({ "key": made.text_of("key") });
        kw.v2_as(&other, "keys.verifyKey", shown).await.data();
        kw.write_events().await;
        assert_eq!(kw.query_events("SELECT request_id FROM verifications").await.len(), 1);

        let (of_key, of_api) = (format!("?key={}", made.text_of("keyId")), format!("?only={api}"));
        for query in ["", "?identity=ann", "?range=year", &of_key, &of_api] {
            let page = owner.get(&workspace_path(&format!("/analytics{query}"))).await;
            assert_eq!(figures(&page.text)[0], "0", "{query}");
        }
    }

    async fn an_overview_without_events_still_tells_what_is_there(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.create_api().await;
        kw.write_events().await;
        kw.change_events("DROP TABLE verification_totals").await;

        let page = owner.get(&workspace_path("")).await;

        assert_eq!(page.status, 200);
        assert!(page.text.contains("Failed to load traffic") && page.text.contains("Rate limiter"));
    }
}

#[tokio::test]
async fn the_overview_tells_which_regions_are_away() {
    let kw = Keyward::start_with(Stack::Replica, |settings| {
        settings.regions = Some(RegionSettings {
            names: ["eu", "us", "ap"].map(str::to_owned).to_vec(),
            own: 0,
            others: vec![(1, redis_url()), (2, "redis://127.0.0.1:1".to_owned())],
        });
    })
    .await;
    let mut owner = Browser::sign_in_owner(&kw).await;

    let page = owner.get(&workspace_path("")).await.text;

    assert!(
        page.contains("OK</span> <span>Region us</span> <span class=\"muted\">operational"),
        "{page}"
    );
    assert!(page.contains("Unreachable</span> <span>Region ap</span>"), "{page}");
    assert!(!page.contains("Region eu"), "{page}");
}

#[tokio::test]
async fn the_overview_tells_that_events_are_late_from_the_second_minute_on() {
    let url = "http://127.0.0.1:1/nowhere".parse().unwrap();
    let kw = Keyward::start_with(Stack::Embedded, |settings| settings.clickhouse_url = Some(url));
    let kw = kw.await;
    kw.app.analytics.event_store().migrate().await.unwrap();
    let mut owner = Browser::sign_in_owner(&kw).await;
    let key = kw.create_key(json!({})).await;
    kw.verify(&key.key).await.assert_code("VALID");
    writer::write_buffered(&kw.app.analytics).await.unwrap();
    for (ms, is_late) in [(119_999, false), (1, true)] {
        kw.clock.advance_ms(ms);
        assert!(clickhouse_delivery::deliver(&kw.app.analytics).await.is_err(), "nobody is there");

        let page = owner.get(&workspace_path("")).await.text;

        assert!(page.contains("Failed to load traffic"), "{page}");
        let told = "1 not yet delivered to ClickHouse, the oldest for 2 minutes";
        assert_eq!(page.contains(told), is_late, "{page}");
    }
}
