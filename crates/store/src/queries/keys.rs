//! Implements reads of keys and APIs for the lists of the dashboard.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{ApiId, KeyId, WorkspaceId};
use serde_json::json;
use sqlx::query_as;

use super::{Connection, fetch_all_as};
use crate::rows::KeyRow;
use crate::{KeyCursor, KeyListFilter, KeyReads, StoredEntry, StoredKey};

/// Selects a page of keys by two more conditions, from the cursor on. The state is determined in the order of the
/// checks of a verification. A key whose only remaining credits may be in a lease is both active and exhausted.
macro_rules! page_where {
    ($owner:literal, $found:expr) => {
        concat!(
            keys_where!(
                "k.workspace_id = $1 AND (k.created_at, k.id) <= ($2, $3)
                AND (k.created_at, k.id) > ($13, $14)"
            ),
            " AND ($4 = '' OR $4 = CASE
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
                ELSE 'active' END)
            AND ",
            $owner,
            " AND ",
            $found,
            " ORDER BY k.created_at DESC, k.id DESC LIMIT $9"
        )
    };
}

/// Tests whether a key matches a search: a part of the name or of the external id, or the beginning of the id or of
/// the key.
macro_rules! search_condition {
    () => {
        concat!(
            "($10 = '' OR substr(k.id, 1, length($10)) = $10
                OR substr(k.start, 1, length($10)) = $10
                OR ",
            contains!("k.name", "$10"),
            " OR ",
            contains!("lower(k.name)", "$11"),
            " OR ",
            contains!("k.owner_id", "$10"),
            " OR ",
            contains!("lower(k.owner_id)", "$11"),
            ")"
        )
    };
}

/// Selects a cursor. Reads only an index.
macro_rules! cursor_where {
    ($owner:literal) => {
        concat!(
            "SELECT created_at, id
            FROM keys
            WHERE deleted_at IS NULL AND (created_at, id) <= ($2, $3) AND ",
            $owner,
            " ORDER BY created_at DESC, id DESC LIMIT 1 OFFSET $4"
        )
    };
}

/// Returns the cursor at which a page begins.
fn start_cursor(filter: &KeyListFilter) -> KeyCursor {
    // Sorts after every character of an id.
    filter.start.clone().unwrap_or_else(|| (Timestamp(i64::MAX), KeyId::from("~")))
}

#[async_trait]
impl KeyReads for Connection {
    async fn list_workspace_keys(
        &mut self,
        workspace: &WorkspaceId,
        filter: &KeyListFilter,
    ) -> Result<Vec<StoredKey>> {
        // One statement per case, because each case has an index that returns the page in order.
        let sql = match (&filter.id_prefix, &filter.api_id) {
            (Some(_), _) => {
                page_where!("($12 = '' OR k.api_id = $12)", "k.id >= $10 AND k.id < $11")
            }
            (None, Some(_)) => page_where!("k.api_id = $12", search_condition!()),
            (None, None) => page_where!("$12 = ''", search_condition!()),
        };
        let (text, other) = match &filter.id_prefix {
            // Sorts after every character of an id.
            Some(prefix) => (prefix.clone(), format!("{prefix}~")),
            None => (filter.search.clone(), filter.search.to_lowercase()),
        };
        let (at, id) = start_cursor(filter);
        let end = (Timestamp(i64::MIN), KeyId::from(""));
        let (until, until_id) = filter.end.as_ref().unwrap_or(&end);
        let query = query_as(sql)
            .bind(workspace)
            .bind(at)
            .bind(id)
            .bind(filter.state)
            .bind(filter.now)
            .bind(filter.refill_periods.day)
            .bind(filter.refill_periods.month)
            .bind(filter.refill_periods.day_of_month)
            .bind(filter.rows_max)
            .bind(text)
            .bind(other)
            .bind(filter.api_id.as_ref().map_or("", ApiId::as_str))
            .bind(until)
            .bind(until_id);
        fetch_all_as::<KeyRow, _>(self, query).await
    }

    async fn find_key_cursor(
        &mut self,
        workspace: &WorkspaceId,
        filter: &KeyListFilter,
        offset: i64,
    ) -> Result<Option<KeyCursor>> {
        let sql = match filter.api_id {
            Some(_) => cursor_where!("workspace_id = $1 AND api_id = $5"),
            None => cursor_where!("workspace_id = $1 AND $5 = ''"),
        };
        let (at, id) = start_cursor(filter);
        let api = filter.api_id.as_ref().map_or("", ApiId::as_str);
        let query = query_as(sql).bind(workspace).bind(at).bind(id).bind(offset).bind(api);
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
        scanned_max: i64,
        max: i64,
    ) -> Result<Vec<StoredEntry>> {
        // An id occurs in no other text, so the lists need not be parsed.
        let sql = entries_from!(concat!(
            "(SELECT * FROM audit
                WHERE workspace_id = $1 AND at >= $3
                ORDER BY at DESC, id DESC
                LIMIT $4) a
            WHERE ",
            contains!("a.targets", "$2"),
            " ORDER BY a.at DESC, a.id DESC
            LIMIT $5"
        ));
        let query = query_as(sql).bind(workspace).bind(key).bind(since);
        Ok(query.bind(scanned_max).bind(max).fetch_all(self).await?)
    }
}
