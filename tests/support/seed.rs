//! Creates test data in the terms of the field.

use domain::apis;
use domain::audit::{self, Actor, AuditEvent, Target};
use domain::ratelimits::namespaces;
use domain::root_keys::{self, NewRootKey};
use foundation::id::{ApiId, IdentityId, KeyId, RatelimitId};
use foundation::model::{ApiSettings, Ratelimit, RootKey};
use foundation::secret::Plaintext;
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use store::freshness::CacheTag;
use store::{LimitOwner, Store};

use super::{Keyward, Reply};

/// An issued key.
#[derive(Debug, Clone)]
pub struct IssuedKey {
    pub id: String,
    pub key: String,
}

impl Keyward {
    /// Creates an API.
    pub async fn create_api(&self) -> String {
        self.v2("apis.createApi", json!({ "name": "an API" })).await.text_of("apiId")
    }

    /// Creates a key in a new API, with these fields of `keys.createKey`.
    pub async fn create_key(&self, fields: Value) -> IssuedKey {
        let api = self.create_api().await;
        self.create_key_in(&api, fields).await
    }

    pub async fn create_key_in(&self, api: &str, fields: Value) -> IssuedKey {
        let reply = self.v2("keys.createKey", merge_fields(json!({ "apiId": api }), fields)).await;
        IssuedKey { id: reply.text_of("keyId"), key: reply.text_of("key") }
    }

    /// Creates a key in an API, with these fields of `keys.createKey` of version 1.
    pub async fn create_key_v1(&self, api: &str, fields: Value) -> IssuedKey {
        let reply = self.v1("keys.createKey", merge_fields(json!({ "apiId": api }), fields)).await;
        let text = |field: &str| reply.v1_body()[field].as_str().expect("a text").to_owned();
        IssuedKey { id: text("keyId"), key: text("key") }
    }

    /// Changes the settings of an API, as an operator does.
    pub async fn update_api(&self, api: &str, change: impl FnOnce(&mut ApiSettings)) {
        let workspace = root_keys::default_workspace();
        let done =
            apis::update_as_operator(&self.app.context, &workspace, &ApiId::from(api), change)
                .await;
        done.expect("an API");
    }

    /// Creates an identity with these fields of `identities.createIdentity`. Returns its id.
    pub async fn create_identity(&self, external_id: &str, fields: Value) -> String {
        let request = merge_fields(json!({ "externalId": external_id }), fields);
        self.v2("identities.createIdentity", request).await.text_of("identityId")
    }

    /// Creates a permission with this slug. Returns its id.
    pub async fn create_permission(&self, slug: &str) -> String {
        let request = json!({ "name": slug, "slug": slug });
        self.v2("permissions.createPermission", request).await.text_of("permissionId")
    }

    /// Creates a role with these permissions, which are created if they are missing. Returns its id.
    pub async fn create_role<const N: usize>(&self, name: &str, permissions: [&str; N]) -> String {
        let request = json!({ "name": name, "permissions": permissions.as_slice() });
        self.v2("permissions.createRole", request).await.text_of("roleId")
    }

    /// Reads all pages of a list with two items per page. Returns the items.
    pub async fn list_all_pages(&self, operation: &str, request: Value) -> Vec<Value> {
        let (mut items, mut cursor) = (Vec::new(), json!(""));
        loop {
            let asked = merge_fields(request.clone(), json!({ "limit": 2, "cursor": cursor }));
            let reply = self.v2(operation, asked).await;
            items.extend(reply.data().as_array().expect("a list").iter().cloned());
            let pagination = &reply.body["pagination"];
            if pagination["hasMore"] == false {
                assert_eq!(*pagination, json!({ "hasMore": false }));
                return items;
            }
            cursor = pagination["cursor"].clone();
        }
    }

    /// Returns the key as `keys.getKey` does.
    pub async fn get_key(&self, id: &str) -> Value {
        self.v2("keys.getKey", json!({ "keyId": id })).await.data().clone()
    }

    /// Returns the key as `keys.getKey` of version 1 does.
    pub async fn get_key_v1(&self, id: &str) -> Value {
        self.v1_get("keys.getKey", &format!("keyId={id}")).await.v1_body().clone()
    }

    /// Returns the identity as `identities.getIdentity` does.
    pub async fn get_identity(&self, named: &str) -> Value {
        self.v2("identities.getIdentity", json!({ "identity": named })).await.data().clone()
    }

    /// Changes these fields of a key.
    pub async fn update_key(&self, id: &str, fields: Value) -> Reply {
        self.v2("keys.updateKey", merge_fields(json!({ "keyId": id }), fields)).await
    }

    /// Checks a limit of 10 per minute; `fields` replace or extend the request.
    pub async fn check_limit(&self, namespace: &str, identifier: &str, fields: Value) -> Reply {
        self.v2("ratelimit.limit", limit_request(namespace, identifier, fields)).await
    }

    /// Sends this many checks of 10 per minute concurrently. Returns how many succeed.
    pub async fn count_concurrent_checks(
        replicas: &[&Self],
        namespace: &str,
        checks: usize,
    ) -> usize {
        let limit =
            |at: usize| replicas[at % replicas.len()].check_limit(namespace, "user_1", json!({}));
        let replies = join_all((0..checks).map(limit)).await;
        replies.iter().filter(|reply| reply.data()["success"] == true).count()
    }

    /// Returns the id of a namespace of the default workspace.
    pub async fn find_namespace_id(&self, name: &str) -> String {
        let mut reader = self.store().read().await.expect("a connection");
        let found = reader.find_namespace(&root_keys::default_workspace(), name).await;
        found.expect("an answer").expect("a namespace").id.to_string()
    }

    /// Deletes a namespace, as an operator does.
    pub async fn delete_namespace(&self, name: &str) {
        let workspace = root_keys::default_workspace();
        namespaces::delete_as_operator(&self.app.context, &workspace, name)
            .await
            .expect("a namespace");
    }

    /// Sets an override. Returns its id.
    pub async fn set_override(&self, namespace: &str, identifier: &str, fields: Value) -> String {
        let request = limit_request(namespace, identifier, fields);
        self.v2("ratelimit.setOverride", request).await.text_of("overrideId")
    }

    /// Verifies a key with these additional fields.
    pub async fn verify_with(&self, key: &str, fields: Value) -> Reply {
        self.v2("keys.verifyKey", merge_fields(json!({ "key": key }), fields)).await
    }

    /// Returns the number of entries in the audit log.
    pub async fn count_audit_entries(&self) -> i64 {
        let sql = "SELECT COUNT(*) FROM audit";
        match self.store() {
            Store::Postgres { pool, .. } => sqlx::query_scalar(sql).fetch_one(&pool.get()).await,
            Store::Sqlite { pool, .. } => sqlx::query_scalar(sql).fetch_one(pool).await,
        }
        .expect("the audit log")
    }

    /// Returns the audit events of the target with this id or name, sorted.
    pub async fn list_audit_events(&self, thing: &str) -> Vec<String> {
        let sql = "SELECT event, targets FROM audit";
        let rows: Vec<(String, String)> = match self.store() {
            Store::Postgres { pool, .. } => sqlx::query_as(sql).fetch_all(&pool.get()).await,
            Store::Sqlite { pool, .. } => sqlx::query_as(sql).fetch_all(pool).await,
        }
        .expect("the audit log");
        let names = |targets: &str| {
            let targets: Vec<Value> = serde_json::from_str(targets).expect("targets");
            targets.iter().any(|target| target["id"] == thing || target["name"] == thing)
        };
        let named = rows.into_iter().filter(|(_, targets)| names(targets));
        let mut events: Vec<_> = named.map(|(event, _)| event).collect();
        events.sort();
        events
    }

    /// Changes stored data without the server.
    pub async fn execute_sql(&self, sql: String) {
        let sql = AssertSqlSafe(sql);
        match self.store() {
            Store::Postgres { pool, .. } => sqlx::query(sql).execute(&pool.get()).await.map(drop),
            Store::Sqlite { pool, .. } => sqlx::query(sql).execute(pool).await.map(drop),
        }
        .expect("a change");
    }

    /// Returns the number of rows of a table.
    pub async fn count_rows(&self, table: &'static str) -> i64 {
        let sql = AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
        match self.store() {
            Store::Postgres { pool, .. } => sqlx::query_scalar(sql).fetch_one(&pool.get()).await,
            Store::Sqlite { pool, .. } => sqlx::query_scalar(sql).fetch_one(pool).await,
        }
        .expect("a count")
    }

    /// Returns the values of a text column, ordered by row id.
    pub async fn list_texts(&self, table: &'static str, column: &'static str) -> Vec<String> {
        let sql = AssertSqlSafe(format!(
            "SELECT {column} FROM {table} WHERE {column} IS NOT NULL ORDER BY id"
        ));
        match self.store() {
            Store::Postgres { pool, .. } => sqlx::query_scalar(sql).fetch_all(&pool.get()).await,
            Store::Sqlite { pool, .. } => sqlx::query_scalar(sql).fetch_all(pool).await,
        }
        .expect("a column")
    }

    /// Creates a root key of the default workspace with only these permissions. They may be none, or name resources that
    /// do not exist.
    pub async fn create_root_key<const N: usize>(&self, permissions: [&str; N]) -> String {
        self.create_root_key_with(permissions.map(str::to_owned).to_vec()).await
    }

    pub async fn create_root_key_with(&self, permissions: Vec<String>) -> String {
        let secret = Plaintext::generate(Some("keyward"), 24);
        let key = RootKey {
            id: KeyId::random(),
            workspace_id: root_keys::default_workspace(),
            is_workspace_enabled: true,
            start: secret.start(Some("keyward")),
            name: None,
            permissions,
            created_at: self.clock.now(),
            expires_at: None,
            revoked_at: None,
        };
        let hash = secret.hash();
        let mut tx = self.store().begin().await.expect("a transaction");
        tx.insert_root_key(&key, &hash.to_base64()).await.expect("a root key");
        let (workspace, target) = (&key.workspace_id, Target::new("key", key.id.as_str()));
        let (actor, event) = (Actor::Command("cli"), AuditEvent::RootKeyCreated);
        audit::record(&mut tx, actor, workspace, key.created_at, event, &[target])
            .await
            .expect("an entry");
        tx.record_change(CacheTag::NewKey(hash.fingerprint()));
        self.app.context.commit(tx).await.expect("a commit");
        secret.expose().to_owned()
    }

    /// Creates another workspace. Returns a root key with all permissions in it.
    pub async fn create_other_workspace(&self) -> String {
        let id =
            root_keys::create_workspace(&self.app.context, "another").await.expect("a workspace");
        let permissions = root_keys::all_permissions();
        let new = NewRootKey { name: None, permissions, expires_at: None };
        let created = root_keys::create_as_operator(&self.app.context, &id, new).await;
        created.expect("a root key").1.expose().to_owned()
    }

    /// Sets limits of a key's identity that all its keys share.
    pub async fn set_identity_limits(&self, identity: &str, limits: &[(&str, i64, i64, bool)]) {
        let limits: Vec<_> = limits
            .iter()
            .map(|(name, limit, duration_ms, auto_apply)| Ratelimit {
                is_approximate: false,
                id: RatelimitId::random(),
                name: (*name).to_owned(),
                limit: *limit,
                duration_ms: *duration_ms,
                auto_apply: *auto_apply,
            })
            .collect();
        let id = IdentityId::from(identity);
        let mut tx = self.store().begin().await.expect("a transaction");
        let workspace = root_keys::default_workspace();
        tx.replace_ratelimits(&workspace, LimitOwner::Identity(&id), &limits)
            .await
            .expect("limits");
        tx.record_change(CacheTag::Identity(id));
        self.app.context.commit(tx).await.expect("a commit");
    }
}

/// Returns a check of 10 per minute; `fields` replace or extend it.
pub fn limit_request(namespace: &str, identifier: &str, fields: Value) -> Value {
    let bare = json!({
        "namespace": namespace, "identifier": identifier, "limit": 10, "duration": 60_000,
    });
    merge_fields(bare, fields)
}

/// Adds these fields to a request.
pub fn merge_fields(mut request: Value, fields: Value) -> Value {
    let Value::Object(fields) = fields else { panic!("{fields} is not an object") };
    request.as_object_mut().expect("a request").extend(fields);
    request
}
