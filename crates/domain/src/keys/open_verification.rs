//! Verification without a root key: limits how often one address may send keys that do not exist.
//!
//! Only lookups that reach the database are limited, so a key in use verifies however many unknown keys its address
//! has sent. Each process counts on its own, because the limit protects its own database connections.

use std::sync::Arc;

use foundation::clock::MINUTE_MS;
use foundation::error::{Error, Result, RetryAfter};
use foundation::secret::KeyHash;
use limiter::Window;

use super::find;
use crate::caller::{Cached, ClientInfo};
use crate::context::Context;
use crate::keys::Keys;
use crate::resolved_key::ResolvedKey;

/// Finds a key by hash. Fails if the client has sent too many unknown keys.
pub async fn find_limited(
    keys: &Keys,
    origin: &ClientInfo,
    hash: KeyHash,
) -> Result<Option<Arc<Cached<ResolvedKey>>>> {
    if let Some(cached) = find::peek_by_hash(keys, &hash).await {
        return Ok(cached);
    }
    let Some(window) = client_window(&keys.context, origin).map(|window| [window]) else {
        return find::find_by_hash(keys, &hash).await;
    };
    let now = keys.context.clock.now();
    let reply = keys.context.local_counters.peek_at(&window, now);
    let mut counts = reply.windows.iter().zip(&window);
    if let Some((count, window)) = counts.find(|(count, window)| !count.is_within_limit(window)) {
        return Err(Error::TooManyRequests {
            reason: "too many keys that do not exist were sent from this address",
            retry_after: RetryAfter::until(count.reset_at(window), now),
        });
    }
    let found = find::find_by_hash(keys, &hash).await?;
    if found.is_none() {
        keys.context.local_counters.consume_at(&window, keys.context.clock.now());
    }
    Ok(found)
}

/// Returns the window that counts a client. `None` if there is no limit or the client's address is unknown.
fn client_window(context: &Context, origin: &ClientInfo) -> Option<Window> {
    let limit = i64::try_from(context.settings.security.unknown_keys_per_minute).ok();
    let limit = limit.filter(|limit| *limit > 0)?;
    let network = origin.network()?;
    Some(Window::new(format!("unknown keys {network}"), limit, MINUTE_MS, 1))
}
