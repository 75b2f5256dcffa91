//! Whether the servers behind this one are there.

use std::sync::atomic::Ordering;

use foundation::metrics::ServerStatus;
use store::Store;

use crate::app::App;

/// What `/readyz` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// The database has answered lately; it is not asked anew.
    pub database: bool,
    pub counters: bool,
}

/// Asks the counters, for as long as a request would.
pub async fn health(app: &App) -> Health {
    if let Some(redis) = &app.redis {
        app.redis_reachable.store(redis.ping().await.is_ok(), Ordering::Relaxed);
    }
    known(app)
}

/// What is known without asking anybody: of the counters, what a replica's last beat came to, which it
/// sends each second.
pub fn known(app: &App) -> Health {
    let counters = match &app.redis {
        None => true,
        Some(_) => app.redis_reachable.load(Ordering::Relaxed),
    };
    Health { database: app.freshness.is_database_reachable(), counters }
}

/// How the server stands, for those who watch it; nobody is asked.
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

/// How many events this process has lost since its start, because too many waited.
pub fn dropped_events(app: &App) -> i64 {
    let events = &app.metrics.events;
    let dropped = events.verifications.dropped.get() + events.ratelimits.dropped.get();
    i64::try_from(dropped).unwrap_or(i64::MAX)
}

/// Events that have been on their way to ClickHouse for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryLag {
    pub events: i64,
    /// How long ago the oldest was written.
    pub minutes: i64,
}

/// After how long they are late.
const LATE_SECONDS: i64 = 120;

/// As far as has been found out lately. Absent: none are, or there is no ClickHouse.
pub fn late_events(app: &App) -> Option<DeliveryLag> {
    let events = &app.metrics.events;
    let (seconds, events) = (events.undelivered_seconds.get(), events.undelivered.get());
    (seconds >= LATE_SECONDS).then_some(DeliveryLag { events, minutes: seconds / 60 })
}
