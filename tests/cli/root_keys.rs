//! Tests the commands for root keys.

use super::*;

#[test]
fn root_key_revoke_fails_when_root_key_does_not_exist_or_is_revoked() {
    let data = tempfile::tempdir().unwrap();
    let created = parse_json(&run(data.path(), &["root-key", "create", "--all", "--json"]));
    let id = created["keyId"].as_str().unwrap();
    parse_json(&run(data.path(), &["root-key", "revoke", id, "--json"]));

    for id in [id, "key_none"] {
        let output = run(data.path(), &["root-key", "revoke", id]);
        assert_rejected(&output, 2, &[id, "or is revoked already", "keyward root-key list"]);
    }
}
