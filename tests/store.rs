//! The database: one suite over both engines.

use std::sync::Arc;

use futures_util::future::join_all;
use keyward::clock::Timestamp;
use keyward::error::Result;
use keyward::id::{
    ApiId, AuditId, CorrelationId, IdentityId, KeyId, PermissionId, RatelimitId, RoleId,
    WorkspaceId,
};
use keyward::model::{
    Api, ApiSettings, Credits, Key, Meta, Permission, Purse, Ratelimit, Refill, RefillInterval,
    Role, RootKey,
};
use keyward::secret::KeyHash;
use keyward::store::freshness::Subject;
use keyward::store::{AuditAct, AuditEntry, Owner, Store, Tx};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::support::NOON;
use crate::support::database::Database;

/// Text that SQL, JSON and collations might trip over.
const ODD: &str = " Ünïcødé 支付 🦀\u{301} \"q\" 'a' \\ \n\t $1 %s -- ; \u{1f}\u{7f} {\"a\":[1]} ";

/// Runs a rule on each engine. The store is migrated and empty.
macro_rules! both_stores {
    ($($(#[$meta:meta])* async fn $name:ident($store:ident) $body:block)*) => {$(
        $(#[$meta])*
        mod $name {
            use super::*;

            async fn rule($store: Store) $body

            #[tokio::test]
            async fn postgres() {
                let database = Database::create().await;
                rule(Store::connect(&database.url, 8).await.unwrap()).await;
            }

            #[tokio::test]
            async fn sqlite() {
                let directory = tempfile::tempdir().unwrap();
                let store = Store::open(&directory.path().join("keyward.db")).await.unwrap();
                store.migrate().await.unwrap();
                rule(store).await;
            }
        }
    )*};
}

mod changes;
mod credits;
mod identities;
mod keys;
mod ratelimits;
mod rbac;

/// Runs a statement that no function of the store does.
async fn execute(store: &Store, sql: &'static str) {
    match store {
        Store::Postgres(pool) => drop(sqlx::query(sql).execute(pool).await.unwrap()),
        Store::Sqlite(pool) => drop(sqlx::query(sql).execute(pool).await.unwrap()),
    }
}

async fn count(store: &Store, table: &'static str) -> i64 {
    let sql = AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
    match store {
        Store::Postgres(pool) => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
        Store::Sqlite(pool) => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
    }
}

async fn workspace(store: &Store) -> WorkspaceId {
    let id = WorkspaceId::random();
    commit(store, async |tx| tx.insert_workspace(&id, "a workspace", NOON).await).await.unwrap();
    id
}

async fn api(store: &Store, workspace: &WorkspaceId) -> ApiId {
    let api = an_api(workspace);
    commit(store, async |tx| tx.insert_api(&api).await).await.unwrap();
    api.id
}

/// A key with these credits that has been stored, and its workspace.
async fn key(store: &Store, credits: Option<Credits>) -> Key {
    let workspace = workspace(store).await;
    let key = Key { credits, ..a_key(&workspace, &api(store, &workspace).await) };
    commit(store, async |tx| tx.insert_key(&key).await).await.unwrap();
    key
}

/// Another key in the API of a key.
async fn key_in(store: &Store, other: &Key) -> Key {
    let key = a_key(&other.workspace_id, &other.api_id);
    commit(store, async |tx| tx.insert_key(&key).await).await.unwrap();
    key
}

fn an_api(workspace: &WorkspaceId) -> Api {
    Api {
        id: ApiId::random(),
        workspace_id: workspace.clone(),
        name: ODD.into(),
        settings: ApiSettings::default(),
        created_at: NOON,
        deleted_at: None,
    }
}

fn a_key(workspace: &WorkspaceId, api: &ApiId) -> Key {
    let id = KeyId::random();
    Key {
        workspace_id: workspace.clone(),
        api_id: api.clone(),
        hash: KeyHash::of(id.as_str()).base64(),
        start: "3kQz".into(),
        prefix: None,
        byte_length: 16,
        name: None,
        meta: None,
        identity_id: None,
        enabled: true,
        expires_at: None,
        credits: None,
        created_at: NOON,
        updated_at: None,
        id,
    }
}

fn a_root_key(workspace: &WorkspaceId) -> RootKey {
    RootKey {
        id: KeyId::random(),
        workspace_id: workspace.clone(),
        workspace_enabled: true,
        start: "keyw".into(),
        name: None,
        permissions: Vec::new(),
        created_at: NOON,
        expires_at: None,
        revoked_at: None,
    }
}

fn a_permission(slug: &str) -> Permission {
    let id = PermissionId::random();
    Permission { id, slug: slug.into(), name: slug.into(), description: None }
}

fn a_role(name: &str, permissions: &[Permission]) -> Role {
    let (id, permissions) = (RoleId::random(), permissions.to_vec());
    Role { id, name: name.into(), description: None, permissions }
}

fn a_limit(name: &str, limit: i64) -> Ratelimit {
    let id = RatelimitId::random();
    Ratelimit { id, name: name.into(), limit, duration_ms: 1000, auto_apply: false }
}

fn credits(balance: i64, refill: Option<Refill>, refilled: i64) -> Credits {
    Credits { balance, version: 0, refill, refilled }
}

fn meta(json: &str) -> Meta {
    Meta::stored(json.to_owned()).expect("JSON")
}

/// An audit entry as it stands in the table.
#[derive(Debug, PartialEq, sqlx::FromRow)]
struct Entry {
    id: String,
    workspace_id: String,
    at: i64,
    event: String,
    actor_type: String,
    actor_id: String,
    actor_name: String,
    remote_address: Option<String>,
    user_agent: Option<String>,
    targets: String,
    correlation_id: String,
}

/// What a transaction does, done and committed.
async fn commit<T>(store: &Store, act: impl AsyncFnOnce(&mut Tx) -> Result<T>) -> Result<T> {
    let mut tx = store.begin().await?;
    let done = act(&mut tx).await?;
    tx.commit().await?;
    Ok(done)
}

both_stores! {
    async fn a_workspace_is_made_once_and_the_first_stays(store) {
        let id = WorkspaceId::from("ws_1");

        let first = commit(&store, async |tx| tx.insert_workspace(&id, ODD, NOON).await).await;
        let second =
            commit(&store, async |tx| tx.insert_workspace(&id, "another", NOON).await).await;
        let other = WorkspaceId::from("WS_1");
        let other = commit(&store, async |tx| tx.insert_workspace(&other, "b", NOON).await).await;

        assert_eq!((first.unwrap(), second.unwrap(), other.unwrap()), (true, false, true));
        let sql = "SELECT name FROM workspaces WHERE id = 'ws_1'";
        let name: String = match &store {
            Store::Postgres(pool) => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
            Store::Sqlite(pool) => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
        };
        assert_eq!(name, ODD);
    }

    async fn a_root_key_is_found_by_its_hash(store) {
        let workspace = workspace(&store).await;
        let key = RootKey {
            name: Some(ODD.into()),
            permissions: vec!["api.*.create_key".into(), "rbac.*.create_role".into()],
            expires_at: Some(Timestamp(i64::MAX)),
            ..a_root_key(&workspace)
        };

        commit(&store, async |tx| tx.insert_root_key(&key, "hash+/=").await).await.unwrap();

        let mut reader = store.read().await.unwrap();
        let found = reader.root_key_by_hash("hash+/=").await.unwrap().expect("the root key");
        assert_eq!((&found.id, &found.workspace_id), (&key.id, &key.workspace_id));
        assert_eq!((&found.name, &found.permissions), (&key.name, &key.permissions));
        assert_eq!((&found.start, found.created_at), (&key.start, key.created_at));
        assert_eq!((found.expires_at, found.revoked_at), (key.expires_at, None));
        assert!(found.workspace_enabled);
        assert!(reader.root_key_by_hash("HASH+/=").await.unwrap().is_none());
        assert!(reader.root_key_by_hash("").await.unwrap().is_none());
    }

    async fn a_root_key_tells_whether_its_workspace_is_enabled(store) {
        let workspace = workspace(&store).await;
        let key = a_root_key(&workspace);
        commit(&store, async |tx| tx.insert_root_key(&key, "hash").await).await.unwrap();

        execute(&store, "UPDATE workspaces SET enabled = FALSE").await;

        let found = store.read().await.unwrap().root_key_by_hash("hash").await.unwrap();
        assert!(!found.unwrap().workspace_enabled);
    }

    async fn root_keys_are_listed_by_id_revoked_ones_too(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        for (n, id) in ["key_b", "key_B", "key_a", "key_é", "key_Z"].into_iter().enumerate() {
            let key = RootKey { id: KeyId::from(id), ..a_root_key(&workspace) };
            let hash = n.to_string();
            commit(&store, async |tx| tx.insert_root_key(&key, &hash).await).await.unwrap();
        }
        let foreign = a_root_key(&other);
        commit(&store, async |tx| tx.insert_root_key(&foreign, "foreign").await).await.unwrap();
        let revoked = KeyId::from("key_a");
        commit(&store, async |tx| tx.revoke_root_key(&revoked, NOON).await).await.unwrap();

        let listed = store.read().await.unwrap().root_keys(&workspace).await.unwrap();

        let ids: Vec<_> = listed.iter().map(|key| key.id.as_str()).collect();
        assert_eq!(ids, ["key_B", "key_Z", "key_a", "key_b", "key_é"]);
        assert_eq!(listed[2].revoked_at, Some(NOON));
    }

    async fn a_root_key_is_revoked_once(store) {
        let workspace = workspace(&store).await;
        let key = a_root_key(&workspace);
        commit(&store, async |tx| tx.insert_root_key(&key, "hash").await).await.unwrap();
        let revoke = async |id: &str, now| {
            let id = KeyId::from(id);
            commit(&store, async |tx| tx.revoke_root_key(&id, now).await).await.unwrap()
        };

        let first = revoke(key.id.as_str(), NOON).await;
        let second = revoke(key.id.as_str(), NOON.plus_ms(1)).await;
        let unknown = revoke("key_nowhere", NOON).await;

        assert_eq!((first, second, unknown), (Some(workspace), None, None));
        let found = store.read().await.unwrap().root_key_by_hash("hash").await.unwrap();
        assert_eq!(found.unwrap().revoked_at, Some(NOON));
    }

    async fn an_api_is_found_in_its_workspace_deleted_or_not(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let api = an_api(&workspace);
        commit(&store, async |tx| tx.insert_api(&api).await).await.unwrap();
        let later = NOON.plus_ms(5);

        let live = store.read().await.unwrap().api(&workspace, &api.id).await.unwrap().unwrap();
        commit(&store, async |tx| tx.delete_api(&workspace, &api.id, later).await).await.unwrap();
        let deleted = store.read().await.unwrap().api(&workspace, &api.id).await.unwrap().unwrap();

        assert_eq!((&live.id, &live.workspace_id), (&api.id, &workspace));
        assert_eq!((live.name.as_str(), live.created_at, live.deleted_at), (ODD, NOON, None));
        assert_eq!((deleted.name.as_str(), deleted.deleted_at), (ODD, Some(later)));
        let mut reader = store.read().await.unwrap();
        let shouted = ApiId::from(api.id.as_str().to_uppercase());
        assert!(reader.api(&other, &api.id).await.unwrap().is_none());
        assert!(reader.api(&workspace, &shouted).await.unwrap().is_none());
    }

    async fn an_api_is_deleted_once_and_by_its_workspace_only(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let id = api(&store, &workspace).await;
        let delete = async |workspace: &WorkspaceId, now| {
            commit(&store, async |tx| tx.delete_api(workspace, &id, now).await).await.unwrap()
        };

        let foreign = delete(&other, NOON).await;
        let first = delete(&workspace, NOON).await;
        let second = delete(&workspace, NOON.plus_ms(1)).await;

        assert_eq!((foreign, first, second), (false, true, false));
        let api = store.read().await.unwrap().api(&workspace, &id).await.unwrap().unwrap();
        assert_eq!(api.deleted_at, Some(NOON));
    }

    async fn an_audit_entry_is_kept_field_by_field(store) {
        let workspace = workspace(&store).await;
        let (id, other) = (AuditId::random(), AuditId::random());
        let entry = |id: &AuditId, kind| AuditEntry {
            id: id.clone(),
            event: "key.create",
            targets: json!([{ "type": kind, "name": ODD }]),
        };
        let act = AuditAct {
            workspace_id: &workspace,
            at: Timestamp(i64::MAX),
            correlation_id: &CorrelationId::from("cor_1"),
            actor_type: "rootkey",
            actor_id: "key_1",
            actor_name: ODD,
            remote_address: Some("2001:db8::1"),
            user_agent: Some(ODD),
        };
        let bare = AuditAct { remote_address: None, user_agent: None, ..act };

        commit(&store, async |tx| {
            tx.insert_audit(&act, &[entry(&id, "key"), entry(&other, "role")]).await?;
            tx.insert_audit(&bare, &[entry(&AuditId::from("log_2"), "key")]).await
        })
        .await
        .unwrap();

        let sql = "
            SELECT id, workspace_id, at, event, actor_type, actor_id, actor_name, remote_address,
                user_agent, targets, correlation_id
            FROM audit
            ORDER BY id";
        let mut rows: Vec<Entry> = match &store {
            Store::Postgres(pool) => sqlx::query_as(sql).fetch_all(pool).await.unwrap(),
            Store::Sqlite(pool) => sqlx::query_as(sql).fetch_all(pool).await.unwrap(),
        };
        for row in &mut rows {
            // How it is spaced is not looked at.
            row.targets = serde_json::from_str::<Value>(&row.targets).unwrap().to_string();
        }
        let stored = |id: &str, kind, address: Option<&str>, agent: Option<&str>| Entry {
            id: id.into(),
            workspace_id: workspace.to_string(),
            at: i64::MAX,
            event: "key.create".into(),
            actor_type: "rootkey".into(),
            actor_id: "key_1".into(),
            actor_name: ODD.into(),
            remote_address: address.map(str::to_owned),
            user_agent: agent.map(str::to_owned),
            targets: json!([{ "type": kind, "name": ODD }]).to_string(),
            correlation_id: "cor_1".into(),
        };
        let mut due = [
            stored(id.as_str(), "key", Some("2001:db8::1"), Some(ODD)),
            stored(other.as_str(), "role", Some("2001:db8::1"), Some(ODD)),
            stored("log_2", "key", None, None),
        ];
        due.sort_by(|a, b| a.id.cmp(&b.id));
        assert_eq!(rows, due);
    }

    async fn a_dropped_transaction_leaves_nothing(store) {
        let before = key(&store, Some(credits(5, None, 0))).await;
        let (workspace, api) = (&before.workspace_id, &before.api_id);
        let (fresh, permission) = (a_key(workspace, api), a_permission("documents.read"));
        let changed = Key { name: Some("changed".into()), ..before.clone() };

        let mut tx = store.begin().await.unwrap();
        tx.insert_key(&fresh).await.unwrap();
        tx.insert_permissions(workspace, &[permission], NOON).await.unwrap();
        tx.ensure_identity(workspace, "user_1", NOON).await.unwrap();
        tx.update_key(&changed).await.unwrap();
        tx.move_credits(&before.id, &credits(4, None, 0)).await.unwrap();
        tx.insert_changes(&["direct".to_owned()]).await.unwrap();
        tx.changed(Subject::Key(fresh.id.clone()));
        drop(tx);

        let mut reader = store.read().await.unwrap();
        assert!(reader.key_by_hash(&fresh.hash).await.unwrap().is_none());
        let found = reader.key_by_hash(&before.hash).await.unwrap().unwrap().key;
        assert_eq!((found.name, found.credits.unwrap().balance), (None, 5));
        for (table, rows) in [("keys", 1), ("permissions", 0), ("identities", 0), ("changes", 0)] {
            assert_eq!(count(&store, table).await, rows, "{table}");
        }
    }

    async fn a_transaction_that_failed_leaves_nothing(store) {
        let key = key(&store, None).await;
        let workspace = &key.workspace_id;
        let taken = Key { id: KeyId::random(), ..key.clone() };

        let failed = commit(&store, async |tx| {
            tx.ensure_identity(workspace, "user_1", NOON).await?;
            tx.insert_key(&taken).await
        })
        .await;

        assert!(failed.is_err());
        assert_eq!((count(&store, "identities").await, count(&store, "keys").await), (0, 1));
    }

    async fn a_transaction_sees_its_own_work_and_others_do_not_until_it_commits(store) {
        let workspace = workspace(&store).await;
        let fresh = a_key(&workspace, &api(&store, &workspace).await);

        let mut tx = store.begin().await.unwrap();
        tx.insert_key(&fresh).await.unwrap();
        let inside = tx.key(&workspace, &fresh.id).await.unwrap();
        let outside = store.read().await.unwrap().key(&workspace, &fresh.id).await.unwrap();
        tx.commit().await.unwrap();
        let after = store.read().await.unwrap().key(&workspace, &fresh.id).await.unwrap();

        assert!(inside.is_some() && outside.is_none() && after.is_some());
    }

    async fn transactions_that_read_and_then_write_all_succeed(store) {
        let workspace = workspace(&store).await;
        let id = api(&store, &workspace).await;
        let make = || {
            commit(&store, async |tx| {
                assert!(tx.api(&workspace, &id).await?.is_some());
                tx.insert_key(&a_key(&workspace, &id)).await
            })
        };

        for made in join_all((0..16).map(|_| make())).await {
            made.unwrap();
        }

        assert_eq!(count(&store, "keys").await, 16);
    }

    async fn a_schema_that_is_up_to_date_is_left_alone(store) {
        let key = key(&store, None).await;

        for migrated in join_all((0..4).map(|_| store.migrate())).await {
            migrated.unwrap();
        }

        assert!(store.read().await.unwrap().key_by_hash(&key.hash).await.unwrap().is_some());
    }

    async fn a_closed_store_answers_nothing(store) {
        store.close().await;

        assert!(store.begin().await.is_err());
        assert!(store.read().await.is_err());
    }
}

#[tokio::test]
async fn several_replicas_may_migrate_an_empty_database_at_once() {
    let database = Database::empty().await;
    let stores = join_all((0..4).map(|_| Store::connect(&database.url, 1))).await;
    let stores: Vec<_> = stores.into_iter().map(Result::unwrap).collect();

    for migrated in join_all(stores.iter().map(Store::migrate)).await {
        migrated.unwrap();
    }

    workspace(&stores[0]).await;
    assert_eq!(count(&stores[3], "workspaces").await, 1);
}

#[tokio::test]
async fn a_database_that_is_not_there_is_told_at_once() {
    let nowhere = Store::connect("postgres://nobody@127.0.0.1:1/nothing", 1).await;

    assert!(nowhere.is_err());
}

#[tokio::test]
async fn what_was_committed_is_there_after_the_file_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keyward.db");
    let store = Store::open(&path).await.unwrap();
    store.migrate().await.unwrap();
    let key = key(&store, Some(credits(5, None, 0))).await;
    store.close().await;

    let again = Store::open(&path).await.unwrap();

    let found = again.read().await.unwrap().key_by_hash(&key.hash).await.unwrap().unwrap();
    assert_eq!(found.key.credits.unwrap().balance, 5);
}
