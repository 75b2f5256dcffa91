//! Windows that are answered from memory and counted in Redis a moment later: quick rather than exact.
//!
//! An answer is given from memory only while this process has heard from Redis of the window within
//! [`FRESH_MS`]; else Redis is asked, as for an exact answer, by one caller for all who ask for the window meanwhile.
//! What was taken goes there with the next batch, which brings back what all replicas have taken. So a replica knows at once what it has taken itself, and of the others
//! all but what they took since their last batches: that is the whole of its error.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foundation::clock::{Stopwatch, Timestamp};
use tokio::sync::watch;

use super::window::is_within_limit;
use super::{ConsumeReply, EXACT_MAX, Window, WindowCount};

const SHARDS: usize = 64;
/// How old knowledge may be, in milliseconds. Batches go more than twice as often.
const FRESH_MS: i64 = 250;

/// What is known of windows that were asked for lately.
pub struct ApproximateWindows {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    watch: Stopwatch,
}

#[derive(Default)]
struct Shard {
    known: HashMap<Arc<str>, CachedWindow>,
    /// Windows for which Redis is being asked, and whether it did not reply.
    asked: HashMap<Arc<str>, watch::Receiver<bool>>,
}

/// What memory says of a request.
pub enum Quickly<'a> {
    /// How the window was found, and whether it was taken from.
    Decided { counted: WindowCount, taken: bool },
    /// Too little is known: this caller asks Redis.
    Unknown(Asking<'a>),
    /// Too little is known, and another caller asks Redis.
    Asked(Asked),
}

/// Another caller's question to Redis.
pub struct Asked(watch::Receiver<bool>);

impl Asked {
    /// Waits until it is over. Returns whether memory is to be asked again; else Redis did not reply in time.
    pub async fn wait(mut self) -> bool {
        let is_missed = self.0.changed().await.is_ok() && *self.0.borrow();
        !is_missed
    }
}

/// The right to ask Redis of a window, for all who wait. Dropping it lets another caller ask.
pub struct Asking<'a> {
    quick: &'a ApproximateWindows,
    key: Arc<str>,
    /// Taken here before and not sent yet; goes along, so that it counts.
    carried: i64,
    outcome: watch::Sender<bool>,
}

impl Asking<'_> {
    /// What to ask Redis for; the window itself comes last.
    pub fn windows(&self, window: &Window) -> Vec<Window> {
        let carried = Window::new(self.key.clone(), EXACT_MAX, window.duration_ms, self.carried);
        let carried = (self.carried > 0).then_some(carried);
        carried.into_iter().chain([window.clone()]).collect()
    }

    /// Redis has told how it found the window. Returns what that means for the window alone.
    pub fn record_exact(mut self, window: &Window, taken: &ConsumeReply) -> ConsumeReply {
        let counted = taken.windows.last().copied();
        let counted = counted.unwrap_or(WindowCount { effective: 0, number: 0 });
        let carried = if taken.is_admitted { 0 } else { std::mem::take(&mut self.carried) };
        let mut shard = self.quick.shard(&self.key);
        shard.give_back(&self.key, carried);
        // What it carried stands in its own window, even where nothing was taken.
        let found = WindowCount { effective: counted.effective - carried, ..counted };
        shard.record_reply(
            window,
            found,
            taken.is_admitted,
            self.quick.watch.elapsed_ms(),
            self.carried,
        );
        self.carried = 0;
        drop(shard);
        ConsumeReply {
            is_admitted: taken.is_admitted,
            windows: vec![counted],
            purse: None,
            group: taken.group,
        }
    }

    /// Redis has not replied in time: everybody decides without it.
    pub fn miss(self) {
        self.outcome.send_replace(true);
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut shard = self.quick.shard(&self.key);
        shard.asked.remove(&self.key);
        shard.give_back(&self.key, self.carried);
    }
}

impl Shard {
    /// What was to be sent has not been consumed, as far as is known.
    fn give_back(&mut self, key: &str, carried: i64) {
        if let Some(known) = self.known.get_mut(key).filter(|_| carried > 0) {
            known.sent -= carried;
            known.pending += carried;
            known.is_asked = true;
        }
    }

    fn record_reply(
        &mut self,
        window: &Window,
        found: WindowCount,
        taken: bool,
        at_ms: i64,
        sent: i64,
    ) {
        let cost = if taken { window.cost } else { 0 };
        let counted = WindowCount { effective: found.effective.saturating_add(cost), ..found };
        let duration_ms = window.duration_ms;
        let new =
            CachedWindow { duration_ms, counted, at_ms, pending: 0, sent: 0, is_asked: false };
        let known = self.known.entry(window.key.clone()).or_insert(new);
        (known.duration_ms, known.counted, known.at_ms) = (duration_ms, counted, at_ms);
        known.sent -= sent;
    }
}

#[derive(Debug, Clone, Copy)]
struct CachedWindow {
    duration_ms: i64,
    /// As Redis told it.
    counted: WindowCount,
    /// When, by the watch.
    at_ms: i64,
    /// Taken here, and not sent yet.
    pending: i64,
    /// Sent, and not answered yet.
    sent: i64,
    /// Whether it was asked for since it was last sent.
    is_asked: bool,
}

impl CachedWindow {
    /// What counts against the limit, as far as this process knows.
    fn effective(&self) -> i64 {
        self.counted.effective.saturating_add(self.pending).saturating_add(self.sent)
    }
}

impl Default for ApproximateWindows {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            watch: Stopwatch::new(),
        }
    }
}

impl ApproximateWindows {
    fn shard(&self, key: &str) -> MutexGuard<'_, Shard> {
        let shard = usize::try_from(self.hasher.hash_one(key) >> 32).unwrap_or(0) % SHARDS;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes from a window by what is known of it.
    pub fn try_consume(&self, window: &Window) -> Quickly<'_> {
        let mut shard = self.shard(&window.key);
        let asked = shard.asked.get(&window.key).cloned();
        let is_fresh = |known: &CachedWindow| {
            self.watch.elapsed_ms() - known.at_ms <= FRESH_MS
                && known.duration_ms == window.duration_ms
        };
        let mut carried = 0;
        if let Some(known) = shard.known.get_mut(&window.key) {
            known.is_asked = true;
            if is_fresh(known) {
                let effective = known.effective();
                let counted = WindowCount { effective, number: known.counted.number };
                let taken = is_within_limit(window, effective);
                if taken {
                    known.pending += window.cost;
                }
                return Quickly::Decided { counted, taken };
            }
            // What is under way with a batch comes back with it.
            if known.sent == 0 && asked.is_none() {
                carried = std::mem::take(&mut known.pending);
                known.sent = carried;
            }
        }
        if let Some(asked) = asked {
            return Quickly::Asked(Asked(asked));
        }
        let (outcome, asked) = watch::channel(false);
        shard.asked.insert(window.key.clone(), asked);
        Quickly::Unknown(Asking { quick: self, key: window.key.clone(), carried, outcome })
    }

    /// What was taken here from the current window and is not known to be counted in Redis.
    pub fn unsent(&self, window: &Window, now: Timestamp) -> i64 {
        let shard = self.shard(&window.key);
        let known = shard.known.get(&window.key).filter(|known| {
            known.duration_ms == window.duration_ms && known.counted.number == window.number(now)
        });
        known.map_or(0, |known| known.pending.saturating_add(known.sent))
    }

    /// What is to be sent: windows that take, whatever their limit, what was taken from them here. Those that nobody
    /// has asked for are forgotten.
    pub fn drain_pending(&self) -> Vec<Window> {
        let now_ms = self.watch.elapsed_ms();
        let mut due = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.known.retain(|key, known| {
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
    pub fn record_sync(&self, window: &Window, counted: Option<WindowCount>) {
        let at_ms = self.watch.elapsed_ms();
        let mut shard = self.shard(&window.key);
        let Some(known) = shard.known.get_mut(&window.key) else { return };
        // Not all that is under way: a caller who asks Redis may carry the rest.
        let sent = window.cost;
        known.sent -= sent;
        match counted {
            Some(counted) => {
                let effective = counted.effective.saturating_add(sent);
                (known.counted, known.at_ms) = (WindowCount { effective, ..counted }, at_ms);
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
    use super::super::GroupChange;
    use super::*;

    fn window(limit: i64, cost: i64) -> Window {
        Window::new("a", limit, 60_000, cost)
    }

    fn counted(effective: i64) -> WindowCount {
        WindowCount { effective, number: 1 }
    }

    /// Asks for a window of which nothing is known, as Redis found it.
    fn learn(quick: &ApproximateWindows, window: &Window, found: WindowCount, taken: bool) {
        let Quickly::Unknown(asking) = quick.try_consume(window) else { panic!("it is known") };
        asking.record_exact(
            window,
            &ConsumeReply {
                is_admitted: taken,
                windows: vec![found],
                purse: None,
                group: GroupChange::None,
            },
        );
    }

    fn decided(quick: &ApproximateWindows, window: &Window) -> Option<(i64, bool)> {
        match quick.try_consume(window) {
            Quickly::Decided { counted, taken } => Some((counted.effective, taken)),
            Quickly::Unknown(_) | Quickly::Asked(_) => None,
        }
    }

    fn taken(taken: bool, found: &[WindowCount]) -> ConsumeReply {
        ConsumeReply {
            is_admitted: taken,
            windows: found.to_vec(),
            purse: None,
            group: GroupChange::None,
        }
    }

    #[test]
    fn take_decides_when_redis_has_told_of_the_window() {
        let quick = ApproximateWindows::default();

        assert_eq!(decided(&quick, &window(10, 1)), None);
        learn(&quick, &window(10, 1), counted(0), true);
        assert_eq!(decided(&quick, &window(10, 1)), Some((1, true)));
        assert_eq!(decided(&quick, &Window::new("a", 10, 1000, 1)), None);
    }

    #[tokio::test]
    async fn take_lets_one_caller_ask_redis_when_the_window_is_unknown() {
        let quick = ApproximateWindows::default();
        let Quickly::Unknown(asking) = quick.try_consume(&window(10, 1)) else {
            panic!("it is known")
        };
        let Quickly::Asked(first) = quick.try_consume(&window(10, 1)) else {
            panic!("nobody asks")
        };
        let Quickly::Asked(second) = quick.try_consume(&window(10, 1)) else {
            panic!("nobody asks")
        };

        drop(asking);
        assert!(first.wait().await, "the next caller asks");
        let Quickly::Unknown(asking) = quick.try_consume(&window(10, 1)) else {
            panic!("it is known")
        };
        assert!(second.wait().await);
        let Quickly::Asked(third) = quick.try_consume(&window(10, 1)) else {
            panic!("nobody asks")
        };
        asking.miss();

        assert!(!third.wait().await, "nobody waits for a Redis that does not reply");
    }

    #[test]
    fn costs_that_were_not_sent_go_along_when_redis_is_asked_again() {
        for is_taken in [true, false] {
            let quick = ApproximateWindows::default();
            learn(&quick, &window(10, 1), counted(0), true);
            assert_eq!(decided(&quick, &window(10, 3)), Some((1, true)));
            quick.shard("a").known.get_mut("a").expect("known").at_ms = -FRESH_MS - 1;

            let Quickly::Unknown(asking) = quick.try_consume(&window(10, 5)) else {
                panic!("fresh")
            };
            assert_eq!(asking.windows(&window(10, 5)), [window(EXACT_MAX, 3), window(10, 5)]);
            assert_eq!(quick.drain_pending(), [], "they are under way");
            let told =
                asking.record_exact(&window(10, 5), &taken(is_taken, &[counted(1), counted(4)]));

            assert_eq!(told, taken(is_taken, &[counted(4)]));
            let expected = if is_taken { 9 } else { 4 };
            assert_eq!(decided(&quick, &window(10, 0)), Some((expected, true)));
            let due: Vec<_> = quick.drain_pending().iter().map(|window| window.cost).collect();
            assert_eq!(due, [if is_taken { 0 } else { 3 }]);
        }
    }

    #[test]
    fn what_was_taken_here_counts_whether_it_was_sent_or_not() {
        let quick = ApproximateWindows::default();
        learn(&quick, &window(10, 1), counted(0), true);

        let taken = (0..20).filter(|_| decided(&quick, &window(10, 1)).is_some_and(|(_, t)| t));
        assert_eq!(taken.count(), 9);
        let due = quick.drain_pending();
        let refused = decided(&quick, &window(10, 1));
        // Another replica has taken three meanwhile.
        quick.record_sync(&due[0], Some(counted(4)));

        assert_eq!(due, [window(EXACT_MAX, 9)]);
        assert_eq!(refused, Some((10, false)));
        assert_eq!(decided(&quick, &window(14, 1)), Some((13, true)));
    }

    #[test]
    fn unsent_tells_what_redis_may_not_know_of_the_current_window() {
        let quick = ApproximateWindows::default();
        learn(&quick, &window(10, 1), counted(0), true);
        decided(&quick, &window(10, 2));
        quick.drain_pending();
        decided(&quick, &window(10, 3));

        let unsent = |at_ms| quick.unsent(&window(10, 1), Timestamp(at_ms));
        assert_eq!((unsent(60_000), unsent(119_999)), (5, 5));
        assert_eq!((unsent(59_999), unsent(120_000)), (0, 0), "windows before and after");
    }

    #[test]
    fn what_was_sent_in_vain_is_sent_again() {
        let quick = ApproximateWindows::default();
        learn(&quick, &window(10, 1), counted(0), false);
        decided(&quick, &window(10, 4));

        let first = quick.drain_pending();
        assert!(quick.drain_pending().is_empty(), "it is under way");
        quick.record_sync(&first[0], None);

        assert_eq!(quick.drain_pending(), first);
    }
}
