//! Implements reads of keys and APIs for the lists of the dashboard.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{ApiId, KeyId, WorkspaceId};
use foundation::model::KeySummary;
use serde_json::json;
use sqlx::{query_as, query_scalar};

use super::{Connection, RowQuery, to_index_pattern};
use crate::{DeletedKey, IndexedSearch, KeyCursor, KeyListFilter, KeyReads, StoredEntry};

/// Tests whether a key is in the state `$4`; empty matches any. The state is determined in the order of the checks of a
/// verification. A key whose only remaining credits may be in a lease is both active and exhausted.
macro_rules! is_in_state {
    () => {
        "($4 = '' OR $4 = CASE
            WHEN NOT k.enabled THEN 'disabled'
            WHEN k.expires_at < $5 THEN 'expired'
            WHEN k.credits = 0
                AND (k.refill_amount IS NULL OR k.refilled >= CASE
                    WHEN k.refill_day IS NULL THEN $6
                    WHEN k.refill_day > $8 THEN $7 - 1
                    ELSE $7 END)
                THEN CASE WHEN $4 = 'active' AND EXISTS (
                    SELECT 1 FROM purses u
                    WHERE u.key_id = k.id AND u.withheld_at IS NULL AND u.granted > u.spent)
                    THEN 'active' ELSE 'exhausted' END
            ELSE 'active' END)"
    };
}

/// Tests whether a key matches the search `$10`, in lower case `$11`: a part of the name or of the external id, or the
/// beginning of the id or of the key.
macro_rules! is_searched {
    () => {
        concat!(
            "($10 = '' OR substr(k.id, 1, length($10)) = $10
                OR substr(k.start, 1, length($10)) = $10
                OR ",
            contains!("k.search", "$11"),
            ")"
        )
    };
}

/// Selects a page of keys from the cursor on, by one more condition. Each has an index that returns the page in order, or
/// in the opposite order.
macro_rules! page_where {
    ($list:literal) => {
        page_where!($list, "<=", ">", "k.created_at DESC, k.id DESC")
    };
    (oldest first: $list:literal) => {
        page_where!($list, ">=", "<", "k.created_at, k.id")
    };
    ($list:literal, $from:literal, $until:literal, $order:literal) => {
        concat!(
            key_summaries_where!(concat!(
                "k.workspace_id = $1 AND (k.created_at, k.id) ",
                $from,
                " ($2, $3) AND (k.created_at, k.id) ",
                $until,
                " ($13, $14)"
            )),
            " AND ",
            is_in_state!(),
            " AND ",
            is_searched!(),
            " AND ",
            $list,
            " ORDER BY ",
            $order,
            " LIMIT $9"
        )
    };
}

/// Selects a cursor. Reads only an index.
macro_rules! cursor_where {
    ($list:literal) => {
        cursor_where!($list, "<=", "created_at DESC, id DESC")
    };
    (oldest first: $list:literal) => {
        cursor_where!($list, ">=", "created_at, id")
    };
    ($list:literal, $from:literal, $order:literal) => {
        concat!(
            "SELECT created_at, id
            FROM keys
            WHERE workspace_id = $1 AND deleted_at IS NULL AND (created_at, id) ",
            $from,
            " ($2, $3) AND ",
            $list,
            " ORDER BY ",
            $order,
            " LIMIT 1 OFFSET $4"
        )
    };
}

/// Selects ids of keys of the workspace `$1`, up to `$4`, whose column is `$2` or above and below `$3`.
macro_rules! keys_between {
    ($column:literal) => {
        concat!(
            "SELECT id FROM keys WHERE ",
            by_bytes!($column),
            " >= $2 AND ",
            by_bytes!($column),
            " < $3 AND deleted_at IS NULL AND ",
            unindexed!("workspace_id"),
            " = $1 LIMIT $4"
        )
    };
}

/// Sorts after every character that a text may continue with.
const LAST_CHAR: char = char::MAX;

/// Returns the cursor at which a page begins.
fn start_cursor(filter: &KeyListFilter) -> KeyCursor {
    filter.start.clone().unwrap_or_else(|| outer_cursor(filter.oldest_first))
}

/// Returns the cursor before which a page ends.
fn end_cursor(filter: &KeyListFilter) -> KeyCursor {
    filter.end.clone().unwrap_or_else(|| outer_cursor(!filter.oldest_first))
}

/// Returns a cursor before the oldest key, or after the latest one.
fn outer_cursor(is_oldest: bool) -> KeyCursor {
    match is_oldest {
        true => (Timestamp(i64::MIN), KeyId::from("")),
        // Sorts after every character of an id.
        false => (Timestamp(i64::MAX), KeyId::from("~")),
    }
}

/// Binds the parameters `$1` to `$12`: those of the start, the state, the search and the API of a list.
fn bind_filter<'q, Row>(
    query: RowQuery<'q, Row>,
    workspace: &'q WorkspaceId,
    filter: &'q KeyListFilter,
) -> RowQuery<'q, Row> {
    let (at, id) = start_cursor(filter);
    query
        .bind(workspace)
        .bind(at)
        .bind(id)
        .bind(filter.state)
        .bind(filter.now)
        .bind(filter.refill_periods.day)
        .bind(filter.refill_periods.month)
        .bind(filter.refill_periods.day_of_month)
        .bind(filter.rows_max)
        .bind(&filter.search)
        .bind(filter.search.to_lowercase())
        .bind(filter.api_id.as_ref().map_or("", ApiId::as_str))
}

/// Returns whether a list has disabled keys only, which have an index.
fn is_disabled_only(filter: &KeyListFilter) -> bool {
    filter.state == "disabled"
}

#[async_trait]
impl KeyReads for Connection {
    async fn list_workspace_keys(
        &mut self,
        workspace: &WorkspaceId,
        filter: &KeyListFilter,
    ) -> Result<Vec<KeySummary>> {
        let sql = match (filter.oldest_first, is_disabled_only(filter), &filter.api_id) {
            (false, false, None) => page_where!("$12 = ''"),
            (false, false, Some(_)) => page_where!("k.api_id = $12"),
            (false, true, None) => page_where!("NOT k.enabled AND $12 = ''"),
            (false, true, Some(_)) => page_where!("NOT k.enabled AND k.api_id = $12"),
            (true, false, None) => page_where!(oldest first: "$12 = ''"),
            (true, false, Some(_)) => page_where!(oldest first: "k.api_id = $12"),
            (true, true, None) => page_where!(oldest first: "NOT k.enabled AND $12 = ''"),
            (true, true, Some(_)) => {
                page_where!(oldest first: "NOT k.enabled AND k.api_id = $12")
            }
        };
        let (until, until_id) = end_cursor(filter);
        let query = bind_filter(query_as(sql), workspace, filter).bind(until).bind(until_id);
        Ok(query.fetch_all(self).await?)
    }

    async fn find_key_cursor(
        &mut self,
        workspace: &WorkspaceId,
        filter: &KeyListFilter,
        offset: i64,
    ) -> Result<Option<KeyCursor>> {
        let sql = match (filter.oldest_first, is_disabled_only(filter), &filter.api_id) {
            (false, false, None) => cursor_where!("$5 = ''"),
            (false, false, Some(_)) => cursor_where!("api_id = $5"),
            (false, true, None) => cursor_where!("NOT enabled AND $5 = ''"),
            (false, true, Some(_)) => cursor_where!("NOT enabled AND api_id = $5"),
            (true, false, None) => cursor_where!(oldest first: "$5 = ''"),
            (true, false, Some(_)) => cursor_where!(oldest first: "api_id = $5"),
            (true, true, None) => cursor_where!(oldest first: "NOT enabled AND $5 = ''"),
            (true, true, Some(_)) => {
                cursor_where!(oldest first: "NOT enabled AND api_id = $5")
            }
        };
        let (at, id) = start_cursor(filter);
        let api = filter.api_id.as_ref().map_or("", ApiId::as_str);
        let query = query_as(sql).bind(workspace).bind(at).bind(id).bind(offset).bind(api);
        Ok(query.fetch_optional(self).await?)
    }

    async fn find_searched_keys(
        &mut self,
        workspace: &WorkspaceId,
        search: IndexedSearch<'_>,
        max: i64,
    ) -> Result<Option<Vec<KeyId>>> {
        let limit = max.saturating_add(1);
        let ids: Vec<KeyId> = match search {
            IndexedSearch::Expired(now) => {
                let sql = "
                    SELECT id FROM keys
                    WHERE workspace_id = $1 AND deleted_at IS NULL
                        AND expires_at IS NOT NULL AND expires_at < $2
                    LIMIT $3";
                query_scalar(sql).bind(workspace).bind(now).bind(limit).fetch_all(self).await?
            }
            IndexedSearch::Text(text) => {
                let Some(pattern) = to_index_pattern(&text.to_lowercase()) else { return Ok(None) };
                let query = query_scalar(keys_by_text!()).bind(workspace).bind(pattern);
                let mut ids: Vec<KeyId> = query.bind(limit).fetch_all(&mut *self).await?;
                let end = format!("{text}{LAST_CHAR}");
                for sql in [keys_between!("start"), keys_between!("id")] {
                    let query = query_scalar(sql).bind(workspace).bind(text).bind(&end);
                    ids.extend(query.bind(limit).fetch_all(&mut *self).await?);
                }
                ids.sort();
                ids.dedup();
                ids
            }
        };
        Ok(i64::try_from(ids.len()).is_ok_and(|found| found <= max).then_some(ids))
    }

    async fn list_key_cursors(
        &mut self,
        workspace: &WorkspaceId,
        filter: &KeyListFilter,
        ids: &[KeyId],
    ) -> Result<Vec<KeyCursor>> {
        let sql = concat!(
            "SELECT k.created_at, k.id
            FROM ",
            texts!("$13"),
            " CROSS JOIN keys k
            JOIN apis a ON a.id = k.api_id AND a.deleted_at IS NULL
            WHERE k.id = item AND ",
            unindexed!("k.workspace_id"),
            " = $1 AND k.deleted_at IS NULL
                AND (k.created_at, k.id) <= ($2, $3)
                AND ($12 = '' OR k.api_id = $12) AND ",
            is_in_state!(),
            " AND ",
            is_searched!(),
            " ORDER BY k.created_at DESC, k.id DESC LIMIT $9"
        );
        let query = bind_filter(query_as(sql), workspace, filter).bind(json!(ids).to_string());
        Ok(query.fetch_all(self).await?)
    }

    async fn find_deleted_key(
        &mut self,
        workspace: &WorkspaceId,
        id: &str,
        hash: &str,
    ) -> Result<Option<DeletedKey>> {
        let sql = "
            SELECT k.id, k.api_id, a.name AS api_name, k.name, k.start, k.deleted_at,
                a.deleted_at AS api_deleted_at
            FROM keys k JOIN apis a ON a.id = k.api_id
            WHERE (k.id = $2 OR k.hash = $3) AND k.workspace_id = $1
                AND (k.deleted_at IS NOT NULL OR a.deleted_at IS NOT NULL)";
        Ok(query_as(sql).bind(workspace).bind(id).bind(hash).fetch_optional(self).await?)
    }

    async fn find_entry_at(
        &mut self,
        workspace: &WorkspaceId,
        event: &str,
        at: Timestamp,
        target: &str,
    ) -> Result<Option<StoredEntry>> {
        let sql = entries_from!(concat!(
            "audit a
            WHERE a.workspace_id = $1 AND a.at = $2 AND a.event = $3 AND ",
            contains!("a.targets", "$4"),
            " ORDER BY a.id DESC LIMIT 1"
        ));
        let query = query_as(sql).bind(workspace).bind(at).bind(event).bind(target);
        Ok(query.fetch_optional(self).await?)
    }

    async fn load_api_names(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[ApiId],
    ) -> Result<Vec<(ApiId, String)>> {
        let sql =
            concat!("SELECT id, name FROM apis WHERE workspace_id = $1 AND id ", is_one_of!("$2"));
        Ok(query_as(sql).bind(workspace).bind(json!(ids).to_string()).fetch_all(self).await?)
    }

    async fn count_keys_by_api(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[ApiId],
        max: i64,
    ) -> Result<Vec<(ApiId, i64)>> {
        let sql = concat!(
            "SELECT a.id, (SELECT COUNT(*) FROM (
                SELECT 1 FROM keys k WHERE k.api_id = a.id AND k.deleted_at IS NULL LIMIT $3)
                AS counted)
            FROM apis a
            WHERE a.workspace_id = $1 AND a.id ",
            is_one_of!("$2")
        );
        let query = query_as(sql).bind(workspace).bind(json!(ids).to_string()).bind(max);
        Ok(query.fetch_all(self).await?)
    }

    async fn list_key_audit_entries(
        &mut self,
        workspace: &WorkspaceId,
        key: &KeyId,
        since: Timestamp,
        max: i64,
    ) -> Result<Vec<StoredEntry>> {
        let sql = entries_from!(concat!(
            entries_of_target!("$2"),
            " AND a.workspace_id = $1 AND a.at >= $3 ORDER BY a.at DESC, a.id DESC LIMIT $4"
        ));
        let query = query_as(sql).bind(workspace).bind(key).bind(since).bind(max);
        Ok(query.fetch_all(self).await?)
    }
}
