//! Room for events: what an embedded server's disk keeps free for everything else, and how much single events may take.

use foundation::config::{Deployment, Settings};
use foundation::error::Result;
use store::disk;

use super::writer;
use crate::app::App;

/// A disk on which there is too little free for events to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    pub free_bytes: u64,
    pub reserve_bytes: u64,
}

/// Whether an embedded server leaves its events out now. Keys and credits are still written: for those the reserve is.
pub fn shortage(settings: &Settings) -> Option<Shortage> {
    let (free_bytes, reserve_bytes) = (free_bytes(settings)?, settings.events_reserve_bytes);
    (free_bytes < reserve_bytes).then_some(Shortage { free_bytes, reserve_bytes })
}

/// Of the disk of an embedded server, where the system tells.
pub fn free_bytes(settings: &Settings) -> Option<u64> {
    let Deployment::Embedded { data_dir } = &settings.engines else { return None };
    disk::free_bytes(data_dir)
}

/// Keeps single events within their bound, where they stay in the database.
pub async fn trim(app: &App) -> Result<()> {
    let Some(max_bytes) = app.settings.events_max_bytes else { return Ok(()) };
    if app.events.clickhouse().is_some() {
        return Ok(());
    }
    writer::sum_up(app).await?;
    app.events.trim(max_bytes, app.clock.now()).await
}
