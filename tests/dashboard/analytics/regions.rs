//! The verifications of each region.

use serde_json::json;

use super::super::{Browser, between, workspace_path};
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
