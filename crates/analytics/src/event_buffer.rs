//! Buffers events between the requests and the [`writer`](crate::writer).

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::event::Event;

/// The end of the buffer that requests push events into.
pub struct EventBuffer {
    sender: Sender<Event>,
    /// The bytes of caller-supplied text in the buffered events, and their limit.
    buffered_bytes: AtomicUsize,
    bytes_max: usize,
    /// Notified of each event that is added while the buffer is half full.
    half_full: Notify,
}

impl EventBuffer {
    /// Creates a buffer for at most `events_max` events with at most `bytes_max` bytes in them. The receiver yields
    /// the events.
    pub fn new(events_max: usize, bytes_max: usize) -> (Self, Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(events_max);
        let (buffered_bytes, half_full) = (AtomicUsize::new(0), Notify::new());
        (Self { sender, buffered_bytes, bytes_max, half_full }, receiver)
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
        if self.sender.capacity() <= self.sender.max_capacity() / 2
            || buffered_before.saturating_add(bytes) >= self.bytes_max / 2
        {
            self.half_full.notify_one();
        }
        is_added
    }

    /// Waits until an event has been added, or dropped, while the buffer is half full. May return once more after that.
    pub async fn wait_until_half_full(&self) {
        self.half_full.notified().await;
    }

    /// Subtracts the bytes of events that have been written or dropped.
    pub fn release_bytes(&self, events: &[Event]) {
        let bytes = events.iter().map(Event::approximate_bytes).sum();
        self.buffered_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::event::tests::{check, namespace};

    #[test]
    fn half_full_buffer_is_reported() {
        let namespace = namespace("rlns_1");
        let bytes = check(&namespace, "a".into()).approximate_bytes();
        for (events_max, bytes_max) in [(10, 100 * bytes), (100, 10 * bytes)] {
            let (buffer, _receiver) = EventBuffer::new(events_max, bytes_max);
            let is_half_full = || buffer.wait_until_half_full().now_or_never().is_some();
            for count in 1..=11 {
                assert_eq!(buffer.try_push(check(&namespace, "a".into())), count <= 10);
                assert_eq!(is_half_full(), count >= 5, "{count} events");
                assert!(!is_half_full(), "once for each event");
            }
        }
    }
}
