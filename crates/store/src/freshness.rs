//! Whether something that was read a while ago is still true.
//!
//! Every change has a [`Subject`]. What a cache keeps remembers which subjects it was made from, and
//! the number of the last change that was known *before* it was read. It is fresh while none of its
//! subjects has changed since. A load that was under way when a change arrived carries the smaller
//! number, so whatever it puts back into a cache is stale on arrival: an invalidation cannot lose.
//!
//! What is older than five seconds is trusted only while this process can prove that it knows every
//! change of before: by its own reading of the change log, or by announcements without a gap. The
//! latter count while the database is away, for the grace period, and not for what somebody is about
//! to change ([`Intents`]).

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::fault_injection::Safeguard;
use foundation::id::{ApiId, IdentityId, KeyId, NamespaceId, PermissionId, RoleId};

use super::intents::Intents;

/// What can change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CacheTag {
    Key(KeyId),
    /// A key that did not exist before: by the fingerprint of its hash, which is all that whoever
    /// asked for it in vain can know.
    NewKey(u64),
    Api(ApiId),
    Identity(IdentityId),
    Role(RoleId),
    Permission(PermissionId),
    RootKey(KeyId),
    /// A namespace, or an override in it.
    Namespace(NamespaceId),
    /// A namespace that did not exist before: by the fingerprint of its workspace and its name.
    NewNamespace(u64),
    /// Keys that did not exist before: so many at once that one row of the change log stands for all.
    NewKeys,
    /// Whatever anybody may have read: where it cannot be said who has asked in vain for what is there again.
    All,
}

/// How [`Subject::All`] is written.
pub const ALL: &str = "all";

impl std::fmt::Display for CacheTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key(id) => write!(f, "key:{id}"),
            Self::NewKey(fingerprint) => write!(f, "new:{fingerprint:016x}"),
            Self::Api(id) => write!(f, "api:{id}"),
            Self::Identity(id) => write!(f, "identity:{id}"),
            Self::Role(id) => write!(f, "role:{id}"),
            Self::Permission(id) => write!(f, "permission:{id}"),
            Self::RootKey(id) => write!(f, "root_key:{id}"),
            Self::Namespace(id) => write!(f, "namespace:{id}"),
            Self::NewNamespace(fingerprint) => write!(f, "new_namespace:{fingerprint:016x}"),
            Self::NewKeys => f.write_str("new_keys"),
            Self::All => f.write_str(ALL),
        }
    }
}

/// A subject's place in the table of last changes. Two subjects may share one: then a change of one
/// has the other read again, which costs a read and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionSlot(u16);

impl VersionSlot {
    pub fn of(subject: &CacheTag) -> Self {
        Self::of_text(&subject.to_string())
    }

    pub(super) fn of_text(subject: &str) -> Self {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(subject);
        Self((hash & 0xffff) as u16)
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// When something was read: what was known then, and at what time.
#[derive(Debug, Clone, Copy)]
pub struct ReadVersion {
    change: u64,
    at_ms: i64,
}

/// How long what was read is trusted without a proof that it has not changed.
const UNPROVEN_MS: i64 = 5_000;

/// How long ago the database must have answered to count as there: four readings of the change log.
const NEAR_MS: i64 = 2_000;

/// The last change of everything, and how well this replica is told of changes.
pub struct Freshness {
    watch: Stopwatch,
    /// The number of the last change.
    last: AtomicU64,
    /// By [`Place`], the number of the last change there.
    changed: Box<[AtomicU64]>,
    /// Everything read before this change is stale.
    all_changed: AtomicU64,
    /// Changes that somebody is about to commit.
    pub intents: Intents,
    /// Whatever was committed before this moment is known by reading the change log; in milliseconds of
    /// `watch`, as all that follow.
    log_ms: AtomicI64,
    /// Whatever was committed before this moment is known by announcements without a gap.
    feed_ms: AtomicI64,
    /// When the database last answered.
    database_ms: AtomicI64,
    /// From when on the grace period counts: when this replica was last registered.
    registered_ms: AtomicI64,
    /// How long what is cached is good without the database.
    grace_ms: i64,
}

impl Freshness {
    pub fn new(grace_ms: i64) -> Self {
        Self {
            watch: Stopwatch::new(),
            last: AtomicU64::new(0),
            changed: (0..=u16::MAX).map(|_| AtomicU64::new(0)).collect(),
            all_changed: AtomicU64::new(0),
            intents: Intents::default(),
            log_ms: AtomicI64::new(0),
            feed_ms: AtomicI64::new(0),
            database_ms: AtomicI64::new(0),
            registered_ms: AtomicI64::new(0),
            grace_ms,
        }
    }

    /// To be taken before the first read of what it will stand for.
    pub fn read_version(&self) -> ReadVersion {
        ReadVersion { change: self.last.load(Ordering::SeqCst), at_ms: self.watch.elapsed_ms() }
    }

    /// A subject has changed, and its change is committed.
    pub fn record_invalidation(&self, subject: &CacheTag) {
        self.changed_text(&subject.to_string());
    }

    /// As [`Freshness::changed`], as the change streams carry it.
    pub fn changed_text(&self, subject: &str) {
        if subject == ALL {
            return self.invalidate_all();
        }
        let number = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        self.changed[VersionSlot::of_text(subject).index()].fetch_max(number, Ordering::SeqCst);
    }

    /// Changes may have been missed: nothing read so far is to be trusted.
    pub fn invalidate_all(&self) {
        let number = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        self.all_changed.fetch_max(number, Ordering::SeqCst);
    }

    /// What time it is for the proofs below: to be asked before what proves something begins.
    pub fn now_ms(&self) -> i64 {
        self.watch.elapsed_ms()
    }

    /// The change log has been read: every change that was committed before `at_ms` is known. `registered_ms`: when
    /// this replica was last registered, as the database says.
    pub fn proved_by_log(&self, at_ms: i64, registered_ms: i64) {
        self.log_ms.fetch_max(at_ms, Ordering::SeqCst);
        self.registered_ms.fetch_max(registered_ms, Ordering::SeqCst);
        self.record_database_reply();
    }

    /// The announcements have been read without a gap: every change that was committed before `at_ms` is known, or
    /// its intent is.
    pub fn proved_by_feed(&self, at_ms: i64) {
        self.feed_ms.fetch_max(at_ms, Ordering::SeqCst);
    }

    /// The database has answered.
    pub fn record_database_reply(&self) {
        self.database_ms.fetch_max(self.watch.elapsed_ms(), Ordering::SeqCst);
    }

    /// For how long it has not been proven that no change was missed.
    pub fn feed_silence(&self) -> Duration {
        let proven = u64::try_from(self.proven_ms()).unwrap_or(0);
        self.watch.elapsed().saturating_sub(Duration::from_millis(proven))
    }

    fn proven_ms(&self) -> i64 {
        self.log_ms.load(Ordering::SeqCst).max(self.feed_ms.load(Ordering::SeqCst))
    }

    /// Whether the database has answered within the last seconds.
    pub fn is_database_reachable(&self) -> bool {
        let answered = self.database_ms.load(Ordering::SeqCst);
        answered > 0 && self.watch.elapsed_ms() - answered <= NEAR_MS
    }

    /// Whether what was read at `stamp` from `places` may still be used.
    pub fn is_fresh(&self, stamp: ReadVersion, places: &[VersionSlot]) -> bool {
        self.unchanged(stamp, places) && self.is_trusted(stamp, places)
    }

    fn unchanged(&self, stamp: ReadVersion, places: &[VersionSlot]) -> bool {
        self.last.load(Ordering::SeqCst) == stamp.change
            || (self.all_changed.load(Ordering::SeqCst) <= stamp.change
                && places.iter().all(|place| {
                    self.changed[place.index()].load(Ordering::SeqCst) <= stamp.change
                }))
    }

    fn is_trusted(&self, stamp: ReadVersion, places: &[VersionSlot]) -> bool {
        let now = self.watch.elapsed_ms();
        if now - self.log_ms.load(Ordering::SeqCst) <= NEAR_MS {
            return true;
        }
        if self.intents.concern(places) && !Safeguard::Intent.is_disabled() {
            return false;
        }
        now - stamp.at_ms <= UNPROVEN_MS
            || (now - self.proven_ms() <= UNPROVEN_MS
                && now - self.registered_ms.load(Ordering::SeqCst) <= self.grace_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str) -> CacheTag {
        CacheTag::Key(KeyId::from(id))
    }

    #[test]
    fn a_change_makes_what_was_read_before_it_stale_and_nothing_else() {
        let freshness = Freshness::new(900_000);
        let before = freshness.read_version();

        freshness.record_invalidation(&key("a"));

        assert!(!freshness.is_fresh(before, &[VersionSlot::of(&key("a"))]));
        assert!(freshness.is_fresh(before, &[VersionSlot::of(&key("b"))]));
        assert!(freshness.is_fresh(freshness.read_version(), &[VersionSlot::of(&key("a"))]));
    }

    #[test]
    fn a_load_under_way_during_a_change_is_stale_on_arrival() {
        let freshness = Freshness::new(900_000);
        let load_began = freshness.read_version();
        freshness.record_invalidation(&key("a"));

        let arrived = freshness.is_fresh(load_began, &[VersionSlot::of(&key("a"))]);

        assert!(!arrived);
    }

    #[test]
    fn after_a_gap_in_the_stream_nothing_read_before_is_fresh() {
        let freshness = Freshness::new(900_000);
        let before = freshness.read_version();

        freshness.invalidate_all();

        assert!(!freshness.is_fresh(before, &[]));
        assert!(freshness.is_fresh(freshness.read_version(), &[]));
    }

    #[test]
    fn what_is_old_is_trusted_only_with_a_proof_and_only_for_the_grace_without_the_database() {
        let freshness = Freshness::new(20_000);
        let stamp = ReadVersion { change: 0, at_ms: -60_000 };
        let trusts = || freshness.is_fresh(stamp, &[VersionSlot::of(&key("a"))]);
        let back = |log, feed, registered| {
            freshness.log_ms.store(log, Ordering::SeqCst);
            freshness.feed_ms.store(feed, Ordering::SeqCst);
            freshness.registered_ms.store(registered, Ordering::SeqCst);
        };

        back(0, -60_000, -60_000);
        assert!(trusts(), "the log has just been read");
        back(-60_000, 0, -10_000);
        assert!(trusts(), "announcements came without a gap");
        back(-60_000, 0, -30_000);
        assert!(!trusts(), "the grace is over");
        back(-60_000, -6_000, -10_000);
        assert!(!trusts(), "nothing proves it");
        back(-4_000, -60_000, -4_000);
        assert!(trusts(), "the log was read within five seconds");
    }

    #[test]
    fn what_somebody_is_about_to_change_is_unknown_without_the_database_until_the_result_comes() {
        let freshness = Freshness::new(900_000);
        let stamp = ReadVersion { change: 0, at_ms: -60_000 };
        let trusts = |id| freshness.is_fresh(stamp, &[VersionSlot::of(&key(id))]);
        freshness.intents.open(7, "key:a\n");
        freshness.intents.open(8, "key:a\n");
        assert!(trusts("a"), "the change log is read");

        freshness.log_ms.store(-60_000, Ordering::SeqCst);
        assert!(!trusts("a") && trusts("b"));
        freshness.intents.close(7);
        assert!(!trusts("a"));
        freshness.intents.close(8);
        assert!(trusts("a"), "it was not committed");
        freshness.intents.open(9, ALL);
        assert!(!trusts("b"));
    }
}
