//! What is announced of changes, and whether this replica may rely on what others announce.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use store::LogHead;
use tokio::sync::Notify;

/// What a writer tells of a change. A change is named by the position of its first row in the change log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Announcement<'a> {
    /// It is about to be committed.
    Intent {
        position: i64,
        subjects: &'a str,
    },
    Committed {
        position: i64,
        subjects: &'a str,
    },
    /// It has not been committed, and never will be.
    Undone {
        position: i64,
    },
}

impl<'a> Announcement<'a> {
    /// Reads what `Display` writes. `None`: it is something else, such as a subject in the change log.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (first, subjects) = text.split_once('\n')?;
        let (kind, position) = first.split_once(' ')?;
        let position = position.parse().ok()?;
        Some(match kind {
            "intent" => Self::Intent { position, subjects },
            "committed" => Self::Committed { position, subjects },
            "undone" => Self::Undone { position },
            _ => return None,
        })
    }
}

impl std::fmt::Display for Announcement<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Intent { position, subjects } => write!(f, "intent {position}\n{subjects}"),
            Self::Committed { position, subjects } => write!(f, "committed {position}\n{subjects}"),
            Self::Undone { position } => writeln!(f, "undone {position}"),
        }
    }
}

/// The announcements that this replica reads, and whether they prove that it misses nothing.
///
/// They do from the moment on at which the database says that this replica relies on them, so that every writer that
/// asks later reaches it by them or waits for it, and all transactions of before have ended and been read in the change
/// log. As there may be a second Redis master, they prove it up to the moment at which more than half of all replicas were
/// reading them, of three or more: others, which can reach the database, may have gone on to the other master.
#[derive(Debug, Default)]
pub struct FeedState {
    /// The other replicas, by the last count.
    pub others: ArcSwap<Vec<String>>,
    synced: Mutex<Option<Synced>>,
    is_proof: AtomicBool,
    changed: Notify,
}

#[derive(Debug, Clone)]
struct Synced {
    /// One of its own for each reading, by which they are told apart.
    era: Arc<str>,
    /// The next transaction when the database first said that this replica relies on the era.
    registered: Option<i64>,
}

/// An unbroken reading of the announcements.
#[derive(Debug, Clone)]
pub struct Reading {
    pub era: Arc<str>,
}

impl FeedState {
    fn synced(&self) -> MutexGuard<'_, Option<Synced>> {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announcements of this era are read from here on.
    pub fn begin(&self, era: &str) {
        let mut synced = self.synced();
        self.is_proof.store(false, Ordering::SeqCst);
        *synced = Some(Synced { era: era.into(), registered: None });
        drop(synced);
        self.changed.notify_one();
    }

    /// Some were missed, or may have been.
    pub fn lose(&self) {
        let mut synced = self.synced();
        self.is_proof.store(false, Ordering::SeqCst);
        *synced = None;
        drop(synced);
        self.changed.notify_one();
    }

    /// What is being read without a break.
    pub fn reading(&self) -> Option<Reading> {
        let synced = self.synced();
        synced.as_ref().map(|synced| Reading { era: synced.era.clone() })
    }

    /// The change log has been read, as it stood at `head`, which was after `reading` began. Whether it should be read
    /// once more, soon, because not all is settled.
    pub fn confirm(&self, reading: &Reading, head: &LogHead) -> bool {
        let mut synced = self.synced();
        let is_this = |synced: &&mut Synced| Arc::ptr_eq(&synced.era, &reading.era);
        let Some(synced) = synced.as_mut().filter(is_this) else { return false };
        if head.feed.as_deref() != Some(&*reading.era) || head.has_older_replicas {
            synced.registered = None;
            self.is_proof.store(false, Ordering::SeqCst);
            return false;
        }
        let all_ended = head.ended_below >= *synced.registered.get_or_insert(head.next);
        if all_ended {
            self.is_proof.store(true, Ordering::SeqCst);
        }
        !all_ended
    }

    /// Whether reading announcements proves that no change is missed.
    pub fn is_proof(&self) -> bool {
        self.is_proof.load(Ordering::SeqCst)
    }

    /// How long ago more than half of three or more replicas, this one included, were reading the announcements. `ages`: how
    /// long ago each of `others` did. `None`: they were not within the last minute.
    pub fn majority_age(ages: &[Option<Duration>]) -> Option<Duration> {
        let mut known: Vec<_> = ages.iter().flatten().copied().collect();
        known.sort_unstable();
        match ages.len() {
            // Of two, neither is more than half.
            0 | 1 => Some(Duration::ZERO),
            others => known.get(others.div_ceil(2) - 1).copied(),
        }
    }

    /// Waits until a reading begins or ends.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_are_read_as_they_were_written() {
        let subjects = "key:key_a\nnew:00000000000000ab\n";
        for announcement in [
            Announcement::Intent { position: 7, subjects },
            Announcement::Committed { position: 8, subjects },
            Announcement::Undone { position: 9 },
        ] {
            assert_eq!(Announcement::parse(&announcement.to_string()), Some(announcement));
        }
        assert_eq!(Announcement::parse("key:key_a"), None);
        assert_eq!(Announcement::parse(""), None);
    }

    #[test]
    fn majority_age_is_that_of_more_than_half_with_this_replica() {
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
    fn announcements_prove_nothing_before_the_database_names_them_and_older_transactions_end() {
        let feed = FeedState::default();
        feed.begin("a");
        let reading = feed.reading().expect("it has begun");

        assert!(!feed.confirm(&reading, &head(5, 5, "")) && !feed.is_proof());
        assert!(feed.confirm(&reading, &head(5, 9, "a")) && !feed.is_proof());
        assert!(feed.confirm(&reading, &head(8, 20, "a")) && !feed.is_proof());
        assert!(!feed.confirm(&reading, &head(9, 20, "a")) && feed.is_proof());
        let older = LogHead { has_older_replicas: true, ..head(20, 20, "a") };
        assert!(!feed.confirm(&reading, &older) && !feed.is_proof());
        assert!(!feed.confirm(&reading, &head(20, 20, "a")) && feed.is_proof());
    }

    #[test]
    fn what_was_confirmed_of_a_reading_that_broke_does_not_count_for_the_next() {
        let feed = FeedState::default();
        feed.begin("a");
        let broken = feed.reading().expect("it has begun");
        feed.lose();
        assert!(feed.reading().is_none());
        feed.begin("a");

        assert!(!feed.confirm(&broken, &head(5, 5, "a")));
        assert!(!feed.is_proof());
    }
}
