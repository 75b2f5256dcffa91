//! Tests the stream of verifications.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use super::deployments::{Deployment, text_of};
use super::*;

/// Starts a tail of verifications. It begins before now, so that it does not matter when it has started.
fn start(deployment: &Deployment, options: &[&str]) -> Child {
    let mut command = deployment.command();
    command.args(["tail", "--since", "1d"]).args(options);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn tail_shows_verifications_as_they_happen() {
    for deployment in Deployment::with_every_event_store() {
        let server = deployment.serve();
        let (api, other) = (deployment.create_api(), deployment.create_api());
        let (id, key) = deployment.create_key(&api, &["--external-id", "user_1"]);
        let (_, foreign) = deployment.create_key(&other, &["--disabled"]);
        let verify = |key: &str| {
            let request = json!({ "key": key, "tags": ["path=/a"] });
            assert_eq!(server.v2(ROOT_KEY, "keys.verifyKey", &request).0, 200);
        };
        let tails = [
            start(&deployment, &["--json", "--limit", "3"]),
            start(&deployment, &["--json", "--limit", "1", "--rejected"]),
            start(&deployment, &["--json", "--limit", "2", "--api", &api]),
            start(&deployment, &["--limit", "2", "--key", &id]),
        ];

        verify(&key);
        verify(&foreign);
        std::thread::sleep(std::time::Duration::from_millis(1_500));
        verify(&key);

        let outputs = tails.map(|tail| tail.wait_with_output().unwrap());
        let lines = |output: &Output| -> Vec<Value> {
            assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
            let text = String::from_utf8_lossy(&output.stdout);
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let codes = |output: &Output| -> Vec<String> {
            lines(output).iter().map(|event| text_of(event, "outcome")).collect()
        };
        assert_eq!(codes(&outputs[0]), ["VALID", "DISABLED", "VALID"]);
        assert_eq!(codes(&outputs[1]), ["DISABLED"]);
        assert_eq!(codes(&outputs[2]), ["VALID", "VALID"]);
        let event = &lines(&outputs[0])[0];
        assert_eq!((&event["keyId"], &event["apiId"]), (&json!(id), &json!(api)));
        assert_eq!((&event["externalId"], &event["tags"]), (&json!("user_1"), &json!(["path=/a"])));
        assert!(event["time"].is_i64() && event["latencyUs"].is_i64(), "{event}");
        let text = String::from_utf8_lossy(&outputs[3].stdout);
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["TIME", "RESULT", "KEY", "CREDITS", "LATENCY", "EXTERNAL", "ID"]);
        assert_eq!((rows.len(), &rows[1][1..4]), (3, &["VALID", id.as_str(), "0"][..]), "{text}");
    }
}

#[test]
fn tail_shows_only_new_verifications_and_ends_with_its_reader() {
    let deployment = Deployment::embedded();
    let server = deployment.serve();
    let api = deployment.create_api();
    let (_, old) = deployment.create_key(&api, &["--name", "old"]);
    let (new_id, new) = deployment.create_key(&api, &["--name", "new"]);
    let verify = |key: &str| {
        assert_eq!(server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key })).0, 200);
    };
    verify(&old);
    let seen = start(&deployment, &["--json", "--limit", "1"]).wait_with_output().unwrap();
    assert!(seen.status.success());
    let mut command = deployment.command();
    let mut tail =
        command.args(["tail"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("TIME"));

    verify(&new);
    let line = lines.next().unwrap().unwrap();
    drop(lines);
    verify(&new);

    assert!(line.contains(&new_id), "{line}");
    let ended = tail.wait_with_output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
}

#[test]
fn tail_shows_limit_checks_of_a_namespace_or_of_an_identifier() {
    for deployment in Deployment::with_every_event_store() {
        let server = deployment.serve();
        let check = |namespace: &str, identifier: &str| {
            let request = json!({
                "namespace": namespace, "identifier": identifier, "limit": 3, "duration": 3_600_000, "cost": 2,
            });
            assert_eq!(server.v2(ROOT_KEY, "ratelimit.limit", &request).0, 200);
        };
        check("exports", "user_1");
        check("exports", "user_2");
        check("exports", "user_1");
        let tails = [
            start(&deployment, &["--limits", "--json", "--limit", "4"]),
            // The former name of --rejected.
            start(&deployment, &["--limits", "--json", "--limit", "1", "--refused"]),
            start(&deployment, &["--limits", "--json", "--limit", "2", "--identifier", "user_1"]),
            start(&deployment, &["--limits", "--limit", "3", "--namespace", "exports"]),
        ];
        // The tails do not know this namespace yet when they start.
        std::thread::sleep(std::time::Duration::from_millis(1_500));
        check("imports", "user_3");

        let outputs = tails.map(|tail| tail.wait_with_output().unwrap());

        let shown = |output: &Output| -> Vec<[Value; 4]> {
            assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
            let text = String::from_utf8_lossy(&output.stdout);
            let fields = ["namespace", "identifier", "passed", "remaining"];
            let line = |line: &str| serde_json::from_str::<Value>(line).unwrap();
            text.lines().map(line).map(|check| fields.map(|field| check[field].clone())).collect()
        };
        let first = [json!("exports"), json!("user_1"), json!(true), json!(1)];
        let refused = [json!("exports"), json!("user_1"), json!(false), json!(0)];
        let other = [json!("exports"), json!("user_2"), json!(true), json!(1)];
        let late = [json!("imports"), json!("user_3"), json!(true), json!(1)];
        assert_eq!(shown(&outputs[0]), [first.clone(), other, refused.clone(), late]);
        assert_eq!(shown(&outputs[1]), std::slice::from_ref(&refused));
        assert_eq!(shown(&outputs[2]), [first, refused]);
        let text = String::from_utf8_lossy(&outputs[3].stdout);
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let header = ["TIME", "RESULT", "NAMESPACE", "IDENTIFIER", "COST", "REMAINING", "LATENCY"];
        assert_eq!((rows.len(), &rows[0][..]), (4, &header[..]), "{text}");
        assert_eq!(rows[1][1..6], ["allowed", "exports", "user_1", "2", "1"], "{text}");
        assert_eq!(rows[3][1..6], ["rejected", "exports", "user_1", "2", "0"], "{text}");
    }
}

#[test]
fn tail_fails_when_api_or_key_does_not_exist_and_shows_events_of_deleted_ones() {
    for deployment in Deployment::both() {
        let server = deployment.serve();
        let (api, other) = (deployment.create_api(), deployment.create_api());
        let (id, key) = deployment.create_key(&api, &[]);
        let (purged_id, purged) = deployment.create_key(&api, &[]);
        for key in [&key, &purged] {
            assert_eq!(server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key })).0, 200);
        }
        let seen = start(&deployment, &["--limit", "2"]).wait_with_output().unwrap();
        assert!(seen.status.success(), "{seen:?}");

        let unknown = deployment.run(&["tail", "--api", "api_none"]);
        assert_rejected(&unknown, 2, &["API api_none does not exist"]);
        let unknown = deployment.run(&["tail", "--key", "key_none"]);
        assert_rejected(&unknown, 2, &["key key_none does not exist"]);
        let elsewhere = deployment.run(&["tail", "--api", &other, "--key", &id]);
        assert_rejected(&elsewhere, 2, &[&id, "belongs to API", &api, &other]);
        let both = ["--limit", "1", "--api", &api, "--key", &id];
        assert!(start(&deployment, &both).wait_with_output().unwrap().status.success());

        let permanently = json!({ "keyId": purged_id, "permanent": true });
        assert_eq!(server.v2(ROOT_KEY, "keys.deleteKey", &permanently).0, 200);
        assert_eq!(server.v2(ROOT_KEY, "keys.deleteKey", &json!({ "keyId": id })).0, 200);
        assert_eq!(server.v2(ROOT_KEY, "apis.deleteApi", &json!({ "apiId": api })).0, 200);
        for (option, named, limit) in [
            ("--key", purged_id.as_str(), "1"),
            ("--key", id.as_str(), "1"),
            ("--api", api.as_str(), "2"),
        ] {
            let shown = start(&deployment, &["--limit", limit, option, named]);
            let shown = shown.wait_with_output().unwrap();
            assert!(shown.status.success() && shown.stderr.is_empty(), "{shown:?}");
        }
    }
}

#[test]
fn tail_fails_when_input_is_invalid_or_clickhouse_is_unreachable() {
    let deployment = Deployment::embedded();

    assert_rejected(&deployment.run(&["tail", "--limit", "0"]), 2, &["--limit", "1"]);
    assert_rejected(&deployment.run(&["tail", "--since", "soon"]), 2, &["--since", "90s"]);
    assert_rejected(&deployment.run(&["tail", "--since", "86401s"]), 2, &["at most one day"]);
    let unknown = deployment.run(&["tail", "--workspace", "ws_none"]);
    assert_rejected(&unknown, 2, &["workspace ws_none does not exist"]);
    let unknown = deployment.run(&["tail", "--limits", "--namespace", "nowhere"]);
    assert_rejected(&unknown, 2, &["namespace nowhere does not exist"]);
    let both = deployment.run(&["tail", "--limits", "--api", "api_1"]);
    assert_rejected(&both, 2, &["--limits", "--api"]);
    for option in ["--namespace", "--identifier"] {
        assert_rejected(&deployment.run(&["tail", option, "a"]), 2, &["--limits"]);
    }
    let mut command = deployment.command();
    command.env("KEYWARD_CLICKHOUSE_URL", "http://127.0.0.1:9");
    let output = command.arg("tail").output().unwrap();
    assert_rejected(&output, 1, &["ClickHouse is unreachable"]);
}

#[test]
fn help_of_tail_omits_the_former_name_of_rejected() {
    let help = Deployment::embedded().text(&["tail", "--help"]);

    assert!(help.contains("--rejected") && !help.contains("--refused"), "{help}");
}
