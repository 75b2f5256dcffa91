//! Who did what.

use async_trait::async_trait;
use serde_json::json;
use sqlx::{query, query_as};

use super::Connection;
use crate::error::Result;
use crate::id::WorkspaceId;
use crate::store::{AuditAct, AuditEntry, AuditReads, AuditWrites, StoredEntry, WantedEntries};

#[async_trait]
impl AuditReads for Connection {
    async fn audit_entries(
        &mut self,
        workspace: &WorkspaceId,
        wanted: &WantedEntries,
    ) -> Result<Vec<StoredEntry>> {
        let sql = concat!(
            "SELECT a.id, a.at, a.event, a.actor_type, a.actor_id, a.actor_name, a.remote_address,
                a.user_agent, a.targets, a.correlation_id
            FROM audit a
            WHERE a.workspace_id = $1
                AND ($2 = '' OR a.event = $2)
                AND ($3 = '' OR a.actor_id = $3)
                AND ($4 = '' OR EXISTS (SELECT 1 FROM ",
            items!("a.targets"),
            " WHERE item ->> 'id' = $4 OR item ->> 'name' = $4))
                AND ($5 = '' OR EXISTS (
                    SELECT 1 FROM audit b
                    WHERE b.id = $5 AND (a.at < b.at OR (a.at = b.at AND a.id < b.id))))
            ORDER BY a.at DESC, a.id DESC
            LIMIT $6"
        );
        let text = |wanted: &Option<String>| wanted.clone().unwrap_or_default();
        Ok(query_as(sql)
            .bind(workspace)
            .bind(text(&wanted.event))
            .bind(text(&wanted.actor))
            .bind(text(&wanted.about))
            .bind(text(&wanted.before))
            .bind(wanted.limit)
            .fetch_all(self)
            .await?)
    }
}

#[async_trait]
impl AuditWrites for Connection {
    async fn insert_audit(&mut self, act: &AuditAct<'_>, entries: &[AuditEntry]) -> Result<()> {
        let sql = concat!(
            "INSERT INTO audit
                (id, workspace_id, at, event, actor_type, actor_id, actor_name, remote_address,
                user_agent, targets, correlation_id)
            SELECT item ->> 'id', $1, $2, item ->> 'event', $3, $4, $5, $6, $7, item ->> 'targets',
                $8
            FROM ",
            items!("$9")
        );
        query(sql)
            .bind(act.workspace_id)
            .bind(act.at)
            .bind(act.actor_type)
            .bind(act.actor_id)
            .bind(act.actor_name)
            .bind(act.remote_address)
            .bind(act.user_agent)
            .bind(act.correlation_id)
            .bind(json!(entries).to_string())
            .execute(self)
            .await?;
        Ok(())
    }
}
