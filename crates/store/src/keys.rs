//! Defines reads of keys and APIs for the lists of the dashboard: searchable, the latest first.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{ApiId, KeyId, WorkspaceId};
use foundation::model::KeySummary;

use super::StoredEntry;

/// Selects keys of a workspace, the latest or the oldest first.
#[derive(Debug, Clone, Default)]
pub struct KeyListFilter {
    /// Only keys of this API.
    pub api_id: Option<ApiId>,
    /// The search text as entered. Empty matches every key.
    pub search: String,
    /// Only keys in this state; empty matches any. Only Redis knows whether the credits of a lease are spent, so a
    /// key with such a lease matches both `active` and `exhausted`.
    pub state: &'static str,
    /// The first key of the page. `None` starts with the latest key, or with the oldest one.
    pub start: Option<KeyCursor>,
    /// Whether the oldest keys are first.
    pub oldest_first: bool,
    /// The position at which the scan ends. `None` scans all keys.
    pub end: Option<KeyCursor>,
    /// The maximum number of keys.
    pub rows_max: i64,
    pub now: Timestamp,
    /// The refill periods at `now`: an account refilled for its current period has no refill due.
    pub refill_periods: RefillPeriods,
}

/// A condition by which an index finds keys of a workspace.
#[derive(Debug, Clone, Copy)]
pub enum IndexedSearch<'a> {
    /// Keys whose id or start begins with this text, or whose name or owner id contains it.
    Text(&'a str),
    /// Keys that expired before this time.
    Expired(Timestamp),
}

/// A key that does not verify because it is deleted, or its API.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct DeletedKey {
    pub id: KeyId,
    pub api_id: ApiId,
    pub api_name: String,
    pub name: Option<String>,
    pub start: String,
    /// When the key was deleted. `None`: only its API is deleted.
    pub deleted_at: Option<Timestamp>,
    /// When the API was deleted.
    pub api_deleted_at: Option<Timestamp>,
}

/// The position of a key in the list of its workspace.
pub type KeyCursor = (Timestamp, KeyId);

/// The refill periods of a point in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RefillPeriods {
    /// The number of the day.
    pub day: i64,
    /// The number of the month.
    pub month: i64,
    /// Monthly refills on this day of the month and on earlier days are due in this month.
    pub day_of_month: i64,
}

#[async_trait]
pub trait KeyReads: Send {
    /// Returns a page of the keys of a workspace, without deleted keys and keys of deleted APIs.
    async fn list_workspace_keys(
        &mut self,
        workspace: &WorkspaceId,
        filter: &KeyListFilter,
    ) -> Result<Vec<KeySummary>>;
    /// Returns the position of the key that is `offset` rows after the beginning of the page, regardless of name and
    /// state. `None` if there are fewer keys.
    async fn find_key_cursor(
        &mut self,
        workspace: &WorkspaceId,
        filter: &KeyListFilter,
        offset: i64,
    ) -> Result<Option<KeyCursor>>;
    /// Returns the ids of all keys that match a search, and possibly others: whoever lists them compares them again.
    /// `None` if no index finds the text, or if more than `max` keys match.
    async fn find_searched_keys(
        &mut self,
        workspace: &WorkspaceId,
        search: IndexedSearch<'_>,
        max: i64,
    ) -> Result<Option<Vec<KeyId>>>;
    /// Returns the positions of a page among these keys, in the order of the list.
    async fn list_key_cursors(
        &mut self,
        workspace: &WorkspaceId,
        filter: &KeyListFilter,
        ids: &[KeyId],
    ) -> Result<Vec<KeyCursor>>;
    /// Returns the key with this id or this hash, if it or its API is deleted. An empty value matches no key.
    async fn find_deleted_key(
        &mut self,
        workspace: &WorkspaceId,
        id: &str,
        hash: &str,
    ) -> Result<Option<DeletedKey>>;
    /// Returns the audit entry of an event at a time about the entity with this id.
    async fn find_entry_at(
        &mut self,
        workspace: &WorkspaceId,
        event: &str,
        at: Timestamp,
        target: &str,
    ) -> Result<Option<StoredEntry>>;
    /// Returns the names of these APIs of a workspace.
    async fn load_api_names(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[ApiId],
    ) -> Result<Vec<(ApiId, String)>>;
    /// Counts the keys of each of these APIs of a workspace up to `max`, without deleted keys.
    async fn count_keys_by_api(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[ApiId],
        max: i64,
    ) -> Result<Vec<(ApiId, i64)>>;
    /// Returns up to `max` of the latest audit entries since a time about a key.
    async fn list_key_audit_entries(
        &mut self,
        workspace: &WorkspaceId,
        key: &KeyId,
        since: Timestamp,
        max: i64,
    ) -> Result<Vec<StoredEntry>>;
}
