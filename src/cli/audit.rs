//! `keyward audit`: the audit log.

use clap::Subcommand;
use domain::audit;
use foundation::config::Settings;
use foundation::id::WorkspaceId;
use foundation::model::escape_hidden;
use serde_json::{Value, json};
use store::{AuditFilter, StoredEntry};

use super::CommandResult;
use super::commands::open_app;
use super::output::CommandOutput;

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
        #[arg(long, default_value = "50", value_parser = clap::value_parser!(i64).range(1..=1000))]
        limit: i64,
    },
}

pub async fn run(settings: Settings, out: CommandOutput, command: AuditCommand) -> CommandResult {
    let AuditCommand::List { workspace, event, actor, about, before, limit } = command;
    let app = open_app(settings).await?;
    let filter = AuditFilter {
        before_id: before,
        event,
        actor,
        target: about,
        rows_max: limit,
        ..AuditFilter::default()
    };
    let all = audit::list(&app.context, &WorkspaceId::from(workspace), &filter).await?;
    let list: Vec<_> = all.iter().map(audit_entry_json).collect();
    let lines: Vec<_> = all.iter().map(format_audit_entry).collect();
    out.write(&lines.join("\n"), &json!(list));
    app.context.store.close().await;
    Ok(())
}

fn format_audit_entry(entry: &StoredEntry) -> String {
    let actor = escape_hidden(entry.actor_name.as_deref().unwrap_or(&entry.actor_id));
    let targets: Vec<Value> = serde_json::from_str(&entry.targets).unwrap_or_default();
    let ids = targets.iter().filter_map(|target| target["id"].as_str());
    let ids = escape_hidden(&ids.collect::<Vec<_>>().join(" "));
    let address = entry.remote_address.as_deref().unwrap_or("-");
    let at = jiff::Timestamp::from_millisecond(entry.at.0).unwrap_or_default();
    format!("{}  {at}  {}  {actor}  {address}  {ids}", entry.id, entry.event)
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
