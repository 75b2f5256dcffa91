//! No invalidation is lost.

use std::sync::Arc;

use serde_json::json;

use crate::support::{Keyward, Stack};

/// The race that loses invalidations: a load is under way while the key is revoked.
#[tokio::test]
async fn a_load_under_way_never_puts_a_revoked_key_back() {
    for stack in [Stack::Embedded, Stack::Replica] {
        let kw = Arc::new(Keyward::start(stack).await);
        let api = kw.api().await;
        for _ in 0..60 {
            let key = kw.key_in(&api, json!({})).await;
            let loads: Vec<_> = (0..4)
                .map(|_| {
                    let (kw, key) = (kw.clone(), key.key.clone());
                    tokio::spawn(async move { kw.verify(&key).await })
                })
                .collect();
            kw.v2("keys.updateKey", json!({ "keyId": key.id, "enabled": false })).await.data();

            kw.verify(&key.key).await.is("DISABLED");
            for load in loads {
                load.await.unwrap().data();
            }
            kw.verify(&key.key).await.is("DISABLED");
        }
    }
}
