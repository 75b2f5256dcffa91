//! Tests that a server starts with a filled database of every older schema, and verifies its keys, on both engines.

use std::process::Command;

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::faults::replica_command;
use crate::share_turn;
use crate::support::older_schema::{fill_sqlite, filled_postgres, older_versions};
use crate::support::process::{Server, keyward_command};
use crate::support::redis_url;

/// The root key of the default workspace in `tests/store/schemas`.
const ROOT_KEY: &str = "root_of_every_older_version";
/// The master key of its recoverable key.
const MASTER_KEY: &str = "6b657977617264206f6c64657220736368656d6173206d6173746572206b6579";
/// A root key of the other workspace.
const OTHER_ROOT_KEY: &str = "keyward_LxT15GfCNYenRwGyWCA9TJXhotYnHHrUF";
const RECOVERABLE_KEY: &str = "prod_Akkzhfs4KtawG96uVbNVB5tPoPjY2Dz7M";

#[test]
fn embedded_server_starts_with_every_older_schema() {
    let _turn = share_turn();
    let runtime = Runtime::new().unwrap();
    for version in runtime.block_on(older_versions()) {
        let directory = tempfile::tempdir().unwrap();
        runtime.block_on(fill_sqlite(&directory.path().join("keyward.db"), version));
        let mut command = keyward_command();
        command.env("KEYWARD_DATA_DIR", directory.path()).env("KEYWARD_DRAIN_SECONDS", "0");
        command.env("KEYWARD_LOG", "error");

        assert_serves(&start(command), version);
    }
}

#[test]
fn replica_starts_with_every_older_schema() {
    let _turn = share_turn();
    let runtime = Runtime::new().unwrap();
    for version in runtime.block_on(older_versions()) {
        let database = runtime.block_on(filled_postgres(version));

        assert_serves(&start(replica_command(&database.url, &redis_url())), version);
    }
}

fn start(mut command: Command) -> Server {
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY).env("KEYWARD_MASTER_KEY", MASTER_KEY);
    Server::start(command)
}

fn data(server: &Server, root_key: &str, operation: &str, body: &Value) -> Value {
    let (status, answer) = server.v2(root_key, operation, body);
    assert_eq!(status, 200, "{operation} {body}: {answer}");
    answer["data"].clone()
}

fn verify(server: &Server, key: &str) -> Value {
    data(server, ROOT_KEY, "keys.verifyKey", &json!({ "key": key }))
}

/// Checks that a server verifies the keys of `tests/store/schemas`, and creates another one.
fn assert_serves(server: &Server, version: i64) {
    let codes = [
        (RECOVERABLE_KEY, "VALID"),
        ("prod_88FT9TbUvBHctD7b7EYRwEYamorREJGhp", "VALID"),
        ("prod_Fk5YT6YoD1QnYzS8N6YVETsTePgkZsmoP", "DISABLED"),
        ("prod_EbpcFhjFRQPnjYEsFm3REfJgd7QezfeE1", "EXPIRED"),
        ("prod_MQUKCR4gaAwDhpz6iLLc9FjDg2RF7jsLf", "NOT_FOUND"),
        ("7MPyFRiZcSGf1xuCrei4Ru", "NOT_FOUND"),
        ("5J6NWG22e3rWw1FKRazeHR", "VALID"),
        ("prod_F2hCNaeKf8sdp97p1L6KUaPF2X443DY6M", "VALID"),
        ("imported_key", "VALID"),
    ];
    let verified = codes.map(|(key, code)| {
        let verified = verify(server, key);
        assert_eq!(verified["code"], code, "{version}: {key}: {verified}");
        verified
    });
    let [full, counted, ..] = &verified;
    // The refill of today sets 1,000.
    assert_eq!((&full["credits"], &counted["credits"]), (&json!(999), &json!(40)), "{version}");
    assert_eq!(full["permissions"], json!(["docs.read", "docs.write"]), "{version}");
    assert_eq!(full["identity"]["externalId"], "USER_1234", "{version}");
    let other = json!({ "key": "C1imRjLTcH84b8JAYEUXRX" });
    assert_eq!(data(server, OTHER_ROOT_KEY, "keys.verifyKey", &other)["code"], "VALID");

    if version >= 5 {
        let request = json!({ "keyId": full["keyId"], "decrypt": true });
        let shown = data(server, ROOT_KEY, "keys.getKey", &request);
        assert_eq!(shown["plaintext"], RECOVERABLE_KEY, "{version}: {shown}");
    }
    if version >= 2 {
        let request = json!({
            "namespace": "ÖFFENTLICH", "identifier": "ΣΊΣΥΦΟΣ", "limit": 10, "duration": 60_000,
        });
        assert_eq!(data(server, ROOT_KEY, "ratelimit.limit", &request)["success"], false);
    }
    let request = json!({ "apiId": "api_LLUxauRsDdY2pdBwddn4GD" });
    let created = data(server, ROOT_KEY, "keys.createKey", &request);
    assert_eq!(verify(server, created["key"].as_str().unwrap())["code"], "VALID", "{version}");
}
