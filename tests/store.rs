//! The database: one suite over both engines.

use std::sync::Arc;

use futures_util::future::join_all;
use keyward::clock::Timestamp;
use keyward::error::Result;
use keyward::id::{
    ApiId, AuditId, IdentityId, KeyId, PermissionId, RatelimitId, RoleId, WorkspaceId,
};
use keyward::model::{
    Api, Credits, Key, Meta, Permission, Ratelimit, Refill, RefillInterval, Role, RootKey,
};
use keyward::secret::KeyHash;
use keyward::store::freshness::Subject;
use keyward::store::{AuditRow, Owner, Store, Tx};
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

/// An audit entry as it stands in the table, without its id.
type Entry = (String, i64, String, String, String, Option<String>, Option<String>, String);

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

    async fn a_key_is_kept_field_by_field(store) {
        let workspace = workspace(&store).await;
        let api = api(&store, &workspace).await;
        let json = r#"{"z":1.0,"n":12345678901234567890,"ü":"🦀\n\"\\","":[null,{}]}"#;
        let refill = Refill { interval: RefillInterval::Monthly { day: 31 }, amount: i64::MAX };
        let identity =
            commit(&store, async |tx| tx.ensure_identity(&workspace, "user_1", NOON).await);
        let key = Key {
            start: "prod_3kQz".into(),
            prefix: Some("prod".into()),
            byte_length: 255,
            name: Some(ODD.into()),
            meta: Some(meta(json)),
            identity_id: Some(identity.await.unwrap()),
            enabled: false,
            expires_at: Some(Timestamp(i64::MAX)),
            credits: Some(credits(i64::MAX, Some(refill), i64::MAX)),
            created_at: Timestamp(0),
            ..a_key(&workspace, &api)
        };

        commit(&store, async |tx| tx.insert_key(&key).await).await.unwrap();

        let stored = store.read().await.unwrap().key(&workspace, &key.id).await.unwrap().unwrap();
        let found = stored.key;
        assert_eq!((&found.id, &found.workspace_id), (&key.id, &workspace));
        assert_eq!((&found.api_id, &found.identity_id), (&api, &key.identity_id));
        assert_eq!(
            (&found.hash, &found.start, &found.prefix),
            (&key.hash, &key.start, &key.prefix)
        );
        assert_eq!((found.byte_length, found.enabled), (255, false));
        assert_eq!(found.name, key.name);
        assert_eq!(found.meta.unwrap().as_str(), json);
        assert_eq!((found.expires_at, found.updated_at), (key.expires_at, None));
        assert_eq!(found.created_at, Timestamp(0));
        let found = found.credits.unwrap();
        assert_eq!(
            (found.balance, found.refill, found.refilled),
            (i64::MAX, Some(refill), i64::MAX)
        );
        assert!(stored.ratelimits.is_empty() && stored.permissions.is_empty());
        assert!(stored.role_ids.is_empty());
    }

    async fn what_a_key_does_not_have_is_absent(store) {
        let key = key(&store, None).await;

        let found = store.read().await.unwrap().key_by_hash(&key.hash).await.unwrap().unwrap().key;

        assert!(found.prefix.is_none() && found.name.is_none() && found.meta.is_none());
        assert!(found.identity_id.is_none() && found.expires_at.is_none());
        assert!(found.credits.is_none() && found.updated_at.is_none());
    }

    async fn a_key_is_found_by_id_in_its_workspace_and_by_hash_in_any(store) {
        let (key, other) = (key(&store, None).await, workspace(&store).await);
        let shouted = KeyId::from(key.id.as_str().to_uppercase());

        let mut reader = store.read().await.unwrap();
        let by_hash = reader.key_by_hash(&key.hash).await.unwrap().expect("the key");

        assert_eq!(by_hash.key.id, key.id);
        assert!(reader.key(&key.workspace_id, &key.id).await.unwrap().is_some());
        assert!(reader.key(&other, &key.id).await.unwrap().is_none());
        assert!(reader.key(&key.workspace_id, &shouted).await.unwrap().is_none());
        assert!(reader.key_by_hash(&key.hash.to_lowercase()).await.unwrap().is_none());
    }

    async fn keys_of_a_deleted_api_are_not_found(store) {
        let key = key(&store, None).await;
        let (workspace, api) = (&key.workspace_id, &key.api_id);

        commit(&store, async |tx| tx.delete_api(workspace, api, NOON).await).await.unwrap();

        let mut reader = store.read().await.unwrap();
        assert!(reader.key(workspace, &key.id).await.unwrap().is_none());
        assert!(reader.key_by_hash(&key.hash).await.unwrap().is_none());
    }

    async fn a_key_is_changed_but_for_what_never_changes_and_its_credits(store) {
        let before = key(&store, Some(credits(5, None, 0))).await;
        let workspace = &before.workspace_id;
        let identity =
            commit(&store, async |tx| tx.ensure_identity(workspace, "user_1", NOON).await);
        let after = Key {
            name: Some(ODD.into()),
            meta: Some(meta("{\"a\":1}")),
            identity_id: Some(identity.await.unwrap()),
            enabled: false,
            expires_at: Some(Timestamp(7)),
            updated_at: Some(Timestamp(8)),
            credits: None,
            hash: "another".into(),
            start: "another".into(),
            ..before.clone()
        };

        commit(&store, async |tx| tx.update_key(&after).await).await.unwrap();

        let found =
            store.read().await.unwrap().key(workspace, &before.id).await.unwrap().unwrap().key;
        assert_eq!((&found.name, &found.identity_id), (&after.name, &after.identity_id));
        assert_eq!(found.meta.unwrap().as_str(), "{\"a\":1}");
        assert_eq!((found.enabled, found.expires_at), (false, Some(Timestamp(7))));
        assert_eq!(found.updated_at, Some(Timestamp(8)));
        assert_eq!((found.hash, found.start), (before.hash, before.start));
        assert_eq!(found.credits.unwrap().balance, 5);
    }

    async fn a_change_of_one_key_leaves_others_alone(store) {
        let (key, other) = (key(&store, None).await, key(&store, Some(credits(5, None, 0))).await);
        let changed = Key { name: Some("changed".into()), enabled: false, ..key.clone() };

        commit(&store, async |tx| {
            tx.update_key(&changed).await?;
            tx.set_credits(&key.id, Some(&credits(9, None, 0))).await?;
            tx.delete_key(&key.id, NOON).await
        })
        .await
        .unwrap();

        let found =
            store.read().await.unwrap().key_by_hash(&other.hash).await.unwrap().unwrap().key;
        assert_eq!((found.name, found.enabled), (None, true));
        assert_eq!(found.credits.unwrap().balance, 5);
    }

    async fn a_field_of_a_key_is_cleared(store) {
        let workspace = workspace(&store).await;
        let api = api(&store, &workspace).await;
        let identity =
            commit(&store, async |tx| tx.ensure_identity(&workspace, "user_1", NOON).await);
        let full = Key {
            name: Some("n".into()),
            meta: Some(meta("{}")),
            identity_id: Some(identity.await.unwrap()),
            expires_at: Some(NOON),
            ..a_key(&workspace, &api)
        };
        commit(&store, async |tx| tx.insert_key(&full).await).await.unwrap();
        let bare =
            Key { name: None, meta: None, identity_id: None, expires_at: None, ..full.clone() };

        commit(&store, async |tx| tx.update_key(&bare).await).await.unwrap();

        let found =
            store.read().await.unwrap().key(&workspace, &full.id).await.unwrap().unwrap().key;
        assert!(found.name.is_none() && found.meta.is_none());
        assert!(found.identity_id.is_none() && found.expires_at.is_none());
        assert_eq!(count(&store, "identities").await, 1);
    }

    async fn a_deleted_key_is_not_found_and_its_hash_stays_taken(store) {
        let key = key(&store, None).await;

        commit(&store, async |tx| tx.delete_key(&key.id, NOON).await).await.unwrap();

        let mut reader = store.read().await.unwrap();
        assert!(reader.key(&key.workspace_id, &key.id).await.unwrap().is_none());
        assert!(reader.key_by_hash(&key.hash).await.unwrap().is_none());
        let same = Key { id: KeyId::random(), ..key.clone() };
        let again = commit(&store, async |tx| tx.insert_key(&same).await).await;
        assert!(again.unwrap_err().violates("keys_hash_unique"));
    }

    async fn a_purged_key_is_gone_with_all_that_hangs_on_it(store) {
        let key = key(&store, None).await;
        let (permission, role) = (a_permission("documents.read"), a_role("editor", &[]));
        let workspace = &key.workspace_id;
        commit(&store, async |tx| {
            tx.insert_permissions(workspace, std::slice::from_ref(&permission), NOON).await?;
            tx.insert_role(workspace, &role, NOON).await?;
            tx.set_key_permissions(&key.id, std::slice::from_ref(&permission.id)).await?;
            tx.set_key_roles(&key.id, std::slice::from_ref(&role.id)).await?;
            tx.set_ratelimits(workspace, Owner::Key(&key.id), &[a_limit("requests", 1)]).await
        })
        .await
        .unwrap();

        commit(&store, async |tx| tx.purge_key(&key.id).await).await.unwrap();

        for table in ["keys", "key_permissions", "key_roles", "ratelimits"] {
            assert_eq!(count(&store, table).await, 0, "{table}");
        }
        assert_eq!((count(&store, "permissions").await, count(&store, "roles").await), (1, 1));
        commit(&store, async |tx| tx.insert_key(&key).await).await.unwrap();
    }

    async fn an_identity_is_made_once_for_an_external_id(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let ensure = async |workspace: &WorkspaceId, external_id: &str| {
            let act = async |tx: &mut Tx| tx.ensure_identity(workspace, external_id, NOON).await;
            commit(&store, act).await.unwrap()
        };

        let first = ensure(&workspace, "user_1").await;
        let second = ensure(&workspace, "user_1").await;
        let shouted = ensure(&workspace, "USER_1").await;
        let foreign = ensure(&other, "user_1").await;

        assert_eq!(first, second);
        assert!(first != shouted && first != foreign);
        assert_eq!(count(&store, "identities").await, 3);
    }

    async fn an_identity_that_many_make_at_once_is_one(store) {
        let workspace = workspace(&store).await;
        let ensure =
            || commit(&store, async |tx| tx.ensure_identity(&workspace, "user_1", NOON).await);

        let mut ids: Vec<_> =
            join_all((0..16).map(|_| ensure())).await.into_iter().map(Result::unwrap).collect();

        ids.dedup();
        assert_eq!(ids.len(), 1);
        assert_eq!(count(&store, "identities").await, 1);
    }

    async fn an_identity_is_found_in_its_workspace_with_its_limits(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let limits = [a_limit("b", 1), a_limit("B", i64::MAX), a_limit("a", 3)];
        let id = commit(&store, async |tx| {
            let id = tx.ensure_identity(&workspace, "user.1-x", NOON).await?;
            tx.set_ratelimits(&workspace, Owner::Identity(&id), &limits).await?;
            Ok(id)
        })
        .await
        .unwrap();

        let mut reader = store.read().await.unwrap();
        let found = reader.identity(&workspace, &id).await.unwrap().expect("the identity");

        assert_eq!((&found.id, found.external_id.as_str()), (&id, "user.1-x"));
        assert!(found.meta.is_none());
        assert_eq!(found.ratelimits, [limits[1].clone(), limits[2].clone(), limits[0].clone()]);
        assert!(reader.identity(&other, &id).await.unwrap().is_none());
        let shouted = IdentityId::from(id.as_str().to_uppercase());
        assert!(reader.identity(&workspace, &shouted).await.unwrap().is_none());
    }

    async fn limits_are_kept_field_by_field(store) {
        let key = key(&store, None).await;
        let limits = [
            Ratelimit {
                limit: i64::MAX,
                duration_ms: i64::MAX,
                auto_apply: true,
                ..a_limit(ODD, 1)
            },
            Ratelimit { auto_apply: false, ..a_limit("requests", 1) },
        ];

        commit(&store, async |tx| {
            tx.set_ratelimits(&key.workspace_id, Owner::Key(&key.id), &limits).await
        })
        .await
        .unwrap();

        let found = store.read().await.unwrap().key_by_hash(&key.hash).await.unwrap().unwrap();
        assert_eq!(found.ratelimits, limits);
    }

    async fn limits_are_replaced_by_name_and_keep_their_id(store) {
        let key = key(&store, None).await;
        let set = async |limits: &[Ratelimit]| {
            let owner = Owner::Key(&key.id);
            let act = async |tx: &mut Tx| tx.set_ratelimits(&key.workspace_id, owner, limits).await;
            commit(&store, act).await.unwrap();
            store.read().await.unwrap().key_by_hash(&key.hash).await.unwrap().unwrap().ratelimits
        };
        let (kept, gone) = (a_limit("kept", 1), a_limit("gone", 1));

        set(&[kept.clone(), gone]).await;
        let change = Ratelimit { limit: 2, duration_ms: 3, auto_apply: true, ..a_limit("kept", 0) };
        let (added, shouted) = (a_limit("added", 1), a_limit("KEPT", 9));
        let replaced = set(&[change.clone(), added.clone(), shouted.clone()]).await;
        let none = set(&[]).await;

        assert_eq!(replaced, [shouted, added, Ratelimit { id: kept.id, ..change }]);
        assert!(none.is_empty());
        assert_eq!(count(&store, "ratelimits").await, 0);
    }

    async fn limits_of_one_owner_are_no_matter_to_another(store) {
        let (key, other) = (key(&store, None).await, key(&store, None).await);
        let workspace = &key.workspace_id;
        let (own, theirs, shared) =
            (a_limit("requests", 1), a_limit("requests", 2), a_limit("requests", 3));
        let id = commit(&store, async |tx| {
            let id = tx.ensure_identity(workspace, "user_1", NOON).await?;
            tx.set_ratelimits(workspace, Owner::Identity(&id), std::slice::from_ref(&shared))
                .await?;
            let owner = Owner::Key(&other.id);
            tx.set_ratelimits(&other.workspace_id, owner, std::slice::from_ref(&theirs)).await?;
            Ok(id)
        })
        .await
        .unwrap();

        commit(&store, async |tx| {
            tx.set_ratelimits(workspace, Owner::Key(&key.id), &[]).await?;
            tx.set_ratelimits(workspace, Owner::Key(&key.id), std::slice::from_ref(&own)).await
        })
        .await
        .unwrap();

        let mut reader = store.read().await.unwrap();
        let limits = reader.key_by_hash(&key.hash).await.unwrap().unwrap().ratelimits;
        assert_eq!(limits, [own]);
        let limits = reader.key_by_hash(&other.hash).await.unwrap().unwrap().ratelimits;
        assert_eq!(limits, [theirs]);
        assert_eq!(reader.identity(workspace, &id).await.unwrap().unwrap().ratelimits, [shared]);
    }

    async fn permissions_are_found_by_slug_in_order(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let odd =
            Permission { name: ODD.into(), description: Some(ODD.into()), ..a_permission("b") };
        let all = [a_permission("c"), odd.clone(), a_permission("B"), a_permission("a.*")];
        commit(&store, async |tx| {
            tx.insert_permissions(&workspace, &all, NOON).await?;
            tx.insert_permissions(&other, &[a_permission("d"), a_permission("b")], NOON).await
        })
        .await
        .unwrap();

        let wanted = ["d", "b", "B", "c", "A.*", "a", "b"].map(str::to_owned);
        let mut reader = store.read().await.unwrap();
        let found = reader.permissions_with(&workspace, &wanted).await.unwrap();
        let none = reader.permissions_with(&workspace, &[]).await.unwrap();

        assert_eq!(found, [all[2].clone(), odd, all[0].clone()]);
        assert!(none.is_empty());
    }

    async fn of_several_permissions_those_are_added_whose_slug_is_free(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let insert = async |workspace: &WorkspaceId, slugs: &[&str]| {
            let permissions: Vec<_> = slugs.iter().map(|slug| a_permission(slug)).collect();
            let act =
                async |tx: &mut Tx| tx.insert_permissions(workspace, &permissions, NOON).await;
            let mut added = commit(&store, act).await.unwrap();
            added.sort();
            added
        };

        let first = insert(&workspace, &["b", "a"]).await;
        let second = insert(&workspace, &["c", "b", "B"]).await;
        let none = insert(&workspace, &["a", "b"]).await;
        let foreign = insert(&other, &["a"]).await;

        assert_eq!(
            (first, second),
            (vec!["a".into(), "b".into()], vec!["B".into(), "c".to_owned()])
        );
        assert_eq!((none, foreign), (Vec::new(), vec!["a".to_owned()]));
        assert_eq!(count(&store, "permissions").await, 5);
    }

    async fn a_permission_that_is_there_stays_as_it_was(store) {
        let workspace = workspace(&store).await;
        let (first, second) =
            (a_permission("a"), Permission { name: "n".into(), ..a_permission("a") });
        for permission in [&first, &second] {
            let list = std::slice::from_ref(permission);
            commit(&store, async |tx| tx.insert_permissions(&workspace, list, NOON).await)
                .await
                .unwrap();
        }

        let found = store.read().await.unwrap().permissions_with(&workspace, &["a".into()]).await;

        assert_eq!(found.unwrap(), [first]);
    }

    async fn a_permission_that_many_make_at_once_is_one(store) {
        let workspace = workspace(&store).await;
        let make = async |permission: Permission| {
            let list = [permission, a_permission("shared")];
            commit(&store, async |tx| tx.insert_permissions(&workspace, &list, NOON).await).await
        };

        let added = join_all((0..8).map(|n| make(a_permission(&format!("own.{n}"))))).await;

        let added: Vec<_> = added.into_iter().flat_map(Result::unwrap).collect();
        assert_eq!(added.iter().filter(|slug| *slug == "shared").count(), 1);
        assert_eq!(count(&store, "permissions").await, 9);
    }

    async fn roles_are_found_by_id_and_by_name_with_their_permissions(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let permissions = ["c", "B", "b", "unused"].map(a_permission);
        let [c, b, small_b, _] = permissions.clone();
        let editor = Role {
            description: Some(ODD.into()),
            ..a_role(ODD, &[c.clone(), b.clone(), small_b.clone()])
        };
        let (reader, shouted) = (a_role("reader", std::slice::from_ref(&c)), a_role("Reader", &[]));
        let foreign = a_role("reader", &[]);
        commit(&store, async |tx| {
            tx.insert_permissions(&workspace, &permissions, NOON).await?;
            for role in [&editor, &reader, &shouted] {
                tx.insert_role(&workspace, role, NOON).await?;
            }
            tx.insert_role(&other, &foreign, NOON).await
        })
        .await
        .unwrap();

        let mut connection = store.read().await.unwrap();
        let ids = [&reader, &editor, &foreign, &shouted].map(|role| role.id.clone());
        let by_id = connection.roles(&workspace, &ids).await.unwrap();
        let names = ["reader", "READER", "nobody", ODD].map(str::to_owned);
        let by_name = connection.roles_named(&workspace, &names).await.unwrap();

        let editor = Role { permissions: vec![b, small_b, c], ..editor };
        assert_eq!(by_id, [editor.clone(), shouted, reader.clone()]);
        assert_eq!(by_name, [editor, reader]);
        assert!(connection.roles(&workspace, &[]).await.unwrap().is_empty());
        assert!(connection.roles_named(&workspace, &[]).await.unwrap().is_empty());
    }

    async fn a_name_of_a_role_is_taken_once_in_a_workspace(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let insert = async |workspace: &WorkspaceId, name: &str| {
            let role = a_role(name, &[]);
            commit(&store, async |tx| tx.insert_role(workspace, &role, NOON).await).await
        };
        insert(&workspace, "editor").await.unwrap();

        let taken = insert(&workspace, "editor").await.unwrap_err();

        assert!(taken.violates("roles_name_unique"), "{taken}");
        assert!(!taken.violates("permissions_slug_unique"), "{taken}");
        insert(&workspace, "Editor").await.unwrap();
        insert(&other, "editor").await.unwrap();
    }

    async fn a_hash_is_taken_once_whoever_has_it(store) {
        let (first, second) = (key(&store, None).await, workspace(&store).await);
        let same = Key { hash: first.hash.clone(), ..a_key(&second, &api(&store, &second).await) };
        let (root, twin) = (a_root_key(&second), a_root_key(&first.workspace_id));
        commit(&store, async |tx| tx.insert_root_key(&root, "hash").await).await.unwrap();

        let key = commit(&store, async |tx| tx.insert_key(&same).await).await.unwrap_err();
        let root = commit(&store, async |tx| tx.insert_root_key(&twin, "hash").await).await;
        let root = root.unwrap_err();

        assert!(key.violates("keys_hash_unique"), "{key}");
        assert!(!key.violates("root_keys_hash_unique"), "{key}");
        assert!(root.violates("root_keys_hash_unique"), "{root}");
        assert!(!root.violates("keys_hash_unique"), "{root}");
    }

    async fn an_id_that_is_taken_is_not_mistaken_for_a_name_that_is(store) {
        let key = key(&store, None).await;
        let workspace = &key.workspace_id;
        let (role, permission) = (a_role("editor", &[]), a_permission("documents.read"));
        commit(&store, async |tx| {
            tx.insert_role(workspace, &role, NOON).await?;
            tx.insert_permissions(workspace, std::slice::from_ref(&permission), NOON).await
        })
        .await
        .unwrap();

        let same = Key { hash: "another".into(), ..key.clone() };
        let same = commit(&store, async |tx| tx.insert_key(&same).await).await.unwrap_err();
        let role = Role { name: "another".into(), ..role };
        let role = commit(&store, async |tx| tx.insert_role(workspace, &role, NOON).await).await;
        let permission = [Permission { slug: "another".into(), ..permission }];
        let insert = async |tx: &mut Tx| tx.insert_permissions(workspace, &permission, NOON).await;
        let permission = commit(&store, insert).await;

        assert!(!same.violates("keys_hash_unique"), "{same}");
        assert!(!role.unwrap_err().violates("roles_name_unique"));
        assert!(!permission.unwrap_err().violates("permissions_slug_unique"));
    }

    async fn what_points_nowhere_is_no_unique_violation(store) {
        let workspace = workspace(&store).await;
        let lost = a_key(&workspace, &ApiId::from("api_nowhere"));

        let refused = commit(&store, async |tx| tx.insert_key(&lost).await).await.unwrap_err();

        assert!(!refused.violates("keys_hash_unique"), "{refused}");
        assert_eq!(count(&store, "keys").await, 0);
    }

    async fn a_key_is_locked_in_its_workspace_when_it_is_there(store) {
        let (key, other) = (key(&store, Some(credits(5, None, 0))).await, workspace(&store).await);
        let deleted = key_in(&store, &key).await;
        commit(&store, async |tx| tx.delete_key(&deleted.id, NOON).await).await.unwrap();

        let mut tx = store.begin().await.unwrap();
        let locked = tx.lock_key(&key.workspace_id, &key.id).await.unwrap().expect("the key");

        assert_eq!((locked.key.id, locked.key.hash), (key.id.clone(), key.hash));
        assert_eq!(locked.key.credits.unwrap().balance, 5);
        assert!(tx.lock_key(&other, &key.id).await.unwrap().is_none());
        assert!(tx.lock_key(&key.workspace_id, &deleted.id).await.unwrap().is_none());
        assert!(
            tx.lock_key(&key.workspace_id, &KeyId::from("key_nowhere")).await.unwrap().is_none()
        );
    }

    async fn changes_of_a_locked_key_at_once_lose_nothing(store) {
        let key = key(&store, None).await;
        let append = async |n: u8| {
            commit(&store, async |tx| {
                let stored = tx.lock_key(&key.workspace_id, &key.id).await?.expect("the key");
                tokio::task::yield_now().await;
                let name = stored.key.name.unwrap_or_default() + &char::from(b'a' + n).to_string();
                tx.update_key(&Key { name: Some(name), ..stored.key }).await
            })
            .await
        };

        for changed in join_all((0..16).map(append)).await {
            changed.unwrap();
        }

        let stored = store.read().await.unwrap().key_by_hash(&key.hash).await.unwrap().unwrap();
        let mut letters: Vec<_> = stored.key.name.unwrap().into_bytes();
        letters.sort_unstable();
        assert_eq!(letters, b"abcdefghijklmnop");
    }

    async fn permissions_of_a_key_are_replaced(store) {
        let key = key(&store, None).await;
        let all = ["c", "B", "b"].map(a_permission);
        let [c, b, small_b] = all.clone();
        let set = async |permissions: &[&Permission]| {
            let ids: Vec<_> = permissions.iter().map(|p| p.id.clone()).collect();
            let act = async |tx: &mut Tx| tx.set_key_permissions(&key.id, &ids).await;
            commit(&store, act).await.unwrap();
            store.read().await.unwrap().key_by_hash(&key.hash).await.unwrap().unwrap().permissions
        };
        commit(&store, async |tx| tx.insert_permissions(&key.workspace_id, &all, NOON).await)
            .await
            .unwrap();

        assert_eq!(set(&[&c, &small_b, &b]).await, [b.clone(), small_b, c.clone()]);
        assert_eq!(set(&[&c]).await, [c]);
        assert!(set(&[]).await.is_empty());
    }

    async fn roles_of_a_key_are_replaced(store) {
        let key = key(&store, None).await;
        let roles = ["editor", "reader"].map(|name| a_role(name, &[]));
        let set = async |ids: &[RoleId]| {
            commit(&store, async |tx| tx.set_key_roles(&key.id, ids).await).await.unwrap();
            let stored = store.read().await.unwrap().key_by_hash(&key.hash).await.unwrap();
            let mut ids = stored.unwrap().role_ids;
            ids.sort();
            ids
        };
        commit(&store, async |tx| {
            for role in &roles {
                tx.insert_role(&key.workspace_id, role, NOON).await?;
            }
            Ok(())
        })
        .await
        .unwrap();
        let mut both = roles.clone().map(|role| role.id);
        both.sort();

        assert_eq!(set(&both).await, both);
        assert_eq!(set(&both[..1]).await, both[..1]);
        assert!(set(&[]).await.is_empty());
    }

    async fn an_account_is_there_for_a_metered_key_only(store) {
        let (metered, unlimited) =
            (key(&store, Some(credits(0, None, 0))).await, key(&store, None).await);
        let deleted = key(&store, Some(credits(5, None, 0))).await;
        commit(&store, async |tx| tx.delete_key(&deleted.id, NOON).await).await.unwrap();

        let mut tx = store.begin().await.unwrap();

        assert_eq!(tx.lock_credits(&metered.id).await.unwrap().unwrap().balance, 0);
        assert!(tx.lock_credits(&unlimited.id).await.unwrap().is_none());
        assert!(tx.lock_credits(&deleted.id).await.unwrap().is_none());
        assert!(tx.lock_credits(&KeyId::from("key_nowhere")).await.unwrap().is_none());
    }

    async fn a_balance_that_is_set_has_a_new_version(store) {
        let key = key(&store, None).await;
        let monthly = Refill { interval: RefillInterval::Monthly { day: 1 }, amount: i64::MAX };
        let daily = Refill { interval: RefillInterval::Daily, amount: 1 };
        let set = async |credits: Option<Credits>| {
            commit(&store, async |tx| {
                tx.set_credits(&key.id, credits.as_ref()).await?;
                tx.lock_credits(&key.id).await
            })
            .await
            .unwrap()
        };

        let first = set(Some(credits(i64::MAX, Some(monthly), i64::MAX))).await.unwrap();
        let second = set(Some(credits(0, Some(daily), -1))).await.unwrap();
        let none = set(None).await;
        let last = set(Some(credits(7, None, 0))).await.unwrap();

        assert_eq!(
            (first.balance, first.refill, first.refilled),
            (i64::MAX, Some(monthly), i64::MAX)
        );
        assert_eq!((second.balance, second.refill, second.refilled), (0, Some(daily), -1));
        assert_eq!(none, None);
        assert_eq!((last.balance, last.refill), (7, None));
        assert!(first.version < second.version && second.version < last.version);
        let stored = store.read().await.unwrap().key_by_hash(&key.hash).await.unwrap().unwrap();
        assert_eq!(stored.key.credits, Some(last));
    }

    async fn a_balance_that_moves_keeps_its_version_and_refill(store) {
        let refill = Refill { interval: RefillInterval::Monthly { day: 31 }, amount: 9 };
        let key = key(&store, Some(credits(5, Some(refill), 3))).await;

        let (before, after) = commit(&store, async |tx| {
            let before = tx.lock_credits(&key.id).await?;
            tx.move_credits(&key.id, i64::MAX, 4).await?;
            Ok((before.unwrap(), tx.lock_credits(&key.id).await?.unwrap()))
        })
        .await
        .unwrap();

        assert_eq!(after, Credits { balance: i64::MAX, refilled: 4, ..before });
    }

    async fn a_balance_never_falls_below_0(store) {
        let key = key(&store, Some(credits(5, None, 0))).await;

        let moved = commit(&store, async |tx| tx.move_credits(&key.id, -1, 0).await).await;
        let set =
            commit(&store, async |tx| tx.set_credits(&key.id, Some(&credits(-1, None, 0))).await)
                .await;

        assert!(moved.is_err() && set.is_err());
        let stored = store.read().await.unwrap().key_by_hash(&key.hash).await.unwrap().unwrap();
        assert_eq!(stored.key.credits.unwrap().balance, 5);
    }

    async fn withdrawals_at_once_lose_nothing(store) {
        let store = Arc::new(store);
        let key = key(&store, Some(credits(1_000, None, 0))).await;
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..16 {
            let (store, id) = (store.clone(), key.id.clone());
            tasks.spawn(async move {
                for _ in 0..4 {
                    let mut tx = store.begin().await.unwrap();
                    let credits = tx.lock_credits(&id).await.unwrap().unwrap();
                    tokio::task::yield_now().await;
                    tx.move_credits(&id, credits.balance - n, credits.refilled + 1).await.unwrap();
                    tx.commit().await.unwrap();
                }
            });
        }
        tasks.join_all().await;

        let stored = store.read().await.unwrap().key_by_hash(&key.hash).await.unwrap().unwrap();
        let left = stored.key.credits.unwrap();
        assert_eq!((left.balance, left.refilled), (1_000 - 4 * (0..16).sum::<i64>(), 64));
    }

    async fn an_audit_entry_is_kept_field_by_field(store) {
        let workspace = workspace(&store).await;
        let id = AuditId::random();
        let row = AuditRow {
            id: id.as_str(),
            workspace_id: &workspace,
            at: Timestamp(i64::MAX),
            event: "key.create",
            actor_type: "rootkey",
            actor_id: "key_1",
            remote_address: Some("2001:db8::1"),
            user_agent: Some(ODD),
            targets: "[{\"type\":\"key\"}]",
        };
        let bare = AuditRow { id: "log_2", remote_address: None, user_agent: None, ..row };

        commit(&store, async |tx| {
            tx.insert_audit(&row).await?;
            tx.insert_audit(&bare).await
        })
        .await
        .unwrap();

        let sql = "
            SELECT workspace_id, at, event, actor_type, actor_id, remote_address, user_agent,
                targets
            FROM audit
            ORDER BY id = 'log_2'";
        let rows: Vec<Entry> = match &store {
            Store::Postgres(pool) => sqlx::query_as(sql).fetch_all(pool).await.unwrap(),
            Store::Sqlite(pool) => sqlx::query_as(sql).fetch_all(pool).await.unwrap(),
        };
        let stored = |address: Option<&str>, agent: Option<&str>| {
            (
                workspace.to_string(),
                i64::MAX,
                "key.create".into(),
                "rootkey".into(),
                "key_1".into(),
                address.map(str::to_owned),
                agent.map(str::to_owned),
                "[{\"type\":\"key\"}]".into(),
            )
        };
        assert_eq!(rows, [stored(Some("2001:db8::1"), Some(ODD)), stored(None, None)]);
    }

    async fn changes_are_logged_in_order_when_the_transaction_commits(store) {
        let subjects = [
            Subject::Key(KeyId::from("key_b")),
            Subject::Api(ApiId::from("api_a")),
            Subject::NewKey(0xab),
            Subject::Key(KeyId::from("key_b")),
        ];
        let mut tx = store.begin().await.unwrap();
        for subject in &subjects {
            tx.changed(subject.clone());
        }

        let told = tx.commit().await.unwrap();

        let rows = store.read().await.unwrap().changes_after(0).await.unwrap();
        let texts: Vec<_> = rows.iter().map(|row| row.subject.as_str()).collect();
        assert_eq!(told, subjects);
        assert_eq!(texts, ["key:key_b", "api:api_a", "new:00000000000000ab", "key:key_b"]);
        assert!(rows.is_sorted_by(|a, b| a.seq < b.seq));
        assert!(rows.iter().all(|row| row.at > NOON.0), "{rows:?}");
    }

    async fn a_transaction_that_changes_nothing_logs_nothing(store) {
        let told = store.begin().await.unwrap().commit().await.unwrap();

        assert!(told.is_empty());
        assert_eq!(count(&store, "changes").await, 0);
    }

    async fn the_change_log_is_read_from_a_row_on(store) {
        let log = async |subjects: &[&str]| {
            let subjects: Vec<_> = subjects.iter().map(|text| (*text).to_owned()).collect();
            commit(&store, async |tx| tx.insert_changes(&subjects).await).await.unwrap();
        };
        let empty = store.read().await.unwrap().changes_range().await.unwrap();
        log(&["a", ODD]).await;
        log(&["c"]).await;

        let mut reader = store.read().await.unwrap();
        let all = reader.changes_after(0).await.unwrap();
        let rest = reader.changes_after(all[0].seq).await.unwrap();
        let none = reader.changes_after(all[2].seq).await.unwrap();

        assert_eq!(empty, (0, 0));
        assert_eq!(rest.iter().map(|row| row.subject.as_str()).collect::<Vec<_>>(), [ODD, "c"]);
        assert!(none.is_empty());
        assert_eq!(reader.changes_range().await.unwrap(), (all[0].seq, all[2].seq));
    }

    async fn a_long_change_log_is_read_page_by_page(store) {
        let subjects: Vec<_> = (0..10_001).map(|n| format!("key:key_{n:05}")).collect();
        commit(&store, async |tx| tx.insert_changes(&subjects).await).await.unwrap();

        let mut reader = store.read().await.unwrap();
        let first = reader.changes_after(0).await.unwrap();
        let rest = reader.changes_after(first.last().unwrap().seq).await.unwrap();

        let read: Vec<_> = first.iter().chain(&rest).map(|row| row.subject.clone()).collect();
        assert_eq!((first.len(), rest.len()), (10_000, 1));
        assert_eq!(read, subjects);
    }

    async fn changes_of_more_than_a_day_ago_are_forgotten(store) {
        commit(&store, async |tx| tx.insert_changes(&["young".to_owned()]).await).await.unwrap();
        execute(
            &store,
            "
            INSERT INTO changes (at, subject)
            SELECT at - 86400000, 'old' FROM changes UNION ALL
            SELECT at - 86400000 + 3600000, 'not so old' FROM changes",
        )
        .await;

        commit(&store, async |tx| tx.prune_changes().await).await.unwrap();

        let rows = store.read().await.unwrap().changes_after(0).await.unwrap();
        let mut left: Vec<_> = rows.iter().map(|row| row.subject.as_str()).collect();
        left.sort_unstable();
        assert_eq!(left, ["not so old", "young"]);
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
        tx.move_credits(&before.id, 4, 0).await.unwrap();
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
