//! `keyward replica`: lists registered replicas and removes stopped ones.

use clap::Subcommand;
use domain::replicas::{self, ForgetResult};
use foundation::config::Settings;
use serde_json::{Value, json};
use store::RegisteredReplica;

use super::commands::open_app;
use super::output::CommandOutput;
use super::{CommandError, CommandResult};

#[derive(Subcommand)]
pub enum ReplicaCommand {
    /// List registered replicas, and whether changes that cannot be published wait for them
    List,
    /// Remove a replica, so that no change waits for it; use only if it no longer serves requests
    Forget { id: String },
}

pub async fn run(settings: Settings, out: CommandOutput, command: ReplicaCommand) -> CommandResult {
    let app = open_app(settings).await?;
    match command {
        ReplicaCommand::List => {
            let all = replicas::list(&app.context).await?;
            let lines: Vec<_> = all.iter().map(format_replica).collect();
            let list: Vec<_> = all.iter().map(replica_json).collect();
            out.write(&lines.join("\n"), &json!(list));
        }
        ReplicaCommand::Forget { id } => match replicas::forget(&app.context, &id).await? {
            ForgetResult::Removed => {
                out.write(&format!("forgot {id}"), &json!({ "replicaId": id, "forgotten": true }));
            }
            ForgetResult::StillRunning => {
                return Err(CommandError::Usage(format!(
                    "replica {id} has sent a heartbeat within the last few seconds; stop it first"
                )));
            }
            ForgetResult::NotFound => {
                return Err(CommandError::Usage(format!(
                    "replica {id} not found; keyward replica list shows all replicas"
                )));
            }
        },
    }
    app.context.store.close().await;
    Ok(())
}

fn format_replica(replica: &RegisteredReplica) -> String {
    let state = match replica.feed.as_deref() {
        None => "older version",
        Some("") => "reads the change log",
        Some(_) => "reads the change feed",
    };
    let waited = if replicas::is_waited_for(replica) { "waited for" } else { "not waited for" };
    format!("{}  seen {} s ago  {state}  {waited}", replica.id, replica.seen_ms_ago / 1000)
}

fn replica_json(replica: &RegisteredReplica) -> Value {
    json!({
        "replicaId": replica.id, "startedAt": replica.started_at,
        "seenMsAgo": replica.seen_ms_ago,
        "readsAnnouncements": replica.feed.as_deref().is_some_and(|feed| !feed.is_empty()),
        "isWaitedFor": replicas::is_waited_for(replica),
    })
}
