//! Tests reads among many events: what is found, and that few rows are read.

use analytics::event_log::{self, LogQuery, VerificationLogFilter};
use analytics::recent::RecentVerification;
use analytics::rollup_query::{self, RollupGrouping, RollupOrder, RollupQuery, RollupUnit};
use analytics::top_identifiers::{self, IdentifierOrder, IdentifierQuery};
use analytics::writer;
use foundation::clock::{DAY_MS, HOUR_MS, MINUTE_MS};
use foundation::id::WorkspaceId;
use serde_json::json;
use store::events::EventDatabase;

use crate::on_both_stacks;
use crate::support::work_meter::WorkMeter;
use crate::support::{Keyward, NOON, Stack};

/// The days with events of a busy key, one a minute.
const DAYS: i64 = 20;
/// The other keys, each with one event in the last minutes.
const OTHER_KEYS: i64 = 500;
/// The most rows (Postgres) or hundreds of steps (SQLite) that one page reads.
const PAGE_WORK_MAX: usize = 6_000;
/// The same for the minutes of a key.
const MINUTES_WORK_MAX: usize = 2_000;
/// The same for the series of an identity.
const SERIES_WORK_MAX: usize = 1_000;

fn workspace() -> WorkspaceId {
    WorkspaceId::from("ws_default")
}

/// Runs a statement whose `n` has the numbers from 0 on.
async fn insert(kw: &Keyward, count: i64, sql: &str) {
    let numbers = format!(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {count} - 1)"
    );
    kw.change_events(String::leak(format!("{numbers} {sql}"))).await;
}

/// Returns the SQL for the id of the series with a number.
fn series_id_sql(stack: Stack, number: &str) -> String {
    match stack {
        Stack::Embedded => format!("unhex(printf('%032d', {number}))"),
        Stack::Replica => format!("decode(lpad(CAST({number} AS TEXT), 32, '0'), 'hex')"),
    }
}

const LATENCIES: &str = "latency_us, latency_le_100us, latency_le_500us, latency_le_1ms, latency_le_5ms, latency_le_25ms, \
    latency_le_100ms";
const NO_LATENCIES: &str = "0, 0, 0, 0, 0, 0, 0";

/// Stores the events of a busy key until now, and those of other keys, with their rollups and totals. Each key has a series, whose
/// id is its number.
async fn fill(kw: &Keyward) {
    kw.write_events().await;
    for _ in 0..=DAYS {
        writer::maintain_partitions(&kw.app.analytics).await.unwrap();
        kw.clock.advance_ms(DAY_MS);
    }
    let end = RollupUnit::Day.start_of(kw.app.context.clock.now()).0;
    let series = series_id_sql(kw.stack, "i");
    let sql = format!(
        "INSERT INTO verification_series
            (id, workspace_id, api_id, key_id, identity_id, external_id, outcome, tags, seen_at)
        SELECT {series}, 'ws_default', 'api_1', 'key_' || i, '', 'user_' || i, 'VALID', '[]', 0 FROM n"
    );
    insert(kw, OTHER_KEYS + 1, &sql).await;
    let busy = format!("{end} - (i + 1) * {MINUTE_MS}");
    let other = format!("{end} - 1 - i");
    for (count, time, number) in [(DAYS * 1440, busy, "0"), (OTHER_KEYS, other, "i + 1")] {
        let series = series_id_sql(kw.stack, number);
        let sql = format!(
            "INSERT INTO verifications (time, series, batch, request_id, spent_credits, latency_us, region, reason)
            SELECT {time}, {series}, 0, 'req_' || i, 1, 5, '', '' FROM n"
        );
        insert(kw, count, &sql).await;
    }
    for (unit, length) in [("minute", MINUTE_MS), ("hour", HOUR_MS), ("day", DAY_MS)] {
        let sums = format!("COUNT(*), COUNT(*), {NO_LATENCIES} FROM verifications");
        for sql in [
            format!(
                "INSERT INTO verifications_per_{unit} (series, time, count, spent_credits, {LATENCIES})
                SELECT series, time - time % {length}, {sums} GROUP BY 1, 2"
            ),
            format!(
                "INSERT INTO verification_totals
                    (workspace_id, api_id, unit, time, outcome, count, spent_credits, {LATENCIES})
                SELECT 'ws_default', 'api_1', '{unit}', time - time % {length}, 'VALID', {sums} GROUP BY 4"
            ),
        ] {
            insert(kw, 1, &sql).await;
        }
    }
    if kw.stack == Stack::Replica {
        kw.change_events("ANALYZE").await;
    }
}

/// Selects a page of the log of all days.
fn all_days(kw: &Keyward) -> LogQuery {
    let now = kw.app.context.clock.now();
    LogQuery {
        resource_id: String::new(),
        outcome: String::new(),
        from_time: now.plus_ms(-30 * DAY_MS),
        until_time: now,
        cursor: None,
        rows_max: 50,
    }
}

/// Reads a page of the log of a key and an identity, or of all.
async fn read_log(
    kw: &Keyward,
    query: &LogQuery,
    [key_id, external_id]: [&str; 2],
) -> Vec<RecentVerification> {
    let verifications = VerificationLogFilter { key_id, external_id, region: "" };
    event_log::list_verifications(&kw.app.analytics, &workspace(), query, &verifications)
        .await
        .unwrap()
        .events
}

on_both_stacks! {
    async fn log_reads_few_events_however_often_it_is_read(kw) {
        fill(&kw).await;
        let analytics = &kw.app.analytics;
        let meter = WorkMeter::of_events(analytics.event_store(), "").await;

        // Postgres may change the plan of a statement after its first executions.
        for _ in 0..20 {
            let events = read_log(&kw, &all_days(&kw), ["", ""]).await;
            assert_eq!(events.len(), 50);
            let first = &events[0];
            assert_eq!((first.key_id.as_str(), first.request_id.as_str()), ("key_1", "req_0"));
        }

        let work = meter.measure().await / 20;
        assert!((1..PAGE_WORK_MAX).contains(&work), "{work}");
    }

    async fn statements_are_planned_for_their_values(kw) {
        fill(&kw).await;
        let analytics = &kw.app.analytics;
        for _ in 0..20 {
            read_log(&kw, &all_days(&kw), ["", ""]).await;
        }
        let EventDatabase::Postgres { read, .. } = &analytics.event_store().database else { return };
        let pool = read.get();
        let (mut connections, mut plans) = (Vec::new(), (0, 0));

        for _ in 0..pool.options().get_max_connections() {
            let mut connection = pool.acquire().await.unwrap();
            let sql = "SELECT CAST(COALESCE(SUM(custom_plans), 0) AS BIGINT), CAST(COALESCE(SUM(generic_plans), 0) AS BIGINT)
                FROM pg_prepared_statements WHERE cardinality(parameter_types) > 0";
            let of_connection: (i64, i64) = sqlx::query_as(sql).fetch_one(&mut *connection).await.unwrap();
            plans = (plans.0 + of_connection.0, plans.1 + of_connection.1);
            connections.push(connection);
        }

        assert!(plans.0 >= 20 && plans.1 == 0, "custom and generic plans: {plans:?}");
    }

    async fn log_of_a_busy_key_or_identity_reads_few_minutes(kw) {
        fill(&kw).await;
        let analytics = &kw.app.analytics;
        for consumer in [["key_0", ""], ["", "user_0"], ["key_0", "user_0"]] {
            let meter = WorkMeter::of_events(analytics.event_store(), "verifications_per_minute").await;

            let first = read_log(&kw, &all_days(&kw), consumer).await;
            let cut = first.last().unwrap().occurred_at;
            let next = read_log(&kw, &LogQuery { until_time: cut, ..all_days(&kw) }, consumer).await;

            let work = meter.measure().await / 2;
            let requests: Vec<_> = first.iter().chain(&next).map(|event| event.request_id.clone()).collect();
            assert_eq!(requests, (0..100).map(|n| format!("req_{n}")).collect::<Vec<_>>());
            assert!((1..MINUTES_WORK_MAX).contains(&work), "{work}");
        }
    }

    async fn series_of_an_identity_are_found_among_many(kw) {
        fill(&kw).await;
        let analytics = &kw.app.analytics;
        let series = series_id_sql(kw.stack, "1000 + i");
        let sql = format!(
            "INSERT INTO verification_series
                (id, workspace_id, api_id, key_id, identity_id, external_id, outcome, tags, seen_at)
            SELECT {series}, 'ws_default', 'api_1', 'key_x' || i, '', 'other_' || i % 9999, 'VALID', '[]', 0 FROM n"
        );
        insert(&kw, 20_000, &sql).await;
        if kw.stack == Stack::Replica {
            kw.change_events("ANALYZE").await;
        }
        let now = kw.app.context.clock.now();
        let sum = RollupQuery {
            external_id: Some("user_1".into()),
            from_time: now.plus_ms(-2 * DAY_MS),
            to_time: now,
            ..RollupQuery::default()
        };
        let meter = WorkMeter::of_events(analytics.event_store(), "verification_series").await;

        let groups = rollup_query::list_groups(analytics, &workspace(), &[], &sum).await.unwrap();
        let events = read_log(&kw, &all_days(&kw), ["", "user_1"]).await;

        let work = meter.measure().await;
        assert_eq!(groups.iter().map(|group| group.counts.total).collect::<Vec<_>>(), [1]);
        assert_eq!(events.len(), 1);
        assert!((1..SERIES_WORK_MAX).contains(&work), "{work}");
    }

    async fn checks_of_an_identifier_are_found_among_many(kw) {
        for namespace in ["email", "sms"] {
            kw.check_limit(namespace, "ann", json!({})).await.data();
        }
        kw.write_events().await;
        writer::roll_up(&kw.app.analytics).await.unwrap();
        let series = series_id_sql(kw.stack, "1000 + i");
        let sql = format!(
            "INSERT INTO ratelimit_series (id, workspace_id, namespace_id, identifier, passed, seen_at)
            SELECT {series}, 'ws_default', 'rlns_' || i % 3, 'other_' || i, CAST(1 AS {}), 0 FROM n",
            if kw.stack == Stack::Replica { "BOOLEAN" } else { "INTEGER" }
        );
        insert(&kw, 20_000, &sql).await;
        if kw.stack == Stack::Replica {
            kw.change_events("ANALYZE").await;
        }
        kw.clock.advance_ms(MINUTE_MS);
        let analytics = &kw.app.analytics;
        let meter = WorkMeter::of_events(analytics.event_store(), "ratelimit_series").await;

        let page = event_log::list_checks(analytics, &workspace(), &all_days(&kw), "ann").await.unwrap();

        let work = meter.measure().await;
        assert_eq!(page.events.len(), 2);
        assert!((1..SERIES_WORK_MAX).contains(&work), "{work}");
    }

    async fn top_keys_read_days_instead_of_their_hours(kw) {
        fill(&kw).await;
        let analytics = &kw.app.analytics;
        let end = RollupUnit::Day.start_of(kw.app.context.clock.now());
        // 100 keys that were verified once an hour, until the last day.
        let series = series_id_sql(kw.stack, "1 + i % 100");
        for (unit, length, count) in [("hour", HOUR_MS, 1), ("day", DAY_MS, 24)] {
            let units = 19 * DAY_MS / length;
            let last = end.plus_ms(-DAY_MS).0;
            let sql = format!(
                "INSERT INTO verifications_per_{unit} (series, time, count, spent_credits, {LATENCIES})
                SELECT {series}, {last} - (1 + i / 100) * {length}, {count}, 0, {NO_LATENCIES} FROM n"
            );
            insert(&kw, 100 * units, &sql).await;
        }
        let query = RollupQuery {
            from_time: end.plus_ms(-19 * DAY_MS - HOUR_MS),
            to_time: end.plus_ms(-1),
            grouping: RollupGrouping { is_by_key: true, ..RollupGrouping::default() },
            order: Some(RollupOrder::Total),
            is_descending: true,
            limit: Some(2),
            ..RollupQuery::default()
        };
        let meter = WorkMeter::of_events(analytics.event_store(), "").await;

        let top = rollup_query::list_groups(analytics, &workspace(), &[], &query).await.unwrap();

        let work = meter.measure().await;
        let counts: Vec<_> = top.iter().map(|group| (group.key_id.as_str(), group.counts.total)).collect();
        assert_eq!(counts, [("key_0", 19 * 1440 + 60), ("key_1", 18 * 24 + 2)]);
        assert!((1..PAGE_WORK_MAX).contains(&work), "{work}");
    }

    async fn chart_of_a_tag_reads_its_rollups_once(kw) {
        fill(&kw).await;
        kw.change_events("UPDATE verification_series SET tags = '[\"slow\"]' WHERE key_id = 'key_0'").await;
        kw.change_events("UPDATE verifications_per_hour SET histogram = '{\"3\":60}'").await;
        if kw.stack == Stack::Replica {
            kw.change_events("ANALYZE").await;
        }
        let analytics = &kw.app.analytics;
        // The other keys have events on the last day.
        let end = RollupUnit::Day.start_of(kw.app.context.clock.now()).plus_ms(-DAY_MS);
        let week = || RollupQuery {
            tags: vec!["slow".into()],
            from_time: end.plus_ms(-7 * DAY_MS),
            to_time: end.plus_ms(-1),
            unit: Some(RollupUnit::Hour),
            ..RollupQuery::default()
        };
        let table = "verifications_per_hour";

        let meter = WorkMeter::of_events(analytics.event_store(), table).await;
        let groups = rollup_query::list_groups(analytics, &workspace(), &[], &week()).await.unwrap();
        let work_of_numbers = meter.measure().await;
        let meter = WorkMeter::of_events(analytics.event_store(), table).await;
        let found = rollup_query::list_with_latencies(analytics, &workspace(), &[], week()).await.unwrap();
        let work = meter.measure().await;

        assert_eq!(groups.iter().map(|group| group.counts.total).collect::<Vec<_>>(), [60; 7 * 24]);
        let (numbers, latencies): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        assert_eq!(numbers, groups);
        assert!(latencies.iter().all(|of_hour| of_hour.percentile_us(50) == Some(1)), "{latencies:?}");
        assert!(work < work_of_numbers * 3 / 2, "{work} instead of {work_of_numbers}");
    }

    async fn sums_without_time_are_those_of_the_hours(kw) {
        let keys = [kw.create_key(json!({})).await, kw.create_key(json!({})).await];
        let check = json!({ "limit": 2 });
        for step in 0..90_usize {
            for key in keys.iter().take(1 + step % 2) {
                kw.verify(&key.key).await.assert_code("VALID");
            }
            kw.check_limit("email", "ann", check.clone()).await.data();
            kw.clock.advance_ms(53 * MINUTE_MS);
            // The last ones are not rolled up.
            if step == 80 {
                kw.write_events().await;
                writer::roll_up(&kw.app.analytics).await.unwrap();
            }
        }
        kw.write_events().await;
        let analytics = &kw.app.analytics;

        for (from, until) in [(0, 80), (12, 36), (13, 59), (11, 61), (20, 21), (40, 40), (-30, 200)] {
            let [from, until] = [from, until].map(|hours| NOON.plus_ms(hours * HOUR_MS));
            let query = |unit, grouping| RollupQuery {
                from_time: from,
                to_time: until.plus_ms(-1),
                unit,
                grouping,
                ..RollupQuery::default()
            };
            let by_key = RollupGrouping { is_by_key: true, ..RollupGrouping::default() };
            let list = async |unit| {
                let query = query(unit, by_key);
                let groups = rollup_query::list_groups(analytics, &workspace(), &[], &query).await.unwrap();
                keys.iter().map(|key| {
                    let of_key = groups.iter().filter(|group| group.key_id == key.id);
                    of_key.map(|group| group.counts.total).sum::<i64>()
                }).collect::<Vec<_>>()
            };
            assert_eq!(list(None).await, list(Some(RollupUnit::Hour)).await, "{from:?} to {until:?}");

            let top = IdentifierQuery {
                namespace_id: None,
                unit: RollupUnit::Hour,
                from_time: from,
                until_time: until,
                order: IdentifierOrder::Requests,
                limit: 10,
            };
            let found = top_identifiers::list(analytics, &workspace(), &top).await.unwrap();
            let is_within = |step: &i64| {
                let hour = RollupUnit::Hour.start_of(NOON.plus_ms(step * 53 * MINUTE_MS));
                (from..until).contains(&hour)
            };
            let expected = i64::try_from((0..90).filter(is_within).count()).unwrap();
            assert_eq!(found.iter().map(|row| row.total).sum::<i64>(), expected, "{from:?} to {until:?}");
        }
    }
}
