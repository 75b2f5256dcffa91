//! What keys, identities and APIs spent in a month, compared with the month before.

mod breakdowns;

use analytics::writer;
use foundation::model::Retention;
use serde_json::json;

use super::{Browser, between, workspace_path};
use crate::support::seed::IssuedKey;
use crate::support::{Keyward, NOON, Stack};
use crate::{on_both_stacks, on_every_event_store};

const DAY_MS: i64 = 86_400_000;
/// The starts of March and April 2026. `NOON` is the noon of March 10.
const MARCH: i64 = NOON.0 - 9 * DAY_MS - DAY_MS / 2;
const APRIL: i64 = MARCH + 31 * DAY_MS;

/// The values on the tiles, and their differences.
fn tiles(text: &str) -> Vec<[String; 2]> {
    let list = between(text, "<dl class=\"figures\">", "</dl>");
    read_tiles(list)
}

/// The same in the section about usage of a page.
fn usage_tiles(text: &str) -> Vec<[String; 2]> {
    let section = between(text, "Usage this month</h2>", "</section>");
    read_tiles(between(section, "<dl class=\"facts big\">", "</dl>"))
}

fn read_tiles(list: &str) -> Vec<[String; 2]> {
    let read = |tile: &str| {
        let change = match tile.contains("<dd class=\"change\">") {
            true => between(tile, "<dd class=\"change\">", "</dd>"),
            false => "",
        };
        [between(tile, "<dd>", "</dd>").to_owned(), change.to_owned()]
    };
    list.split("<dt>").skip(1).map(read).collect()
}

/// Traffic in two months: what is spent by two keys of one identity, in an API each, and by a key of another identity.
struct TwoMonths {
    api: String,
    other_api: String,
    key: IssuedKey,
}

impl TwoMonths {
    /// Makes the traffic. It is April 10 then.
    async fn create(kw: &Keyward) -> Self {
        let (api, other_api) = (kw.create_api().await, kw.create_api().await);
        let metered = |name: &str| json!({ "externalId": name, "credits": { "remaining": 1_000 } });
        let key = kw.create_key_in(&api, metered("ann")).await;
        let second = kw.create_key_in(&other_api, metered("ann")).await;
        // Version 1 takes any name.
        let bob = json!({ "ownerId": "=bob", "remaining": 1_000 });
        let bob = kw.create_key_v1(&api, bob).await;
        let unlimited = kw.create_key_in(&api, json!({})).await;
        let cost = |cost: i64| json!({ "credits": { "cost": cost } });

        for (key, credits) in [(&key, 3), (&key, 2), (&second, 10), (&bob, 7), (&unlimited, 9)] {
            kw.verify_with(&key.key, cost(credits)).await.assert_code("VALID");
        }
        kw.write_events().await;
        kw.clock.advance_ms(20 * DAY_MS);
        kw.verify_with(&key.key, cost(40)).await.assert_code("VALID");
        kw.write_events().await;
        writer::roll_up(&kw.app.analytics).await.unwrap();
        // The rest is not rolled up.
        kw.clock.advance_ms(11 * DAY_MS);
        for (key, credits) in [(&key, 8), (&second, 1), (&bob, 7)] {
            kw.verify_with(&key.key, cost(credits)).await.assert_code("VALID");
        }
        kw.verify_with(&bob.key, cost(5_000)).await.assert_code("USAGE_EXCEEDED");
        kw.write_events().await;
        Self { api, other_api, key }
    }
}

/// Returns the credits spent and the number of verifications, of single events.
async fn count_events(kw: &Keyward, condition: &str, from: i64, until: i64) -> [i64; 2] {
    let query = format!(
        "SELECT sum(spent_credits) AS spent, count() AS count FROM key_verifications_v1
        WHERE time >= {from} AND time < {until}{condition}"
    );
    let reply = kw.v2("analytics.getVerifications", json!({ "query": query })).await;
    let number = |name: &str| reply.data()[0][name].as_i64().unwrap_or(0);
    [number("spent"), number("count")]
}

on_every_event_store! {
    async fn months_are_compared_and_agree_with_the_events(kw) {
        let TwoMonths { api, key, .. } = TwoMonths::create(&kw).await;
        let mut owner = Browser::sign_in_owner(&kw).await;
        let filters = [
            (String::new(), String::new(), ["16", "−6 (−27.2%) from 22"], ["3", "−1 (−25.0%) from 4"]),
            (format!("&only={api}"), String::new(), ["15", "+3 (+25.0%) from 12"], ["2", "−1 (−33.3%) from 3"]),
            (format!("&key={}", key.id), format!(" AND key_id = '{}'", key.id), ["8", "+3 (+60.0%) from 5"], ["1", "No change"]),
            ("&identity=ann".into(), " AND external_id = 'ann'".into(), ["9", "−6 (−40.0%) from 15"], ["2", "No change"]),
            ("&identity=nobody".into(), " AND external_id = 'nobody'".into(), ["0", "No change"], ["0", "No change"]),
        ];

        for (filter, condition, spent, active_keys) in filters {
            let this = owner.get(&workspace_path(&format!("/analytics?range=this-month{filter}"))).await;
            let last = owner.get(&workspace_path(&format!("/analytics?range=last-month{filter}"))).await;

            assert_eq!(this.status, 200, "{}", this.text);
            assert_eq!(tiles(&this.text)[2], spent, "{filter}");
            assert_eq!(tiles(&this.text).last().unwrap(), &active_keys, "{filter}");
            assert!(this.text.contains("2026-04-01 to 2026-04-10, compared with 2026-03-01 to 2026-03-10. \
                No data before 2026-03-10. The last day is not over. Times are in UTC."), "{}", this.text);
            assert!(last.text.contains("2026-03-01 to 2026-03-31. No data before 2026-03-10 to compare with: \
                2026-02-01 to 2026-02-28 is not complete. Times are in UTC."), "{}", last.text);
            assert!(tiles(&last.text).iter().all(|[_, change]| change.is_empty()), "{filter}");
            if !filter.starts_with("&only") {
                for (page, from, until) in [(&this, APRIL, APRIL + 10 * DAY_MS), (&last, MARCH, APRIL)] {
                    let [credits, count] = count_events(&kw, &condition, from, until).await;
                    let shown = [tiles(&page.text)[2][0].clone(), tiles(&page.text)[0][0].clone()];
                    assert_eq!(shown, [credits.to_string(), count.to_string()], "{filter}");
                }
            }
        }
    }

    async fn usage_is_on_the_pages_of_keys_identities_and_apis(kw) {
        let TwoMonths { api, other_api, key } = TwoMonths::create(&kw).await;
        let identity = kw.get_key(&key.id).await["identity"]["id"].as_str().unwrap().to_owned();
        let mut owner = Browser::sign_in_owner(&kw).await;
        // What the keys of a deleted API spent is not forgotten.
        kw.v2("apis.deleteApi", json!({ "apiId": other_api })).await.data();

        for (path, link, count, rejected, spent) in [
            (
                format!("/keys/{}", key.id),
                format!("only={api}&#38;key={}", key.id),
                ["1", "−1 (−50.0%) from 2"], ["0.0%", "No change"], ["8", "+3 (+60.0%) from 5"],
            ),
            (
                format!("/identities/{identity}"),
                "identity=ann".to_owned(),
                ["2", "−1 (−33.3%) from 3"], ["0.0%", "No change"], ["9", "−6 (−40.0%) from 15"],
            ),
            (
                format!("/apis/{api}"),
                format!("only={api}"),
                ["3", "−1 (−25.0%) from 4"], ["33.3%", "+33.3 points from 0.0%"], ["15", "+3 (+25.0%) from 12"],
            ),
        ] {
            let page = owner.get(&workspace_path(&path)).await;

            assert_eq!(page.status, 200, "{}", page.text);
            assert_eq!(usage_tiles(&page.text)[..3], [count, rejected, spent], "{path}");
            assert!(page.text.contains("compared with 2026-03-01 to 2026-03-10"), "{}", page.text);
            let chart = between(&page.text, "<figcaption id=\"usage-chart\">", "</figure>");
            assert!(chart.contains("Verifications per day") && chart.contains(&format!(": {} requests</title>", count[0])), "{chart}");
            assert!(page.text.contains(&format!("data-zoom=\"{}?{link}\"", workspace_path("/analytics"))), "{link}: {}", page.text);
            let link = format!("/analytics?range=this-month&#38;{link}\"");
            assert!(page.text.contains(&link), "{link}: {}", page.text);
        }
        let page = owner.get(&workspace_path(&format!("/identities/{identity}"))).await.text;
        assert!(page.contains("<dt>Credits spent last month</dt><dd>55</dd>"), "{page}");
    }

    async fn a_month_later_nothing_is_spent_and_everything_is_known(kw) {
        TwoMonths::create(&kw).await;
        kw.clock.advance_ms(30 * DAY_MS);
        let mut owner = Browser::sign_in_owner(&kw).await;

        let page = owner.get(&workspace_path("/analytics?range=this-month&identity=ann")).await;

        assert_eq!(tiles(&page.text)[2], ["0", "−9 (−100.0%) from 9"]);
        assert_eq!(tiles(&page.text)[1], ["–", "0.0% before"]);
        assert!(page.text.contains("2026-05-01 to 2026-05-10, compared with 2026-04-01 to 2026-04-10. The last day"));
        let page = owner.get(&workspace_path("/analytics?range=last-month&identity=ann")).await;
        assert_eq!(tiles(&page.text)[2], ["9", "−46 (−83.6%) from 55"]);
    }

    async fn dates_select_whole_days_also_within_months(kw) {
        TwoMonths::create(&kw).await;
        let mut owner = Browser::sign_in_owner(&kw).await;
        let mut spent = async |query: &str| {
            let page = owner.get(&workspace_path(&format!("/analytics?identity=ann&{query}"))).await;
            assert_eq!(page.status, 200, "{query}");
            tiles(&page.text)[2][0].clone()
        };

        // A chart by month: 110 days.
        assert_eq!(spent("range=custom&from=2025-12-01&until=2026-03-20").await, "15");
        assert_eq!(spent("range=custom&from=2025-12-01&until=2026-03-30").await, "55");
        assert_eq!(spent("range=custom&from=2025-12-01&until=2026-03-29").await, "15");
        assert_eq!(spent("range=custom&from=2026-03-11&until=2026-07-31").await, "49");
        assert_eq!(spent("range=custom&from=2026-03-10&until=2026-07-31").await, "64");
        assert_eq!(spent("range=year").await, "64");
    }

    async fn top_keys_and_identities_are_told_with_their_credits(kw) {
        let TwoMonths { key, .. } = TwoMonths::create(&kw).await;
        let mut owner = Browser::sign_in_owner(&kw).await;

        let page = owner.get(&workspace_path("/analytics?range=last-month")).await.text;

        let row = |name: &str| {
            let cells = between(&page, &format!("{name}</a>"), "<td class=\"nowrap\">");
            let (_, cells) = cells.split_once("</th>").expect("cells after the name");
            cells.replace("<td class=\"number\">", "").replace("</td>", " ").trim_end().to_owned()
        };
        let start = kw.get_key(&key.id).await["start"].as_str().unwrap().to_owned();
        assert_eq!(row(&format!(">{start}…")), "3 0 45");
        assert_eq!(row(">ann"), "4 0 55");
        assert_eq!(row(">=bob"), "1 0 7");
    }

    async fn what_the_page_shows_is_downloaded_as_csv(kw) {
        let TwoMonths { key, .. } = TwoMonths::create(&kw).await;
        let mut owner = Browser::sign_in_owner(&kw).await;
        let page = owner.get(&workspace_path("/analytics?range=last-month&identity=ann")).await.text;
        let link = between(&page, "Times are in UTC. <a href=\"", "\"").replace("&#38;", "&");

        let file = owner.get(&link).await;

        assert_eq!(file.status, 200, "{}", file.text);
        assert_eq!(file.headers["content-type"], "text/csv; charset=utf-8");
        assert_eq!(
            file.headers["content-disposition"],
            "attachment; filename=\"verifications-by-time-2026-03-01-to-2026-03-31.csv\""
        );
        let lines: Vec<_> = file.text.lines().collect();
        assert_eq!(
            lines[0],
            "start,total,valid,rate_limited,usage_exceeded,insufficient_permissions,forbidden,disabled,expired,\
            not_found,spent_credits,mean_latency_us,p50_latency_us,p95_latency_us,p99_latency_us"
        );
        assert_eq!(lines.len(), 32, "{}", file.text);
        // The last four are latencies.
        let counts = |line: &str| line.splitn(12, ',').take(11).map(str::to_owned).collect::<Vec<_>>().join(",");
        assert_eq!(counts(lines[10]), "2026-03-10T00:00:00Z,3,3,0,0,0,0,0,0,0,15");
        assert_eq!(counts(lines[30]), "2026-03-30T00:00:00Z,1,1,0,0,0,0,0,0,0,40");
        assert!(lines[10].rsplit(',').take(4).all(|us| us.parse::<i64>().is_ok()), "{}", lines[10]);
        assert_eq!(lines[31], "2026-03-31T00:00:00Z,0,0,0,0,0,0,0,0,0,0,,,,");
        let mut lines = async |query: &str| {
            let file = owner.get(&workspace_path(&format!("/analytics.csv?{query}"))).await;
            assert_eq!(file.status, 200, "{query}");
            file.text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let identities = lines("range=last-month&table=identities").await;
        assert_eq!(identities[0], "external_id,identity_id,total,rejected,spent_credits");
        assert!(identities[1].starts_with("ann,id_") && identities[1].ends_with(",4,0,55"), "{identities:?}");
        assert!(identities[2].starts_with("'=bob,id_") && identities[2].ends_with(",1,0,7"), "{identities:?}");
        assert_eq!(identities.len(), 3);
        kw.v2("keys.updateKey", json!({ "keyId": key.id, "name": "=build, deploy" })).await.data();
        let keys = lines("range=last-month&table=keys").await;
        assert_eq!(keys[0], "key_id,key_name,total,rejected,spent_credits");
        assert_eq!(keys[1], format!("{},\"'=build, deploy\",3,0,45", key.id));
        assert!(keys[2].contains(",,"), "a key without a name: {keys:?}");
        assert_eq!(keys.len(), 5);
        let one = lines("range=this-month&outcome=USAGE_EXCEEDED").await;
        assert!(one[0].starts_with("start,total,usage_exceeded,spent_credits"), "{one:?}");
        assert!(one[10].starts_with("2026-04-10T00:00:00Z,4,1,16"), "{one:?}");
    }

    async fn limit_checks_are_compared_and_downloaded_too(kw) {
        let check = json!({ "namespace": "email", "identifier": "ann", "limit": 1, "duration": 60_000 });
        kw.v2("ratelimit.limit", check.clone()).await.data();
        kw.write_events().await;
        kw.clock.advance_ms(31 * DAY_MS);
        for _ in 0..2 {
            kw.v2("ratelimit.limit", check.clone()).await.data();
        }
        kw.write_events().await;
        let mut owner = Browser::sign_in_owner(&kw).await;

        let page = owner.get(&workspace_path("/analytics?of=limits&range=this-month")).await;
        let file = owner.get(&workspace_path("/analytics.csv?of=limits&range=this-month")).await;

        let expected = [["2", "+1 (+100.0%) from 1"], ["50.0%", "+50.0 points from 0.0%"]];
        assert_eq!(tiles(&page.text)[..2], expected);
        for row in ["Rejected</a></th><td class=\"number\">1</td><td class=\"number\">50.0%", ">email</a></th><td class=\"number\">2<"] {
            assert!(page.text.contains(row), "{row}: {}", page.text);
        }
        assert!(file.text.starts_with("start,total,allowed,rejected,mean_latency_us,p50_latency_us,p95_latency_us,p99_latency_us\n"), "{}", file.text);
        assert!(file.text.contains("\n2026-04-10T00:00:00Z,2,1,1,"), "{}", file.text);
    }
}

on_both_stacks! {
    async fn a_download_of_something_else_is_refused(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;

        for (query, fault) in [
            ("table=tag", "able must be time, outcomes, apis, keys, identities or tags"),
            ("table=regions", "able must be time, outcomes, apis, keys, identities or tags"),
            ("table=regions&identity=ann", "able must be time, outcomes, keys, identities or tags if a key"),
            ("of=limits&table=tags", "able must be time, outcomes, namespaces, identifiers or rejected-identifiers"),
            ("of=limits&table=keys", "able must be time, outcomes, namespaces, identifiers or rejected-identifiers"),
            ("of=limits&table=apis", "able must be time, outcomes, namespaces, identifiers or rejected-identifiers"),
            ("table=namespaces", "able must be time, outcomes, apis, keys, identities or tags"),
            ("table=identifiers", "able must be time, outcomes, apis, keys, identities or tags"),
            ("table=apis&tag=a", "able must be time, outcomes, keys, identities or tags if a key"),
            ("range=custom", "Custom needs a start date or an end date"),
            ("from=2026-03-02&until=2026-03-01", "Start date must not be after end date"),
        ] {
            let reply = owner.get(&workspace_path(&format!("/analytics.csv?{query}"))).await;

            assert_eq!(reply.status, 400, "{query}");
            assert!(reply.text.contains(fault), "{query}: {}", reply.text);
        }
        let mut stranger = Browser::new(&kw);
        assert_eq!(stranger.get(&workspace_path("/analytics.csv")).await.status, 303);
    }

    async fn the_select_decides_whether_dates_are_used(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let unused = "The dates apply to the time range Custom, so they were not used.";
        let selected = |value: &str| format!("<option value=\"{value}\" selected>");

        for (query, value, is_unused) in [
            ("range=this-month&from=2026-01-01", "this-month", true),
            ("range=custom&from=2026-01-01", "custom", false),
            ("until=2026-01-01", "custom", false),
            ("range=custom&from=never", "custom", false),
            ("range=last-month", "last-month", false),
        ] {
            let page = owner.get(&workspace_path(&format!("/analytics?{query}"))).await.text;

            assert!(page.contains(&selected(value)), "{query}: {page}");
            assert_eq!(page.contains(unused), is_unused, "{query}");
        }
        assert!(owner.get(&workspace_path("/analytics")).await.text.contains("No data yet."));
    }

    async fn a_sum_that_is_too_large_saturates(kw) {
        let TwoMonths { key, .. } = TwoMonths::create(&kw).await;
        writer::roll_up(&kw.app.analytics).await.unwrap();
        kw.change_events("UPDATE verification_totals SET spent_credits = 9223372036854775806").await;
        kw.change_events("UPDATE verifications_per_day SET spent_credits = 9223372036854775806").await;
        let mut owner = Browser::sign_in_owner(&kw).await;

        for query in ["", "&identity=ann", &format!("&key={}", key.id)] {
            let page = owner.get(&workspace_path(&format!("/analytics?range=last-month{query}"))).await;

            assert_eq!(page.status, 200, "{query}: {}", page.text);
            assert_eq!(tiles(&page.text)[2][0], "9,223,372,036,854,775,807", "{query}");
        }
    }

    async fn a_page_without_events_still_tells_the_rest(kw) {
        let TwoMonths { api, key, .. } = TwoMonths::create(&kw).await;
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.change_events("DROP TABLE verification_totals").await;

        for path in [format!("/keys/{}", key.id), format!("/apis/{api}")] {
            let page = owner.get(&workspace_path(&path)).await;

            assert_eq!(page.status, 200, "{path}");
            assert!(page.text.contains("Failed to load usage."), "{path}: {}", page.text);
        }
    }
}

/// On April 10, a month before that is retained from its first day on is compared, and one that is not is missing.
async fn assert_deleted_days_are_not_compared(stack: Stack) {
    for (day_days, text) in [
        (41, "compared with 2026-03-01 to 2026-03-10. No data before 2026-03-10."),
        (
            40,
            "No data before 2026-03-10 to compare with: 2026-03-01 to 2026-03-10 is not complete.",
        ),
        (
            20,
            "No data before 2026-03-30 to compare with: 2026-03-01 to 2026-03-10 is not complete.",
        ),
    ] {
        let kw = Keyward::start_with(stack, |settings| {
            settings.retention.verifications =
                Retention { raw_days: 1, minute_days: 1, hour_days: 1, day_days, month_days: 99 };
        })
        .await;
        TwoMonths::create(&kw).await;
        writer::roll_up(&kw.app.analytics).await.unwrap();
        writer::maintain_partitions(&kw.app.analytics).await.unwrap();
        let mut owner = Browser::sign_in_owner(&kw).await;

        let page = owner.get(&workspace_path("/analytics?range=this-month")).await.text;

        assert!(page.contains(text), "{day_days}: {page}");
        let is_compared = text.starts_with("compared");
        assert_eq!(tiles(&page).iter().any(|[_, change]| !change.is_empty()), is_compared);
    }
}

#[tokio::test]
async fn deleted_days_are_not_compared_embedded() {
    assert_deleted_days_are_not_compared(Stack::Embedded).await;
}

#[tokio::test]
async fn deleted_days_are_not_compared_replica() {
    assert_deleted_days_are_not_compared(Stack::Replica).await;
}
