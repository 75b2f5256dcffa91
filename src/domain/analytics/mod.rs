//! What happened: each verification that found a key, and each check of the standalone limiter.
//!
//! Whoever answers a request only puts an event into a buffer and never waits. The buffer is bounded: an event that
//! finds it full, by number or by bytes, is dropped, and counted. [`writer`] empties it in batches.

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
use foundation::id::{OverrideId, RequestId};
use foundation::metrics::EventCounts;
use rollup::PendingRollups;
use store::StoredNamespace;
use store::cache::Cached;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::{Mutex, MutexGuard};

use super::keys::{ResolvedKey, VerificationCode};
use crate::app::App;

/// What is to be remembered of a request.
#[derive(Debug)]
pub enum Event {
    Verification(Verification),
    Ratelimit(Ratelimit),
}

/// What came of a verification.
#[derive(Debug)]
pub struct Verification {
    pub request: RequestId,
    pub at: Timestamp,
    pub view: Arc<Cached<ResolvedKey>>,
    pub outcome: VerificationCode,
    pub tags: Vec<String>,
    pub spent_credits: i64,
    pub latency_us: i64,
    /// Why it was refused, for people.
    pub reason: Option<Box<str>>,
}

/// What came of a check of the standalone limiter.
#[derive(Debug)]
pub struct Ratelimit {
    pub request: RequestId,
    pub at: Timestamp,
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

/// The buffer, from both of its ends.
pub struct EventBuffer {
    sender: Sender<Event>,
    /// How many bytes of the callers' own the events hold that wait, and how many they may hold.
    bytes: AtomicUsize,
    bytes_max: usize,
    waiting: Mutex<Waiting>,
}

/// What is to be written, and what has been learned from what was.
struct Waiting {
    receiver: Receiver<Event>,
    /// Those of the batch that is being written, or could not be.
    events: Vec<Event>,
    /// The number of that batch.
    number: u64,
    gatherer: BatchBuilder,
    unsummed: PendingRollups,
    /// Whether events are left out because the disk has too little room.
    is_short: bool,
}

impl EventBuffer {
    /// With room for so many events, and so many bytes in them.
    pub fn new(waiting_max: usize, bytes_max: usize) -> Self {
        let (sender, receiver) = mpsc::channel(waiting_max);
        let waiting = Waiting {
            receiver,
            events: Vec::new(),
            number: 1,
            gatherer: BatchBuilder::default(),
            unsummed: PendingRollups::default(),
            is_short: false,
        };
        Self { sender, bytes: AtomicUsize::new(0), bytes_max, waiting: Mutex::new(waiting) }
    }

    /// How many events wait to be taken; those of a batch that is being written do not.
    pub fn waiting_now(&self) -> usize {
        self.sender.max_capacity() - self.sender.capacity()
    }

    /// Adds an event, unless too many wait already, or too many bytes.
    fn add(&self, event: Event) -> bool {
        let bytes = event.bytes();
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_added =
            before.saturating_add(bytes) <= self.bytes_max && self.sender.try_send(event).is_ok();
        if !is_added {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_added
    }

    /// Events that waited do so no more.
    fn wrote(&self, events: &[Event]) {
        let bytes = events.iter().map(Event::bytes).sum();
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    async fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().await
    }
}

/// Remembers an event, unless too many wait already.
pub fn record(app: &App, event: Event) {
    let counts = event.counts(app);
    if !app.event_buffer.add(event) {
        counts.dropped.inc();
    }
}

/// What an event takes beside what its caller has given: itself, and the heads of its texts.
const EVENT_BYTES: usize = 256;

impl Event {
    /// How much memory it takes, about.
    fn bytes(&self) -> usize {
        let given = match self {
            Self::Verification(event) => {
                let tags = event.tags.iter().map(|tag| size_of::<String>() + tag.len());
                tags.sum::<usize>() + event.reason.as_ref().map_or(0, |reason| reason.len())
            }
            Self::Ratelimit(event) => event.identifier.len(),
        };
        EVENT_BYTES + given
    }

    /// What is counted of its kind.
    fn counts<'a>(&self, app: &'a App) -> &'a EventCounts {
        match self {
            Self::Verification(_) => &app.metrics.events.verifications,
            Self::Ratelimit(_) => &app.metrics.events.ratelimits,
        }
    }
}
