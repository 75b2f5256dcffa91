//! Introspection: the verification of a key for an OAuth resource server.

use std::net::IpAddr;

use foundation::error::Result;
use foundation::secret::Plaintext;

use super::verify::{VerifyRequest, VerifyResult, verify};
use crate::caller::Caller;
use crate::keys::Keys;
use crate::permission::Action;

/// A request to introspect a key.
#[derive(Debug)]
pub struct IntrospectRequest {
    pub key: Plaintext,
    /// The credits to spend. Absent: none are spent, and no limit is consumed.
    pub cost: Option<i64>,
    /// The address that uses the key. Absent: the address of the request.
    pub address: Option<IpAddr>,
}

/// Verifies a key as [`verify`] does. Without a cost, it only peeks.
pub async fn introspect(
    keys: &Keys,
    caller: &Caller,
    request: IntrospectRequest,
) -> Result<VerifyResult> {
    caller.require_on_any(Action::VerifyKey)?;
    let request = VerifyRequest {
        key: request.key,
        api: None,
        permissions: None,
        cost: Some(request.cost.unwrap_or(0)),
        ratelimits: Vec::new(),
        auto_applies_limits: request.cost.is_some(),
        address: request.address,
        migration: None,
        tags: Vec::new(),
        is_refused_by_policy: false,
    };
    verify(keys, caller, request).await
}
