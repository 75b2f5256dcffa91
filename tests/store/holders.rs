//! Tests reads of the holders of permissions and roles, and of the keys of an identity, among many keys and roles: what is found,
//! and that few rows are read.

use foundation::model::PermissionAssignment;
use store::{PageOrder, PageQuery};

use super::*;
use crate::support::work_meter::WorkMeter;

/// The number of keys and of roles.
const ROWS: usize = 20_000;
/// One of so many keys has the permission, the role and the identity.
const HOLDER_EACH: usize = 1_000;
/// The most rows (Postgres) or hundreds of steps (SQLite): a fraction of the tables.
const WORK_MAX: usize = 500;

/// Stores many keys and roles, some of which hold the permission `perm_few` and the role `role_1000`, or are of `id_few`.
async fn fill(store: &Store, workspace: &WorkspaceId, api: &ApiId) {
    let numbers =
        format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})");
    let holders = format!("FROM n WHERE i % {HOLDER_EACH} = 0");
    for sql in [
        format!(
            "INSERT INTO identities (id, workspace_id, external_id, created_at, search)
            SELECT 'id_few', '{workspace}', 'few', 1, '' FROM n WHERE i = 1"
        ),
        format!(
            "INSERT INTO keys (id, workspace_id, api_id, hash, start, byte_length, enabled, created_at, deleted_at, identity_id)
            SELECT 'key_' || i, '{workspace}', '{api}', 'hash ' || i, '', 16, TRUE, i, CASE WHEN i = 2000 THEN 1 END,
                CASE WHEN i % {HOLDER_EACH} = 0 THEN 'id_few' END
            FROM n"
        ),
        format!(
            "INSERT INTO roles (id, workspace_id, name, created_at, search)
            SELECT 'role_' || i, '{workspace}', 'role ' || i, 1, '' FROM n"
        ),
        format!(
            "INSERT INTO permissions (id, workspace_id, slug, name, created_at, search)
            SELECT 'perm_few', '{workspace}', 'few', 'few', 1, '' FROM n WHERE i = 1"
        ),
        format!("INSERT INTO key_permissions (key_id, permission_id) SELECT 'key_' || i, 'perm_few' {holders}"),
        format!("INSERT INTO role_permissions (role_id, permission_id) SELECT 'role_' || i, 'perm_few' {holders}"),
        format!("INSERT INTO key_roles (key_id, role_id) SELECT 'key_' || i, 'role_1000' {holders}"),
    ] {
        execute_owned(store, format!("{numbers} {sql}")).await;
    }
}

/// Tests reads of holders. Without statistics, so that the plan does not depend on them.
async fn assert_reads_of_holders_read_few_rows(store: Store) {
    let workspace = workspace(&store).await;
    let api = api(&store, &workspace).await;
    fill(&store, &workspace, &api).await;
    let (permission, role) = (PermissionId::from("perm_few"), RoleId::from("role_1000"));
    let listing =
        PageQuery { start: "role_15", order: PageOrder::ById, search: String::new(), rows_max: 3 };
    let meter = WorkMeter::of_store(&store).await;
    let mut reader = store.read().await.unwrap();

    let held = reader.count_permission_holders(&workspace, &permission, 100).await.unwrap();
    let some = reader.count_permission_holders(&workspace, &permission, 7).await.unwrap();
    let keys = reader.count_role_holders(&workspace, &role, 100).await.unwrap();
    let assigned = reader.list_assignments(&workspace, &permission, "key_17", 2).await.unwrap();
    let roles = reader.list_roles_with_permission(&workspace, &permission, &listing).await.unwrap();
    drop(reader);
    let work = meter.measure().await;

    // One key is deleted.
    assert_eq!((held, some, keys), ((20, 19), (7, 7), 19));
    assert_eq!(assigned.len(), 21);
    let keys_of = |of: &PermissionAssignment| of.key_ids.clone();
    let direct = assigned.iter().find(|assignment| assignment.role.is_none()).map(keys_of);
    assert_eq!(direct, Some(vec!["key_17000".into(), "key_18000".into()]));
    let names: Vec<_> = roles.iter().map(|found| found.role.name.as_str()).collect();
    assert_eq!(names, ["role 15000", "role 16000", "role 17000"]);
    assert!(roles.iter().all(|found| found.permission_count == 1), "{roles:?}");
    assert!((1..WORK_MAX).contains(&work), "{work}");
}

/// Tests reads of the keys of an identity.
async fn assert_reads_of_identity_keys_read_few_rows(store: Store) {
    let workspace = workspace(&store).await;
    let api = api(&store, &workspace).await;
    fill(&store, &workspace, &api).await;
    vacuum(&store, "identities, keys, key_permissions, key_roles, role_permissions").await;
    let identity = IdentityId::from("id_few");
    let listing =
        PageQuery { start: "key_19", order: PageOrder::ById, search: String::new(), rows_max: 3 };
    let meter = WorkMeter::of_store(&store).await;
    let mut reader = store.read().await.unwrap();

    let counted = reader.count_identity_keys(&workspace, &identity, 100).await.unwrap();
    let listed = reader.list_identity_keys(&workspace, &identity, &listing).await.unwrap();
    drop(reader);
    let work = meter.measure().await;

    let ids: Vec<_> = listed.iter().map(|key| key.id.as_str()).collect();
    assert_eq!((counted, ids), (19, vec!["key_19000", "key_20000", "key_3000"]));
    assert!((1..WORK_MAX).contains(&work), "{work}");
}

#[tokio::test]
async fn reads_of_holders_read_few_rows_in_postgres() {
    let database = Database::create().await;
    assert_reads_of_holders_read_few_rows(Store::connect(&database.url, 1).await.unwrap()).await;
}

#[tokio::test]
async fn reads_of_holders_read_few_rows_in_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("keyward.db")).await.unwrap();
    store.migrate().await.unwrap();
    assert_reads_of_holders_read_few_rows(store).await;
}

#[tokio::test]
async fn reads_of_identity_keys_read_few_rows_in_postgres() {
    let database = Database::create().await;
    assert_reads_of_identity_keys_read_few_rows(Store::connect(&database.url, 1).await.unwrap())
        .await;
}

#[tokio::test]
async fn reads_of_identity_keys_read_few_rows_in_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("keyward.db")).await.unwrap();
    store.migrate().await.unwrap();
    assert_reads_of_identity_keys_read_few_rows(store).await;
}
