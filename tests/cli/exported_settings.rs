//! Tests that an imported key has the settings that it was exported with.

use super::deployments::{Deployment, text_of, wait_for};
use super::*;

#[test]
fn re_rolled_key_has_the_prefix_and_the_length_of_the_exported_one() {
    let [from, to] = Deployment::both();
    let (api, target) = (from.create_api(), to.create_api());
    let (_, key) = from.create_key(&api, &["--prefix", "acme", "--bytes", "40"]);
    let file = from.file("keys.jsonl", &from.text(&["export", "--api", &api]));
    assert_eq!(to.json(&["import", &file, "--api", &target])["imported"], 1);
    let id = text_of(&to.json(&["key", "list"])[0], "keyId");

    let rotated = to.json(&["key", "rotate", &id]);

    let rotated = text_of(&rotated, "key");
    assert!(rotated.starts_with("acme_"), "another prefix");
    let difference = rotated.len().abs_diff(key.len());
    assert!(difference <= 2, "the length of base58 varies by up to two: {difference}");
}

#[test]
fn key_without_prefix_and_with_the_default_length_is_exported_without_them() {
    let deployment = Deployment::embedded();
    let api = deployment.create_api();
    deployment.create_key(&api, &[]);

    let exported = deployment.text(&["export", "--api", &api]);

    let exported: Value = serde_json::from_str(&exported).unwrap();
    let fields: Vec<_> = exported.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["enabled", "hash"]);
}

#[test]
fn refill_of_a_key_without_credits_is_exported_and_imported() {
    let [from, to] = Deployment::both();
    let (api, target) = (from.create_api(), to.create_api());
    let hash = "ab".repeat(32);
    let credits = json!({
        "remaining": null, "refill": { "interval": "monthly", "amount": 9, "refillDay": 3 },
    });
    let line = json!({ "hash": hash, "credits": credits }).to_string();
    from.json(&["import", &from.file("key.jsonl", &line), "--api", &api]);

    let exported = from.text(&["export", "--api", &api]);
    let file = from.file("keys.jsonl", &exported);
    assert_eq!(to.json(&["import", &file, "--api", &target])["imported"], 1);

    for text in [exported, to.text(&["export", "--api", &target])] {
        let exported: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(exported["credits"], credits, "{text}");
    }
    let id = text_of(&to.json(&["key", "list"])[0], "keyId");
    assert_eq!(to.json(&["key", "get", &id])["credits"]["remaining"], Value::Null);
}

#[test]
fn prefixed_key_is_imported_again_whatever_its_prefix() {
    let [from, to] = Deployment::both();
    let (api, target) = (from.create_api(), to.create_api());
    let server = from.serve();
    let keys = ["my_company_production_aa_11", "_bb_22"];
    let lines = keys.map(|key| json!({ "key": key }).to_string() + "\n").concat();
    let file = from.file("keys.jsonl", &lines);
    let import = ["import", &file, "--api", &api, "--algorithm", "prefixed-api-key"];
    let migration = text_of(&from.json(&import), "migrationId");
    for key in keys {
        // The first verification gives a key its prefix.
        let request = json!({ "key": key, "migrationId": migration });
        let code = || server.v2(ROOT_KEY, "keys.verifyKey", &request).1["data"]["code"].clone();
        wait_for(&json!("VALID"), code);
    }

    let exported = from.file("exported.jsonl", &from.text(&["export", "--api", &api]));

    assert_eq!(to.json(&["import", &exported, "--api", &target])["imported"], 2);
}
