//! Defines the reads of raw events: the latest of a key, those of a request, and those that have just been written.

use std::ops::Range;

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{KeyId, WorkspaceId};

use crate::events::BatchId;

/// A verification, with the dimensions of its series.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct VerificationRow {
    pub time: Timestamp,
    pub request_id: String,
    pub api_id: String,
    pub key_id: String,
    /// Empty if the key had none.
    pub external_id: String,
    pub outcome: String,
    /// A JSON list.
    pub tags: String,
    pub spent_credits: i64,
    pub latency_us: i64,
    pub region: String,
    /// Empty if it was not refused.
    pub reason: String,
}

/// A check of the standalone limiter, with the dimensions of its series.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct CheckRow {
    pub time: Timestamp,
    pub request_id: String,
    pub namespace_id: String,
    pub identifier: String,
    pub passed: bool,
    pub latency_us: i64,
    /// Empty if none applied.
    pub override_id: String,
    pub max: i64,
    pub remaining: i64,
    pub reset_at: Timestamp,
    pub tokens: i64,
}

#[async_trait]
pub trait RecentReads: Send {
    /// Returns the latest verifications of a key, newest first.
    async fn list_latest_by_key(
        &mut self,
        workspace: &WorkspaceId,
        key: &KeyId,
        max: usize,
    ) -> Result<Vec<VerificationRow>>;
    /// Finds the verification of a request. Returns `None` if the workspace has none with this id in this time.
    async fn find_verification_by_request(
        &mut self,
        workspace: &WorkspaceId,
        request: &str,
        within: Range<Timestamp>,
    ) -> Result<Option<VerificationRow>>;
    /// Returns the limit checks of a request, up to `max`.
    async fn list_checks_by_request(
        &mut self,
        workspace: &WorkspaceId,
        request: &str,
        within: Range<Timestamp>,
        max: usize,
    ) -> Result<Vec<CheckRow>>;
}

/// A batch of events that a replica has written, with the times of its first and its last event.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct WrittenBatch {
    pub id: BatchId,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
}

/// Selects verifications as they are written. Empty texts select all.
#[derive(Debug, Clone, Default)]
pub struct TailFilter {
    pub api_id: String,
    pub key_id: String,
    /// An outcome that is left out.
    pub excluded_outcome: String,
}

/// Selects limit checks as they are written. Empty texts select all.
#[derive(Debug, Clone, Default)]
pub struct CheckTailFilter {
    pub namespace_id: String,
    pub identifier: String,
    /// Whether checks that passed are left out.
    pub is_refused: bool,
}

/// Reads of events in the order in which they are written. They exist only in Keyward's own tables.
#[async_trait]
pub trait TailReads: Send {
    /// Returns the last batch all of whose events happened before a time; 0 if there is none.
    async fn find_last_batch(&mut self, before: Timestamp) -> Result<BatchId>;
    /// Returns up to `max` batches after one, in the order of their ids.
    async fn list_batches_after(&mut self, after: BatchId, max: i64) -> Result<Vec<WrittenBatch>>;
    /// Returns up to `max` verifications of a batch, oldest first.
    async fn list_verifications_of_batch(
        &mut self,
        workspace: &WorkspaceId,
        batch: &WrittenBatch,
        filter: &TailFilter,
        max: i64,
    ) -> Result<Vec<VerificationRow>>;
    /// Returns up to `max` limit checks of a batch, oldest first.
    async fn list_checks_of_batch(
        &mut self,
        workspace: &WorkspaceId,
        batch: &WrittenBatch,
        filter: &CheckTailFilter,
        max: i64,
    ) -> Result<Vec<CheckRow>>;
}
