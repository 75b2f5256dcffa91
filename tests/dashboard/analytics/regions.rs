//! The verifications of each region.

use analytics::clickhouse_delivery;
use foundation::clock::DAY_MS;
use serde_json::json;

use super::super::{Browser, EMAIL, PASSWORD, between, workspace_path};
use crate::support::{Keyward, Stack};

/// Two verifications of the region `eu`, one that counts as one of `us`, and one of an earlier version.
async fn assert_verifications_are_divided_by_region(kw: Keyward) {
    let mut owner = Browser::sign_in_owner(&kw).await;
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

    let page = owner.get(&workspace_path("/analytics?range=hour")).await.text;

    let table = between(&page, "<h2>Regions</h2>", "</section>");
    let rows: Vec<_> = table.split("<th scope=\"row\">").skip(1).collect();
    let expected = [("eu", "2", "50.0 %"), ("Not recorded", "1", "25.0 %"), ("us", "1", "25.0 %")];
    assert_eq!(rows.len(), expected.len(), "{table}");
    for (row, (region, count, share)) in rows.iter().zip(expected) {
        let cells = format!(
            "{region}</th><td class=\"number\">{count}</td><td class=\"number\">{share}</td>"
        );
        assert!(row.starts_with(&cells), "{row}");
    }
    let of_one = owner.get(&workspace_path("/analytics?range=hour&identity=moves")).await.text;
    let table = between(&of_one, "<h2>Regions</h2>", "</section>");
    assert!(
        table.contains("us</th><td class=\"number\">1</td>") && !table.contains("eu"),
        "{table}"
    );
    let file = owner.get(&workspace_path("/analytics.csv?range=hour&table=regions")).await.text;
    assert!(file.starts_with("region,total,total_before\neu,2,"), "{file}");
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
    kw.clock.advance_ms(2 * DAY_MS);
    clickhouse_delivery::maintain(&kw.app.analytics).await.unwrap();
    owner.sign_in(EMAIL, PASSWORD).await;

    for file in [before, owner.get(&path).await.text] {
        assert!(file.starts_with("region,total,total_before\neu,2,"), "{file}");
    }
}
