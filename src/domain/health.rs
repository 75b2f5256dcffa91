//! Whether the servers behind this one are there.

use crate::app::App;

/// What `/readyz` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// The database has answered lately; it is not asked anew.
    pub database: bool,
    pub counters: bool,
}

/// Answers at once, whatever hangs.
pub async fn health(app: &App) -> Health {
    let counters = match &app.redis {
        None => true,
        Some(redis) => redis.ping().await.is_ok(),
    };
    Health { database: app.freshness.database_is_near(), counters }
}
