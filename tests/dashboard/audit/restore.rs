//! Tests the bounds of undone deletions.

use domain::migrations;
use domain::root_keys::default_workspace;
use foundation::model::Algorithm;
use foundation::secret::KeyHash;
use serde_json::json;

use super::super::{Browser, redirect_path};
use super::undo::undo;
use super::{entries, entry};
use crate::on_both_stacks;

on_both_stacks! {
    async fn assignment_is_removed_when_restored_ones_exceed_the_maximum(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        for (kind, list, max) in [("role", "roles", 100), ("permission", "permissions", 1_000)] {
            let capitalized = |text: &str| text[..1].to_uppercase() + &text[1..];
            let names: Vec<_> = (1..=max + 2).map(|n| format!("{kind}.{n}")).collect();
            if kind == "role" {
                for name in &names {
                    kw.create_role(name, []).await;
                }
            }
            let key = kw.create_key(json!({ list: names[..max] })).await;
            for name in &names[..2] {
                let delete = format!("permissions.delete{}", capitalized(kind));
                kw.v2(&delete, json!({ kind: name })).await.data();
            }
            let (add, remove) = (format!("keys.add{}", capitalized(list)), format!("keys.remove{}", capitalized(list)));
            kw.v2(&add, json!({ "keyId": key.id, list: names[max..] })).await.data();
            for path in entries(&mut owner, &format!("{kind}.delete")).await {
                redirect_path(&owner.post(&format!("{path}/undo"), &[]).await);
            }

            let removed = kw.v2(&remove, json!({ "keyId": key.id, list: [names[4]] })).await;

            assert_eq!(removed.data().as_array().unwrap().len(), max + 1, "{list}");
            let added = kw.v2(&add, json!({ "keyId": key.id, list: [names[4]] })).await;
            added.assert_error(412, "precondition_failed");
        }
    }

    async fn deletion_is_undone_once_when_undone_concurrently(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.create_role("reader", []).await;
        kw.create_permission("docs.read").await;
        kw.create_identity("user_1", json!({})).await;
        let (key, api) = (kw.create_key(json!({})).await, kw.create_api().await);
        for (operation, request) in [
            ("permissions.deleteRole", json!({ "role": "reader" })),
            ("permissions.deletePermission", json!({ "permission": "docs.read" })),
            ("identities.deleteIdentity", json!({ "identity": "user_1" })),
            ("keys.deleteKey", json!({ "keyId": key.id })),
            ("apis.deleteApi", json!({ "apiId": api })),
        ] {
            kw.v2(operation, request).await.data();
        }
        for event in ["role.delete", "permission.delete", "identity.delete", "key.delete", "api.delete"] {
            let path = entry(&mut owner, event).await;
            let visitor = || Browser {
                kw: &kw,
                cookies: owner.cookies.clone(),
                csrf: owner.csrf.clone(),
                forwarded: None,
            };
            let action = format!("{path}/undo");

            let tries = (0..4).map(|_| async { visitor().post(&action, &[]).await });
            let mut replies = futures_util::future::join_all(tries).await;

            replies.sort_unstable_by_key(|reply| reply.status);
            let statuses: Vec<_> = replies.iter().map(|reply| reply.status.as_u16()).collect();
            assert_eq!(statuses, [303, 422, 422, 422], "{event}");
            for reply in &replies[1..] {
                assert!(reply.text.contains("this entry has already been undone"), "{event}: {reply}");
            }
        }
    }

    async fn restored_role_of_very_many_keys_is_one_change(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.create_role("reader", ["docs.read"]).await;
        let (context, workspace) = (&kw.app.context, default_workspace());
        let migration = migrations::create_as_operator(context, &workspace, Algorithm::Sha256, None);
        let migration = migration.await.expect("a migration").id;
        let key = |n: usize| json!({ "hash": KeyHash::compute(format!("key_{n}")).to_base64(), "roles": ["reader"] });
        let keys: Vec<_> = (0..1_001).map(key).collect();
        let import = json!({ "migrationId": migration.as_str(), "apiId": kw.create_api().await, "keys": keys });
        kw.v2("keys.migrateKeys", import).await.data();
        let may_read = || kw.verify_with("key_7", json!({ "permissions": "docs.read" }));
        kw.v2("permissions.deleteRole", json!({ "role": "reader" })).await.data();
        may_read().await.assert_code("INSUFFICIENT_PERMISSIONS");
        let before = kw.count_rows("changes").await;

        undo(&mut owner, "role.delete").await;

        assert!(kw.count_rows("changes").await < before + 10);
        may_read().await.assert_code("VALID");
    }
}
