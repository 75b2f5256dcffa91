//! The filter of the log by region.

use analytics::writer;
use foundation::clock::MINUTE_MS;
use foundation::config::RegionSettings;
use serde_json::json;

use super::super::{Browser, between, count_table_rows, next_page_path, workspace_path};
use super::{Traffic, requests};
use crate::support::{Keyward, Stack, redis_url};

async fn start(stack: Stack) -> Keyward {
    Keyward::start_with(stack, |settings| settings.region = "eu".into()).await
}

/// Changes the region of the verifications of keys without an identity to `us`.
async fn move_to_us(kw: &Keyward) {
    kw.change_events(
        "UPDATE verifications SET region = 'us'
        WHERE series IN (SELECT id FROM verification_series WHERE external_id = '')",
    )
    .await;
    kw.change_events("UPDATE verification_series SET region = 'us' WHERE external_id = ''").await;
}

async fn assert_counts(owner: &mut Browser<'_>, expected: &[(&str, usize)]) {
    for (query, count) in expected {
        let page = owner.get(&workspace_path(&format!("/logs?{query}"))).await;
        assert_eq!(page.status, 200, "{query}: {}", page.text);
        assert_eq!(count_table_rows(&page.text), *count, "{query}: {}", page.text);
    }
}

async fn assert_log_is_filtered_by_region(stack: Stack) {
    let kw = start(stack).await;
    let mut owner = Browser::sign_in_owner(&kw).await;
    let Traffic { apis, other, .. } = Traffic::create(&kw).await;
    move_to_us(&kw).await;
    let (in_eu, in_us) =
        (format!("region=eu&key={}", other.id), format!("region=us&key={}", other.id));
    let of_api = format!("region=eu&only={}", apis[1]);
    let expected: &[(&str, usize)] = &[
        ("region=", 4),
        ("region=eu", 3),
        ("region=+us+", 1),
        ("region=EU", 0),
        ("region=ap", 0),
        ("region=%27%20OR%20%271", 0),
        ("region=eu&outcome=VALID", 2),
        ("region=us&outcome=USAGE_EXCEEDED", 0),
        ("region=eu&identity=ann", 3),
        ("region=us&identity=ann", 0),
        (&in_eu, 0),
        (&in_us, 1),
        (&of_api, 0),
        ("region=us&of=limits", 0),
    ];
    for is_rolled_up in [false, true] {
        if is_rolled_up {
            writer::roll_up(&kw.app.analytics).await.unwrap();
        }

        assert_counts(&mut owner, expected).await;
    }
    // As earlier versions wrote them.
    kw.change_events("UPDATE verification_series SET region = ''").await;

    assert_counts(&mut owner, expected).await;
}

#[tokio::test]
async fn log_is_filtered_by_region_embedded() {
    assert_log_is_filtered_by_region(Stack::Embedded).await;
}

#[tokio::test]
async fn log_is_filtered_by_region_replica() {
    assert_log_is_filtered_by_region(Stack::Replica).await;
}

#[tokio::test]
async fn log_in_clickhouse_is_filtered_by_region() {
    let change = |settings: &mut foundation::config::Settings| settings.region = "eu".into();
    let kw = Keyward::start_with_clickhouse_and(Stack::Embedded, change).await;
    let mut owner = Browser::sign_in_owner(&kw).await;
    let Traffic { ann, .. } = Traffic::create(&kw).await;
    let (in_eu, in_us) = (format!("region=eu&key={}", ann.id), format!("region=us&key={}", ann.id));

    let expected: &[(&str, usize)] = &[
        ("region=eu", 4),
        ("region=us", 0),
        ("region=eu&outcome=USAGE_EXCEEDED", 1),
        ("region=us&identity=ann", 0),
        (&in_eu, 3),
        (&in_us, 0),
    ];
    assert_counts(&mut owner, expected).await;
}

async fn assert_events_are_compared_in_parts(stack: Stack) {
    let kw = start(stack).await;
    let mut owner = Browser::sign_in_owner(&kw).await;
    Traffic::create(&kw).await;
    move_to_us(&kw).await;
    kw.change_events("UPDATE verification_totals SET count = 60000 WHERE unit = 'minute'").await;

    // The verification is in the first part of its minute, which is read last.
    let mut page = owner.get(&workspace_path("/logs?region=us")).await;
    let mut found = requests(&page.text);
    assert!(page.text.contains("Compared back to 2026-03-10 12:01"), "{}", page.text);
    assert_eq!(found.len(), 0);
    for _ in 0..9 {
        if page.text.contains("rel=\"next\"") {
            page = owner.get(&next_page_path(&page)).await;
            found.extend(requests(&page.text));
        }
    }

    assert_eq!(found.len(), 1);
    let is_complete =
        !page.text.contains("rel=\"next\"") && !page.text.contains("Compared back to");
    assert!(is_complete, "{}", page.text);
}

#[tokio::test]
async fn many_events_are_compared_with_a_region_in_parts_embedded() {
    assert_events_are_compared_in_parts(Stack::Embedded).await;
}

#[tokio::test]
async fn many_events_are_compared_with_a_region_in_parts_replica() {
    assert_events_are_compared_in_parts(Stack::Replica).await;
}

async fn assert_key_of_another_region_is_not_read(stack: Stack) {
    let kw = start(stack).await;
    let mut owner = Browser::sign_in_owner(&kw).await;
    let key = kw.create_key(json!({})).await;
    // One minute more than a page reads.
    for _ in 0..61 {
        kw.verify(&key.key).await.assert_code("VALID");
        kw.clock.advance_ms(MINUTE_MS);
    }
    kw.write_events().await;
    writer::roll_up(&kw.app.analytics).await.unwrap();
    let path = workspace_path(&format!("/logs?key={}&region=us", key.id));

    let page = owner.get(&path).await;
    assert_eq!(count_table_rows(&page.text), 0, "{}", page.text);
    assert!(!page.text.contains("Compared back to"), "{}", page.text);

    // A series of an earlier version has no region, so its events are read.
    kw.change_events("UPDATE verification_series SET region = ''").await;
    let page = owner.get(&path).await;
    assert!(page.text.contains("Compared back to"), "{}", page.text);
    let page = owner.get(&next_page_path(&page)).await;
    assert!(page.text.contains("No verifications"), "{}", page.text);
}

#[tokio::test]
async fn log_does_not_read_a_key_of_another_region_embedded() {
    assert_key_of_another_region_is_not_read(Stack::Embedded).await;
}

#[tokio::test]
async fn log_does_not_read_a_key_of_another_region_replica() {
    assert_key_of_another_region_is_not_read(Stack::Replica).await;
}

#[tokio::test]
async fn links_of_the_log_keep_the_region() {
    let kw = start(Stack::Embedded).await;
    let mut owner = Browser::sign_in_owner(&kw).await;
    let keys =
        [kw.create_key(json!({})).await, kw.create_key(json!({ "externalId": "ann" })).await];
    for key in &keys {
        for _ in 0..60 {
            kw.verify(&key.key).await.assert_code("VALID");
        }
    }
    kw.write_events().await;
    move_to_us(&kw).await;

    let first = owner.get(&workspace_path("/logs?region=us&live=2")).await;
    let refreshed = between(&first.text, "hx-get=\"", "\" hx-trigger=\"every");
    let paused = between(&first.text, "id=\"live\" href=\"", "\"");
    let second = owner.get(&next_page_path(&first)).await;

    assert_eq!(refreshed, workspace_path("/logs?region=us&#38;live=1"));
    assert_eq!(paused, workspace_path("/logs?region=us"));
    assert_eq!((requests(&first.text).len(), requests(&second.text).len()), (50, 10));
    assert!(second.text.contains("<option value=\"us\" selected>us</option>"), "{}", second.text);
}

#[tokio::test]
async fn log_offers_the_regions_that_the_server_knows() {
    let kw = Keyward::start_with(Stack::Replica, |settings| {
        settings.region = "eu".into();
        settings.regions = Some(RegionSettings {
            names: ["eu", "us"].map(str::to_owned).to_vec(),
            own: 0,
            others: vec![(1, redis_url())],
        });
    })
    .await;
    let mut owner = Browser::sign_in_owner(&kw).await;
    let select = "<select id=\"region\" name=\"region\">";

    let page = owner.get(&workspace_path("/logs")).await.text;
    let options = between(&page, select, "</select>");
    let offered = "<option value=\"\">All</option><option value=\"eu\">eu</option><option value=\"us\">us</option>";
    assert_eq!(options, offered);
    let page = owner.get(&workspace_path("/logs?region=%3Cap%3E")).await.text;
    let options = between(&page, select, "</select>");
    assert!(options.ends_with("<option value=\"&#60;ap&#62;\" selected>&#60;ap&#62;</option>"));
    let limits = owner.get(&workspace_path("/logs?of=limits&region=eu")).await.text;
    assert!(!limits.contains(select), "{limits}");
}

#[tokio::test]
async fn log_has_no_filter_by_region_if_the_server_has_none() {
    let kw = Keyward::start(Stack::Embedded).await;
    let mut owner = Browser::sign_in_owner(&kw).await;
    Traffic::create(&kw).await;

    let page = owner.get(&workspace_path("/logs")).await.text;
    let selected = owner.get(&workspace_path("/logs?region=eu")).await.text;

    assert!(!page.contains("name=\"region\""), "{page}");
    // A region of the address can be removed.
    assert!(selected.contains("<option value=\"eu\" selected>eu</option>"), "{selected}");
    assert!(selected.contains("No verifications"), "{selected}");
}

#[tokio::test]
async fn region_that_is_too_long_is_an_error_of_the_filter() {
    let kw = start(Stack::Embedded).await;
    let mut owner = Browser::sign_in_owner(&kw).await;
    for (length, is_valid) in [(64, true), (65, false)] {
        for page in ["logs", "analytics"] {
            let path = workspace_path(&format!("/{page}?region={}", "x".repeat(length)));
            let page = owner.get(&path).await;

            assert_eq!(page.status, 200, "{}", page.text);
            let has_error = page.text.contains("Region must be at most 64 characters")
                && page.text.contains("aria-describedby=\"region-error\"");
            assert_eq!(has_error, !is_valid, "{}", page.text);
        }
    }
}
