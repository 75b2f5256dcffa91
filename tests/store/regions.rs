//! Tests the regions of a deployment, and the homes of what they count.

use foundation::home::Home;
use foundation::id::NamespaceId;
use foundation::model::{Namespace, OutagePolicy};
use store::HomeOwner;

use super::*;

on_both_stores! {
    async fn regions_keep_their_order_when_more_are_added(store) {
        let names = |names: &str| names.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let add = async |listed: &str| {
            let listed = names(listed);
            commit_with(&store, async |tx| tx.add_regions(&listed).await).await.unwrap();
            store.read().await.unwrap().list_regions().await.unwrap()
        };

        assert_eq!(add("us eu").await, names("us eu"));
        assert_eq!(add("eu us").await, names("us eu"));
        assert_eq!(add("eu ap us").await, names("us eu ap"));
    }

    async fn home_is_that_of_the_creator_until_it_is_moved(store) {
        let key = key(&store, None).await;
        let workspace = &key.workspace_id;
        let home = Home::new("eu");
        let ensure = async |home: Option<&Home>| {
            let act = async |tx: &mut Tx| tx.ensure_identity(workspace, "customer", home, NOON).await;
            commit_with(&store, act).await.unwrap()
        };
        let identity = HomeOwner::Identity(ensure(Some(&home)).await);
        assert_eq!(identity, HomeOwner::Identity(ensure(Some(&Home::new("us"))).await));
        let namespace = Namespace { home: Some(home.clone()), ..a_namespace(workspace) };
        let all = std::slice::from_ref(&namespace);
        commit_with(&store, async |tx| tx.insert_namespaces(workspace, all).await).await.unwrap();
        let namespace = HomeOwner::Namespace(namespace.id);
        let api = HomeOwner::Api(key.api_id.clone());
        let home_of = async |owner: &HomeOwner| {
            let act = async |tx: &mut Tx| tx.lock_home(workspace, owner).await;
            commit_with(&store, act).await.unwrap()
        };

        assert_eq!(home_of(&api).await, Some(None), "it was created when there was one region");
        assert_eq!(home_of(&identity).await, Some(Some(home.clone())), "that of its creation");
        assert_eq!(home_of(&namespace).await, Some(Some(home.clone())));
        let none = HomeOwner::Identity("id_none".into());
        assert_eq!(home_of(&none).await, None);

        let moved = home.moved_to("us", Timestamp(7)).unwrap();
        for owner in [&api, &identity, &namespace] {
            commit_with(&store, async |tx| tx.set_home(owner, &moved).await).await.unwrap();
            assert_eq!(home_of(owner).await, Some(Some(moved.clone())), "{owner:?}");
        }
        let counts = store.read().await.unwrap().count_homes().await.unwrap();
        assert_eq!(counts, [("us eu<7".to_owned(), 1, 1, 1)]);
        let found = store.read().await.unwrap().find_key(workspace, &key.id).await.unwrap();
        assert_eq!(found.unwrap().home, Some(moved));
    }
}

fn a_namespace(workspace: &WorkspaceId) -> Namespace {
    Namespace {
        id: NamespaceId::random(),
        workspace_id: workspace.clone(),
        name: "email".into(),
        outage_policy: OutagePolicy::Local,
        home: None,
        created_at: NOON,
        deleted_at: None,
    }
}
