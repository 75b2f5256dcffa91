//! Tests the audit log.

use foundation::id::{AuditId, CorrelationId};
use serde_json::{Value, json};
use store::{AuditContext, AuditEntry};

use super::*;

/// An audit entry as stored in the table.
#[derive(Debug, PartialEq, sqlx_macros::FromRow)]
struct Entry {
    id: String,
    workspace_id: String,
    at: i64,
    event: String,
    actor_type: String,
    actor_id: String,
    actor_name: String,
    remote_address: Option<String>,
    user_agent: Option<String>,
    targets: String,
    correlation_id: String,
    before: Option<String>,
    after: Option<String>,
    undoes: Option<String>,
}

on_both_stores! {
    async fn audit_entry_is_stored_with_every_field(store) {
        let workspace = workspace(&store).await;
        let (id, other) = (AuditId::random(), AuditId::random());
        let changed = json!({ "name": SPECIAL_TEXT }).to_string();
        let entry = |id: &AuditId, kind| AuditEntry {
            id: id.clone(),
            event: "key.create",
            targets: json!([{ "type": kind, "name": SPECIAL_TEXT }]),
            before: (kind == "role").then(|| changed.clone()),
            after: None,
            undoes: (kind == "role").then(|| AuditId::from("log_1")),
        };
        let act = AuditContext {
            workspace_id: &workspace,
            at: Timestamp(i64::MAX),
            correlation_id: &CorrelationId::from("cor_1"),
            actor_type: "rootkey",
            actor_id: "key_1",
            actor_name: SPECIAL_TEXT,
            remote_address: Some("2001:db8::1"),
            user_agent: Some(SPECIAL_TEXT),
        };
        let bare = AuditContext { remote_address: None, user_agent: None, ..act };

        commit_with(&store, async |tx| {
            tx.insert_audit_entries(&act, &[entry(&id, "key"), entry(&other, "role")]).await?;
            tx.insert_audit_entries(&bare, &[entry(&AuditId::from("log_2"), "key")]).await
        })
        .await
        .unwrap();

        let sql = "
            SELECT id, workspace_id, at, event, actor_type, actor_id, actor_name, remote_address,
                user_agent, targets, correlation_id, before, after, undoes
            FROM audit
            ORDER BY id";
        let mut rows: Vec<Entry> = match &store {
            Store::Postgres { pool, .. } => sqlx::query_as(sql).fetch_all(&pool.get()).await.unwrap(),
            Store::Sqlite { pool, .. } => sqlx::query_as(sql).fetch_all(pool).await.unwrap(),
        };
        for row in &mut rows {
            // The spacing of the JSON does not matter.
            row.targets = serde_json::from_str::<Value>(&row.targets).unwrap().to_string();
        }
        let stored = |id: &str, kind, address: Option<&str>, agent: Option<&str>| Entry {
            id: id.into(),
            workspace_id: workspace.to_string(),
            at: i64::MAX,
            event: "key.create".into(),
            actor_type: "rootkey".into(),
            actor_id: "key_1".into(),
            actor_name: SPECIAL_TEXT.into(),
            remote_address: address.map(str::to_owned),
            user_agent: agent.map(str::to_owned),
            targets: json!([{ "type": kind, "name": SPECIAL_TEXT }]).to_string(),
            correlation_id: "cor_1".into(),
            before: (kind == "role").then(|| changed.clone()),
            after: None,
            undoes: (kind == "role").then(|| "log_1".into()),
        };
        let mut due = [
            stored(id.as_str(), "key", Some("2001:db8::1"), Some(SPECIAL_TEXT)),
            stored(other.as_str(), "role", Some("2001:db8::1"), Some(SPECIAL_TEXT)),
            stored("log_2", "key", None, None),
        ];
        due.sort_by(|a, b| a.id.cmp(&b.id));
        assert_eq!(rows, due);
    }
}
