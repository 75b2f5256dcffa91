//! Limits the space of events: reserves disk space on embedded servers for everything else, and bounds the size of
//! raw events.

use foundation::config::{Deployment, Settings};
use foundation::error::Result;
use store::disk;

use super::writer;
use crate::analytics::Analytics;

/// The free space of a disk that has too little of it for events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskShortage {
    pub free_bytes: u64,
    pub reserve_bytes: u64,
}

/// Returns the disk shortage that makes an embedded server drop events now, or `None`. Keys and credits are still
/// written: the reserve is for them.
pub fn find_shortage(settings: &Settings) -> Option<DiskShortage> {
    let (free_bytes, reserve_bytes) = (read_free_bytes(settings)?, settings.events_reserve_bytes);
    (free_bytes < reserve_bytes).then_some(DiskShortage { free_bytes, reserve_bytes })
}

/// Returns the free space on the disk of an embedded server, if the operating system reports it.
pub fn read_free_bytes(settings: &Settings) -> Option<u64> {
    let Deployment::Embedded { data_dir } = &settings.deployment else { return None };
    disk::free_bytes(data_dir)
}

/// Deletes the oldest raw events beyond their size limit, unless events are in ClickHouse.
pub async fn trim_raw_events(analytics: &Analytics) -> Result<()> {
    let Some(max_bytes) = analytics.context.settings.events_max_bytes else { return Ok(()) };
    if analytics.event_store.clickhouse().is_some() {
        return Ok(());
    }
    writer::roll_up(analytics).await?;
    analytics.event_store.trim_raw_events(max_bytes, analytics.context.clock.now()).await
}
