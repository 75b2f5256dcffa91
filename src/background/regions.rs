//! What a replica does for the regions that it shares limits with.

use std::sync::Arc;
use std::time::Duration;

use domain::context::{Context, Regions};
use foundation::distance::CALL_TIMEOUT_MAX;
use futures_util::future::join_all;

/// How often units at rest are given back to their homes.
const GIVE_BACK_INTERVAL: Duration = Duration::from_millis(250);
/// How often the other regions are pinged, so that the distance to each is known.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// Gives units of windows that are counted in other regions back when nobody has spent them for a while.
pub async fn give_back(context: Arc<Context>) {
    let Some(redis) = &context.redis else { return };
    loop {
        tokio::time::sleep(GIVE_BACK_INTERVAL).await;
        if redis.is_breaker_open() {
            continue;
        }
        if let Err(e) = redis.give_back_rests(context.clock.fixed_time()).await {
            tracing::debug!(error = %e, "failed to give units back: {e}");
        }
    }
}

/// Pings the other regions.
pub async fn measure_distances(context: Arc<Context>) {
    let context = &context;
    loop {
        let others = context.regions.iter().flat_map(Regions::others);
        let pings = others.map(|(name, redis)| async move {
            let reply = redis.connect(CALL_TIMEOUT_MAX).await;
            if let Err(e) = &reply {
                tracing::debug!(error = %e, region = name, "failed to reach the Redis of {name}: {e}");
            }
            let round_trip = reply.ok().and_then(|()| redis.round_trip());
            context.metrics.regions.set_round_trip(name, round_trip);
        });
        join_all(pings).await;
        tokio::time::sleep(PING_INTERVAL).await;
    }
}
