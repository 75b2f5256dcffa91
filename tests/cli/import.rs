//! Tests import and export of keys.

use foundation::secret::KeyHash;

use super::deployments::{Deployment, text_of, wait_for};
use super::*;

fn verify(server: &Server, key: &str) -> Value {
    server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key })).1["data"].clone()
}

/// Returns the lines of full keys of another system.
fn old_keys(count: usize) -> String {
    let lines: Vec<_> = (0..count).map(|n| format!("{{\"key\": \"an_old_key_{n}\"}}\n")).collect();
    lines.concat()
}

#[test]
fn exported_keys_are_valid_where_they_are_imported() {
    let [embedded, replica] = Deployment::both();
    for (from, to) in [(&embedded, &replica), (&replica, &embedded)] {
        let api = from.create_api();
        let options = [
            "--name",
            "billing",
            "--external-id",
            "user_1",
            "--meta",
            r#"{"plan":"pro"}"#,
            "--credits",
            "7",
            "--refill",
            "daily",
            "--refill-amount",
            "9",
            "--ratelimit",
            "requests=60/1m",
        ];
        let (_, full) = from.create_key(&api, &options);
        let (_, plain) = from.create_key(&api, &["--disabled"]);
        let file = from.file("keys.jsonl", &from.text(&["export", "--api", &api]));
        let target = to.create_api();

        let checked = to.json(&["import", &file, "--api", &target, "--dry-run"]);
        let imported = to.json(&["import", &file, "--api", &target]);
        let again = to.json(&["import", &file, "--api", &target]);

        assert_eq!(checked, json!({ "keys": 2, "dryRun": true }));
        assert_eq!((&imported["imported"], &imported["failed"]), (&json!(2), &json!([])));
        assert_eq!((&again["imported"], again["failed"].as_array().unwrap().len()), (&json!(0), 2));
        let server = to.serve();
        let verified = verify(&server, &full);
        assert_eq!(
            (&verified["code"], &verified["credits"]),
            (&json!("VALID"), &json!(6)),
            "{verified}"
        );
        assert_eq!(
            (&verified["name"], &verified["meta"]["plan"]),
            (&json!("billing"), &json!("pro"))
        );
        assert_eq!(verified["identity"]["externalId"], "user_1");
        assert_eq!(verified["ratelimits"][0]["limit"], 60);
        assert_eq!(verify(&server, &plain)["code"], "DISABLED");
        let exported = to.text(&["export", "--api", &target]);
        let refill = json!({ "interval": "daily", "amount": 9 });
        let lines = exported.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        assert!(lines.into_iter().any(|line| line["credits"]["refill"] == refill), "{exported}");
    }
}

/// Calls an operation of version 1 that must succeed.
#[track_caller]
fn v1(server: &Server, operation: &str, body: &Value) -> Value {
    let body = body.to_string();
    let request = format!(
        "POST /v1/{operation} HTTP/1.1\r\nHost: keyward\r\nConnection: close\r\n\
        Authorization: Bearer {ROOT_KEY}\r\nContent-Type: application/json\r\n\
        Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (status, answer) = exchange(server.address, request.as_bytes()).unwrap();
    assert_eq!(status, 200, "{operation}: {answer}");
    serde_json::from_str(&answer).unwrap()
}

#[test]
fn exported_key_is_imported_when_version_1_has_wider_bounds() {
    let [from, to] = Deployment::both();
    let (api, target) = (from.create_api(), to.create_api());
    let server = from.serve();
    let role = "r".repeat(256);
    // As deep as a request may be, and with more fields than version 2 accepts.
    let mut meta = (1..63).fold(json!({}), |meta, _| json!({ "a": meta }));
    for field in 0..100 {
        meta[format!("f{field}")] = json!(field);
    }
    v1(&server, "permissions.createRole", &json!({ "name": role }));
    let fields = json!({
        "apiId": api, "name": "n".repeat(256), "externalId": "u".repeat(256), "meta": meta,
        "expires": 9_000_000_000_000_i64, "roles": [role],
    });
    let id = text_of(&v1(&server, "keys.createKey", &fields), "keyId");
    let limit = json!({ "keyId": id, "ratelimit": { "limit": 5, "duration": 1 } });
    v1(&server, "keys.updateKey", &limit);
    let permission = json!({ "name": "é".repeat(512), "create": true });
    let added = json!({ "keyId": id, "permissions": [permission] });
    v1(&server, "keys.addPermissions", &added);
    let exported = from.text(&["export", "--api", &api]);
    let file = from.file("keys.jsonl", &exported);

    let imported = to.json(&["import", &file, "--api", &target]);

    assert_eq!((&imported["imported"], &imported["failed"]), (&json!(1), &json!([])));
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(parse(&to.text(&["export", "--api", &target])), parse(&exported));
}

#[test]
fn exported_key_keeps_its_environment_and_the_mark_of_its_limit() {
    let [from, to] = Deployment::both();
    let (api, target) = (from.create_api(), to.create_api());
    let server = from.serve();
    let keys = [("é".repeat(256), true), (String::new(), false)].map(|(environment, is_async)| {
        let limit = json!({ "limit": 5, "duration": 60_000, "async": is_async });
        let fields = json!({ "apiId": api, "environment": environment, "ratelimit": limit });
        (text_of(&v1(&server, "keys.createKey", &fields), "key"), environment, is_async)
    });
    let file = from.file("keys.jsonl", &from.text(&["export", "--api", &api]));

    assert_eq!(to.json(&["import", &file, "--api", &target])["imported"], 2);

    let server = to.serve();
    let exported = to.text(&["export", "--api", &target]);
    for (key, environment, is_async) in keys {
        let verified = v1(&server, "keys.verifyKey", &json!({ "key": key }));
        assert_eq!(
            (&verified["code"], &verified["environment"]),
            (&json!("VALID"), &json!(environment)),
            "{verified}"
        );
        let hash = KeyHash::compute(&key).to_base64();
        let line = exported.lines().find(|line| line.contains(&hash)).unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["ratelimits"][0]["async"], is_async, "{line}");
    }
}

#[test]
fn key_has_no_environment_and_an_exact_limit_unless_the_file_has_others() {
    let deployment = Deployment::embedded();
    let api = deployment.create_api();
    let hash = KeyHash::compute("an_old_key").to_base64();
    let limit = json!({ "name": "default", "limit": 5, "duration": 60_000, "autoApply": true });
    let line = json!({ "hash": hash, "ratelimits": [limit], "enabled": true });
    let file = deployment.file("keys.jsonl", &line.to_string());
    let line = json!({ "hash": hash, "environment": "e".repeat(257) });
    let long = deployment.file("long.jsonl", &line.to_string());

    assert_eq!(deployment.json(&["import", &file, "--api", &api])["imported"], 1);
    let rejected = deployment.run(&["import", &long, "--api", &api]);

    let exported = deployment.text(&["export", "--api", &api]);
    let exported: Value = serde_json::from_str(&exported).unwrap();
    assert_eq!(exported["environment"], Value::Null);
    assert_eq!(exported["ratelimits"][0]["async"], false);
    assert_rejected(&rejected, 2, &["FILE", "key 1: environment"]);
}

/// An undo can give a key more roles and permissions than a request.
#[test]
fn exported_key_is_imported_when_it_has_more_than_a_request_gives() {
    let deployment = Deployment::embedded();
    let api = deployment.create_api();
    let names = |prefix: &str, count: usize| -> Vec<_> {
        (0..count).map(|n| format!("{prefix}_{n}")).collect()
    };
    let limit = |n| json!({ "name": format!("limit_{n}"), "limit": 5, "duration": 60_000 });
    let limits: Vec<_> = (0..51).map(limit).collect();
    let hash = KeyHash::compute("an_old_key").to_base64();
    let line = json!({
        "hash": hash, "roles": names("role", 101), "permissions": names("permission", 1_001),
        "ratelimits": limits,
    });
    let file = deployment.file("keys.jsonl", &line.to_string());

    assert_eq!(deployment.json(&["import", &file, "--api", &api])["imported"], 1);

    let exported = deployment.text(&["export", "--api", &api]);
    let exported: Value = serde_json::from_str(&exported).unwrap();
    let count = |field: &str| exported[field].as_array().unwrap().len();
    assert_eq!((count("roles"), count("permissions"), count("ratelimits")), (101, 1_001, 51));
}

#[test]
fn full_keys_are_imported_by_their_hashes() {
    let deployment = Deployment::embedded();
    let server = deployment.serve();
    let api = deployment.create_api();
    let key = "old_system_key_1234567890";
    let list = json!([{ "key": key, "name": "one" }, { "key": key }]);
    let file = deployment.file("keys.json", &list.to_string());

    let text = deployment.text(&["import", &file, "--api", &api]);

    assert!(text.starts_with("imported 1 key as mig_"), "{text}");
    assert!(text.ends_with("; left out 1 duplicate\n"), "{text}");
    wait_for(&json!("VALID"), || verify(&server, key)["code"].clone());
    let migration = deployment.json(&["migration", "list"]);
    assert_eq!(migration[0]["name"], "import of 2 keys");
    let migration = text_of(&migration[0], "migrationId");
    let more = deployment.file("more.jsonl", "{\"key\": \"another_old_key\"}\n");
    let more = deployment.json(&["import", &more, "--api", &api, "--migration", &migration]);
    assert_eq!((&more["imported"], &more["migrationId"]), (&json!(1), &json!(migration)));
    assert_eq!(deployment.json(&["migration", "list"]).as_array().unwrap().len(), 1);
}

#[test]
fn full_prefixed_keys_are_valid_after_their_import() {
    let deployment = Deployment::embedded();
    let server = deployment.serve();
    let api = deployment.create_api();
    let verify = |key: &str, migration: &str| {
        let request = json!({ "key": key, "migrationId": migration });
        server.v2(ROOT_KEY, "keys.verifyKey", &request).1["data"]["code"].clone()
    };
    let first = deployment.file("first.csv", "key,name\nacme_prod_aa_11,one\n");
    let more = deployment.file("more.jsonl", "{\"key\": \"acme_prod_bb_22\"}\n");
    let wrong = deployment.file("wrong.jsonl", "{\"key\": \"acme\"}\n");

    let import = ["import", &first, "--api", &api, "--algorithm", "prefixed-api-key"];
    let migration = text_of(&deployment.json(&import), "migrationId");
    deployment.json(&["import", &more, "--api", &api, "--migration", &migration]);

    for key in ["acme_prod_aa_11", "acme_prod_bb_22"] {
        wait_for(&json!("VALID"), || verify(key, &migration));
    }
    let wrong = deployment.run(&["import", &wrong, "--api", &api, "--migration", &migration]);
    assert_rejected(&wrong, 2, &["key 1", "short and a long token"]);
}

#[test]
fn import_has_one_audit_entry_unless_it_is_larger_than_a_request() {
    let deployment = Deployment::embedded();
    let api = deployment.create_api();
    let import = |name: &str, lines: &str| {
        let file = deployment.file(name, lines);
        let imported = deployment.json(&["import", &file, "--api", &api]);
        let migration = text_of(&imported, "migrationId");
        let list = ["audit", "list", "--event", "migration.import", "--about", &migration];
        let entries = deployment.json(&list);
        (imported["imported"].clone(), entries.as_array().unwrap().len())
    };
    let text = "x".repeat(10_000);
    let line = |n| format!("{{\"key\": \"a_large_key_{n}\", \"meta\": {{\"a\": \"{text}\"}}}}\n");
    let large: Vec<_> = (0..120).map(line).collect();

    assert_eq!(import("keys.jsonl", &old_keys(1_001)), (json!(1_001), 1));
    assert_eq!(import("large.jsonl", &large.concat()), (json!(120), 2));
    assert_eq!(deployment.text(&["export", "--api", &api]).lines().count(), 1_121);
}

#[test]
fn keys_are_imported_from_csv() {
    let deployment = Deployment::embedded();
    let server = deployment.serve();
    let api = deployment.create_api();
    let csv = "API key;Name;External ID;Credits;Expires at\r\n\
        old_csv_key_1;one;user_1;7;2030-12-31\r\nold_csv_key_2;;;;\r\n";
    let file = deployment.file("keys.csv", csv);

    let checked = deployment.json(&["import", &file, "--api", &api, "--dry-run"]);
    let imported = deployment.json(&["import", &file, "--api", &api]);

    assert_eq!((&checked["keys"], &imported["imported"]), (&json!(2), &json!(2)));
    wait_for(&json!("VALID"), || verify(&server, "old_csv_key_2")["code"].clone());
    let verified = verify(&server, "old_csv_key_1");
    assert_eq!((&verified["code"], &verified["credits"]), (&json!("VALID"), &json!(6)));
    assert_eq!(verified["identity"]["externalId"], "user_1");
    let listed = deployment.json(&["key", "list", "--search", "one"]);
    assert_eq!(listed[0]["expires"], 1_924_905_600_000_i64, "{listed}");
}

#[test]
fn key_that_is_imported_by_its_hash_has_no_start() {
    let deployment = Deployment::embedded();
    let api = deployment.create_api();
    let file = deployment.file("keys.csv", &format!("hash\n{}\n", "ab".repeat(32)));
    deployment.json(&["import", &file, "--api", &api]);

    let list = deployment.text(&["key", "list"]);
    let id = text_of(&deployment.json(&["key", "list"])[0], "keyId");
    let key = deployment.text(&["key", "get", &id]);

    let row: Vec<_> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[1..5], ["payments", "-", "-", "active"], "{list}");
    assert!(key.lines().any(|line| line.split_whitespace().eq(["START", "-"])), "{key}");
}

#[test]
fn nothing_is_imported_when_one_key_is_invalid() {
    let deployment = Deployment::embedded();
    let api = deployment.create_api();
    let import = |text: &str| {
        let file = deployment.file("keys.jsonl", text);
        deployment.run(&["import", &file, "--api", &api])
    };
    let valid = old_keys(1_000);

    let wrong = import(&format!("{valid}{{\"key\": \"abc\", \"nme\": \"x\"}}"));
    assert_rejected(&wrong, 2, &["FILE", "keys 1 to 1001", "nme of key 1001"]);
    let long = "n".repeat(257);
    let wrong = import(&format!(
        "{{\"key\": \"a\", \"name\": \"{long}\"}}\n{{\"key\": \"b\"}}\n{{\"key\": \"c\", \"expires\": \"soon\"}}"
    ));
    assert_rejected(&wrong, 2, &["key 1: name", "key 3: expires"]);
    assert_rejected(&import(&format!("{valid}{{")), 2, &["FILE", "line 1001", "JSON"]);
    assert_rejected(&import(""), 2, &["FILE", "no keys"]);
    assert_rejected(&import(r#"{"key": "a", "hash": "b"}"#), 2, &["key 1", "`key` or `hash`"]);
    assert_rejected(&import("[1]"), 2, &["key 1", "JSON object"]);
    assert_rejected(&import("an_old_key_1\nan_old_key_2"), 2, &["FILE", "headings", "key or hash"]);
    assert_rejected(&import("key,color\na,b"), 2, &["FILE", "columns", "them: 2"]);
    let text = import(r#"{"hash": "an_old_key"}"#);
    assert_rejected(&text, 2, &["key 1", "`hash` must be a SHA-256"]);
    assert_rejected(&import("id,name\n77,a"), 2, &["key 1", "`hash` must be a SHA-256"]);
    assert_rejected(&import("key,name\na,b\nc"), 2, &["FILE", "line 3", "2 values"]);
    assert_rejected(&import("key,expires\na,soon"), 2, &["FILE", "expires"]);
    assert_eq!(deployment.text(&["export", "--api", &api]), "");
    assert_eq!(deployment.json(&["migration", "list"]), json!([]));
    let file = deployment.file("keys.jsonl", &valid);
    let unknown = deployment.run(&["import", &file, "--api", "api_none"]);
    assert_rejected(&unknown, 2, &["api_none", "does not exist"]);
    assert_eq!(deployment.json(&["migration", "list"]), json!([]));
    let none = deployment.run(&["import", "/no/such/file", "--api", &api]);
    assert_rejected(&none, 2, &["FILE", "/no/such/file"]);
    let missing = deployment.run(&["import"]);
    assert_rejected(&missing, 2, &["keyward: missing --api <ID> and <FILE>"]);
}

#[test]
fn export_is_written_to_a_new_file_of_its_owner() {
    use std::os::unix::fs::PermissionsExt as _;
    let deployment = Deployment::embedded();
    let api = deployment.create_api();
    deployment.create_key(&api, &[]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.jsonl");
    let output = path.to_str().unwrap();

    let text = deployment.text(&["export", "--api", &api, "--output", output]);

    assert_eq!(text, format!("exported 1 key to {output}\n"));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        deployment.text(&["export", "--api", &api])
    );
    let again = deployment.run(&["export", "--api", &api, "--output", output]);
    assert_rejected(&again, 2, &["--output", "exists"]);
    let unknown = deployment.run(&["export", "--api", "api_none"]);
    assert_rejected(&unknown, 2, &["api_none", "does not exist"]);
}

#[test]
fn export_leaves_out_keys_that_wait_for_their_first_use() {
    let deployment = Deployment::embedded();
    let api = deployment.create_api();
    let hash = "ab".repeat(32);
    let file = deployment.file("keys.jsonl", &format!("{{\"hash\": \"{hash}\"}}\n"));
    let import = ["import", &file, "--api", &api, "--algorithm", "prefixed-api-key"];
    assert_eq!(deployment.json(&import)["imported"], 1);

    let output = deployment.run(&["export", "--api", &api]);

    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("left out 1 key "), "{output:?}");
}

#[test]
fn export_has_leased_credits_and_fails_when_they_cannot_be_read() {
    let [_, replica] = Deployment::both();
    let api = replica.create_api();
    let (id, key) = replica.create_key(&api, &["--credits", "100"]);
    let server = replica.serve();
    let verified = replica.ask(&server, &["key", "verify", &key, "--json"]);
    assert!(verified.status.success(), "{verified:?}");

    let line: Value = serde_json::from_str(&replica.text(&["export", "--api", &api])).unwrap();
    assert_eq!(line["credits"]["remaining"], 99, "{line}");
    assert_eq!(replica.json(&["key", "get", &id])["credits"]["remaining"], 99);

    let mut command = replica.command();
    command.args(["export", "--api", &api]).env("KEYWARD_REDIS_URL", "redis://127.0.0.1:1");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    drop(server);
}
