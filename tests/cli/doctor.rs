//! What `keyward doctor` finds, with servers that are as wrong as they can be made.

use std::net::TcpListener;
use std::time::Duration;

use foundation::clock::Stopwatch;

use super::*;
use crate::servers::Redis;
use crate::support::process::keyward_with_files;

mod clickhouse;
mod counters;

/// What it found, by check; the first of each.
struct Told {
    status: i32,
    findings: Vec<Value>,
}

impl Told {
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

    /// Fails unless this check came to this state and says all of this.
    #[track_caller]
    fn has(&self, check: &str, state: &str, words: &[&str]) -> &Self {
        let finding = self.finding(check);
        assert_eq!(finding["state"], state, "{finding}");
        assert_eq!(finding["todo"].is_null(), state == "ok", "{finding}");
        for word in words {
            assert!(finding.to_string().contains(word), "{word:?} is not in {finding}");
        }
        self
    }

    /// Fails unless these checks, and no others, came to a problem, and the exit status tells it.
    #[track_caller]
    fn has_problems(&self, checks: &[&str]) -> &Self {
        let problems = self.findings.iter().filter(|finding| finding["state"] == "problem");
        let names: Vec<_> = problems.map(|finding| finding["check"].as_str().unwrap()).collect();
        assert_eq!(names, checks, "{:?}", self.findings);
        assert_eq!(self.status, i32::from(!checks.is_empty()));
        self
    }
}

fn replica(database_url: &str, redis_url: &str) -> Command {
    let mut command = keyward();
    command
        .env("KEYWARD_DATABASE_URL", database_url)
        .env("KEYWARD_REDIS_URL", redis_url)
        .env("KEYWARD_REDIS_PREFIX", format!("t{}:", random()))
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
fn an_embedded_server_that_is_well_has_no_problem_and_is_not_changed() {
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
    // The server opens its file of events a moment after it is ready.
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
    let told = Told::by(command.env("KEYWARD_LISTEN", server.address.to_string()));

    told.has_problems(&[])
        .has("settings", "ok", &["embedded"])
        .has("variables", "ok", &[])
        .has("data-directory", "ok", &[])
        .has("database", "ok", &["SQLite", "keyward.db"])
        .has("integrity", "ok", &[])
        .has("schema", "ok", &["up to date"])
        .has("master-key", "ok", &[])
        .has("root-keys", "warning", &["1 root key has every permission", "revoke"])
        .has("people", "warning", &["setup-link"])
        .has("events-schema", "ok", &[])
        .has("events", "ok", &["none were written"])
        .has("single-events", "ok", &["there are none", "4.2 GB"])
        .has("events-disk", "ok", &["free"])
        .has("retention", "ok", &["90 days"])
        .has("server", "ok", &["is ready"])
        .has("dropped-events", "ok", &["dropped 0"]);
    assert_eq!(files(), before);
}

#[test]
fn doctor_warns_when_the_connections_need_more_files_than_a_process_may_open() {
    let data = tempfile::tempdir().unwrap();
    let doctor = |soft, hard| {
        let mut command = keyward_with_files(soft, hard);
        Told::by(command.env("KEYWARD_DATA_DIR", data.path()))
    };

    doctor(256, 1024).has("open-files", "warning", &["1024 files", "at most 824", "to 10200"]);
    doctor(256, 10_200).has("open-files", "ok", &["10000 connections fit"]);
}

#[test]
fn nothing_is_left_beside_files_that_no_server_uses() {
    let data = tempfile::tempdir().unwrap();
    json_of(&run(data.path(), &["migrate", "--json"]));
    let files = || std::fs::read_dir(data.path()).unwrap().count();
    assert_eq!(files(), 2);

    let told = Told::by(&mut embedded(data.path()));

    told.has_problems(&[]).has("schema", "ok", &[]).has("events", "ok", &[]);
    assert_eq!(files(), 2);
}

#[test]
fn a_replica_that_is_well_has_no_problem_while_it_runs_and_after() {
    let (database, redis) = (database(), Redis::start_keeping(true));
    let server = Server::start(replica(&database.url, &redis.url()));
    let address = server.address.to_string();
    let doctor = || {
        let mut command = replica(&database.url, &redis.url());
        Told::by(command.env("KEYWARD_LISTEN", &address))
    };

    let running = doctor();
    server.signal("TERM");
    server.wait();
    let stopped = doctor();

    running
        .has_problems(&[])
        .has("database", "ok", &["Postgres", "ms away"])
        .has("database-clock", "ok", &[])
        .has("schema", "ok", &["up to date"])
        .has("connections", "ok", &["1 × 24"])
        .has("redis", "ok", &["ms away"])
        .has("redis-memory", "ok", &["noeviction"])
        .has("redis-persistence", "ok", &["appends each change"])
        .has("redis-clock", "ok", &[])
        .has("replicas", "ok", &["1 is there", "rep_"])
        .has("credits", "ok", &[])
        .has(
            "analytics-role",
            "warning",
            &["read and change everything", "KEYWARD_DATABASE_ANALYTICS_URL"],
        )
        .has("server", "ok", &["is ready"]);
    stopped.has_problems(&[]).has("replicas", "ok", &["none has said"]).has(
        "server",
        "warning",
        &["none answers at", "start keyward"],
    );
}

#[test]
fn it_prints_a_line_for_each_check_and_no_secret() {
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
fn settings_that_cannot_be_used_and_variables_that_nobody_knows_are_told() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_DRAIN_SECONDS", "soon").env("KEYWARD_DATABSE_URL", "postgres://x");

    Told::by(&mut command)
        .has_problems(&["settings"])
        .has("settings", "problem", &["KEYWARD_DRAIN_SECONDS", "0 to 3600"])
        .has("variables", "warning", &["KEYWARD_DATABSE_URL"]);
}

#[test]
fn a_data_directory_that_is_none_and_one_that_is_not_there_are_told() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("a-file");
    std::fs::write(&file, "not a directory").unwrap();

    Told::by(&mut embedded(&file)).has_problems(&["data-directory", "master-key-file"]);
    Told::by(&mut embedded(&data.path().join("none")))
        .has_problems(&[])
        .has("data-directory", "warning", &["the first start makes it"])
        .has("database", "warning", &["the first start makes it"]);
    assert!(!data.path().join("none").exists());
}

#[test]
fn a_file_with_a_broken_page_is_told() {
    use std::os::unix::fs::FileExt as _;
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(embedded(data.path()));
    server.signal("TERM");
    server.wait();
    let path = data.path().join("keyward.db");
    // What still stands in the log of changes, if a connection was closed in a hurry.
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let url = format!("sqlite://{}", path.display());
        let mut file = sqlx::SqliteConnection::connect(&url).await.unwrap();
        sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut file).await.unwrap();
        file.close().await.unwrap();
    });
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let pages = file.metadata().unwrap().len() / 4096;
    assert!(pages > 10, "{pages}");

    for page in 5..pages {
        file.write_all_at(&[0xa5; 4096], page * 4096).unwrap();
    }

    let told = Told::by(&mut embedded(data.path()));
    assert_eq!(told.finding("integrity")["state"], "problem", "{:?}", told.findings);
    assert_eq!(told.status, 1);
}

#[test]
fn servers_that_cannot_be_reached_are_told() {
    let url = format!("postgres://keyward:secret@127.0.0.1:{}/none", free_port());
    let redis_url = format!("redis://:secret@127.0.0.1:{}", free_port());

    let told = Told::by(&mut replica(&url, &redis_url));

    told.has_problems(&["database", "redis"])
        .has("database", "problem", &["cannot be reached", "KEYWARD_DATABASE_URL"])
        .has("redis", "problem", &["127.0.0.1:", "KEYWARD_REDIS_URL"]);
    assert!(!format!("{:?}", told.findings).contains("secret"), "{:?}", told.findings);
}

#[test]
fn pending_migrations_and_a_schema_of_another_keyward_are_told_and_nothing_is_migrated() {
    let (database, redis) = (database(), Redis::start());
    let doctor = || Told::by(&mut replica(&database.url, &redis.url()));
    let last = "DELETE FROM _sqlx_migrations
        WHERE version = (SELECT MAX(version) FROM _sqlx_migrations)";
    let last_of_events = "DELETE FROM keyward_events._sqlx_migrations
        WHERE version >= (SELECT MAX(version) - 1 FROM keyward_events._sqlx_migrations)";

    execute(&database, last);
    execute(&database, last_of_events);
    doctor().has("schema", "warning", &["1 migration is pending", "keyward migrate"]);
    doctor().has("events-schema", "warning", &["2 migrations are pending"]).has_problems(&[]);

    execute(
        &database,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
        VALUES (9999, 'from the future', TRUE, '', 0)",
    );
    doctor().has_problems(&["schema"]).has("schema", "problem", &["9999", "another keyward"]);
}

#[test]
fn clocks_that_do_not_agree_are_told() {
    let (database, redis) = (database(), Redis::start());
    let library = std::env::var("FAKETIME_LIBRARY").expect("./test sets it");
    let doctor = |skew: &str| {
        let mut command = replica(&database.url, &redis.url());
        command.env("LD_PRELOAD", &library).env("DYLD_INSERT_LIBRARIES", &library);
        command.env("FAKETIME", skew).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        Told::by(&mut command)
    };

    doctor("-5s")
        .has_problems(&[])
        .has("database-clock", "warning", &["Postgres", "ahead of"])
        .has("redis-clock", "warning", &["Redis at 127.0.0.1", "ahead of"]);
    doctor("+30s").has_problems(&["database-clock", "redis-clock"]).has(
        "redis-clock",
        "problem",
        &["behind", "NTP"],
    );
}

#[test]
fn more_connections_than_postgres_takes_and_replicas_that_fell_silent_are_told() {
    let (database, redis) = (database(), Redis::start());
    let doctor = || {
        let mut command = replica(&database.url, &redis.url());
        Told::by(command.env("KEYWARD_DATABASE_CONNECTIONS", "1000"))
    };
    execute(
        &database,
        "INSERT INTO replicas (id, started_at, seen_at)
        VALUES ('rep_silent', 0, CAST(EXTRACT(EPOCH FROM now()) * 1000 AS BIGINT) - 600000)",
    );

    doctor().has_problems(&[]).has("connections", "warning", &["1 × 1008", "max_connections"]).has(
        "replicas",
        "warning",
        &["rep_silent 10 min ago", "1 is silent"],
    );
}

#[test]
fn a_master_key_that_is_missing_is_told() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    vault::recoverable(&server, data.path());
    drop(server);
    let file = data.path().join("master.key");

    std::fs::remove_file(&file).unwrap();
    Told::by(&mut embedded(data.path())).has_problems(&["master-key"]).has(
        "master-key",
        "problem",
        &["there is none", "1 workspace"],
    );
    std::fs::write(&file, "short").unwrap();
    let told = Told::by(&mut embedded(data.path()));
    told.has_problems(&["master-key", "master-key-file"]);
}

#[test]
fn root_keys_that_end_or_may_less_are_no_reason_to_warn_and_an_owner_is_seen() {
    let (database, redis) = (database(), Redis::start());
    drop(Server::start(replica(&database.url, &redis.url())));
    let doctor = || Told::by(&mut replica(&database.url, &redis.url()));
    doctor().has("root-keys", "warning", &[]).has("people", "warning", &[]);

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

    doctor().has("root-keys", "ok", &[]).has("people", "ok", &["1 owner"]);
}

#[test]
fn a_server_that_is_degraded_and_one_that_is_no_keyward_are_told() {
    let (database, mut redis) = (database(), Redis::start());
    let server = Server::start(replica(&database.url, &redis.url()));
    let redis_url = redis.url();
    let doctor = |address: &str| {
        let mut command = replica(&database.url, &redis_url);
        Told::by(command.env("KEYWARD_LISTEN", address))
    };

    redis.kill();
    doctor(&server.address.to_string()).has_problems(&["redis"]).has(
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
    doctor(&address).has("server", "problem", &["no keyward"]);
}
