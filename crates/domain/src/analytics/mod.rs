//! Records of verifications that found a key, and of checks of the standalone limiter.
//!
//! A request only pushes its event into a buffer and never waits. The buffer is bounded: an event that exceeds the
//! limit of events or bytes is dropped and counted. [`writer`] drains the buffer in batches.

mod batch_builder;
pub mod clickhouse_delivery;
pub mod event_space;
mod outbox_encoding;
pub mod recent;
mod rollup;
pub mod rollup_query;
pub mod sql_query;
pub mod traffic;
pub mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use batch_builder::BatchBuilder;
use foundation::clock::Timestamp;
use foundation::config::{Deployment, Settings};
use foundation::error::Result;
use foundation::id::{OverrideId, RequestId};
use foundation::metrics::EventCounts;
use rollup::PendingRollups;
use store::cache::Cached;
use store::{EventStore, StoredNamespace};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{Mutex, MutexGuard};

use self::clickhouse_delivery::DeliveryState;
use self::sql_query::QueryQuotas;
use crate::context::Context;
use crate::{resolved_key::ResolvedKey, verification_code::VerificationCode};

/// The file of analytics events of an embedded server, in its data directory.
pub const EVENTS_FILE: &str = "keyward-events.db";

/// Records, stores and queries analytics events.
pub struct Analytics {
    pub context: Arc<Context>,
    /// The events that have been written.
    pub event_store: EventStore,
    /// The quotas of queries per workspace and hour.
    pub query_quotas: QueryQuotas,
    /// The events that wait to be written.
    event_buffer: EventBuffer,
    /// The state of the delivery to ClickHouse, if it is configured.
    delivery_state: DeliveryState,
}

impl Analytics {
    /// Creates a service that has recorded nothing yet. No database is opened.
    pub fn new(context: Arc<Context>) -> Result<Self> {
        let settings = &context.settings;
        Ok(Self {
            event_store: create_event_store(settings)?,
            query_quotas: QueryQuotas::default(),
            event_buffer: EventBuffer::new(
                settings.events_waiting_max,
                settings.events_waiting_bytes_max,
            ),
            delivery_state: DeliveryState::default(),
            context,
        })
    }

    /// Returns the number of events that wait to be written.
    pub fn count_queued(&self) -> usize {
        self.event_buffer.count_queued()
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

/// An analytics event of one request.
#[derive(Debug)]
pub enum Event {
    Verification(VerificationRecord),
    Ratelimit(LimitCheckRecord),
}

/// The result of one verification.
#[derive(Debug)]
pub struct VerificationRecord {
    pub request_id: RequestId,
    pub occurred_at: Timestamp,
    pub resolved_key: Arc<Cached<ResolvedKey>>,
    pub outcome: VerificationCode,
    pub tags: Vec<String>,
    pub spent_credits: i64,
    pub latency_us: i64,
    /// Why the verification was refused, as text for users.
    pub reason: Option<Box<str>>,
}

/// The result of one check of the standalone limiter.
#[derive(Debug)]
pub struct LimitCheckRecord {
    pub request_id: RequestId,
    pub occurred_at: Timestamp,
    pub namespace: Arc<Cached<StoredNamespace>>,
    pub identifier: String,
    pub passed: bool,
    pub latency_us: i64,
    pub override_id: Option<OverrideId>,
    pub limit: i64,
    pub remaining: i64,
    pub reset_at: Timestamp,
    pub tokens: i64,
}

/// Buffers events between the requests and [`writer`].
pub struct EventBuffer {
    sender: Sender<Event>,
    /// The bytes of caller-supplied text in the buffered events, and their limit.
    buffered_bytes: AtomicUsize,
    bytes_max: usize,
    pending: Mutex<PendingEvents>,
}

/// The events to be written, and the state of earlier writes.
struct PendingEvents {
    receiver: Receiver<Event>,
    /// The events of the batch that is being written, or whose write failed.
    batch_events: Vec<Event>,
    /// The number of that batch.
    batch_number: u64,
    batch_builder: BatchBuilder,
    pending_rollups: PendingRollups,
    /// Whether events are dropped because the disk has too little free space.
    is_disk_short: bool,
}

impl EventBuffer {
    /// Creates a buffer for at most `events_max` events with at most `bytes_max` bytes in them.
    pub fn new(events_max: usize, bytes_max: usize) -> Self {
        let (sender, receiver) = mpsc::channel(events_max);
        let pending = PendingEvents {
            receiver,
            batch_events: Vec::new(),
            batch_number: 1,
            batch_builder: BatchBuilder::default(),
            pending_rollups: PendingRollups::default(),
            is_disk_short: false,
        };
        Self {
            sender,
            buffered_bytes: AtomicUsize::new(0),
            bytes_max,
            pending: Mutex::new(pending),
        }
    }

    /// Returns how many events are queued, without those of the batch that is being written.
    pub fn count_queued(&self) -> usize {
        self.sender.max_capacity() - self.sender.capacity()
    }

    /// Adds an event, unless the buffer has reached a limit. Returns whether it was added.
    fn try_push(&self, event: Event) -> bool {
        let bytes = event.approximate_bytes();
        let buffered_before = self.buffered_bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_added = buffered_before.saturating_add(bytes) <= self.bytes_max
            && self.sender.try_send(event).is_ok();
        if !is_added {
            self.buffered_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_added
    }

    /// Subtracts the bytes of events that have left the buffer.
    fn release_bytes(&self, events: &[Event]) {
        let bytes = events.iter().map(Event::approximate_bytes).sum();
        self.buffered_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    async fn lock_pending(&self) -> MutexGuard<'_, PendingEvents> {
        self.pending.lock().await
    }
}

/// Records an event, unless the buffer is full.
pub fn record(analytics: &Analytics, event: Event) {
    let counts = event.event_counts(&analytics.context);
    if !analytics.event_buffer.try_push(event) {
        counts.dropped_counter.inc();
    }
}

/// The approximate size of an event without caller-supplied text: the struct and the headers of its strings.
const EVENT_OVERHEAD_BYTES: usize = 256;

impl Event {
    /// Returns the approximate memory use of the event.
    fn approximate_bytes(&self) -> usize {
        let caller_bytes = match self {
            Self::Verification(event) => {
                let tags = event.tags.iter().map(|tag| size_of::<String>() + tag.len());
                tags.sum::<usize>() + event.reason.as_ref().map_or(0, |reason| reason.len())
            }
            Self::Ratelimit(event) => event.identifier.len(),
        };
        EVENT_OVERHEAD_BYTES + caller_bytes
    }

    /// Returns the counters for events of this kind.
    fn event_counts<'a>(&self, context: &'a Context) -> &'a EventCounts {
        match self {
            Self::Verification(_) => &context.metrics.events.verifications,
            Self::Ratelimit(_) => &context.metrics.events.ratelimits,
        }
    }
}
