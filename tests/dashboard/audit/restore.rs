//! Tests the bounds of undone deletions.

use serde_json::json;

use super::super::{Browser, redirect_path};
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
            let undo = format!("{path}/undo");

            let tries = (0..4).map(|_| async { visitor().post(&undo, &[]).await });
            let mut replies = futures_util::future::join_all(tries).await;

            replies.sort_unstable_by_key(|reply| reply.status);
            let statuses: Vec<_> = replies.iter().map(|reply| reply.status.as_u16()).collect();
            assert_eq!(statuses, [303, 422, 422, 422], "{event}");
            for reply in &replies[1..] {
                assert!(reply.text.contains("this entry has already been undone"), "{event}: {reply}");
            }
        }
    }
}
