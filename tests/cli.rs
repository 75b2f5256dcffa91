//! The command line, as an operator uses it: real processes, their output and their exit status.

use std::path::Path;
use std::process::{Command, Output};

use keyward::clock::Stopwatch;
use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::support::database::Database;
use crate::support::process::{Server, exchange, free_port, get, keyward, run};
use crate::support::{random, redis_url};

const ROOT_KEY: &str = "a_root_key_of_an_operator_1";

fn embedded(data_dir: &Path) -> Command {
    let mut command = keyward();
    command.env("KEYWARD_DATA_DIR", data_dir).env("KEYWARD_DRAIN_SECONDS", "0");
    command
}

fn json_of(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}"))
}

/// Fails unless the command ended with this status and one sentence that says all of this.
#[track_caller]
fn refused(output: &Output, status: i32, words: &[&str]) {
    let sentence = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{sentence}");
    assert_eq!(sentence.trim().lines().count(), 1, "{sentence}");
    for word in words {
        assert!(sentence.contains(word), "{word:?} is not in {sentence:?}");
    }
}

#[test]
fn the_first_start_prints_a_root_key_and_a_curl_that_works_and_the_second_keeps_everything() {
    let data = tempfile::tempdir().unwrap();
    let first = Server::start(embedded(data.path()));
    let greeting = first.greeting.clone();
    let root_key =
        greeting.lines().map(str::trim).find(|line| line.starts_with("keyward_")).unwrap();
    let curl = greeting.lines().map(str::trim).find(|line| line.starts_with("curl ")).unwrap();

    let pasted = Command::new("sh").args(["-c", curl]).output().unwrap();
    let made: Value = serde_json::from_slice(&pasted.stdout).unwrap();
    let api = made["data"]["apiId"].as_str().unwrap();
    let (_, issued) = first.v2(
        root_key,
        "keys.createKey",
        &json!({ "apiId": api, "credits": { "remaining": 9 } }),
    );
    let key = issued["data"]["key"].as_str().unwrap();
    first.v2(root_key, "keys.verifyKey", &json!({ "key": key }));
    first.signal("TERM");
    assert_eq!(first.wait(), Some(0));
    let second = Server::start(embedded(data.path()));

    assert!(!second.greeting.contains("keyward_"), "{}", second.greeting);
    let (status, verified) = second.v2(root_key, "keys.verifyKey", &json!({ "key": key }));
    assert_eq!((status, &verified["data"]["code"]), (200, &json!("VALID")), "{verified}");
    assert_eq!(verified["data"]["credits"], 7);
}

#[test]
fn credits_and_keys_survive_a_kill() {
    let data = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = embedded(data.path());
        command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
        Server::start(command)
    };
    let first = start();
    let (_, api) = first.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let request = json!({ "apiId": api["data"]["apiId"], "credits": { "remaining": 100 } });
    let (_, issued) = first.v2(ROOT_KEY, "keys.createKey", &request);
    let verify = json!({ "key": issued["data"]["key"] });
    for _ in 0..10 {
        first.v2(ROOT_KEY, "keys.verifyKey", &verify);
    }

    first.signal("KILL");
    first.wait();
    let second = start();

    let (_, verified) = second.v2(ROOT_KEY, "keys.verifyKey", &verify);
    assert_eq!(verified["data"]["credits"], 89, "{verified}");
}

#[test]
fn a_root_key_made_and_revoked_beside_a_running_server_is_seen_within_a_second() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(embedded(data.path()));
    let create = ["root-key", "create", "--permission", "api.*.create_api", "--json"];

    let made = json_of(&run(data.path(), &create));
    let (id, key) = (made["keyId"].as_str().unwrap(), made["key"].as_str().unwrap());
    let create_api = json!({ "name": "payments" });
    assert_eq!(server.v2(key, "apis.createApi", &create_api).0, 200);
    assert_eq!(server.v2(key, "permissions.createRole", &create_api).0, 403);
    let listed = json_of(&run(data.path(), &["root-key", "list", "--json"]));
    assert!(listed.as_array().unwrap().iter().any(|entry| entry["keyId"] == id), "{listed}");
    assert!(!listed.to_string().contains(key));
    let revoked = Stopwatch::new();
    json_of(&run(data.path(), &["root-key", "revoke", id, "--json"]));

    let answer = loop {
        let (status, answer) = server.v2(key, "apis.createApi", &create_api);
        if status != 200 {
            break answer;
        }
        assert!(revoked.elapsed_ms() < 2_000, "still accepted");
    };
    assert!(answer["error"]["type"].as_str().unwrap().ends_with("/errors/root_key_revoked"));
}

#[test]
fn a_workspace_sees_nothing_of_another() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    let (_, api) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));

    let made = json_of(&run(data.path(), &["workspace", "create", "--name", "other", "--json"]));
    let workspace = made["workspaceId"].as_str().unwrap();
    let create = ["root-key", "create", "--workspace", workspace, "--all", "--json"];
    let key = json_of(&run(data.path(), &create));
    let key = key["key"].as_str().unwrap();

    assert_eq!(server.v2(ROOT_KEY, "apis.getApi", &api["data"]).0, 200);
    assert_eq!(server.v2(key, "apis.getApi", &api["data"]).0, 404);
}

#[test]
fn a_namespace_is_listed_set_and_deleted_beside_a_running_server() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    let limit = || {
        let check = json!({
            "namespace": "email.send", "identifier": "user_1", "limit": 1000, "duration": 60_000,
        });
        server.v2(ROOT_KEY, "ratelimit.limit", &check)
    };
    let namespace = |arguments: &[&str]| {
        let arguments: Vec<_> = [&["namespace"], arguments, &["--json"]].concat();
        json_of(&run(data.path(), &arguments))
    };
    assert_eq!(limit().0, 200);

    let listed = namespace(&["list"]);
    let id = listed[0]["namespaceId"].as_str().unwrap();
    assert_eq!(
        (&listed[0]["name"], &listed[0]["onOutage"], &listed[0]["deletedAt"]),
        (&json!("email.send"), &json!("local"), &Value::Null)
    );
    assert_eq!(namespace(&["set", "email.send", "--on-outage", "closed"])["onOutage"], "closed");
    assert_eq!(namespace(&["set", id, "--on-outage", "open"])["namespaceId"], id);
    assert_eq!(namespace(&["list"])[0]["onOutage"], "open");
    assert!(namespace(&["delete", "email.send"])["deletedAt"].is_i64());
    let deleted = Stopwatch::new();
    let answer = loop {
        let (status, answer) = limit();
        if status != 200 {
            break answer;
        }
        assert!(deleted.elapsed_ms() < 2_000, "still accepted");
    };

    assert!(
        answer["error"]["type"].as_str().unwrap().ends_with("/errors/ratelimit_namespace_gone")
    );
    let lines = run(data.path(), &["namespace", "list"]).stdout;
    let line = format!("{id}  open  deleted  email.send\n");
    assert_eq!(String::from_utf8(lines).unwrap(), line);
    assert_eq!(
        events(data.path(), id),
        [
            "rootkey 127.0.0.1 ratelimitNamespace.create",
            "system - ratelimitNamespace.update",
            "system - ratelimitNamespace.update",
            "system - ratelimitNamespace.delete",
        ]
    );
}

/// What the audit log of an embedded server tells of a thing, oldest first.
fn events(data_dir: &Path, id: &str) -> Vec<String> {
    let url = format!("sqlite://{}", data_dir.join("keyward.db").display());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let sql = "
            SELECT actor_type || ' ' || COALESCE(remote_address, '-') || ' ' || event
            FROM audit
            WHERE targets LIKE '%' || $1 || '%'
            ORDER BY rowid";
        let mut file = sqlx::SqliteConnection::connect(&url).await.unwrap();
        sqlx::query_scalar(sql).bind(id).fetch_all(&mut file).await.unwrap()
    })
}

#[test]
fn a_namespace_that_is_not_there_and_a_policy_that_is_none_are_refused() {
    let data = tempfile::tempdir().unwrap();
    let namespace = |arguments: &[&str]| run(data.path(), &[&["namespace"], arguments].concat());

    let words = ["rate-limit namespace email.send does not exist"];
    refused(&namespace(&["set", "email.send", "--on-outage", "open"]), 2, &words);
    refused(&namespace(&["delete", "email.send"]), 2, &words);
    refused(&namespace(&["delete", "email.send", "--workspace", "ws_none"]), 2, &words);
    for policy in [&["--on-outage", "ajar"][..], &[]] {
        let output = namespace(&[&["set", "email.send"], policy].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("local") && text.contains("closed"), "{text}");
    }
    assert_eq!(json_of(&namespace(&["list", "--json"])), json!([]));
}

#[test]
fn a_root_key_of_a_workspace_that_does_not_exist_is_refused() {
    let data = tempfile::tempdir().unwrap();

    let output = run(data.path(), &["root-key", "create", "--workspace", "ws_none", "--all"]);

    refused(&output, 2, &["workspace ws_none does not exist"]);
}

#[test]
fn a_permission_that_does_not_exist_is_refused_by_name() {
    let data = tempfile::tempdir().unwrap();

    let output = run(data.path(), &["root-key", "create", "--permission", "api.*.fly"]);

    refused(&output, 2, &["api.*.fly", "create_key"]);
}

#[test]
fn the_configured_root_key_is_made_once_and_not_shown() {
    let data = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = embedded(data.path());
        command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
        Server::start(command)
    };

    let first = start();
    assert!(!first.greeting.contains(ROOT_KEY), "{}", first.greeting);
    drop(first);
    let second = start();

    assert_eq!(second.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" })).0, 200);
    let listed = json_of(&run(data.path(), &["root-key", "list", "--json"]));
    assert_eq!(listed.as_array().unwrap().len(), 1);
}

#[test]
fn a_secret_can_come_from_a_file() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("root-key");
    std::fs::write(&file, format!("{ROOT_KEY}\n")).unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY_FILE", &file);

    let server = Server::start(command);

    assert_eq!(server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" })).0, 200);
}

#[test]
fn one_url_without_the_other_is_refused() {
    let only = |name: &str, url: &str| keyward().env(name, url).output().unwrap();

    let words = ["KEYWARD_DATABASE_URL", "KEYWARD_REDIS_URL", "set both"];
    refused(&only("KEYWARD_DATABASE_URL", "postgres://localhost/x"), 2, &words);
    refused(&only("KEYWARD_REDIS_URL", "redis://localhost"), 2, &words);
}

#[test]
fn a_value_that_cannot_be_used_is_refused_with_its_name_and_what_is_allowed() {
    let long = "x".repeat(256);
    for (name, value, words) in [
        ("KEYWARD_LISTEN", "nowhere", &["\"nowhere\"", "127.0.0.1:3000"][..]),
        ("KEYWARD_ROOT_KEY", "only_19_characters_", &["19", "20 to 255"]),
        ("KEYWARD_ROOT_KEY", &long, &["256", "20 to 255"]),
        ("KEYWARD_ROOT_KEY", "with spaces in the middle", &["spaces"]),
        ("KEYWARD_DRAIN_SECONDS", "soon", &["\"soon\"", "0 to 3600"]),
        ("KEYWARD_DRAIN_SECONDS", "3601", &["0 to 3600"]),
        ("KEYWARD_DOCS_URL", "docs.example", &["https://"]),
        ("KEYWARD_LOG", "=,=", &["info"]),
        ("KEYWARD_LOG_FORMAT", "xml", &["text or json"]),
        ("KEYWARD_REDIS_TIMEOUT_MS", "0", &["1 to 10000"]),
        ("KEYWARD_DATABASE_CONNECTIONS", "1", &["2 to 1000"]),
        ("KEYWARD_CACHED_KEYS", "-5", &["whole number"]),
        ("KEYWARD_ROOT_KEY_FILE", "/does/not/exist", &["/does/not/exist"]),
    ] {
        let data = tempfile::tempdir().unwrap();
        let output = embedded(data.path()).env(name, value).output().unwrap();

        let mut words = words.to_vec();
        words.push(name);
        refused(&output, 2, &words);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("only_19_characters_"));
    }
}

#[test]
fn the_audit_log_tells_from_where_a_change_came() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    let request = format!(
        "POST /v2/apis.createApi HTTP/1.1\r\nHost: keyward\r\nConnection: close\r\n\
        Authorization: Bearer {ROOT_KEY}\r\nContent-Type: application/json\r\n\
        User-Agent: teller/1.0\r\nContent-Length: 19\r\n\r\n{{\"name\":\"payments\"}}"
    );

    let (status, answer) = exchange(server.address, request.as_bytes()).unwrap();

    assert_eq!(status, 200, "{answer}");
    let url = format!("sqlite://{}", data.path().join("keyward.db").display());
    let entry: (String, String) = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let sql = "SELECT remote_address, user_agent FROM audit WHERE event = 'api.create'";
        let mut file = sqlx::SqliteConnection::connect(&url).await.unwrap();
        sqlx::query_as(sql).fetch_one(&mut file).await.unwrap()
    });
    assert_eq!(entry, ("127.0.0.1".into(), "teller/1.0".into()));
}

#[test]
fn a_command_on_a_database_that_is_not_there_is_refused() {
    let url = format!("postgres://nobody@127.0.0.1:{}/none", free_port());
    let output = keyward()
        .arg("migrate")
        .env("KEYWARD_DATABASE_URL", url)
        .env("KEYWARD_REDIS_URL", redis_url())
        .output()
        .unwrap();

    refused(&output, 1, &["cannot reach the database", "KEYWARD_DATABASE_URL"]);
}

#[test]
fn a_schema_newer_than_the_binary_is_refused() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = runtime.block_on(async {
        let database = Database::create().await;
        let sql = "INSERT INTO _sqlx_migrations
            (version, description, success, checksum, execution_time)
            VALUES (9999, 'from the future', TRUE, '', 0)";
        sqlx::query(sql).execute(&mut database.connect().await).await.unwrap();
        database
    });

    let output = keyward()
        .env("KEYWARD_DATABASE_URL", &database.url)
        .env("KEYWARD_REDIS_URL", redis_url())
        .output()
        .unwrap();

    refused(&output, 1, &["9999", "newer than this keyward"]);
}

#[test]
fn a_port_in_use_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();

    let output = embedded(data.path()).env("KEYWARD_LISTEN", &address).output().unwrap();

    refused(&output, 1, &[&address, "KEYWARD_LISTEN"]);
}

#[test]
fn a_data_directory_that_cannot_be_used_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("a-file");
    std::fs::write(&file, "not a directory").unwrap();

    let output = embedded(&file).output().unwrap();

    refused(&output, 1, &["a-file", "KEYWARD_DATA_DIR"]);
}

#[test]
fn a_database_file_that_is_none_is_refused() {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("keyward.db"), "this is no database, ".repeat(100)).unwrap();

    let output = embedded(data.path()).output().unwrap();

    refused(&output, 1, &["database", "KEYWARD_DATA_DIR"]);
}

#[test]
fn the_ledger_of_credits_can_be_read_and_given_back() {
    let data = tempfile::tempdir().unwrap();

    let empty = run(data.path(), &["credits", "list", "--json"]);
    let nothing = run(data.path(), &["credits", "release", "--all", "--json"]);
    let unsaid = run(data.path(), &["credits", "release"]);
    let both = run(data.path(), &["credits", "release", "--all", "--key", "key_1"]);

    assert_eq!(json_of(&empty), json!([]));
    assert_eq!(json_of(&nothing), json!({ "released": 0 }));
    assert_eq!((unsaid.status.code(), both.status.code()), (Some(2), Some(2)));
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let _first = Server::start(embedded(data.path()));

    let output = embedded(data.path()).env("KEYWARD_LISTEN", "127.0.0.1:0").output().unwrap();

    refused(&output, 1, &["another keyward", "KEYWARD_DATA_DIR"]);
}

#[test]
fn health_tells_by_its_exit_status() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(embedded(data.path()));
    let health =
        |address: &str| keyward().arg("health").env("KEYWARD_LISTEN", address).output().unwrap();

    assert!(health(&server.address.to_string()).status.success());
    refused(&health(&format!("127.0.0.1:{}", free_port())), 1, &["not ready"]);
}

#[test]
fn a_command_that_does_not_exist_is_wrong_use() {
    let output = keyward().arg("fly").output().unwrap();

    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_printed_document_is_the_served_one() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(embedded(data.path()));

    let printed = embedded(data.path())
        .args(["openapi", "v2"])
        .env("KEYWARD_LISTEN", server.address.to_string())
        .output()
        .unwrap();
    let (_, served) = get(server.address, "/openapi.json").unwrap();

    let served: Value = serde_json::from_str(&served).unwrap();
    assert_eq!(json_of(&printed), served);
    assert_eq!(served["openapi"], "3.1.0");
}

#[test]
fn a_server_that_is_told_to_stop_says_so_and_serves_on_while_it_drains() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_DRAIN_SECONDS", "2").env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);

    server.signal("TERM");
    let ready = loop {
        let (status, text) = get(server.address, "/readyz").unwrap();
        if status != 200 {
            break (status, text);
        }
    };
    let (status, _) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));

    assert_eq!(ready.0, 503);
    assert!(ready.1.contains("draining"), "{}", ready.1);
    assert_eq!(status, 200);
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_head_that_cannot_be_read_is_answered() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(embedded(data.path()));
    let headers = "X: y\r\n".repeat(101);
    let many = format!("GET /livez HTTP/1.1\r\nHost: x\r\n{headers}\r\n");

    assert_eq!(exchange(server.address, many.as_bytes()).unwrap().0, 431);
    assert_eq!(exchange(server.address, b"no request at all\r\n\r\n").unwrap().0, 400);
}

#[test]
fn no_secret_reaches_the_log() {
    let data = tempfile::tempdir().unwrap();
    let log = data.path().join("log");
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY).env("KEYWARD_LOG", "trace");
    command.env("KEYWARD_LOG_FORMAT", "json");
    let server = Server::start_logging(command, &log);
    let canary = format!("canary{}", random());
    let (_, api) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let (_, issued) =
        server.v2(ROOT_KEY, "keys.createKey", &json!({ "apiId": api["data"]["apiId"] }));
    let key = issued["data"]["key"].as_str().unwrap().to_owned();
    server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key }));
    server.v2(ROOT_KEY, "keys.whoami", &json!({ "key": canary }));
    let (_, fault) =
        server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": [canary], "x": canary }));
    server.v2(&canary, "keys.verifyKey", &json!({ "key": canary }));
    server.signal("TERM");
    server.wait();

    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.len() > 1000, "the log is empty");
    for secret in [ROOT_KEY, key.as_str(), canary.as_str()] {
        assert!(!text.contains(secret), "{secret} is in the log");
    }
    assert!(!fault.to_string().contains(&canary), "{fault}");
}

#[test]
fn an_api_is_listed_and_set_beside_a_running_server() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    let (_, made) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let api = made["data"]["apiId"].as_str().unwrap();
    let cli = |arguments: &[&str]| {
        embedded(data.path()).arg("api").args(arguments).arg("--json").output().unwrap()
    };
    let set = |arguments: &[&str]| json_of(&cli(&[&["update", api], arguments].concat()));

    let all = json_of(&cli(&["list"]));
    let everything = set(&[
        "--default-prefix",
        "acme",
        "--default-bytes",
        "24",
        "--recoverable-keys",
        "on",
        "--delete-protection",
        "on",
        "--allow",
        "10.1.2.3/8, 2001:db8::1",
    ]);
    let one = set(&["--delete-protection", "off"]);
    let cleared = set(&["--default-prefix", "", "--allow", ""]);

    assert_eq!((&all[0]["apiId"], &all[0]["recoverableKeys"]), (&json!(api), &json!(false)));
    assert_eq!(everything["allow"], json!(["10.0.0.0/8", "2001:db8::1/128"]));
    assert_eq!((&one["defaultPrefix"], &one["defaultBytes"]), (&json!("acme"), &json!(24)));
    assert_eq!((&one["deleteProtection"], &one["recoverableKeys"]), (&json!(false), &json!(true)));
    assert_eq!((&cleared["defaultPrefix"], &cleared["allow"]), (&Value::Null, &Value::Null));
    assert_eq!(cleared["defaultBytes"], 24);
    refused(&cli(&["update", "api_nowhere"]), 2, &["api_nowhere"]);
    refused(&cli(&["update", api, "--allow", "10.0.0.0/33"]), 2, &["--allow", "10.0.0.0/33"]);
    refused(&cli(&["update", api, "--default-prefix", "a-b"]), 2, &["--default-prefix", "16"]);
    let over = "a".repeat(17);
    refused(&cli(&["update", api, "--default-prefix", &over]), 2, &["--default-prefix", "16"]);
}

/// A recoverable key of a server, and what shows it.
fn recoverable(server: &Server, data: &Path) -> (Value, Value) {
    let (_, made) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let api = made["data"]["apiId"].as_str().unwrap();
    let mut command = embedded(data);
    json_of(
        &command
            .args(["api", "update", api, "--recoverable-keys", "on", "--json"])
            .output()
            .unwrap(),
    );
    let request = json!({ "apiId": api, "recoverable": true });
    let (_, issued) = server.v2(ROOT_KEY, "keys.createKey", &request);
    (issued["data"]["key"].clone(), json!({ "keyId": issued["data"]["keyId"], "decrypt": true }))
}

#[test]
fn an_embedded_server_makes_its_master_key_and_refuses_to_start_without_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let data = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = embedded(data.path());
        command.env("KEYWARD_ROOT_KEY", ROOT_KEY).env("KEYWARD_LISTEN", "127.0.0.1:0");
        command
    };
    let server = Server::start(start());
    let (key, look) = recoverable(&server, data.path());
    let file = data.path().join("master.key");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    drop(server);

    let elsewhere = data.path().join("elsewhere");
    std::fs::rename(&file, &elsewhere).unwrap();
    refused(&start().output().unwrap(), 1, &["master.key", "KEYWARD_MASTER_KEY"]);
    let other = "a5".repeat(32);
    let mut wrong = start();
    refused(
        &wrong.env("KEYWARD_MASTER_KEY", other).output().unwrap(),
        1,
        &["sealed", "KEYWARD_MASTER_KEY"],
    );
    assert!(!file.exists(), "no other key takes its place");
    std::fs::rename(&elsewhere, &file).unwrap();
    let server = Server::start(start());

    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(server.v2(ROOT_KEY, "keys.getKey", &look).1["data"]["plaintext"], key);
}

#[test]
fn the_master_key_is_rotated_beside_a_running_server() {
    let data = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = embedded(data.path());
        command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
        Server::start(command)
    };
    let server = start();
    let (key, look) = recoverable(&server, data.path());
    let file = data.path().join("master.key");
    let before = std::fs::read_to_string(&file).unwrap();

    let mut command = embedded(data.path());
    let told = json_of(&command.args(["vault", "rotate", "--json"]).output().unwrap());

    assert_eq!(told["rotated"], 1);
    assert_ne!(std::fs::read_to_string(&file).unwrap(), before);
    assert!(!data.path().join("master.key.next").exists());
    assert_eq!(server.v2(ROOT_KEY, "keys.getKey", &look).1["data"]["plaintext"], key);
    drop(server);
    assert_eq!(start().v2(ROOT_KEY, "keys.getKey", &look).1["data"]["plaintext"], key);
}

#[test]
fn a_master_key_that_is_none_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let with = |name: &str, value: &str| embedded(data.path()).env(name, value).output().unwrap();

    refused(&with("KEYWARD_MASTER_KEY", "short"), 2, &["KEYWARD_MASTER_KEY", "32 bytes"]);
    refused(
        &with("KEYWARD_MASTER_KEY_PREVIOUS", &"a5".repeat(32)),
        2,
        &["KEYWARD_MASTER_KEY_PREVIOUS", "KEYWARD_MASTER_KEY"],
    );
    refused(
        &with("KEYWARD_TRUSTED_PROXIES", "10.0.0.0/8,x"),
        2,
        &["KEYWARD_TRUSTED_PROXIES", "\"x\""],
    );
}

#[test]
fn a_migration_is_made_and_listed() {
    let data = tempfile::tempdir().unwrap();
    let cli = |arguments: &[&str]| {
        embedded(data.path()).arg("migration").args(arguments).arg("--json").output().unwrap()
    };
    let create =
        |algorithm: &str| json_of(&cli(&["create", "--algorithm", algorithm, "--name", "old"]));

    let made = [create("sha256"), create("prefixed-api-key")];
    let all = json_of(&cli(&["list"]));

    for made in &made {
        assert!(made["migrationId"].as_str().unwrap().starts_with("mig_"));
        assert!(all.as_array().unwrap().contains(made), "{all}");
    }
    let wrong = cli(&["create", "--algorithm", "md5"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("prefixed-api-key"));
    let nowhere = ["create", "--algorithm", "sha256", "--workspace", "ws_nowhere"];
    refused(&cli(&nowhere), 2, &["ws_nowhere"]);
}

#[test]
fn the_audit_log_can_be_read_searched_and_paged() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    let (_, made) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let api = made["data"]["apiId"].as_str().unwrap().to_owned();
    for name in ["one", "two", "three"] {
        server.v2(ROOT_KEY, "keys.createKey", &json!({ "apiId": api, "name": name }));
    }
    let list = |arguments: &[&str]| {
        let mut command = embedded(data.path());
        let listed =
            command.args(["audit", "list"]).args(arguments).arg("--json").output().unwrap();
        json_of(&listed).as_array().unwrap().clone()
    };
    let names = |entries: &[Value]| -> Vec<String> {
        let name = |entry: &Value| entry["targets"][0]["name"].as_str().unwrap_or("-").to_owned();
        entries.iter().map(name).collect()
    };

    let keys = list(&["--event", "key.create"]);
    let first = list(&["--event", "key.create", "--limit", "2"]);
    let rest = list(&["--event", "key.create", "--before", first[1]["id"].as_str().unwrap()]);
    let about = list(&["--about", "payments"]);
    let actor = keys[0]["actor"]["id"].as_str().unwrap();

    assert_eq!(names(&keys), ["three", "two", "one"]);
    assert_eq!(
        (names(&first), names(&rest)),
        (vec!["three".into(), "two".into()], vec!["one".into()])
    );
    assert_eq!((about.len(), &about[0]["event"]), (1, &json!("api.create")));
    assert_eq!(list(&["--actor", actor]).len(), 4);
    assert!(list(&["--about", &api]).len() == 1 && list(&["--about", "nothing"]).is_empty());
    assert_eq!(
        (&keys[0]["actor"]["type"], &keys[0]["actor"]["name"]),
        (&json!("rootkey"), &json!("KEYWARD_ROOT_KEY"))
    );
    assert_eq!(keys[0]["remoteAddress"], "127.0.0.1");
    assert!(keys[0]["correlationId"].as_str().unwrap().starts_with("cor_"));
    assert!(list(&["--workspace", "ws_other"]).is_empty());
}

#[test]
fn a_body_that_is_too_large_is_answered_when_all_of_it_was_sent() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    let head = |length: &str| {
        format!(
            "POST /v2/apis.createApi HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
            Authorization: Bearer {ROOT_KEY}\r\nContent-Type: application/json\r\n{length}\r\n"
        )
    };
    let body = " ".repeat(8 * 1024 * 1024);

    let announced = head(&format!("Content-Length: {}\r\n", body.len())) + &body;
    let in_pieces = head("Transfer-Encoding: chunked\r\n")
        + &format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());

    for request in [announced, in_pieces] {
        let (status, answer) = exchange(server.address, request.as_bytes()).unwrap();
        assert_eq!(status, 413, "{answer}");
    }
}
