//! Tests that a page ends early when its items have many bytes, and that no item is left out. Lists of the dashboard show none of
//! these, and do not read them.

use domain::root_keys::default_workspace;
use foundation::id::{PermissionId, RoleId};
use foundation::model::{Permission, Role};
use serde_json::{Value, json};

use crate::dashboard::{Browser, workspace_path};
use crate::on_both_stacks;
use crate::support::{Keyward, NOON, Stack};

/// Returns the number of items of each page of a list, and the ids of all.
async fn list_pages(
    kw: &Keyward,
    operation: &str,
    mut request: Value,
    id: &str,
) -> (Vec<usize>, Vec<String>) {
    let (mut counts, mut ids) = (Vec::new(), Vec::new());
    loop {
        let reply = kw.v2(operation, request.clone()).await;
        let items = reply.data().as_array().expect("a list");
        counts.push(items.len());
        ids.extend(items.iter().map(|item| item[id].as_str().expect("an id").to_owned()));
        let pagination = &reply.body["pagination"];
        if pagination["hasMore"] == false {
            return (counts, ids);
        }
        request["cursor"] = pagination["cursor"].clone();
    }
}

/// Creates roles with the same 1,000 permissions, whose texts are as long as possible. Each role has 4 MB. Returns their ids.
async fn create_large_roles(kw: &Keyward, names: &[&str]) -> Vec<String> {
    let text = "\u{1F511}".repeat(512);
    let permission = |n: i32| Permission {
        id: PermissionId::random(),
        slug: format!("docs.{n}"),
        name: text.clone(),
        description: Some(text.clone()),
    };
    let permissions: Vec<_> = (0..1_000).map(permission).collect();
    let workspace = default_workspace();
    let mut tx = kw.store().begin().await.unwrap();
    tx.insert_permissions(&workspace, &permissions, NOON).await.unwrap();
    let mut ids = Vec::new();
    for name in names {
        let role = Role {
            id: RoleId::random(),
            name: (*name).to_owned(),
            description: None,
            permissions: permissions.clone(),
        };
        tx.insert_role(&workspace, &role, NOON).await.unwrap();
        ids.push(role.id.to_string());
    }
    kw.app.context.commit(tx).await.unwrap();
    ids.sort();
    ids
}

async fn create_large_identity(kw: &Keyward, external_id: &str) -> String {
    kw.create_identity(external_id, json!({ "meta": { "a": "x".repeat(1_000_000) } })).await
}

on_both_stacks! {
    async fn page_of_roles_and_keys_ends_early_when_they_have_many_permissions(kw) {
        let roles = create_large_roles(&kw, &["a", "b", "c", "d", "e"]).await;
        let api = kw.create_api().await;
        let mut keys = Vec::new();
        for _ in 0..3 {
            keys.push(kw.create_key_in(&api, json!({ "roles": ["a"] })).await.id);
        }
        keys.sort();

        let found_roles = list_pages(&kw, "permissions.listRoles", json!({}), "id").await;
        let found_keys = list_pages(&kw, "apis.listKeys", json!({ "apiId": api }), "keyId").await;

        assert_eq!(found_roles, (vec![2, 2, 1], roles));
        assert_eq!(found_keys, (vec![2, 1], keys));
    }

    async fn page_of_identities_and_keys_ends_early_when_metadata_is_large(kw) {
        let mut identities = Vec::new();
        for n in 0..10 {
            identities.push(create_large_identity(&kw, &format!("user_{n}")).await);
        }
        identities.sort();
        let api = kw.create_api().await;
        let mut keys = Vec::new();
        for _ in 0..10 {
            keys.push(kw.create_key_in(&api, json!({ "externalId": "user_0" })).await.id);
        }
        keys.sort();
        let of_user = json!({ "apiId": api, "externalId": "user_0" });

        let found_identities = list_pages(&kw, "identities.listIdentities", json!({}), "id").await;
        let found_keys = list_pages(&kw, "apis.listKeys", of_user, "keyId").await;

        assert_eq!(found_identities, (vec![8, 2], identities));
        assert_eq!(found_keys, (vec![8, 2], keys));
    }

    async fn dashboard_lists_keys_and_identities_without_their_metadata(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.create_permission("docs.read").await;
        let identity = kw.create_identity("user_1", json!({ "meta": { "a": 1 } })).await;
        let key = json!({ "externalId": "user_1", "permissions": ["docs.read"], "meta": { "a": 1 } });
        let key = kw.create_key(key).await.id;
        let lists = [
            ("/keys".to_owned(), &key),
            ("/keys?q=user_1".to_owned(), &key),
            ("/which-keys?slug=docs.read".to_owned(), &key),
            (format!("/identities/{identity}"), &key),
            ("/identities".to_owned(), &identity),
        ];

        for (path, listed) in &lists {
            // The page of an identity shows its metadata.
            let table = if **listed == key { "keys" } else { "identities" };
            // A connection of SQLite renames a column that another one has renamed once it has read the table.
            let read = match kw.stack {
                Stack::Embedded => format!("SELECT 1 FROM {table};"),
                Stack::Replica => String::new(),
            };
            let rename = |from: &str, to: &str| format!("{read} ALTER TABLE {table} RENAME COLUMN {from} TO {to}");
            kw.execute_sql(rename("meta", "unread")).await;
            let page = owner.get(&workspace_path(path)).await;
            kw.execute_sql(rename("unread", "meta")).await;
            assert!(page.status == 200 && page.text.contains(*listed), "{path}: {}", page.text);
        }
    }
}
