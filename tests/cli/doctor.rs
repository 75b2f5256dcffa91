//! Tests the findings of `keyward doctor`, with servers that are configured incorrectly or fail.

use std::net::TcpListener;
use std::time::Duration;

use foundation::clock::Stopwatch;

use super::*;
use crate::servers::Redis;
use crate::support::process::keyward_command_with_files;

mod clickhouse;
mod counters;
mod data_directory;
mod database;
mod transport;

/// The findings; the first of each check counts.
struct DoctorReport {
    status: i32,
    findings: Vec<Value>,
}

impl DoctorReport {
    fn by(command: &mut Command) -> Self {
        let output = command.args(["doctor", "--json"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let findings = serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}"));
        Self { status: output.status.code().unwrap(), findings }
    }

    fn finding(&self, check: &str) -> &Value {
        let mut all = self.findings.iter();
        all.find(|finding| finding["check"] == check)
            .unwrap_or_else(|| panic!("{check} is not among {:?}", self.findings))
    }

    /// Fails unless this check has this state and contains all of these words.
    #[track_caller]
    fn assert_finding(&self, check: &str, state: &str, words: &[&str]) -> &Self {
        let finding = self.finding(check);
        assert_eq!(finding["state"], state, "{finding}");
        assert_eq!(finding["todo"].is_null(), state == "ok", "{finding}");
        for word in words {
            assert!(finding.to_string().contains(word), "{word:?} is not in {finding}");
        }
        self
    }

    /// Fails unless exactly these checks found a problem, and the exit code says so.
    #[track_caller]
    fn assert_problems(&self, checks: &[&str]) -> &Self {
        let problems = self.findings.iter().filter(|finding| finding["state"] == "problem");
        let names: Vec<_> = problems.map(|finding| finding["check"].as_str().unwrap()).collect();
        assert_eq!(names, checks, "{:?}", self.findings);
        assert_eq!(self.status, i32::from(!checks.is_empty()));
        self
    }
}

fn replica(database_url: &str, redis_url: &str) -> Command {
    let mut command = keyward_command();
    command
        .env("KEYWARD_DATABASE_URL", database_url)
        .env("KEYWARD_REDIS_URL", redis_url)
        .env("KEYWARD_REDIS_PREFIX", format!("t{}:", random_letters()))
        .env("KEYWARD_ROOT_KEY", ROOT_KEY)
        .env("KEYWARD_DRAIN_SECONDS", "0");
    command
}

fn database() -> Database {
    tokio::runtime::Runtime::new().unwrap().block_on(Database::create())
}

fn execute(database: &Database, sql: &'static str) {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        sqlx::query(sql).execute(&mut database.connect().await).await.unwrap();
    });
}

#[test]
fn doctor_finds_no_problem_and_changes_nothing_when_embedded() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    let files = || {
        let mut names: Vec<_> =
            std::fs::read_dir(data.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    // The server opens its event database a moment after it is ready.
    let opened = data.path().join("keyward-events.db-wal");
    let since = Stopwatch::new();
    while !opened.exists() {
        assert!(
            since.elapsed() < Duration::from_secs(10),
            "the server did not open its file of events"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    let before = files();

    let mut command = embedded(data.path());
    let told = DoctorReport::by(command.env("KEYWARD_LISTEN", server.address.to_string()));

    told.assert_problems(&[])
        .assert_finding("settings", "ok", &["embedded"])
        .assert_finding("variables", "ok", &[])
        .assert_finding("data-directory", "ok", &[])
        .assert_finding("database", "ok", &["SQLite", "keyward.db"])
        .assert_finding("integrity", "ok", &[])
        .assert_finding("schema", "ok", &["up to date"])
        .assert_finding("master-key", "ok", &[])
        .assert_finding(
            "root-keys",
            "warning",
            &["1 non-expiring root key has all permissions", "revoke"],
        )
        .assert_finding("people", "warning", &["setup-link"])
        .assert_finding("events-schema", "ok", &[])
        .assert_finding("events", "ok", &["none were written"])
        .assert_finding("single-events", "ok", &["none are stored", "4.2 GB"])
        .assert_finding("events-disk", "ok", &["free"])
        .assert_finding("retention", "ok", &["90 days"])
        .assert_finding("server", "ok", &["is ready"])
        .assert_finding("dropped-events", "ok", &["dropped 0"]);
    assert_eq!(files(), before);
}

#[test]
fn doctor_warns_when_connections_exceed_the_limit_on_open_files() {
    let data = tempfile::tempdir().unwrap();
    let doctor = |soft, hard| {
        let mut command = keyward_command_with_files(soft, hard);
        DoctorReport::by(command.env("KEYWARD_DATA_DIR", data.path()))
    };

    doctor(256, 1024).assert_finding(
        "open-files",
        "warning",
        &["1024 files", "at most 824", "to 10200"],
    );
    doctor(256, 10_200).assert_finding("open-files", "ok", &["10000 connections fit"]);
}

#[test]
fn doctor_finds_no_problem_when_replica_runs_or_has_stopped() {
    let (database, redis) = (database(), Redis::start_keeping(true));
    let server = Server::start(replica(&database.url, &redis.url()));
    let address = server.address.to_string();
    let doctor = || {
        let mut command = replica(&database.url, &redis.url());
        DoctorReport::by(command.env("KEYWARD_LISTEN", &address))
    };

    let running = doctor();
    server.signal("TERM");
    server.wait();
    let stopped = doctor();

    running
        .assert_problems(&[])
        .assert_finding("database", "ok", &["Postgres", "round trip"])
        .assert_finding("database-clock", "ok", &[])
        .assert_finding("schema", "ok", &["up to date"])
        .assert_finding("connections", "ok", &["1 × 24"])
        .assert_finding("redis", "ok", &["round trip"])
        .assert_finding("redis-memory", "ok", &["noeviction"])
        .assert_finding("redis-persistence", "ok", &["append-only file enabled"])
        .assert_finding("redis-clock", "ok", &[])
        .assert_finding("replicas", "ok", &["1 is running", "rep_"])
        .assert_finding("credits", "ok", &[])
        .assert_finding(
            "analytics-role",
            "warning",
            &["read and change everything", "KEYWARD_DATABASE_ANALYTICS_URL"],
        )
        .assert_finding("server", "ok", &["is ready"]);
    stopped
        .assert_problems(&[])
        .assert_finding("replicas", "ok", &["no replica is registered"])
        .assert_finding("server", "warning", &["no server responds at", "start the server"]);
}

#[test]
fn doctor_prints_a_line_per_check_and_no_secrets() {
    let (database, redis) = (database(), Redis::start());
    let mut command = replica(&database.url, &redis.url());
    let output = command.env("KEYWARD_MASTER_KEY", "a5".repeat(32)).arg("doctor").output().unwrap();

    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.lines().any(|line| line.starts_with("ok       database ")), "{text}");
    assert!(text.contains("\n                            → "), "{text}");
    assert!(text.trim_end().ends_with("warnings, 0 problems"), "{text}");
    let password = database.url.split([':', '@']).nth(2).unwrap();
    for secret in [password, ROOT_KEY, &"a5".repeat(32)] {
        assert!(!text.contains(secret) && output.stderr.is_empty(), "{text}");
    }
}

#[test]
fn doctor_counts_findings_with_nouns_that_agree() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_DRAIN_SECONDS", "soon");
    command.env("KEYWARD_LISTEN", format!("127.0.0.1:{}", free_port()));

    let output = command.arg("doctor").output().unwrap();

    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.ends_with(" ok, 1 warning, 1 problem\n"), "{text}");
    assert_rejected(&output, 1, &["found 1 problem"]);
}

#[test]
fn doctor_reports_invalid_settings_and_unknown_variables() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_DRAIN_SECONDS", "soon").env("KEYWARD_DATABSE_URL", "postgres://x");

    DoctorReport::by(&mut command)
        .assert_problems(&["settings"])
        .assert_finding("settings", "problem", &["KEYWARD_DRAIN_SECONDS", "0 to 3600"])
        .assert_finding("variables", "warning", &["KEYWARD_DATABSE_URL"]);
    for level in ["warning", "inof"] {
        DoctorReport::by(embedded(data.path()).env("KEYWARD_LOG", level))
            .assert_problems(&["settings"])
            .assert_finding("settings", "problem", &["KEYWARD_LOG", level, "warn, info"]);
    }
}

#[test]
fn doctor_reports_unreachable_servers() {
    let url = format!("postgres://keyward:secret@127.0.0.1:{}/none", free_port());
    let redis_url = format!("redis://:secret@127.0.0.1:{}", free_port());

    let told = DoctorReport::by(&mut replica(&url, &redis_url));

    told.assert_problems(&["database", "redis"])
        .assert_finding("database", "problem", &["refused", "KEYWARD_DATABASE_URL"])
        .assert_finding("redis", "problem", &["127.0.0.1:", "KEYWARD_REDIS_URL"]);
    assert!(!format!("{:?}", told.findings).contains("secret"), "{:?}", told.findings);
}

#[test]
fn doctor_reports_pending_and_newer_schema_and_migrates_nothing() {
    let (database, redis) = (database(), Redis::start());
    let doctor = || DoctorReport::by(&mut replica(&database.url, &redis.url()));
    let last = "DELETE FROM _sqlx_migrations
        WHERE version = (SELECT MAX(version) FROM _sqlx_migrations)";
    let last_of_events = "DELETE FROM keyward_events._sqlx_migrations
        WHERE version >= (SELECT MAX(version) - 1 FROM keyward_events._sqlx_migrations)";

    execute(&database, last);
    execute(&database, last_of_events);
    doctor().assert_finding("schema", "warning", &["1 migration is pending", "keyward migrate"]);
    doctor()
        .assert_finding("events-schema", "warning", &["2 migrations are pending"])
        .assert_problems(&[]);

    execute(
        &database,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
        VALUES (9999, 'from the future', TRUE, '', 0)",
    );
    doctor().assert_problems(&["schema"]).assert_finding(
        "schema",
        "problem",
        &["9999", "another keyward"],
    );
}

#[test]
fn doctor_reports_clocks_that_differ() {
    let (database, redis) = (database(), Redis::start());
    let library = std::env::var("FAKETIME_LIBRARY").expect("./test sets it");
    let doctor = |skew: &str| {
        let mut command = replica(&database.url, &redis.url());
        command.env("LD_PRELOAD", &library).env("DYLD_INSERT_LIBRARIES", &library);
        command.env("FAKETIME", skew).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        DoctorReport::by(&mut command)
    };

    doctor("-5s")
        .assert_problems(&[])
        .assert_finding("database-clock", "warning", &["Postgres", "ahead of"])
        .assert_finding("redis-clock", "warning", &["Redis at 127.0.0.1", "ahead of"]);
    doctor("+30s").assert_problems(&["database-clock", "redis-clock"]).assert_finding(
        "redis-clock",
        "problem",
        &["behind", "NTP"],
    );
}

#[test]
fn doctor_reports_too_many_connections_and_silent_replicas() {
    let (database, redis) = (database(), Redis::start());
    let doctor = || {
        let mut command = replica(&database.url, &redis.url());
        DoctorReport::by(command.env("KEYWARD_DATABASE_CONNECTIONS", "1000"))
    };
    execute(
        &database,
        "INSERT INTO replicas (id, started_at, seen_at)
        VALUES ('rep_silent', 0, CAST(EXTRACT(EPOCH FROM now()) * 1000 AS BIGINT) - 600000)",
    );

    doctor()
        .assert_problems(&[])
        .assert_finding("connections", "warning", &["1 × 1008", "max_connections"])
        .assert_finding("replicas", "warning", &["1 is silent: rep_silent 10 min ago"]);
}

#[test]
fn doctor_accepts_restricted_root_keys_when_an_owner_exists() {
    let (database, redis) = (database(), Redis::start());
    drop(Server::start(replica(&database.url, &redis.url())));
    let doctor = || DoctorReport::by(&mut replica(&database.url, &redis.url()));
    doctor().assert_finding("root-keys", "warning", &[]).assert_finding("people", "warning", &[]);

    execute(&database, "UPDATE root_keys SET expires_at = 9999999999999");
    execute(
        &database,
        "INSERT INTO people (id, email, password, created_at)
        VALUES ('person_1', 'ada@example.com', '', 0)",
    );
    execute(
        &database,
        "INSERT INTO memberships (workspace_id, person_id, role, joined_at)
        VALUES ('ws_default', 'person_1', 'owner', 0)",
    );

    doctor().assert_finding("root-keys", "ok", &[]).assert_finding("people", "ok", &["1 owner"]);
}

#[test]
fn doctor_reports_degraded_server_and_foreign_process() {
    let (database, mut redis) = (database(), Redis::start());
    let server = Server::start(replica(&database.url, &redis.url()));
    let redis_url = redis.url();
    let doctor = |address: &str| {
        let mut command = replica(&database.url, &redis_url);
        DoctorReport::by(command.env("KEYWARD_LISTEN", address))
    };

    redis.kill();
    doctor(&server.address.to_string()).assert_problems(&["redis"]).assert_finding(
        "server",
        "warning",
        &["degraded", "counters away"],
    );

    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for mut stream in other.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello");
        }
    });
    doctor(&address).assert_finding("server", "problem", &["is not Keyward"]);
}
