//! What a replica does for the regions that it shares limits with.

use std::sync::Arc;
use std::time::Duration;

use domain::context::{Context, find_misplaced_redis};
use domain::health;

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

/// Pings the other regions, and checks that each address leads to the Redis of its region.
pub async fn watch(context: Arc<Context>) {
    let (context, mut misplaced) = (&context, None);
    loop {
        for region in health::check_regions(context).await {
            let round_trip = region.round_trip.filter(|_| region.is_reachable);
            context.metrics.regions.set_round_trip(&region.name, round_trip);
        }
        let found = find_misplaced_redis(context).await;
        if let Some(found) = found.as_ref().filter(|found| misplaced.as_ref() != Some(*found)) {
            tracing::error!("limits may be counted twice: {found}");
        }
        misplaced = found;
        tokio::time::sleep(PING_INTERVAL).await;
    }
}
