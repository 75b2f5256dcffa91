//! Tests the database: one suite for both engines.

use std::sync::Arc;
use std::time::Duration;

use foundation::clock::{Stopwatch, Timestamp};
use foundation::error::{Code, Result};
use foundation::id::{ApiId, IdentityId, KeyId, PermissionId, RatelimitId, RoleId, WorkspaceId};
use foundation::model::{
    Api, ApiSettings, Credits, Key, Lease, Meta, Permission, Ratelimit, Refill, RefillInterval,
    Role,
};
use foundation::secret::KeyHash;
use futures_util::future::join_all;
use sqlx::AssertSqlSafe;
use store::freshness::CacheTag;
use store::{LimitOwner, Store, Tx};

use crate::support::NOON;
use crate::support::database::Database;

/// Text that could break SQL, JSON or collations.
const SPECIAL_TEXT: &str =
    " Ünïcødé 支付 🦀\u{301} \"q\" 'a' \\ \n\t $1 %s -- ; \u{1f}\u{7f} {\"a\":[1]} ";

/// Runs a test on each engine. The store is migrated and empty.
macro_rules! on_both_stores {
    ($($(#[$meta:meta])* async fn $name:ident($store:ident) $body:block)*) => {$(
        $(#[$meta])*
        mod $name {
            use super::*;

            async fn run_test($store: Store) $body

            #[tokio::test]
            async fn postgres() {
                let database = Database::create().await;
                run_test(Store::connect(&database.url, 8).await.unwrap()).await;
            }

            #[tokio::test]
            async fn sqlite() {
                let directory = tempfile::tempdir().unwrap();
                let store = Store::open(&directory.path().join("keyward.db")).await.unwrap();
                store.migrate().await.unwrap();
                run_test(store).await;
            }
        }
    )*};
}

mod apis;
mod audit;
mod changes;
mod credits;
mod holders;
mod identities;
mod journal;
mod keys;
mod leases;
mod ratelimits;
mod rbac;
mod regions;
mod root_keys;
mod schema_migration;
mod schema_upgrade;
mod schema_upgrade_reads;
mod search;
mod standby;
mod transactions;
mod writer;

/// Runs a statement that no function of the store runs.
async fn execute(store: &Store, sql: &'static str) {
    match store {
        Store::Postgres { pool, .. } => drop(sqlx::query(sql).execute(&pool.get()).await.unwrap()),
        Store::Sqlite { pool, .. } => drop(sqlx::query(sql).execute(pool).await.unwrap()),
    }
}

async fn execute_owned(store: &Store, sql: String) {
    let sql = AssertSqlSafe(sql);
    match store {
        Store::Postgres { pool, .. } => drop(sqlx::query(sql).execute(&pool.get()).await.unwrap()),
        Store::Sqlite { pool, .. } => drop(sqlx::query(sql).execute(pool).await.unwrap()),
    }
}

/// Lets Postgres know the rows of tables. All tables would include those that all databases share, on which tests would wait for each
/// other.
async fn vacuum(store: &Store, tables: &str) {
    if let Store::Postgres { .. } = store {
        execute_owned(store, format!("VACUUM ANALYZE {tables}")).await;
    }
}

async fn count(store: &Store, table: &'static str) -> i64 {
    let sql = AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
    match store {
        Store::Postgres { pool, .. } => {
            sqlx::query_scalar(sql).fetch_one(&pool.get()).await.unwrap()
        }
        Store::Sqlite { pool, .. } => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
    }
}

async fn workspace(store: &Store) -> WorkspaceId {
    let id = WorkspaceId::random();
    commit_with(store, async |tx| tx.insert_workspace(&id, "a workspace", NOON).await)
        .await
        .unwrap();
    id
}

async fn api(store: &Store, workspace: &WorkspaceId) -> ApiId {
    let api = an_api(workspace);
    commit_with(store, async |tx| tx.insert_api(&api).await).await.unwrap();
    api.id
}

/// Stores a key with these credits and its workspace.
async fn key(store: &Store, credits: Option<Credits>) -> Key {
    let workspace = workspace(store).await;
    let key = Key { credits, ..a_key(&workspace, &api(store, &workspace).await) };
    commit_with(store, async |tx| tx.insert_key(&key).await).await.unwrap();
    key
}

/// Stores another key in the API of a key.
async fn key_in(store: &Store, other: &Key) -> Key {
    let key = a_key(&other.workspace_id, &other.api_id);
    commit_with(store, async |tx| tx.insert_key(&key).await).await.unwrap();
    key
}

fn an_api(workspace: &WorkspaceId) -> Api {
    Api {
        id: ApiId::random(),
        workspace_id: workspace.clone(),
        name: SPECIAL_TEXT.into(),
        settings: ApiSettings::default(),
        home: None,
        created_at: NOON,
        deleted_at: None,
    }
}

fn a_key(workspace: &WorkspaceId, api: &ApiId) -> Key {
    let id = KeyId::random();
    Key {
        workspace_id: workspace.clone(),
        api_id: api.clone(),
        hash: KeyHash::compute(id.as_str()).to_base64(),
        start: "3kQz".into(),
        prefix: None,
        byte_length: 16,
        name: None,
        meta: None,
        identity_id: None,
        owner_id: None,
        environment: None,
        is_enabled: true,
        expires_at: None,
        credits: None,
        created_at: NOON,
        updated_at: None,
        id,
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
    Ratelimit {
        id,
        name: name.into(),
        limit,
        duration_ms: 1000,
        auto_apply: false,
        is_approximate: false,
    }
}

fn credits(balance: i64, refill: Option<Refill>, refilled: i64) -> Credits {
    Credits { balance, last_lease_number: 0, refill, refilled_period: refilled }
}

fn meta(json: &str) -> Meta {
    Meta::from_stored(json.to_owned()).expect("JSON")
}

/// Runs and commits a transaction.
async fn commit_with<T>(store: &Store, run: impl AsyncFnOnce(&mut Tx) -> Result<T>) -> Result<T> {
    let mut tx = store.begin().await?;
    let done = run(&mut tx).await?;
    tx.commit().await?;
    Ok(done)
}

on_both_stores! {
    async fn workspace_is_inserted_once(store) {
        let id = WorkspaceId::from("ws_1");

        let first = commit_with(&store, async |tx| tx.insert_workspace(&id, SPECIAL_TEXT, NOON).await).await;
        let second =
            commit_with(&store, async |tx| tx.insert_workspace(&id, "another", NOON).await).await;
        let other = WorkspaceId::from("WS_1");
        let other = commit_with(&store, async |tx| tx.insert_workspace(&other, "b", NOON).await).await;

        assert_eq!((first.unwrap(), second.unwrap(), other.unwrap()), (true, false, true));
        let sql = "SELECT name FROM workspaces WHERE id = 'ws_1'";
        let name: String = match &store {
            Store::Postgres { pool, .. } => sqlx::query_scalar(sql).fetch_one(&pool.get()).await.unwrap(),
            Store::Sqlite { pool, .. } => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
        };
        assert_eq!(name, SPECIAL_TEXT);
    }

    async fn transaction_has_no_effect_when_dropped(store) {
        let before = key(&store, Some(credits(5, None, 0))).await;
        let (workspace, api) = (&before.workspace_id, &before.api_id);
        let (fresh, permission) = (a_key(workspace, api), a_permission("documents.read"));
        let changed = Key { name: Some("changed".into()), ..before.clone() };

        let mut tx = store.begin().await.unwrap();
        tx.insert_key(&fresh).await.unwrap();
        tx.insert_permissions(workspace, &[permission], NOON).await.unwrap();
        tx.ensure_identity(workspace, "user_1", None, NOON).await.unwrap();
        tx.update_key(&changed).await.unwrap();
        tx.update_balance(&before.id, &credits(4, None, 0)).await.unwrap();
        tx.insert_changes(&["direct".to_owned()]).await.unwrap();
        tx.record_change(CacheTag::Key(fresh.id.clone()));
        drop(tx);

        let mut reader = store.read().await.unwrap();
        assert!(reader.find_key_by_hash(&fresh.hash).await.unwrap().is_none());
        let found = reader.find_key_by_hash(&before.hash).await.unwrap().unwrap().key;
        assert_eq!((found.name, found.credits.unwrap().balance), (None, 5));
        for (table, rows) in [("keys", 1), ("permissions", 0), ("identities", 0), ("changes", 0)] {
            assert_eq!(count(&store, table).await, rows, "{table}");
        }
    }

    async fn transaction_has_no_effect_when_a_statement_failed(store) {
        let key = key(&store, None).await;
        let workspace = &key.workspace_id;
        let taken = Key { id: KeyId::random(), ..key.clone() };

        let failed = commit_with(&store, async |tx| {
            tx.ensure_identity(workspace, "user_1", None, NOON).await?;
            tx.insert_key(&taken).await
        })
        .await;

        assert!(failed.is_err());
        assert_eq!((count(&store, "identities").await, count(&store, "keys").await), (0, 1));
    }

    async fn transaction_is_isolated_until_commit(store) {
        let workspace = workspace(&store).await;
        let fresh = a_key(&workspace, &api(&store, &workspace).await);

        let mut tx = store.begin().await.unwrap();
        tx.insert_key(&fresh).await.unwrap();
        let inside = tx.find_key(&workspace, &fresh.id).await.unwrap();
        let outside = store.read().await.unwrap().find_key(&workspace, &fresh.id).await.unwrap();
        tx.commit().await.unwrap();
        let after = store.read().await.unwrap().find_key(&workspace, &fresh.id).await.unwrap();

        assert!(inside.is_some() && outside.is_none() && after.is_some());
    }

    async fn concurrent_read_write_transactions_all_succeed(store) {
        let workspace = workspace(&store).await;
        let id = api(&store, &workspace).await;
        let make = || {
            commit_with(&store, async |tx| {
                assert!(tx.find_api(&workspace, &id).await?.is_some());
                tx.insert_key(&a_key(&workspace, &id)).await
            })
        };

        for inserted in join_all((0..16).map(|_| make())).await {
            inserted.unwrap();
        }

        assert_eq!(count(&store, "keys").await, 16);
    }

    async fn migrate_does_nothing_when_schema_is_current(store) {
        let key = key(&store, None).await;

        for migrated in join_all((0..4).map(|_| store.migrate())).await {
            migrated.unwrap();
        }

        assert!(store.read().await.unwrap().find_key_by_hash(&key.hash).await.unwrap().is_some());
    }

    async fn store_returns_errors_when_closed(store) {
        store.close().await;

        assert!(store.begin().await.is_err());
        assert!(store.read().await.is_err());
    }
}

#[tokio::test]
async fn migrate_succeeds_when_replicas_start_concurrently() {
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
async fn connect_fails_at_once_when_database_is_missing() {
    let nowhere = Store::connect("postgres://nobody@127.0.0.1:1/nothing", 1).await;

    assert!(nowhere.is_err());
}

#[tokio::test]
async fn committed_data_persists_when_file_is_reopened() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keyward.db");
    let store = Store::open(&path).await.unwrap();
    store.migrate().await.unwrap();
    let key = key(&store, Some(credits(5, None, 0))).await;
    store.close().await;

    let again = Store::open(&path).await.unwrap();

    let found = again.read().await.unwrap().find_key_by_hash(&key.hash).await.unwrap().unwrap();
    assert_eq!(found.key.credits.unwrap().balance, 5);
}

#[tokio::test]
async fn deadlock_is_reported_as_retryable() {
    let database = Database::create().await;
    let store = Store::connect(&database.url, 4).await.unwrap();
    let first = key(&store, None).await;
    let second = key_in(&store, &first).await;
    let both_hold_one = tokio::sync::Barrier::new(2);
    let take = async |one: &Key, other: &Key| {
        commit_with(&store, async |tx| {
            tx.lock_key(&one.workspace_id, &one.id).await?;
            both_hold_one.wait().await;
            tx.lock_key(&other.workspace_id, &other.id).await
        })
        .await
    };

    let (there, back) = tokio::join!(take(&first, &second), take(&second, &first));

    let failed = [there, back].into_iter().filter_map(Result::err).collect::<Vec<_>>();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0].code(), Code::ServiceUnavailable, "{failed:?}");
}
