//! Announcements of changes, and the state that decides whether this replica may rely on those of others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use store::LogHead;
use tokio::sync::Notify;

/// An announcement of a change by its writer. A change is identified by the position of its first row in the change
/// log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Announcement<'a> {
    /// The change is about to be committed.
    Intent {
        position: i64,
        cache_tags: &'a str,
    },
    Committed {
        position: i64,
        cache_tags: &'a str,
    },
    /// The change has not been committed, and never will be.
    RolledBack {
        position: i64,
    },
}

impl<'a> Announcement<'a> {
    /// Parses the output of `Display`. Returns `None` for any other text, such as a cache tag in the change log.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (first, cache_tags) = text.split_once('\n')?;
        let (kind, position) = first.split_once(' ')?;
        let position = position.parse().ok()?;
        Some(match kind {
            "intent" => Self::Intent { position, cache_tags },
            "committed" => Self::Committed { position, cache_tags },
            "undone" => Self::RolledBack { position },
            _ => return None,
        })
    }
}

impl std::fmt::Display for Announcement<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Intent { position, cache_tags } => {
                write!(f, "intent {position}\n{cache_tags}")
            }
            Self::Committed { position, cache_tags } => {
                write!(f, "committed {position}\n{cache_tags}")
            }
            Self::RolledBack { position } => writeln!(f, "undone {position}"),
        }
    }
}

/// The state of reading announcements, and whether they prove that this replica misses no change.
///
/// They do from the moment at which the database records that this replica relies on them, so that every writer that
/// checks later reaches it by them or waits for it, and all earlier transactions have ended and been read in the change
/// log. As there may be a second Redis master, they prove it only up to the moment at which more than half of all
/// replicas were reading them, if there are three or more: other replicas, which can reach the database, may have
/// switched to the other master.
#[derive(Debug, Default)]
pub struct FeedState {
    /// The other replicas at the last count.
    pub other_replicas: ArcSwap<Vec<String>>,
    reading_state: Mutex<Option<ReadingState>>,
    is_proof: AtomicBool,
    change_notify: Notify,
}

#[derive(Debug, Clone)]
struct ReadingState {
    /// The era. Each reading has an `Arc` of its own, by which readings are distinguished.
    era: Arc<str>,
    /// The next transaction when the database first recorded that this replica relies on the era.
    registered_at_transaction: Option<i64>,
}

/// A reading of the announcements without a gap.
#[derive(Debug, Clone)]
pub struct FeedReading {
    pub era: Arc<str>,
}

impl FeedState {
    fn lock_reading_state(&self) -> MutexGuard<'_, Option<ReadingState>> {
        self.reading_state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a reading of announcements of this era.
    pub fn begin_reading(&self, era: &str) {
        let mut synced = self.lock_reading_state();
        self.is_proof.store(false, Ordering::SeqCst);
        *synced = Some(ReadingState { era: era.into(), registered_at_transaction: None });
        drop(synced);
        self.change_notify.notify_one();
    }

    /// Ends the reading, because announcements were missed, or may have been.
    pub fn end_reading(&self) {
        let mut synced = self.lock_reading_state();
        self.is_proof.store(false, Ordering::SeqCst);
        *synced = None;
        drop(synced);
        self.change_notify.notify_one();
    }

    /// Returns the current reading without a gap.
    pub fn current_reading(&self) -> Option<FeedReading> {
        let synced = self.lock_reading_state();
        synced.as_ref().map(|synced| FeedReading { era: synced.era.clone() })
    }

    /// Records that the change log has been read, as it stood at `head`, after `reading` began. Returns whether it
    /// should be read again soon, because not all transactions have ended.
    pub fn confirm_reading(&self, reading: &FeedReading, head: &LogHead) -> bool {
        let mut synced = self.lock_reading_state();
        let is_this = |synced: &&mut ReadingState| Arc::ptr_eq(&synced.era, &reading.era);
        let Some(synced) = synced.as_mut().filter(is_this) else { return false };
        if head.feed.as_deref() != Some(&*reading.era) || head.has_older_replicas {
            synced.registered_at_transaction = None;
            self.is_proof.store(false, Ordering::SeqCst);
            return false;
        }
        let all_ended =
            head.ended_below >= *synced.registered_at_transaction.get_or_insert(head.next);
        if all_ended {
            self.is_proof.store(true, Ordering::SeqCst);
        }
        !all_ended
    }

    /// Returns whether reading announcements proves that no change is missed.
    pub fn is_proof(&self) -> bool {
        self.is_proof.load(Ordering::SeqCst)
    }

    /// Returns how long ago more than half of three or more replicas, including this one, were reading the
    /// announcements. `ages` holds how long ago each of `others` did. Returns `None` if that was not within the last
    /// minute.
    pub fn majority_age(ages: &[Option<Duration>]) -> Option<Duration> {
        let mut known_ages: Vec<_> = ages.iter().flatten().copied().collect();
        known_ages.sort_unstable();
        match ages.len() {
            // Of two replicas, neither is more than half.
            0 | 1 => Some(Duration::ZERO),
            others => known_ages.get(others.div_ceil(2) - 1).copied(),
        }
    }

    /// Waits until a reading begins or ends.
    pub async fn wait_for_change(&self) {
        self.change_notify.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_returns_what_display_writes() {
        let cache_tags = "key:key_a\nnew:00000000000000ab\n";
        for announcement in [
            Announcement::Intent { position: 7, cache_tags },
            Announcement::Committed { position: 8, cache_tags },
            Announcement::RolledBack { position: 9 },
        ] {
            assert_eq!(Announcement::parse(&announcement.to_string()), Some(announcement));
        }
        assert_eq!(Announcement::parse("key:key_a"), None);
        assert_eq!(Announcement::parse(""), None);
    }

    #[test]
    fn majority_age_includes_this_replica() {
        let age = |ages: &[Option<u64>]| {
            let ages: Vec<_> = ages.iter().map(|ms| ms.map(Duration::from_millis)).collect();
            FeedState::majority_age(&ages).map(|age| age.as_millis())
        };

        assert_eq!(age(&[]), Some(0));
        assert_eq!(age(&[None]), Some(0), "one of two");
        assert_eq!(age(&[Some(300), None]), Some(300));
        assert_eq!(age(&[None, None]), None);
        assert_eq!(age(&[Some(900), None, Some(300)]), Some(900));
        assert_eq!(age(&[Some(900), None, None]), None);
        assert_eq!(age(&[Some(900), None, Some(300), None]), Some(900));
    }

    fn head(ended_below: i64, next: i64, feed: &str) -> LogHead {
        LogHead { ended_below, next, feed: Some(feed.into()), ..LogHead::default() }
    }

    #[test]
    fn announcements_are_no_proof_until_registered_and_older_transactions_have_ended() {
        let feed = FeedState::default();
        feed.begin_reading("a");
        let reading = feed.current_reading().expect("a reading has begun");

        assert!(!feed.confirm_reading(&reading, &head(5, 5, "")) && !feed.is_proof());
        assert!(feed.confirm_reading(&reading, &head(5, 9, "a")) && !feed.is_proof());
        assert!(feed.confirm_reading(&reading, &head(8, 20, "a")) && !feed.is_proof());
        assert!(!feed.confirm_reading(&reading, &head(9, 20, "a")) && feed.is_proof());
        let older = LogHead { has_older_replicas: true, ..head(20, 20, "a") };
        assert!(!feed.confirm_reading(&reading, &older) && !feed.is_proof());
        assert!(!feed.confirm_reading(&reading, &head(20, 20, "a")) && feed.is_proof());
    }

    #[test]
    fn confirm_has_no_effect_when_reading_has_ended() {
        let feed = FeedState::default();
        feed.begin_reading("a");
        let broken = feed.current_reading().expect("a reading has begun");
        feed.end_reading();
        assert!(feed.current_reading().is_none());
        feed.begin_reading("a");

        assert!(!feed.confirm_reading(&broken, &head(5, 5, "a")));
        assert!(!feed.is_proof());
    }
}
