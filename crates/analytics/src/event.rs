//! Defines the events: verifications that found a key, and checks of the standalone limiter.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use foundation::clock::Timestamp;
use foundation::id::{ApiId, OverrideId, RequestId, WorkspaceId};
use foundation::metrics::{EventCounts, EventMetrics};
use foundation::model::{Identity, VerificationCode};
use store::StoredNamespace;
use store::cache::Cached;
use store::events::SeriesId;

/// An analytics event of one request.
#[derive(Debug)]
pub enum Event {
    Verification(VerificationRecord),
    Ratelimit(LimitCheckRecord),
}

/// The result of one verification.
#[derive(Debug)]
pub struct VerificationRecord {
    pub request_id: RequestId,
    pub occurred_at: Timestamp,
    /// The key as it was when the verification was decided. It is shared with the cache, so nothing is copied.
    pub resolved_key: Arc<dyn KeyDimensions>,
    pub outcome: VerificationCode,
    pub tags: Vec<String>,
    pub spent_credits: i64,
    pub latency_us: i64,
    /// Why the verification was refused, as text for users.
    pub reason: Option<Box<str>>,
}

/// A key with the values that its verifications are grouped by. They never change: a changed key is another value.
pub trait KeyDimensions: Debug + Send + Sync {
    fn workspace_id(&self) -> &WorkspaceId;
    fn api_id(&self) -> &ApiId;
    fn key_id(&self) -> &str;
    /// Returns the identity of the key, if it has one.
    fn identity(&self) -> Option<&Identity>;
    /// Returns where the ID of the series of its VALID verifications without tags is kept.
    fn valid_series(&self) -> &OnceLock<SeriesId>;
}

impl<T: KeyDimensions> KeyDimensions for Cached<T> {
    fn workspace_id(&self) -> &WorkspaceId {
        self.value.workspace_id()
    }

    fn api_id(&self) -> &ApiId {
        self.value.api_id()
    }

    fn key_id(&self) -> &str {
        self.value.key_id()
    }

    fn identity(&self) -> Option<&Identity> {
        self.value.identity()
    }

    fn valid_series(&self) -> &OnceLock<SeriesId> {
        self.value.valid_series()
    }
}

/// The result of one check of the standalone limiter.
#[derive(Debug)]
pub struct LimitCheckRecord {
    pub request_id: RequestId,
    pub occurred_at: Timestamp,
    pub namespace: Arc<Cached<StoredNamespace>>,
    pub identifier: String,
    pub passed: bool,
    pub latency_us: i64,
    pub override_id: Option<OverrideId>,
    pub limit: i64,
    pub remaining: i64,
    pub reset_at: Timestamp,
    pub tokens: i64,
}

/// The approximate size of an event without caller-supplied text: the struct and the headers of its strings.
const EVENT_OVERHEAD_BYTES: usize = 256;
/// The same as JSON: the names of its fields, its ids and its numbers.
const ENCODED_OVERHEAD_BYTES: usize = 512;
/// The size of the quotes and the comma of a tag as JSON.
const ENCODED_TAG_OVERHEAD_BYTES: usize = 6;

impl Event {
    /// Returns the approximate memory use of the event.
    pub(crate) fn approximate_bytes(&self) -> usize {
        let caller_bytes = match self {
            Self::Verification(event) => {
                let tags = event.tags.iter().map(|tag| size_of::<String>() + tag.len());
                tags.sum::<usize>() + event.reason.as_ref().map_or(0, |reason| reason.len())
            }
            Self::Ratelimit(event) => event.identifier.len(),
        };
        EVENT_OVERHEAD_BYTES + caller_bytes
    }

    /// Returns about how many bytes the event takes in the statements that write it, at most. The text of a caller is
    /// longer there than in memory.
    pub(crate) fn encoded_bytes(&self) -> usize {
        let caller_bytes = match self {
            Self::Verification(event) => {
                let tag_bytes = |tag: &String| ENCODED_TAG_OVERHEAD_BYTES + escaped_bytes(tag);
                let external_id =
                    event.resolved_key.identity().map(|identity| &identity.external_id);
                event.tags.iter().map(tag_bytes).sum::<usize>()
                    + external_id.map_or(0, |id| escaped_bytes(id))
                    + event.reason.as_ref().map_or(0, |reason| escaped_bytes(reason))
            }
            Self::Ratelimit(event) => escaped_bytes(&event.identifier),
        };
        ENCODED_OVERHEAD_BYTES + caller_bytes
    }

    /// Returns the counters for events of this kind.
    pub(crate) fn event_counts<'a>(&self, metrics: &'a EventMetrics) -> &'a EventCounts {
        match self {
            Self::Verification(_) => &metrics.verifications,
            Self::Ratelimit(_) => &metrics.ratelimits,
        }
    }
}

/// Returns the size of a text in JSON that is itself a text in JSON, as the tags of a series are: a control character is
/// written as `\\u0001`, and a quote as `\\\"`.
fn escaped_bytes(text: &str) -> usize {
    let byte_size = |byte: u8| match byte {
        b'\0'..=b'\x1f' => 7,
        b'"' | b'\\' => 4,
        _ => 1,
    };
    text.bytes().map(byte_size).sum()
}

#[cfg(test)]
pub mod tests {
    use foundation::clock::Monotonic;
    use foundation::id::NamespaceId;
    use foundation::model::{Namespace, OutagePolicy, Overrides};
    use store::freshness::Freshness;

    use super::*;

    /// Returns a namespace without overrides.
    pub fn namespace(id: &str) -> Arc<Cached<StoredNamespace>> {
        let now = Monotonic::now();
        let namespace = Namespace {
            id: NamespaceId::from(id),
            workspace_id: WorkspaceId::from("ws_1"),
            name: id.to_owned(),
            outage_policy: OutagePolicy::default(),
            home: None,
            created_at: Timestamp(0),
            deleted_at: None,
        };
        let row = StoredNamespace { namespace, overrides: Overrides::default() };
        Arc::new(Cached::new(row, Freshness::new(0, now).read_version(now), []))
    }

    /// Returns an admitted check.
    pub fn check(namespace: &Arc<Cached<StoredNamespace>>, identifier: String) -> Event {
        Event::Ratelimit(LimitCheckRecord {
            request_id: RequestId::new(Timestamp(0)),
            occurred_at: Timestamp(0),
            namespace: namespace.clone(),
            identifier,
            passed: true,
            latency_us: 1,
            override_id: None,
            limit: 1,
            remaining: 0,
            reset_at: Timestamp(0),
            tokens: 1,
        })
    }
}
