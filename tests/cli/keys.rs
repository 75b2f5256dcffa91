//! Tests the commands of keys.

use super::deployments::{Deployment, text_of, wait_for};
use super::*;

fn verify(server: &Server, key: &str) -> String {
    let (_, reply) = server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key }));
    text_of(&reply["data"], "code")
}

#[test]
fn server_sees_changes_of_keys_by_commands() {
    for deployment in Deployment::both() {
        let server = deployment.serve();
        let api = deployment.create_api();
        let (id, key) = deployment.create_key(&api, &["--prefix", "prod", "--credits", "100"]);

        assert!(key.starts_with("prod_"), "{key}");
        wait_for(&"VALID".to_owned(), || verify(&server, &key));
        assert_eq!(deployment.json(&["key", "disable", &id])["enabled"], false);
        wait_for(&"DISABLED".to_owned(), || verify(&server, &key));
        assert_eq!(deployment.json(&["key", "enable", &id])["enabled"], true);
        wait_for(&"VALID".to_owned(), || verify(&server, &key));
        let updated =
            deployment.json(&["key", "update", &id, "--credits", "0", "--name", "billing"]);
        assert_eq!(
            (&updated["credits"]["remaining"], &updated["name"]),
            (&json!(0), &json!("billing"))
        );
        wait_for(&"USAGE_EXCEEDED".to_owned(), || verify(&server, &key));
        deployment.json(&["key", "update", &id, "--credits", "unlimited"]);
        wait_for(&"VALID".to_owned(), || verify(&server, &key));
        let rotated = deployment.json(&["key", "rotate", &id]);
        wait_for(&"EXPIRED".to_owned(), || verify(&server, &key));
        let next = text_of(&rotated, "key");
        wait_for(&"VALID".to_owned(), || verify(&server, &next));
        let next_id = text_of(&rotated, "keyId");
        let deleted = deployment.json(&["key", "delete", &next_id]);
        assert_eq!(deleted, json!({ "keyId": next_id, "deleted": true }));
        wait_for(&"NOT_FOUND".to_owned(), || verify(&server, &next));
        let (_, third) = deployment.create_key(&api, &[]);
        wait_for(&"VALID".to_owned(), || verify(&server, &third));
        deployment.json(&["api", "delete", &api]);
        wait_for(&"NOT_FOUND".to_owned(), || verify(&server, &third));
    }
}

/// Creates a key with every field, the role and the permission that it has, and returns its ID.
fn create_full_key(deployment: &Deployment) -> String {
    let server = deployment.serve();
    for (operation, body) in [
        ("permissions.createPermission", json!({ "name": "read", "slug": "documents.read" })),
        ("permissions.createRole", json!({ "name": "editor" })),
    ] {
        assert_eq!(server.v2(ROOT_KEY, operation, &body).0, 200);
    }
    let file = deployment.file("key.json", r#"{"name": "other", "byteLength": 24}"#);
    let options = [
        ("--file", file.as_str()),
        ("--name", "mobile app"),
        ("--external-id", "user_1"),
        ("--meta", r#"{"plan":"pro"}"#),
        ("--expires", "2030-01-31T12:00:00Z"),
        ("--credits", "5"),
        ("--refill", "monthly"),
        ("--refill-amount", "50"),
        ("--ratelimit", "requests=60/1m"),
        ("--role", "editor"),
        ("--permission", "documents.read"),
    ];
    let options = options.into_iter().flat_map(|(name, value)| [name, value]);
    let options: Vec<_> = options.chain(["--disabled"]).collect();
    deployment.create_key(&deployment.create_api(), &options).0
}

#[test]
fn key_has_the_fields_of_options_and_files() {
    for deployment in Deployment::both() {
        let id = create_full_key(&deployment);

        let mut found = deployment.json(&["key", "get", &id]);
        let text = deployment.text(&["key", "get", &id]);

        assert!(found["createdAt"].take().is_i64() && found["start"].take().is_string());
        assert!(found["identity"]["id"].take().is_string());
        assert!(found["ratelimits"][0]["id"].take().is_string());
        let refill = json!({ "interval": "monthly", "amount": 50, "refillDay": 1 });
        let limit = json!({
            "id": null, "name": "requests", "limit": 60, "duration": 60_000, "autoApply": true,
        });
        assert_eq!(
            found,
            json!({
                "keyId": id, "start": null, "createdAt": null, "enabled": false,
                "name": "mobile app", "meta": { "plan": "pro" }, "expires": 1_896_091_200_000_i64,
                "permissions": ["documents.read"], "roles": ["editor"],
                "credits": { "remaining": 5, "refill": refill },
                "identity": { "id": null, "externalId": "user_1" }, "ratelimits": [limit],
            })
        );
        let refill = "5, refilled to 50 monthly on day 1";
        for part in ["mobile app", refill, "2030-01-31T12:00:00Z", "requests: 60 per minute"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}

#[test]
fn numbers_of_a_key_are_grouped_and_windows_have_units() {
    let deployment = Deployment::embedded();
    let refill = ["--credits", "1000", "--refill", "daily", "--refill-amount", "2500"];
    let limit = ["--ratelimit", "requests=10000/90s"];
    let api = deployment.create_api();
    let (id, _) = deployment.create_key(&api, &[&refill[..], &limit].concat());

    let text = deployment.text(&["key", "get", &id]);

    for part in ["1,000, refilled to 2,500 daily\n", "requests: 10,000 per 90 seconds\n"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn key_list_says_on_standard_error_that_there_are_more() {
    for deployment in Deployment::both() {
        let api = deployment.create_api();
        for _ in 0..3 {
            deployment.create_key(&api, &[]);
        }
        let list = |options: &[&str]| deployment.run(&[&["key", "list"], options].concat());

        let (cut, cut_json) = (list(&["--limit", "2"]), list(&["--limit", "2", "--json"]));
        let all = list(&["--limit", "3"]);

        let note =
            "Showing the latest 2 keys. --limit shows more, up to 1000; --search finds a key.\n";
        assert_eq!(String::from_utf8_lossy(&cut.stderr), note);
        assert_eq!(String::from_utf8_lossy(&cut.stdout).lines().count(), 3);
        assert_eq!(String::from_utf8_lossy(&cut_json.stderr), note);
        assert_eq!(parse_json(&cut_json).as_array().unwrap().len(), 2);
        assert!(all.status.success() && all.stderr.is_empty(), "{all:?}");
    }
}

#[test]
fn key_update_clears_fields_whose_options_are_empty() {
    for deployment in Deployment::both() {
        let id = create_full_key(&deployment);
        let options = [
            ("--name", ""),
            ("--external-id", ""),
            ("--meta", ""),
            ("--expires", "never"),
            ("--credits", "unlimited"),
            ("--role", ""),
            ("--permission", ""),
        ];
        let options = options.into_iter().flat_map(|(name, value)| [name, value]);
        let update: Vec<_> = ["key", "update", &id].into_iter().chain(options).collect();

        let cleared = deployment.json(&update);

        for field in ["name", "meta", "expires", "credits", "roles", "permissions", "identity"] {
            assert_eq!(cleared[field], Value::Null, "{field} of {cleared}");
        }
        assert_eq!(cleared["ratelimits"][0]["name"], "requests", "what was not named stays");
    }
}

#[test]
fn keys_are_listed_by_api_status_and_search() {
    for deployment in Deployment::both() {
        let (api, other) = (deployment.create_api(), deployment.create_api());
        let (first, _) = deployment.create_key(&api, &["--name", "billing", "--disabled"]);
        let (second, _) =
            deployment.create_key(&api, &["--name", "請求", "--external-id", "user_1"]);
        let (third, _) = deployment.create_key(&other, &[]);
        let ids = |options: &[&str]| {
            let listed = deployment.json(&[&["key", "list"], options].concat());
            let mut ids: Vec<_> =
                listed.as_array().unwrap().iter().map(|key| text_of(key, "keyId")).collect();
            ids.sort();
            ids
        };
        let sorted = |ids: &[&String]| {
            let mut ids: Vec<_> = ids.iter().map(|id| (*id).clone()).collect();
            ids.sort();
            ids
        };

        assert_eq!(ids(&[]), sorted(&[&first, &second, &third]));
        assert_eq!(ids(&["--api", &api]), sorted(&[&first, &second]));
        assert_eq!(ids(&["--status", "disabled"]), sorted(&[&first]));
        assert_eq!(ids(&["--search", "BILL"]), sorted(&[&first]));
        assert_eq!(ids(&["--limit", "2"]).len(), 2);
        let text = deployment.text(&["key", "list", "--api", &api, "--status", "active"]);
        let [header, row] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        for column in ["ID", "API", "NAME", "START", "STATUS", "EXTERNAL ID", "EXPIRES", "CREATED"]
        {
            assert!(header.contains(column), "{text}");
        }
        for cell in [second.as_str(), "payments", "請求", "active", "user_1"] {
            assert!(row.contains(cell), "{text}");
        }
    }
}

#[test]
fn key_command_fails_when_input_is_invalid() {
    let deployment = Deployment::embedded();
    let api = deployment.create_api();
    let create =
        |options: &[&str]| deployment.run(&[&["key", "create", "--api", &api], options].concat());
    let name = |length: usize| create(&["--name", &"n".repeat(length)]);
    let limit = |text: &str| create(&["--ratelimit", text]);

    assert!(name(255).status.success() && create(&["--bytes", "16"]).status.success());
    assert_rejected(&name(256), 2, &["name", "255"]);
    assert_rejected(&create(&["--bytes", "15"]), 2, &["byteLength", "16"]);
    assert!(create(&["--bytes", "255"]).status.success());
    assert_rejected(&create(&["--bytes", "256"]), 2, &["byteLength", "255"]);
    assert!(limit("requests=1/1s").status.success());
    assert_rejected(&limit("requests=1/999ms"), 2, &["ratelimits[0].duration", "1000"]);
    assert_rejected(&limit("requests=0/1s"), 2, &["ratelimits[0].limit", "1"]);
    assert_rejected(&limit("requests"), 2, &["--ratelimit", "NAME=LIMIT/DURATION"]);
    assert_rejected(&create(&["--credits=-1"]), 2, &["--credits"]);
    assert_rejected(&create(&["--credits", "many"]), 2, &["--credits", "whole number"]);
    let (max, above) = ("9223372036854775807", "9223372036854775808");
    let (id, _) = deployment.create_key(&api, &["--credits", max]);
    let found = deployment.json(&["key", "get", &id]);
    assert_eq!(found["credits"]["remaining"], i64::MAX, "{found}");
    assert_rejected(&create(&["--credits", above]), 2, &["--credits", max]);
    let refill = ["--credits", "1", "--refill", "daily", "--refill-amount", above];
    assert_rejected(&create(&refill), 2, &["--refill-amount", max]);
    assert_rejected(&limit(&format!("requests={above}/1s")), 2, &["--ratelimit", max]);
    for (field, words) in [
        (format!("{{\"credits\": {{\"remaining\": {above}}}}}"), ["credits.remaining", max]),
        ("{\"expires\": 1e30}".to_owned(), ["expires", "4102444800000"]),
    ] {
        let file = deployment.file("key.json", &field);
        assert_rejected(&create(&["--file", &file]), 2, &words);
    }
    assert_rejected(&create(&["--refill", "daily"]), 2, &["missing --refill-amount"]);
    let refill =
        ["--credits", "1", "--refill", "daily", "--refill-amount", "5", "--refill-day", "2"];
    assert_rejected(&create(&refill), 2, &["refillDay", "monthly"]);
    assert_rejected(&create(&["--meta", "{"]), 2, &["--meta", "JSON"]);
    assert_rejected(&create(&["--meta", "[]"]), 2, &["meta", "object"]);
    assert_rejected(&create(&["--expires", "soon"]), 2, &["--expires", "90d"]);
    assert_rejected(
        &create(&["--expires", "2100-01-01T00:00:00.001Z"]),
        2,
        &["expires", "4102444800000"],
    );
    assert_rejected(&create(&["--role", "none"]), 2, &["none", "does not exist"]);
    assert_rejected(&create(&["--recoverable"]), 2, &["recoverable"]);
    assert_rejected(&deployment.run(&["key", "create"]), 2, &["keyward: missing --api <ID>"]);
    assert_rejected(&deployment.run(&["key", "create", "--api", "api_none"]), 2, &["api_none"]);
    for command in ["get", "update", "enable", "disable", "rotate", "delete"] {
        let output = deployment.run(&["key", command, "key_none"]);
        assert_rejected(&output, 2, &["key_none", "does not exist"]);
    }
    for number in ["0", "1001"] {
        let output = deployment.run(&["key", "list", "--limit", number]);
        assert_rejected(&output, 2, &["--limit", "1..=1000"]);
    }
    assert!(deployment.run(&["key", "list", "--limit", "1000"]).status.success());
    let status = deployment.run(&["key", "list", "--status", "gone"]);
    assert_rejected(&status, 2, &["gone", "active", "exhausted"]);
}

#[test]
fn imported_key_that_expires_after_the_last_date_is_not_listed_as_expired_long_ago() {
    let deployment = Deployment::embedded();
    let api = deployment.create_api();
    let file =
        deployment.file("keys.jsonl", r#"{"key": "an_old_key", "expires": 9223372036854775807}"#);
    deployment.json(&["import", &file, "--api", &api]);

    let list = deployment.text(&["key", "list", "--api", &api]);

    let row = list.lines().nth(1).unwrap();
    assert!(row.contains("active") && row.contains("9999-12-30T22:00:00Z"), "{list}");
}
