//! Tests how keys are stored and found.

use foundation::model::{IdentitySummary, KeySummary};
use store::{KeyListFilter, PageOrder, PageQuery};

use super::root_keys::a_root_key;
use super::*;

on_both_stores! {
    async fn key_is_stored_with_every_field(store) {
        let workspace = workspace(&store).await;
        let api = api(&store, &workspace).await;
        let json = r#"{"z":1.0,"n":12345678901234567890,"ü":"🦀\n\"\\","":[null,{}]}"#;
        let refill = Refill { interval: RefillInterval::Monthly { day: 31 }, amount: i64::MAX };
        let identity =
            commit_with(&store, async |tx| tx.ensure_identity(&workspace, "user_1", None, NOON).await);
        let key = Key {
            start: "prod_3kQz".into(),
            prefix: Some("prod".into()),
            byte_length: 255,
            name: Some(SPECIAL_TEXT.into()),
            meta: Some(meta(json)),
            identity_id: Some(identity.await.unwrap()),
            is_enabled: false,
            expires_at: Some(Timestamp(i64::MAX)),
            credits: Some(credits(i64::MAX, Some(refill), i64::MAX)),
            created_at: Timestamp(0),
            ..a_key(&workspace, &api)
        };

        commit_with(&store, async |tx| tx.insert_key(&key).await).await.unwrap();

        let stored = store.read().await.unwrap().find_key(&workspace, &key.id).await.unwrap().unwrap();
        let found = stored.key;
        assert_eq!((&found.id, &found.workspace_id), (&key.id, &workspace));
        assert_eq!((&found.api_id, &found.identity_id), (&api, &key.identity_id));
        assert_eq!(
            (&found.hash, &found.start, &found.prefix),
            (&key.hash, &key.start, &key.prefix)
        );
        assert_eq!((found.byte_length, found.is_enabled), (255, false));
        assert_eq!(found.name, key.name);
        assert_eq!(found.meta.unwrap().as_str(), json);
        assert_eq!((found.expires_at, found.updated_at), (key.expires_at, None));
        assert_eq!(found.created_at, Timestamp(0));
        let found = found.credits.unwrap();
        assert_eq!(
            (found.balance, found.refill, found.refilled_period),
            (i64::MAX, Some(refill), i64::MAX)
        );
        assert!(stored.ratelimits.is_empty() && stored.permissions.is_empty());
        assert!(stored.role_ids.is_empty());
    }

    async fn optional_fields_of_a_key_are_none_when_unset(store) {
        let key = key(&store, None).await;

        let found = store.read().await.unwrap().find_key_by_hash(&key.hash).await.unwrap().unwrap().key;

        assert!(found.prefix.is_none() && found.name.is_none() && found.meta.is_none());
        assert!(found.identity_id.is_none() && found.expires_at.is_none());
        assert!(found.credits.is_none() && found.updated_at.is_none());
    }

    async fn key_is_found_by_id_in_its_workspace_and_by_hash_in_any(store) {
        let (key, other) = (key(&store, None).await, workspace(&store).await);
        let shouted = KeyId::from(key.id.as_str().to_uppercase());

        let mut reader = store.read().await.unwrap();
        let by_hash = reader.find_key_by_hash(&key.hash).await.unwrap().expect("the key");

        assert_eq!(by_hash.key.id, key.id);
        assert!(reader.find_key(&key.workspace_id, &key.id).await.unwrap().is_some());
        assert!(reader.find_key(&other, &key.id).await.unwrap().is_none());
        assert!(reader.find_key(&key.workspace_id, &shouted).await.unwrap().is_none());
        assert!(reader.find_key_by_hash(&key.hash.to_lowercase()).await.unwrap().is_none());
    }

    async fn keys_are_not_found_when_api_is_deleted(store) {
        let key = key(&store, None).await;
        let (workspace, api) = (&key.workspace_id, &key.api_id);

        commit_with(&store, async |tx| tx.delete_api(workspace, api, NOON).await).await.unwrap();

        let mut reader = store.read().await.unwrap();
        assert!(reader.find_key(workspace, &key.id).await.unwrap().is_none());
        assert!(reader.find_key_by_hash(&key.hash).await.unwrap().is_none());
    }

    async fn key_update_keeps_immutable_fields_and_credits(store) {
        let before = key(&store, Some(credits(5, None, 0))).await;
        let workspace = &before.workspace_id;
        let identity =
            commit_with(&store, async |tx| tx.ensure_identity(workspace, "user_1", None, NOON).await);
        let after = Key {
            name: Some(SPECIAL_TEXT.into()),
            meta: Some(meta("{\"a\":1}")),
            identity_id: Some(identity.await.unwrap()),
            is_enabled: false,
            expires_at: Some(Timestamp(7)),
            updated_at: Some(Timestamp(8)),
            credits: None,
            hash: "another".into(),
            start: "another".into(),
            ..before.clone()
        };

        commit_with(&store, async |tx| tx.update_key(&after).await).await.unwrap();

        let found =
            store.read().await.unwrap().find_key(workspace, &before.id).await.unwrap().unwrap().key;
        assert_eq!((&found.name, &found.identity_id), (&after.name, &after.identity_id));
        assert_eq!(found.meta.unwrap().as_str(), "{\"a\":1}");
        assert_eq!((found.is_enabled, found.expires_at), (false, Some(Timestamp(7))));
        assert_eq!(found.updated_at, Some(Timestamp(8)));
        assert_eq!((found.hash, found.start), (before.hash, before.start));
        assert_eq!(found.credits.unwrap().balance, 5);
    }

    async fn key_update_changes_no_other_key(store) {
        let (key, other) = (key(&store, None).await, key(&store, Some(credits(5, None, 0))).await);
        let changed = Key { name: Some("changed".into()), is_enabled: false, ..key.clone() };

        commit_with(&store, async |tx| {
            tx.update_key(&changed).await?;
            tx.set_credits(&key.id, Some(&credits(9, None, 0))).await?;
            tx.delete_key(&key.id, NOON).await
        })
        .await
        .unwrap();

        let found =
            store.read().await.unwrap().find_key_by_hash(&other.hash).await.unwrap().unwrap().key;
        assert_eq!((found.name, found.is_enabled), (None, true));
        assert_eq!(found.credits.unwrap().balance, 5);
    }

    async fn key_update_clears_fields(store) {
        let workspace = workspace(&store).await;
        let api = api(&store, &workspace).await;
        let identity =
            commit_with(&store, async |tx| tx.ensure_identity(&workspace, "user_1", None, NOON).await);
        let full = Key {
            name: Some("n".into()),
            meta: Some(meta("{}")),
            identity_id: Some(identity.await.unwrap()),
            expires_at: Some(NOON),
            ..a_key(&workspace, &api)
        };
        commit_with(&store, async |tx| tx.insert_key(&full).await).await.unwrap();
        let bare =
            Key { name: None, meta: None, identity_id: None, expires_at: None, ..full.clone() };

        commit_with(&store, async |tx| tx.update_key(&bare).await).await.unwrap();

        let found =
            store.read().await.unwrap().find_key(&workspace, &full.id).await.unwrap().unwrap().key;
        assert!(found.name.is_none() && found.meta.is_none());
        assert!(found.identity_id.is_none() && found.expires_at.is_none());
        assert_eq!(count(&store, "identities").await, 1);
    }

    async fn deleted_key_is_not_found_and_its_hash_stays_reserved(store) {
        let key = key(&store, None).await;

        commit_with(&store, async |tx| tx.delete_key(&key.id, NOON).await).await.unwrap();

        let mut reader = store.read().await.unwrap();
        assert!(reader.find_key(&key.workspace_id, &key.id).await.unwrap().is_none());
        assert!(reader.find_key_by_hash(&key.hash).await.unwrap().is_none());
        let same = Key { id: KeyId::random(), ..key.clone() };
        let again = commit_with(&store, async |tx| tx.insert_key(&same).await).await;
        assert!(again.unwrap_err().is_unique_violation_of("keys_hash_unique"));
    }

    async fn purged_key_is_deleted_with_all_references(store) {
        let key = key(&store, None).await;
        let (permission, role) = (a_permission("documents.read"), a_role("editor", &[]));
        let workspace = &key.workspace_id;
        commit_with(&store, async |tx| {
            tx.insert_permissions(workspace, std::slice::from_ref(&permission), NOON).await?;
            tx.insert_role(workspace, &role, NOON).await?;
            tx.set_key_permissions(&key.id, std::slice::from_ref(&permission.id)).await?;
            tx.set_key_roles(&key.id, std::slice::from_ref(&role.id)).await?;
            tx.replace_ratelimits(workspace, LimitOwner::Key(&key.id), &[a_limit("requests", 1)]).await
        })
        .await
        .unwrap();

        commit_with(&store, async |tx| tx.purge_key(&key.id).await).await.unwrap();

        for table in ["keys", "key_permissions", "key_roles", "ratelimits"] {
            assert_eq!(count(&store, table).await, 0, "{table}");
        }
        assert_eq!((count(&store, "permissions").await, count(&store, "roles").await), (1, 1));
        commit_with(&store, async |tx| tx.insert_key(&key).await).await.unwrap();
    }

    async fn hash_is_unique_across_workspaces(store) {
        let (first, second) = (key(&store, None).await, workspace(&store).await);
        let same = Key { hash: first.hash.clone(), ..a_key(&second, &api(&store, &second).await) };
        let (root, twin) = (a_root_key(&second), a_root_key(&first.workspace_id));
        commit_with(&store, async |tx| tx.insert_root_key(&root, "hash").await).await.unwrap();

        let key = commit_with(&store, async |tx| tx.insert_key(&same).await).await.unwrap_err();
        let root = commit_with(&store, async |tx| tx.insert_root_key(&twin, "hash").await).await;
        let root = root.unwrap_err();

        assert!(key.is_unique_violation_of("keys_hash_unique"), "{key}");
        assert!(!key.is_unique_violation_of("root_keys_hash_unique"), "{key}");
        assert!(root.is_unique_violation_of("root_keys_hash_unique"), "{root}");
        assert!(!root.is_unique_violation_of("keys_hash_unique"), "{root}");
    }

    async fn foreign_key_violation_is_not_a_unique_violation(store) {
        let workspace = workspace(&store).await;
        let lost = a_key(&workspace, &ApiId::from("api_nowhere"));

        let refused = commit_with(&store, async |tx| tx.insert_key(&lost).await).await.unwrap_err();

        assert!(!refused.is_unique_violation_of("keys_hash_unique"), "{refused}");
        assert_eq!(count(&store, "keys").await, 0);
    }

    async fn lock_key_finds_only_existing_keys_of_its_workspace(store) {
        let (key, other) = (key(&store, Some(credits(5, None, 0))).await, workspace(&store).await);
        let deleted = key_in(&store, &key).await;
        commit_with(&store, async |tx| tx.delete_key(&deleted.id, NOON).await).await.unwrap();

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

    async fn lists_do_not_read_metadata(store) {
        let workspace = workspace(&store).await;
        let api = api(&store, &workspace).await;
        let identity = commit_with(&store, async |tx| {
            let id = tx.ensure_identity(&workspace, "user_1", None, NOON).await?;
            tx.replace_ratelimits(&workspace, LimitOwner::Identity(&id), &[a_limit("a", 1)]).await?;
            Ok(id)
        })
        .await
        .unwrap();
        let key = Key {
            name: Some(SPECIAL_TEXT.into()),
            meta: Some(meta("{\"a\":1}")),
            identity_id: Some(identity.clone()),
            owner_id: Some("user_1".into()),
            is_enabled: false,
            expires_at: Some(Timestamp(7)),
            credits: Some(credits(5, None, 0)),
            ..a_key(&workspace, &api)
        };
        commit_with(&store, async |tx| tx.insert_key(&key).await).await.unwrap();
        let used = [(key.id.clone(), Timestamp(9))];
        commit_with(&store, async |tx| tx.record_key_uses(&used).await).await.unwrap();

        for table in ["keys", "identities"] {
            execute_owned(&store, format!("ALTER TABLE {table} RENAME COLUMN meta TO unread")).await;
        }

        let mut reader = store.read().await.unwrap();
        let filter = KeyListFilter { rows_max: 2, ..KeyListFilter::default() };
        let listing = PageQuery { start: "", order: PageOrder::ById, search: String::new(), rows_max: 2 };
        let ids = std::slice::from_ref(&key.id);
        let expected = KeySummary {
            id: key.id.clone(),
            api_id: api,
            start: key.start.clone(),
            name: key.name.clone(),
            owner_id: key.owner_id.clone(),
            is_enabled: false,
            expires_at: Some(Timestamp(7)),
            is_metered: true,
            created_at: NOON,
            updated_at: None,
            last_used_at: Some(Timestamp(9)),
        };
        for keys in [
            reader.list_workspace_keys(&workspace, &filter).await.unwrap(),
            reader.list_keys_by_ids(&workspace, ids).await.unwrap(),
            reader.list_identity_keys(&workspace, &identity, &listing).await.unwrap(),
        ] {
            assert_eq!(keys, std::slice::from_ref(&expected));
        }
        let identities = reader.list_identities_by_external_id(&workspace, "", false, 2).await.unwrap();
        let summary = IdentitySummary { id: identity, external_id: "user_1".into(), limit_count: 1 };
        assert_eq!(identities, [summary]);
        reader.find_key(&workspace, &key.id).await.expect_err("it reads metadata");
    }

    async fn concurrent_updates_of_a_locked_key_are_not_lost(store) {
        let key = key(&store, None).await;
        let append = async |n: u8| {
            commit_with(&store, async |tx| {
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

        let stored = store.read().await.unwrap().find_key_by_hash(&key.hash).await.unwrap().unwrap();
        let mut letters: Vec<_> = stored.key.name.unwrap().into_bytes();
        letters.sort_unstable();
        assert_eq!(letters, b"abcdefghijklmnop");
    }
}
