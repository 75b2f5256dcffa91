//! Builds batches of events: assigns their series and adds up their totals.

use std::cmp::Reverse;
use std::sync::Arc;

use foundation::clock::Timestamp;
use foundation::model::{RollupUnit, VerificationCode};
use hashbrown::{HashMap, HashSet};
use sha2::{Digest as _, Sha256};
use store::events::{
    EventBatch, RatelimitEvent, RatelimitSeries, SeriesId, VerificationEvent, VerificationSeries,
};

use crate::event::{Event, LimitCheckRecord, VerificationRecord};
use crate::totals::MinuteTotals;

/// The maximum number of series that are remembered as written on the day. At this number the set is cleared, and all
/// series are written once more.
const WRITTEN_SERIES_MAX: usize = 500_000;
/// The maximum number of combinations of tags and outcomes that a key may add per day in this process. The holder of
/// a key chooses its tags, and each combination is stored as long as rollups are. Events beyond the limit are stored
/// without tags.
const TAGGED_SERIES_PER_KEY_MAX: usize = 1_000;
/// The same for combinations of identifiers and results of a namespace. Some callers take identifiers from their clients,
/// such as addresses. Checks beyond the limit are stored with [`OTHER_IDENTIFIERS`].
const SERIES_PER_NAMESPACE_MAX: usize = 100_000;
/// Stands for any identifiers. As an identifier it has no override of its own, because an override with this text is a
/// pattern.
const OTHER_IDENTIFIERS: &str = "*";
/// The tags of an event without tags.
const NO_TAGS: &str = "[]";

/// Builds batches of events.
#[derive(Default)]
pub struct BatchBuilder {
    /// The series that this process has written on this day.
    written_series: HashSet<SeriesId>,
    /// The new series of the batch that is being built.
    new_series: HashSet<SeriesId>,
    /// The number of written series with tags by key, and with identifiers by namespace.
    series_counts: HashMap<String, usize>,
    /// The number of new ones.
    new_series_counts: HashMap<String, usize>,
    day: Timestamp,
    /// The region of this process. Empty: no region.
    region: String,
}

/// Identifies verifications in one batch that belong to one series: same resolved key, outcome and tags in the same
/// order.
#[derive(PartialEq, Eq, Hash)]
struct SeriesCacheKey<'a> {
    resolved_key: *const (),
    outcome: VerificationCode,
    tags: &'a [String],
}

impl BatchBuilder {
    pub fn new(region: &str) -> Self {
        Self { region: region.to_owned(), ..Self::default() }
    }

    /// Builds a batch of all the events, in their order.
    pub fn build_batch(&mut self, events: &[Event]) -> EventBatch {
        let mut batch = EventBatch::default();
        self.new_series.clear();
        self.new_series_counts.clear();
        let mut totals = MinuteTotals::default();
        let mut series_cache = HashMap::new();
        for event in events {
            match event {
                Event::Verification(event) => {
                    let series = self.add_verification_series(&mut batch, &mut series_cache, event);
                    batch.verifications.push(VerificationEvent {
                        time: event.occurred_at,
                        series,
                        request_id: event.request_id,
                        spent_credits: event.spent_credits,
                        latency_us: event.latency_us,
                        reason: replace_nul(event.reason.as_deref().unwrap_or_default()),
                    });
                    totals.add_verification(event);
                }
                Event::Ratelimit(event) => {
                    let series = self.add_ratelimit_series(&mut batch, event);
                    batch.ratelimits.push(RatelimitEvent {
                        time: event.occurred_at,
                        series,
                        request_id: event.request_id,
                        latency_us: event.latency_us,
                        override_id: event
                            .override_id
                            .as_ref()
                            .map_or_else(String::new, |id| id.as_str().to_owned()),
                        limit: event.limit,
                        remaining: event.remaining,
                        reset_at: event.reset_at,
                        tokens: event.tokens,
                    });
                    totals.add_ratelimit(event);
                }
            }
        }
        // A series of two days is new on both, but one statement writes it only once: with the last day.
        batch.verification_series.sort_by_key(|series| (series.id, Reverse(series.seen_at)));
        batch.verification_series.dedup_by_key(|series| series.id);
        batch.ratelimit_series.sort_by_key(|series| (series.id, Reverse(series.seen_at)));
        batch.ratelimit_series.dedup_by_key(|series| series.id);
        (batch.verification_totals, batch.ratelimit_totals) = totals.into_deltas();
        batch
    }

    /// Remembers the new series of a batch that was written.
    pub fn record_written(&mut self, batch: &EventBatch) {
        let (verifications, ratelimits) = (&batch.verification_series, &batch.ratelimit_series);
        self.written_series.extend(verifications.iter().map(|series| series.id));
        self.written_series.extend(ratelimits.iter().map(|series| series.id));
        let tagged = verifications.iter().filter(|series| series.tags != NO_TAGS);
        let identified = ratelimits.iter().filter(|series| series.identifier != OTHER_IDENTIFIERS);
        let owners = tagged.map(|series| &series.key_id);
        for owner in owners.chain(identified.map(|series| &series.namespace_id)) {
            *self.series_counts.entry(owner.clone()).or_default() += 1;
        }
    }

    fn add_verification_series<'a>(
        &mut self,
        batch: &mut EventBatch,
        series_cache: &mut HashMap<SeriesCacheKey<'a>, SeriesId>,
        event: &'a VerificationRecord,
    ) -> SeriesId {
        self.start_day_of(event.occurred_at);
        let is_plain = event.outcome == VerificationCode::Valid && event.tags.is_empty();
        let kept = is_plain.then(|| event.resolved_key.valid_series().get()).flatten();
        if let Some(id) = kept
            && (self.written_series.contains(id) || self.new_series.contains(id))
        {
            return *id;
        }
        let cache_key = SeriesCacheKey {
            resolved_key: Arc::as_ptr(&event.resolved_key).cast::<()>(),
            outcome: event.outcome,
            tags: &event.tags,
        };
        if let Some(id) = series_cache.get(&cache_key) {
            return *id;
        }
        let outcome = event.outcome.as_str();
        let (key, identity) = (&event.resolved_key, event.resolved_key.identity());
        let (workspace, api) = (key.workspace_id().as_str(), key.api_id().as_str());
        let identity_id = identity.map_or("", |identity| identity.id.as_str());
        let external_id = identity.map_or("", |identity| identity.external_id.as_str());
        let tags = serde_json::json!(sorted_tags(event)).to_string();
        let key_id = key.key_id();
        let region = self.region.clone();
        // Without regions, the ids are those of versions that did not know them.
        let parts = if region.is_empty() { 7 } else { 8 };
        let mut fields =
            [workspace, api, key_id, identity_id, external_id, outcome, tags.as_str(), &*region];
        let (mut id, mut is_new) = self.assign_series_id("verification", &fields[..parts]);
        if is_new && tags != NO_TAGS && !self.reserve_series(key_id, TAGGED_SERIES_PER_KEY_MAX) {
            self.new_series.remove(&id);
            fields[6] = NO_TAGS;
            (id, is_new) = self.assign_series_id("verification", &fields[..parts]);
        }
        if is_new {
            batch.verification_series.push(VerificationSeries {
                id,
                workspace_id: workspace.to_owned(),
                api_id: api.to_owned(),
                key_id: key_id.to_owned(),
                identity_id: identity_id.to_owned(),
                external_id: external_id.to_owned(),
                outcome,
                tags: fields[6].to_owned(),
                region: fields[7].to_owned(),
                seen_at: self.day,
            });
        }
        series_cache.insert(cache_key, id);
        if is_plain {
            let _ = event.resolved_key.valid_series().set(id);
        }
        id
    }

    /// Reserves a series of a key or a namespace. Returns `false` if it has reached the limit.
    fn reserve_series(&mut self, owner: &str, max: usize) -> bool {
        let new_series = self.new_series_counts.entry(owner.to_owned()).or_default();
        let is_allowed = *new_series + self.series_counts.get(owner).unwrap_or(&0) < max;
        *new_series += usize::from(is_allowed);
        is_allowed
    }

    fn add_ratelimit_series(
        &mut self,
        batch: &mut EventBatch,
        event: &LimitCheckRecord,
    ) -> SeriesId {
        let (workspace, namespace) = namespace_ids(event);
        let identifier = replace_nul(&event.identifier);
        let mut fields = [workspace, namespace, &*identifier, passed_label(event)];
        self.start_day_of(event.occurred_at);
        let (mut id, mut is_new) = self.assign_series_id("ratelimit", &fields);
        if is_new
            && identifier != OTHER_IDENTIFIERS
            && !self.reserve_series(namespace, SERIES_PER_NAMESPACE_MAX)
        {
            self.new_series.remove(&id);
            fields[2] = OTHER_IDENTIFIERS;
            (id, is_new) = self.assign_series_id("ratelimit", &fields);
        }
        if is_new {
            batch.ratelimit_series.push(RatelimitSeries {
                id,
                workspace_id: workspace.to_owned(),
                namespace_id: namespace.to_owned(),
                identifier: fields[2].to_owned(),
                passed: event.passed,
                seen_at: self.day,
            });
        }
        id
    }

    /// Forgets the written series if the day of an event is another one, or if there are too many.
    fn start_day_of(&mut self, at: Timestamp) {
        let day = RollupUnit::Day.start_of(at);
        if day != self.day || self.written_series.len() >= WRITTEN_SERIES_MAX {
            self.written_series.clear();
            self.new_series.clear();
            self.series_counts.clear();
            self.new_series_counts.clear();
            self.day = day;
        }
    }

    /// Returns the id of a series, and whether it has yet to be written on this day.
    fn assign_series_id(&mut self, kind: &str, fields: &[&str]) -> (SeriesId, bool) {
        let mut hash = Sha256::new();
        hash.update(kind);
        for field in fields {
            // The length is hashed too, so that no two lists of fields are equal.
            hash.update(field.len().to_be_bytes());
            hash.update(field);
        }
        let mut digest = [0; 16];
        digest.copy_from_slice(&hash.finalize()[..16]);
        let id = SeriesId(digest);
        let is_new = !self.written_series.contains(&id) && self.new_series.insert(id);
        (id, is_new)
    }
}

/// Returns the tags of an event, sorted and without duplicates.
pub fn sorted_tags(event: &VerificationRecord) -> Vec<String> {
    let mut tags: Vec<String> = event.tags.iter().map(|tag| replace_nul(tag)).collect();
    tags.sort();
    tags.dedup();
    tags
}

/// Replaces NUL characters, which Postgres cannot store.
pub fn replace_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// Returns the ids of the workspace and the namespace of a limit check.
pub fn namespace_ids(event: &LimitCheckRecord) -> (&str, &str) {
    let namespace = &event.namespace.value.namespace;
    (namespace.workspace_id.as_str(), namespace.id.as_str())
}

/// Returns whether a limit check passed, as a text.
pub fn passed_label(event: &LimitCheckRecord) -> &'static str {
    if event.passed { "true" } else { "false" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::tests::{check, namespace};

    #[test]
    fn identifiers_are_limited_per_namespace_and_day() {
        let max = SERIES_PER_NAMESPACE_MAX;
        let (one, other) = (namespace("rlns_1"), namespace("rlns_2"));
        let mut builder = BatchBuilder::default();
        let checks: Vec<_> = (0..max + 2).map(|n| check(&one, n.to_string())).collect();
        let first = builder.build_batch(&checks);
        builder.record_written(&first);

        let checks = [check(&one, "0".into()), check(&one, "x".into()), check(&other, "x".into())];
        let second = builder.build_batch(&checks);

        let identifier = |series: &RatelimitSeries| series.identifier.clone();
        let others = first.ratelimit_series.iter().find(|s| s.identifier == OTHER_IDENTIFIERS);
        let others = others.expect("the series of the others").id;
        let is_other = |event: &RatelimitEvent| event.series == others;
        assert_eq!(first.ratelimit_series.len(), max + 1);
        assert_eq!(first.ratelimits.iter().filter(|event| is_other(event)).count(), 2);
        assert_eq!(
            second.ratelimits.iter().map(is_other).collect::<Vec<_>>(),
            [false, true, false]
        );
        assert_eq!(second.ratelimit_series.iter().map(identifier).collect::<Vec<_>>(), ["x"]);
    }
}
