//! Parses what all interfaces read of a request in the same way: the client address, and the body and its JSON within
//! bounds.

pub mod address;
pub mod body;
pub mod json_depth;

use axum::http::HeaderMap;
use axum::http::header::USER_AGENT;

pub use address::PEER;

/// The maximum length of a user agent in the audit log.
const USER_AGENT_MAX: usize = 512;

/// Returns the user agent of the client.
pub fn user_agent(headers: &HeaderMap) -> Option<Box<str>> {
    let text = headers.get(USER_AGENT)?.to_str().ok()?;
    // The text is ASCII, so it can be cut anywhere.
    Some(text.get(..USER_AGENT_MAX).unwrap_or(text).into())
}
