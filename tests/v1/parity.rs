//! One state of things, whichever version made it and whichever tells it.

mod keys;
mod limits;
mod rights;
mod verification;

use serde_json::{Value, json};

use crate::support::Keyward;
use crate::support::seed::IssuedKey;

const MINUTE: i64 = 60_000;

/// What version 1 tells of a key.
async fn read_v1(kw: &Keyward, id: &str) -> Value {
    kw.v1_get("keys.getKey", &format!("keyId={id}")).await.v1_body().clone()
}

/// A key that version 1 makes in this API.
async fn key_v1(kw: &Keyward, api: &str, mut fields: Value) -> IssuedKey {
    fields["apiId"] = api.into();
    let made = kw.v1("keys.createKey", fields).await;
    let text = |field: &str| made.v1_body()[field].as_str().unwrap().to_owned();
    IssuedKey { id: text("keyId"), key: text("key") }
}

/// Changes these fields of a key by version 1.
async fn update_v1(kw: &Keyward, id: &str, mut fields: Value) {
    fields["keyId"] = id.into();
    assert_eq!(*kw.v1("keys.updateKey", fields).await.v1_body(), json!({}));
}

/// Changes these fields of a key by version 2.
async fn update_v2(kw: &Keyward, id: &str, fields: Value) {
    kw.update_key(id, fields).await.data();
}
