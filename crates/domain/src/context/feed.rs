//! Announcements of changes, and the state that decides whether this replica may rely on those of others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use store::freshness::Freshness;
use store::{Intent, LogHead};
use tokio::sync::Notify;

use super::change_log::LogPass;

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

    /// Decides, from a pass over the change log that began after the intent was opened, how it has ended.
    /// `is_committed`: the log contains its position. Returns `None` if it may still be committed.
    pub fn find_result(
        position: i64,
        intent: &'a Intent,
        is_committed: bool,
        head: &LogHead,
    ) -> Option<Self> {
        let has_ended = intent.first_search.is_some_and(|next| head.ended_below >= next);
        match is_committed {
            true => Some(Self::Committed { position, cache_tags: &intent.tags }),
            false => has_ended.then_some(Self::RolledBack { position }),
        }
    }

    /// Applies the announcement to what this replica knows of changes. Returns whether it ended an open intent.
    pub fn apply_to(&self, freshness: &Freshness) -> bool {
        match self {
            Self::Intent { position, cache_tags } => {
                freshness.intents.open(*position, cache_tags);
                false
            }
            Self::Committed { position, cache_tags } => {
                cache_tags.lines().for_each(|tag| freshness.record_invalidation_text(tag));
                freshness.intents.close(*position)
            }
            Self::RolledBack { position } => freshness.intents.close(*position),
        }
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

/// What the database lacks about this replica after a pass over the change log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedReport<'a> {
    /// The era of the announcements that this replica relies on, empty for none. Absent if it is recorded already.
    pub era: Option<&'a str>,
    /// The intents that it has received.
    pub intents: &'a [i64],
}

impl<'a> FeedReport<'a> {
    /// Returns `None` if the replica is not registered. `reading` was in progress before the pass began.
    pub fn new(reading: Option<&'a FeedReading>, pass: &'a LogPass) -> Option<Self> {
        pass.head.seen_at?;
        let era = reading.map_or("", |reading| &*reading.era);
        let is_recorded = pass.head.feed.as_deref() == Some(era);
        Some(Self { era: (!is_recorded).then_some(era), intents: &pass.intents })
    }

    /// Returns whether the database lacks nothing.
    pub fn is_empty(&self) -> bool {
        self.era.is_none() && self.intents.is_empty()
    }
}

impl FeedState {
    /// Begins a reading of announcements of this era.
    pub fn begin_reading(&self, era: &str) {
        let mut synced = self.reading_state.lock();
        self.is_proof.store(false, Ordering::SeqCst);
        *synced = Some(ReadingState { era: era.into(), registered_at_transaction: None });
        drop(synced);
        self.change_notify.notify_one();
    }

    /// Ends the reading, because announcements were missed, or may have been.
    pub fn end_reading(&self) {
        let mut synced = self.reading_state.lock();
        self.is_proof.store(false, Ordering::SeqCst);
        *synced = None;
        drop(synced);
        self.change_notify.notify_one();
    }

    /// Returns the current reading without a gap.
    pub fn current_reading(&self) -> Option<FeedReading> {
        let synced = self.reading_state.lock();
        synced.as_ref().map(|synced| FeedReading { era: synced.era.clone() })
    }

    /// Records that the change log has been read, as it stood at `head`, after `reading` began. Returns whether it
    /// should be read again soon, because not all transactions have ended.
    pub fn confirm_reading(&self, reading: &FeedReading, head: &LogHead) -> bool {
        let mut synced = self.reading_state.lock();
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
    use futures_util::FutureExt as _;

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
    fn intent_has_ended_when_log_contains_it_or_its_transaction_cannot_be_running() {
        let found = |first_search, is_committed, ended_below| {
            let intent = Intent { tags: "key:a\n".into(), first_search };
            let head = LogHead { ended_below, ..LogHead::default() };
            let result = Announcement::find_result(7, &intent, is_committed, &head);
            result.map(|result| result.to_string())
        };

        assert_eq!(found(None, false, 20), None, "it was opened after an earlier search");
        assert_eq!(found(Some(20), false, 19), None);
        assert_eq!(found(Some(20), false, 20), Some("undone 7\n".into()));
        assert_eq!(found(None, true, 0), Some("committed 7\nkey:a\n".into()));
        assert_eq!(found(Some(20), true, 20), Some("committed 7\nkey:a\n".into()));
    }

    #[test]
    fn report_contains_what_the_database_lacks() {
        let feed = FeedState::default();
        feed.begin_reading("a");
        let reading = feed.current_reading();
        let pass = |feed: Option<&str>, seen_at, intents: &[i64]| LogPass {
            head: LogHead { feed: feed.map(str::to_owned), seen_at, ..LogHead::default() },
            intents: intents.to_vec(),
        };

        let new = pass(Some(""), Some(1), &[]);
        let report = FeedReport::new(reading.as_ref(), &new).expect("a registered replica");
        assert_eq!((report.era, report.is_empty()), (Some("a"), false));
        let recorded = pass(Some("a"), Some(1), &[]);
        let report = FeedReport::new(reading.as_ref(), &recorded).expect("a registered replica");
        assert!(report.is_empty());
        let report = FeedReport::new(None, &recorded).expect("a registered replica");
        assert_eq!(report.era, Some(""), "the reading has ended");
        let with_intents = pass(Some("a"), Some(1), &[7]);
        let report = FeedReport::new(reading.as_ref(), &with_intents).expect("a replica");
        assert_eq!((report.era, report.intents), (None, &[7][..]));
        assert!(!report.is_empty());
        assert_eq!(FeedReport::new(reading.as_ref(), &pass(None, None, &[7])), None);
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
        // Writers that began in the meantime may not have announced anything.
        assert!(feed.confirm_reading(&reading, &head(20, 30, "a")) && !feed.is_proof());
        assert!(!feed.confirm_reading(&reading, &head(30, 30, "a")) && feed.is_proof());
        assert!(!feed.confirm_reading(&reading, &head(31, 31, "")) && !feed.is_proof());
        assert!(feed.confirm_reading(&reading, &head(31, 40, "a")) && !feed.is_proof());
    }

    #[test]
    fn announcements_are_no_proof_after_their_reading_has_ended_or_another_has_begun() {
        let feed = FeedState::default();
        let prove = || {
            let reading = feed.current_reading().expect("a reading has begun");
            assert!(!feed.confirm_reading(&reading, &head(5, 5, "a")) && feed.is_proof());
        };
        feed.begin_reading("a");
        prove();

        feed.end_reading();
        assert!(!feed.is_proof());
        feed.begin_reading("a");
        prove();
        feed.begin_reading("a");
        assert!(!feed.is_proof());
    }

    #[test]
    fn wait_ends_when_a_reading_has_begun_or_ended() {
        let feed = FeedState::default();
        let has_changed = || feed.wait_for_change().now_or_never().is_some();
        assert!(!has_changed());

        feed.begin_reading("a");
        assert!(has_changed() && !has_changed());
        feed.end_reading();
        assert!(has_changed() && !has_changed());
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
