//! What a reader of the change log asks of its owner, and what follows from the replies.

use std::time::Duration;

use foundation::clock::Monotonic;
use store::freshness::Freshness;
use store::{ChangeRow, LogHead, LogPage};

/// What the owner of a [`ChangeLogReader`](super::ChangeLogReader) does next, on one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogStep {
    /// Call `load_log_page` with this position.
    LoadPage { after: i64 },
    /// Call `load_writers_ended_below`.
    LoadWritersEndedBelow,
    /// Call `list_changes_in_ranges` with these ranges.
    ListRows { ranges: Vec<(i64, i64)> },
    /// The log was read to its end.
    End(LogPass),
}

/// The reply of the database to a [`LogStep`].
#[derive(Debug, Clone)]
pub enum LogReply {
    Page(LogPage),
    WritersEndedBelow(i64),
    Rows(Vec<ChangeRow>),
}

/// What follows from rows of the log. It must be applied in the same order, before the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEffect<'a> {
    /// Rows may have been missed.
    InvalidateAll,
    /// An entity has changed. `delay` is the time since the row was written, by the database's clock; absent for rows
    /// from before the reader's first pass.
    Invalidate { cache_tag: &'a str, delay: Option<Duration> },
    /// A change is about to be committed.
    OpenIntent { position: i64, cache_tags: &'a str },
}

impl LogEffect<'_> {
    /// Applies the effect to what this replica knows of changes.
    pub fn apply_to(&self, freshness: &Freshness) {
        match self {
            Self::InvalidateAll => freshness.invalidate_all(),
            Self::Invalidate { cache_tag, .. } => freshness.record_invalidation_text(cache_tag),
            Self::OpenIntent { position, cache_tags } => {
                freshness.intents.open(*position, cache_tags);
            }
        }
    }
}

/// The result of one pass over the change log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogPass {
    /// The state of the database when the pass began.
    pub head: LogHead,
    /// The positions of the intents that were found.
    pub intents: Vec<i64>,
}

impl LogPass {
    /// Returns when this replica last registered, by its own clock, if it is registered. `began` is the time before the
    /// pass began. The grace period counts from the time at which other replicas assume that it does.
    pub fn registered_at(&self, began: Monotonic) -> Option<Monotonic> {
        let age_ms = u64::try_from(self.head.now - self.head.seen_at?).unwrap_or(0);
        Some(began - Duration::from_millis(age_ms))
    }
}

#[cfg(test)]
mod tests {
    use store::freshness::VersionSlot;

    use super::*;

    #[test]
    fn registered_at_is_as_long_ago_as_the_database_says() {
        let registered_at = |seen_at: Option<i64>| {
            let head = LogHead { now: 10_000, seen_at, ..LogHead::default() };
            LogPass { head, ..LogPass::default() }.registered_at(Monotonic::from_ms(500_000))
        };

        assert_eq!(registered_at(None), None);
        assert_eq!(registered_at(Some(9_700)), Some(Monotonic::from_ms(499_700)));
        assert_eq!(registered_at(Some(10_000)), Some(Monotonic::from_ms(500_000)));
        let later = registered_at(Some(10_001));
        assert_eq!(later, Some(Monotonic::from_ms(500_000)), "the database's clock went back");
    }

    #[test]
    fn effects_apply_to_what_the_replica_knows() {
        let (freshness, now) = (Freshness::new(0, Monotonic::default()), Monotonic::default());
        let version = freshness.read_version(now);
        let is_fresh = |tag: &str| freshness.is_fresh(version, &[VersionSlot::from_text(tag)], now);

        LogEffect::OpenIntent { position: 7, cache_tags: "key:a\n" }.apply_to(&freshness);
        let open = freshness.intents.list();
        assert_eq!(open.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [7]);
        assert!(is_fresh("key:a"));
        LogEffect::Invalidate { cache_tag: "key:a", delay: None }.apply_to(&freshness);
        assert!(!is_fresh("key:a") && is_fresh("key:b"));
        LogEffect::InvalidateAll.apply_to(&freshness);
        assert!(!is_fresh("key:b"));
    }
}
