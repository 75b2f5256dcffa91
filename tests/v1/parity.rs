//! One state of things, whichever version made it and whichever tells it.

mod keys;
mod limits;
mod rights;
mod verification;

use serde_json::{Value, json};

use crate::support::Keyward;

const MINUTE: i64 = 60_000;

/// Changes these fields of a key by version 1.
async fn update_v1(kw: &Keyward, id: &str, mut fields: Value) {
    fields["keyId"] = id.into();
    assert_eq!(*kw.v1("keys.updateKey", fields).await.v1_body(), json!({}));
}
