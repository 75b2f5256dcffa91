//! Tests searches among many rows: what is found, and that an index finds it.

use foundation::model::Identity;
use store::{IdentitySelection, IndexedSearch, KeyListFilter, PageOrder, PageQuery};

use super::*;
use crate::support::work_meter::WorkMeter;

/// The number of rows among which is searched.
pub const ROWS: usize = 20_000;
/// The most rows (Postgres) or hundreds of steps (SQLite) of a search that an index answers: a fraction of the table.
const WORK_MAX: usize = 1_000;

/// Stores many keys and identities of a workspace.
pub async fn fill(store: &Store, workspace: &WorkspaceId, api: &ApiId) {
    let numbers =
        format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})");
    let keys = format!(
        "{numbers} INSERT INTO keys (id, workspace_id, api_id, hash, start, byte_length, name, owner_id, enabled,
            expires_at, created_at, search)
        SELECT 'key_' || i, '{workspace}', '{api}', 'hash ' || i, 'live_' || i, 16, 'Job ' || i, 'USER_' || i,
            i % 10000 <> 0, CASE WHEN i % 10000 = 1 THEN 5 END, i, 'job ' || i || '\n' || 'user_' || i FROM n"
    );
    let identities = format!(
        "{numbers} INSERT INTO identities (id, workspace_id, external_id, created_at, search)
        SELECT 'id_' || i, '{workspace}', 'USER_' || i, 1, 'id_' || i || '\n' || 'user_' || i FROM n"
    );
    for sql in [keys, identities] {
        execute_owned(store, sql).await;
    }
    vacuum(store, "keys, identities").await;
}

async fn find(store: &Store, workspace: &WorkspaceId, text: &str, max: i64) -> Option<Vec<KeyId>> {
    let mut reader = store.read().await.unwrap();
    let search = IndexedSearch::Text(text);
    let found = reader.find_searched_keys(workspace, search, max).await.unwrap()?;
    let filter =
        KeyListFilter { search: text.to_owned(), rows_max: 100, ..KeyListFilter::default() };
    let cursors = reader.list_key_cursors(workspace, &filter, &found).await.unwrap();
    Some(cursors.into_iter().map(|(_, id)| id).collect())
}

fn ids(ids: &[&str]) -> Vec<KeyId> {
    ids.iter().map(|id| KeyId::from(*id)).collect()
}

/// Tests searches among many rows. Postgres counts rows per connection, so there is one.
async fn assert_searches_read_few_rows(store: Store) {
    let workspace = workspace(&store).await;
    let api = api(&store, &workspace).await;
    fill(&store, &workspace, &api).await;
    let filter = KeyListFilter { rows_max: 26, now: Timestamp(1_000), ..KeyListFilter::default() };
    let meter = WorkMeter::of_store(&store).await;

    assert_eq!(find(&store, &workspace, "JOB 12345", 10).await, Some(ids(&["key_12345"])));
    assert_eq!(find(&store, &workspace, "er_1999", 50).await.map(|found| found.len()), Some(11));
    assert_eq!(find(&store, &workspace, "live_777", 200).await.map(|found| found.len()), Some(11));
    assert_eq!(find(&store, &workspace, "key_1234", 20).await.map(|found| found.len()), Some(11));
    let mut reader = store.read().await.unwrap();
    let expired = IndexedSearch::Expired(Timestamp(6));
    let expired = reader.find_searched_keys(&workspace, expired, 10).await.unwrap().unwrap();
    assert_eq!(expired.len(), 2);
    let disabled = KeyListFilter { state: "disabled", ..filter.clone() };
    let disabled = reader.list_workspace_keys(&workspace, &disabled).await.unwrap();
    assert_eq!(
        disabled.iter().map(|key| key.id.as_str()).collect::<Vec<_>>(),
        ["key_20000", "key_10000"]
    );
    for (state, first) in [("", "key_1"), ("disabled", "key_10000")] {
        let oldest = KeyListFilter { state, oldest_first: true, ..filter.clone() };
        let oldest = reader.list_workspace_keys(&workspace, &oldest).await.unwrap();
        assert_eq!(oldest[0].id.as_str(), first);
    }
    let loaded = reader.list_keys_by_ids(&workspace, &expired).await.unwrap();
    assert_eq!(loaded.len(), 2);
    assert_eq!(reader.list_workspace_keys(&workspace, &filter).await.unwrap().len(), 26);
    let found =
        reader.find_searched_identities(&workspace, "user_1234", 20).await.unwrap().unwrap();
    for (start, descending, first) in [
        ("", false, "USER_1"),
        ("USER_15", false, "USER_15"),
        ("", true, "USER_9999"),
        ("USER_15", true, "USER_15"),
    ] {
        let found = reader.list_identities_by_external_id(&workspace, start, descending, 26).await;
        let found = found.unwrap();
        assert_eq!((found.len(), found[0].external_id.as_str()), (26, first));
    }
    let listing =
        PageQuery { start: "", order: PageOrder::ById, search: "user_1234".into(), rows_max: 26 };
    let identities =
        reader.list_identities(&workspace, IdentitySelection::Ids(&found), &listing).await.unwrap();
    assert_eq!(identities.len(), 11);
    drop(reader);

    let work = meter.measure().await;
    assert!((1..WORK_MAX).contains(&work), "{work}");
}

#[tokio::test]
async fn searches_read_few_rows_in_postgres() {
    let database = Database::create().await;
    assert_searches_read_few_rows(Store::connect(&database.url, 1).await.unwrap()).await;
}

#[tokio::test]
async fn searches_read_few_rows_in_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("keyward.db")).await.unwrap();
    store.migrate().await.unwrap();
    assert_searches_read_few_rows(store).await;
}

/// A replica of the previous version does not write the search text of a key.
#[tokio::test]
async fn key_of_a_previous_version_is_found() {
    let database = Database::create().await;
    let store = Store::connect(&database.url, 2).await.unwrap();
    let key = key(&store, None).await;
    let (workspace, api) = (&key.workspace_id, &key.api_id);
    execute_owned(&store, format!(
        "INSERT INTO keys (id, workspace_id, api_id, hash, start, byte_length, name, owner_id, enabled, created_at)
        VALUES ('key_old', '{workspace}', '{api}', 'h', 's', 16, 'Night Job', 'USER_1', TRUE, 1)"
    ))
    .await;
    for text in ["NIGHT", "user_1"] {
        assert_eq!(find(&store, workspace, text, 10).await, Some(ids(&["key_old"])), "{text}");
    }

    execute(&store, "UPDATE keys SET name = 'Day Job', owner_id = NULL WHERE id = 'key_old'").await;

    assert_eq!(find(&store, workspace, "day job", 10).await, Some(ids(&["key_old"])));
    for text in ["night", "user_1"] {
        assert_eq!(find(&store, workspace, text, 10).await, Some(ids(&[])), "{text}");
    }
}

#[tokio::test]
async fn key_of_a_previous_version_is_found_by_capitals_of_the_locale() {
    let database = Database::with_locale().await;
    let store = Store::connect(&database.url, 2).await.unwrap();
    store.migrate().await.unwrap();
    let key = key(&store, None).await;
    let (workspace, api) = (&key.workspace_id, &key.api_id);

    execute_owned(&store, format!(
        "INSERT INTO keys (id, workspace_id, api_id, hash, start, byte_length, name, owner_id, enabled, created_at)
        VALUES ('key_old', '{workspace}', '{api}', 'h', 's', 16, 'École', 'USER_1', TRUE, 1)"
    ))
    .await;

    assert_eq!(find(&store, workspace, "école", 10).await, Some(ids(&["key_old"])));
}

on_both_stores! {
    async fn key_is_found_after_a_change_of_case(store) {
        let workspace = workspace(&store).await;
        let api = api(&store, &workspace).await;
        let mut key = Key { name: Some("école".into()), ..a_key(&workspace, &api) };
        commit_with(&store, async |tx| tx.insert_key(&key).await).await.unwrap();

        key.name = Some("École".into());
        commit_with(&store, async |tx| tx.update_key(&key).await).await.unwrap();

        assert_eq!(find(&store, &workspace, "école", 10).await, Some(vec![key.id]));
    }

    async fn key_is_found_by_its_current_texts_until_it_is_deleted(store) {
        let workspace = workspace(&store).await;
        let api = api(&store, &workspace).await;
        let named = |name: &str, owner: &str| {
            let (name, owner_id) = (Some(name.to_owned()), Some(owner.to_owned()));
            Key { name, owner_id, ..a_key(&workspace, &api) }
        };
        let mut key = Key { start: "live_3kQz".into(), ..named("50%_off \\ \"ÄPFEL\" ΣΊΣΥΦΟΣ", "O'Neill 支付宝") };
        let other = named("another", "someone");
        for key in [&key, &other] {
            commit_with(&store, async |tx| tx.insert_key(key).await).await.unwrap();
        }
        let only = Some(vec![key.id.clone()]);
        for text in [
            "äpfel", "ÄPF", "σίσυφος", "50%_off", "\\ \"ä", "o'neill", "支付宝", "live_", "live_3kQz",
            &key.id.as_str()[..10],
        ] {
            assert_eq!(find(&store, &workspace, text, 10).await, only, "{text}");
        }
        for text in ["50x_off", "5%%off", "LIVE_", "ive_3", "key_none"] {
            assert_eq!(find(&store, &workspace, text, 10).await, Some(ids(&[])), "{text}");
        }

        key.name = Some("renamed".into());
        commit_with(&store, async |tx| tx.update_key(&key).await).await.unwrap();
        assert_eq!(find(&store, &workspace, "RENAMED", 10).await, only);
        assert_eq!(find(&store, &workspace, "äpfel", 10).await, Some(ids(&[])));

        commit_with(&store, async |tx| tx.delete_key(&key.id, NOON).await).await.unwrap();
        for text in ["renamed", "live_", key.id.as_str()] {
            assert_eq!(find(&store, &workspace, text, 10).await, Some(ids(&[])), "{text}");
        }
        commit_with(&store, async |tx| tx.restore_key(&workspace, &key.id).await).await.unwrap();
        assert_eq!(find(&store, &workspace, "renamed", 10).await, only);
        commit_with(&store, async |tx| tx.purge_key(&key.id).await).await.unwrap();
        assert_eq!(find(&store, &workspace, "renamed", 10).await, Some(ids(&[])));
        assert_eq!(find(&store, &workspace, "another", 10).await, Some(vec![other.id]));
    }

    async fn index_finds_up_to_its_maximum_and_nothing_by_two_characters(store) {
        let workspace = workspace(&store).await;
        let api = api(&store, &workspace).await;
        for _ in 0..3 {
            let key = Key { name: Some("twin".into()), ..a_key(&workspace, &api) };
            commit_with(&store, async |tx| tx.insert_key(&key).await).await.unwrap();
        }

        assert_eq!(find(&store, &workspace, "twin", 3).await.map(|found| found.len()), Some(3));
        assert_eq!(find(&store, &workspace, "twin", 2).await, None);
        for short in ["", "t", "tw", "ä"] {
            assert_eq!(find(&store, &workspace, short, 10).await, None, "{short}");
        }
    }

    async fn search_finds_nothing_of_another_workspace(store) {
        let theirs = key(&store, None).await;
        let renamed = Key { name: Some("twin".into()), start: "live_3kQz".into(), ..theirs.clone() };
        commit_with(&store, async |tx| tx.update_key(&renamed).await).await.unwrap();
        let workspace = workspace(&store).await;
        commit_with(&store, async |tx| tx.ensure_identity(&theirs.workspace_id, "twin", None, NOON).await)
            .await
            .unwrap();

        for text in ["twin", "live_3kQz", theirs.id.as_str()] {
            assert_eq!(find(&store, &workspace, text, 10).await, Some(ids(&[])), "{text}");
        }
        let mut reader = store.read().await.unwrap();
        let found = reader.find_searched_identities(&workspace, "twin", 10).await.unwrap();
        assert_eq!(found, Some(Vec::new()));
        let hash = KeyHash::compute("none").to_base64();
        assert!(reader.find_deleted_key(&workspace, theirs.id.as_str(), &hash).await.unwrap().is_none());
    }

    async fn identity_is_found_until_it_is_deleted(store) {
        let workspace = workspace(&store).await;
        let id = commit_with(&store, async |tx| tx.ensure_identity(&workspace, "İSTANBUL_1", None, NOON).await)
            .await
            .unwrap();
        let found = async |text: &str| {
            let mut reader = store.read().await.unwrap();
            reader.find_searched_identities(&workspace, &text.to_lowercase(), 10).await.unwrap()
        };

        for text in ["İSTANBUL", "tanbul_1", id.as_str()] {
            assert_eq!(found(text).await, Some(vec![id.to_string()]), "{text}");
        }
        assert_eq!(found("ta").await, None);
        commit_with(&store, async |tx| tx.delete_identity(&id).await).await.unwrap();
        assert_eq!(found("tanbul_1").await, Some(Vec::new()));
        let again = Identity {
            id: id.clone(),
            external_id: "ANKARA".into(),
            meta: None,
            ratelimits: Vec::new(),
            home: None,
        };
        commit_with(&store, async |tx| tx.insert_identity(&workspace, &again, NOON).await).await.unwrap();
        assert_eq!(found("ankara").await, Some(vec![id.to_string()]));
    }
}
