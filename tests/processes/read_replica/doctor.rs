//! Tests what `keyward doctor` finds out about a read replica.

use std::time::Duration;

use serde_json::Value;

use super::site::Site;
use crate::faults::{database, replica_command};
use crate::servers::Proxy;
use crate::share_turn;

/// Returns the finding about the read replica at a URL.
fn finding(site: &Site, read_url: &str) -> Value {
    let mut command = replica_command(&site.primary.url(), &site.redis.url());
    command.env("KEYWARD_REDIS_PREFIX", &site.prefix).env("KEYWARD_DATABASE_READ_URL", read_url);
    let output = command.args(["doctor", "--json"]).output().unwrap();
    let findings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let mut all = findings.into_iter();
    all.find(|finding| finding["check"] == "read-replica").expect("a finding")
}

#[track_caller]
fn assert_finding(finding: &Value, state: &str, words: &str) {
    assert_eq!(finding["state"], state, "{finding}");
    assert!(finding.to_string().contains(words), "{words:?} is not in {finding}");
}

#[test]
fn doctor_reports_distance_and_lag_of_read_replica() {
    let _turn = share_turn();
    let site = Site::new();
    let unreachable = Proxy::to("127.0.0.1:1".to_owned());
    unreachable.cut();
    let other_database = database();

    let standby = finding(&site, &site.standby.url());
    let primary = finding(&site, &site.primary.url());
    let other = finding(&site, &other_database.url);
    let empty_url = site.primary.url().replace("/postgres", "/template1");
    let empty = finding(&site, &empty_url);
    let away = finding(&site, &format!("postgres://keyward@{}/postgres", unreachable.address));
    site.pause_replay();
    std::thread::sleep(Duration::from_secs(2));
    let behind = finding(&site, &site.standby.url());

    assert_finding(&standby, "ok", "up to date within");
    assert_finding(&standby, "ok", "round trip");
    assert_finding(&primary, "ok", "up to date within");
    assert_finding(&other, "problem", "has no heartbeat of the running replica");
    assert_finding(&empty, "problem", "failed to read a heartbeat");
    assert_finding(&away, "problem", "unreachable");
    assert_finding(&behind, "warning", "s behind");
}
