//! Defines the reads of the logs of events: pages of single events, newest first.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::WorkspaceId;

use crate::recent::{CheckRow, VerificationRow};

/// Selects events of a log. Empty texts select all.
#[derive(Debug, Clone, Copy)]
pub struct LogFilter<'a> {
    pub workspace: &'a WorkspaceId,
    /// The API of verifications, or the namespace of limit checks.
    pub resource_id: &'a str,
    /// `true` and `false` stand for limit checks that were allowed and rejected.
    pub outcome: &'a str,
    pub from_time: Timestamp,
    /// The exclusive end.
    pub until_time: Timestamp,
    /// Rollups by the minute are retained since this time.
    pub minutes_since: Timestamp,
    /// Leaves out the events of the last millisecond with a request id up to this one.
    pub after_request: &'a str,
    pub rows_max: usize,
}

/// Selects verifications of a log. Empty texts select all.
#[derive(Debug, Clone, Copy)]
pub struct VerificationLogFilter<'a> {
    pub key_id: &'a str,
    pub external_id: &'a str,
    /// The region whose replica decided them.
    pub region: &'a str,
}

/// The events of a page, newest first; of one millisecond, by request id.
#[derive(Debug)]
pub struct LogRows<Row> {
    pub rows: Vec<Row>,
    /// Events before this time were not read, because too many had to be compared. `None`: all were read, or the page is
    /// full.
    pub unread_before: Option<Timestamp>,
}

#[async_trait]
pub trait LogReads: Send {
    /// Returns the latest verifications that the filters select.
    async fn list_verification_log(
        &mut self,
        filter: &LogFilter<'_>,
        verifications: &VerificationLogFilter<'_>,
    ) -> Result<LogRows<VerificationRow>>;
    /// Returns the latest limit checks that a filter selects: of an identifier, or of all if it is empty.
    async fn list_check_log(
        &mut self,
        filter: &LogFilter<'_>,
        identifier: &str,
    ) -> Result<LogRows<CheckRow>>;
}
