use domain::analytics_access::minutes_retained_since;
use foundation::clock::DAY_MS;
use foundation::id::WorkspaceId;
use foundation::model::EventKind;
use serde_json::{Value, json};

use crate::on_every_event_store;
use crate::support::faulty_proxy::RequestFate;
use crate::support::json::Fields as _;
use crate::support::{Keyward, NOON, Reply, Stack};

const OPERATION: &str = "analytics.getVerifications";

async fn ask(kw: &Keyward, query: &str) -> Reply {
    kw.v2(OPERATION, json!({ "query": query })).await
}

async fn ask_as(kw: &Keyward, root_key: &str, query: &str) -> Value {
    kw.v2_as(root_key, OPERATION, json!({ "query": query })).await.data().clone()
}

#[tokio::test]
async fn four_questions_are_put_to_clickhouse_at_once_and_a_fifth_waits_for_its_turn() {
    let (kw, wire, _warehouse) = Keyward::start_with_faulty_clickhouse(Stack::Embedded).await;
    let question = || ask(&kw, "SELECT count() AS n FROM key_verifications_v1");
    wire.set_fates([RequestFate::NeverAnswered; 4]);
    let four = async { tokio::join!(question(), question(), question(), question()) };

    let fifth = async {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        question().await
    };
    tokio::select! {
        _ = four => panic!("they are not answered"),
        fifth = fifth => drop(fifth.assert_error(503, "service_unavailable")),
    }

    assert_eq!(question().await.data()[0]["n"], 0, "whoever goes away leaves room");
}

#[tokio::test]
async fn minutes_in_clickhouse_go_back_as_far_as_events_or_less() {
    for (raw_days, minute_days) in [(1, 90), (90, 1)] {
        let kw = Keyward::start_with_clickhouse_and(Stack::Embedded, |settings| {
            let retention = &mut settings.retention.verifications;
            (retention.raw_days, retention.minute_days) = (raw_days, minute_days);
        })
        .await;

        for (day, status) in [("08", 400_u16), ("09", 200)] {
            let table = "key_verifications_per_minute_v1";
            let query =
                format!("SELECT sum(count) AS n FROM {table} WHERE time >= '2026-03-{day}'");
            let reply = ask(&kw, &query).await;
            assert_eq!(reply.status, status, "{raw_days} and {minute_days}: {}", reply.text);
        }
        let since = minutes_retained_since(&kw.app.analytics, EventKind::Verifications);
        assert_eq!(since, NOON.plus_ms(-DAY_MS), "{raw_days} and {minute_days}");
    }
}

on_every_event_store! {
    async fn a_verification_is_told_with_all_that_is_known_of_it(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({ "externalId": "user_1", "credits": { "remaining": 5 } })).await;
        let asked = json!({ "credits": { "cost": 2 }, "tags": ["b", "a"] });
        let id = kw.verify_with(&key.key, asked).await.body["meta"]["requestId"].clone();
        kw.write_events().await;

        let reply = ask(&kw, "SELECT * FROM key_verifications_v1").await;

        let row = &reply.data()[0];
        assert_eq!(reply.data().as_array().unwrap().len(), 1);
        row.assert_has(json!({
            "request_id": id, "time": NOON.0, "key_space_id": api, "key_id": key.id, "external_id": "user_1",
            "outcome": "VALID", "tags": ["a", "b"], "spent_credits": 2, "source": "api",
        }));
        assert!(row["latency"].is_number(), "{row}");
        assert!(reply.text.contains(r#"{"request_id":"#), "{}", reply.text);
    }

    async fn sums_count_what_has_not_been_summed_up(kw) {
        let key = kw.create_key(json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;

        for unit in ["minute", "hour", "day", "month"] {
            let query = format!("SELECT time, sum(count) AS total FROM key_verifications_per_{unit}_v1 GROUP BY time");
            let told = ask(&kw, &query).await.data().clone();

            let time = match unit { "day" => "2026-03-10", "month" => "2026-03-01", _ => "2026-03-10 12:00:00" };
            assert_eq!(told, json!([{ "time": time, "total": 2 }]));
        }
    }

    async fn nothing_is_an_empty_list(kw) {
        kw.write_events().await;
        assert_eq!(*ask(&kw, "SELECT key_id FROM key_verifications_v1").await.data(), json!([]));
    }

    async fn another_workspace_sees_its_own(kw) {
        let key = kw.create_key(json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;
        let stranger = kw.create_other_workspace().await;

        for query in [
            "SELECT key_id FROM key_verifications_v1",
            "SELECT key_id FROM key_verifications_per_day_v1",
            "SELECT key_id FROM key_verifications_v1 WHERE 1 = 1 OR workspace_id = 'ws_default'",
            "SELECT key_id FROM key_verifications_v1 UNION ALL SELECT key_id FROM key_verifications_per_month_v1",
        ] {
            assert_eq!(ask_as(&kw, &stranger, query).await, json!([]), "{query}");
        }
    }

    async fn a_root_key_for_one_api_sees_that_one(kw) {
        let (one, other) = (kw.create_api().await, kw.create_api().await);
        for api in [&one, &other] {
            let key = kw.create_key_in(api, json!({})).await;
            kw.verify(&key.key).await.assert_code("VALID");
        }
        kw.write_events().await;
        let root_key = kw.create_root_key_with(vec![format!("api.{one}.read_analytics")]).await;
        let lost = kw.create_root_key(["api.api_nobody.read_analytics"]).await;
        let query = "SELECT DISTINCT key_space_id FROM key_verifications_v1";

        assert_eq!(ask_as(&kw, &root_key, query).await, json!([{ "key_space_id": one }]));
        assert_eq!(ask_as(&kw, &lost, query).await, json!([]));
    }

    async fn the_permission_is_asked_for_before_the_query_is_read(kw) {
        let root_key = kw.create_root_key(["ratelimit.*.read_analytics", "api.*.read_api"]).await;
        kw.v2_as(&root_key, OPERATION, json!({ "query": "nonsense" })).await.assert_error(403, "insufficient_permissions");
    }

    async fn what_is_wrong_with_a_query_is_told_by_its_name(kw) {
        kw.write_events().await;
        for (query, status, name) in [
            ("", 400, "invalid_analytics_query"),
            ("SELECT nonsense FROM key_verifications_v1", 400, "invalid_analytics_query"),
            ("SELECT key_id FROM verifications", 400, "invalid_analytics_table"),
            ("SELECT identifier FROM ratelimits_v1", 400, "invalid_analytics_table"),
            ("SELECT pg_sleep(9) FROM key_verifications_v1", 400, "invalid_analytics_function"),
            ("DROP TABLE verifications", 400, "invalid_analytics_query_type"),
            ("SELECT key_id FROM key_verifications_v1 WHERE time > 1", 400, "query_range_exceeds_retention"),
        ] {
            let reply = ask(&kw, query).await;

            let error = reply.assert_error(status, name);
            assert!(!error["detail"].as_str().unwrap().is_empty());
        }
    }

    async fn fields_that_are_not_known_are_passed_over(kw) {
        kw.write_events().await;
        let query = "SELECT key_id FROM key_verifications_v1";
        assert_eq!(*kw.v2(OPERATION, json!({ "query": query, "surprise": 1 })).await.data(), json!([]));
        kw.v2(OPERATION, json!({ "surprise": 1 })).await.assert_field_error("/required");
    }

    async fn a_workspace_that_has_asked_enough_waits_for_the_next_hour(kw) {
        kw.write_events().await;
        let workspace: WorkspaceId = domain::root_keys::default_workspace();
        for _ in 0..999 {
            kw.app.analytics.query_quotas().admit(&workspace, NOON).unwrap();
        }
        let query = "SELECT key_id FROM key_verifications_v1";

        ask(&kw, query).await.data();
        let rejected = ask(&kw, query).await;
        rejected.assert_error(429, "query_quota_exceeded");
        assert_eq!(rejected.headers["content-type"], "application/problem+json");
        kw.clock.advance_ms(3_600_000);
        ask(&kw, query).await.data();
    }
}
