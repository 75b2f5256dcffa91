//! Reads raw events: the latest verifications of a key, and the events of one request.

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{ApiId, KeyId, RequestId, WorkspaceId};
use store::recent::{CheckRow, VerificationRow};

use crate::Analytics;

/// The maximum number of verifications of a key that are returned.
pub const RECENT_VERIFICATIONS_MAX: usize = 25;
/// The maximum number of limit checks in one request: the descriptors of a gateway.
pub const CHECKS_MAX: usize = 100;
/// The maximum distance between the time in a request id and the time of its events. A request takes at most ten
/// seconds, and clocks are adjusted now and then.
const EVENT_TIME_TOLERANCE_MS: i64 = 30_000;

/// A verification that found a key.
#[derive(Debug)]
pub struct RecentVerification {
    pub occurred_at: Timestamp,
    pub request_id: String,
    pub api_id: ApiId,
    pub key_id: KeyId,
    pub external_id: Option<String>,
    /// The outcome as callers see it.
    pub outcome: String,
    pub tags: Vec<String>,
    pub spent_credits: i64,
    pub latency_us: i64,
    pub region: String,
    pub reason: Option<String>,
}

/// A check of the standalone limiter.
#[derive(Debug)]
pub struct RecentCheck {
    pub occurred_at: Timestamp,
    pub request_id: String,
    pub namespace_id: String,
    pub identifier: String,
    pub passed: bool,
    pub latency_us: i64,
    pub override_id: Option<String>,
    pub limit: i64,
    pub remaining: i64,
    pub reset_at: Timestamp,
    pub tokens: i64,
}

/// The events of a request.
#[derive(Debug)]
pub enum RequestEvents {
    Verification(Box<RecentVerification>),
    /// At least one check.
    Checks(Vec<RecentCheck>),
}

fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

impl From<VerificationRow> for RecentVerification {
    fn from(row: VerificationRow) -> Self {
        Self {
            occurred_at: row.time,
            request_id: row.request_id,
            api_id: ApiId::from(row.api_id),
            key_id: KeyId::from(row.key_id),
            external_id: non_empty(row.external_id),
            outcome: row.outcome,
            tags: serde_json::from_str(&row.tags).unwrap_or_default(),
            spent_credits: row.spent_credits,
            latency_us: row.latency_us,
            region: row.region,
            reason: non_empty(row.reason),
        }
    }
}

impl From<CheckRow> for RecentCheck {
    fn from(row: CheckRow) -> Self {
        Self {
            occurred_at: row.time,
            request_id: row.request_id,
            namespace_id: row.namespace_id,
            identifier: row.identifier,
            passed: row.passed,
            latency_us: row.latency_us,
            override_id: non_empty(row.override_id),
            limit: row.max,
            remaining: row.remaining,
            reset_at: row.reset_at,
            tokens: row.tokens,
        }
    }
}

/// Returns the latest verifications of a key, newest first.
pub async fn list_by_key(
    analytics: &Analytics,
    workspace: &WorkspaceId,
    key: &KeyId,
) -> Result<Vec<RecentVerification>> {
    let mut reader = analytics.event_store.read().await?;
    let rows = reader.list_latest_by_key(workspace, key, RECENT_VERIFICATIONS_MAX).await?;
    Ok(rows.into_iter().map(RecentVerification::from).collect())
}

/// Finds the events of a request. Returns `None` if no verification with this request id found a key of the workspace
/// and no check used its limiter, if the events are not written yet, or if their retention is over.
pub async fn find_by_request(
    analytics: &Analytics,
    workspace: &WorkspaceId,
    request: &str,
) -> Result<Option<RequestEvents>> {
    let Some(at) = RequestId::parse_time(request) else { return Ok(None) };
    let within = at.plus_ms(-EVENT_TIME_TOLERANCE_MS)..at.plus_ms(EVENT_TIME_TOLERANCE_MS);
    let mut reader = analytics.event_store.read().await?;
    let found = reader.find_verification_by_request(workspace, request, within.clone()).await?;
    if let Some(row) = found {
        return Ok(Some(RequestEvents::Verification(Box::new(row.into()))));
    }
    let rows = reader.list_checks_by_request(workspace, request, within, CHECKS_MAX).await?;
    let checks: Vec<_> = rows.into_iter().map(RecentCheck::from).collect();
    Ok((!checks.is_empty()).then_some(RequestEvents::Checks(checks)))
}
