//! Follows the primaries that Redis Sentinel names, in this region and in others.

use std::sync::Arc;
use std::time::Duration;

use domain::context::{Context, Regions};
use futures_util::future::join_all;
use limiter::redis::RedisCounters;

/// How often Sentinel is asked.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long Sentinel, and the primary that it names, may take to answer.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Leaves servers that are no longer the primary, until the task is stopped. Ends at once where Sentinel names none.
pub async fn follow(context: Arc<Context>) {
    let others = context.regions.iter().flat_map(Regions::others).map(|(_, other)| &**other);
    let own = context.redis.iter();
    let followed: Vec<&RedisCounters> =
        own.chain(others).filter(|counters| counters.has_sentinel()).collect();
    while !followed.is_empty() {
        tokio::time::sleep(INTERVAL).await;
        join_all(followed.iter().copied().map(follow_once)).await;
    }
}

async fn follow_once(counters: &RedisCounters) {
    match tokio::time::timeout(TIMEOUT, counters.follow_primary()).await {
        Ok(Ok(())) => {}
        Ok(Err(e)) => tracing::debug!(error = %e, "failed to ask Sentinel for the primary: {e}"),
        Err(_) => tracing::debug!("Sentinel did not answer within {} s", TIMEOUT.as_secs()),
    }
}
