//! Numbers the heartbeats of this replica, by which a row that was read on a standby is dated.
//!
//! Each heartbeat writes the next number to this replica's row in the database. Before it is committed, the process
//! takes a read version and stores it with the number. A read on a standby returns the number that is visible in the
//! same snapshot. That snapshot contains the heartbeat, and so every change that was committed before it. This process
//! learns of any other change after it took the read version. So the value is as fresh as one that was read at that
//! version, and the rules of [`Freshness`](store::freshness::Freshness) apply, however far the standby lags.
//!
//! A number that is not stored dates nothing: there is none before the first heartbeat of a process, whose row has a
//! new id after a restart.

use std::collections::BTreeMap;
use std::time::Duration;

use foundation::clock::Monotonic;
use foundation::fault_injection::Safeguard;
use store::freshness::{Freshness, ReadVersion};

/// How far a standby may be behind before it is skipped. Its rows would still be dated correctly, but more of them would
/// be stale, and read twice.
pub const STANDBY_DELAY_MAX: Duration = Duration::from_secs(2);
/// The maximum number of heartbeats that are stored: those of about ten minutes.
const HEARTBEATS_MAX: usize = 1_024;

/// The latest heartbeats of this process, with the read version that was taken before each was committed.
#[derive(Debug, Default)]
pub struct Heartbeats {
    last_number: i64,
    /// By number.
    versions: BTreeMap<i64, ReadVersion>,
    /// The highest number that is known to be committed; 0 if none is.
    committed_number: i64,
}

impl Heartbeats {
    /// Returns the number of the next heartbeat. No other has it, even if this one fails.
    pub fn begin(&mut self) -> i64 {
        self.last_number += 1;
        self.last_number
    }

    /// Stores a read version that was taken before the heartbeat is committed. If the result of the commit is never
    /// known, the number is valid nevertheless: a standby that has it proves that it was committed.
    pub fn record_version(&mut self, number: i64, version: ReadVersion) {
        self.versions.insert(number, version);
        while self.versions.len() > HEARTBEATS_MAX {
            self.versions.pop_first();
        }
    }

    /// Records that a heartbeat was committed.
    pub fn record_commit(&mut self, number: i64) {
        self.committed_number = self.committed_number.max(number);
    }

    /// Returns the version at which a row counts as read that was visible on a standby together with this heartbeat.
    /// `None` if the heartbeat is unknown, or the standby is too far behind.
    pub fn date_row(
        &self,
        heartbeat: Option<i64>,
        freshness: &Freshness,
        now: Monotonic,
    ) -> Option<ReadVersion> {
        if Safeguard::StandbyPosition.is_disabled() {
            return Some(freshness.read_version(now));
        }
        let version = self.find_version(heartbeat?)?;
        (self.find_delay(heartbeat?, now) <= STANDBY_DELAY_MAX).then_some(version)
    }

    fn find_version(&self, number: i64) -> Option<ReadVersion> {
        self.versions.get(&number).copied()
    }

    /// Returns how far a standby that has this number, and no higher one, is behind: the time between the first heartbeat
    /// that it lacks and the last one that is known to be committed. So it does not grow while the primary is
    /// unreachable.
    pub fn find_delay(&self, number: i64, now: Monotonic) -> Duration {
        let first_missing = self.versions.range(number.saturating_add(1)..).next();
        let last = self.versions.get(&self.committed_number);
        let (Some((_, first_missing)), Some(last)) = (first_missing, last) else {
            return Duration::ZERO;
        };
        first_missing.age(now).saturating_sub(last.age(now))
    }

    /// Returns the most that a standby with this number is behind: the time since the read version of the heartbeat. If
    /// it has none that is stored, the time since the first one that is.
    pub fn find_age(&self, number: i64, now: Monotonic) -> Duration {
        let version = self.find_version(number).or_else(|| self.versions.values().next().copied());
        version.map_or(Duration::ZERO, |version| version.age(now))
    }
}

#[cfg(test)]
mod tests {
    use foundation::id::KeyId;
    use store::freshness::{CacheTag, Freshness, VersionSlot};

    use super::*;

    const START: Monotonic = Monotonic::from_ms(1_000_000);

    fn after(ms: u64) -> Monotonic {
        START + Duration::from_millis(ms)
    }

    fn tag(id: &str) -> CacheTag {
        CacheTag::Key(KeyId::from(id))
    }

    /// A replica, and the times of its heartbeats.
    struct Replica {
        freshness: Freshness,
        heartbeats: Heartbeats,
    }

    impl Replica {
        fn new() -> Self {
            let (freshness, heartbeats) = (Freshness::new(900_000, START), Heartbeats::default());
            Self { freshness, heartbeats }
        }

        fn beat(&mut self, at: Monotonic) -> i64 {
            let number = self.heartbeats.begin();
            self.heartbeats.record_version(number, self.freshness.read_version(at));
            self.heartbeats.record_commit(number);
            number
        }

        /// Returns whether a row that was read with this number may be used.
        fn is_fresh(&self, number: i64, id: &str, now: Monotonic) -> bool {
            let version = self.heartbeats.find_version(number);
            let slots = [VersionSlot::from_tag(&tag(id))];
            version.is_some_and(|version| self.freshness.is_fresh(version, &slots, now))
        }
    }

    #[test]
    fn row_is_stale_when_a_change_became_known_after_the_heartbeat_that_dates_it() {
        let mut replica = Replica::new();
        let before = replica.beat(START);
        replica.freshness.record_invalidation(&tag("a"));
        let later = replica.beat(after(500));

        assert!(!replica.is_fresh(before, "a", after(600)));
        assert!(replica.is_fresh(before, "b", after(600)), "an entity that has not changed");
        assert!(replica.is_fresh(later, "a", after(600)));
    }

    #[test]
    fn row_is_dated_when_the_result_of_the_commit_is_unknown() {
        let mut replica = Replica::new();
        let number = replica.heartbeats.begin();
        assert_eq!(replica.heartbeats.find_version(number).map(drop), None, "not sent yet");

        replica.heartbeats.record_version(number, replica.freshness.read_version(START));

        assert!(replica.is_fresh(number, "a", START));
    }

    #[test]
    fn unproven_row_is_trusted_for_five_seconds_from_its_heartbeat() {
        let mut replica = Replica::new();
        let number = replica.beat(after(60_000));

        assert!(replica.is_fresh(number, "a", after(65_000)));
        assert!(!replica.is_fresh(number, "a", after(65_001)));
    }

    #[test]
    fn row_is_untrusted_when_an_intent_names_it_and_the_log_is_not_read() {
        let mut replica = Replica::new();
        let number = replica.beat(after(60_000));
        replica.freshness.record_announcements_read(after(60_000));

        replica.freshness.intents.open(7, "key:a\n");

        assert!(!replica.is_fresh(number, "a", after(60_001)));
        assert!(replica.is_fresh(number, "b", after(60_001)));
        replica.freshness.record_log_read(after(60_002), None, after(60_002));
        assert!(replica.is_fresh(number, "a", after(60_003)), "the log shows what is committed");
    }

    #[test]
    fn number_dates_nothing_when_it_is_unknown_or_of_a_process_that_has_ended() {
        let mut ended = Replica::new();
        let number = (0..3).map(|n| ended.beat(after(n * 500))).last().expect("a number");
        let mut restarted = Replica::new();
        restarted.beat(after(5_000));

        assert_eq!(number, 3);
        for unknown in [-1, 0, number, i64::MAX] {
            assert!(!restarted.is_fresh(unknown, "a", after(5_000)), "{unknown}");
        }
    }

    #[test]
    fn numbers_are_distinct_when_heartbeats_overlap_or_fail() {
        let mut heartbeats = Heartbeats::default();

        let numbers = [(); 3].map(|()| heartbeats.begin());

        assert_eq!(numbers, [1, 2, 3]);
    }

    #[test]
    fn overlapping_heartbeats_keep_their_own_versions() {
        let mut replica = Replica::new();
        let (first, second) = (replica.heartbeats.begin(), replica.heartbeats.begin());
        replica.heartbeats.record_version(second, replica.freshness.read_version(START));
        replica.freshness.record_invalidation(&tag("a"));
        replica.heartbeats.record_version(first, replica.freshness.read_version(after(1)));
        replica.heartbeats.record_commit(second);
        replica.heartbeats.record_commit(first);

        assert!(!replica.is_fresh(second, "a", after(2)));
        assert!(replica.is_fresh(first, "a", after(2)), "it was committed after the change");
        assert_eq!(replica.heartbeats.find_delay(second, after(2_000)), Duration::ZERO);
    }

    #[test]
    fn row_is_not_dated_when_standby_lacks_two_seconds_of_heartbeats() {
        let mut replica = Replica::new();
        let is_dated = |replica: &Replica, number, ms| {
            replica.heartbeats.date_row(number, &replica.freshness, after(ms)).is_some()
        };
        let first = replica.beat(START);
        assert!(!is_dated(&replica, None, 1), "it has none");
        replica.beat(after(500));
        replica.beat(after(2_500));
        assert!(is_dated(&replica, Some(first), 60_000));

        replica.beat(after(2_501));

        assert!(!is_dated(&replica, Some(first), 60_000));
        assert!(is_dated(&replica, Some(first + 1), 60_000));
    }

    #[test]
    fn delay_is_that_of_the_heartbeats_that_are_missing() {
        let mut replica = Replica::new();
        let delay = |replica: &Replica, number| {
            replica.heartbeats.find_delay(number, after(60_000)).as_millis()
        };
        assert_eq!(delay(&replica, 0), 0, "there is none yet");
        let numbers: Vec<_> = (0..4).map(|n| replica.beat(after(n * 500))).collect();

        assert_eq!(delay(&replica, 0), 1_500, "it has none");
        assert_eq!(delay(&replica, numbers[0]), 1_000);
        assert_eq!(delay(&replica, numbers[2]), 0, "the last one before the primary was lost");
        assert_eq!([delay(&replica, numbers[3]), delay(&replica, i64::MAX)], [0, 0]);
    }

    #[test]
    fn age_counts_from_the_heartbeat_that_the_standby_has() {
        let mut replica = Replica::new();
        let age = |replica: &Replica, number, ms| {
            replica.heartbeats.find_age(number, after(ms)).as_millis()
        };
        assert_eq!(age(&replica, 0, 9_000), 0, "there is none yet");
        let numbers: Vec<_> = (0..4).map(|n| replica.beat(after(n * 500))).collect();

        assert_eq!(age(&replica, numbers[3], 1_600), 100);
        assert_eq!(age(&replica, numbers[1], 1_600), 1_100);
        assert_eq!(age(&replica, 0, 1_600), 1_600, "it has none");
    }

    #[test]
    fn oldest_heartbeats_are_forgotten_when_there_are_too_many() {
        let mut replica = Replica::new();
        let first = replica.beat(START);
        for n in 1..=HEARTBEATS_MAX as u64 {
            replica.beat(after(n * 500));
        }

        assert!(replica.heartbeats.find_version(first).is_none());
        assert!(replica.heartbeats.find_version(first + 1).is_some());
        assert_eq!(replica.heartbeats.versions.len(), HEARTBEATS_MAX);
    }
}
