//! Runs operations for a caller in this process, such as an operator at the command line, with the bounds, the errors and the
//! replies of version 2.

use std::pin::pin;

use domain::app::App;
use domain::caller::Caller;
use foundation::error::{Error, Result};
use request::body::with_timeout;
use serde_json::Value;

use super::Operation;
use super::decode::decode;
use super::reply::Reply as _;
use super::v2::V2;

/// Runs an operation and returns its reply as JSON: null if it has no data.
pub async fn run_operation<O: Operation>(
    app: &App,
    caller: &Caller,
    request: &Value,
) -> Result<Value> {
    let operation: O = decode_request(request)?;
    let reply = with_timeout(O::TIMEOUT, pin!(operation.run(app, caller))).await;
    let reply = reply.unwrap_or(Err(Error::StoreTimeout(O::TIMEOUT.as_secs())))?;
    let mut json = Vec::new();
    let written = reply.write(&mut json);
    let failed = |e| Error::Internal(format!("failed to render the reply: {e}"));
    written.map_err(failed)?;
    if json.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&json).map_err(failed)
}

/// Validates a request without running its operation.
pub fn validate_request<O: Operation>(request: &Value) -> Result<()> {
    decode_request::<O>(request).map(drop)
}

fn decode_request<O: Operation>(request: &Value) -> Result<O> {
    let body = request.to_string();
    if body.len() > O::BODY_MAX_BYTES {
        return Err(Error::BodyTooLarge(O::BODY_MAX_BYTES));
    }
    decode::<V2, O>(body.as_bytes())
}
