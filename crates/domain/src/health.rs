//! The state of the dependencies: the database, Redis, other regions and ClickHouse.

use std::sync::atomic::Ordering;
use std::time::Duration;

use analytics::Analytics;
use foundation::clock::Monotonic;
use foundation::distance::CALL_TIMEOUT_MAX;
use foundation::metrics::ServerStatus;
use futures_util::future::join_all;
use limiter::redis::RedisCounters;
use store::Store;

use crate::context::{Context, Regions};

/// The result that `/readyz` reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// Whether the database has responded recently; it is not queried again.
    pub is_database_reachable: bool,
    /// Whether Redis responds. True without Redis.
    pub is_redis_reachable: bool,
    /// The shortest round trips of the last seconds. `None` before the first reply, and in an embedded server.
    pub database_round_trip: Option<Duration>,
    pub redis_round_trip: Option<Duration>,
}

/// Checks Redis with a ping, with the timeout of a request, and returns the state of the dependencies.
pub async fn check_health(context: &Context) -> Health {
    if let Some(redis) = &context.redis {
        context.redis_reachable.store(redis.ping().await.is_ok(), Ordering::Relaxed);
    }
    last_known_health(context)
}

/// The state of another region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionHealth {
    pub name: String,
    /// Whether its Redis responds.
    pub is_reachable: bool,
    /// The shortest round trip of the last seconds. `None` before the first reply.
    pub round_trip: Option<Duration>,
}

/// Checks the Redis of every other region with a ping.
pub async fn check_regions(context: &Context) -> Vec<RegionHealth> {
    let others = context.regions.iter().flat_map(Regions::others);
    let checks = others.map(|(name, redis)| async move {
        let is_reachable = redis.connect(CALL_TIMEOUT_MAX).await.is_ok();
        RegionHealth { name: name.to_owned(), is_reachable, round_trip: redis.round_trip() }
    });
    join_all(checks).await
}

/// Returns the last known state without a call. For Redis it is the result of the last heartbeat, which a replica
/// sends every second.
pub fn last_known_health(context: &Context) -> Health {
    let counters = match &context.redis {
        None => true,
        Some(_) => context.redis_reachable.load(Ordering::Relaxed),
    };
    Health {
        is_database_reachable: context.freshness.is_database_reachable(Monotonic::now()),
        is_redis_reachable: counters,
        database_round_trip: context.redis.as_ref().and(context.database_distance.round_trip()),
        redis_round_trip: context.redis.as_ref().and_then(RedisCounters::round_trip),
    }
}

/// Returns the state of the server for `/metrics`, without a call to a dependency.
pub fn server_status(context: &Context, analytics: &Analytics) -> ServerStatus {
    let health = last_known_health(context);
    let (connections_used, connections_idle) =
        context.store.store().map_or((0, 0), Store::connections);
    ServerStatus {
        is_database_reachable: health.is_database_reachable,
        is_redis_reachable: health.is_redis_reachable,
        database_round_trip: health.database_round_trip.unwrap_or_default(),
        redis_round_trip: health.redis_round_trip.unwrap_or_default(),
        feed_silence: context.freshness.feed_silence(Monotonic::now()),
        events_waiting: analytics.count_queued(),
        cache_bytes: context.caches.memory.size(),
        connections_used,
        connections_idle,
    }
}

/// Returns the number of events that this process has dropped since its start because the buffer was full.
pub fn count_dropped_events(context: &Context) -> i64 {
    let events = &context.metrics.events;
    let dropped =
        events.verifications.dropped_counter.get() + events.ratelimits.dropped_counter.get();
    i64::try_from(dropped).unwrap_or(i64::MAX)
}

/// The events whose delivery to ClickHouse is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryLag {
    pub event_count: i64,
    /// The age of the oldest event, in minutes.
    pub age_minutes: i64,
}

/// The age from which an undelivered event is late.
const DELIVERY_LAG_MIN_SECONDS: i64 = 120;

/// Returns the delivery lag as of the last measurement. `None`: no event is late, or ClickHouse is not configured.
pub fn find_delivery_lag(context: &Context) -> Option<DeliveryLag> {
    let events = &context.metrics.events;
    let (seconds, events) = (events.undelivered_seconds.get(), events.undelivered_events.get());
    (seconds >= DELIVERY_LAG_MIN_SECONDS)
        .then_some(DeliveryLag { event_count: events, age_minutes: seconds / 60 })
}
