//! Tests the audit log.

use foundation::id::{AuditId, CorrelationId};
use serde_json::{Value, json};
use store::{AuditContext, AuditEntry, AuditFilter};

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

on_both_stores! {
    async fn audit_entries_are_selected_by_every_filter_alone_and_together(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        insert_entries_to_select(&store, &workspace, &other).await;

        for (selected, expected) in [
            (("", "", "", "", 0, 9, 9), "4 3 2 1"),
            (("", "", "", "", 0, 9, 3), "4 3 2"),
            (("", "", "", "", 2, 3, 9), "3"),
            (("", "", "", "log_3", 0, 9, 9), "2 1"),
            (("", "", "", "log_2", 0, 9, 9), "1"),
            (("", "", "", "log_2", 0, 1, 9), ""),
            (("", "", "", "log_0", 0, 9, 9), ""),
            (("", "", "", "log_5", 0, 9, 9), ""),
            (("key.create", "", "", "", 0, 9, 9), "2 1"),
            (("key", "", "", "", 0, 9, 9), ""),
            (("", "deploy", "", "", 0, 9, 9), "3 2 1"),
            (("", "deploy", "", "", 0, 9, 2), "3 2"),
            (("", "deploy", "", "log_3", 0, 9, 9), "2 1"),
            (("", "root_1", "", "", 0, 9, 9), "4 2 1"),
            (("", "root_1", "", "", 2, 9, 9), "4"),
            (("key.update", "root_1", "", "", 0, 9, 9), "4"),
            (("", "", "key_1", "", 0, 9, 9), "4 2 1"),
            (("", "", "key_1", "", 0, 9, 2), "4 2"),
            (("", "", "key_1", "log_4", 0, 9, 9), "2 1"),
            (("", "", "api_1", "", 0, 9, 9), "4 3 2 1"),
            (("", "", "one", "", 0, 9, 9), "1"),
            (("", "", "key", "", 0, 9, 9), ""),
            (("key.create", "deploy", "key_1", "log_2", 0, 9, 9), "1"),
            (("key.create", "ada", "key_1", "", 0, 9, 9), ""),
        ] {
            let filter = AuditFilter { is_oldest_first: false, ..filter_of(selected) };
            assert_eq!(select(&store, &workspace, &filter).await, expected, "{filter:?}");
        }
    }

    async fn audit_entries_are_listed_the_oldest_first_with_every_filter(store) {
        let (workspace, other) = (workspace(&store).await, workspace(&store).await);
        insert_entries_to_select(&store, &workspace, &other).await;

        for (selected, expected) in [
            (("", "", "", "", 0, 9, 9), "1 2 3 4"),
            (("", "", "", "", 0, 9, 3), "1 2 3"),
            (("", "", "", "", 2, 3, 9), "3"),
            (("", "", "", "log_1", 0, 9, 9), "2 3 4"),
            (("", "", "", "log_2", 0, 9, 9), "3 4"),
            (("", "", "", "log_2", 3, 9, 9), "4"),
            (("", "", "", "log_2", 0, 3, 9), "3"),
            (("", "", "", "log_4", 0, 9, 9), ""),
            (("", "", "", "log_0", 0, 9, 9), ""),
            (("", "", "", "log_5", 0, 9, 9), ""),
            (("key.create", "", "", "", 0, 9, 9), "1 2"),
            (("key.create", "", "", "log_1", 0, 9, 9), "2"),
            (("", "deploy", "", "", 0, 9, 9), "1 2 3"),
            (("", "deploy", "", "", 0, 9, 2), "1 2"),
            (("", "deploy", "", "log_1", 0, 9, 9), "2 3"),
            (("", "", "key_1", "", 0, 9, 9), "1 2 4"),
            (("", "", "key_1", "", 0, 9, 2), "1 2"),
            (("", "", "key_1", "log_1", 0, 9, 9), "2 4"),
            (("key.create", "deploy", "key_1", "log_1", 0, 9, 9), "2"),
        ] {
            let filter = AuditFilter { is_oldest_first: true, ..filter_of(selected) };
            assert_eq!(select(&store, &workspace, &filter).await, expected, "{filter:?}");
        }
    }
}

/// Returns the filter with an event, an actor, a target, a cursor, bounds of time and a number of rows. Empty texts select all.
fn filter_of(
    (event, actor, target, cursor, from, until, rows_max): (&str, &str, &str, &str, i64, i64, i64),
) -> AuditFilter {
    let text = |value: &str| Some(value.to_owned()).filter(|value| !value.is_empty());
    AuditFilter {
        cursor_id: text(cursor),
        event: text(event),
        actor: text(actor),
        target: text(target),
        start_at: Some(Timestamp(from)),
        end_at: Some(Timestamp(until)),
        rows_max,
        ..AuditFilter::default()
    }
}

/// Returns the numbers of the entries that a filter selects, in their order.
async fn select(store: &Store, workspace: &WorkspaceId, filter: &AuditFilter) -> String {
    let found = store.read().await.unwrap().list_audit_entries(workspace, filter).await.unwrap();
    let ids: Vec<_> = found.iter().map(|entry| entry.id.trim_start_matches("log_")).collect();
    ids.join(" ")
}

/// Inserts three groups of entries, and one of another workspace.
async fn insert_entries_to_select(store: &Store, workspace: &WorkspaceId, other: &WorkspaceId) {
    let correlation = CorrelationId::from("cor_1");
    let act = |in_other: bool, at, actor_id, actor_name| AuditContext {
        workspace_id: if in_other { other } else { workspace },
        at: Timestamp(at),
        correlation_id: &correlation,
        actor_type: "rootkey",
        actor_id,
        actor_name,
        remote_address: None,
        user_agent: None,
    };
    let entry = |id: &str, event, target: &str, name: &str| AuditEntry {
        id: AuditId::from(id),
        event,
        targets: json!([{ "type": "api", "id": "api_1" }, { "type": "key", "id": target, "name": name }]),
        before: None,
        after: None,
        undoes: None,
    };
    commit_with(store, async |tx| {
        let first = [
            entry("log_1", "key.create", "key_1", "one"),
            entry("log_2", "key.create", "key_2", "key_1"),
        ];
        tx.insert_audit_entries(&act(false, 1, "root_1", "deploy"), &first).await?;
        let second = [entry("log_3", "key.update", "key_2", "two")];
        tx.insert_audit_entries(&act(false, 2, "deploy", "deploy"), &second).await?;
        let third = [entry("log_4", "key.update", "key_1", "key_1")];
        tx.insert_audit_entries(&act(false, 3, "root_1", "ada"), &third).await?;
        tx.insert_audit_entries(
            &act(true, 3, "root_1", "deploy"),
            &[entry("log_5", "key.create", "key_1", "one")],
        )
        .await
    })
    .await
    .unwrap();
}
