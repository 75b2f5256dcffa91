//! Tests the commands of gateway policies.

use super::deployments::{Deployment, text_of, wait_for};
use super::*;

/// Asks for a decision, and returns its status.
fn decide(server: &Server, policy: &str, secret: &str, key: &str) -> u16 {
    let request = format!(
        "GET /gateway/{policy} HTTP/1.1\r\nhost: a\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\
        keyward-gateway-secret: {secret}\r\n\r\n"
    );
    exchange(server.address, request.as_bytes()).unwrap().0
}

#[test]
fn gateway_decides_by_policies_of_commands_while_server_runs() {
    for deployment in Deployment::both() {
        let server = deployment.serve();
        let api = deployment.create_api();
        let (_, key) = deployment.create_key(&api, &[]);

        let created = deployment.json(&["gateway", "create", "--name", "edge", "--api", &api]);
        let (id, secret) = (text_of(&created, "policyId"), text_of(&created, "secret"));

        wait_for(&200, || decide(&server, "edge", &secret, &key));
        let rotate = ["gateway", "rotate-secret", "edge", "--keep-previous", "7d"];
        let next = text_of(&deployment.json(&rotate), "secret");
        wait_for(&200, || decide(&server, &id, &next, &key));
        assert_eq!(decide(&server, "edge", &secret, &key), 200);
        let last = text_of(&deployment.json(&["gateway", "rotate-secret", &id]), "secret");
        wait_for(&403, || decide(&server, "edge", &next, &key));
        assert_eq!(decide(&server, "edge", &last, &key), 200);
        let deleted = deployment.json(&["gateway", "delete", "edge"]);
        assert_eq!(deleted, json!({ "policyId": "edge", "deleted": true }));
        wait_for(&403, || decide(&server, &id, &last, &key));
    }
}

#[test]
fn gateway_policy_has_the_fields_of_options_and_files() {
    for deployment in Deployment::both() {
        let api = deployment.create_api();
        let rules =
            r#"[{ "methods": ["GET"], "path": "/a/**", "permissions": "a.read", "cost": 2 }]"#;
        let rules = deployment.file("rules.json", rules);
        let file = json!({ "name": "other", "onFailure": "text", "keyFrom": ["query:k"] });
        let file = deployment.file("policy.json", &file.to_string());
        let create = [
            "gateway",
            "create",
            "--file",
            &file,
            "--name",
            "edge",
            "--api",
            &api,
            "--rules",
            &rules,
            "--key-from",
            "header:x-key",
            "--key-from",
            "cookie:k",
            "--meta",
            "plan",
            "--signed",
            "on",
            "--allow-from",
            "10.0.0.0/8",
            "--resource",
            "https://a.example.com",
            "--authorization-server",
            "https://b.example.com",
        ];
        let id = text_of(&deployment.json(&create), "policyId");

        let mut found = deployment.json(&["gateway", "get", "edge"]);
        assert!(found["createdAt"].take().is_i64());
        assert_eq!(
            found,
            json!({
                "policyId": id, "name": "edge", "apiIds": [api], "createdAt": null,
                "keyFrom": ["header:x-key", "cookie:k"], "onFailure": "text",
                "rules": [{ "methods": ["GET"], "path": "/a/**", "permissions": "a.read", "cost": 2 }],
                "identityHeaders": { "meta": ["plan"], "signed": true },
                "allowFrom": ["10.0.0.0/8"], "namespaces": [], "resource": "https://a.example.com",
                "authorizationServers": ["https://b.example.com"],
            })
        );
        let update =
            ["gateway", "update", &id, "--signed", "off", "--name", "inner", "--allow-from", ""];
        let updated = deployment.json(&update);
        let expected = json!({ "meta": ["plan"], "signed": false });
        assert_eq!(updated["identityHeaders"], expected, "what was not named stays");
        assert_eq!((&updated["name"], &updated["allowFrom"]), (&json!("inner"), &json!([])));
        assert_eq!(updated["keyFrom"], json!(["header:x-key", "cookie:k"]));
        assert_eq!(deployment.json(&["gateway", "list", "--search", "INN"])[0], updated);
        let text = deployment.text(&["gateway", "get", "inner"]);
        for part in ["header:x-key, cookie:k", "SIGNED", "1 rule\n", "https://b.example.com"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let audit = deployment.json(&["audit", "list", "--about", &id]);
        let entries = audit.as_array().unwrap().iter();
        let entries: Vec<_> =
            entries.map(|it| (it["event"].clone(), it["actor"]["type"].clone())).collect();
        let expected = ["gatewayPolicy.update", "gatewayPolicy.create"];
        assert_eq!(entries, expected.map(|event| (json!(event), json!("system"))));
    }
}

#[test]
fn gateway_policies_are_listed_on_several_pages() {
    let deployment = Deployment::embedded();
    let api = deployment.create_api();
    let server = deployment.serve();
    for number in 0..101 {
        let policy = json!({ "name": format!("p{number}"), "apiIds": [api] });
        assert_eq!(server.v2(ROOT_KEY, "gateways.createPolicy", &policy).0, 200);
    }

    let all = deployment.json(&["gateway", "list"]);
    let text = deployment.text(&["gateway", "list"]);

    let mut names: Vec<_> = all.as_array().unwrap().iter().map(|it| text_of(it, "name")).collect();
    names.sort();
    names.dedup();
    assert_eq!((names.len(), text.lines().count()), (101, 102));
    assert!(text.starts_with("ID "), "{text}");
    let none = deployment.text(&["gateway", "list", "--search", "nothing"]);
    assert_eq!(none, "No gateway policies.\n");
}

#[test]
fn gateway_command_fails_when_input_is_invalid() {
    let deployment = Deployment::embedded();
    let api = deployment.create_api();
    let create = |name: &str, options: &[&str]| {
        deployment.run(&[&["gateway", "create", "--name", name, "--api", &api], options].concat())
    };
    let longest = "n".repeat(128);
    assert!(create(&longest, &[]).status.success());
    let rotate = |keep: &str| {
        deployment.run(&["gateway", "rotate-secret", &longest, "--keep-previous", keep])
    };
    let wrong = deployment.file("wrong.json", "[{]");
    let object = deployment.file("object.json", "{}");
    let fields = deployment.file("fields.json", r#"{"rules": [{"pth": "/a"}]}"#);
    let list = deployment.file("list.json", "[]");

    assert_rejected(&create(&"n".repeat(129), &[]), 2, &["name", "128"]);
    assert_rejected(&create(&longest, &[]), 2, &["already exists"]);
    assert_rejected(&create("a", &["--api", "api_none"]), 2, &["api_none", "does not exist"]);
    assert_rejected(&create("a", &["--rules", &wrong]), 2, &["--rules", "wrong.json", "JSON"]);
    assert_rejected(&create("a", &["--rules", &object]), 2, &["rules", "array"]);
    assert_rejected(&create("a", &["--rules", "/no/such/file"]), 2, &["--rules", "/no/such/file"]);
    assert_rejected(&create("a", &["--file", &fields]), 2, &["pth", "rules[0]"]);
    assert_rejected(&create("a", &["--file", &list]), 2, &["--file", "JSON object"]);
    assert_rejected(&create("a", &["--key-from", "body:key"]), 2, &["keyFrom[0]", "cookie:<name>"]);
    assert_rejected(
        &create("a", &["--workspace", "ws_none"]),
        2,
        &["workspace ws_none does not exist"],
    );
    assert!(rotate("7d").status.success());
    assert_rejected(&rotate("168h1ms"), 2, &["expiration", "604800000"]);
    assert_rejected(&rotate("3"), 2, &["--keep-previous", "90s"]);
    for command in ["get", "update", "rotate-secret", "delete"] {
        let output = deployment.run(&["gateway", command, "none"]);
        assert_rejected(&output, 2, &["gateway policy none does not exist"]);
    }
    let missing = deployment.run(&["gateway", "create"]);
    assert_rejected(&missing, 2, &["keyward: missing --name <NAME>"]);
}
