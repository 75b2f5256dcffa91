//! Decides how announcements are read, and what a read of them proves.
//!
//! A [`FeedReader`] calls nothing itself and reads no clock: its owner reads the feed where the reader says, and passes
//! the result and the time to it.

use std::time::Duration;

use foundation::clock::Monotonic;
use foundation::fault_injection::Safeguard;
use limiter::redis::{FeedPosition, FeedReadResult};
use store::freshness::Freshness;

use super::feed::{Announcement, FeedState};

/// How long a reader may receive no reply from Redis before it discards its position, if the database is reachable.
const POSITION_TIMEOUT: Duration = Duration::from_secs(3);

/// The position of a reader in the announcements. The next connection continues where the last one stopped.
#[derive(Debug)]
pub struct FeedReader {
    position: Option<FeedPosition>,
    replied_at: Monotonic,
}

impl FeedReader {
    pub fn new(now: Monotonic) -> Self {
        Self { position: None, replied_at: now }
    }

    /// Returns the position to read from. `None`: the end of the feed must be found first.
    pub fn position(&self) -> Option<&FeedPosition> {
        self.position.as_ref()
    }

    /// Begins to read at the end of the feed.
    pub fn begin_at(&mut self, end: FeedPosition, feed_state: &FeedState) {
        feed_state.begin_reading(&end.era);
        self.position = Some(end);
    }

    /// Applies the result of a read that began at `began` and whose reply arrived at `now`.
    pub fn apply_result(
        &mut self,
        result: FeedReadResult,
        (began, now): (Monotonic, Monotonic),
        feed_state: &FeedState,
        freshness: &Freshness,
    ) {
        self.replied_at = now;
        match result {
            FeedReadResult::Gap => {
                feed_state.end_reading();
                self.position = None;
            }
            FeedReadResult::Announcements { texts, position, is_end, reader_ages } => {
                for announcement in texts.iter().filter_map(|text| Announcement::parse(text)) {
                    announcement.apply_to(freshness);
                }
                self.position = Some(position);
                let majority_age = match Safeguard::Majority.is_disabled() {
                    true => Some(Duration::ZERO),
                    false => FeedState::majority_age(&reader_ages),
                };
                if is_end
                    && feed_state.is_proof()
                    && let Some(age) = majority_age
                {
                    freshness.record_announcements_read(began - age);
                }
            }
        }
    }

    /// Decides, after a connection has failed, whether the next one continues where it stopped.
    pub fn record_failure(
        &mut self,
        now: Monotonic,
        feed_state: &FeedState,
        freshness: &Freshness,
    ) {
        // While the database is reachable, continuing there has no benefit, and writers would wait for this replica.
        if now.since(self.replied_at) > POSITION_TIMEOUT && freshness.is_database_reachable(now) {
            feed_state.end_reading();
            self.position = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use store::LogHead;
    use store::freshness::{ReadVersion, VersionSlot};

    use super::*;

    const START: Monotonic = Monotonic::from_ms(1_000_000);

    fn after(seconds: u64) -> Monotonic {
        START + Duration::from_secs(seconds)
    }

    /// A replica that has read a value, and the announcements as proof, and has then lost its database.
    struct Replica {
        freshness: Freshness,
        feed_state: FeedState,
        reader: FeedReader,
        read_version: ReadVersion,
    }

    impl Replica {
        fn new() -> Self {
            let (freshness, feed_state) = (Freshness::new(900_000, START), FeedState::default());
            let mut reader = FeedReader::new(START);
            assert_eq!(reader.position(), None);
            reader.begin_at(FeedPosition::new("a:1", 7), &feed_state);
            assert_eq!(reader.position(), Some(&FeedPosition::new("a:1", 7)));
            let reading = feed_state.current_reading().expect("a reading has begun");
            let head = LogHead { feed: Some("a:1".into()), ..LogHead::default() };
            assert!(!feed_state.confirm_reading(&reading, &head) && feed_state.is_proof());
            freshness.record_log_read(START, Some(START), START);
            let read_version = freshness.read_version(START);
            Self { freshness, feed_state, reader, read_version }
        }

        fn read(&mut self, texts: &[&str], number: u64, is_end: bool, at: u64) {
            self.read_with_ages(texts, number, is_end, Vec::new(), at);
        }

        fn read_with_ages(
            &mut self,
            texts: &[&str],
            number: u64,
            is_end: bool,
            reader_ages: Vec<Option<Duration>>,
            at: u64,
        ) {
            let texts = texts.iter().map(|text| (*text).to_owned()).collect();
            let position = FeedPosition::new("a:1", number);
            let result = FeedReadResult::Announcements { texts, position, is_end, reader_ages };
            let times = (after(at), after(at) + Duration::from_millis(500));
            self.reader.apply_result(result, times, &self.feed_state, &self.freshness);
        }

        fn is_trusted(&self, tag: &str, at: u64) -> bool {
            let slots = [VersionSlot::from_text(tag)];
            self.freshness.is_fresh(self.read_version, &slots, after(at))
        }
    }

    #[test]
    fn announcements_prove_what_was_committed_before_the_read_began() {
        let mut replica = Replica::new();
        assert!(!replica.is_trusted("key:b", 60));
        replica.read(&["intent 3\nkey:a\n"], 8, true, 60);

        assert!(replica.is_trusted("key:b", 65));
        assert!(!replica.is_trusted("key:b", 66));
        assert!(!replica.is_trusted("key:a", 65), "its change may be committed");
        replica.read(&["undone 3\n"], 9, true, 65);
        assert!(replica.is_trusted("key:a", 65));
    }

    #[test]
    fn value_is_stale_when_result_is_announced_without_its_intent_or_twice() {
        let mut replica = Replica::new();
        replica.read(&["committed 3\nkey:a\n", "committed 3\nkey:a\n"], 9, true, 60);

        assert!(!replica.is_trusted("key:a", 60));
        assert!(replica.is_trusted("key:b", 60));
        replica.read_version = replica.freshness.read_version(after(60));
        replica.read(&["intent 3\nkey:a\n"], 10, true, 66);
        assert!(!replica.is_trusted("key:a", 66), "a late intent stays open");
        let intents = replica.freshness.intents.list();
        let (position, intent) = intents.first().expect("an open intent");
        let head = LogHead::default();
        let result = Announcement::find_result(*position, intent, true, &head);
        assert!(result.expect("it is committed").apply_to(&replica.freshness));
        assert!(replica.freshness.intents.list().is_empty());
    }

    #[test]
    fn read_proves_nothing_when_more_announcements_are_unread() {
        let mut replica = Replica::new();
        replica.read(&["intent 3\nkey:a\n"], 8, false, 60);
        assert!(!replica.is_trusted("key:b", 60));

        replica.read(&[], 8, true, 61);

        assert!(replica.is_trusted("key:b", 61));
    }

    #[test]
    fn read_proves_nothing_when_half_of_the_replicas_do_not_read() {
        let mut replica = Replica::new();
        replica.read_with_ages(&[], 8, true, vec![None, None], 60);
        assert!(!replica.is_trusted("key:b", 60));

        replica.read_with_ages(&[], 8, true, vec![None, Some(Duration::from_secs(4))], 60);

        assert!(replica.is_trusted("key:b", 61), "of what was committed before the age");
        assert!(!replica.is_trusted("key:b", 62));
    }

    #[test]
    fn reading_begins_anew_when_announcements_were_missed() {
        let mut replica = Replica::new();
        let times = (after(60), after(60));
        let Replica { reader, feed_state, freshness, .. } = &mut replica;
        reader.apply_result(FeedReadResult::Gap, times, feed_state, freshness);

        assert_eq!(reader.position(), None);
        assert!(feed_state.current_reading().is_none());
        reader.begin_at(FeedPosition::new("a:1", 9), feed_state);
        replica.read(&[], 9, true, 61);
        assert!(!replica.is_trusted("key:b", 61), "the change log must confirm it");
    }

    #[test]
    fn position_is_kept_while_database_is_unreachable() {
        let mut replica = Replica::new();
        replica.read(&[], 8, true, 60);
        let Replica { reader, feed_state, freshness, .. } = &mut replica;
        reader.record_failure(after(600), feed_state, freshness);
        assert_eq!(reader.position(), Some(&FeedPosition::new("a:1", 8)));
        assert!(feed_state.is_proof());

        freshness.record_database_reply(after(601));
        reader.record_failure(after(601), feed_state, freshness);

        assert_eq!(reader.position(), None);
        assert!(feed_state.current_reading().is_none());
    }

    #[test]
    fn position_is_kept_when_redis_replied_three_seconds_ago() {
        let mut replica = Replica::new();
        replica.read(&[], 8, true, 60);
        let Replica { reader, feed_state, freshness, .. } = &mut replica;
        freshness.record_database_reply(after(62));
        let three_seconds = after(63) + Duration::from_millis(500);
        reader.record_failure(three_seconds, feed_state, freshness);
        assert!(reader.position().is_some());

        reader.record_failure(three_seconds + Duration::from_millis(1), feed_state, freshness);

        assert!(reader.position().is_none());
    }
}
