//! Interactive charts: what the server sends for the script, periods between times, and live refresh.

use serde_json::{Value, json};

use super::{Browser, EMAIL, PASSWORD, between, workspace_path};
use crate::support::{Keyward, NOON, Reply};
use crate::{on_both_stacks, on_every_event_store};

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

/// What the first chart of a page has for the script.
fn chart_data(page: &Reply) -> Value {
    assert_eq!(page.status, 200, "{}", page.text);
    let data = between(&page.text, " data-chart=\"", "\"").replace("&#34;", "\"");
    serde_json::from_str(&data).unwrap_or_else(|e| panic!("{data}: {e}"))
}

fn zoom_path(page: &Reply) -> String {
    between(&page.text, " data-zoom=\"", "\"").replace("&#38;", "&")
}

/// The types and the values of the fields of dates.
pub fn date_fields(page: &Reply) -> [(&str, &str); 2] {
    ["from", "until"].map(|name| {
        let field = between(&page.text, &format!("<input id=\"{name}\" "), ">");
        (between(field, "type=\"", "\""), between(field, "value=\"", "\""))
    })
}

/// Two verifications at 12:00 and one at 12:10, of which the last is rejected.
async fn create_traffic(kw: &Keyward) {
    let key = kw.create_key(json!({ "credits": { "remaining": 2 } })).await;
    for code in ["VALID", "VALID"] {
        kw.verify(&key.key).await.assert_code(code);
    }
    kw.clock.advance_ms(10 * MINUTE_MS);
    kw.verify(&key.key).await.assert_code("USAGE_EXCEEDED");
    kw.write_events().await;
}

on_every_event_store! {
    async fn chart_has_times_and_values_for_the_script(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        create_traffic(&kw).await;

        let data = chart_data(&owner.get(&workspace_path("/analytics?range=hour")).await);

        let times = data["times"].as_array().unwrap();
        assert_eq!(times.len(), 60);
        assert_eq!((times[0].as_i64(), data["until"].as_i64()), (Some(NOON.0 - 49 * MINUTE_MS), Some(NOON.0 + 11 * MINUTE_MS)));
        assert_eq!((&data["unit"], &data["noun"]), (&json!("minute"), &json!("requests")));
        let counts = |series: usize| {
            let values = data["series"][series].as_array().unwrap().iter().map(|value| value.as_i64().unwrap());
            let at = |n: usize| (times[n].as_i64().unwrap() - NOON.0) / MINUTE_MS;
            values.enumerate().filter(|(_, value)| *value > 0).map(|(n, value)| (at(n), value)).collect::<Vec<_>>()
        };
        assert_eq!([counts(0), counts(1)], [vec![(0, 2)], vec![(10, 1)]]);
    }

    async fn period_between_times_is_shown_by_the_minute_or_hour(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        create_traffic(&kw).await;

        for (query, unit, count, from, until) in [
            ("from=2026-03-10T12:00&until=2026-03-10T12:10", "minute", "2", "2026-03-10T12:00", "2026-03-10T12:10"),
            ("from=2026-03-10T12:00&until=2026-03-10T12:11", "minute", "3", "2026-03-10T12:00", "2026-03-10T12:11"),
            ("from=2026-03-10T12:01&until=2026-03-10T12:11", "minute", "1", "2026-03-10T12:01", "2026-03-10T12:11"),
            ("from=2026-03-10T09:11&until=2026-03-10T12:11", "minute", "3", "2026-03-10T09:11", "2026-03-10T12:11"),
            ("from=2026-03-10T09:10&until=2026-03-10T12:11", "hour", "3", "2026-03-10T09:00", "2026-03-10T13:00"),
        ] {
            let page = owner.get(&workspace_path(&format!("/analytics?range=custom&{query}"))).await;
            let file = owner.get(&workspace_path(&format!("/analytics.csv?range=custom&{query}"))).await;

            assert_eq!(chart_data(&page)["unit"], unit, "{query}");
            assert_eq!(between(&page.text, "<dd>", "<"), count, "{query}");
            assert_eq!(date_fields(&page), [("datetime-local", from), ("datetime-local", until)], "{query}");
            let total = file.text.lines().skip(1).map(|row| row.split(',').nth(1).unwrap().parse::<i64>().unwrap());
            assert_eq!(total.sum::<i64>().to_string(), count, "{query}: {}", file.text);
        }
        let page = owner.get(&workspace_path("/analytics?from=2026-03-10&until=2026-03-10")).await;
        assert_eq!(date_fields(&page), [("date", "2026-03-10"), ("date", "2026-03-10")]);
        let wrong = owner.get(&workspace_path("/analytics?from=2026-03-10T25:00&until=2026-03-10")).await;
        assert!(wrong.text.contains("Start date must be a time such as 2026-03-31T10:20"), "{}", wrong.text);
        assert_eq!(date_fields(&wrong), [("date", ""), ("date", "2026-03-10")]);
    }

    async fn minutes_past_their_retention_are_shown_as_hours(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        create_traffic(&kw).await;
        let path = workspace_path("/analytics?from=2026-03-10T12:00&until=2026-03-10T12:30");
        assert_eq!(chart_data(&owner.get(&path).await)["unit"], "minute");

        kw.clock.advance_ms(91 * DAY_MS);
        owner.sign_in(EMAIL, PASSWORD).await;
        let page = owner.get(&path).await;

        assert_eq!(chart_data(&page)["unit"], "hour");
        assert_eq!(between(&page.text, "<dd>", "<"), "3");
        let range = [("datetime-local", "2026-03-10T12:00"), ("datetime-local", "2026-03-10T13:00")];
        assert_eq!(date_fields(&page), range);
    }
}

on_both_stacks! {
    async fn tabs_and_the_link_to_analytics_keep_the_time_range(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        create_traffic(&kw).await;
        let href = |path: &str| format!("href=\"{}\"", workspace_path(path));

        for page in ["/analytics", "/logs"] {
            let path = workspace_path(&format!("{page}?range=custom&from=2026-03-01&until=2026-03-02&outcome=VALID"));
            let text = owner.get(&path).await.text;
            let range = "range=custom&#38;from=2026-03-01&#38;until=2026-03-02";
            for tab in [format!("{page}?{range}"), format!("{page}?of=limits&#38;{range}")] {
                assert!(text.contains(&href(&tab)), "{tab}: {text}");
            }
            let text = owner.get(&workspace_path(&format!("{page}?of=limits"))).await.text;
            assert!(text.contains(&href(page)), "{text}");
        }
        let overview = owner.get(&workspace_path("?range=week")).await.text;
        assert!(overview.contains(&href("/analytics?range=week")), "{overview}");
    }

    async fn zoom_keeps_the_filters_and_leaves_out_the_period(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        create_traffic(&kw).await;

        let path = workspace_path("/analytics?range=week&from=2026-03-01&until=x&identity=%22%3E%3Cb%3E&live=on");
        let filtered = owner.get(&path).await;
        assert!(!filtered.text.contains("data-zoom"), "an empty chart has nothing to zoom into");
        let page = owner.get(&workspace_path("/analytics?range=week&outcome=VALID&from=x&live=on&notice=y")).await;
        assert_eq!(zoom_path(&page), workspace_path("/analytics?outcome=VALID"));
        let overview = owner.get(&workspace_path("")).await;
        assert_eq!(zoom_path(&overview), workspace_path("/analytics"));
        assert_eq!(chart_data(&overview)["unit"], "hour");
    }

    async fn chart_scripts_are_loaded_only_by_pages_with_a_chart(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        create_traffic(&kw).await;

        let page = owner.get(&workspace_path("/analytics")).await;
        for (attribute, name, kind) in [
            ("src", "uplot.min.js", "text/javascript; charset=utf-8"),
            ("src", "chart.js", "text/javascript; charset=utf-8"),
            ("href", "uplot.css", "text/css; charset=utf-8"),
        ] {
            let (start, end) = (format!("{attribute}=\""), format!("/{name}"));
            let paths = page.text.split(start.as_str()).filter_map(|rest| rest.split('"').next());
            let paths = paths.filter(|path| path.ends_with(&end)).collect::<Vec<_>>();
            let [path] = paths[..] else { panic!("{name}: {paths:?}") };
            let asset = owner.get(path).await;
            assert_eq!(asset.status, 200, "{path}");
            assert_eq!(asset.headers["content-type"], kind);
            assert_eq!(asset.headers["cache-control"], "public, max-age=31536000, immutable");
        }
        assert!(owner.get(&workspace_path("")).await.text.contains("/uplot.min.js"));
        for path in ["/keys", "/members", "/root-keys"] {
            assert!(!owner.get(&workspace_path(path)).await.text.contains("uplot"), "{path}");
        }
    }

    async fn live_refresh_is_offered_while_the_period_is_not_over(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        // Within one more minute, 12:01 begins.
        for (query, is_offered) in [
            ("range=hour", true),
            ("range=year", true),
            ("range=this-month", true),
            ("range=last-month", false),
            ("from=2026-03-10", true),
            ("from=2026-03-09&until=2026-03-09", false),
            ("from=2026-03-10T11:00&until=2026-03-10T12:01", true),
            ("from=2026-03-10T11:00&until=2026-03-10T12:00", false),
            ("from=2026-03-11&until=2026-03-12", false),
        ] {
            let off = owner.get(&workspace_path(&format!("/analytics?{query}"))).await.text;
            let on = owner.get(&workspace_path(&format!("/analytics?{query}&live=on"))).await.text;

            assert_eq!(off.contains("data-live aria-pressed=\"false\""), is_offered, "{query}");
            assert_eq!(on.contains("data-live aria-pressed=\"true\""), is_offered, "{query}");
            assert_eq!(on.contains("hx-trigger=\"every 5s\""), is_offered, "{query}");
            assert!(!off.contains("hx-trigger=\"every") && !off.contains("name=\"live\""), "{query}");
            assert!(!off.contains("data-live") || off.contains("hidden data-live"), "hidden without the script");
        }
        let page = owner.get(&workspace_path("/analytics?live=on&outcome=VALID&range=day")).await;
        let button = between(&page.text, "<button class=\"small\" id=\"live\"", ">");
        let off = workspace_path("/analytics?outcome=VALID&#38;range=day");
        assert_eq!(between(button, "hx-get=\"", "\""), off);
        let region = between(&page.text, "id=\"report\"", ">");
        assert_eq!(between(region, "hx-get=\"", "\""), format!("{off}&#38;live=on"));
        assert!(!between(&page.text, "analytics.csv?", "\"").contains("live"));
        let unknown = owner.get(&workspace_path("/analytics?live=true")).await;
        assert!(unknown.text.contains("data-live aria-pressed=\"false\""), "{}", unknown.text);
    }
}
