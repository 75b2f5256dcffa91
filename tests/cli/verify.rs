//! Tests the commands that ask the running server for decisions.

use std::io::Write as _;
use std::process::Stdio;

use super::deployments::{Deployment, text_of, wait_for};
use super::*;

#[test]
fn key_verify_is_a_verification_of_the_server() {
    for deployment in Deployment::both() {
        let server = deployment.serve();
        let api = deployment.create_api();
        let (id, key) =
            deployment.create_key(&api, &["--credits", "10", "--ratelimit", "requests=2/1h"]);
        let verify = |options: &[&str]| {
            deployment.ask(&server, &[&["key", "verify", &key, "--json"], options].concat())
        };

        let first = parse_json(&verify(&["--cost", "4"]));
        let expected = (&json!("VALID"), &json!(6), &json!(id));
        assert_eq!((&first["code"], &first["credits"], &first["keyId"]), expected);
        let (_, second) = server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key }));
        assert_eq!(second["data"]["credits"], 5, "{second}");

        let third = verify(&[]);
        assert_eq!(third.status.code(), Some(1), "{third:?}");
        assert!(third.stderr.is_empty(), "{third:?}");
        let third: Value = serde_json::from_slice(&third.stdout).unwrap();
        assert_eq!((&third["valid"], &third["code"]), (&json!(false), &json!("RATE_LIMITED")));
        let text = deployment.ask(&server, &["key", "verify", &key]);
        let text = String::from_utf8(text.stdout).unwrap();
        assert!(text.contains("RATE_LIMITED") && text.contains("requests: exceeded"), "{text}");
        let unknown = deployment.ask(&server, &["key", "verify", "nobodys_key"]);
        assert_eq!(unknown.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&unknown.stdout).contains("NOT_FOUND"));
    }
}

#[test]
fn limit_check_counts_with_the_server() {
    for deployment in Deployment::both() {
        let server = deployment.serve();
        let check = |options: &[&str]| {
            let check =
                ["limit", "check", "email", "user_1", "--limit", "3", "--duration", "1h", "--json"];
            deployment.ask(&server, &[&check, options].concat())
        };
        let request = json!({ "namespace": "email", "identifier": "user_1", "limit": 3, "duration": 3_600_000 });

        let first = parse_json(&check(&["--cost", "2"]));
        let (_, second) = server.v2(ROOT_KEY, "ratelimit.limit", &request);
        let third = check(&[]);

        assert_eq!((&first["success"], &first["remaining"]), (&json!(true), &json!(1)));
        assert_eq!(
            (&second["data"]["success"], &second["data"]["remaining"]),
            (&json!(true), &json!(0))
        );
        assert_eq!(third.status.code(), Some(1), "{third:?}");
        let third: Value = serde_json::from_slice(&third.stdout).unwrap();
        assert_eq!(third["success"], false);
        assert_eq!(parse_json(&check(&["--cost", "0"]))["remaining"], 0);
        for (identifier, limit, words) in [
            ("user_1", "3", ["RESULT", "rejected", "LIMIT", "3", "REMAINING", "0"]),
            ("user_2", "2000", ["RESULT", "allowed", "LIMIT", "2,000", "REMAINING", "1,999"]),
        ] {
            let check = ["limit", "check", "email", identifier, "--limit", limit];
            let output = deployment.ask(&server, &[&check[..], &["--duration", "1h"]].concat());
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(text.split_whitespace().take(6).collect::<Vec<_>>(), words, "{text}");
        }
    }
}

#[test]
fn key_verify_uses_the_configured_root_key_or_one_that_it_revokes() {
    let deployment = Deployment::embedded();
    let server = deployment.serve();
    let api = deployment.create_api();
    let (_, key) = deployment.create_key(&api, &[]);
    let root_keys = || deployment.json(&["root-key", "list"]).as_array().unwrap().clone();
    let with_root_key = |root_key: &str| {
        let mut command = deployment.command();
        command.env("KEYWARD_LISTEN", server.address.to_string()).env("KEYWARD_ROOT_KEY", root_key);
        command.args(["key", "verify", &key, "--json"]).output().unwrap()
    };

    assert_eq!(parse_json(&with_root_key(ROOT_KEY))["code"], "VALID");
    assert_eq!(root_keys().len(), 1);
    let wrong = with_root_key("a_root_key_that_is_unknown");
    assert_rejected(&wrong, 2, &["KEYWARD_LISTEN", "KEYWARD_ROOT_KEY"]);
    parse_json(&deployment.ask(&server, &["key", "verify", &key, "--json"]));
    let all = root_keys();
    let created = all.iter().find(|it| it["name"] == "command line: keys.verifyKey").unwrap();
    assert_eq!(all.len(), 2);
    assert!(created["revokedAt"].is_i64() && created["expires"].is_i64(), "{created}");
    assert_eq!(created["permissions"], json!(["api.*.verify_key"]));
}

#[test]
fn key_verify_reads_the_key_from_standard_input() {
    let deployment = Deployment::embedded();
    let server = deployment.serve();
    let api = deployment.create_api();
    let (_, key) = deployment.create_key(&api, &[]);
    let verify = |arguments: &[&str], input: &str| {
        let mut command = deployment.command();
        command.env("KEYWARD_LISTEN", server.address.to_string()).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that rejects the input may have ended.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    };

    for arguments in [&["key", "verify"][..], &["key", "verify", "-"]] {
        let output = verify(arguments, &format!("{key}\n"));
        assert!(output.status.success(), "{output:?}");
    }
    assert!(
        verify(&["key", "verify"], &"k".repeat(4096)).stderr.starts_with(b"keyward: the request")
    );
    let long = verify(&["key", "verify"], &"k".repeat(4097));
    assert_rejected(&long, 2, &["standard input", "4096 bytes"]);
}

#[test]
fn commands_that_ask_the_server_fail_when_input_is_invalid_or_no_server_runs() {
    let deployment = Deployment::embedded();
    let server = deployment.serve();
    let check = |duration: &str, limit: &str| {
        let check = ["limit", "check", "email", "user_1", "--duration", duration, "--limit", limit];
        deployment.ask(&server, &check)
    };

    assert!(check("1s", "1").status.success());
    assert_rejected(&check("999ms", "1"), 2, &["duration", "1000"]);
    assert_rejected(&check("1s", "0"), 2, &["limit", "1"]);
    assert_rejected(&check("60", "1"), 2, &["--duration", "90s"]);
    let missing = deployment.run(&["limit", "check", "email"]);
    let words = ["keyward: missing --limit <NUMBER> and --duration <DURATION> and <IDENTIFIER>"];
    assert_rejected(&missing, 2, &words);
    let (_, key) = deployment.create_key(&deployment.create_api(), &[]);
    let query = deployment.ask(&server, &["key", "verify", &key, "--permissions", "a AND"]);
    assert_rejected(&query, 2, &["the permissions query is not valid"]);
    let mut command = deployment.command();
    command.env("KEYWARD_LISTEN", format!("127.0.0.1:{}", free_port()));
    let alone = command.args(["key", "verify", "key"]).output().unwrap();
    assert_rejected(&alone, 1, &["no server answers at 127.0.0.1:", "KEYWARD_LISTEN"]);
    wait_for(&1, || deployment.json(&["namespace", "list"]).as_array().unwrap().len());
    assert_eq!(text_of(&deployment.json(&["namespace", "list"])[0], "name"), "email");
}
