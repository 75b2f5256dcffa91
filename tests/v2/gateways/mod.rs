//! Operations on gateway policies.

mod create_policy;
mod delete_policy;
mod get_policy;
mod list_policies;
mod rotate_secret;
mod update_policy;

use serde_json::{Value, json};

use crate::support::{Keyward, Reply};

/// Creates a policy named `edge` of a new API, with these fields.
async fn create(kw: &Keyward, fields: Value) -> Reply {
    let mut request = json!({ "name": "edge", "apiIds": [kw.create_api().await] });
    request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    kw.v2("gateways.createPolicy", request).await
}
