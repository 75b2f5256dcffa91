//! With strict grants a root key gives keys only the permissions and roles that its `rbac.*` permissions allow, in both
//! versions of the interface.

use domain::migrations;
use domain::root_keys::default_workspace;
use foundation::model::Algorithm;
use foundation::secret::KeyHash;
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::version::Version::{self, V1, V2};
use crate::support::{Keyward, Reply, Stack, random_letters};

/// What every root key of these tests may do.
const BASE: [&str; 2] = ["api.*.create_key", "api.*.update_key"];

const ADD_PERMISSION: &str = "rbac.*.add_permission_to_key";
const REMOVE_PERMISSION: &str = "rbac.*.remove_permission_from_key";
const ADD_ROLE: &str = "rbac.*.add_role_to_key";
const REMOVE_ROLE: &str = "rbac.*.remove_role_from_key";
const CREATE_PERMISSION: &str = "rbac.*.create_permission";
const CREATE_ROLE: &str = "rbac.*.create_role";

/// A request, and the permissions that it needs besides [`BASE`].
#[derive(Debug)]
struct Case {
    version: Version,
    operation: &'static str,
    request: Value,
    needed: &'static [&'static str],
}

impl Case {
    fn new(
        version: Version,
        operation: &'static str,
        request: Value,
        needed: &'static [&'static str],
    ) -> Self {
        Self { version, operation, request, needed }
    }

    async fn send(&self, kw: &Keyward, root_key: &str) -> Reply {
        kw.call(self.version, root_key, self.operation, self.request.clone()).await
    }

    fn assert_allowed(&self, reply: &Reply) {
        assert!(reply.status.is_success(), "{self:?}: {}", reply.text);
    }
}

async fn strict(stack: Stack) -> Keyward {
    Keyward::start_with(stack, |settings| settings.security.strict_grants = true).await
}

/// Everything that a refused request could have changed.
async fn stored(kw: &Keyward) -> (Vec<i64>, Vec<String>) {
    let mut counts = Vec::new();
    for table in ["audit", "keys", "key_permissions", "key_roles", "permissions", "roles"] {
        counts.push(kw.count_rows(table).await);
    }
    (counts, kw.list_texts("keys", "name").await)
}

/// A hash that no key has yet, as version 1 and version 2 take it.
fn new_hash(version: Version) -> Value {
    let value = KeyHash::compute(random_letters()).to_base64();
    match version {
        V1 => json!({ "value": value, "variant": "sha256_base64" }),
        V2 => json!(value),
    }
}

/// Keys that have nothing, a permission, a role, and both.
struct Keys {
    bare: String,
    permitted: String,
    with_role: String,
    full: String,
}

impl Keys {
    async fn create(kw: &Keyward, api: &str) -> Self {
        let create = async |fields: Value| kw.create_key_in(api, fields).await.id;
        Self {
            bare: create(json!({})).await,
            permitted: create(json!({ "permissions": ["docs.read"] })).await,
            with_role: create(json!({ "roles": ["editor"] })).await,
            full: create(json!({ "permissions": ["docs.read"], "roles": ["editor"] })).await,
        }
    }
}

fn cases_of_single_keys(api: &str, keys: &Keys) -> Vec<Case> {
    let update = |version: Version, key: &str, field: &str, names: &[&str]| {
        let item = |name: &&str| match version {
            V1 => json!({ "name": name }),
            V2 => json!(name),
        };
        let items: Value = names.iter().map(item).collect();
        json!({ "keyId": key, "name": "renamed", field: items })
    };
    let roles = |key: &str, names: &[&str]| json!({ "keyId": key, "roles": names });
    let reroll = |key: &str| json!({ "keyId": key, "expiration": 60_000 });
    let (permissions, editor) = (json!(["docs.read"]), json!(["editor"]));
    let mut cases = Vec::new();
    for version in [V1, V2] {
        let create = json!({ "apiId": api, "permissions": permissions });
        cases.push(Case::new(version, "keys.createKey", create, &[ADD_PERMISSION]));
        let create = json!({ "apiId": api, "roles": editor });
        cases.push(Case::new(version, "keys.createKey", create, &[ADD_ROLE]));
        let table: [(&str, &str, &[&str], &'static [&str]); 6] = [
            (&keys.bare, "permissions", &["docs.read"], &[ADD_PERMISSION]),
            (&keys.full, "permissions", &[], &[REMOVE_PERMISSION]),
            (&keys.full, "permissions", &["docs.edit"], &[ADD_PERMISSION, REMOVE_PERMISSION]),
            (&keys.bare, "roles", &["editor"], &[ADD_ROLE]),
            (&keys.full, "roles", &[], &[REMOVE_ROLE]),
            (&keys.full, "roles", &["viewer"], &[ADD_ROLE, REMOVE_ROLE]),
        ];
        for (key, field, names, needed) in table {
            let request = update(version, key, field, names);
            cases.push(Case::new(version, "keys.updateKey", request, needed));
        }
    }
    cases.extend([
        Case::new(V2, "keys.setRoles", roles(&keys.bare, &["editor"]), &[ADD_ROLE]),
        Case::new(V2, "keys.setRoles", roles(&keys.full, &[]), &[REMOVE_ROLE]),
        Case::new(V2, "keys.setRoles", roles(&keys.full, &["viewer"]), &[ADD_ROLE, REMOVE_ROLE]),
        Case::new(V2, "keys.removeRoles", roles(&keys.full, &["editor"]), &[REMOVE_ROLE]),
        // A re-rolled key has all that the old one has.
        Case::new(V2, "keys.rerollKey", reroll(&keys.permitted), &[ADD_PERMISSION]),
        Case::new(V2, "keys.rerollKey", reroll(&keys.with_role), &[ADD_ROLE]),
        Case::new(V2, "keys.rerollKey", reroll(&keys.full), &[ADD_PERMISSION, ADD_ROLE]),
    ]);
    cases
}

fn cases_of_imports(api: &str, migration: &str) -> Vec<Case> {
    let key = |version: Version, field: &str, name: &str| json!({ "hash": new_hash(version), field: [name] });
    let mut cases = Vec::new();
    for (field, name, needed) in
        [("permissions", "docs.read", &[ADD_PERMISSION]), ("roles", "editor", &[ADD_ROLE])]
    {
        let mut of_api = key(V1, field, name);
        of_api["apiId"] = json!(api);
        cases.push(Case::new(V1, "migrations.createKeys", json!([of_api]), needed));
        let queued = json!({ "migrationId": "shop", "apiId": api, "keys": [key(V1, field, name)] });
        cases.push(Case::new(V1, "migrations.enqueueKeys", queued, needed));
    }
    let table: [(&str, &str, &'static [&str]); 4] = [
        ("permissions", "docs.read", &[ADD_PERMISSION]),
        ("roles", "editor", &[ADD_ROLE]),
        ("permissions", "docs.new", &[ADD_PERMISSION, CREATE_PERMISSION]),
        ("roles", "newcomer", &[ADD_ROLE, CREATE_ROLE]),
    ];
    for (field, name, needed) in table {
        let keys = json!([key(V2, field, name)]);
        let request = json!({ "migrationId": migration, "apiId": api, "keys": keys });
        cases.push(Case::new(V2, "keys.migrateKeys", request, needed));
    }
    cases
}

/// Every request that gives keys something or takes it, each on keys that no other request touches.
async fn cases(kw: &Keyward) -> Vec<Case> {
    kw.create_role("editor", ["docs.edit"]).await;
    kw.create_role("viewer", []).await;
    kw.create_permission("docs.read").await;
    let api = kw.create_api().await;
    let workspace = default_workspace();
    let migration =
        migrations::create_as_operator(&kw.app.context, &workspace, Algorithm::Sha256, None)
            .await
            .unwrap();
    let mut cases = cases_of_imports(&api, migration.id.as_str());
    for at in 0.. {
        let keys = Keys::create(kw, &api).await;
        let Some(case) = cases_of_single_keys(&api, &keys).into_iter().nth(at) else { break };
        cases.push(case);
    }
    cases
}

on_both_stacks! {
    async fn a_grant_is_refused_without_each_right_and_made_with_all(kw) {
        let kw = strict(kw.stack).await;
        for case in cases(&kw).await {
            let rights = BASE.iter().chain(case.needed);
            let all = kw.create_root_key_with(rights.clone().map(|right| (*right).to_owned()).collect()).await;
            let mut partial = Vec::new();
            for lacking in case.needed {
                let held = rights.clone().filter(|right| *right != lacking);
                let held = held.map(|right| (*right).to_owned()).collect();
                partial.push((lacking, kw.create_root_key_with(held).await));
            }
            let before = stored(&kw).await;

            for (lacking, root_key) in partial {
                case.send(&kw, &root_key).await.assert_refused(case.version, "insufficient_permissions", &[lacking]);
            }
            assert_eq!(stored(&kw).await, before, "{case:?}");
            case.assert_allowed(&case.send(&kw, &all).await);
            assert_ne!(stored(&kw).await, before, "{case:?}");
        }
    }

    async fn links_that_stay_need_no_rights(kw) {
        let kw = strict(kw.stack).await;
        kw.create_role("editor", ["docs.edit"]).await;
        kw.create_permission("docs.read").await;
        let key = kw.create_key(json!({ "permissions": ["docs.read"], "roles": ["editor"] })).await;
        let base = kw.create_root_key(BASE).await;

        let same = json!({ "keyId": key.id, "permissions": ["docs.read"], "roles": ["editor"], "name": "renamed" });
        kw.v2_as(&base, "keys.updateKey", same).await.data();
        kw.v2_as(&base, "keys.setRoles", json!({ "keyId": key.id, "roles": ["editor"] })).await.data();

        assert_eq!(kw.get_key(&key.id).await["name"], "renamed");
    }
}

/// That which strict grants change: version 1 asks for these rights in `keys.updateKey` in any case.
#[tokio::test]
async fn a_grant_needs_no_rights_when_grants_are_not_strict() {
    let kw = Keyward::start(Stack::Embedded).await;
    let base = kw.create_root_key(BASE).await;

    for case in cases(&kw).await {
        let reply = case.send(&kw, &base).await;
        match (case.version, case.operation) {
            (V1, "keys.updateKey") => assert_eq!(reply.status, 403, "{case:?}"),
            _ => case.assert_allowed(&reply),
        }
    }
}
