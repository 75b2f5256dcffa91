//! Tests the command line as an operator uses it: real processes, their output and their exit codes.

use std::path::Path;
use std::process::{Command, Output};

use foundation::clock::Stopwatch;
use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::support::database::Database;
use crate::support::process::{Server, exchange, free_port, get, keyward_command, run};
use crate::support::{random_letters, redis_url};

mod apis;
mod audit;
mod dashboard;
mod deployments;
mod doctor;
mod exported_settings;
mod exports;
mod gateway_configurations;
mod gateways;
mod help;
mod import;
mod keys;
mod large_imports;
mod metadata;
mod names;
mod namespaces;
mod output;
mod request_ids;
mod root_keys;
mod server_tls;
mod serving;
mod settings;
mod shell;
mod signing_keys;
mod tail;
mod variables;
mod vault;
mod verify;
mod workspaces;

const ROOT_KEY: &str = "a_root_key_of_an_operator_1";

fn embedded(data_dir: &Path) -> Command {
    let mut command = keyward_command();
    command.env("KEYWARD_DATA_DIR", data_dir).env("KEYWARD_DRAIN_SECONDS", "0");
    command
}

fn parse_json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}"))
}

/// Fails unless the command ended with this exit code and one sentence that contains all of these words.
#[track_caller]
fn assert_rejected(output: &Output, status: i32, words: &[&str]) {
    let sentence = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{sentence}");
    assert_eq!(sentence.trim().lines().count(), 1, "{sentence}");
    for word in words {
        assert!(sentence.contains(word), "{word:?} is not in {sentence:?}");
    }
}

#[test]
fn first_start_prints_root_key_and_working_curl_and_second_keeps_data() {
    let data = tempfile::tempdir().unwrap();
    let first = Server::start(embedded(data.path()));
    let greeting = first.banner.clone();
    let root_key =
        greeting.lines().map(str::trim).find(|line| line.starts_with("keyward_")).unwrap();
    let curl = greeting.lines().map(str::trim).find(|line| line.starts_with("curl ")).unwrap();

    let pasted = Command::new("sh").args(["-c", curl]).output().unwrap();
    let created: Value = serde_json::from_slice(&pasted.stdout).unwrap();
    let api = created["data"]["apiId"].as_str().unwrap();
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

    assert!(!second.banner.contains("keyward_"), "{}", second.banner);
    let (status, verified) = second.v2(root_key, "keys.verifyKey", &json!({ "key": key }));
    assert_eq!((status, &verified["data"]["code"]), (200, &json!("VALID")), "{verified}");
    assert_eq!(verified["data"]["credits"], 7);
}

#[test]
fn root_key_is_printed_when_an_earlier_start_failed() {
    let data = tempfile::tempdir().unwrap();
    let master_key = data.path().join("master.key");
    std::fs::write(&master_key, "nonsense").unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_LISTEN", "127.0.0.1:0").env("KEYWARD_LOG", "off");
    let failed = command.output().unwrap();
    std::fs::remove_file(&master_key).unwrap();

    let server = Server::start(embedded(data.path()));

    assert_rejected(&failed, 1, &["master.key"]);
    assert!(server.banner.contains("Your root key"), "{}", server.banner);
}

#[test]
fn first_start_fails_when_root_key_cannot_be_printed() {
    let data = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = embedded(data.path());
    command.env("KEYWARD_LISTEN", "127.0.0.1:0").env("KEYWARD_LOG", "off").stdout(writer);

    let output = command.output().unwrap();

    assert_rejected(&output, 1, &["root key", "keyward root-key create --all"]);
}

#[test]
fn credits_and_keys_persist_when_server_is_killed() {
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
fn root_key_changes_by_command_are_visible_within_a_second() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(embedded(data.path()));
    let create = ["root-key", "create", "--permission", "api.*.create_api", "--json"];

    let created = parse_json(&run(data.path(), &create));
    let (id, key) = (created["keyId"].as_str().unwrap(), created["key"].as_str().unwrap());
    let create_api = json!({ "name": "payments" });
    assert_eq!(server.v2(key, "apis.createApi", &create_api).0, 200);
    assert_eq!(server.v2(key, "permissions.createRole", &create_api).0, 403);
    let listed = parse_json(&run(data.path(), &["root-key", "list", "--json"]));
    assert!(listed.as_array().unwrap().iter().any(|entry| entry["keyId"] == id), "{listed}");
    assert!(!listed.to_string().contains(key));
    let revoked = Stopwatch::new();
    parse_json(&run(data.path(), &["root-key", "revoke", id, "--json"]));

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
fn workspace_has_no_access_to_another() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    let (_, api) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));

    let created =
        parse_json(&run(data.path(), &["workspace", "create", "--name", "other", "--json"]));
    let workspace = created["workspaceId"].as_str().unwrap();
    let create = ["root-key", "create", "--workspace", workspace, "--all", "--json"];
    let key = parse_json(&run(data.path(), &create));
    let key = key["key"].as_str().unwrap();

    assert_eq!(server.v2(ROOT_KEY, "apis.getApi", &api["data"]).0, 200);
    assert_eq!(server.v2(key, "apis.getApi", &api["data"]).0, 404);
}

/// Returns the audit events of a target of an embedded server, oldest first.
fn audit_events(data_dir: &Path, id: &str) -> Vec<String> {
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
fn root_key_create_fails_when_workspace_does_not_exist() {
    let data = tempfile::tempdir().unwrap();

    let output = run(data.path(), &["root-key", "create", "--workspace", "ws_none", "--all"]);

    assert_rejected(&output, 2, &["workspace ws_none does not exist"]);
}

#[test]
fn root_key_create_fails_when_permission_does_not_exist() {
    let data = tempfile::tempdir().unwrap();

    let output = run(data.path(), &["root-key", "create", "--permission", "api.*.fly"]);

    assert_rejected(&output, 2, &["api.*.fly", "create_key"]);
}

#[test]
fn configured_root_key_is_created_once_and_not_printed() {
    let data = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = embedded(data.path());
        command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
        Server::start(command)
    };

    let first = start();
    assert!(!first.banner.contains(ROOT_KEY), "{}", first.banner);
    drop(first);
    let second = start();

    assert_eq!(second.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" })).0, 200);
    let listed = parse_json(&run(data.path(), &["root-key", "list", "--json"]));
    assert_eq!(listed.as_array().unwrap().len(), 1);
}

#[test]
fn withheld_credits_can_be_listed_and_released() {
    let data = tempfile::tempdir().unwrap();

    let empty = run(data.path(), &["credits", "list", "--json"]);
    let nothing = run(data.path(), &["credits", "release", "--all", "--json"]);
    let unsaid = run(data.path(), &["credits", "release"]);
    let both = run(data.path(), &["credits", "release", "--all", "--key", "key_1"]);
    let unknown = run(data.path(), &["credits", "release", "--key", "key_1"]);

    assert_eq!(parse_json(&empty), json!([]));
    assert_eq!(parse_json(&nothing), json!({ "released": 0 }));
    assert_eq!((unsaid.status.code(), both.status.code()), (Some(2), Some(2)));
    assert_rejected(&unknown, 2, &["key_1", "does not exist"]);
}

#[test]
fn health_command_fails_when_server_is_not_ready() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(embedded(data.path()));
    let health = |address: &str| {
        keyward_command().arg("health").env("KEYWARD_LISTEN", address).output().unwrap()
    };

    assert!(health(&server.address.to_string()).status.success());
    assert_rejected(&health(&format!("127.0.0.1:{}", free_port())), 1, &["not ready"]);
}

#[test]
fn unknown_command_is_a_usage_error() {
    let output = keyward_command().arg("fly").output().unwrap();

    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn printed_openapi_document_equals_served_one() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(embedded(data.path()));

    let printed = embedded(data.path())
        .args(["openapi", "v2"])
        .env("KEYWARD_LISTEN", server.address.to_string())
        .output()
        .unwrap();
    let (_, served) = get(server.address, "/openapi.json").unwrap();

    let served: Value = serde_json::from_str(&served).unwrap();
    assert_eq!(parse_json(&printed), served);
    assert_eq!(served["openapi"], "3.1.0");
}

#[test]
fn server_reports_draining_and_keeps_serving_when_stopped() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_DRAIN_SECONDS", "5").env("KEYWARD_ROOT_KEY", ROOT_KEY);
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
fn unparsable_request_head_returns_400() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(embedded(data.path()));
    let headers = "X: y\r\n".repeat(101);
    let many = format!("GET /livez HTTP/1.1\r\nHost: x\r\n{headers}\r\n");

    assert_eq!(exchange(server.address, many.as_bytes()).unwrap().0, 431);
    assert_eq!(exchange(server.address, b"no request at all\r\n\r\n").unwrap().0, 400);
}

#[test]
fn log_contains_no_secrets() {
    let data = tempfile::tempdir().unwrap();
    let log = data.path().join("log");
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY).env("KEYWARD_LOG", "trace");
    command.env("KEYWARD_LOG_FORMAT", "json");
    let server = Server::start_logging(command, &log);
    let canary = format!("canary{}", random_letters());
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
fn reply_is_received_when_unneeded_body_was_sent_completely() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    let body = " ".repeat(8 * 1024 * 1024);

    for (root_key, media_type, due) in [
        (ROOT_KEY, "application/json", 413),
        (ROOT_KEY, "text/plain", 400),
        ("nobody", "application/json", 401),
    ] {
        let head = |length: &str| {
            format!(
                "POST /v2/apis.createApi HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                Authorization: Bearer {root_key}\r\nContent-Type: {media_type}\r\n{length}\r\n"
            )
        };
        let announced = head(&format!("Content-Length: {}\r\n", body.len())) + &body;
        let in_pieces = head("Transfer-Encoding: chunked\r\n")
            + &format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        for request in [announced, in_pieces] {
            let (status, answer) = exchange(server.address, request.as_bytes()).unwrap();
            assert_eq!(status, due, "{answer}");
        }
    }
}
