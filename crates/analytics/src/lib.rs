//! Records of verifications that found a key, and of checks of the standalone limiter: analytics events. Verifications
//! that found no key are only counted.
//!
//! A request only pushes its event into a buffer and never waits ([`record`]). The buffer is bounded: an event that
//! exceeds the limit of events or bytes is dropped and counted. Everything else runs beside the requests:
//!
//! | module | contents |
//! |---|---|
//! | [`event`] | the events, and what they need to know of a key |
//! | [`event_buffer`] | the buffer between the requests and the writer |
//! | [`not_found`] | counts verifications that found no key |
//! | [`writer`] | writes the events in batches, and deletes what is past its retention |
//! | [`batch_builder`] | builds a batch: the series of the events, and totals |
//! | [`totals`] | adds up the events of a batch by API or namespace |
//! | [`rollup`] | adds written events to the rollups, each batch once |
//! | [`event_space`] | the disk space for events |
//! | [`outbox_encoding`] | a batch as JSON lines for ClickHouse |
//! | [`clickhouse_delivery`] | delivers batches to ClickHouse, and rolls up days there |
//!
//! Events are read in seven ways:
//!
//! | module | contents |
//! |---|---|
//! | [`recent`] | single events of a key or a request |
//! | [`event_log`] | pages of verifications or limit checks, newest first |
//! | [`tail`] | verifications as they are written |
//! | [`rollup_query`] | counts of verifications by time, key, identity or tag |
//! | [`traffic`] | totals of an API, a namespace or all of them, for charts |
//! | [`top_identifiers`] | the identifiers with the most limit checks |
//! | [`sql_query`] | SQL of callers, compiled by the crate `analytics_sql` |
//!
//! This crate knows no callers and no permissions. Who may read which events is decided in
//! `domain::analytics_access`; a query takes the workspace and the APIs or namespaces that it may read. No decision
//! about a key depends on events, so they have connections of their own, which no verification ever waits for.

mod batch_builder;
pub mod clickhouse_delivery;
mod event;
mod event_buffer;
pub mod event_log;
pub mod event_space;
mod not_found;
mod outbox_encoding;
pub mod recent;
mod rollup;
pub mod rollup_query;
mod rollup_spans;
pub mod sql_query;
pub mod tail;
pub mod top_identifiers;
mod totals;
pub mod traffic;
pub mod writer;

pub use event::{Event, KeyDimensions, LimitCheckRecord, VerificationRecord};

use clickhouse_delivery::DeliveryState;
use event_buffer::EventBuffer;
use event_space::{DiskReserve, DiskShortage};
use foundation::clock::{Clock, Timestamp};
use foundation::config::{Deployment, Settings};
use foundation::error::Result;
use foundation::id::WorkspaceId;
use foundation::metrics::EventMetrics;
use foundation::model::{EventKind, Retention, RetentionSettings};
use not_found::NotFoundCounters;
use sql_query::QueryQuotas;
use store::EventStore;
use tokio::sync::Mutex;
use writer::PendingEvents;

/// The file of analytics events of an embedded server, in its data directory.
pub const EVENTS_FILE: &str = "keyward-events.db";

/// Records, stores and queries analytics events.
pub struct Analytics {
    clock: Clock,
    metrics: EventMetrics,
    /// The ID of this process among the replicas, which makes the names of its batches unique.
    replica_id: String,
    /// Empty: no region.
    region: String,
    retention: RetentionSettings,
    /// The approximate maximum size of single events in the database. Absent: unlimited.
    raw_events_max_bytes: Option<u64>,
    disk_reserve: DiskReserve,
    /// The events that have been written.
    event_store: EventStore,
    /// The quotas of queries per workspace and hour.
    query_quotas: QueryQuotas,
    /// The events that wait to be written.
    event_buffer: EventBuffer,
    /// The verifications that found no key and wait to be written.
    not_found_counters: NotFoundCounters,
    /// The events that are being written.
    pending_events: Mutex<PendingEvents>,
    /// The state of the delivery to ClickHouse, if it is configured.
    delivery_state: DeliveryState,
}

impl Analytics {
    /// Creates a service that has recorded nothing yet. No database is opened.
    pub fn new(
        settings: &Settings,
        clock: Clock,
        metrics: EventMetrics,
        replica_id: String,
    ) -> Result<Self> {
        let (event_buffer, receiver) =
            EventBuffer::new(settings.events_waiting_max, settings.events_waiting_bytes_max);
        Ok(Self {
            clock,
            metrics,
            replica_id,
            region: settings.region.clone(),
            retention: settings.retention,
            raw_events_max_bytes: settings.events_max_bytes,
            disk_reserve: DiskReserve::from_settings(settings),
            event_store: create_event_store(settings)?,
            query_quotas: QueryQuotas::default(),
            event_buffer,
            not_found_counters: NotFoundCounters::default(),
            pending_events: Mutex::new(PendingEvents::new(receiver, &settings.region)),
            delivery_state: DeliveryState::default(),
        })
    }

    /// Returns the region of this server. Empty: no region.
    pub fn region(&self) -> &str {
        &self.region
    }

    /// Returns the store of events that have been written.
    pub fn event_store(&self) -> &EventStore {
        &self.event_store
    }

    /// Returns the quotas of queries per workspace and hour.
    pub fn query_quotas(&self) -> &QueryQuotas {
        &self.query_quotas
    }

    /// Returns the number of events that wait to be written.
    pub fn count_queued(&self) -> usize {
        self.event_buffer.count_queued()
    }

    /// Waits until so many events wait to be written that more of them could be dropped soon.
    pub async fn wait_until_half_full(&self) {
        self.event_buffer.wait_until_half_full().await;
    }

    /// Returns the retention of events of a kind where they are stored. In ClickHouse, minutes are computed from single
    /// events, so they are retained no longer than these.
    fn stored_retention(&self, kind: EventKind) -> Retention {
        let mut retention = *self.retention.for_kind(kind);
        if self.event_store.clickhouse().is_some() {
            retention.minute_days = retention.minute_days.min(retention.raw_days);
        }
        retention
    }

    /// Returns the time by which data is past its retention: the earlier one of this machine's clock and of the database's,
    /// so that no single clock that is ahead deletes data.
    async fn load_retention_time(&self) -> Result<Timestamp> {
        if let Some(fixed) = self.clock.fixed_time() {
            return Ok(fixed);
        }
        let database_time = self.event_store.read_local().await?.load_database_time().await?;
        Ok(database_time.min(self.clock.now()))
    }

    /// Returns the disk shortage that makes an embedded server drop events now, or `None`.
    pub fn find_disk_shortage(&self) -> Option<DiskShortage> {
        self.disk_reserve.find_shortage()
    }
}

/// Returns the store of analytics events. Nothing is opened yet.
pub fn create_event_store(settings: &Settings) -> Result<EventStore> {
    let events = match &settings.deployment {
        Deployment::Embedded { data_dir } => EventStore::open(&data_dir.join(EVENTS_FILE)),
        Deployment::Replica { database_url, .. } => {
            EventStore::connect(database_url, settings.analytics_url.as_deref())?
        }
    };
    events.with_clickhouse(settings.clickhouse_url.as_ref())
}

/// Records an event, unless the buffer is full.
pub fn record(analytics: &Analytics, event: Event) {
    let counts = event.event_counts(&analytics.metrics);
    if !analytics.event_buffer.try_push(event) {
        counts.dropped_counter.inc();
    }
}

/// Counts a verification of a workspace that found no key. If too many counts wait to be written, it is dropped.
pub fn record_not_found(analytics: &Analytics, workspace: &WorkspaceId, latency_us: i64) {
    let now = analytics.clock.now();
    if !analytics.not_found_counters.try_count(workspace, now, latency_us) {
        analytics.metrics.verifications.dropped_counter.inc();
    }
}
