//! Keys and APIs as people look for them: lists that are searched, the latest first.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{ApiId, KeyId, WorkspaceId};

use super::{StoredEntry, StoredKey};

/// Which keys of a workspace are read, the latest first.
#[derive(Debug, Clone, Default)]
pub struct KeyListFilter {
    /// Only those of this API.
    pub api: Option<ApiId>,
    /// As it was written. Empty: whatever they are called.
    pub search: String,
    /// Only those whose id begins so, instead of a search; such a page is found by an index alone.
    pub id_prefix: Option<String>,
    /// Only those in this state; empty: in any. Whether what has been lent to the counters is spent only they know: such
    /// a key is both active and spent.
    pub state: &'static str,
    /// Where the page begins. Absent: with the latest.
    pub from: Option<KeyCursor>,
    /// Behind what place nothing is looked at any more. Absent: all are.
    pub until: Option<KeyCursor>,
    /// How many at most.
    pub limit: i64,
    pub now: Timestamp,
    /// The periods for which an account has been refilled that has nothing to wait for.
    pub periods: RefillPeriods,
}

/// The place of a key among those of its workspace.
pub type KeyCursor = (Timestamp, KeyId);

/// A moment as refills count it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RefillPeriods {
    /// The number of the day.
    pub day: i64,
    /// The number of the month.
    pub month: i64,
    /// Refills of this day of the month and of earlier ones have fallen due in this month.
    pub day_of_month: i64,
}

#[async_trait]
pub trait KeyReads: Send {
    /// A page of a workspace's keys. Neither deleted ones, nor those of a deleted API.
    async fn keys_page(
        &mut self,
        workspace: &WorkspaceId,
        wanted: &KeyListFilter,
    ) -> Result<Vec<StoredKey>>;
    /// The place of the key that stands so many behind the beginning of a page; as [`KeyReads::keys_page`], whatever it
    /// is called and whichever state it is in. `None`: there are fewer.
    async fn key_behind(
        &mut self,
        workspace: &WorkspaceId,
        wanted: &KeyListFilter,
        behind: i64,
    ) -> Result<Option<KeyCursor>>;
    /// What these APIs of a workspace are called.
    async fn api_names(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[ApiId],
    ) -> Result<Vec<(ApiId, String)>>;
    /// How many keys each of these APIs of a workspace has, counted up to `max`. Deleted ones do not count.
    async fn key_counts(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[ApiId],
        max: i64,
    ) -> Result<Vec<(ApiId, i64)>>;
    /// Up to `max` of the latest entries of the audit log that name a key, back to a moment, among the latest
    /// `looked_through` of its workspace.
    async fn key_entries(
        &mut self,
        workspace: &WorkspaceId,
        key: &KeyId,
        since: Timestamp,
        looked_through: i64,
        max: i64,
    ) -> Result<Vec<StoredEntry>>;
}
