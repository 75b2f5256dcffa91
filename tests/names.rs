//! Tests that names contain no characters that change how surrounding text is displayed: in both versions of the API,
//! in the forms of the dashboard and in the commands.

use domain::migrations;
use domain::root_keys::default_workspace;
use foundation::id::ApiId;
use foundation::model::Algorithm;
use foundation::secret::KeyHash;
use serde_json::{Value, json};

use crate::dashboard::{Browser, between, workspace_path};
use crate::on_both_stacks;
use crate::support::{Keyward, Reply, random_letters};

/// A terminal escape, a control character of Latin-1, a line break, and a text direction override.
const HIDDEN: [char; 4] = ['\u{1b}', '\u{9b}', '\n', '\u{202e}'];

/// A name in several scripts, with the joiner that some of them need.
const ALLOWED: &str = "Größe 請求書 👩\u{200d}💻";

/// The objects that the requests of a table refer to.
struct NamedObjects {
    api: String,
    key: String,
    identity: String,
    role: String,
    migration: String,
}

impl NamedObjects {
    async fn create(kw: &Keyward) -> Self {
        let api = kw.create_api().await;
        let external_id = json!({ "externalId": random_letters() });
        let identity = kw.v2("identities.createIdentity", external_id).await;
        let workspace = default_workspace();
        let migration =
            migrations::create_as_operator(&kw.app.context, &workspace, Algorithm::Sha256, None)
                .await;
        Self {
            key: kw.create_key_in(&api, json!({})).await.id,
            identity: identity.text_of("identityId"),
            role: kw.create_role(&random_letters(), []).await,
            migration: migration.unwrap().id.to_string(),
            api,
        }
    }

    /// Returns requests of version 2 that store this name, or one that begins with it: operation, field and request.
    fn v2(&self, name: &str) -> Vec<(&'static str, &'static str, Value)> {
        let Self { api, key, identity, .. } = self;
        let limits = json!([{ "name": name, "limit": 5, "duration": 1000, "autoApply": true }]);
        let check = json!({ "namespace": name, "identifier": "a", "limit": 5, "duration": 1000 });
        let migrated = |field: &str, value: Value| {
            let hash = KeyHash::compute(random_letters()).to_base64();
            let keys = json!([{ "hash": hash, field: value }]);
            json!({ "migrationId": self.migration, "apiId": api, "keys": keys })
        };
        let user = random_letters();
        vec![
            ("apis.createApi", "name", json!({ "name": name })),
            ("keys.createKey", "name", json!({ "apiId": api, "name": name })),
            ("keys.createKey", "ratelimits[0].name", json!({ "apiId": api, "ratelimits": limits })),
            ("keys.updateKey", "name", json!({ "keyId": key, "name": name })),
            ("keys.updateKey", "ratelimits[0].name", json!({ "keyId": key, "ratelimits": limits })),
            ("keys.migrateKeys", "keys[0].name", migrated("name", json!(name))),
            ("keys.migrateKeys", "ratelimits[0].name", migrated("ratelimits", limits.clone())),
            ("keys.migrateKeys", "roles", migrated("roles", json!([name]))),
            (
                "permissions.createPermission",
                "name",
                json!({ "name": name, "slug": random_letters() }),
            ),
            ("permissions.createRole", "name", json!({ "name": format!("{name}2") })),
            (
                "identities.createIdentity",
                "ratelimits[0].name",
                json!({ "externalId": user, "ratelimits": limits }),
            ),
            (
                "identities.updateIdentity",
                "ratelimits[0].name",
                json!({ "identity": identity, "ratelimits": limits }),
            ),
            ("ratelimit.limit", "namespace", check.clone()),
            ("ratelimit.multiLimit", "namespace", json!([check])),
        ]
    }

    /// Returns requests of version 1 that store this name, or one that begins with it: operation, field and request.
    fn v1(&self, name: &str) -> Vec<(&'static str, &'static str, Value)> {
        let Self { api, key, identity, .. } = self;
        let create = |slot: &str| json!([{ "name": format!("{name}{slot}"), "create": true }]);
        let limits = json!([{ "name": name, "limit": 5, "duration": 1000 }]);
        let hash = || json!({ "value": KeyHash::compute(random_letters()).to_base64(), "variant": "sha256_base64" });
        let queued = json!([{ "hash": hash(), "name": name }]);
        let user = random_letters();
        vec![
            ("apis.createApi", "name", json!({ "name": name })),
            ("keys.createKey", "name", json!({ "apiId": api, "name": name })),
            ("keys.updateKey", "name", json!({ "keyId": key, "name": name })),
            ("keys.updateKey", "roles", json!({ "keyId": key, "roles": create("a") })),
            ("keys.addRoles", "roles", json!({ "keyId": key, "roles": create("b") })),
            ("keys.setRoles", "roles", json!({ "keyId": key, "roles": create("c") })),
            ("keys.updateKey", "permissions", json!({ "keyId": key, "permissions": create("a") })),
            (
                "keys.addPermissions",
                "permissions",
                json!({ "keyId": key, "permissions": create("b") }),
            ),
            (
                "keys.setPermissions",
                "permissions",
                json!({ "keyId": key, "permissions": create("c") }),
            ),
            ("permissions.createRole", "name", json!({ "name": format!("{name}d") })),
            (
                "migrations.createKeys",
                "name",
                json!([{ "apiId": api, "hash": hash(), "name": name }]),
            ),
            (
                "migrations.enqueueKeys",
                "name",
                json!({ "migrationId": "shop", "apiId": api, "keys": queued }),
            ),
            (
                "identities.createIdentity",
                "name",
                json!({ "externalId": user, "ratelimits": limits }),
            ),
            (
                "identities.updateIdentity",
                "name",
                json!({ "identityId": identity, "ratelimits": limits }),
            ),
            (
                "ratelimits.limit",
                "namespace",
                json!({ "namespace": format!("{name}e"), "identifier": "a", "limit": 5, "duration": 1000 }),
            ),
        ]
    }

    /// Returns forms of the dashboard that store this name, or one that begins with it: path and fields.
    fn forms(&self, name: &str) -> Vec<(String, Vec<(&'static str, String)>)> {
        let Self { api, key, identity, role, migration } = self;
        let text = str::to_owned;
        let limit = || {
            vec![
                ("limit-name", text(name)),
                ("limit-limit", text("5")),
                ("limit-duration", text("1")),
                ("limit-duration-unit", text("min")),
            ]
        };
        let with = |mut fields: Vec<(&'static str, String)>, more: &[(&'static str, &str)]| {
            fields.extend(more.iter().map(|(name, value)| (*name, text(value))));
            fields
        };
        let named = |suffix: &str| vec![("name", format!("{name}{suffix}"))];
        let hash = KeyHash::compute(random_letters()).to_base64();
        let pasted = json!([{ "hash": hash, "name": name }]).to_string();
        vec![
            (workspace_path("/apis"), named("")),
            (
                workspace_path(&format!("/apis/{api}/settings")),
                with(named(""), &[("was-name", "an API")]),
            ),
            (workspace_path("/permissions"), with(named(""), &[("slug", &random_letters())])),
            (workspace_path("/roles"), named("f")),
            (
                workspace_path(&format!("/roles/{role}/settings")),
                with(named("g"), &[("was-name", "a role")]),
            ),
            (workspace_path("/ratelimits"), named("h")),
            (workspace_path("/root-keys"), with(named(""), &[("permission", "api.*.verify_key")])),
            (workspace_path("/imports"), with(named(""), &[("algorithm", "sha256")])),
            (
                workspace_path(&format!("/imports/{migration}")),
                vec![("api", text(api)), ("keys", pasted)],
            ),
            (workspace_path("/keys"), with(named(""), &[("api", api)])),
            (workspace_path("/keys"), with(limit(), &[("api", api)])),
            (workspace_path(&format!("/keys/{key}/edit")), with(named(" 2"), &[("enabled", "on")])),
            (workspace_path(&format!("/keys/{key}/edit")), with(limit(), &[("enabled", "on")])),
            (workspace_path("/identities"), with(limit(), &[("externalId", &random_letters())])),
            (workspace_path(&format!("/identities/{identity}/edit")), limit()),
        ]
    }
}

/// Submits a form as its page would.
async fn submit(owner: &mut Browser<'_>, path: &str, fields: &[(&'static str, String)]) -> Reply {
    let mut fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let page = if path.ends_with("/edit") { owner.get(path).await.text } else { String::new() };
    let was = page.contains("name=\"was\"").then(|| between(&page, "name=\"was\" value=\"", "\""));
    let was = was.map(|was| was.replace("&#34;", "\""));
    fields.extend(was.as_deref().map(|was| ("was", was)));
    owner.post(path, &fields).await
}

on_both_stacks! {
    async fn operations_reject_names_with_hidden_characters_and_store_others(kw) {
        let objects = NamedObjects::create(&kw).await;
        let before = kw.count_audit_entries().await;

        for c in HIDDEN {
            let name = format!("name{c}[2J");
            for (operation, field, request) in objects.v2(&name) {
                let reply = kw.v2(operation, request).await;
                let message = reply.assert_error(400, "invalid_input")["errors"][0]["message"].to_string();
                assert!(message.contains(field), "{operation}: {message}");
            }
            for (operation, field, request) in objects.v1(&name) {
                let message = kw.v1(operation, request).await.assert_v1_error(400, "BAD_REQUEST");
                assert!(message.contains(field), "{operation}: {message}");
            }
        }

        assert_eq!(kw.count_audit_entries().await, before);
        for (operation, field, request) in objects.v2(ALLOWED) {
            let reply = kw.v2(operation, request).await;
            assert_eq!(reply.status, 200, "{operation} {field}: {}", reply.text);
        }
        for (operation, field, request) in objects.v1(ALLOWED) {
            let reply = kw.v1(operation, request).await;
            assert!(reply.status.is_success(), "{operation} {field}: {}", reply.text);
        }
    }

    async fn page_escapes_hidden_characters_of_existing_names(kw) {
        let id = ApiId::from(kw.create_api().await.as_str());
        let mut tx = kw.store().begin().await.unwrap();
        let mut api = tx.find_api(&default_workspace(), &id).await.unwrap().unwrap();
        api.name = "before\u{202e}after".into();
        tx.update_api(&api).await.unwrap();
        tx.commit().await.unwrap();

        let page = Browser::sign_in_owner(&kw).await.get(&workspace_path("/apis")).await.text;

        assert!(page.contains("before\\u{202e}after"), "{page}");
        assert!(!page.contains(">before\u{202e}after<"), "{page}");
    }

    async fn forms_reject_names_with_hidden_characters_and_store_others(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let objects = NamedObjects::create(&kw).await;
        let before = kw.count_audit_entries().await;

        for c in HIDDEN {
            for (path, fields) in objects.forms(&format!("name{c}[2J")) {
                let page = submit(&mut owner, &path, &fields).await;
                assert_eq!(page.status, 422, "{path} {fields:?}: {}", page.text);
            }
        }

        assert_eq!(kw.count_audit_entries().await, before);
        for (path, fields) in objects.forms(ALLOWED) {
            let before = kw.count_audit_entries().await;
            let page = submit(&mut owner, &path, &fields).await;
            assert!(matches!(page.status.as_u16(), 200 | 303), "{path} {fields:?}: {}", page.text);
            assert!(kw.count_audit_entries().await > before, "{path} {fields:?}: {}", page.text);
        }
    }

    async fn customer_identifiers_may_contain_any_character(kw) {
        for c in HIDDEN {
            let request = json!({
                "namespace": "requests", "identifier": format!("a{c}"), "limit": 5, "duration": 1000,
            });
            kw.v2("ratelimit.limit", request).await.data();
        }
    }

    async fn names_in_any_script_are_accepted(kw) {
        for name in ["الفواتير", "חיובים", "請求書", "Größe é", "👩\u{200d}💻 team"] {
            kw.v2("apis.createApi", json!({ "name": name })).await.data();
        }
    }
}
