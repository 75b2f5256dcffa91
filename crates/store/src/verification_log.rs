//! Defines the reads of the log of verifications: pages of raw events, newest first.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::WorkspaceId;

use crate::recent::VerificationRow;

/// Selects verifications of the log. Empty texts select all.
#[derive(Debug, Clone, Copy)]
pub struct LogFilter<'a> {
    pub workspace: &'a WorkspaceId,
    pub api_id: &'a str,
    pub key_id: &'a str,
    pub external_id: &'a str,
    pub outcome: &'a str,
    pub from_time: Timestamp,
    /// The exclusive end.
    pub until_time: Timestamp,
    /// Leaves out the verifications of the last millisecond with a request id up to this one.
    pub after_request: &'a str,
    pub rows_max: usize,
}

/// The verifications of a page, newest first; of one millisecond, by request id.
#[derive(Debug, Default)]
pub struct LogRows {
    pub rows: Vec<VerificationRow>,
    /// Verifications before this time were not read, because too many had to be compared. `None`: all were read, or
    /// the page is full.
    pub unread_before: Option<Timestamp>,
}

#[async_trait]
pub trait LogReads: Send {
    /// Returns the latest verifications that a filter selects.
    async fn list_log(&mut self, filter: &LogFilter<'_>) -> Result<LogRows>;
}
