//! Decides whether a value that was read earlier is still current.
//!
//! Every change has a [`CacheTag`]. A cached value records the tags of the entities that it was computed from, and
//! the number of the last change that was known *before* it was read. The value is fresh while none of its tags has
//! changed since. A load that was in progress when a change arrived carries the smaller number, so the value it
//! caches is already stale: no invalidation is lost.
//!
//! A value older than five seconds is trusted only while this process can prove that it knows every earlier change:
//! by its own reads of the change log, or by announcements without gaps. Announcements are sufficient while the
//! database is unreachable, for the length of the grace period, and not for entities that another process is about to
//! change ([`Intents`]).
//!
//! [`Freshness`] reads no clock: each call that depends on the time receives it.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use foundation::clock::Monotonic;
use foundation::fault_injection::Safeguard;
use parking_lot::Mutex;

pub use super::cache_tag::{ALL_TAG, CacheTag};
use super::intents::Intents;

/// The slot of a cache tag in the table of last changes. If two tags share a slot, a change of one causes a reload of
/// the other, which costs one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionSlot(u16);

impl VersionSlot {
    pub fn from_tag(tag: &CacheTag) -> Self {
        Self::from_text(&tag.to_string())
    }

    /// Returns the slot of a cache tag in its text form.
    pub fn from_text(tag: &str) -> Self {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(tag);
        Self((hash & 0xffff) as u16)
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The number of the last known change, and the time, taken before a value is read.
#[derive(Debug, Clone, Copy)]
pub struct ReadVersion {
    last_change: u64,
    at_ms: i64,
}

impl ReadVersion {
    /// Returns the version of a value that is computed from another one, which was fresh after this version was taken: all
    /// changes before this version are in both. It is trusted without proof for no longer than the other one.
    #[must_use]
    pub fn computed_from(self, part: Self) -> Self {
        Self { last_change: self.last_change, at_ms: self.at_ms.min(part.at_ms) }
    }

    /// Returns the time since it was taken.
    pub fn age(self, now: Monotonic) -> Duration {
        Duration::from_millis(u64::try_from(now.as_ms() - self.at_ms).unwrap_or(0))
    }
}

/// The time for which a value is trusted without proof that it has not changed.
const UNPROVEN_TRUST_MAX_MS: i64 = 5_000;

/// The maximum age of the last database reply for the database to count as reachable: four polls of the change log.
const DATABASE_REPLY_AGE_MAX_MS: i64 = 2_000;

/// The time of what has not happened yet.
const NEVER_MS: i64 = i64::MIN;

/// Stores the last change of every version slot, and how recently this replica has proved that it knows all changes.
pub struct Freshness {
    /// The number of the last change. It is set after the change is in the fields below. So whoever reads a number finds
    /// all changes up to it there.
    last_change: AtomicU64,
    /// Held while a change is recorded.
    recording: Mutex<()>,
    /// The number of the last change, by [`VersionSlot`].
    last_changes: Box<[AtomicU64]>,
    /// Every value read before this change is stale.
    all_invalidated: AtomicU64,
    /// Changes that other processes are about to commit.
    pub intents: Intents,
    /// Every change committed before this time is known from the change log. A [`Monotonic`] in milliseconds, as are the
    /// fields below.
    log_proved_ms: AtomicI64,
    /// Every change committed before this time is known from announcements without gaps.
    announcements_proved_ms: AtomicI64,
    /// The time of the last database reply; [`NEVER_MS`] before the first.
    database_replied_ms: AtomicI64,
    /// The time from which the grace period counts: the last registration of this replica.
    registered_ms: AtomicI64,
    /// How long cached values are valid while the database is unreachable.
    grace_ms: i64,
}

impl Freshness {
    /// Creates the state of a process that starts now and has cached nothing.
    pub fn new(grace_ms: i64, now: Monotonic) -> Self {
        Self {
            last_change: AtomicU64::new(0),
            recording: Mutex::default(),
            last_changes: (0..=u16::MAX).map(|_| AtomicU64::new(0)).collect(),
            all_invalidated: AtomicU64::new(0),
            intents: Intents::default(),
            log_proved_ms: AtomicI64::new(now.as_ms()),
            announcements_proved_ms: AtomicI64::new(now.as_ms()),
            database_replied_ms: AtomicI64::new(NEVER_MS),
            registered_ms: AtomicI64::new(now.as_ms()),
            grace_ms,
        }
    }

    /// Returns the current read version. Take it before the first read of the value that it belongs to.
    pub fn read_version(&self, now: Monotonic) -> ReadVersion {
        ReadVersion { last_change: self.last_change.load(Ordering::SeqCst), at_ms: now.as_ms() }
    }

    /// Records that the entity of a cache tag has changed. Call it after the change is committed.
    pub fn record_invalidation(&self, tag: &CacheTag) {
        self.record_invalidation_text(&tag.to_string());
    }

    /// Records a change by the text form of its cache tag, as the change log and the announcements carry it.
    pub fn record_invalidation_text(&self, tag: &str) {
        if tag == ALL_TAG {
            return self.invalidate_all();
        }
        self.record_change(&self.last_changes[VersionSlot::from_text(tag).index()]);
    }

    /// Makes every cached value stale. Call it when changes may have been missed.
    pub fn invalidate_all(&self) {
        self.record_change(&self.all_invalidated);
    }

    /// Numbers a change, and stores the number as that of the last change of `place`.
    fn record_change(&self, place: &AtomicU64) {
        let _recording = self.recording.lock();
        let number = self.last_change.load(Ordering::SeqCst) + 1;
        place.store(number, Ordering::SeqCst);
        self.last_change.store(number, Ordering::SeqCst);
    }

    /// Records a read of the change log that began at `began` and ended at `now`: every change committed before it began
    /// is known. `registered_at` is the last registration of this replica according to the database, if it has one.
    pub fn record_log_read(
        &self,
        began: Monotonic,
        registered_at: Option<Monotonic>,
        now: Monotonic,
    ) {
        self.log_proved_ms.fetch_max(began.as_ms(), Ordering::SeqCst);
        if let Some(registered_at) = registered_at {
            self.registered_ms.fetch_max(registered_at.as_ms(), Ordering::SeqCst);
        }
        self.record_database_reply(now);
    }

    /// Records that the announcements have no gap: of every change committed before `at`, the change or its intent is
    /// known. Take the time before the read that proves it begins.
    pub fn record_announcements_read(&self, at: Monotonic) {
        self.announcements_proved_ms.fetch_max(at.as_ms(), Ordering::SeqCst);
    }

    /// Records a reply of the database.
    pub fn record_database_reply(&self, now: Monotonic) {
        self.database_replied_ms.fetch_max(now.as_ms(), Ordering::SeqCst);
    }

    /// Returns the time since it was last proved that no change was missed.
    pub fn feed_silence(&self, now: Monotonic) -> Duration {
        now.since(Monotonic::from_ms(u64::try_from(self.last_proof_ms()).unwrap_or(0)))
    }

    fn last_proof_ms(&self) -> i64 {
        self.log_proved_ms
            .load(Ordering::SeqCst)
            .max(self.announcements_proved_ms.load(Ordering::SeqCst))
    }

    /// Returns whether the database replied within the last two seconds.
    pub fn is_database_reachable(&self, now: Monotonic) -> bool {
        let replied_ms = self.database_replied_ms.load(Ordering::SeqCst);
        replied_ms != NEVER_MS && now.as_ms() - replied_ms <= DATABASE_REPLY_AGE_MAX_MS
    }

    /// Returns whether a value that was read at `version` and depends on `slots` may still be used.
    pub fn is_fresh(&self, version: ReadVersion, slots: &[VersionSlot], now: Monotonic) -> bool {
        self.is_unchanged(version, slots) && self.is_trusted(version, slots, now.as_ms())
    }

    fn is_unchanged(&self, version: ReadVersion, slots: &[VersionSlot]) -> bool {
        self.last_change.load(Ordering::SeqCst) == version.last_change
            || (self.all_invalidated.load(Ordering::SeqCst) <= version.last_change
                && slots.iter().all(|slot| {
                    self.last_changes[slot.index()].load(Ordering::SeqCst) <= version.last_change
                }))
    }

    fn is_trusted(&self, version: ReadVersion, slots: &[VersionSlot], now_ms: i64) -> bool {
        if now_ms - self.log_proved_ms.load(Ordering::SeqCst) <= DATABASE_REPLY_AGE_MAX_MS
            || Safeguard::Trust.is_disabled()
        {
            return true;
        }
        if self.intents.has_open_for(slots) && !Safeguard::Intent.is_disabled() {
            return false;
        }
        now_ms - version.at_ms <= UNPROVEN_TRUST_MAX_MS
            || (now_ms - self.last_proof_ms() <= UNPROVEN_TRUST_MAX_MS
                && now_ms - self.registered_ms.load(Ordering::SeqCst) <= self.grace_ms)
    }
}

#[cfg(test)]
mod tests {
    use foundation::id::KeyId;

    use super::*;

    fn key(id: &str) -> CacheTag {
        CacheTag::Key(KeyId::from(id))
    }

    fn slots(id: &str) -> [VersionSlot; 1] {
        [VersionSlot::from_tag(&key(id))]
    }

    const START: Monotonic = Monotonic::from_ms(1_000_000);

    fn after(seconds: u64) -> Monotonic {
        START + Duration::from_secs(seconds)
    }

    #[test]
    fn value_is_stale_only_when_its_tag_changed_after_it_was_read() {
        let freshness = Freshness::new(900_000, START);
        let before = freshness.read_version(START);

        freshness.record_invalidation(&key("a"));

        assert!(!freshness.is_fresh(before, &slots("a"), START));
        assert!(freshness.is_fresh(before, &slots("b"), START));
        assert!(freshness.is_fresh(freshness.read_version(START), &slots("a"), START));
    }

    #[test]
    fn value_is_stale_when_its_tag_changed_during_the_load() {
        let freshness = Freshness::new(900_000, START);
        let version = freshness.read_version(START);
        freshness.record_invalidation(&key("a"));

        assert!(!freshness.is_fresh(version, &slots("a"), START));
    }

    #[test]
    fn computed_value_is_fresh_until_one_of_its_parts_changes() {
        let freshness = Freshness::new(900_000, START);
        let part = freshness.read_version(START);
        freshness.record_invalidation(&key("a"));
        let parts = [slots("a"), slots("b")].concat();
        let computed = freshness.read_version(after(1)).computed_from(part);

        assert!(freshness.is_fresh(part, &slots("b"), after(1)), "the part has not changed");
        assert!(freshness.is_fresh(computed, &parts, after(1)));
        assert!(freshness.is_fresh(computed, &parts, after(5)));
        assert!(!freshness.is_fresh(computed, &parts, after(6)), "its oldest part is not trusted");
        freshness.record_log_read(after(6), None, after(6));
        assert!(freshness.is_fresh(computed, &parts, after(6)));
        freshness.record_invalidation(&key("b"));
        assert!(!freshness.is_fresh(computed, &parts, after(6)));
    }

    #[test]
    fn numbered_change_is_in_its_slot_when_many_record_at_once() {
        let freshness = Freshness::new(900_000, START);
        let names = ["key:a", "key:b", "key:c", "key:d"];
        let slots = names.map(VersionSlot::from_text);
        std::thread::scope(|scope| {
            for name in names {
                scope.spawn(|| (0..100_000).for_each(|_| freshness.record_invalidation_text(name)));
            }
            let mut known = 0;
            while known < 400_000 {
                known = freshness.read_version(START).last_change;
                let changes = slots.iter().map(|slot| &freshness.last_changes[slot.index()]);
                let latest = changes.map(|change| change.load(Ordering::SeqCst)).max();
                assert!(latest >= Some(known), "{latest:?} in the slots, {known} is known");
            }
        });
    }

    #[test]
    fn value_is_stale_when_all_tags_are_invalidated() {
        let freshness = Freshness::new(900_000, START);
        let before = freshness.read_version(START);

        freshness.invalidate_all();

        assert!(!freshness.is_fresh(before, &[], START));
        assert!(freshness.is_fresh(freshness.read_version(START), &[], START));
    }

    #[test]
    fn value_is_trusted_for_five_seconds_when_nothing_proves_it() {
        let freshness = Freshness::new(900_000, START);
        let version = freshness.read_version(after(60));

        assert!(freshness.is_fresh(version, &slots("a"), after(65)));
        let late = after(65) + Duration::from_millis(1);
        assert!(!freshness.is_fresh(version, &slots("a"), late));
    }

    #[test]
    fn old_value_is_trusted_when_log_or_announcements_prove_it_within_grace_period() {
        let freshness = Freshness::new(20_000, START);
        let version = freshness.read_version(START);
        let is_trusted = |seconds| freshness.is_fresh(version, &slots("a"), after(seconds));

        freshness.record_log_read(after(60), Some(after(58)), after(61));
        assert!(is_trusted(62), "the change log has just been read");
        assert!(is_trusted(65), "the change log was read within five seconds");
        assert!(!is_trusted(66), "neither the change log nor announcements prove it");
        freshness.record_announcements_read(after(73));
        assert!(is_trusted(78), "the announcements have no gap");
        assert!(!is_trusted(79), "the grace period is over");
        freshness.record_announcements_read(after(79));
        assert!(!is_trusted(79), "the grace period is over");
        freshness.record_log_read(after(80), None, after(80));
        assert!(is_trusted(82), "the change log has just been read");
        assert!(!is_trusted(83), "it has not registered again");
    }

    #[test]
    fn proof_is_kept_when_a_late_reply_proves_less() {
        let freshness = Freshness::new(900_000, START);
        let version = freshness.read_version(START);
        freshness.record_log_read(after(60), Some(after(60)), after(60));
        freshness.record_announcements_read(after(70));

        freshness.record_announcements_read(after(50));
        freshness.record_log_read(after(40), Some(after(40)), after(75));

        assert!(freshness.is_fresh(version, &slots("a"), after(75)));
        assert_eq!(freshness.feed_silence(after(75)), Duration::from_secs(5));
        assert!(!freshness.is_fresh(version, &slots("a"), after(76)));
    }

    #[test]
    fn value_is_untrusted_when_intent_is_open_and_database_is_unreachable() {
        let freshness = Freshness::new(900_000, START);
        let version = freshness.read_version(START);
        let is_trusted = |id, seconds| freshness.is_fresh(version, &slots(id), after(seconds));
        freshness.record_log_read(after(60), Some(after(60)), after(60));
        freshness.record_announcements_read(after(63));
        freshness.intents.open(7, "key:a\n");
        freshness.intents.open(8, "key:a\n");
        freshness.intents.open(8, "key:a\n");
        assert!(is_trusted("a", 62), "the change log has just been read");

        assert!(!is_trusted("a", 63) && is_trusted("b", 63));
        freshness.intents.close(7);
        assert!(!is_trusted("a", 63));
        freshness.intents.close(8);
        assert!(is_trusted("a", 63), "neither change was committed");
        assert!(!freshness.intents.close(8), "a second announcement of the result");
        freshness.intents.open(9, ALL_TAG);
        assert!(!is_trusted("b", 63));
    }

    #[test]
    fn database_is_reachable_for_two_seconds_after_a_reply() {
        let freshness = Freshness::new(900_000, Monotonic::default());
        assert!(!freshness.is_database_reachable(Monotonic::default()));

        freshness.record_database_reply(Monotonic::default());

        assert!(freshness.is_database_reachable(Monotonic::from_ms(2_000)));
        assert!(!freshness.is_database_reachable(Monotonic::from_ms(2_001)));
    }

    #[test]
    fn database_is_reachable_for_two_seconds_after_a_read_of_the_log() {
        let freshness = Freshness::new(60_000, Monotonic::from_ms(0));
        assert!(!freshness.is_database_reachable(Monotonic::from_ms(1)), "it never replied");

        freshness.record_log_read(Monotonic::from_ms(99_000), None, Monotonic::from_ms(100_000));

        assert!(freshness.is_database_reachable(Monotonic::from_ms(102_000)));
        assert!(!freshness.is_database_reachable(Monotonic::from_ms(102_001)));
    }
}
