//! Keys and APIs as people look for them.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{ApiId, KeyId, WorkspaceId};
use serde_json::json;
use sqlx::query_as;

use super::{Connection, all};
use crate::rows::KeyRow;
use crate::{KeyCursor, KeyListFilter, KeyReads, StoredEntry, StoredKey};

/// A page of keys: what is asked for besides, and where the page begins. The state is told in the order in which a
/// verification looks. A key of which only a purse may still hold credits is both active and spent.
macro_rules! page_where {
    ($whose:literal, $found:expr) => {
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
            $whose,
            " AND ",
            $found,
            " ORDER BY k.created_at DESC, k.id DESC LIMIT $9"
        )
    };
}

/// What a search looks at: a part of the name or of the external id, or what the id or the key begins with.
macro_rules! found {
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

/// Read from an index alone.
macro_rules! place_where {
    ($whose:literal) => {
        concat!(
            "SELECT created_at, id
            FROM keys
            WHERE deleted_at IS NULL AND (created_at, id) <= ($2, $3) AND ",
            $whose,
            " ORDER BY created_at DESC, id DESC LIMIT 1 OFFSET $4"
        )
    };
}

/// The place with which a page begins.
fn beginning(wanted: &KeyListFilter) -> KeyCursor {
    // Sorts behind whatever an id is made of.
    wanted.from.clone().unwrap_or_else(|| (Timestamp(i64::MAX), KeyId::from("~")))
}

#[async_trait]
impl KeyReads for Connection {
    async fn keys_page(
        &mut self,
        workspace: &WorkspaceId,
        wanted: &KeyListFilter,
    ) -> Result<Vec<StoredKey>> {
        // A statement for each, for each has an index that yields the page in its order.
        let sql = match (&wanted.id_prefix, &wanted.api) {
            (Some(_), _) => {
                page_where!("($12 = '' OR k.api_id = $12)", "k.id >= $10 AND k.id < $11")
            }
            (None, Some(_)) => page_where!("k.api_id = $12", found!()),
            (None, None) => page_where!("$12 = ''", found!()),
        };
        let (text, other) = match &wanted.id_prefix {
            // Sorts behind whatever an id is made of.
            Some(prefix) => (prefix.clone(), format!("{prefix}~")),
            None => (wanted.search.clone(), wanted.search.to_lowercase()),
        };
        let (at, id) = beginning(wanted);
        let end = (Timestamp(i64::MIN), KeyId::from(""));
        let (until, until_id) = wanted.until.as_ref().unwrap_or(&end);
        let query = query_as(sql)
            .bind(workspace)
            .bind(at)
            .bind(id)
            .bind(wanted.state)
            .bind(wanted.now)
            .bind(wanted.periods.day)
            .bind(wanted.periods.month)
            .bind(wanted.periods.day_of_month)
            .bind(wanted.limit)
            .bind(text)
            .bind(other)
            .bind(wanted.api.as_ref().map_or("", ApiId::as_str))
            .bind(until)
            .bind(until_id);
        all::<KeyRow, _>(self, query).await
    }

    async fn key_behind(
        &mut self,
        workspace: &WorkspaceId,
        wanted: &KeyListFilter,
        behind: i64,
    ) -> Result<Option<KeyCursor>> {
        let sql = match wanted.api {
            Some(_) => place_where!("workspace_id = $1 AND api_id = $5"),
            None => place_where!("workspace_id = $1 AND $5 = ''"),
        };
        let (at, id) = beginning(wanted);
        let api = wanted.api.as_ref().map_or("", ApiId::as_str);
        let query = query_as(sql).bind(workspace).bind(at).bind(id).bind(behind).bind(api);
        Ok(query.fetch_optional(self).await?)
    }

    async fn api_names(
        &mut self,
        workspace: &WorkspaceId,
        ids: &[ApiId],
    ) -> Result<Vec<(ApiId, String)>> {
        let sql = concat!(
            "SELECT id, name FROM apis WHERE workspace_id = $1 AND id IN (SELECT item FROM ",
            texts!("$2"),
            ")"
        );
        Ok(query_as(sql).bind(workspace).bind(json!(ids).to_string()).fetch_all(self).await?)
    }

    async fn key_counts(
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
            WHERE a.workspace_id = $1 AND a.id IN (SELECT item FROM ",
            texts!("$2"),
            ")"
        );
        let query = query_as(sql).bind(workspace).bind(json!(ids).to_string()).bind(max);
        Ok(query.fetch_all(self).await?)
    }

    async fn key_entries(
        &mut self,
        workspace: &WorkspaceId,
        key: &KeyId,
        since: Timestamp,
        looked_through: i64,
        max: i64,
    ) -> Result<Vec<StoredEntry>> {
        // An id is in no other text, so the lists need not be taken apart.
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
        Ok(query.bind(looked_through).bind(max).fetch_all(self).await?)
    }
}
