//! Tests the delivery of events to ClickHouse: each event counts once, whatever fails in between.

mod failures;
mod random_faults;
mod tail;

use analytics::rollup_query::RollupQuery;
use analytics::traffic::LatencyStats;
use analytics::{clickhouse_delivery, writer};
use foundation::clock::{DAY_MS, HOUR_MS};
use foundation::id::WorkspaceId;
use foundation::model::{EventKind, RollupUnit};
use serde_json::json;
use store::events::{LatencyHistogram, TotalsFilter};

use super::key_latencies;
use crate::support::{Keyward, NOON, Stack};

/// Selects the totals of all times.
fn all_totals(workspace: &WorkspaceId, unit: RollupUnit) -> TotalsFilter<'_> {
    TotalsFilter {
        workspace,
        kind: EventKind::Verifications,
        resource_id: None,
        unit,
        from_time: unit.start_of(NOON.plus_ms(-40 * DAY_MS)),
        until_time: NOON.plus_ms(400 * DAY_MS),
        is_by_id: false,
    }
}

/// Returns the number of verifications per unit of time, by its start.
async fn counts(kw: &Keyward, unit: RollupUnit) -> Vec<(i64, i64)> {
    let workspace = domain::root_keys::default_workspace();
    let mut reader = kw.app.analytics.event_store().read().await.unwrap();
    let rows = reader.list_totals(&all_totals(&workspace, unit)).await.unwrap();
    let mut counts: Vec<_> = rows.into_iter().map(|row| (row.time.0, row.count)).collect();
    counts.sort_unstable();
    counts
}

/// Returns the latencies by unit.
async fn latencies(kw: &Keyward, unit: RollupUnit) -> Vec<(i64, LatencyHistogram)> {
    let workspace = domain::root_keys::default_workspace();
    let mut reader = kw.app.analytics.event_store().read().await.unwrap();
    let found = reader.list_latencies(&all_totals(&workspace, unit)).await.unwrap();
    found.into_iter().map(|(time, histogram)| (time.0, histogram)).collect()
}

/// Returns the latencies of a key by hour.
async fn latencies_of_key(kw: &Keyward, key: &str) -> Vec<LatencyStats> {
    let query = RollupQuery { key_ids: vec![key.into()], ..RollupQuery::default() };
    key_latencies::latencies(kw, RollupUnit::Hour, query).await
}

async fn count(kw: &Keyward) -> i64 {
    counts(kw, RollupUnit::Month).await.into_iter().map(|(_, count)| count).sum()
}

/// Runs a test on both stacks with ClickHouse.
macro_rules! on_both_stacks_with_clickhouse {
    ($($(#[$meta:meta])* async fn $name:ident($kw:ident) $body:block)*) => {$(
        $(#[$meta])*
        mod $name {
            use super::*;

            async fn run_test($kw: Keyward) $body

            #[tokio::test]
            async fn embedded() {
                run_test(Keyward::start_with_clickhouse(Stack::Embedded).await).await;
            }

            #[tokio::test]
            async fn replica() {
                run_test(Keyward::start_with_clickhouse(Stack::Replica).await).await;
            }
        }
    )*};
}

on_both_stacks_with_clickhouse! {
    async fn delivery_stays_void_when_claim_expired(kw) {
        let key = kw.create_key(json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        writer::write_buffered(&kw.app.analytics).await.unwrap();
        // A replica claims the batch and stops.
        let now = kw.clock.now();
        let mut tx = kw.app.analytics.event_store().begin().await.unwrap();
        let slow = tx.begin_delivery(now).await.unwrap();
        let taken = tx.claim_batches(slow, now, now.plus_ms(1_000), 10, usize::MAX).await.unwrap();
        tx.commit().await.unwrap();
        clickhouse_delivery::deliver(&kw.app.analytics).await.unwrap();
        assert_eq!((taken.len(), count(&kw).await), (1, 0), "the batch is claimed");

        kw.clock.advance_ms(1_000);
        clickhouse_delivery::deliver(&kw.app.analytics).await.unwrap();
        assert_eq!(count(&kw).await, 1);
        // Now it sends the batch.
        let line = taken[0].verifications.replacen('{', &format!("{{\"delivery\":{slow},"), 1);
        let client = &kw.clickhouse.as_ref().unwrap().client;
        client.insert("verifications", line).await.unwrap();
        let mut tx = kw.app.analytics.event_store().begin().await.unwrap();
        assert!(!tx.confirm_delivery(slow, 1).await.unwrap());
        drop(tx);

        assert_eq!(count(&kw).await, 1);
    }

    async fn batch_is_delivered_once_when_enqueued_again(kw) {
        let key = kw.create_key(json!({})).await;
        let parcel = |name: &str| store::outbox::OutboxBatch {
            name: name.into(),
            first_at: NOON,
            last_at: NOON,
            events: 1,
            ..Default::default()
        };
        for _ in 0..2 {
            let mut tx = kw.app.analytics.event_store().begin().await.unwrap();
            tx.enqueue_batch(&parcel("r 7"), NOON).await.unwrap();
            tx.commit().await.unwrap();
        }
        let waiting = || async {
            kw.app.analytics.event_store().read_local().await.unwrap().count_undelivered().await.unwrap().events
        };
        assert_eq!(waiting().await, 1);
        clickhouse_delivery::deliver(&kw.app.analytics).await.unwrap();
        assert_eq!(waiting().await, 0);

        // Its writer does not know that it was enqueued, and enqueues it again after it was delivered.
        let mut tx = kw.app.analytics.event_store().begin().await.unwrap();
        tx.enqueue_batch(&parcel("r 7"), NOON).await.unwrap();
        tx.commit().await.unwrap();

        assert_eq!(waiting().await, 0);
        drop(key);
    }

    async fn claim_ends_at_a_number_of_bytes_and_has_a_batch(kw) {
        let mut tx = kw.app.analytics.event_store().begin().await.unwrap();
        for n in 1..=4 {
            let batch = store::outbox::OutboxBatch {
                name: format!("r {n}"),
                events: 1,
                verifications: "v".repeat(600),
                ratelimits: "r".repeat(400),
                ..Default::default()
            };
            tx.enqueue_batch(&batch, NOON).await.unwrap();
        }

        let mut claimed = Vec::new();
        for bytes_max in [1_999, 2_000, 1] {
            let delivery = tx.begin_delivery(NOON).await.unwrap();
            let until = NOON.plus_ms(1);
            let batches = tx.claim_batches(delivery, NOON, until, 10, bytes_max).await.unwrap();
            claimed.push(batches.len());
        }

        assert_eq!(claimed, [1, 2, 1]);
    }

    async fn day_rollup_equals_its_events(kw) {
        let key = kw.create_key(json!({})).await;
        for _ in 0..3 {
            kw.verify(&key.key).await.assert_code("VALID");
            kw.clock.advance_ms(HOUR_MS);
        }
        kw.write_events().await;
        kw.clock.advance_ms(DAY_MS);
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;
        let hours = counts(&kw, RollupUnit::Hour).await;
        let hour_latencies = latencies(&kw, RollupUnit::Hour).await;
        let client = &kw.clickhouse.as_ref().unwrap().client;
        let events: Vec<(i64,)> = client.fetch_rows("SELECT latency_us FROM verifications", &[]).await.unwrap();
        let (mut of_events, mut of_hours) = (LatencyHistogram::default(), LatencyHistogram::default());
        for (latency_us,) in &events {
            of_events.add(*latency_us);
        }
        for (_, histogram) in &hour_latencies {
            of_hours.merge(histogram);
        }
        assert_eq!((events.len(), hour_latencies.len(), of_hours), (4, 4, of_events));
        let of_key = latencies_of_key(&kw, &key.id).await;
        let medians: Vec<_> = hour_latencies.iter().map(|(_, histogram)| histogram.percentile_us(50)).collect();
        assert_eq!(of_key.iter().map(|latencies| latencies.percentile_us(50)).collect::<Vec<_>>(), medians);
        assert_eq!(latencies_of_key(&kw, "key_none").await, []);

        clickhouse_delivery::maintain(&kw.app.analytics).await.unwrap();

        let delivered = kw.app.analytics.event_store().read_local().await.unwrap().delivery_snapshot().await.unwrap();
        let midnight = NOON.0 + DAY_MS / 2;
        assert_eq!((delivered.rolled_up_until_ms, delivered.void_deliveries), (midnight, vec![]));
        assert_eq!(hours.len(), 4);
        assert_eq!(counts(&kw, RollupUnit::Hour).await, hours);
        assert_eq!(latencies(&kw, RollupUnit::Hour).await, hour_latencies);
        assert_eq!(latencies_of_key(&kw, &key.id).await, of_key);
        assert_eq!(counts(&kw, RollupUnit::Day).await, [(midnight - DAY_MS, 3), (midnight, 1)]);
        assert_eq!(counts(&kw, RollupUnit::Minute).await.len(), 4, "minutes are computed from the events");
    }

    async fn percentiles_of_hours_of_an_older_version_are_the_ends_of_its_buckets(kw) {
        let key = kw.create_key(json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;
        kw.clock.advance_ms(2 * DAY_MS);
        clickhouse_delivery::maintain(&kw.app.analytics).await.unwrap();
        let client = &kw.clickhouse.as_ref().unwrap().client;
        for column in ["latency_buckets", "latency_counts", "region"] {
            client.execute(&format!("ALTER TABLE verification_hours DROP COLUMN {column}")).await.unwrap();
        }
        let hour = NOON.0 - DAY_MS;
        client
            .execute(&format!(
                "INSERT INTO verification_hours (time, workspace_id, api_id, outcome, count, latency_us, latency_le_500us,
                    latency_le_25ms, delivery)
                VALUES ({hour}, 'ws_default', 'api_a', 'VALID', 100, 1000, 90, 8, 1)"
            ))
            .await
            .unwrap();

        // The replica that is updated adds the columns, and every other one finds them.
        client.create_tables().await.unwrap();
        client.create_tables().await.unwrap();

        let found = latencies(&kw, RollupUnit::Hour).await;
        let (_, histogram) = found.iter().find(|(time, _)| *time == hour).expect("the hour");
        let percentiles = [50, 95, 99].map(|percent| histogram.percentile_us(percent));
        assert_eq!(percentiles, [Some(491), Some(24_219), Some(105_644)]);
    }

    async fn day_is_rolled_up_after_an_hour_of_grace(kw) {
        let key = kw.create_key(json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;
        let summed_until = || async {
            clickhouse_delivery::maintain(&kw.app.analytics).await.unwrap();
            kw.app.analytics.event_store().read_local().await.unwrap().delivery_snapshot().await.unwrap().rolled_up_until_ms
        };
        let midnight = NOON.0 + DAY_MS / 2;

        kw.clock.advance_ms(12 * HOUR_MS + HOUR_MS - 1);
        assert_eq!(summed_until().await, midnight - DAY_MS);
        kw.clock.advance_ms(1);
        assert_eq!(summed_until().await, midnight);
    }

    async fn late_events_are_counted_in_the_next_rollup(kw) {
        let key = kw.create_key(json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;
        // Three events that are delayed for days.
        kw.verify(&key.key).await.assert_code("VALID");
        kw.clock.advance_ms(-DAY_MS);
        kw.verify(&key.key).await.assert_code("VALID");
        kw.clock.advance_ms(-DAY_MS);
        kw.verify(&key.key).await.assert_code("VALID");
        kw.clock.advance_ms(4 * DAY_MS);
        clickhouse_delivery::maintain(&kw.app.analytics).await.unwrap();
        assert_eq!(count(&kw).await, 1);

        kw.write_events().await;
        clickhouse_delivery::maintain(&kw.app.analytics).await.unwrap();

        let noon = NOON.0 - DAY_MS / 2;
        let days = [(noon - 2 * DAY_MS, 1), (noon - DAY_MS, 1), (noon, 2)];
        assert_eq!(counts(&kw, RollupUnit::Day).await, days);
        clickhouse_delivery::maintain(&kw.app.analytics).await.unwrap();
        assert_eq!(counts(&kw, RollupUnit::Day).await, days, "the rollup was counted twice");
    }

    async fn day_rollup_is_resumed_by_another_replica(kw) {
        let key = kw.create_key(json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;
        kw.clock.advance_ms(2 * DAY_MS);
        let now = kw.clock.now();
        let mut tx = kw.app.analytics.event_store().begin().await.unwrap();
        let day = tx.claim_day(now, now, NOON.plus_ms(-DAY_MS), now.plus_ms(1_000)).await.unwrap();
        tx.commit().await.unwrap();
        let day = day.expect("a day to roll up");
        let client = &kw.clickhouse.as_ref().unwrap().client;
        client.roll_up_day(EventKind::Verifications, &day).await.unwrap();
        clickhouse_delivery::maintain(&kw.app.analytics).await.unwrap();
        assert_eq!(counts(&kw, RollupUnit::Day).await.len(), 1, "days are computed from the events");

        kw.clock.advance_ms(1_000);
        clickhouse_delivery::maintain(&kw.app.analytics).await.unwrap();

        let delivered = kw.app.analytics.event_store().read_local().await.unwrap().delivery_snapshot().await.unwrap();
        assert!(delivered.rolled_up_until_ms > NOON.0 && delivered.void_deliveries == [day.delivery]);
        assert_eq!(counts(&kw, RollupUnit::Day).await, [(NOON.0 - DAY_MS / 2, 1)]);
    }

    async fn events_are_deleted_before_their_rollups(kw) {
        let key = kw.create_key(json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;
        kw.clock.advance_ms(89 * DAY_MS);
        clickhouse_delivery::maintain(&kw.app.analytics).await.unwrap();
        assert_eq!(counts(&kw, RollupUnit::Minute).await, [(NOON.0, 1)]);

        kw.clock.advance_ms(2 * DAY_MS);
        clickhouse_delivery::maintain(&kw.app.analytics).await.unwrap();

        assert_eq!(counts(&kw, RollupUnit::Minute).await, []);
        assert_eq!(counts(&kw, RollupUnit::Day).await, [(NOON.0 - DAY_MS / 2, 1)]);
    }

    async fn void_deliveries_are_deleted_after_a_day(kw) {
        let key = kw.create_key(json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        writer::write_buffered(&kw.app.analytics).await.unwrap();
        let now = kw.clock.now();
        let mut tx = kw.app.analytics.event_store().begin().await.unwrap();
        let gone = tx.begin_delivery(now).await.unwrap();
        let taken = tx.claim_batches(gone, now, now, 10, usize::MAX).await.unwrap();
        tx.commit().await.unwrap();
        let line = taken[0].verifications.replacen('{', &format!("{{\"delivery\":{gone},"), 1);
        let client = &kw.clickhouse.as_ref().unwrap().client;
        client.insert("verifications", line).await.unwrap();
        kw.write_events().await;
        assert_eq!(count(&kw).await, 1);
        let void = || async {
            clickhouse_delivery::maintain(&kw.app.analytics).await.unwrap();
            kw.app.analytics.event_store().read_local().await.unwrap().delivery_snapshot().await.unwrap().void_deliveries
        };
        kw.clock.advance_ms(DAY_MS);
        assert_eq!(void().await, [gone], "the delivery may still be in flight");
        kw.clock.advance_ms(1);

        // ClickHouse deletes asynchronously.
        for _ in 0..100 {
            if void().await.is_empty() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }

        let rows: Vec<(i64,)> =
            client.fetch_rows("SELECT delivery FROM verifications", &[]).await.unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!((void().await, count(&kw).await), (vec![], 1));
    }
}
