//! Tests the alerts for Prometheus and the dashboard for Grafana: they use only metrics and labels that the server
//! exports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use axum::body::Body;
use axum::http::Request;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::documentation::anchors;
use crate::on_both_stacks;
use crate::support::Keyward;

/// Labels that Prometheus itself adds, and the bound of a bucket.
const ADDED: [&str; 3] = ["instance", "job", "le"];

#[derive(Deserialize)]
struct AlertFile {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Alert>,
}

#[derive(Deserialize)]
struct Alert {
    alert: String,
    expr: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

fn alerts() -> Vec<Alert> {
    let file: AlertFile =
        serde_saphyr::from_str(include_str!("../deploy/prometheus/alerts.yml")).unwrap();
    file.groups.into_iter().flat_map(|group| group.rules).collect()
}

fn dashboard() -> Value {
    serde_json::from_str(include_str!("../deploy/grafana/keyward.json")).unwrap()
}

/// Returns the queries for Prometheus, each with the texts whose placeholders its result fills.
fn queries() -> Vec<(String, String)> {
    let mut queries: Vec<_> = alerts()
        .into_iter()
        .map(|alert| (alert.expr, alert.annotations.into_values().collect::<Vec<_>>().join(" ")))
        .collect();
    let dashboard = dashboard();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let text = |name: &str| target[name].as_str().unwrap().to_owned();
            queries.push((text("expr"), text("legendFormat")));
        }
    }
    let variable = &dashboard["templating"]["list"][1]["definition"];
    queries.push((variable.as_str().unwrap().to_owned(), String::new()));
    queries
}

/// The labels of each metric, and their values.
type MetricLabels = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

async fn scrape_metrics(kw: &Keyward) -> MetricLabels {
    let reply = kw.send(Request::get("/metrics").body(Body::empty()).unwrap()).await;
    let mut exported = MetricLabels::new();
    for line in reply.text.lines().filter(|line| !line.starts_with('#')) {
        let (sample, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = sample.split_once('{').unwrap_or((sample, "}"));
        let metric = exported.entry(name.to_owned()).or_default();
        for (label, value) in matchers(labels.strip_suffix('}').unwrap()) {
            metric.entry(label).or_default().insert(value);
        }
    }
    // Prometheus adds this metric for each server.
    exported.entry("up".to_owned()).or_default();
    exported
}

/// Returns the labels between braces, with their required values.
fn matchers(inside: &str) -> Vec<(String, String)> {
    let matcher = |part: &str| {
        let (label, value) = part.split_once('=').unwrap();
        let value = value.trim_start_matches('~').trim_matches('"');
        (label.trim_end_matches('!').trim().to_owned(), value.to_owned())
    };
    inside.split(',').filter(|part| !part.trim().is_empty()).map(matcher).collect()
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the metrics that a query names, each with the text that follows it.
fn metrics(expr: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = expr;
    while let Some(at) = rest.find(is_word) {
        let word = &rest[at..];
        let end = word.find(|c| !is_word(c)).unwrap_or(word.len());
        let (name, behind) = word.split_at(end);
        if name == "up" || name.starts_with("keyward_") || name.starts_with("process_") {
            found.push((name, behind));
        }
        rest = behind;
    }
    found
}

/// Returns the labels by which a query groups.
fn grouped(expr: &str) -> Vec<&str> {
    let lists = expr.split("by (").skip(1).map(|rest| rest.split(')').next().unwrap());
    lists.flat_map(|list| list.split(',').map(str::trim)).collect()
}

/// Returns the labels that a text shows.
fn shown(text: &str) -> Vec<&str> {
    let inside = text.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap().trim());
    let inside = inside.filter(|inside| !inside.starts_with("$value"));
    inside.map(|inside| inside.strip_prefix("$labels.").unwrap_or(inside)).collect()
}

on_both_stacks! {
    async fn alerts_and_dashboard_use_exported_metrics(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        // A server with one region has no distance to another one.
        kw.app.context.metrics.regions.set_round_trip("us", None);
        let exported = scrape_metrics(&kw).await;

        for (expr, text) in queries() {
            let metrics = metrics(&expr);
            assert!(!metrics.is_empty(), "{expr} uses no metric");
            let mut labels: BTreeSet<_> = ADDED.into_iter().collect();
            for (name, behind) in &metrics {
                let known = exported.get(*name).unwrap_or_else(|| panic!("{name} is not exported: {expr}"));
                labels.extend(known.keys().map(String::as_str));
                let Some(inside) = behind.strip_prefix('{') else { continue };
                for (label, value) in matchers(inside.split('}').next().unwrap()) {
                    let values = known.get(&label);
                    assert!(values.is_some() || ADDED.contains(&label.as_str()), "{label}: {expr}");
                    let has_value = values.is_none_or(|values| values.contains(&value));
                    assert!(has_value, "{label} is never {value}: {expr}");
                }
            }
            for label in grouped(&expr).into_iter().chain(shown(&text)) {
                assert!(labels.contains(label), "no metric has {label}: {expr} {text}");
            }
        }
    }
}

#[test]
fn every_alert_has_a_severity_and_a_runbook_section() {
    for Alert { alert, labels, annotations, .. } in alerts() {
        assert!(["critical", "warning"].contains(&labels["severity"].as_str()), "{alert}");
        assert!(!annotations["summary"].is_empty() && !annotations["description"].is_empty());
        let (page, anchor) = annotations["runbook"].split_once('#').unwrap();
        assert!(page.starts_with("docs/"), "{alert}: {page}");
        assert!(
            anchors(Path::new(page)).contains(anchor),
            "{alert}: there is no section {anchor} in {page}"
        );
    }
}

#[test]
fn every_alert_is_tested_firing_and_not_firing() {
    let tried: Value =
        serde_saphyr::from_str(include_str!("../deploy/prometheus/alerts.test.yml")).unwrap();
    let tests = tried["tests"].as_array().unwrap();
    let rules = || tests.iter().flat_map(|test| test["alert_rule_test"].as_array().unwrap());

    for Alert { alert, .. } in alerts() {
        let fires = |fires: bool| {
            rules().any(|rule| {
                let expected = rule["exp_alerts"].as_array().unwrap();
                rule["alertname"] == alert.as_str() && expected.is_empty() != fires
            })
        };
        assert!(fires(true) && fires(false), "{alert}");
    }
}

#[test]
fn promtool_accepts_alerts_and_their_tests() {
    for arguments in [
        ["check", "rules", "--lint=all", "--lint-fatal", "alerts.yml"].as_slice(),
        &["test", "rules", "alerts.test.yml"],
    ] {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/prometheus");
        let output = Command::new("promtool").args(arguments).current_dir(directory).output();
        let output = output.expect("promtool is installed by ./test");
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
    }
}
