//! Buffers events between the requests and the [`writer`](crate::writer).

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::event::Event;

/// The end of the buffer that requests push events into.
pub struct EventBuffer {
    sender: Sender<Event>,
    /// The bytes of caller-supplied text in the buffered events, and their limit.
    buffered_bytes: AtomicUsize,
    bytes_max: usize,
}

impl EventBuffer {
    /// Creates a buffer for at most `events_max` events with at most `bytes_max` bytes in them. The receiver yields
    /// the events.
    pub fn new(events_max: usize, bytes_max: usize) -> (Self, Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(events_max);
        (Self { sender, buffered_bytes: AtomicUsize::new(0), bytes_max }, receiver)
    }

    /// Returns how many events are queued, without those of the batch that is being written.
    pub fn count_queued(&self) -> usize {
        self.sender.max_capacity() - self.sender.capacity()
    }

    /// Adds an event, unless the buffer has reached a limit. Returns whether it was added.
    pub fn try_push(&self, event: Event) -> bool {
        let bytes = event.approximate_bytes();
        let buffered_before = self.buffered_bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_added = buffered_before.saturating_add(bytes) <= self.bytes_max
            && self.sender.try_send(event).is_ok();
        if !is_added {
            self.buffered_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_added
    }

    /// Subtracts the bytes of events that have been written or dropped.
    pub fn release_bytes(&self, events: &[Event]) {
        let bytes = events.iter().map(Event::approximate_bytes).sum();
        self.buffered_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
