//! The log of limit checks.

use std::collections::BTreeSet;

use analytics::writer;
use foundation::clock::{DAY_MS, MINUTE_MS};
use serde_json::json;

use super::super::{
    Browser, EMAIL, PASSWORD, between, count_table_rows, next_page_path, workspace_path,
};
use super::{requests, rows};
use crate::on_every_event_store;
use crate::support::Keyward;

/// Two checks of an identifier, the second of which is rejected, and a minute later one request of three checks.
async fn check_limits(kw: &Keyward) -> [String; 2] {
    for passed in [true, false] {
        let reply = kw.check_limit("email", "ann", json!({ "limit": 1 })).await;
        assert_eq!(reply.data()["success"], passed);
        kw.clock.advance_ms(10);
    }
    kw.clock.advance_ms(MINUTE_MS);
    let check = |namespace: &str, identifier: &str| json!({ "namespace": namespace, "identifier": identifier, "limit": 9, "cost": 2, "duration": 60_000 });
    let checks = [check("sms", "<b>bob</b>"), check("email", "ann"), check("sms", "ann")];
    kw.v2("ratelimit.multiLimit", json!(checks)).await.data();
    kw.write_events().await;
    let page = kw
        .app
        .context
        .store
        .read()
        .await
        .unwrap()
        .list_all_namespaces(&"ws_default".into())
        .await
        .unwrap();
    ["email", "sms"]
        .map(|name| page.iter().find(|found| found.name == name).unwrap().id.to_string())
}

on_every_event_store! {
    async fn log_of_limit_checks_shows_them_newest_first(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let [email, sms] = check_limits(&kw).await;

        let page = owner.get(&workspace_path("/logs?of=limits")).await;

        assert_eq!(page.status, 200, "{}", page.text);
        let shown = rows(&page.text);
        assert_eq!(shown.len(), 5, "{}", page.text);
        let requests: BTreeSet<_> = shown[..3].iter().map(|row| between(row, "why?request=", "\"")).collect();
        assert_eq!(requests.len(), 1, "{requests:?}");
        assert_eq!(super::requests(&page.text).iter().collect::<BTreeSet<_>>().len(), 5);
        let bob = shown[..3].iter().find(|row| row.contains("&#60;b&#62;bob")).expect("an escaped identifier");
        for text in [
            ">Allowed</span>", ">sms</a>", &format!("/ratelimits/{sms}\""), ">2</td>", ">9</td>", ">7</td>",
        ] {
            assert!(bob.contains(text), "{text}: {bob}");
        }
        assert!(shown[3].contains(">Rejected</span>") && shown[3].contains("12:00:00.010</time>"), "{}", shown[3]);
        assert!(shown[4].contains(">Allowed</span>") && shown[4].contains(&email), "{}", shown[4]);
        let request = requests.first().unwrap();
        let explained = owner.get(&workspace_path(&format!("/keys/why?request={request}"))).await.text;
        assert!(explained.contains("Cost 2 of a limit of 9; 7 remained."), "{explained}");

    }

    async fn log_of_limit_checks_is_filtered(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let [email, sms] = check_limits(&kw).await;
        for is_rolled_up in [false, true] {
            if is_rolled_up {
                writer::roll_up(&kw.app.analytics).await.unwrap();
            }
            let mut count = async |query: &str| {
                let page = owner.get(&workspace_path(&format!("/logs?of=limits&{query}"))).await;
                assert_eq!(page.status, 200, "{query}: {}", page.text);
                count_table_rows(&page.text)
            };

            assert_eq!(count("outcome=true").await, 4);
            assert_eq!(count("outcome=false").await, 1);
            assert_eq!(count("outcome=VALID").await, 0);
            assert_eq!(count(&format!("only={email}")).await, 3);
            assert_eq!(count(&format!("only={sms}")).await, 2);
            assert_eq!(count(&format!("only={sms}&outcome=false")).await, 0);
            assert_eq!(count("identifier=+ann+").await, 4);
            assert_eq!(count("identifier=ann&outcome=false").await, 1);
            assert_eq!(count(&format!("identifier=ann&only={sms}")).await, 1);
            assert_eq!(count("identifier=%3Cb%3Ebob%3C%2Fb%3E").await, 1);
            assert_eq!(count("identifier=nobody").await, 0);
            // Filters of verifications do not apply.
            assert_eq!(count("key=key_none&identity=nobody").await, 5);
            assert_eq!(count("until=2026-03-09").await, 0);
        }
        kw.clock.advance_ms(2 * DAY_MS);
        owner.sign_in(EMAIL, PASSWORD).await;
        let empty = owner.get(&workspace_path("/logs?of=limits")).await.text;
        assert!(empty.contains("No limit checks") && count_table_rows(&empty) == 0, "{empty}");
    }

    async fn log_reaches_back_beyond_the_retention_of_minutes(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        // By default, minutes of limit checks are kept for 7 days, and the checks for 30.
        for minutes in [40, 3 * 1440, 4 * 1440 - 10, 0] {
            kw.check_limit("email", "ann", json!({ "limit": 99 })).await.data();
            kw.write_events().await;
            writer::roll_up(&kw.app.analytics).await.unwrap();
            kw.clock.advance_ms(minutes * MINUTE_MS);
        }
        writer::maintain_partitions(&kw.app.analytics).await.unwrap();
        owner.sign_in(EMAIL, PASSWORD).await;

        for filter in ["", "&identifier=ann", "&outcome=true&identifier=ann"] {
            let page = owner.get(&workspace_path(&format!("/logs?of=limits&range=month{filter}"))).await;
            assert_eq!(count_table_rows(&page.text), 4, "{filter}: {}", page.text);
        }
    }

    async fn log_has_all_minutes_of_the_day_in_which_their_retention_ends(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        // One check of a minute that is over its retention, and as many as a page does not look for in later ones.
        for number in 0..71 {
            kw.check_limit("email", "ann", json!({ "limit": 99 })).await.data();
            kw.clock.advance_ms(if number == 0 { 60 * MINUTE_MS } else { MINUTE_MS });
        }
        kw.write_events().await;
        writer::roll_up(&kw.app.analytics).await.unwrap();
        kw.clock.advance_ms(7 * DAY_MS - 100 * MINUTE_MS);
        writer::maintain_partitions(&kw.app.analytics).await.unwrap();
        owner.sign_in(EMAIL, PASSWORD).await;

        let mut page = owner.get(&workspace_path("/logs?of=limits&range=month&identifier=ann")).await;
        let mut found = requests(&page.text);
        while page.text.contains("rel=\"next\"") {
            page = owner.get(&next_page_path(&page)).await;
            found.extend(requests(&page.text));
            assert!(found.len() <= 71, "{}", found.len());
        }

        assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 71);
    }

    async fn page_of_limit_checks_ends_with_a_whole_request(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        // All requests are of one millisecond. The last of the first page does not fit.
        let check = |number| json!({ "namespace": "sms", "identifier": format!("user_{number}"), "limit": 999, "duration": 60_000 });
        for _ in 0..6 {
            let checks: Vec<_> = (0..30).map(check).collect();
            kw.v2("ratelimit.multiLimit", json!(checks)).await.data();
        }
        kw.write_events().await;
        for (filter, per_page) in [("outcome=true", 90), ("identifier=user_7", 6)] {
            let mut page = owner.get(&workspace_path(&format!("/logs?of=limits&{filter}"))).await;
            let mut found = requests(&page.text);
            assert_eq!(found.len(), per_page, "{filter}");
            while page.text.contains("rel=\"next\"") {
                page = owner.get(&next_page_path(&page)).await;
                found.extend(requests(&page.text));
                assert!(found.len() <= 180, "{filter}");
            }

            let expected = if per_page == 6 { 6 } else { 180 };
            assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), expected, "{filter}");
            assert_eq!(found.len(), expected, "{filter}");
        }
    }
}
