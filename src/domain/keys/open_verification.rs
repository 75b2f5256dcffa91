//! Verification for anybody: how often one address may ask for keys that do not exist.
//!
//! Only what the database would have to be asked about is looked at, so a key that is in use verifies however
//! many others its address has asked for. Each process counts for itself: it is its own database connections
//! that are protected.

use std::sync::Arc;

use foundation::error::{Error, Result};
use foundation::secret::KeyHash;
use limiter::Window;

use super::super::caller::{Cached, ClientInfo};
use super::resolved::{self, ResolvedKey};
use crate::app::App;

const MINUTE_MS: i64 = 60_000;

/// The key that has this hash; an error for who has asked for too many in vain.
pub async fn find(
    app: &App,
    origin: &ClientInfo,
    hash: KeyHash,
) -> Result<Option<Arc<Cached<ResolvedKey>>>> {
    if let Some(known) = app.caches.resolved_keys.peek(&hash).await {
        return Ok(known);
    }
    let Some(window) = window(app, origin).map(|window| [window]) else {
        return resolved::find_by_hash(app, hash).await;
    };
    let seen = app.local_counters.peek_at(&window, app.clock.now());
    if seen.windows.iter().zip(&window).any(|(counted, window)| !counted.passed(window)) {
        return Err(Error::TooManyRequests(
            "too many keys that do not exist were asked for from here",
        ));
    }
    let found = resolved::find_by_hash(app, hash).await?;
    if found.is_none() {
        app.local_counters.consume_at(&window, app.clock.now());
    }
    Ok(found)
}

/// Absent: nobody is counted, or nobody knows who asks.
fn window(app: &App, origin: &ClientInfo) -> Option<Window> {
    let limit = i64::try_from(app.settings.security.unknown_keys_per_minute).ok();
    let limit = limit.filter(|limit| *limit > 0)?;
    let network = origin.network()?;
    Some(Window::new(format!("strangers {network}"), limit, MINUTE_MS, 1))
}
