//! Implements reads and writes of the audit log.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{AuditId, WorkspaceId};
use serde_json::json;
use sqlx::{query, query_as};

use super::Connection;
use crate::{AuditContext, AuditEntry, AuditFilter, AuditReads, AuditWrites, StoredEntry};

#[async_trait]
impl AuditReads for Connection {
    async fn list_audit_entries(
        &mut self,
        workspace: &WorkspaceId,
        filter: &AuditFilter,
    ) -> Result<Vec<StoredEntry>> {
        let sql = entries_from!(concat!(
            "audit a
            WHERE a.workspace_id = $1
                AND ($2 = '' OR a.event = $2)
                AND ($3 = '' OR a.actor_id = $3 OR a.actor_name = $3)
                AND ($4 = '' OR EXISTS (SELECT 1 FROM ",
            items!("a.targets"),
            " WHERE item ->> 'id' = $4 OR item ->> 'name' = $4))
                AND a.at >= $5 AND a.at < $6
                AND ($7 = '' OR EXISTS (
                    SELECT 1 FROM audit b
                    WHERE b.id = $7 AND (a.at < b.at OR (a.at = b.at AND a.id < b.id))))
            ORDER BY a.at DESC, a.id DESC
            LIMIT $8"
        ));
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        Ok(query_as(sql)
            .bind(workspace)
            .bind(text(&filter.event))
            .bind(text(&filter.actor))
            .bind(text(&filter.target))
            .bind(filter.start_at.unwrap_or(Timestamp(i64::MIN)))
            .bind(filter.end_at.unwrap_or(Timestamp(i64::MAX)))
            .bind(text(&filter.before_id))
            .bind(filter.rows_max)
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
            .bind(json!(entries).to_string())
            .execute(self)
            .await?;
        Ok(())
    }
}
