//! Tests the counts of verifications that found no key.

use analytics::writer;
use axum::body::Body;
use axum::http::Request;
use foundation::clock::HOUR_MS;
use foundation::model::RollupUnit;
use serde_json::json;

use super::buffer::metric;
use crate::dashboard::{Browser, between, workspace_path};
use crate::support::{Keyward, Stack};
use crate::{on_both_stacks, on_every_event_store};

/// The stored counts: workspace, API, unit, start and number.
const TOTALS: &str =
    "SELECT workspace_id || ' ' || api_id || ' ' || unit || ' ' || CAST(time AS TEXT) || ' '
        || CAST(count AS TEXT)
    FROM verification_totals WHERE outcome = 'NOT_FOUND' ORDER BY 1";
const MINUTES: &str = "SELECT CAST(count AS TEXT) FROM verification_totals
    WHERE outcome = 'NOT_FOUND' AND unit = 'minute' ORDER BY time";
const DAYS: &str = "SELECT CAST(count AS TEXT) FROM verification_totals
    WHERE outcome = 'NOT_FOUND' AND unit = 'day' ORDER BY time";

/// Sends this many keys that do not exist.
async fn guess(kw: &Keyward, times: usize) {
    for number in 0..times {
        kw.verify(&format!("guess_{number}_{}", kw.clock.now().0)).await.assert_code("NOT_FOUND");
    }
}

/// The numbers of the breakdown by outcome.
fn outcomes(page: &str) -> Vec<String> {
    let table = between(page, "aria-label=\"Outcomes\"><table>", "</table>").to_owned();
    let row = |row: &str| {
        let texts =
            row.split('<').filter_map(|tag| tag.split_once('>')).map(|(_, text)| text.trim());
        texts.filter(|text| !text.is_empty()).take(2).collect::<Vec<_>>().join(" ")
    };
    table.split("<tr><th scope=\"row\">").skip(1).map(row).collect()
}

on_every_event_store! {
    async fn verifications_without_a_key_are_counted_and_shown(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let stranger = kw.create_other_workspace().await;
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({ "externalId": "ann" })).await;
        kw.verify(&key.key).await.assert_code("VALID");
        guess(&kw, 3).await;
        // A key of another workspace counts for the workspace that sends it.
        kw.v2_as(&stranger, "keys.verifyKey", json!({ "key": key.key })).await.assert_code("NOT_FOUND");
        kw.v2("keys.deleteKey", json!({ "keyId": key.id })).await.data();
        kw.verify(&key.key).await.assert_code("NOT_FOUND");
        kw.write_events().await;

        let page = owner.get(&workspace_path("/analytics")).await.text;

        assert_eq!(outcomes(&page), ["Valid 1", "Not found 4"]);
        assert!(page.contains("<title>12:00: 5 requests</title>"), "{page}");
        assert!(between(&page, "<dl class=\"figures\">", "</dl>").contains("<dd>5</dd>"), "{page}");
        assert!(between(&page, "<ul class=\"legend\">", "</ul>").contains("Not found"), "{page}");
        let only = owner.get(&workspace_path("/analytics?outcome=NOT_FOUND")).await.text;
        assert!(only.contains("<title>12:00: 4 requests</title>"), "{only}");
        for filter in [format!("only={api}"), format!("key={}", key.id), "identity=ann".to_owned()] {
            let page = owner.get(&workspace_path(&format!("/analytics?{filter}"))).await.text;
            assert_eq!(outcomes(&page), ["Valid 1"], "{filter}");
        }
        let file = owner.get(&workspace_path("/analytics.csv?table=outcomes")).await.text;
        assert!(file.contains("\nNOT_FOUND,4,"), "{file}");
        let file = owner.get(&workspace_path("/analytics.csv?table=apis")).await.text;
        assert_eq!(file.lines().count(), 2, "they belong to no API: {file}");
        let overview = owner.get(&workspace_path("")).await.text;
        assert!(overview.contains("Not found"), "{overview}");
    }

    async fn replies_about_verifications_do_not_contain_them(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        guess(&kw, 3).await;
        kw.write_events().await;
        writer::roll_up(&kw.app.analytics).await.unwrap();

        for table in ["key_verifications_v1", "key_verifications_per_minute_v1", "key_verifications_per_month_v1"] {
            let query = format!("SELECT outcome FROM {table}");
            let reply = kw.v2("analytics.getVerifications", json!({ "query": query })).await;
            assert_eq!(reply.data(), &json!([{ "outcome": "VALID" }]), "{table}");
        }
        let (start, end) = (kw.clock.now().0 - HOUR_MS, kw.clock.now().0 + HOUR_MS);
        let reply = kw.v1_get("analytics.getVerifications", &format!("apiId={api}&start={start}&end={end}")).await;
        let rows = reply.body.as_array().cloned().unwrap_or_default();
        let count = |name: &str| rows.iter().filter_map(|row| row[name].as_i64()).sum::<i64>();
        assert_eq!((count("total"), count("notFound")), (1, 0), "{}", reply.text);
    }
}

on_both_stacks! {
    async fn counts_are_stored_by_workspace_and_time_and_without_the_key(kw) {
        let stranger = kw.create_other_workspace().await;
        guess(&kw, 2).await;
        kw.v2_as(&stranger, "keys.verifyKey", json!({ "key": "guess_of_theirs" })).await.assert_code("NOT_FOUND");
        // They wait in the process and still count in their own minute.
        kw.clock.advance_ms(60_000);
        guess(&kw, 3).await;
        kw.write_events().await;
        let now = kw.clock.now();
        guess(&kw, 1).await;
        kw.write_events().await;

        let own: Vec<_> = kw.query_events(TOTALS).await.into_iter().filter(|row| row.starts_with("ws_default ")).collect();

        let row = |unit: RollupUnit, at: foundation::clock::Timestamp, count: i64| {
            format!("ws_default  {} {} {count}", unit.as_str(), unit.start_of(at).0)
        };
        let mut expected = vec![row(RollupUnit::Minute, now.plus_ms(-60_000), 2), row(RollupUnit::Minute, now, 4)];
        expected.extend([RollupUnit::Hour, RollupUnit::Day, RollupUnit::Month].map(|unit| row(unit, now, 6)));
        expected.sort();
        let mut own = own;
        own.sort();
        assert_eq!(own, expected);
        assert_eq!(kw.query_events(DAYS).await.len(), 2, "one is of the other workspace");
        assert_eq!(kw.query_events("SELECT request_id FROM verifications").await.len(), 0);
        assert_eq!(kw.query_events("SELECT key_id FROM verification_series").await.len(), 0);
    }

    async fn verifications_of_version_1_have_no_workspace_and_are_not_counted(kw) {
        kw.v1("keys.verifyKey", json!({ "key": "guess_without_root_key" })).await;
        kw.write_events().await;

        assert_eq!(kw.query_events(TOTALS).await, Vec::<String>::new());
    }

    async fn key_that_is_too_long_is_counted_when_a_gateway_reads_it(kw) {
        let policy = json!({ "name": "edge", "apiIds": [kw.create_api().await] });
        let secret = kw.v2("gateways.createPolicy", policy).await.text_of("secret");

        for length in [512, 513] {
            let request = Request::get("/gateway/edge")
                .header("keyward-gateway-secret", &secret)
                .header("authorization", format!("Bearer {}", "a".repeat(length)));
            let reply = kw.send(request.body(Body::empty()).unwrap()).await;
            assert_eq!(reply.body["code"], "NOT_FOUND", "{length}");
        }

        kw.write_events().await;
        assert_eq!(kw.query_events(DAYS).await, ["2"]);
        assert_eq!(metric(&kw, "keyward_verifications_total{code=\"NOT_FOUND\"}").await, 2);
    }

    async fn counts_are_written_once_when_retried(kw) {
        let key = kw.create_key(json!({})).await;
        kw.write_events().await;
        guess(&kw, 2).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.change_events("ALTER TABLE verification_series RENAME TO away").await;

        let failed = writer::write_buffered(&kw.app.analytics).await;
        guess(&kw, 3).await;
        kw.change_events("ALTER TABLE away RENAME TO verification_series").await;
        kw.write_events().await;
        kw.write_events().await;

        assert!(failed.is_err());
        assert_eq!(kw.query_events(DAYS).await, ["5"]);
    }

    async fn counts_are_written_once_when_server_stops_during_write(kw) {
        kw.write_events().await;
        for number in 0..20 {
            kw.verify(&format!("guess_{number}")).await.assert_code("NOT_FOUND");
            // Cancelled at any moment, as a stopping server cancels its background tasks.
            let writing = writer::write_buffered(&kw.app.analytics);
            let _ = tokio::time::timeout(std::time::Duration::from_micros(300), writing).await;
        }

        kw.write_events().await;

        assert_eq!(kw.query_events(DAYS).await, ["20"]);
    }

    async fn a_batch_of_counts_alone_is_rolled_up_and_its_name_is_kept_for_a_day(kw) {
        guess(&kw, 1).await;
        kw.write_events().await;
        writer::roll_up(&kw.app.analytics).await.unwrap();
        let pending = "SELECT name FROM batches WHERE NOT summed";
        assert_eq!(kw.query_events(pending).await.len(), 0);

        for (ms, batches) in [(23 * HOUR_MS, 1), (2 * HOUR_MS, 0)] {
            kw.clock.advance_ms(ms);
            writer::maintain_partitions(&kw.app.analytics).await.unwrap();
            assert_eq!(kw.query_events("SELECT name FROM batches").await.len(), batches);
        }
        assert_eq!(kw.query_events(MINUTES).await, ["1"]);
    }

    async fn a_workspace_that_only_sends_keys_that_do_not_exist_has_not_verified_one(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        guess(&kw, 1).await;
        kw.write_events().await;

        let page = owner.get(&workspace_path("/analytics")).await.text;
        let logs = owner.get(&workspace_path("/logs")).await.text;

        let overview = owner.get(&workspace_path("")).await.text;

        assert_eq!(outcomes(&page), ["Not found 1"]);
        assert!(page.contains("No data to compare with."), "{page}");
        assert!(!logs.contains("Not found"), "{logs}");
        assert!(overview.contains("0 of 4 steps done"), "{overview}");
    }
}

#[tokio::test]
async fn counts_wait_while_the_disk_is_full() {
    let kw = Keyward::start_with(Stack::Embedded, |settings| {
        settings.events_reserve_bytes = u64::MAX;
    })
    .await;
    kw.app.analytics.event_store().migrate().await.unwrap();
    guess(&kw, 2).await;

    writer::write_buffered(&kw.app.analytics).await.unwrap();

    assert_eq!(kw.query_events(DAYS).await, Vec::<String>::new());
    assert_eq!(metric(&kw, "keyward_events_dropped_total{kind=\"verification\"}").await, 0);
}

#[tokio::test]
async fn counts_stay_in_the_database_with_clickhouse() {
    let kw = Keyward::start_with_clickhouse(Stack::Embedded).await;
    guess(&kw, 2).await;

    kw.write_events().await;

    assert_eq!(kw.query_events(DAYS).await, ["2"]);
    assert_eq!(kw.query_events("SELECT CAST(events AS TEXT) FROM parcels").await.len(), 0);
}
