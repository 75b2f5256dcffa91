//! Tests replicas that reach Redis with TLS, with real processes.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::faults::{ROOT_KEY, create_key, database, replica_command};
use crate::servers::{Cluster, Redis, ServerTls};
use crate::share_turn;
use crate::support::certificates::{Authority, Certificate};
use crate::support::process::Server;

/// An authority, and a certificate of Redis and of a replica.
struct Certificates {
    _directory: tempfile::TempDir,
    authority: Authority,
    server: ServerTls,
    replica: Certificate,
}

impl Certificates {
    /// The certificate of Redis is for this host.
    fn create(host: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let authority = Authority::create(path.join("ca.pem"));
        let server = ServerTls {
            authority: authority.file.clone(),
            server: authority.issue(host, path, "redis"),
        };
        let replica = authority.issue("replica.example.com", path, "replica");
        Self { _directory: directory, authority, server, replica }
    }

    fn trust(&self, command: &mut Command) {
        command.env("KEYWARD_REDIS_TLS_CA", &self.authority.file);
    }

    fn present(&self, command: &mut Command) {
        command.env("KEYWARD_REDIS_TLS_CERT", &self.replica.certificate);
        command.env("KEYWARD_REDIS_TLS_KEY", &self.replica.key);
        // The machine may be compiling at the same time.
        command.env("KEYWARD_REDIS_TIMEOUT_MS", "2000");
    }
}

/// Verifies a key with these fields and a limit of 10, one time more than it admits. Returns the codes, and whether an
/// answer was decided without Redis.
fn verify_beyond_limit(server: &Server, mut fields: Value) -> (Vec<String>, bool) {
    fields["ratelimits"] =
        json!([{ "name": "day", "limit": 10, "duration": 86_400_000, "autoApply": true }]);
    let key = create_key(server, &fields);
    let mut is_degraded = false;
    let codes = (0..=10).map(|_| {
        let (status, reply) = server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key }));
        assert_eq!(status, 200, "{reply}");
        is_degraded |= reply["meta"]["degraded"] == true;
        reply["data"]["code"].as_str().unwrap().to_owned()
    });
    (codes.collect(), is_degraded)
}

fn assert_counts_in_redis(server: &Server) {
    let mut expected = vec!["VALID"; 10];
    expected.push("RATE_LIMITED");
    let fields = json!({ "credits": { "remaining": 20 } });
    let (codes, is_degraded) = verify_beyond_limit(server, fields);
    assert_eq!(codes, expected);
    assert!(!is_degraded);
}

/// Returns what `keyward doctor` finds about Redis: the state and the description.
fn diagnose(mut command: Command) -> Vec<(String, String)> {
    let output = command.args(["doctor", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    let findings = report.as_array().expect("findings").iter();
    let text = |finding: &Value, name: &str| finding[name].as_str().unwrap().to_owned();
    findings
        .filter(|finding| finding["check"] == "redis")
        .map(|finding| (text(finding, "state"), text(finding, "found")))
        .collect()
}

#[test]
fn replica_counts_in_redis_when_both_present_certificates() {
    let _turn = share_turn();
    let certificates = Certificates::create("127.0.0.1");
    let (database, (_redis, port)) = (database(), Redis::start_with_tls(&certificates.server));
    let command = || {
        let mut command = replica_command(&database.url, &format!("rediss://127.0.0.1:{port}"));
        certificates.trust(&mut command);
        certificates.present(&mut command);
        command
    };

    let findings = diagnose(command());
    assert!(matches!(&findings[..], [(state, _)] if state == "ok"), "{findings:?}");
    assert_counts_in_redis(&Server::start(command()));
}

#[test]
fn replicas_count_in_a_cluster_with_tls() {
    let _turn = share_turn();
    let certificates = Certificates::create("127.0.0.1");
    let database = database();
    let cluster = Cluster::start_with_tls(3, &certificates.server);
    let mut command = replica_command(&database.url, &cluster.url());
    certificates.trust(&mut command);
    certificates.present(&mut command);

    assert_counts_in_redis(&Server::start(command));
}

/// Asserts that a replica decides without Redis, and that `keyward doctor` says why.
#[track_caller]
fn assert_not_connected(certificates: &Certificates, apply: impl Fn(&mut Command), reason: &str) {
    let (database, (_redis, port)) = (database(), Redis::start_with_tls(&certificates.server));
    let command = || {
        let mut command = replica_command(&database.url, &format!("rediss://127.0.0.1:{port}"));
        apply(&mut command);
        command
    };

    let server = Server::start(command());
    let (_, is_degraded) = verify_beyond_limit(&server, json!({}));
    assert!(is_degraded);
    let findings = diagnose(command());
    let [(state, found)] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(state, "problem");
    assert!(found.contains(reason), "{found}");
}

#[test]
fn replica_decides_without_redis_when_its_authority_is_unknown() {
    let _turn = share_turn();
    let certificates = Certificates::create("127.0.0.1");
    let other_directory = tempfile::tempdir().unwrap();
    let other = Authority::create(Path::join(other_directory.path(), "ca.pem"));
    let trust_another = |command: &mut Command| {
        command.env("KEYWARD_REDIS_TLS_CA", &other.file);
        certificates.present(command);
    };

    assert_not_connected(&certificates, |command| certificates.present(command), "UnknownIssuer");
    assert_not_connected(&certificates, trust_another, "certificate");
}

#[test]
fn replica_decides_without_redis_when_its_certificate_is_for_another_host() {
    let _turn = share_turn();
    let certificates = Certificates::create("redis.example.com");
    let apply = |command: &mut Command| {
        certificates.trust(command);
        certificates.present(command);
    };

    assert_not_connected(&certificates, apply, "not valid for name");
}

#[test]
fn replica_decides_without_redis_when_it_presents_no_certificate() {
    let _turn = share_turn();
    let certificates = Certificates::create("127.0.0.1");

    assert_not_connected(&certificates, |command| certificates.trust(command), "ertificate");
}
