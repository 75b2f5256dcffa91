//! Tests namespaces and overrides of the standalone limiter.

use foundation::id::{NamespaceId, OverrideId};
use foundation::model::{Namespace, OutagePolicy, Override};
use store::{PageOrder, PageQuery};

use super::*;

fn a_namespace(workspace: &WorkspaceId, name: &str) -> Namespace {
    Namespace {
        id: NamespaceId::random(),
        workspace_id: workspace.clone(),
        name: name.into(),
        outage_policy: OutagePolicy::Local,
        home: None,
        created_at: NOON,
        deleted_at: None,
    }
}

fn an_override(identifier: &str) -> Override {
    Override {
        id: OverrideId::random(),
        identifier: identifier.into(),
        limit: 5,
        duration_ms: 1000,
        is_approximate: false,
        expires_at: None,
        created_at: NOON,
        updated_at: None,
    }
}

fn page_query<'a>(from: &'a str, limit: i64, search: &str) -> PageQuery<'a> {
    PageQuery { start: from, order: PageOrder::ById, search: search.into(), rows_max: limit }
}

/// Stores a namespace.
async fn namespace(store: &Store, workspace: &WorkspaceId, name: &str) -> Namespace {
    let namespace = a_namespace(workspace, name);
    let list = std::slice::from_ref(&namespace);
    commit_with(store, async |tx| tx.insert_namespaces(workspace, list).await).await.unwrap();
    namespace
}

async fn set_override(store: &Store, namespace: &Namespace, new: &Override) -> OverrideId {
    commit_with(store, async |tx| tx.upsert_override(&namespace.id, new).await).await.unwrap()
}

on_both_stores! {
    async fn namespace_is_found_by_name_and_id_in_its_workspace(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let closed = Namespace { outage_policy: OutagePolicy::Closed, ..a_namespace(&workspace, SPECIAL_TEXT) };
        let list = std::slice::from_ref(&closed);
        commit_with(&store, async |tx| tx.insert_namespaces(&workspace, list).await).await.unwrap();

        let mut reader = store.read().await.unwrap();
        for named in [SPECIAL_TEXT, closed.id.as_str()] {
            let bare = reader.find_namespace(&workspace, named).await.unwrap();
            let stored = reader.find_stored_namespace(&workspace, named).await.unwrap();
            assert_eq!(bare, Some(closed.clone()));
            assert_eq!(stored.unwrap().namespace, closed);
            assert!(reader.find_stored_namespace(&other, named).await.unwrap().is_none());
            assert!(reader.find_namespace(&other, named).await.unwrap().is_none());
        }
        for named in ["", &SPECIAL_TEXT.to_uppercase(), &closed.id.as_str().to_uppercase()] {
            assert!(reader.find_stored_namespace(&workspace, named).await.unwrap().is_none(), "{named}");
        }
    }

    async fn namespace_lookup_prefers_id_over_equal_name(store) {
        let workspace = workspace(&store).await;
        let first = namespace(&store, &workspace, "first").await;
        namespace(&store, &workspace, first.id.as_str()).await;

        let mut reader = store.read().await.unwrap();
        let found = reader.find_stored_namespace(&workspace, first.id.as_str()).await.unwrap().unwrap();
        let bare = reader.find_namespace(&workspace, first.id.as_str()).await.unwrap().unwrap();

        assert_eq!((found.namespace.name.as_str(), bare.name.as_str()), ("first", "first"));
    }

    async fn insert_adds_only_namespaces_with_unused_names(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let insert = async |workspace: &WorkspaceId, names: &[&str]| {
            let list: Vec<_> = names.iter().map(|name| a_namespace(workspace, name)).collect();
            let act = async |tx: &mut Tx| tx.insert_namespaces(workspace, &list).await;
            let mut inserted = commit_with(&store, act).await.unwrap();
            inserted.sort();
            inserted
        };

        assert_eq!(insert(&workspace, &["b", "a"]).await, ["a", "b"]);
        assert_eq!(insert(&workspace, &["b", "c", "B"]).await, ["B", "c"]);
        assert_eq!(insert(&other, &["a"]).await, ["a"]);
        assert!(insert(&workspace, &["a"]).await.is_empty());
        assert_eq!(count(&store, "namespaces").await, 5);
    }

    async fn namespace_is_inserted_once_when_inserts_are_concurrent(store) {
        let workspace = workspace(&store).await;
        let make = async |n: usize| {
            let list =
                [a_namespace(&workspace, &format!("own {n}")), a_namespace(&workspace, "shared")];
            commit_with(&store, async |tx| {
                let held = tx.lock_namespaces(&workspace).await?;
                Ok((held, tx.insert_namespaces(&workspace, &list).await?))
            })
            .await
        };

        let inserted: Vec<_> =
            join_all((0..8).map(make)).await.into_iter().map(Result::unwrap).collect();

        let mut held: Vec<_> = inserted.iter().map(|(held, _)| *held).collect();
        held.sort_unstable();
        assert_eq!(held, [0, 2, 3, 4, 5, 6, 7, 8]);
        let shared = inserted.iter().filter(|(_, names)| names.contains(&"shared".to_owned()));
        assert_eq!(shared.count(), 1);
    }

    async fn namespaces_are_listed_by_name_and_counted_without_deleted_ones(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        for name in ["b", "a", "B"] {
            namespace(&store, &workspace, name).await;
        }
        namespace(&store, &other, "c").await;
        let (held, deleted) = commit_with(&store, async |tx| {
            let deleted = tx.lock_namespace(&workspace, "a").await?.unwrap();
            tx.delete_namespace(&deleted.id, NOON.plus_ms(5)).await?;
            tx.set_outage_policy(&deleted.id, OutagePolicy::Open).await?;
            Ok((tx.lock_namespaces(&workspace).await?, deleted))
        })
        .await
        .unwrap();

        let listed = store.read().await.unwrap().list_all_namespaces(&workspace).await.unwrap();

        let names: Vec<_> = listed.iter().map(|namespace| namespace.name.as_str()).collect();
        assert_eq!((names, held), (vec!["B", "a", "b"], 2));
        let (outage_policy, deleted_at) = (OutagePolicy::Open, Some(NOON.plus_ms(5)));
        assert_eq!(listed[1], Namespace { outage_policy, deleted_at, ..deleted });
    }

    async fn override_keeps_id_and_creation_time_when_set_again(store) {
        let workspace = workspace(&store).await;
        let namespace = namespace(&store, &workspace, "a").await;
        let first = Override { expires_at: Some(NOON), ..an_override(SPECIAL_TEXT) };
        let later = NOON.plus_ms(5);
        let second = Override {
            limit: i64::MAX,
            duration_ms: i64::MAX,
            created_at: later,
            ..an_override(SPECIAL_TEXT)
        };

        let ids = (set_override(&store, &namespace, &first).await, set_override(&store, &namespace, &second).await);

        assert_eq!(ids, (first.id.clone(), first.id.clone()));
        let mut reader = store.read().await.unwrap();
        let kept = Override { id: first.id, created_at: NOON, updated_at: Some(later), ..second };
        let listed = reader.list_overrides(&workspace, &namespace.id, &page_query("", 10, "")).await.unwrap();
        assert_eq!(listed, std::slice::from_ref(&kept));
        let stored = reader.find_stored_namespace(&workspace, "a").await.unwrap().unwrap();
        assert_eq!(stored.overrides.find_active(SPECIAL_TEXT, NOON), Some(&kept));
    }

    async fn overrides_are_listed_by_id_from_a_cursor(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let home = namespace(&store, &workspace, "a").await;
        let elsewhere = namespace(&store, &workspace, "b").await;
        for id in ["rlor_b", "rlor_B", "rlor_a", "rlor_Z"] {
            let new = Override { id: OverrideId::from(id), ..an_override(id) };
            set_override(&store, &home, &new).await;
        }
        set_override(&store, &elsewhere, &an_override("rlor_b")).await;

        let mut reader = store.read().await.unwrap();
        let mut list = async |workspace: &WorkspaceId, from: &str, limit: i64| {
            let rows = reader.list_overrides(workspace, &home.id, &page_query(from, limit, "")).await.unwrap();
            rows.into_iter().map(|row| row.identifier).collect::<Vec<_>>()
        };

        assert_eq!(list(&workspace, "", 10).await, ["rlor_B", "rlor_Z", "rlor_a", "rlor_b"]);
        assert_eq!(list(&workspace, "rlor_Z", 2).await, ["rlor_Z", "rlor_a"]);
        assert!(list(&workspace, "rlor_c", 2).await.is_empty());
        assert!(list(&other, "", 10).await.is_empty());
        let found = reader.list_overrides(&workspace, &home.id, &page_query("", 10, "rlor_z")).await.unwrap();
        assert_eq!(found.len(), 1);
    }

    async fn override_is_deleted_by_exact_identifier_and_counted_per_namespace(store) {
        let workspace = workspace(&store).await;
        let home = namespace(&store, &workspace, "a").await;
        let elsewhere = namespace(&store, &workspace, "b").await;
        let (known, other) = (an_override("user_*"), an_override("user_1"));
        for new in [&known, &other] {
            set_override(&store, &home, new).await;
        }
        let delete = async |namespace: &Namespace, identifier: &str| {
            let act = async |tx: &mut Tx| {
                let deleted = tx.delete_override(&namespace.id, identifier).await?;
                Ok((deleted, tx.count_overrides(&home.id).await?))
            };
            commit_with(&store, act).await.unwrap()
        };

        assert_eq!(delete(&elsewhere, "user_*").await, (None, 2));
        assert_eq!(delete(&home, "USER_*").await, (None, 2));
        assert_eq!(delete(&home, "user_*").await, (Some(known.id.clone()), 1));
        assert_eq!(delete(&home, "user_*").await, (None, 1));
    }
}
