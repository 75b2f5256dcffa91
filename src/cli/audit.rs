//! `keyward audit`: the audit log.

use clap::Subcommand;
use domain::{audit, undo};
use foundation::config::Settings;
use foundation::id::{AuditId, WorkspaceId};
use serde_json::{Value, json};
use store::{AuditFilter, StoredEntry};

use super::CommandResult;
use super::commands::open_app;
use super::operator::Operator;
use super::output::{CommandOutput, Table, counted, format_time, or_dash, print_truncation};

/// The maximum number of entries in a list.
const LIMIT_MAX: i64 = 1_000;

#[derive(Subcommand)]
pub enum AuditCommand {
    /// List the entries of a workspace, newest first
    List {
        #[arg(long, default_value = "ws_default")]
        workspace: String,
        /// Filter by event, such as key.create
        #[arg(long)]
        event: Option<String>,
        /// Filter by actor: the ID of a root key
        #[arg(long)]
        actor: Option<String>,
        /// Filter by the ID or name of the target
        #[arg(long)]
        about: Option<String>,
        /// List only entries before the entry with this ID
        #[arg(long)]
        before: Option<String>,
        /// Limit the number of entries, 1 to 1000
        #[arg(
            long,
            default_value = "50",
            value_parser = clap::value_parser!(i64).range(1..=LIMIT_MAX)
        )]
        limit: i64,
    },
    /// Undo an entry: revert a change, restore what was deleted, or delete what was created
    Undo {
        /// ID of the entry
        id: String,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
}

pub async fn run(settings: Settings, out: CommandOutput, command: AuditCommand) -> CommandResult {
    match command {
        AuditCommand::List { workspace, event, actor, about, before, limit } => {
            let filter = AuditFilter {
                cursor_id: before,
                event,
                actor,
                target: about,
                // One more tells whether there are more.
                rows_max: limit + 1,
                ..AuditFilter::default()
            };
            list(settings, out, &WorkspaceId::from(workspace), &filter, limit).await
        }
        AuditCommand::Undo { id, workspace } => {
            let operator = Operator::open(settings, &workspace).await?;
            // Closes the leases of a key whose credits are reverted.
            operator.app.context.connect_redis().await;
            undo::undo(&operator.app.keys, &operator.caller, &AuditId::from(id.as_str())).await?;
            out.write(&format!("undone: {id}"), &json!({ "id": id, "undone": true }));
            operator.close().await;
            Ok(())
        }
    }
}

async fn list(
    settings: Settings,
    out: CommandOutput,
    workspace: &WorkspaceId,
    filter: &AuditFilter,
    limit: i64,
) -> CommandResult {
    let app = open_app(settings).await?;
    let mut all = audit::list(&app.context, workspace, filter).await?;
    let shown_max = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = all.len() > shown_max;
    all.truncate(shown_max);
    let header = &["ID", "TIME", "EVENT", "ACTOR", "ADDRESS", "TARGETS"];
    let rows = all.iter().map(audit_entry_row).collect();
    let table = Table { items: "audit log entries", header, rows };
    out.write_table(table, all.iter().map(audit_entry_json).collect());
    if let Some(last) = all.last().filter(|_| has_more) {
        let shown = counted(all.len(), "entry", "entries");
        let earlier = format!("--before {} lists earlier ones", last.id);
        print_truncation(&shown, limit, LIMIT_MAX, &earlier);
    }
    app.context.store.close().await;
    Ok(())
}

fn audit_entry_row(entry: &StoredEntry) -> Vec<String> {
    let actor = entry.actor_name.as_deref().unwrap_or(&entry.actor_id);
    let targets: Vec<Value> = serde_json::from_str(&entry.targets).unwrap_or_default();
    let ids = targets.iter().filter_map(|target| target["id"].as_str());
    vec![
        entry.id.clone(),
        format_time(entry.at),
        entry.event.clone(),
        actor.to_owned(),
        or_dash(entry.remote_address.as_deref()),
        ids.collect::<Vec<_>>().join(" "),
    ]
}

fn audit_entry_json(entry: &StoredEntry) -> Value {
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let targets = read(&entry.targets);
    json!({
        "id": entry.id, "at": entry.at, "event": entry.event,
        "actor": { "type": entry.actor_type, "id": entry.actor_id, "name": entry.actor_name },
        "remoteAddress": entry.remote_address, "userAgent": entry.user_agent, "targets": targets,
        "correlationId": entry.correlation_id,
        "before": entry.before.as_deref().map(read), "after": entry.after.as_deref().map(read),
        "undoes": entry.undoes, "undoneBy": entry.undone_by,
    })
}
