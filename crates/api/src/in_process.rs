//! Runs operations for a caller in this process, such as an operator at the command line, with the bounds, the errors and the
//! replies of version 2.
//!
//! An operation is found by its name: so it is compiled here, for the API, and not again where it is called.

use domain::app::App;
use domain::caller::Caller;
use foundation::error::{Error, Result};
use http_body_util::BodyExt as _;
use serde_json::Value;

use super::import_keys::ImportKeys;
use super::serve::ServedOperation;
use super::{Operation as _, v2};

/// Runs the operation of this name, with the JSON of a request as its body. Returns the data of the reply: null if it has
/// none.
pub async fn run_operation(app: &App, caller: &Caller, name: &str, body: String) -> Result<Value> {
    let response = find_operation(name)?.run_for(app, caller.clone(), body.into()).await?;
    // The body is in memory, so collecting it does not fail.
    let reply = response.into_body().collect().await.unwrap_or_default().to_bytes();
    let reply: Value = serde_json::from_slice(&reply)
        .map_err(|e| Error::Internal(format!("failed to read the reply: {e}")))?;
    Ok(reply.get("data").cloned().unwrap_or_default())
}

/// Validates a request without running its operation.
pub fn validate_request(name: &str, body: &str) -> Result<()> {
    find_operation(name)?.validate(body.as_bytes())
}

fn find_operation(name: &str) -> Result<&'static ServedOperation> {
    // It has no route, so it is not in the table.
    if name == ImportKeys::NAME {
        return Ok(const { &ServedOperation::new::<v2::V2, ImportKeys>() });
    }
    let mut operations = v2::operation_table().operations.into_iter();
    let found = operations.find(|operation| operation.name == name);
    found
        .map(|operation| operation.served)
        .ok_or_else(|| Error::Internal(format!("version 2 of the API has no operation {name}")))
}
