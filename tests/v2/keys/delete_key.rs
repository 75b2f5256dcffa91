use serde_json::json;

use crate::on_both_stacks;
use crate::support::Keyward;
use crate::support::seed::IssuedKey;

/// A key with something of everything that can hang on one.
async fn laden_key(kw: &Keyward) -> IssuedKey {
    kw.create_role("editor", []).await;
    kw.create_permission("documents.read").await;
    kw.create_key(json!({
        "externalId": "user_1", "roles": ["editor"], "permissions": ["documents.read"],
        "ratelimits": [{ "name": "requests", "limit": 1, "duration": 1000 }],
    }))
    .await
}

/// The rows of a key and of what hangs on it.
async fn rows(kw: &Keyward) -> [i64; 4] {
    [
        kw.count_rows("keys").await,
        kw.count_rows("ratelimits").await,
        kw.count_rows("key_roles").await,
        kw.count_rows("key_permissions").await,
    ]
}

on_both_stacks! {
    async fn unless_it_is_permanent_the_rows_stay(kw) {
        let key = laden_key(&kw).await;
        let before = rows(&kw).await;
        kw.v2("keys.deleteKey", json!({ "keyId": key.id })).await.data();
        assert_eq!((before, rows(&kw).await), ([1, 1, 1, 1], [1, 1, 1, 1]));
    }

    async fn a_permanent_deletion_leaves_no_trace_of_the_key(kw) {
        let key = laden_key(&kw).await;

        kw.v2("keys.deleteKey", json!({ "keyId": key.id, "permanent": true })).await.data();

        assert_eq!(rows(&kw).await, [0, 0, 0, 0]);
        for table in ["identities", "roles", "permissions", "apis"] {
            assert_eq!(kw.count_rows(table).await, 1, "{table}");
        }
    }
}
