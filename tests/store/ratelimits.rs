//! Namespaces and overrides of the standalone limiter.

use foundation::id::{NamespaceId, OverrideId};
use foundation::model::{Namespace, OutagePolicy, Override};
use store::PageQuery;

use super::*;

fn a_namespace(workspace: &WorkspaceId, name: &str) -> Namespace {
    Namespace {
        id: NamespaceId::random(),
        workspace_id: workspace.clone(),
        name: name.into(),
        on_outage: OutagePolicy::Local,
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
        is_async: false,
        expires_at: None,
        created_at: NOON,
        updated_at: None,
    }
}

fn listing<'a>(from: &'a str, limit: i64, search: &str) -> PageQuery<'a> {
    PageQuery { from, search: search.into(), limit }
}

/// A namespace that has been stored.
async fn namespace(store: &Store, workspace: &WorkspaceId, name: &str) -> Namespace {
    let namespace = a_namespace(workspace, name);
    let list = std::slice::from_ref(&namespace);
    commit(store, async |tx| tx.insert_namespaces(workspace, list).await).await.unwrap();
    namespace
}

async fn set(store: &Store, namespace: &Namespace, new: &Override) -> OverrideId {
    commit(store, async |tx| tx.set_override(&namespace.id, new).await).await.unwrap()
}

both_stores! {
    async fn a_namespace_is_found_by_name_and_by_id_in_its_workspace(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let closed = Namespace { on_outage: OutagePolicy::Closed, ..a_namespace(&workspace, ODD) };
        let list = std::slice::from_ref(&closed);
        commit(&store, async |tx| tx.insert_namespaces(&workspace, list).await).await.unwrap();

        let mut reader = store.read().await.unwrap();
        for named in [ODD, closed.id.as_str()] {
            let bare = reader.bare_namespace(&workspace, named).await.unwrap();
            let stored = reader.namespace(&workspace, named).await.unwrap();
            assert_eq!(bare, Some(closed.clone()));
            assert_eq!(stored.unwrap().namespace, closed);
            assert!(reader.namespace(&other, named).await.unwrap().is_none());
            assert!(reader.bare_namespace(&other, named).await.unwrap().is_none());
        }
        for named in ["", &ODD.to_uppercase(), &closed.id.as_str().to_uppercase()] {
            assert!(reader.namespace(&workspace, named).await.unwrap().is_none(), "{named}");
        }
    }

    async fn an_id_precedes_a_name_that_is_like_it(store) {
        let workspace = workspace(&store).await;
        let first = namespace(&store, &workspace, "first").await;
        namespace(&store, &workspace, first.id.as_str()).await;

        let mut reader = store.read().await.unwrap();
        let found = reader.namespace(&workspace, first.id.as_str()).await.unwrap().unwrap();
        let bare = reader.bare_namespace(&workspace, first.id.as_str()).await.unwrap().unwrap();

        assert_eq!((found.namespace.name.as_str(), bare.name.as_str()), ("first", "first"));
    }

    async fn of_several_namespaces_those_are_added_whose_name_is_free(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let insert = async |workspace: &WorkspaceId, names: &[&str]| {
            let list: Vec<_> = names.iter().map(|name| a_namespace(workspace, name)).collect();
            let act = async |tx: &mut Tx| tx.insert_namespaces(workspace, &list).await;
            let mut made = commit(&store, act).await.unwrap();
            made.sort();
            made
        };

        assert_eq!(insert(&workspace, &["b", "a"]).await, ["a", "b"]);
        assert_eq!(insert(&workspace, &["b", "c", "B"]).await, ["B", "c"]);
        assert_eq!(insert(&other, &["a"]).await, ["a"]);
        assert!(insert(&workspace, &["a"]).await.is_empty());
        assert_eq!(count(&store, "namespaces").await, 5);
    }

    async fn a_name_that_many_make_at_once_is_one(store) {
        let workspace = workspace(&store).await;
        let make = async |n: usize| {
            let list =
                [a_namespace(&workspace, &format!("own {n}")), a_namespace(&workspace, "shared")];
            commit(&store, async |tx| {
                let held = tx.lock_namespaces(&workspace).await?;
                Ok((held, tx.insert_namespaces(&workspace, &list).await?))
            })
            .await
        };

        let made: Vec<_> =
            join_all((0..8).map(make)).await.into_iter().map(Result::unwrap).collect();

        let mut held: Vec<_> = made.iter().map(|(held, _)| *held).collect();
        held.sort_unstable();
        assert_eq!(held, [0, 2, 3, 4, 5, 6, 7, 8]);
        let shared = made.iter().filter(|(_, names)| names.contains(&"shared".to_owned()));
        assert_eq!(shared.count(), 1);
    }

    async fn namespaces_are_listed_by_name_and_counted_without_the_deleted_ones(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        for name in ["b", "a", "B"] {
            namespace(&store, &workspace, name).await;
        }
        namespace(&store, &other, "c").await;
        let (held, deleted) = commit(&store, async |tx| {
            let deleted = tx.lock_namespace(&workspace, "a").await?.unwrap();
            tx.delete_namespace(&deleted.id, NOON.plus_ms(5)).await?;
            tx.set_on_outage(&deleted.id, OutagePolicy::Open).await?;
            Ok((tx.lock_namespaces(&workspace).await?, deleted))
        })
        .await
        .unwrap();

        let listed = store.read().await.unwrap().namespaces(&workspace).await.unwrap();

        let names: Vec<_> = listed.iter().map(|namespace| namespace.name.as_str()).collect();
        assert_eq!((names, held), (vec!["B", "a", "b"], 2));
        let (on_outage, deleted_at) = (OutagePolicy::Open, Some(NOON.plus_ms(5)));
        assert_eq!(listed[1], Namespace { on_outage, deleted_at, ..deleted });
    }

    async fn an_override_keeps_its_id_and_its_age_when_it_is_set_again(store) {
        let workspace = workspace(&store).await;
        let namespace = namespace(&store, &workspace, "a").await;
        let first = Override { expires_at: Some(NOON), ..an_override(ODD) };
        let later = NOON.plus_ms(5);
        let second = Override {
            limit: i64::MAX,
            duration_ms: i64::MAX,
            created_at: later,
            ..an_override(ODD)
        };

        let ids = (set(&store, &namespace, &first).await, set(&store, &namespace, &second).await);

        assert_eq!(ids, (first.id.clone(), first.id.clone()));
        let mut reader = store.read().await.unwrap();
        let kept = Override { id: first.id, created_at: NOON, updated_at: Some(later), ..second };
        let listed = reader.overrides(&workspace, &namespace.id, &listing("", 10, "")).await.unwrap();
        assert_eq!(listed, std::slice::from_ref(&kept));
        let stored = reader.namespace(&workspace, "a").await.unwrap().unwrap();
        assert_eq!(stored.overrides.find_active(ODD, NOON), Some(&kept));
    }

    async fn overrides_are_listed_by_id_from_one_on(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let home = namespace(&store, &workspace, "a").await;
        let elsewhere = namespace(&store, &workspace, "b").await;
        for id in ["rlor_b", "rlor_B", "rlor_a", "rlor_Z"] {
            let new = Override { id: OverrideId::from(id), ..an_override(id) };
            set(&store, &home, &new).await;
        }
        set(&store, &elsewhere, &an_override("rlor_b")).await;

        let mut reader = store.read().await.unwrap();
        let mut list = async |workspace: &WorkspaceId, from: &str, limit: i64| {
            let rows = reader.overrides(workspace, &home.id, &listing(from, limit, "")).await.unwrap();
            rows.into_iter().map(|row| row.identifier).collect::<Vec<_>>()
        };

        assert_eq!(list(&workspace, "", 10).await, ["rlor_B", "rlor_Z", "rlor_a", "rlor_b"]);
        assert_eq!(list(&workspace, "rlor_Z", 2).await, ["rlor_Z", "rlor_a"]);
        assert!(list(&workspace, "rlor_c", 2).await.is_empty());
        assert!(list(&other, "", 10).await.is_empty());
        let found = reader.overrides(&workspace, &home.id, &listing("", 10, "rlor_z")).await.unwrap();
        assert_eq!(found.len(), 1);
    }

    async fn an_override_is_removed_by_its_exact_identifier_and_counted_in_its_namespace(store) {
        let workspace = workspace(&store).await;
        let home = namespace(&store, &workspace, "a").await;
        let elsewhere = namespace(&store, &workspace, "b").await;
        let (known, other) = (an_override("user_*"), an_override("user_1"));
        for new in [&known, &other] {
            set(&store, &home, new).await;
        }
        let delete = async |namespace: &Namespace, identifier: &str| {
            let act = async |tx: &mut Tx| {
                let deleted = tx.delete_override(&namespace.id, identifier).await?;
                Ok((deleted, tx.count_overrides(&home.id).await?))
            };
            commit(&store, act).await.unwrap()
        };

        assert_eq!(delete(&elsewhere, "user_*").await, (None, 2));
        assert_eq!(delete(&home, "USER_*").await, (None, 2));
        assert_eq!(delete(&home, "user_*").await, (Some(known.id.clone()), 1));
        assert_eq!(delete(&home, "user_*").await, (None, 1));
    }
}
