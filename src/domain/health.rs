//! Whether the servers behind this one are there.

use crate::app::App;
use crate::limiter::Counters;

/// What `/readyz` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// The database has answered lately; it is not asked anew.
    pub database: bool,
    pub counters: bool,
}

/// Answers at once, whatever hangs.
pub async fn health(app: &App) -> Health {
    let counters = match &app.counters {
        Counters::Local(_) => true,
        Counters::Redis(redis) => redis.ping().await.is_ok(),
    };
    Health { database: app.freshness.database_is_near(), counters }
}
