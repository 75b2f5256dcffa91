//! `keyward audit`: the audit log.

use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use domain::audit::{self, AuditEvent};
use domain::{last_used, undo};
use foundation::config::Settings;
use foundation::id::AuditId;
use serde_json::{Value, json};
use store::{AuditFilter, StoredEntry};

use super::operator::Operator;
use super::output::{CommandOutput, Table, counted, format_time, or_dash, print_truncation};
use super::{CommandError, CommandResult};

/// The maximum number of entries in a list.
const LIMIT_MAX: i64 = 1_000;
/// How long the undo of an import waits: by then, servers have written which keys were used before.
const USES_WAIT: Duration = last_used::FLUSH_INTERVAL.saturating_add(Duration::from_secs(5));

#[derive(Subcommand)]
pub enum AuditCommand {
    /// List the entries of a workspace, newest first by default
    List {
        #[arg(long, default_value = "ws_default")]
        workspace: String,
        /// Filter by event, such as key.create
        #[arg(long, value_parser = parse_event)]
        event: Option<String>,
        /// Filter by actor: the ID of a root key
        #[arg(long)]
        actor: Option<String>,
        /// Filter by the ID or name of the target
        #[arg(long)]
        about: Option<String>,
        /// Set which entries come first
        #[arg(long, default_value = "newest")]
        order: EntryOrder,
        /// List only entries before the entry with this ID, newest first
        #[arg(long)]
        before: Option<String>,
        /// List only entries after the entry with this ID, with --order oldest
        #[arg(long)]
        after: Option<String>,
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

/// The entries that a list begins with.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EntryOrder {
    Newest,
    Oldest,
}

fn parse_event(text: &str) -> Result<String, String> {
    match AuditEvent::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("must be an event of the audit log, such as key.create".into()),
    }
}

pub async fn run(settings: Settings, out: CommandOutput, command: AuditCommand) -> CommandResult {
    match command {
        AuditCommand::List { workspace, event, actor, about, order, before, after, limit } => {
            let filter = AuditFilter {
                cursor_id: find_cursor(order, before, after)?,
                is_oldest_first: order == EntryOrder::Oldest,
                event,
                actor,
                target: about,
                // One more tells whether there are more.
                rows_max: limit + 1,
                ..AuditFilter::default()
            };
            list(settings, out, &workspace, &filter, limit).await
        }
        AuditCommand::Undo { id, workspace } => {
            let operator = Operator::open(settings, &workspace).await?;
            // Closes the leases of a key whose credits are reverted.
            operator.app.context.connect_redis().await;
            let entry = AuditId::from(id.as_str());
            wait_for_uses(&operator, &entry).await?;
            undo::undo(&operator.app.keys, &operator.caller, &entry).await?;
            out.write(&format!("undone: {id}"), &json!({ "id": id, "undone": true }));
            operator.close().await;
            Ok(())
        }
    }
}

/// Waits until servers have written which keys were used before, if the undo removes unused keys: servers write uses
/// periodically, and this process knows of none.
#[expect(clippy::print_stderr, reason = "standard output has the result")]
async fn wait_for_uses(operator: &Operator, id: &AuditId) -> CommandResult {
    let (entry, _) = audit::get_with_group(&operator.app.context, &operator.caller, id).await?;
    if removes_unused_keys(&entry) {
        let seconds = USES_WAIT.as_secs();
        eprintln!(
            "keyward: waiting {seconds} seconds until servers have recorded which keys were used"
        );
        tokio::time::sleep(USES_WAIT).await;
    }
    Ok(())
}

fn removes_unused_keys(entry: &StoredEntry) -> bool {
    let action = undo::plan_undo(entry);
    entry.undone_by.is_none() && matches!(action, Ok(undo::UndoAction::RemoveImportedKeys(..)))
}

/// Returns the ID of the entry that the list follows in its order.
fn find_cursor(
    order: EntryOrder,
    before: Option<String>,
    after: Option<String>,
) -> Result<Option<String>, CommandError> {
    match (order, before, after) {
        (EntryOrder::Newest, _, Some(_)) => {
            Err(CommandError::Usage("--after needs --order oldest".into()))
        }
        (EntryOrder::Oldest, Some(_), _) => {
            Err(CommandError::Usage("--before needs --order newest; use --after".into()))
        }
        (EntryOrder::Newest, cursor, None) | (EntryOrder::Oldest, None, cursor) => Ok(cursor),
    }
}

async fn list(
    settings: Settings,
    out: CommandOutput,
    workspace: &str,
    filter: &AuditFilter,
    limit: i64,
) -> CommandResult {
    let Operator { app, caller } = Operator::open(settings, workspace).await?;
    if let Some(cursor) = &filter.cursor_id {
        // The entry must exist: otherwise the list would be empty, as if there were no others.
        audit::get_with_group(&app.context, &caller, &AuditId::from(cursor.as_str())).await?;
    }
    let mut all = audit::list(&app.context, caller.workspace_id(), filter).await?;
    let shown_max = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = all.len() > shown_max;
    all.truncate(shown_max);
    let header = &["ID", "TIME", "EVENT", "ACTOR", "ADDRESS", "TARGETS"];
    let rows = all.iter().map(audit_entry_row).collect();
    let table = Table { items: "audit log entries", header, rows };
    out.write_table(table, all.iter().map(audit_entry_json).collect());
    if let Some(last) = all.last().filter(|_| has_more) {
        let shown = counted(all.len(), "entry", "entries");
        let (shown, others) = match filter.is_oldest_first {
            true => {
                let later = format!("--order oldest --after {} lists later ones", last.id);
                (format!("the oldest {shown}"), later)
            }
            false => {
                let earlier = format!("--before {} lists earlier ones", last.id);
                (format!("the latest {shown}"), earlier)
            }
        };
        print_truncation(&shown, limit, LIMIT_MAX, &others);
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

#[cfg(test)]
mod tests {
    use foundation::clock::Timestamp;

    use super::*;

    fn entry(event: &str, undone_by: Option<&str>) -> StoredEntry {
        StoredEntry {
            id: "log_1".to_owned(),
            at: Timestamp(0),
            event: event.to_owned(),
            actor_type: "system".to_owned(),
            actor_id: "cli".to_owned(),
            actor_name: None,
            remote_address: None,
            user_agent: None,
            targets: json!([{ "id": "mig_1" }, { "id": "api_1" }]).to_string(),
            correlation_id: None,
            before: None,
            after: None,
            undoes: None,
            undone_by: undone_by.map(str::to_owned),
        }
    }

    #[test]
    fn only_the_undo_of_an_import_waits_for_uses() {
        assert!(removes_unused_keys(&entry("migration.import", None)));
        assert!(!removes_unused_keys(&entry("migration.import", Some("log_2"))));
        assert!(!removes_unused_keys(&entry("key.create", None)));
    }
}
