//! Implements reads and writes of the audit log.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::{AuditId, WorkspaceId};
use serde_json::json;
use sqlx::{AssertSqlSafe, query, query_as, query_scalar};

use super::Connection;
use crate::{AuditContext, AuditEntry, AuditFilter, AuditReads, AuditWrites, StoredEntry};

#[async_trait]
impl AuditReads for Connection {
    async fn list_audit_entries(
        &mut self,
        workspace: &WorkspaceId,
        filter: &AuditFilter,
    ) -> Result<Vec<StoredEntry>> {
        let mut start_at = filter.start_at.unwrap_or(Timestamp(i64::MIN));
        let mut end_at = filter.end_at.unwrap_or(Timestamp(i64::MAX));
        let mut cursor_at = Timestamp(0);
        if let Some(id) = &filter.cursor_id {
            let sql = "SELECT at FROM audit WHERE workspace_id = $1 AND id = $2";
            let found = query_scalar(sql).bind(workspace).bind(id).fetch_optional(&mut *self);
            let Some(found) = found.await? else { return Ok(Vec::new()) };
            cursor_at = found;
            // The index finds where the page begins.
            match filter.is_oldest_first {
                true => start_at = start_at.max(cursor_at),
                false => end_at = end_at.min(Timestamp(cursor_at.0.saturating_add(1))),
            }
        }
        let sql = format!("{}{}", entries_from!(""), entries_sql(filter));
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        Ok(query_as(AssertSqlSafe(sql))
            .bind(workspace)
            .bind(text(&filter.event))
            .bind(text(&filter.actor))
            .bind(start_at)
            .bind(end_at)
            .bind(text(&filter.cursor_id))
            .bind(cursor_at)
            .bind(filter.rows_max)
            .bind(indexed_target(filter).unwrap_or_default())
            .bind(json!(filter.target_ids).to_string())
            .fetch_all(self)
            .await?)
    }

    async fn find_audit_entry(
        &mut self,
        workspace: &WorkspaceId,
        id: &AuditId,
    ) -> Result<Option<StoredEntry>> {
        let sql = entries_from!("audit a WHERE a.workspace_id = $1 AND a.id = $2");
        Ok(query_as(sql).bind(workspace).bind(id).fetch_optional(self).await?)
    }

    async fn list_audit_group(
        &mut self,
        workspace: &WorkspaceId,
        at: Timestamp,
        correlation: &str,
    ) -> Result<Vec<StoredEntry>> {
        let sql = entries_from!(
            "audit a
            WHERE a.workspace_id = $1 AND a.at = $2 AND a.correlation_id = $3
            ORDER BY a.id"
        );
        Ok(query_as(sql).bind(workspace).bind(at).bind(correlation).fetch_all(self).await?)
    }
}

#[async_trait]
impl AuditWrites for Connection {
    async fn insert_audit_entries(
        &mut self,
        context: &AuditContext<'_>,
        entries: &[AuditEntry],
    ) -> Result<()> {
        let entries = serde_json::to_string(entries).map_err(|e| Error::Internal(e.to_string()))?;
        let sql = concat!(
            "INSERT INTO audit
                (id, workspace_id, at, event, actor_type, actor_id, actor_name, remote_address,
                user_agent, targets, correlation_id, before, after, undoes)
            SELECT item ->> 'id', $1, $2, item ->> 'event', $3, $4, $5, $6, $7, item ->> 'targets',
                $8, item ->> 'before', item ->> 'after', item ->> 'undoes'
            FROM ",
            items!("$9")
        );
        query(sql)
            .bind(context.workspace_id)
            .bind(context.at)
            .bind(context.actor_type)
            .bind(context.actor_id)
            .bind(context.actor_name)
            .bind(context.remote_address)
            .bind(context.user_agent)
            .bind(context.correlation_id)
            .bind(entries)
            .execute(self)
            .await?;
        Ok(())
    }
}

/// Returns the id or name of a target by which the index finds the entries of a filter.
fn indexed_target(filter: &AuditFilter) -> Option<&str> {
    let target = filter.target.as_deref().filter(|target| !target.is_empty());
    target.or(filter.target_ids.first().map(String::as_str))
}

/// Returns the tables and conditions of a filter, with the values `$1` to `$10`. A condition is left out if nothing is selected
/// by it, so that the planner finds the index for the others; the value is mentioned, because a statement must use every value.
fn entries_sql(filter: &AuditFilter) -> String {
    let is_given = |value: &Option<String>| value.as_ref().is_some_and(|value| !value.is_empty());
    let event = if is_given(&filter.event) { "a.event = $2" } else { "$2 = ''" };
    // An index returns the entries in either direction.
    let (follows, order) = match filter.is_oldest_first {
        true => ("a.at > $7 OR a.id > $6", "ORDER BY a.at, a.id LIMIT $8"),
        false => ("a.at < $7 OR a.id < $6", "ORDER BY a.at DESC, a.id DESC LIMIT $8"),
    };
    let ids = match filter.target_ids.is_empty() {
        true => "$10 = '[]'",
        false => concat!(
            "NOT EXISTS (SELECT 1 FROM ",
            texts!("$10"),
            " WHERE texts.item NOT IN (SELECT COALESCE(items.item ->> 'id', '') FROM ",
            items!("a.targets"),
            "))"
        ),
    };
    let conditions = format!(
        "a.workspace_id = $1 AND {event} AND a.at >= $4 AND a.at < $5 AND ($6 = '' OR {follows}) AND {ids}"
    );
    if indexed_target(filter).is_some() {
        let entries = entries_of_target!("$9");
        let actor = "($3 = '' OR a.actor_id = $3 OR a.actor_name = $3)";
        return format!("{entries} AND {actor} AND {conditions} {order}");
    }
    if is_given(&filter.actor) {
        // Each index has the order of the log.
        return format!(
            "(SELECT * FROM (SELECT * FROM audit a WHERE a.actor_id = $3 AND {conditions} {order}) AS by_id
            UNION ALL
            SELECT * FROM (SELECT * FROM audit a
                WHERE a.actor_name = $3 AND a.actor_id <> $3 AND {conditions} {order}) AS by_name
            ) AS a WHERE $9 = '' {order}"
        );
    }
    format!("audit a WHERE {conditions} AND $3 = '' AND $9 = '' {order}")
}
