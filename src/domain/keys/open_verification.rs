//! Verification without a root key: limits how often one address may send keys that do not exist.
//!
//! Only lookups that reach the database are limited, so a key in use verifies however many unknown keys its address
//! has sent. Each process counts on its own, because the limit protects its own database connections.

use std::sync::Arc;

use foundation::error::{Error, Result};
use foundation::secret::KeyHash;
use limiter::Window;

use super::super::caller::{Cached, ClientInfo};
use super::resolved::{self, ResolvedKey};
use crate::app::App;

const MINUTE_MS: i64 = 60_000;

/// Finds a key by hash. Fails if the client has sent too many unknown keys.
pub async fn find_limited(
    app: &App,
    origin: &ClientInfo,
    hash: KeyHash,
) -> Result<Option<Arc<Cached<ResolvedKey>>>> {
    if let Some(cached) = app.caches.resolved_keys.peek(&hash).await {
        return Ok(cached);
    }
    let Some(window) = client_window(app, origin).map(|window| [window]) else {
        return resolved::find_by_hash(app, hash).await;
    };
    let reply = app.local_counters.peek_at(&window, app.clock.now());
    if reply.windows.iter().zip(&window).any(|(count, window)| !count.is_within_limit(window)) {
        return Err(Error::TooManyRequests(
            "too many keys that do not exist were sent from this address; retry later",
        ));
    }
    let found = resolved::find_by_hash(app, hash).await?;
    if found.is_none() {
        app.local_counters.consume_at(&window, app.clock.now());
    }
    Ok(found)
}

/// Returns the window that counts a client. `None` if there is no limit or the client's address is unknown.
fn client_window(app: &App, origin: &ClientInfo) -> Option<Window> {
    let limit = i64::try_from(app.settings.security.unknown_keys_per_minute).ok();
    let limit = limit.filter(|limit| *limit > 0)?;
    let network = origin.network()?;
    Some(Window::new(format!("unknown keys {network}"), limit, MINUTE_MS, 1))
}
