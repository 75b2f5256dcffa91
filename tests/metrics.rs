//! Tests `/metrics`.

use std::collections::{BTreeMap, BTreeSet};

use api::{oauth2, v1, v2};
use axum::body::Body;
use axum::http::Request;
use serde_json::json;

use crate::on_both_stacks;
use crate::support::{Keyward, Reply, post};

async fn get(kw: &Keyward, path: &str) -> Reply {
    kw.send(Request::get(path).body(Body::empty()).unwrap()).await
}

/// Returns each sample as written, and its value. Fails if the text violates the format.
async fn scrape(kw: &Keyward) -> BTreeMap<String, f64> {
    let reply = get(kw, "/metrics").await;
    assert_eq!(reply.status, 200);
    let format = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(reply.headers["content-type"], format);
    parse_samples(&reply.text)
}

fn parse_samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.strip_suffix("# EOF\n").expect("the end is marked");
    let (mut samples, mut families, mut sample_names) =
        (BTreeMap::new(), BTreeSet::new(), Vec::new());
    for line in lines.lines() {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", family, help] => {
                assert!(families.insert(family), "{family} is declared twice");
                let is_ours = family.starts_with("keyward_") || family.starts_with("process_");
                assert!(is_ours && is_name(family), "{line}");
                assert!(!help.is_empty(), "{line}");
            }
            ["#", "TYPE", family, kind] => {
                assert!(families.contains(family), "{family} has no help");
                let suffixes = match kind {
                    "counter" => &["_total"][..],
                    "gauge" => &[""],
                    "info" => &["_info"],
                    "histogram" => &["_bucket", "_sum", "_count"],
                    _ => panic!("{line}"),
                };
                sample_names = suffixes.iter().map(|end| format!("{family}{end}")).collect();
            }
            [_, _] => {
                let (sample, value) = line.split_once(' ').unwrap();
                let name = sample.split('{').next().unwrap();
                assert!(
                    sample_names.iter().any(|known| known == name),
                    "{name} is in another family"
                );
                for (label, value) in labels(sample) {
                    assert!(is_name(label) && !value.is_empty(), "{line}");
                }
                let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
                assert!(samples.insert(sample.to_owned(), value).is_none(), "twice: {line}");
            }
            _ => panic!("neither a comment nor a sample: {line:?}"),
        }
    }
    samples
}

fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// Returns the labels of a sample, by name and value.
fn labels(sample: &str) -> Vec<(&str, &str)> {
    let Some((_, inside)) = sample.split_once('{') else { return Vec::new() };
    let inside = inside.strip_suffix('}').expect("a closed list");
    let label = |text| {
        let (name, value): (&str, &str) = str::split_once(text, "=\"").expect("a label");
        (name, value.strip_suffix('"').expect("a closed value"))
    };
    inside.split(',').map(label).collect()
}

/// Returns the counters that have risen between two scrapes, and by how much.
fn risen(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> BTreeMap<String, u64> {
    let counters = after.iter().filter(|(sample, _)| {
        sample.contains("_total") && !sample.starts_with("keyward_cache_loads")
    });
    let risen = counters.map(|(sample, value)| {
        let before = before.get(sample).copied().unwrap_or_default();
        assert!(value >= &before, "{sample} has fallen");
        (sample.clone(), to_count(value - before))
    });
    risen.filter(|(_, by)| *by > 0).collect()
}

/// Converts a count, which is written as any number is.
fn to_count(value: f64) -> u64 {
    format!("{value}").parse().expect("a whole number")
}

/// Returns the name of a sample's metric as it is documented.
fn documented_name(sample: &str) -> &str {
    let name = sample.split('{').next().unwrap();
    let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
    of_histogram.unwrap_or(name)
}

fn requests(operation: &str, status: &str) -> String {
    let version = if operation == "other" { "none" } else { "v2" };
    format!(
        "keyward_requests_total{{version=\"{version}\",operation=\"{operation}\",status=\"{status}\"}}"
    )
}

fn verifications(code: &str) -> String {
    format!("keyward_verifications_total{{code=\"{code}\"}}")
}

on_both_stacks! {
    async fn every_metric_is_exported_from_the_start_and_documented(kw) {
        let samples = scrape(&kw).await;

        let names: BTreeSet<_> = samples.keys().map(|sample| documented_name(sample)).collect();
        let documented: BTreeSet<_> = include_str!("../docs/monitor.md")
            .lines()
            .filter(|line| line.starts_with("| `keyward_") || line.starts_with("| `process_"))
            .flat_map(|line| line.split('|').nth(1).unwrap().split('`').skip(1).step_by(2))
            .map(|name| name.split('{').next().unwrap())
            // It has a series for each other region.
            .filter(|name| *name != "keyward_region_round_trip_seconds")
            .collect();
        assert_eq!(names, documented);
    }

    async fn requests_are_counted_by_operation_and_status_class(kw) {
        let before = scrape(&kw).await;

        kw.v2("apis.createApi", json!({ "name": "payments" })).await.data();
        kw.v2("apis.createApi", json!({ "name": "invoices" })).await.data();
        kw.v2("apis.createApi", json!({ "name": "" })).await.assert_error(400, "invalid_input");
        let unauthenticated = kw.v2_as("nobody_knows_this_key", "apis.createApi", json!({})).await;
        unauthenticated.assert_error(401, "root_key_not_found");
        get(&kw, "/v2/apis.createApi").await.assert_error(405, "method_not_allowed");
        kw.v2("apis.getApi", json!({ "apiId": "api_none" })).await.assert_error(404, "api_not_found");
        get(&kw, "/nowhere").await.assert_error(404, "not_found");
        assert_eq!(get(&kw, "/livez").await.status, 200);
        let after = scrape(&kw).await;

        let expected = BTreeMap::from([
            (requests("apis.createApi", "2xx"), 2),
            (requests("apis.createApi", "4xx"), 3),
            (requests("apis.getApi", "4xx"), 1),
            (requests("other", "4xx"), 1),
            // The first scrape and the liveness check.
            (requests("other", "2xx"), 2),
        ]);
        assert_eq!(risen(&before, &after), expected);
    }

    async fn failed_requests_are_counted_as_5xx(kw) {
        let before = scrape(&kw).await;
        kw.store().close().await;

        let reply = kw.v2("apis.getApi", json!({ "apiId": "api_none" })).await;

        reply.assert_error(503, "service_unavailable");
        let risen = risen(&before, &scrape(&kw).await);
        assert_eq!(risen.get(&requests("apis.getApi", "5xx")), Some(&1), "{risen:?}");
    }

    async fn verifications_are_counted_by_code(kw) {
        let api = kw.create_api().await;
        let plain = kw.create_key_in(&api, json!({})).await;
        let disabled = kw.create_key_in(&api, json!({ "enabled": false })).await;
        let spent = kw.create_key_in(&api, json!({ "credits": { "remaining": 0 } })).await;
        let expired =
            kw.create_key_in(&api, json!({ "expires": kw.clock.now().plus_ms(1000) })).await;
        let limit =
            json!({ "name": "one", "limit": 1, "duration": 3_600_000, "autoApply": true });
        let limited = kw.create_key_in(&api, json!({ "ratelimits": [limit] })).await;
        kw.clock.advance_ms(2000);
        let before = scrape(&kw).await;

        kw.verify(&plain.key).await.assert_code("VALID");
        kw.verify(&plain.key).await.assert_code("VALID");
        kw.verify("nobody_knows_this_key").await.assert_code("NOT_FOUND");
        kw.verify(&disabled.key).await.assert_code("DISABLED");
        kw.verify(&spent.key).await.assert_code("USAGE_EXCEEDED");
        kw.verify(&expired.key).await.assert_code("EXPIRED");
        kw.verify(&limited.key).await.assert_code("VALID");
        kw.verify(&limited.key).await.assert_code("RATE_LIMITED");
        let asked = json!({ "key": plain.key, "permissions": "read" });
        kw.v2("keys.verifyKey", asked).await.assert_code("INSUFFICIENT_PERMISSIONS");
        let wrong = json!({ "key": plain.key, "permissions": "read AND" });
        kw.v2("keys.verifyKey", wrong).await.assert_error(400, "permissions_query_syntax_error");
        let mut risen = risen(&before, &scrape(&kw).await);

        risen.retain(|sample, _| sample.starts_with("keyward_verifications_total"));
        let expected = BTreeMap::from([
            (verifications("VALID"), 3),
            (verifications("NOT_FOUND"), 1),
            (verifications("DISABLED"), 1),
            (verifications("USAGE_EXCEEDED"), 1),
            (verifications("EXPIRED"), 1),
            (verifications("RATE_LIMITED"), 1),
            (verifications("INSUFFICIENT_PERMISSIONS"), 1),
        ]);
        assert_eq!(risen, expected);
    }

    async fn database_and_redis_are_exported_as_reachable(kw) {
        assert_eq!(get(&kw, "/readyz").await.body["counters"], "ok");

        let samples = scrape(&kw).await;

        assert_eq!(to_count(samples["keyward_database_reachable"]), 1);
        assert_eq!(to_count(samples["keyward_counters_reachable"]), 1);
    }

    async fn latencies_and_cache_reads_are_exported(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        let limit = json!({ "namespace": "emails", "identifier": "ada", "limit": 9, "duration": 60_000 });
        let before = scrape(&kw).await;

        for _ in 0..3 {
            kw.verify(&key.key).await.assert_code("VALID");
            kw.v2("ratelimit.limit", limit.clone()).await.data();
        }
        let after = scrape(&kw).await;

        let by = |sample: &str| to_count(after[sample] - before[sample]);
        for (name, times) in [("verification", 3), ("ratelimit_check", 3)] {
            assert_eq!(by(&format!("keyward_{name}_duration_seconds_count")), times);
            assert_eq!(by(&format!("keyward_{name}_duration_seconds_bucket{{le=\"+Inf\"}}")), times);
            let sum = format!("keyward_{name}_duration_seconds_sum");
            assert!(after[&sum] > before[&sum], "{sum}");
        }
        // The first verification loads it. So do later ones until the replica has read in the change log that the key is new.
        let loads = by("keyward_cache_loads_total{cache=\"views\"}");
        assert!((1..=3).contains(&loads), "{loads}");
        // Background tasks may use any of them at this moment.
        let connections =
            |state| after[&format!("keyward_database_connections{{state=\"{state}\"}}")];
        assert!(connections("idle") + connections("used") >= 1.0);
        assert!(after["keyward_changes_silence_seconds"] < 5.0);
    }

    async fn process_resources_are_exported(kw) {
        let samples = scrape(&kw).await;

        assert!(samples["process_start_time_seconds"] > 1.7e9);
        if cfg!(target_os = "linux") {
            assert!(samples["process_resident_memory_bytes"] > 1e6);
            assert!(samples["process_open_fds"] > 3.0);
        }
    }

    async fn buffered_events_are_exported_until_written(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");

        let waiting = scrape(&kw).await;
        kw.write_events().await;
        let written = scrape(&kw).await;

        assert_eq!(to_count(waiting["keyward_events_waiting"]), 1);
        assert_eq!(to_count(written["keyward_events_waiting"]), 0);
    }

    async fn labels_contain_no_caller_input(kw) {
        let before: Vec<_> = scrape(&kw).await.into_keys().collect();
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({ "name": "marker", "externalId": "marker" })).await;

        kw.verify(&key.key).await.assert_code("VALID");
        kw.v2("apis.createApi", json!({ "name": "marker" })).await.data();
        kw.v2("keys.marker", json!({})).await.assert_error(404, "not_found");
        get(&kw, "/marker?marker=marker").await.assert_error(404, "not_found");
        let foreign = post("apis.createApi").header("authorization", "Bearer marker");
        let foreign = foreign.header("user-agent", "marker").body(Body::empty()).unwrap();
        kw.send(foreign).await.assert_error(401, "root_key_not_found");

        let after: Vec<_> = scrape(&kw).await.into_keys().collect();
        assert_eq!(after, before);
        let tables = [v1::operation_table(), v2::operation_table(), oauth2::operation_table()];
        let rows = tables.iter().flat_map(|table| &table.operations);
        let operations: BTreeSet<_> = rows.map(|row| row.name).chain(["gateway", "other"]).collect();
        let labelled: BTreeSet<_> = after
            .iter()
            .flat_map(|sample| labels(sample))
            .filter_map(|(label, value)| (label == "operation").then_some(value))
            .collect();
        assert_eq!(labelled, operations);
    }
}
