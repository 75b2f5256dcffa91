//! Tests APIs and migrations with commands of the operator.

use super::deployments::Deployment;
use super::*;

#[test]
fn api_is_listed_and_updated_while_server_runs() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    let (_, created) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let api = created["data"]["apiId"].as_str().unwrap();
    let cli = |arguments: &[&str]| {
        embedded(data.path()).arg("api").args(arguments).arg("--json").output().unwrap()
    };
    let set = |arguments: &[&str]| parse_json(&cli(&[&["update", api], arguments].concat()));

    let all = parse_json(&cli(&["list"]));
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
    assert_rejected(&cli(&["update", "api_nowhere"]), 2, &["api_nowhere"]);
    assert_rejected(
        &cli(&["update", api, "--allow", "10.0.0.0/33"]),
        2,
        &["--allow", "10.0.0.0/33"],
    );
    assert_rejected(
        &cli(&["update", api, "--default-prefix", "a-b"]),
        2,
        &["--default-prefix", "16"],
    );
    let over = "a".repeat(17);
    assert_rejected(
        &cli(&["update", api, "--default-prefix", &over]),
        2,
        &["--default-prefix", "16"],
    );
}

#[test]
fn migration_is_created_and_listed() {
    let data = tempfile::tempdir().unwrap();
    let cli = |arguments: &[&str]| {
        embedded(data.path()).arg("migration").args(arguments).arg("--json").output().unwrap()
    };
    let create =
        |algorithm: &str| parse_json(&cli(&["create", "--algorithm", algorithm, "--name", "old"]));

    let created = [create("sha256"), create("prefixed-api-key")];
    let all = parse_json(&cli(&["list"]));

    for created in &created {
        assert!(created["migrationId"].as_str().unwrap().starts_with("mig_"));
        assert!(all.as_array().unwrap().contains(created), "{all}");
    }
    let wrong = cli(&["create", "--algorithm", "md5"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("prefixed-api-key"));
    let nowhere = ["create", "--algorithm", "sha256", "--workspace", "ws_nowhere"];
    assert_rejected(&cli(&nowhere), 2, &["ws_nowhere"]);
}

#[test]
fn api_command_creates_shows_and_deletes() {
    for deployment in Deployment::both() {
        let create = |name: &str| deployment.run(&["api", "create", "--name", name]);
        assert_rejected(&create("ab"), 2, &["name", "3"]);
        assert_rejected(&create(&"n".repeat(257)), 2, &["name", "256"]);
        assert!(create("abc").status.success() && create(&"n".repeat(256)).status.success());
        let api = deployment.create_api();

        let found = deployment.json(&["api", "get", &api]);
        let text = deployment.text(&["api", "get", &api]);
        assert_eq!((&found["apiId"], &found["name"]), (&json!(api), &json!("payments")));
        assert!(text.lines().any(|line| line == "NAME      payments"), "{text}");
        deployment.json(&["api", "update", &api, "--delete-protection", "on"]);
        let refused = deployment.run(&["api", "delete", &api]);
        assert_rejected(&refused, 2, &["protected"]);
        deployment.json(&["api", "update", &api, "--delete-protection", "off"]);
        let deleted = deployment.json(&["api", "delete", &api]);
        assert_eq!(deleted, json!({ "apiId": api, "deleted": true }));
        for command in ["get", "delete"] {
            let output = deployment.run(&["api", command, &api]);
            assert_rejected(&output, 2, &[&api, "does not exist"]);
        }
        assert_rejected(
            &deployment.run(&["api", "create"]),
            2,
            &["keyward: missing --name <NAME>"],
        );
    }
}
