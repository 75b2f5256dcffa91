//! Tests the latencies of the verifications of keys, identities and tags.

use analytics::rollup_query::{RollupQuery, RollupUnit, list_with_latencies};
use analytics::traffic::LatencyStats;
use analytics::writer;
use foundation::clock::{DAY_MS, HOUR_MS};
use serde_json::json;
use store::events::LatencyHistogram;

use crate::on_both_stacks;
use crate::support::{Keyward, NOON, Stack};

/// Returns the latencies of the units that have any, within two days from noon.
pub async fn latencies(kw: &Keyward, unit: RollupUnit, query: RollupQuery) -> Vec<LatencyStats> {
    let query = RollupQuery {
        from_time: unit.start_of(NOON),
        to_time: NOON.plus_ms(2 * DAY_MS),
        unit: Some(unit),
        ..query
    };
    let groups = list_with_latencies(&kw.app.analytics, &"ws_default".into(), &[], query).await;
    let groups = groups.unwrap().into_iter();
    groups.filter(|(group, _)| group.counts.total > 0).map(|(_, latencies)| latencies).collect()
}

/// Returns the latencies of the events of series whose key, external id and tags contain a text.
async fn latencies_of_events(kw: &Keyward, text: &str) -> LatencyStats {
    let sql = "SELECT s.key_id || ' ' || s.external_id || ' ' || s.tags || ' ' || e.latency_us
        FROM verifications e JOIN verification_series s ON s.id = e.series";
    let (mut count, mut sum_us, mut histogram) = (0, 0, LatencyHistogram::default());
    for event in kw.query_events(sql).await.iter().filter(|event| event.contains(text)) {
        let latency_us = event.rsplit(' ').next().unwrap().parse().unwrap();
        count += 1;
        sum_us += latency_us;
        histogram.add(latency_us);
    }
    LatencyStats::new(count, sum_us, histogram)
}

on_both_stacks! {
    async fn latencies_of_a_key_an_identity_and_a_tag_are_those_of_their_verifications(kw) {
        let key = kw.create_key(json!({ "externalId": "acme" })).await;
        let other = kw.create_key(json!({})).await;
        let verify = async |times| {
            for _ in 0..times {
                kw.verify(&key.key).await.assert_code("VALID");
                let tagged = json!({ "key": other.key, "tags": ["slow", "path=/v1"] });
                kw.v2("keys.verifyKey", tagged).await.data();
                kw.verify(&other.key).await.assert_code("VALID");
            }
            kw.write_events().await;
        };
        verify(3).await;
        writer::roll_up(&kw.app.analytics).await.unwrap();
        verify(2).await;
        writer::roll_up(&kw.app.analytics).await.unwrap();
        verify(4).await;

        let of_key = RollupQuery { key_ids: vec![key.id.as_str().into()], ..RollupQuery::default() };
        let of_identity = RollupQuery { external_id: Some("acme".into()), ..RollupQuery::default() };
        let of_tag = RollupQuery { tags: vec!["slow".into()], ..RollupQuery::default() };
        let selections = [
            (of_key, &*key.id),
            (of_identity, "acme"),
            (of_tag, "slow"),
        ];
        for (query, text) in selections {
            let expected = latencies_of_events(&kw, text).await;
            assert_ne!(expected.percentile_us(99), None, "{text}");
            for unit in RollupUnit::ALL {
                let query = RollupQuery {
                    key_ids: query.key_ids.clone(),
                    external_id: query.external_id.clone(),
                    tags: query.tags.clone(),
                    ..RollupQuery::default()
                };
                let found = latencies(&kw, unit, query).await;
                assert_eq!(found, std::slice::from_ref(&expected), "{text} {unit:?}");
            }
        }
    }
}

on_both_stacks! {
    async fn latencies_in_rollups_of_an_older_version_are_the_ends_of_its_buckets(kw) {
        let key = kw.create_key(json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;
        writer::roll_up(&kw.app.analytics).await.unwrap();
        // Of 100 latencies, 90 are up to 500 µs, 8 up to 25 ms and 2 longer than 100 ms.
        kw.change_events(
            "UPDATE verifications_per_day SET histogram = '{}', count = 100, latency_us = 1000, latency_le_100us = 0,
                latency_le_500us = 90, latency_le_1ms = 0, latency_le_5ms = 0, latency_le_25ms = 8,
                latency_le_100ms = 0",
        )
        .await;

        let of_key = || RollupQuery { key_ids: vec![key.id.as_str().into()], ..RollupQuery::default() };
        let found = latencies(&kw, RollupUnit::Day, of_key()).await;

        let percentiles = [50, 95, 99].map(|percent| found[0].percentile_us(percent));
        assert_eq!(percentiles, [Some(491), Some(24_219), Some(105_644)]);
        assert_eq!(found[0].mean_us(), Some(10));
        // They remain when this version adds to the rollup.
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;
        writer::roll_up(&kw.app.analytics).await.unwrap();
        let found = latencies(&kw, RollupUnit::Day, of_key()).await;
        let percentiles = [50, 95, 99].map(|percent| found[0].percentile_us(percent));
        assert_eq!(percentiles, [Some(491), Some(24_219), Some(105_644)]);
    }
}

on_both_stacks! {
    async fn latencies_of_a_unit_are_those_of_all_its_series(kw) {
        kw.write_events().await;
        let series_count = 100;
        // One more series has no rollups.
        let numbers = format!("WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {series_count})");
        let id = match kw.stack {
            Stack::Embedded => "unhex(printf('%032d', i))",
            Stack::Replica => "decode(lpad(CAST(i AS TEXT), 32, '0'), 'hex')",
        };
        let day = RollupUnit::Day.start_of(NOON).0;
        let series = format!(
            "{numbers} INSERT INTO verification_series
                (id, workspace_id, api_id, key_id, identity_id, external_id, outcome, tags, seen_at)
            SELECT {id}, 'ws_default', 'api_1', 'key_' || i, '', '', 'VALID', '[\"slow\"]', {day} FROM n"
        );
        let rollups = format!(
            "{numbers} INSERT INTO verifications_per_day (series, time, count, spent_credits, latency_us, latency_le_100us,
                latency_le_500us, latency_le_1ms, latency_le_5ms, latency_le_25ms, latency_le_100ms)
            SELECT {id}, {day}, 1, 0, 500, 0, 1, 0, 0, 0, 0 FROM n WHERE i > 0"
        );
        kw.change_events(String::leak(series)).await;
        kw.change_events(String::leak(rollups)).await;
        kw.change_events("UPDATE verifications_per_day SET histogram = '{\"72\":1}'").await;

        let of_tag = RollupQuery { tags: vec!["slow".into()], ..RollupQuery::default() };
        let found = latencies(&kw, RollupUnit::Day, of_tag).await;

        let mut histogram = LatencyHistogram::default();
        histogram.add_to_bucket(72, series_count);
        assert_eq!(found, [LatencyStats::new(series_count, 500 * series_count, histogram)]);
    }
}

/// Returns the latencies of all events from a time until another one.
async fn latencies_between(kw: &Keyward, from_ms: i64, until_ms: i64) -> LatencyStats {
    let (mut count, mut sum_us, mut histogram) = (0, 0, LatencyHistogram::default());
    for event in kw.query_events("SELECT time || ' ' || latency_us FROM verifications").await {
        let (time, latency_us) = event.split_once(' ').unwrap();
        let latency_us = latency_us.parse().unwrap();
        if (from_ms..until_ms).contains(&time.parse().unwrap()) {
            count += 1;
            sum_us += latency_us;
            histogram.add(latency_us);
        }
    }
    LatencyStats::new(count, sum_us, histogram)
}

on_both_stacks! {
    async fn latencies_of_a_whole_period_are_those_of_its_events(kw) {
        let key = kw.create_key(json!({})).await;
        // The hours since noon: of the first day, all of the second one, and of the third one. The last event is not rolled up.
        for hours in [0, 2, 12, 12, 10, 12, 1] {
            writer::roll_up(&kw.app.analytics).await.unwrap();
            kw.clock.advance_ms(hours * HOUR_MS);
            kw.verify(&key.key).await.assert_code("VALID");
            kw.write_events().await;
        }

        for (from, until, expected) in [(1, 49, 5), (0, 50, 7), (2, 14, 1), (12, 36, 2), (12, 37, 3), (3, 14, 0)] {
            let (from_time, end) = (NOON.plus_ms(from * HOUR_MS), NOON.plus_ms(until * HOUR_MS));
            let query = RollupQuery {
                key_ids: vec![key.id.as_str().into()],
                from_time,
                to_time: end.plus_ms(-1),
                grain: RollupUnit::Hour,
                ..RollupQuery::default()
            };
            let found = list_with_latencies(&kw.app.analytics, &"ws_default".into(), &[], query).await.unwrap();
            let [(group, latencies)] = &found[..] else { panic!("{found:?}") };
            assert_eq!(group.counts.total, expected, "{from} {until}");
            assert_eq!(*latencies, latencies_between(&kw, from_time.0, end.0).await, "{from} {until}");
        }
    }
}
