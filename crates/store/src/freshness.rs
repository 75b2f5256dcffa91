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

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use foundation::clock::Stopwatch;
use foundation::fault_injection::Safeguard;
use foundation::id::{ApiId, IdentityId, KeyId, NamespaceId, PermissionId, RoleId};

use super::intents::Intents;

/// Names an entity whose change invalidates cached values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CacheTag {
    Key(KeyId),
    /// A key that was just created, by the fingerprint of its hash: a replica that cached the absence of the key
    /// knows nothing else of it.
    NewKey(u64),
    Api(ApiId),
    Identity(IdentityId),
    Role(RoleId),
    Permission(PermissionId),
    RootKey(KeyId),
    /// A namespace or one of its overrides.
    Namespace(NamespaceId),
    /// A namespace that was just created, by the fingerprint of its workspace and name.
    NewNamespace(u64),
    /// Many keys that were created at once; one row of the change log stands for all of them.
    NewKeys,
    /// Every cached value. Used when the names whose absence may be cached cannot be determined, as when an API is
    /// restored.
    All,
}

/// The text form of [`CacheTag::All`].
pub const ALL_TAG: &str = "all";

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
            Self::All => f.write_str(ALL_TAG),
        }
    }
}

/// The slot of a cache tag in the table of last changes. If two tags share a slot, a change of one causes a reload of
/// the other, which costs one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionSlot(u16);

impl VersionSlot {
    pub fn from_tag(tag: &CacheTag) -> Self {
        Self::from_text(&tag.to_string())
    }

    pub(super) fn from_text(tag: &str) -> Self {
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

/// The time for which a value is trusted without proof that it has not changed.
const UNPROVEN_TRUST_MAX_MS: i64 = 5_000;

/// The maximum age of the last database reply for the database to count as reachable: four polls of the change log.
const DATABASE_REPLY_AGE_MAX_MS: i64 = 2_000;

/// Stores the last change of every version slot, and how recently this replica has proved that it knows all changes.
pub struct Freshness {
    stopwatch: Stopwatch,
    /// The number of the last change.
    last_change: AtomicU64,
    /// The number of the last change, by [`VersionSlot`].
    last_changes: Box<[AtomicU64]>,
    /// Every value read before this change is stale.
    all_invalidated: AtomicU64,
    /// Changes that other processes are about to commit.
    pub intents: Intents,
    /// Every change committed before this time is known from the change log. In milliseconds since the start of the
    /// process, as are the fields below.
    log_proved_ms: AtomicI64,
    /// Every change committed before this time is known from announcements without gaps.
    announcements_proved_ms: AtomicI64,
    /// The time of the last database reply.
    database_replied_ms: AtomicI64,
    /// The time from which the grace period counts: the last registration of this replica.
    registered_ms: AtomicI64,
    /// How long cached values are valid while the database is unreachable.
    grace_ms: i64,
}

impl Freshness {
    pub fn new(grace_ms: i64) -> Self {
        Self {
            stopwatch: Stopwatch::new(),
            last_change: AtomicU64::new(0),
            last_changes: (0..=u16::MAX).map(|_| AtomicU64::new(0)).collect(),
            all_invalidated: AtomicU64::new(0),
            intents: Intents::default(),
            log_proved_ms: AtomicI64::new(0),
            announcements_proved_ms: AtomicI64::new(0),
            database_replied_ms: AtomicI64::new(0),
            registered_ms: AtomicI64::new(0),
            grace_ms,
        }
    }

    /// Returns the current read version. Take it before the first read of the value that it belongs to.
    pub fn read_version(&self) -> ReadVersion {
        ReadVersion {
            last_change: self.last_change.load(Ordering::SeqCst),
            at_ms: self.stopwatch.elapsed_ms(),
        }
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
        let number = self.last_change.fetch_add(1, Ordering::SeqCst) + 1;
        self.last_changes[VersionSlot::from_text(tag).index()].fetch_max(number, Ordering::SeqCst);
    }

    /// Makes every cached value stale. Call it when changes may have been missed.
    pub fn invalidate_all(&self) {
        let number = self.last_change.fetch_add(1, Ordering::SeqCst) + 1;
        self.all_invalidated.fetch_max(number, Ordering::SeqCst);
    }

    /// Returns the time for the proofs below. Take it before the read that proves anything begins.
    pub fn now_ms(&self) -> i64 {
        self.stopwatch.elapsed_ms()
    }

    /// Records a read of the change log: every change committed before `at_ms` is known. `registered_ms` is the last
    /// registration of this replica according to the database.
    pub fn record_log_read(&self, at_ms: i64, registered_ms: i64) {
        self.log_proved_ms.fetch_max(at_ms, Ordering::SeqCst);
        self.registered_ms.fetch_max(registered_ms, Ordering::SeqCst);
        self.record_database_reply();
    }

    /// Records that the announcements have no gap: of every change committed before `at_ms`, the change or its intent
    /// is known.
    pub fn record_announcements_read(&self, at_ms: i64) {
        self.announcements_proved_ms.fetch_max(at_ms, Ordering::SeqCst);
    }

    /// Records a reply of the database.
    pub fn record_database_reply(&self) {
        self.database_replied_ms.fetch_max(self.stopwatch.elapsed_ms(), Ordering::SeqCst);
    }

    /// Returns the time since it was last proved that no change was missed.
    pub fn feed_silence(&self) -> Duration {
        let proved_ms = u64::try_from(self.last_proof_ms()).unwrap_or(0);
        self.stopwatch.elapsed().saturating_sub(Duration::from_millis(proved_ms))
    }

    fn last_proof_ms(&self) -> i64 {
        self.log_proved_ms
            .load(Ordering::SeqCst)
            .max(self.announcements_proved_ms.load(Ordering::SeqCst))
    }

    /// Returns whether the database replied within the last two seconds.
    pub fn is_database_reachable(&self) -> bool {
        let replied_ms = self.database_replied_ms.load(Ordering::SeqCst);
        replied_ms > 0 && self.stopwatch.elapsed_ms() - replied_ms <= DATABASE_REPLY_AGE_MAX_MS
    }

    /// Returns whether a value that was read at `version` and depends on `slots` may still be used.
    pub fn is_fresh(&self, version: ReadVersion, slots: &[VersionSlot]) -> bool {
        self.is_unchanged(version, slots) && self.is_trusted(version, slots)
    }

    fn is_unchanged(&self, version: ReadVersion, slots: &[VersionSlot]) -> bool {
        self.last_change.load(Ordering::SeqCst) == version.last_change
            || (self.all_invalidated.load(Ordering::SeqCst) <= version.last_change
                && slots.iter().all(|slot| {
                    self.last_changes[slot.index()].load(Ordering::SeqCst) <= version.last_change
                }))
    }

    fn is_trusted(&self, version: ReadVersion, slots: &[VersionSlot]) -> bool {
        let now = self.stopwatch.elapsed_ms();
        if now - self.log_proved_ms.load(Ordering::SeqCst) <= DATABASE_REPLY_AGE_MAX_MS {
            return true;
        }
        if self.intents.has_open_for(slots) && !Safeguard::Intent.is_disabled() {
            return false;
        }
        now - version.at_ms <= UNPROVEN_TRUST_MAX_MS
            || (now - self.last_proof_ms() <= UNPROVEN_TRUST_MAX_MS
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
    fn value_is_stale_only_when_its_tag_changed_after_it_was_read() {
        let freshness = Freshness::new(900_000);
        let before = freshness.read_version();

        freshness.record_invalidation(&key("a"));

        assert!(!freshness.is_fresh(before, &[VersionSlot::from_tag(&key("a"))]));
        assert!(freshness.is_fresh(before, &[VersionSlot::from_tag(&key("b"))]));
        assert!(freshness.is_fresh(freshness.read_version(), &[VersionSlot::from_tag(&key("a"))]));
    }

    #[test]
    fn value_is_stale_when_its_tag_changed_during_the_load() {
        let freshness = Freshness::new(900_000);
        let version = freshness.read_version();
        freshness.record_invalidation(&key("a"));

        let is_fresh = freshness.is_fresh(version, &[VersionSlot::from_tag(&key("a"))]);

        assert!(!is_fresh);
    }

    #[test]
    fn value_is_stale_when_all_tags_are_invalidated() {
        let freshness = Freshness::new(900_000);
        let before = freshness.read_version();

        freshness.invalidate_all();

        assert!(!freshness.is_fresh(before, &[]));
        assert!(freshness.is_fresh(freshness.read_version(), &[]));
    }

    #[test]
    fn old_value_is_trusted_when_log_or_announcements_prove_it_within_grace_period() {
        let freshness = Freshness::new(20_000);
        let version = ReadVersion { last_change: 0, at_ms: -60_000 };
        let is_trusted = || freshness.is_fresh(version, &[VersionSlot::from_tag(&key("a"))]);
        let set_times = |log, feed, registered| {
            freshness.log_proved_ms.store(log, Ordering::SeqCst);
            freshness.announcements_proved_ms.store(feed, Ordering::SeqCst);
            freshness.registered_ms.store(registered, Ordering::SeqCst);
        };

        set_times(0, -60_000, -60_000);
        assert!(is_trusted(), "the change log has just been read");
        set_times(-60_000, 0, -10_000);
        assert!(is_trusted(), "the announcements have no gap");
        set_times(-60_000, 0, -30_000);
        assert!(!is_trusted(), "the grace period is over");
        set_times(-60_000, -6_000, -10_000);
        assert!(!is_trusted(), "neither the change log nor announcements prove it");
        set_times(-4_000, -60_000, -4_000);
        assert!(is_trusted(), "the change log was read within five seconds");
    }

    #[test]
    fn value_is_untrusted_when_intent_is_open_and_database_is_unreachable() {
        let freshness = Freshness::new(900_000);
        let version = ReadVersion { last_change: 0, at_ms: -60_000 };
        let is_trusted = |id| freshness.is_fresh(version, &[VersionSlot::from_tag(&key(id))]);
        freshness.intents.open(7, "key:a\n");
        freshness.intents.open(8, "key:a\n");
        assert!(is_trusted("a"), "the change log has just been read");

        freshness.log_proved_ms.store(-60_000, Ordering::SeqCst);
        assert!(!is_trusted("a") && is_trusted("b"));
        freshness.intents.close(7);
        assert!(!is_trusted("a"));
        freshness.intents.close(8);
        assert!(is_trusted("a"), "neither change was committed");
        freshness.intents.open(9, ALL_TAG);
        assert!(!is_trusted("b"));
    }
}
