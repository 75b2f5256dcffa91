//! The state of the dependencies: the database, Redis and ClickHouse.

use std::sync::atomic::Ordering;

use foundation::metrics::ServerStatus;
use store::Store;

use crate::app::App;

/// The result that `/readyz` reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// Whether the database has responded recently; it is not queried again.
    pub database: bool,
    /// Whether Redis responds. True without Redis.
    pub counters: bool,
}

/// Checks Redis with a ping, with the timeout of a request, and returns the state of the dependencies.
pub async fn health(app: &App) -> Health {
    if let Some(redis) = &app.redis {
        app.redis_reachable.store(redis.ping().await.is_ok(), Ordering::Relaxed);
    }
    known(app)
}

/// Returns the last known state without a call. For Redis it is the result of the last heartbeat, which a replica
/// sends every second.
pub fn known(app: &App) -> Health {
    let counters = match &app.redis {
        None => true,
        Some(_) => app.redis_reachable.load(Ordering::Relaxed),
    };
    Health { database: app.freshness.is_database_reachable(), counters }
}

/// Returns the state of the server for `/metrics`, without a call to a dependency.
pub fn state(app: &App) -> ServerStatus {
    let Health { database, counters } = known(app);
    let (connections_used, connections_idle) = app.store.store().map_or((0, 0), Store::connections);
    ServerStatus {
        database_is_reachable: database,
        counters_are_reachable: counters,
        silence: app.freshness.feed_silence(),
        events_waiting: app.event_buffer.waiting_now(),
        connections_used,
        connections_idle,
    }
}

/// Returns the number of events that this process has dropped since its start because the buffer was full.
pub fn dropped_events(app: &App) -> i64 {
    let events = &app.metrics.events;
    let dropped = events.verifications.dropped.get() + events.ratelimits.dropped.get();
    i64::try_from(dropped).unwrap_or(i64::MAX)
}

/// The events whose delivery to ClickHouse is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryLag {
    pub events: i64,
    /// The age of the oldest event, in minutes.
    pub minutes: i64,
}

/// The age from which an undelivered event is late.
const LATE_SECONDS: i64 = 120;

/// Returns the delivery lag as of the last measurement. `None`: no event is late, or ClickHouse is not configured.
pub fn late_events(app: &App) -> Option<DeliveryLag> {
    let events = &app.metrics.events;
    let (seconds, events) = (events.undelivered_seconds.get(), events.undelivered.get());
    (seconds >= LATE_SECONDS).then_some(DeliveryLag { events, minutes: seconds / 60 })
}
