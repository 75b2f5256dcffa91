//! Tests identities, and the limits of keys and identities.

use super::*;

on_both_stores! {
    async fn identity_is_inserted_once_per_external_id(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let ensure = async |workspace: &WorkspaceId, external_id: &str| {
            let act = async |tx: &mut Tx| tx.ensure_identity(workspace, external_id, None, NOON).await;
            commit_with(&store, act).await.unwrap()
        };

        let first = ensure(&workspace, "user_1").await;
        let second = ensure(&workspace, "user_1").await;
        let shouted = ensure(&workspace, "USER_1").await;
        let foreign = ensure(&other, "user_1").await;

        assert_eq!(first, second);
        assert!(first != shouted && first != foreign);
        assert_eq!(count(&store, "identities").await, 3);
    }

    async fn identity_is_inserted_once_when_inserts_are_concurrent(store) {
        let workspace = workspace(&store).await;
        let ensure =
            || commit_with(&store, async |tx| tx.ensure_identity(&workspace, "user_1", None, NOON).await);

        let mut ids: Vec<_> =
            join_all((0..16).map(|_| ensure())).await.into_iter().map(Result::unwrap).collect();

        ids.dedup();
        assert_eq!(ids.len(), 1);
        assert_eq!(count(&store, "identities").await, 1);
    }

    async fn identity_is_found_in_its_workspace_with_limits(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let limits = [a_limit("b", 1), a_limit("B", i64::MAX), a_limit("a", 3)];
        let id = commit_with(&store, async |tx| {
            let id = tx.ensure_identity(&workspace, "user.1-x", None, NOON).await?;
            tx.replace_ratelimits(&workspace, LimitOwner::Identity(&id), &limits).await?;
            Ok(id)
        })
        .await
        .unwrap();

        let mut reader = store.read().await.unwrap();
        let found = reader.find_identity(&workspace, id.as_str(), id.as_str()).await.unwrap().expect("the identity");

        assert_eq!((&found.id, found.external_id.as_str()), (&id, "user.1-x"));
        assert!(found.meta.is_none());
        assert_eq!(found.ratelimits, [limits[1].clone(), limits[2].clone(), limits[0].clone()]);
        assert!(reader.find_identity(&other, id.as_str(), id.as_str()).await.unwrap().is_none());
        let shouted = IdentityId::from(id.as_str().to_uppercase());
        assert!(reader.find_identity(&workspace, shouted.as_str(), shouted.as_str()).await.unwrap().is_none());
    }

    async fn limit_is_stored_with_every_field(store) {
        let key = key(&store, None).await;
        let limits = [
            Ratelimit {
                limit: i64::MAX,
                duration_ms: i64::MAX,
                auto_apply: true,
                ..a_limit(SPECIAL_TEXT, 1)
            },
            Ratelimit { auto_apply: false, ..a_limit("requests", 1) },
        ];

        commit_with(&store, async |tx| {
            tx.replace_ratelimits(&key.workspace_id, LimitOwner::Key(&key.id), &limits).await
        })
        .await
        .unwrap();

        let found = store.read().await.unwrap().find_key_by_hash(&key.hash).await.unwrap().unwrap();
        assert_eq!(found.ratelimits, limits);
    }

    async fn limits_are_replaced_by_name_and_keep_their_id(store) {
        let key = key(&store, None).await;
        let set = async |limits: &[Ratelimit]| {
            let owner = LimitOwner::Key(&key.id);
            let act = async |tx: &mut Tx| tx.replace_ratelimits(&key.workspace_id, owner, limits).await;
            commit_with(&store, act).await.unwrap();
            store.read().await.unwrap().find_key_by_hash(&key.hash).await.unwrap().unwrap().ratelimits
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

    async fn limits_of_owners_are_independent(store) {
        let (key, other) = (key(&store, None).await, key(&store, None).await);
        let workspace = &key.workspace_id;
        let (own, theirs, shared) =
            (a_limit("requests", 1), a_limit("requests", 2), a_limit("requests", 3));
        let id = commit_with(&store, async |tx| {
            let id = tx.ensure_identity(workspace, "user_1", None, NOON).await?;
            tx.replace_ratelimits(workspace, LimitOwner::Identity(&id), std::slice::from_ref(&shared))
                .await?;
            let owner = LimitOwner::Key(&other.id);
            tx.replace_ratelimits(&other.workspace_id, owner, std::slice::from_ref(&theirs)).await?;
            Ok(id)
        })
        .await
        .unwrap();

        commit_with(&store, async |tx| {
            tx.replace_ratelimits(workspace, LimitOwner::Key(&key.id), &[]).await?;
            tx.replace_ratelimits(workspace, LimitOwner::Key(&key.id), std::slice::from_ref(&own)).await
        })
        .await
        .unwrap();

        let mut reader = store.read().await.unwrap();
        let limits = reader.find_key_by_hash(&key.hash).await.unwrap().unwrap().ratelimits;
        assert_eq!(limits, [own]);
        let limits = reader.find_key_by_hash(&other.hash).await.unwrap().unwrap().ratelimits;
        assert_eq!(limits, [theirs]);
        assert_eq!(reader.find_identity(workspace, id.as_str(), id.as_str()).await.unwrap().unwrap().ratelimits, [shared]);
    }
}
