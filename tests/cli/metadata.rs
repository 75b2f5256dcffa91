//! Tests that metadata is exported and imported as it was written.

use super::deployments::{Deployment, text_of};
use super::*;

/// Metadata with a number that has more digits than a machine number, and fields that are not sorted.
const META: &str = r#"{"z":12345678901234567890123,"m":{"y":1.50,"b":1e2},"a":0.1000}"#;

/// Returns how many keys of an API are exported with [`META`].
fn count_exported(deployment: &Deployment, api: &str) -> usize {
    let exported = deployment.text(&["export", "--api", api]);
    let field = format!("\"meta\":{META},");
    exported.lines().filter(|line| line.contains(&field)).count()
}

#[test]
fn metadata_is_exported_and_imported_as_it_was_written() {
    let [from, to] = Deployment::both();
    let (api, target) = (from.create_api(), to.create_api());
    from.create_key(&api, &["--meta", META]);
    let exported = from.text(&["export", "--api", &api]);
    let cell = META.replace('"', "\"\"");

    for (name, text) in [
        ("keys.jsonl", exported),
        ("keys.json", format!("[{{\"key\": \"an_old_key\", \"meta\": {META}}}]")),
        ("keys.csv", format!("key,meta\nanother_old_key,\"{cell}\"\n")),
    ] {
        let imported = to.json(&["import", &to.file(name, &text), "--api", &target]);
        assert_eq!(imported["imported"], 1, "{name}");
    }

    assert_eq!(count_exported(&from, &api), 1);
    assert_eq!(count_exported(&to, &target), 3);
}

#[test]
fn metadata_of_a_request_in_a_file_is_stored_as_it_was_written() {
    let deployment = Deployment::embedded();
    let api = deployment.create_api();
    let request = format!("{{\"apiId\": \"{api}\", \"meta\": {META}}}");
    let file = deployment.file("key.json", &request);
    let id = text_of(&deployment.json(&["key", "create", "--file", &file]), "keyId");
    assert_eq!(count_exported(&deployment, &api), 1);

    deployment.json(&["key", "update", &id, "--meta", "{}"]);
    assert_eq!(count_exported(&deployment, &api), 0);
    deployment.json(&["key", "update", &id, "--meta", META]);

    assert_eq!(count_exported(&deployment, &api), 1);
}

#[test]
fn metadata_is_printed_in_one_line_as_it_was_written() {
    for deployment in Deployment::both() {
        let server = deployment.serve();
        let meta = META.replacen('{', "{\r\n", 1);
        let (id, key) = deployment.create_key(&deployment.create_api(), &["--meta", &meta]);
        let field = format!("\"meta\":{META}");

        let found = deployment.text(&["key", "get", &id, "--json"]);
        let updated = deployment.text(&["key", "update", &id, "--name", "x", "--json"]);
        let verified = deployment.ask(&server, &["key", "verify", &key, "--json"]);

        let verified = String::from_utf8(verified.stdout).unwrap();
        for printed in [found, updated, verified] {
            assert!(printed.contains(&field) && printed.lines().count() == 1, "{printed}");
        }
    }
}

#[test]
fn key_is_exported_in_one_line_when_its_metadata_has_several() {
    let deployment = Deployment::embedded();
    let api = deployment.create_api();
    deployment.create_key(&api, &["--meta", "{\"a\":\r\n  \"x\\ny\"\n}"]);

    let exported = deployment.text(&["export", "--api", &api]);

    assert_eq!(exported.lines().count(), 1, "{exported}");
    let line: Value = serde_json::from_str(&exported).unwrap();
    assert_eq!(line["meta"], json!({ "a": "x\ny" }));
}
