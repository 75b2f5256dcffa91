//! Tests root keys.

use foundation::model::RootKey;

use super::*;

pub fn a_root_key(workspace: &WorkspaceId) -> RootKey {
    RootKey {
        id: KeyId::random(),
        workspace_id: workspace.clone(),
        is_workspace_enabled: true,
        start: "keyw".into(),
        name: None,
        permissions: Vec::new(),
        created_at: NOON,
        expires_at: None,
        revoked_at: None,
    }
}

on_both_stores! {
    async fn root_key_is_found_by_hash(store) {
        let workspace = workspace(&store).await;
        let key = RootKey {
            name: Some(SPECIAL_TEXT.into()),
            permissions: vec!["api.*.create_key".into(), "rbac.*.create_role".into()],
            expires_at: Some(Timestamp(i64::MAX)),
            ..a_root_key(&workspace)
        };

        commit_with(&store, async |tx| tx.insert_root_key(&key, "hash+/=").await).await.unwrap();

        let mut reader = store.read().await.unwrap();
        let found = reader.find_root_key_by_hash("hash+/=").await.unwrap().expect("the root key");
        assert_eq!((&found.id, &found.workspace_id), (&key.id, &key.workspace_id));
        assert_eq!((&found.name, &found.permissions), (&key.name, &key.permissions));
        assert_eq!((&found.start, found.created_at), (&key.start, key.created_at));
        assert_eq!((found.expires_at, found.revoked_at), (key.expires_at, None));
        assert!(found.is_workspace_enabled);
        assert!(reader.find_root_key_by_hash("HASH+/=").await.unwrap().is_none());
        assert!(reader.find_root_key_by_hash("").await.unwrap().is_none());
    }

    async fn root_key_contains_enabled_state_of_its_workspace(store) {
        let workspace = workspace(&store).await;
        let key = a_root_key(&workspace);
        commit_with(&store, async |tx| tx.insert_root_key(&key, "hash").await).await.unwrap();

        execute(&store, "UPDATE workspaces SET enabled = FALSE").await;

        let found = store.read().await.unwrap().find_root_key_by_hash("hash").await.unwrap();
        assert!(!found.unwrap().is_workspace_enabled);
    }

    async fn root_keys_are_listed_by_id_including_revoked(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        for (n, id) in ["key_b", "key_B", "key_a", "key_é", "key_Z"].into_iter().enumerate() {
            let key = RootKey { id: KeyId::from(id), ..a_root_key(&workspace) };
            let hash = n.to_string();
            commit_with(&store, async |tx| tx.insert_root_key(&key, &hash).await).await.unwrap();
        }
        let foreign = a_root_key(&other);
        commit_with(&store, async |tx| tx.insert_root_key(&foreign, "foreign").await).await.unwrap();
        let revoked = KeyId::from("key_a");
        commit_with(&store, async |tx| tx.revoke_root_key(&revoked, NOON).await).await.unwrap();

        let listed = store.read().await.unwrap().list_all_root_keys(&workspace).await.unwrap();

        let ids: Vec<_> = listed.iter().map(|key| key.id.as_str()).collect();
        assert_eq!(ids, ["key_B", "key_Z", "key_a", "key_b", "key_é"]);
        assert_eq!(listed[2].revoked_at, Some(NOON));
    }

    async fn root_key_is_revoked_once(store) {
        let workspace = workspace(&store).await;
        let key = a_root_key(&workspace);
        commit_with(&store, async |tx| tx.insert_root_key(&key, "hash").await).await.unwrap();
        let revoke = async |id: &str, now| {
            let id = KeyId::from(id);
            commit_with(&store, async |tx| tx.revoke_root_key(&id, now).await).await.unwrap()
        };

        let first = revoke(key.id.as_str(), NOON).await;
        let second = revoke(key.id.as_str(), NOON.plus_ms(1)).await;
        let unknown = revoke("key_nowhere", NOON).await;

        assert_eq!((first, second, unknown), (Some(workspace), None, None));
        let found = store.read().await.unwrap().find_root_key_by_hash("hash").await.unwrap();
        assert_eq!(found.unwrap().revoked_at, Some(NOON));
    }
}
