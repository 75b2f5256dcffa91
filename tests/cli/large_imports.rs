//! Tests imports of keys and of files that are large.

use foundation::secret::KeyHash;

use super::deployments::Deployment;
use super::*;

#[test]
fn key_is_exported_and_imported_when_its_permissions_have_the_longest_names() {
    let [from, to] = Deployment::both();
    let (api, target) = (from.create_api(), to.create_api());
    let slugs: Vec<_> = (0..1_000).map(|n| format!("{n:04}{}", "𝄞".repeat(508))).collect();
    let meta = json!({ "a": "x".repeat(100_000) });
    let hash = KeyHash::compute("a_large_key").to_base64();
    let line = json!({ "hash": hash, "permissions": slugs, "meta": meta }).to_string();
    assert!(line.len() > 2 * 1024 * 1024, "{} bytes", line.len());

    let imported = from.json(&["import", &from.file("key.jsonl", &line), "--api", &api]);
    let file = from.file("keys.jsonl", &from.text(&["export", "--api", &api]));
    let moved = to.json(&["import", &file, "--api", &target]);

    assert_eq!((&imported["imported"], &moved["imported"]), (&json!(1), &json!(1)));
    let exported = to.text(&["export", "--api", &target]);
    let exported: Value = serde_json::from_str(&exported).unwrap();
    assert_eq!(exported["permissions"].as_array().unwrap().len(), slugs.len());
    assert_eq!((&exported["hash"], &exported["meta"]), (&json!(hash), &meta));
}
