//! Tests permissions and roles, and their assignments to keys.

use std::time::Duration;

use foundation::model::{RoleSummary, RoleWithPermissionCount};
use store::{PageOrder, PageQuery};

use super::*;

on_both_stores! {
    async fn permissions_are_found_by_slug_in_order(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let odd =
            Permission { name: SPECIAL_TEXT.into(), description: Some(SPECIAL_TEXT.into()), ..a_permission("b") };
        let all = [a_permission("c"), odd.clone(), a_permission("B"), a_permission("a.*")];
        commit_with(&store, async |tx| {
            tx.insert_permissions(&workspace, &all, NOON).await?;
            tx.insert_permissions(&other, &[a_permission("d"), a_permission("b")], NOON).await
        })
        .await
        .unwrap();

        let slugs = ["d", "b", "B", "c", "A.*", "a", "b"].map(str::to_owned);
        let mut reader = store.read().await.unwrap();
        let found = reader.list_permissions_by_slugs(&workspace, &slugs).await.unwrap();
        let none = reader.list_permissions_by_slugs(&workspace, &[]).await.unwrap();

        assert_eq!(found, [all[2].clone(), odd, all[0].clone()]);
        assert!(none.is_empty());
    }

    async fn list_of_roles_with_a_permission_does_not_read_permissions(store) {
        let workspace = workspace(&store).await;
        let permissions = [a_permission("a"), a_permission("b")];
        let role = a_role("reader", &permissions);
        commit_with(&store, async |tx| {
            tx.insert_permissions(&workspace, &permissions, NOON).await?;
            tx.insert_role(&workspace, &role, NOON).await
        })
        .await
        .unwrap();
        execute(&store, "ALTER TABLE permissions RENAME COLUMN name TO unread").await;

        let mut reader = store.read().await.unwrap();
        let listing = PageQuery { start: "", order: PageOrder::ById, search: String::new(), rows_max: 2 };
        let found = reader.list_roles_with_permission(&workspace, &permissions[0].id, &listing).await.unwrap();

        let summary = RoleSummary { id: role.id, name: role.name, description: None };
        assert_eq!(found, [RoleWithPermissionCount { role: summary, permission_count: 2 }]);
    }

    async fn insert_adds_only_permissions_with_unused_slugs(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let insert = async |workspace: &WorkspaceId, slugs: &[&str]| {
            let permissions: Vec<_> = slugs.iter().map(|slug| a_permission(slug)).collect();
            let act =
                async |tx: &mut Tx| tx.insert_permissions(workspace, &permissions, NOON).await;
            let mut added = commit_with(&store, act).await.unwrap();
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

    async fn insert_keeps_existing_permission(store) {
        let workspace = workspace(&store).await;
        let (first, second) =
            (a_permission("a"), Permission { name: "n".into(), ..a_permission("a") });
        for permission in [&first, &second] {
            let list = std::slice::from_ref(permission);
            commit_with(&store, async |tx| tx.insert_permissions(&workspace, list, NOON).await)
                .await
                .unwrap();
        }

        let found = store.read().await.unwrap().list_permissions_by_slugs(&workspace, &["a".into()]).await;

        assert_eq!(found.unwrap(), [first]);
    }

    async fn permission_is_inserted_once_when_inserts_are_concurrent(store) {
        let workspace = workspace(&store).await;
        let make = async |permission: Permission| {
            let list = [permission, a_permission("shared")];
            commit_with(&store, async |tx| tx.insert_permissions(&workspace, &list, NOON).await).await
        };

        let added = join_all((0..8).map(|n| make(a_permission(&format!("own.{n}"))))).await;

        let added: Vec<_> = added.into_iter().flat_map(Result::unwrap).collect();
        assert_eq!(added.iter().filter(|slug| *slug == "shared").count(), 1);
        assert_eq!(count(&store, "permissions").await, 9);
    }

    async fn roles_are_found_by_id_and_name_with_permissions(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let permissions = ["c", "B", "b", "unused"].map(a_permission);
        let [c, b, small_b, _] = permissions.clone();
        let editor = Role {
            description: Some(SPECIAL_TEXT.into()),
            ..a_role(SPECIAL_TEXT, &[c.clone(), b.clone(), small_b.clone()])
        };
        let (reader, shouted) = (a_role("reader", std::slice::from_ref(&c)), a_role("Reader", &[]));
        let foreign = a_role("reader", &[]);
        commit_with(&store, async |tx| {
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
        let by_id = connection.list_roles_by_ids(&workspace, &ids).await.unwrap();
        let names = ["reader", "READER", "nobody", SPECIAL_TEXT].map(str::to_owned);
        let by_name = connection.list_roles_by_names(&workspace, &names).await.unwrap();

        let editor = Role { permissions: vec![b, small_b, c], ..editor };
        assert_eq!(by_id, [editor.clone(), shouted, reader.clone()]);
        assert_eq!(by_name, [editor, reader]);
        assert!(connection.list_roles_by_ids(&workspace, &[]).await.unwrap().is_empty());
        assert!(connection.list_roles_by_names(&workspace, &[]).await.unwrap().is_empty());
    }

    async fn role_name_is_unique_in_a_workspace(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        let insert = async |workspace: &WorkspaceId, name: &str| {
            let role = a_role(name, &[]);
            commit_with(&store, async |tx| tx.insert_role(workspace, &role, NOON).await).await
        };
        insert(&workspace, "editor").await.unwrap();

        let taken = insert(&workspace, "editor").await.unwrap_err();

        assert!(taken.is_unique_violation_of("roles_name_unique"), "{taken}");
        assert!(!taken.is_unique_violation_of("permissions_slug_unique"), "{taken}");
        insert(&workspace, "Editor").await.unwrap();
        insert(&other, "editor").await.unwrap();
    }

    async fn duplicate_role_id_is_not_reported_as_duplicate_name(store) {
        let key = key(&store, None).await;
        let workspace = &key.workspace_id;
        let (role, permission) = (a_role("editor", &[]), a_permission("documents.read"));
        commit_with(&store, async |tx| {
            tx.insert_role(workspace, &role, NOON).await?;
            tx.insert_permissions(workspace, std::slice::from_ref(&permission), NOON).await
        })
        .await
        .unwrap();

        let same = Key { hash: "another".into(), ..key.clone() };
        let same = commit_with(&store, async |tx| tx.insert_key(&same).await).await.unwrap_err();
        let role = Role { name: "another".into(), ..role };
        let role = commit_with(&store, async |tx| tx.insert_role(workspace, &role, NOON).await).await;
        let permission = [Permission { slug: "another".into(), ..permission }];
        let insert = async |tx: &mut Tx| tx.insert_permissions(workspace, &permission, NOON).await;
        let permission = commit_with(&store, insert).await;

        assert!(!same.is_unique_violation_of("keys_hash_unique"), "{same}");
        assert!(!role.unwrap_err().is_unique_violation_of("roles_name_unique"));
        assert!(!permission.unwrap_err().is_unique_violation_of("permissions_slug_unique"));
    }

    async fn permissions_of_a_key_are_replaced(store) {
        let key = key(&store, None).await;
        let all = ["c", "B", "b"].map(a_permission);
        let [c, b, small_b] = all.clone();
        let set = async |permissions: &[&Permission]| {
            let ids: Vec<_> = permissions.iter().map(|p| p.id.clone()).collect();
            let act = async |tx: &mut Tx| tx.set_key_permissions(&key.id, &ids).await;
            commit_with(&store, act).await.unwrap();
            store.read().await.unwrap().find_key_by_hash(&key.hash).await.unwrap().unwrap().permissions
        };
        commit_with(&store, async |tx| tx.insert_permissions(&key.workspace_id, &all, NOON).await)
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
            commit_with(&store, async |tx| tx.set_key_roles(&key.id, ids).await).await.unwrap();
            let stored = store.read().await.unwrap().find_key_by_hash(&key.hash).await.unwrap();
            let mut ids = stored.unwrap().role_ids;
            ids.sort();
            ids
        };
        commit_with(&store, async |tx| {
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

    async fn assignment_is_skipped_when_target_is_deleted_concurrently(store) {
        let key = key(&store, None).await;
        let (permissions, role) = (["a", "b"].map(a_permission), a_role("editor", &[]));
        commit_with(&store, async |tx| {
            tx.insert_permissions(&key.workspace_id, &permissions, NOON).await?;
            tx.insert_role(&key.workspace_id, &role, NOON).await
        })
        .await
        .unwrap();
        let [gone, stays] = permissions;
        let ids = [gone.id.clone(), stays.id.clone()];
        let delete = async {
            let mut tx = store.begin().await?;
            tx.delete_permission(&key.workspace_id, &gone.id).await?;
            tx.delete_role(&key.workspace_id, &role.id).await?;
            // Long enough for the other transactions to wait for the deletion.
            tokio::time::sleep(Duration::from_millis(200)).await;
            tx.commit().await
        };
        let link = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            commit_with(&store, async |tx| {
                tx.set_key_permissions(&key.id, &ids).await?;
                tx.set_key_roles(&key.id, std::slice::from_ref(&role.id)).await
            })
            .await
        };

        let (deleted, linked) = tokio::join!(delete, link);

        deleted.unwrap();
        linked.unwrap();
        let found = store.read().await.unwrap().find_key_by_hash(&key.hash).await.unwrap().unwrap();
        assert_eq!((found.permissions, found.role_ids), (vec![stays], vec![]));
    }
}
