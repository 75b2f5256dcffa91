//! Limits the space of events: reserves disk space on embedded servers for everything else, and bounds the size of
//! raw events.

use std::path::PathBuf;

use foundation::config::{Deployment, Settings};
use foundation::error::Result;
use store::disk;

use crate::{Analytics, writer};

/// The disk space of an embedded server that events must leave free. Keys and credits are still written: the reserve
/// is for them.
#[derive(Debug, Clone)]
pub struct DiskReserve {
    /// Absent in a replica, which stores no events on its own disk.
    data_dir: Option<PathBuf>,
    reserve_bytes: u64,
}

/// The free space of a disk that has too little of it for events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskShortage {
    pub free_bytes: u64,
    pub reserve_bytes: u64,
}

impl DiskReserve {
    pub fn from_settings(settings: &Settings) -> Self {
        let data_dir = match &settings.deployment {
            Deployment::Embedded { data_dir } => Some(data_dir.clone()),
            Deployment::Replica { .. } => None,
        };
        Self { data_dir, reserve_bytes: settings.events_reserve_bytes }
    }

    /// Returns the size of the reserve. 0: none.
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes
    }

    /// Returns the disk shortage that makes an embedded server drop events now, or `None`.
    pub fn find_shortage(&self) -> Option<DiskShortage> {
        let (free_bytes, reserve_bytes) = (self.read_free_bytes()?, self.reserve_bytes);
        (free_bytes < reserve_bytes).then_some(DiskShortage { free_bytes, reserve_bytes })
    }

    /// Returns the free space on the disk of an embedded server, if the operating system reports it.
    pub fn read_free_bytes(&self) -> Option<u64> {
        disk::free_bytes(self.data_dir.as_deref()?)
    }
}

/// Deletes the oldest raw events beyond their size limit, unless events are in ClickHouse.
pub async fn trim_raw_events(analytics: &Analytics) -> Result<()> {
    let Some(max_bytes) = analytics.raw_events_max_bytes else { return Ok(()) };
    if analytics.event_store.clickhouse().is_some() {
        return Ok(());
    }
    writer::roll_up(analytics).await?;
    analytics.event_store.trim_raw_events(max_bytes, analytics.clock.now()).await
}
