//! Single events, as people ask about them: the latest of a key, and those of a request.

use std::ops::Range;

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{KeyId, WorkspaceId};

/// A verification, with the series that it belongs to.
#[derive(Debug, sqlx::FromRow)]
pub struct VerificationRow {
    pub time: Timestamp,
    pub request_id: String,
    pub api_id: String,
    pub key_id: String,
    /// Empty: the key had none.
    pub external_id: String,
    pub outcome: String,
    /// A JSON list.
    pub tags: String,
    pub spent_credits: i64,
    pub latency_us: i64,
    pub region: String,
    /// Empty for what was not refused.
    pub reason: String,
}

/// A check of the standalone limiter, with the series that it belongs to.
#[derive(Debug, sqlx::FromRow)]
pub struct CheckRow {
    pub time: Timestamp,
    pub namespace_id: String,
    pub identifier: String,
    pub passed: bool,
    pub latency_us: i64,
    /// Empty: none applied.
    pub override_id: String,
    pub max: i64,
    pub remaining: i64,
    pub reset_at: Timestamp,
    pub tokens: i64,
}

#[async_trait]
pub trait RecentReads: Send {
    /// The latest verifications of a key, the last one first.
    async fn latest_of_key(
        &mut self,
        workspace: &WorkspaceId,
        key: &KeyId,
        max: usize,
    ) -> Result<Vec<VerificationRow>>;
    /// The verification that a request was. `None`: there is none of this id in the workspace and in this time.
    async fn verification_of_request(
        &mut self,
        workspace: &WorkspaceId,
        request: &str,
        within: Range<Timestamp>,
    ) -> Result<Option<VerificationRow>>;
    /// The checks of the limiter that a request was, up to `max`.
    async fn checks_of_request(
        &mut self,
        workspace: &WorkspaceId,
        request: &str,
        within: Range<Timestamp>,
        max: i64,
    ) -> Result<Vec<CheckRow>>;
}
