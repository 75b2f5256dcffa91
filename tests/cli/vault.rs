//! Tests the master key and the data that it encrypts.

use super::*;

/// Creates a recoverable key. Returns it and the request that decrypts it.
pub fn recoverable(server: &Server, data: &Path) -> (Value, Value) {
    let (_, created) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let api = created["data"]["apiId"].as_str().unwrap();
    let mut command = embedded(data);
    parse_json(
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
fn embedded_server_creates_its_master_key_and_does_not_start_without_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let data = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = embedded(data.path());
        command.env("KEYWARD_ROOT_KEY", ROOT_KEY).env("KEYWARD_LISTEN", "127.0.0.1:0");
        command
    };
    let server = Server::start(start());
    let (key, get_request) = recoverable(&server, data.path());
    let file = data.path().join("master.key");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    drop(server);

    let elsewhere = data.path().join("elsewhere");
    std::fs::rename(&file, &elsewhere).unwrap();
    assert_rejected(&start().output().unwrap(), 1, &["master.key", "KEYWARD_MASTER_KEY"]);
    let other = "a5".repeat(32);
    let mut wrong = start();
    assert_rejected(
        &wrong.env("KEYWARD_MASTER_KEY", other).output().unwrap(),
        1,
        &["sealed", "KEYWARD_MASTER_KEY"],
    );
    assert!(!file.exists(), "a new master key was created");
    std::fs::rename(&elsewhere, &file).unwrap();
    let server = Server::start(start());

    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(server.v2(ROOT_KEY, "keys.getKey", &get_request).1["data"]["plaintext"], key);
}

#[test]
fn master_key_is_rotated_while_server_runs() {
    let data = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = embedded(data.path());
        command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
        Server::start(command)
    };
    let server = start();
    let (key, get_request) = recoverable(&server, data.path());
    let file = data.path().join("master.key");
    let before = std::fs::read_to_string(&file).unwrap();

    let mut command = embedded(data.path());
    let output = parse_json(&command.args(["vault", "rotate", "--json"]).output().unwrap());

    assert_eq!(output["rotated"], 1);
    assert_ne!(std::fs::read_to_string(&file).unwrap(), before);
    assert!(!data.path().join("master.key.next").exists());
    assert_eq!(server.v2(ROOT_KEY, "keys.getKey", &get_request).1["data"]["plaintext"], key);
    drop(server);
    assert_eq!(start().v2(ROOT_KEY, "keys.getKey", &get_request).1["data"]["plaintext"], key);
}

#[test]
fn start_fails_when_master_key_is_invalid() {
    let data = tempfile::tempdir().unwrap();
    let with = |name: &str, value: &str| embedded(data.path()).env(name, value).output().unwrap();

    assert_rejected(&with("KEYWARD_MASTER_KEY", "short"), 2, &["KEYWARD_MASTER_KEY", "32 bytes"]);
    assert_rejected(
        &with("KEYWARD_MASTER_KEY_PREVIOUS", &"a5".repeat(32)),
        2,
        &["KEYWARD_MASTER_KEY_PREVIOUS", "KEYWARD_MASTER_KEY"],
    );
    assert_rejected(
        &with("KEYWARD_TRUSTED_PROXIES", "10.0.0.0/8,x"),
        2,
        &["KEYWARD_TRUSTED_PROXIES", "\"x\""],
    );
}

#[test]
fn first_data_key_after_rotation_is_encrypted_with_new_master_key() {
    let data = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = embedded(data.path());
        command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
        Server::start(command)
    };
    let server = start();
    let rotate = || {
        let mut command = embedded(data.path());
        parse_json(&command.args(["vault", "rotate", "--json"]).output().unwrap())
    };

    assert_eq!(rotate()["rotated"], 0);
    let (key, get_request) = recoverable(&server, data.path());

    drop(server);
    let server = start();
    assert_eq!(server.v2(ROOT_KEY, "keys.getKey", &get_request).1["data"]["plaintext"], key);
    assert_eq!(rotate()["rotated"], 1);
    assert_eq!(server.v2(ROOT_KEY, "keys.getKey", &get_request).1["data"]["plaintext"], key);
}

#[test]
fn data_encrypted_during_rotation_stays_readable() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    // A rotation that has re-encrypted all data keys, and has not replaced the master key yet.
    std::fs::write(data.path().join("master.key.next"), format!("{}\n", "a5".repeat(32))).unwrap();

    let (key, get_request) = recoverable(&server, data.path());

    std::fs::rename(data.path().join("master.key.next"), data.path().join("master.key")).unwrap();
    drop(server);
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    assert_eq!(server.v2(ROOT_KEY, "keys.getKey", &get_request).1["data"]["plaintext"], key);
}
