//! What every door reads of a request, in the same way: where it comes from, and its body within bounds.

pub mod address;
pub mod body;

use axum::http::HeaderMap;
use axum::http::header::USER_AGENT;

pub use address::PEER;

/// As much of a user agent as the audit log keeps.
const USER_AGENT_MAX: usize = 512;

/// The program that asks, as it calls itself.
pub fn user_agent(headers: &HeaderMap) -> Option<Box<str>> {
    let text = headers.get(USER_AGENT)?.to_str().ok()?;
    // Such a text is ASCII, so it can be cut anywhere.
    Some(text.get(..USER_AGENT_MAX).unwrap_or(text).into())
}
