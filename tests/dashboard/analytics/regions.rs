//! The verifications of each region.

use analytics::{clickhouse_delivery, writer};
use foundation::clock::DAY_MS;
use serde_json::json;

use super::super::{Browser, EMAIL, PASSWORD, between, workspace_path};
use super::figures;
use crate::support::{Keyward, Stack};

/// Two verifications of the region `eu`, one that counts as one of `us`, and one of an earlier version.
async fn verify_in_regions(kw: &Keyward) {
    for (identity, times) in [("stays", 2), ("moves", 1), ("older", 1)] {
        let key = kw.create_key(json!({ "externalId": identity })).await;
        for _ in 0..times {
            kw.verify(&key.key).await.assert_code("VALID");
        }
    }
    kw.write_events().await;
    kw.change_events("UPDATE verification_series SET region = 'us' WHERE external_id = 'moves'")
        .await;
    kw.change_events("UPDATE verification_series SET region = '' WHERE external_id = 'older'")
        .await;
}

async fn assert_verifications_are_divided_by_region(kw: Keyward) {
    let mut owner = Browser::sign_in_owner(&kw).await;
    verify_in_regions(&kw).await;

    let page = owner.get(&workspace_path("/analytics?range=hour")).await.text;

    let table = between(&page, "<h2>Regions</h2>", "</section>");
    let rows: Vec<_> = table.split("<th scope=\"row\">").skip(1).collect();
    let expected = [("eu", "2", "50.0%"), ("Not recorded", "1", "25.0%"), ("us", "1", "25.0%")];
    assert_eq!(rows.len(), expected.len(), "{table}");
    for (row, (region, count, share)) in rows.iter().zip(expected) {
        let path = workspace_path(&format!("/analytics?range=hour&#38;region={region}"));
        let label = match region {
            "Not recorded" => region.to_owned(),
            _ => format!("<a class=\"break\" href=\"{path}\">{region}</a>"),
        };
        let cells = format!(
            "{label}</th><td class=\"number\">{count}</td><td class=\"number\">{share}</td>"
        );
        assert!(row.starts_with(&cells), "{row}");
    }
    let of_one = owner.get(&workspace_path("/analytics?range=hour&identity=moves")).await.text;
    let table = between(&of_one, "<h2>Regions</h2>", "</section>");
    assert!(
        table.contains("us</a></th><td class=\"number\">1</td>") && !table.contains("eu"),
        "{table}"
    );
    let file = owner.get(&workspace_path("/analytics.csv?range=hour&table=regions")).await.text;
    assert!(file.starts_with("region,total,total_before\neu,2,"), "{file}");
    for (query, fault) in [
        ("table=region", "able must be time, outcomes, apis, regions, keys"),
        ("table=region&identity=moves", "able must be time, outcomes, regions, keys"),
        ("table=regions&of=limits", "able must be time, outcomes, namespaces, identifiers"),
    ] {
        let reply = owner.get(&workspace_path(&format!("/analytics.csv?{query}"))).await;
        assert_eq!(reply.status, 400, "{query}");
        assert!(reply.text.contains(fault), "{query}: {}", reply.text);
    }
}

#[tokio::test]
async fn verifications_are_divided_by_region_embedded() {
    let kw = Keyward::start_with(Stack::Embedded, |settings| settings.region = "eu".into()).await;
    assert_verifications_are_divided_by_region(kw).await;
}

#[tokio::test]
async fn verifications_are_divided_by_region_replica() {
    let kw = Keyward::start_with(Stack::Replica, |settings| settings.region = "eu".into()).await;
    assert_verifications_are_divided_by_region(kw).await;
}

async fn assert_page_shows_a_region(kw: Keyward) {
    let mut owner = Browser::sign_in_owner(&kw).await;
    verify_in_regions(&kw).await;
    for is_rolled_up in [false, true] {
        if is_rolled_up {
            writer::roll_up(&kw.app.analytics).await.unwrap();
        }
        for (query, count, identity) in [
            ("region=eu", "2", "stays"),
            ("region=+us+", "1", "moves"),
            ("region=us&identity=moves", "1", "moves"),
            ("region=us&identity=stays", "0", ""),
            ("region=ap", "0", ""),
        ] {
            let page = owner.get(&workspace_path(&format!("/analytics?range=hour&{query}"))).await;

            assert_eq!(page.status, 200, "{query}: {}", page.text);
            assert_eq!(figures(&page.text)[0], count, "{query}");
            let latency = between(&page.text, "<dt>p50 latency</dt><dd>", "</dd>");
            // A region alone has no latencies.
            let has_latency = query.contains("identity") && count != "0";
            assert_eq!(latency != "–", has_latency, "{query}: {latency}");
            let active_keys = if count == "0" { "0" } else { "1" };
            let shown = between(&page.text, "<dt>Active keys</dt><dd>", "</dd>");
            assert_eq!(shown, active_keys, "{query}");
            let list = between(&page.text, "<h2>Top identities</h2>", "</section>");
            for name in ["stays", "moves", "older"] {
                assert_eq!(list.contains(&format!(">{name}</a>")), name == identity, "{list}");
            }
            assert!(!page.text.contains("aria-label=\"APIs\""), "{query}");
            let region = query.split('&').next().unwrap_or_default().replace("region=", "");
            let region = region.replace('+', "");
            let option = format!("<option value=\"{region}\" selected>{region}</option>");
            assert!(page.text.contains(&option), "{query}: {}", page.text);
        }
    }
    let mut file = async |query: &str| {
        owner.get(&workspace_path(&format!("/analytics.csv?range=hour&{query}"))).await
    };
    assert_eq!(file("table=keys&region=us").await.text.lines().count(), 2);
    assert_eq!(file("table=apis&region=us").await.status, 400);
    let too_long = file(&format!("table=keys&region={}", "x".repeat(65))).await;
    assert_eq!(too_long.status, 400);
    assert!(too_long.text.contains("egion must be at most 64 characters"), "{}", too_long.text);
}

#[tokio::test]
async fn page_shows_the_verifications_of_a_region_embedded() {
    let kw = Keyward::start_with(Stack::Embedded, |settings| settings.region = "eu".into()).await;
    assert_page_shows_a_region(kw).await;
}

#[tokio::test]
async fn page_shows_the_verifications_of_a_region_replica() {
    let kw = Keyward::start_with(Stack::Replica, |settings| settings.region = "eu".into()).await;
    assert_page_shows_a_region(kw).await;
}

async fn assert_counts_in_clickhouse(owner: &mut Browser<'_>) {
    for (region, count) in [("eu", "2"), ("us", "0")] {
        let path = workspace_path(&format!("/analytics?range=week&region={region}"));
        assert_eq!(figures(&owner.get(&path).await.text)[0], count, "{region}");
    }
}

#[tokio::test]
async fn regions_are_known_after_the_rollup_of_a_day_in_clickhouse() {
    let change = |settings: &mut foundation::config::Settings| settings.region = "eu".into();
    let kw = Keyward::start_with_clickhouse_and(Stack::Embedded, change).await;
    let mut owner = Browser::sign_in_owner(&kw).await;
    let key = kw.create_key(json!({})).await;
    for _ in 0..2 {
        kw.verify(&key.key).await.assert_code("VALID");
    }
    kw.write_events().await;
    let path = workspace_path("/analytics.csv?range=week&table=regions");
    let before = owner.get(&path).await.text;
    assert_counts_in_clickhouse(&mut owner).await;
    kw.clock.advance_ms(2 * DAY_MS);
    clickhouse_delivery::maintain(&kw.app.analytics).await.unwrap();
    owner.sign_in(EMAIL, PASSWORD).await;

    assert_counts_in_clickhouse(&mut owner).await;
    for file in [before, owner.get(&path).await.text] {
        assert!(file.starts_with("region,total,total_before\neu,2,"), "{file}");
    }
}
