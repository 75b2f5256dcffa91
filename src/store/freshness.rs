//! Whether something that was read a while ago is still true.
//!
//! Every change has a [`Subject`]. What a cache keeps remembers which subjects it was made from, and
//! the number of the last change that was known *before* it was read. It is fresh while none of its
//! subjects has changed since. A load that was under way when a change arrived carries the smaller
//! number, so whatever it puts back into a cache is stale on arrival: an invalidation cannot lose.
//!
//! A replica that has heard nothing from any change stream for five seconds trusts nothing older
//! than that; one whose database has been away for longer than the grace period trusts nothing.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::id::{ApiId, IdentityId, KeyId, NamespaceId, PermissionId, RoleId};

/// What can change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
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
    /// Whatever anybody may have read: where it cannot be said who has asked in vain for what is there again.
    All,
}

/// How [`Subject::All`] is written.
const ALL: &str = "all";

impl std::fmt::Display for Subject {
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
            Self::All => f.write_str(ALL),
        }
    }
}

/// A subject's place in the table of last changes. Two subjects may share one: then a change of one
/// has the other read again, which costs a read and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(u16);

impl Place {
    pub fn of(subject: &Subject) -> Self {
        Self::of_text(&subject.to_string())
    }

    fn of_text(subject: &str) -> Self {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(subject);
        Self((hash & 0xffff) as u16)
    }
}

/// When something was read: what was known then, and at what time.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    change: u64,
    at_ms: i64,
}

/// How long a replica that hears of no change trusts what it has read.
const DEAF_MS: i64 = 5_000;

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
    /// When a change stream was last heard, in milliseconds of `watch`.
    heard_ms: AtomicI64,
    /// When the database last answered, likewise.
    database_ms: AtomicI64,
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
            heard_ms: AtomicI64::new(0),
            database_ms: AtomicI64::new(0),
            grace_ms,
        }
    }

    /// To be taken before the first read of what it will stand for.
    pub fn stamp(&self) -> Stamp {
        Stamp { change: self.last.load(Ordering::SeqCst), at_ms: self.watch.elapsed_ms() }
    }

    /// A subject has changed, and its change is committed.
    pub fn changed(&self, subject: &Subject) {
        self.changed_text(&subject.to_string());
    }

    /// As [`Freshness::changed`], as the change streams carry it.
    pub fn changed_text(&self, subject: &str) {
        if subject == ALL {
            return self.everything_changed();
        }
        let number = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        self.changed[usize::from(Place::of_text(subject).0)].fetch_max(number, Ordering::SeqCst);
    }

    /// Changes may have been missed: nothing read so far is to be trusted.
    pub fn everything_changed(&self) {
        let number = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        self.all_changed.fetch_max(number, Ordering::SeqCst);
    }

    /// A change stream is alive.
    pub fn heard(&self) {
        self.heard_ms.fetch_max(self.watch.elapsed_ms(), Ordering::SeqCst);
    }

    /// The database has answered; that is a change stream too.
    pub fn heard_database(&self) {
        self.heard();
        self.database_ms.fetch_max(self.watch.elapsed_ms(), Ordering::SeqCst);
    }

    /// For how long no change stream has been heard.
    pub fn silence(&self) -> Duration {
        let heard = u64::try_from(self.heard_ms.load(Ordering::SeqCst)).unwrap_or(0);
        self.watch.elapsed().saturating_sub(Duration::from_millis(heard))
    }

    /// Whether the database has answered within the last seconds.
    pub fn database_is_near(&self) -> bool {
        let answered = self.database_ms.load(Ordering::SeqCst);
        answered > 0 && self.watch.elapsed_ms() - answered <= NEAR_MS
    }

    /// Whether what was read at `stamp` from `places` may still be used.
    pub fn is_fresh(&self, stamp: Stamp, places: &[Place]) -> bool {
        self.unchanged(stamp, places) && self.is_trusted(stamp)
    }

    fn unchanged(&self, stamp: Stamp, places: &[Place]) -> bool {
        self.last.load(Ordering::SeqCst) == stamp.change
            || (self.all_changed.load(Ordering::SeqCst) <= stamp.change
                && places.iter().all(|place| {
                    self.changed[usize::from(place.0)].load(Ordering::SeqCst) <= stamp.change
                }))
    }

    fn is_trusted(&self, stamp: Stamp) -> bool {
        let now = self.watch.elapsed_ms();
        now - stamp.at_ms <= DEAF_MS
            || (now - self.heard_ms.load(Ordering::SeqCst) <= DEAF_MS
                && now - self.database_ms.load(Ordering::SeqCst) <= self.grace_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str) -> Subject {
        Subject::Key(KeyId::from(id))
    }

    #[test]
    fn a_change_makes_what_was_read_before_it_stale_and_nothing_else() {
        let freshness = Freshness::new(900_000);
        let before = freshness.stamp();

        freshness.changed(&key("a"));

        assert!(!freshness.is_fresh(before, &[Place::of(&key("a"))]));
        assert!(freshness.is_fresh(before, &[Place::of(&key("b"))]));
        assert!(freshness.is_fresh(freshness.stamp(), &[Place::of(&key("a"))]));
    }

    #[test]
    fn a_load_under_way_during_a_change_is_stale_on_arrival() {
        let freshness = Freshness::new(900_000);
        let load_began = freshness.stamp();
        freshness.changed(&key("a"));

        let arrived = freshness.is_fresh(load_began, &[Place::of(&key("a"))]);

        assert!(!arrived);
    }

    #[test]
    fn after_a_gap_in_the_stream_nothing_read_before_is_fresh() {
        let freshness = Freshness::new(900_000);
        let before = freshness.stamp();

        freshness.everything_changed();

        assert!(!freshness.is_fresh(before, &[]));
        assert!(freshness.is_fresh(freshness.stamp(), &[]));
    }
}
