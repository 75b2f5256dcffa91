//! Windows that are answered from memory and counted in Redis a moment later: quick rather than exact.
//!
//! An answer is given from memory only while this process has heard from Redis of the window within
//! [`FRESH_MS`]; else Redis is asked, as for an exact answer. What was taken goes there with the next batch, which
//! brings back what all replicas have taken. So a replica knows at once what it has taken itself, and of the others
//! all but what they took since their last batches: that is the whole of its error.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::window::admits;
use super::{Counted, EXACT_MAX, Window};
use crate::clock::Stopwatch;

const SHARDS: usize = 64;
/// How old knowledge may be, in milliseconds. Batches go more than twice as often.
const FRESH_MS: i64 = 250;

/// What is known of windows that were asked for lately.
pub struct Quick {
    shards: Vec<Mutex<HashMap<Arc<str>, Known>>>,
    hasher: RandomState,
    watch: Stopwatch,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    duration_ms: i64,
    /// As Redis told it.
    counted: Counted,
    /// When, by the watch.
    at_ms: i64,
    /// Taken here, and not sent yet.
    pending: i64,
    /// Sent, and not answered yet.
    sent: i64,
    /// Whether it was asked for since it was last sent.
    is_asked: bool,
}

impl Known {
    /// What counts against the limit, as far as this process knows.
    fn effective(&self) -> i64 {
        self.counted.effective.saturating_add(self.pending).saturating_add(self.sent)
    }
}

impl Default for Quick {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            watch: Stopwatch::new(),
        }
    }
}

impl Quick {
    fn shard(&self, key: &str) -> MutexGuard<'_, HashMap<Arc<str>, Known>> {
        let shard = usize::try_from(self.hasher.hash_one(key) >> 32).unwrap_or(0) % SHARDS;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes from a window by what is known of it: how it was found, and whether it was taken from. `None`: too
    /// little is known.
    pub fn take(&self, window: &Window) -> Option<(Counted, bool)> {
        let mut shard = self.shard(&window.key);
        let known = shard.get_mut(&window.key)?;
        let is_fresh = self.watch.elapsed_ms() - known.at_ms <= FRESH_MS;
        if !is_fresh || known.duration_ms != window.duration_ms {
            return None;
        }
        known.is_asked = true;
        let counted = Counted { effective: known.effective(), number: known.counted.number };
        let taken = admits(window, counted.effective);
        if taken {
            known.pending += window.cost;
        }
        Some((counted, taken))
    }

    /// Redis has told how it found a window, and has taken from it or not.
    pub fn learn(&self, window: &Window, counted: Counted, taken: bool) {
        let cost = if taken { window.cost } else { 0 };
        let effective = counted.effective.saturating_add(cost);
        let (at_ms, duration_ms) = (self.watch.elapsed_ms(), window.duration_ms);
        let counted = Counted { effective, ..counted };
        let mut shard = self.shard(&window.key);
        let new = Known { duration_ms, counted, at_ms, pending: 0, sent: 0, is_asked: false };
        let known = shard.entry(window.key.clone()).or_insert(new);
        (known.duration_ms, known.counted, known.at_ms) = (duration_ms, counted, at_ms);
    }

    /// What is to be sent: windows that take, whatever their limit, what was taken from them here. Those that nobody
    /// has asked for are forgotten.
    pub fn due(&self) -> Vec<Window> {
        let now_ms = self.watch.elapsed_ms();
        let mut due = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|key, known| {
                if known.is_asked && known.sent == 0 {
                    known.is_asked = false;
                    known.sent = std::mem::take(&mut known.pending);
                    due.push(Window::new(key.clone(), EXACT_MAX, known.duration_ms, known.sent));
                }
                known.pending > 0 || known.sent > 0 || now_ms - known.at_ms <= FRESH_MS
            });
        }
        due
    }

    /// What came of sending a window. `None`: nothing was heard, so it is sent again. What Redis has counted all the
    /// same counts twice then, which refuses rather than admits.
    pub fn sent(&self, window: &Window, counted: Option<Counted>) {
        let at_ms = self.watch.elapsed_ms();
        let mut shard = self.shard(&window.key);
        let Some(known) = shard.get_mut(&window.key) else { return };
        let sent = std::mem::take(&mut known.sent);
        match counted {
            Some(counted) => {
                let effective = counted.effective.saturating_add(sent);
                (known.counted, known.at_ms) = (Counted { effective, ..counted }, at_ms);
            }
            None => {
                known.pending += sent;
                known.is_asked = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(limit: i64, cost: i64) -> Window {
        Window::new("a", limit, 60_000, cost)
    }

    fn counted(effective: i64) -> Counted {
        Counted { effective, number: 1 }
    }

    #[test]
    fn nothing_is_said_of_a_window_that_redis_has_not_told_of() {
        let quick = Quick::default();

        assert_eq!(quick.take(&window(10, 1)), None);
        quick.learn(&window(10, 1), counted(0), true);
        assert_eq!(quick.take(&window(10, 1)), Some((counted(1), true)));
        assert_eq!(quick.take(&Window::new("a", 10, 1000, 1)), None);
    }

    #[test]
    fn what_was_taken_here_counts_whether_it_was_sent_or_not() {
        let quick = Quick::default();
        quick.learn(&window(10, 1), counted(0), true);

        let taken = (0..20).filter(|_| quick.take(&window(10, 1)).is_some_and(|(_, t)| t)).count();
        let due = quick.due();
        let refused = quick.take(&window(10, 1));
        // Another replica has taken three meanwhile.
        quick.sent(&due[0], Some(counted(4)));

        assert_eq!(taken, 9);
        assert_eq!(due, [window(EXACT_MAX, 9)]);
        assert_eq!(refused, Some((counted(10), false)));
        assert_eq!(quick.take(&window(14, 1)), Some((counted(13), true)));
    }

    #[test]
    fn what_was_sent_in_vain_is_sent_again() {
        let quick = Quick::default();
        quick.learn(&window(10, 1), counted(0), false);
        quick.take(&window(10, 4));

        let first = quick.due();
        assert!(quick.due().is_empty(), "it is under way");
        quick.sent(&first[0], None);

        assert_eq!(quick.due(), first);
    }
}
