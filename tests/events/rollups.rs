//! Tests the rollups of events per minute, hour, day and month.

use std::time::Duration;

use analytics::traffic::{TrafficFilter, list_by_time};
use analytics::writer;
use foundation::clock::Timestamp;
use foundation::model::{EventKind, RollupUnit};
use keyward::analytics_worker;
use serde_json::json;
use sqlx::Executor as _;
use store::events::{EventDatabase, EventTx, LatencyHistogram};
use tokio::time::timeout;

use crate::on_both_stacks;
use crate::support::{Keyward, NOON, Stack};

const HOUR_MS: i64 = 3_600_000;
/// The start of the month of `NOON`.
const MARCH: i64 = 1_772_323_200_000;

const UNITS: [&str; 4] = [
    "SELECT time || ' ' || count || ' ' || spent_credits FROM verifications_per_minute ORDER BY time",
    "SELECT time || ' ' || count || ' ' || spent_credits FROM verifications_per_hour ORDER BY time",
    "SELECT time || ' ' || count || ' ' || spent_credits FROM verifications_per_day ORDER BY time",
    "SELECT time || ' ' || count || ' ' || spent_credits FROM verifications_per_month ORDER BY time",
];

async fn read_rollups(kw: &Keyward) -> Vec<Vec<String>> {
    let mut rollups = Vec::new();
    for sql in UNITS {
        rollups.push(kw.query_events(sql).await);
    }
    rollups
}

on_both_stacks! {
    async fn events_are_rolled_up_by_minute_hour_day_and_month(kw) {
    let key = kw.create_key(json!({ "credits": { "remaining": 100 } })).await;
    kw.verify(&key.key).await.assert_code("VALID");
    kw.clock.advance_ms(59_999);
    kw.verify(&key.key).await.assert_code("VALID");
    kw.clock.advance_ms(1);
    kw.verify(&key.key).await.assert_code("VALID");
    kw.clock.advance_ms(12 * HOUR_MS);
    kw.verify(&key.key).await.assert_code("VALID");

    kw.write_events().await;
    writer::roll_up(&kw.app.analytics).await.unwrap();

    let midnight = NOON.0 + 12 * HOUR_MS;
    let minute = midnight + 60_000;
    assert_eq!(
        read_rollups(&kw).await,
        [
            vec![
                format!("{} 2 2", NOON.0),
                format!("{} 1 1", NOON.0 + 60_000),
                format!("{minute} 1 1")
            ],
            vec![format!("{} 3 3", NOON.0), format!("{midnight} 1 1")],
            vec![format!("{} 3 3", NOON.0 - 12 * HOUR_MS), format!("{midnight} 1 1")],
            vec![format!("{MARCH} 4 4")],
        ]
    );
    }
}

on_both_stacks! {
    async fn batch_is_rolled_up_once_when_requested_repeatedly(kw) {
    let key = kw.create_key(json!({})).await;
    let replica = kw.replica().await;
    for _ in 0..3 {
        for server in [&kw, &replica] {
            server.verify(&key.key).await.assert_code("VALID");
            server.write_events().await;
        }
        let (here, there) = tokio::join!(writer::roll_up(&kw.app.analytics), writer::roll_up(&replica.app.analytics));
        here.unwrap();
        there.unwrap();
    }

    let counts = kw.query_events("SELECT CAST(count AS TEXT) FROM verifications_per_day").await;
    assert_eq!(counts, ["6"]);
    }
}

on_both_stacks! {
    async fn totals_are_written_with_the_events(kw) {
    let key = kw.create_key(json!({ "credits": { "remaining": 1 } })).await;
    kw.verify(&key.key).await.assert_code("VALID");
    kw.verify(&key.key).await.assert_code("USAGE_EXCEEDED");
    kw.write_events().await;
    let check = json!({ "namespace": "email", "identifier": "ann", "limit": 3, "duration": 60_000, "cost": 2 });
    kw.v2("ratelimit.limit", check.clone()).await.data();
    kw.v2("ratelimit.limit", check).await.data();
    kw.verify(&key.key).await.assert_code("USAGE_EXCEEDED");

    kw.write_events().await;

    let verifications = kw
        .query_events(
            "SELECT unit || ' ' || time || ' ' || outcome || ' ' || count || ' ' || spent_credits
            FROM verification_totals WHERE unit IN ('minute', 'month') ORDER BY 1",
        )
        .await;
    assert_eq!(
        verifications,
        [
            format!("minute {} USAGE_EXCEEDED 2 0", NOON.0),
            format!("minute {} VALID 1 1", NOON.0),
            format!("month {MARCH} USAGE_EXCEEDED 2 0"),
            format!("month {MARCH} VALID 1 1"),
        ]
    );
    let checks = kw
        .query_events(
            "SELECT unit || ' ' || count || ' ' || tokens FROM ratelimit_totals
            WHERE unit = 'day' ORDER BY passed",
        )
        .await;
    assert_eq!(checks, ["day 1 2", "day 1 2"]);
    }
}

/// Selects a day of all APIs.
const A_DAY: TrafficFilter<'_> = TrafficFilter {
    kind: EventKind::Verifications,
    resource_id: None,
    unit: RollupUnit::Day,
    from_time: NOON,
    until_time: Timestamp(NOON.0 + 1),
};

on_both_stacks! {
    async fn histograms_have_the_latencies_of_all_batches(kw) {
    let key = kw.create_key(json!({})).await;
    for _ in 0..3 {
        for _ in 0..4 {
            kw.verify(&key.key).await.assert_code("VALID");
        }
        kw.write_events().await;
    }

    let latencies = kw.query_events("SELECT CAST(latency_us AS TEXT) FROM verifications").await;
    let mut expected = LatencyHistogram::default();
    for us in &latencies {
        expected.add(us.parse().unwrap());
    }
    assert_eq!(latencies.len(), 12);
    let stored = kw
        .query_events("SELECT CAST(histogram AS TEXT) FROM latencies WHERE kind = 'verifications'")
        .await;
    assert_eq!(stored.len(), 8, "of every unit, of the API and of all");
    for histogram in &stored {
        assert_eq!(LatencyHistogram::parse(histogram).unwrap(), expected);
    }
    }
}

on_both_stacks! {
    async fn percentiles_of_an_api_are_those_of_its_requests(kw) {
    let api = kw.create_api().await;
    let (key, other) = (kw.create_key_in(&api, json!({})).await, kw.create_key(json!({})).await);
    kw.verify(&key.key).await.assert_code("VALID");
    kw.write_events().await;
    kw.change_events("UPDATE latencies SET histogram = '{\"72\":1}'").await;
    kw.verify(&other.key).await.assert_code("VALID");
    kw.verify("unknown").await.assert_code("NOT_FOUND");
    kw.write_events().await;
    let workspace = "ws_default".into();
    let median = async |filter: &TrafficFilter<'_>| {
        let traffic = list_by_time(&kw.app.analytics, &workspace, filter).await.unwrap();
        traffic[0].1.latencies.clone()
    };

    let of_one = median(&TrafficFilter { resource_id: Some(&api), ..A_DAY }).await;
    let of_all = median(&A_DAY).await;

    assert_eq!(of_one.percentile_us(50), Some(491));
    assert_eq!(of_one.percentile_us(99), Some(491));
    assert_ne!(of_all.percentile_us(99), None);
    let counted = kw.query_events("SELECT CAST(histogram AS TEXT) FROM latencies WHERE resource_id = '*' AND unit = 'day'").await;
    let numbers: serde_json::Value = serde_json::from_str(&counted[0]).unwrap();
    let sum: i64 = numbers.as_object().unwrap().values().filter_map(serde_json::Value::as_i64).sum();
    assert_eq!(sum, 3, "those of both APIs, and of the key that was not found");
    }
}

on_both_stacks! {
    async fn percentiles_of_totals_of_an_older_version_are_the_ends_of_its_buckets(kw) {
    let key = kw.create_key(json!({})).await;
    kw.verify(&key.key).await.assert_code("VALID");
    kw.write_events().await;
    // Of 100 latencies, 90 are up to 500 µs, 8 up to 25 ms and 2 longer than 100 ms.
    kw.change_events(
        "UPDATE verification_totals SET count = 100, latency_us = 1000, latency_le_100us = 0,
            latency_le_500us = 90, latency_le_1ms = 0, latency_le_5ms = 0, latency_le_25ms = 8,
            latency_le_100ms = 0",
    )
    .await;
    kw.change_events("DELETE FROM latencies").await;
    let migration = match &kw.app.analytics.event_store().database {
        EventDatabase::Postgres { .. } => include_str!("../../migrations/events/postgres/0006_latencies.sql"),
        EventDatabase::Sqlite { .. } => include_str!("../../migrations/events/sqlite/0006_latencies.sql"),
    };
    let (_, backfill) = migration.split_once("-- Of earlier totals").expect("the statement");

    kw.change_events(backfill.split_once('\n').expect("the rest").1).await;

    let traffic = list_by_time(&kw.app.analytics, &"ws_default".into(), &A_DAY).await.unwrap();
    let percentiles = [50, 95, 99].map(|percent| traffic[0].1.latencies.percentile_us(percent));
    assert_eq!(percentiles, [Some(491), Some(24_219), Some(105_644)]);
    }
}

on_both_stacks! {
    async fn every_latency_is_counted_in_one_bucket_or_above_all(kw) {
    let key = kw.create_key(json!({})).await;
    for _ in 0..5 {
        kw.verify(&key.key).await.assert_code("VALID");
    }
    kw.write_events().await;
    writer::roll_up(&kw.app.analytics).await.unwrap();

    for sql in [
        "SELECT (latency_le_100us + latency_le_500us + latency_le_1ms + latency_le_5ms + latency_le_25ms
            + latency_le_100ms) || ' ' || count FROM verifications_per_day",
        "SELECT (latency_le_100us + latency_le_500us + latency_le_1ms + latency_le_5ms + latency_le_25ms
            + latency_le_100ms) || ' ' || count FROM verification_totals WHERE unit = 'day'",
    ] {
        let beyond = kw.query_events("SELECT request_id FROM verifications WHERE latency_us > 100000").await;
        assert_eq!(kw.query_events(sql).await, [format!("{} 5", 5 - beyond.len())]);
    }
    }
}

on_both_stacks! {
    async fn rollup_amount_saturates_when_it_overflows(kw) {
        let most = 35_184_372_088_831_i64;
        let check = json!({
            "namespace": "email", "identifier": "ann", "limit": 1, "duration": 60_000, "cost": most
        });
        kw.v2("ratelimit.limit", check.clone()).await.data();
        kw.write_events().await;
        writer::roll_up(&kw.app.analytics).await.unwrap();
        kw.change_events("UPDATE ratelimit_totals SET tokens = 9223372036854775806").await;
        kw.change_events("UPDATE ratelimits_per_day SET tokens = 9223372036854775806").await;

        kw.v2("ratelimit.limit", check).await.data();
        kw.write_events().await;
        writer::roll_up(&kw.app.analytics).await.unwrap();

        for sql in [
            "SELECT tokens || ' ' || count FROM ratelimit_totals WHERE unit = 'day'",
            "SELECT tokens || ' ' || count FROM ratelimits_per_day",
        ] {
            assert_eq!(kw.query_events(sql).await, ["9223372036854775807 2"]);
        }
    }
}

on_both_stacks! {
    async fn batch_of_stopped_replica_is_rolled_up_by_another_after_a_minute(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 10 } })).await;
        let replica = kw.replica().await;
        for _ in 0..2 {
            kw.verify(&key.key).await.assert_code("VALID");
            kw.write_events().await;
        }
        let check = json!({ "namespace": "email", "identifier": "ann", "limit": 9, "duration": 60_000, "cost": 3 });
        kw.v2("ratelimit.limit", check).await.data();
        kw.write_events().await;

        replica.clock.advance_ms(60_000);
        writer::roll_up(&replica.app.analytics).await.unwrap();
        assert_eq!(read_rollups(&kw).await, [[""; 0]; 4], "the replica may still roll it up");
        replica.clock.advance_ms(1);
        writer::roll_up(&replica.app.analytics).await.unwrap();
        writer::roll_up(&replica.app.analytics).await.unwrap();
        // The replica that was unreachable is too late with its own rollup.
        writer::roll_up(&kw.app.analytics).await.unwrap();

        let day = NOON.0 - 12 * HOUR_MS;
        assert_eq!(read_rollups(&kw).await[2], [format!("{day} 2 2")]);
        let checks = "SELECT time || ' ' || count || ' ' || tokens FROM ratelimits_per_day";
        assert_eq!(kw.query_events(checks).await, [format!("{day} 1 3")]);
    }
}

on_both_stacks! {
    async fn rollup_of_overdue_batch_leaves_recent_batches(kw) {
        let key = kw.create_key(json!({})).await;
        let replica = kw.replica().await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;
        replica.clock.advance_ms(60_001);
        writer::roll_up(&replica.app.analytics).await.unwrap();
        kw.clock.advance_ms(60_001);
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;

        writer::roll_up(&kw.app.analytics).await.unwrap();
        assert_eq!(read_rollups(&kw).await[3], [format!("{MARCH} 1 0")], "the second batch is not overdue yet");
        kw.clock.advance_ms(60_001);
        writer::roll_up(&kw.app.analytics).await.unwrap();

        assert_eq!(read_rollups(&kw).await[3], [format!("{MARCH} 2 0")]);
    }
}

on_both_stacks! {
    async fn events_are_rolled_up_when_server_stops(kw) {
        let key = kw.create_key(json!({})).await;
        kw.write_events().await;
        let stopping = kw.replica().await;
        let worker = analytics_worker::start(&stopping.app).unwrap();
        stopping.verify(&key.key).await.assert_code("VALID");

        worker.stop().await;

        let day = NOON.0 - 12 * HOUR_MS;
        assert_eq!(read_rollups(&kw).await[2], [format!("{day} 1 0")]);
    }
}

/// A replica that is paused, or that the network drops, keeps its locks until Postgres ends its transaction.
#[tokio::test]
async fn rollup_is_delayed_for_seconds_when_another_replica_is_paused_in_one() {
    let kw = Keyward::start(Stack::Replica).await;
    let key = kw.create_key(json!({})).await;
    kw.verify(&key.key).await.assert_code("VALID");
    let mut paused = kw.app.analytics.event_store().begin().await.unwrap();
    let EventTx::Postgres(tx) = &mut paused else { panic!("not Postgres") };
    tx.execute("LOCK TABLE verifications_per_minute IN EXCLUSIVE MODE").await.unwrap();

    let rollup = async {
        kw.write_events().await;
        writer::roll_up(&kw.app.analytics).await
    };
    timeout(Duration::from_secs(8), rollup).await.expect("Postgres ends a transaction").unwrap();

    assert_eq!(read_rollups(&kw).await[0].len(), 1);
}
