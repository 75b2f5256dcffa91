//! `keyward replica`: lists registered replicas and removes stopped ones.

use clap::Subcommand;
use domain::replicas::{self, ForgetResult, REPLICAS_MAX};
use foundation::config::Settings;
use serde_json::{Value, json};
use store::RegisteredReplica;

use super::commands::open_app;
use super::output::{CommandOutput, Table, print_if_full};
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
            let rows = all.iter().map(replica_row).collect();
            let header = &["ID", "LAST SEEN", "READS CHANGES FROM", "WAITED FOR"];
            let table = Table { items: "replicas", header, rows };
            out.write_table(table, all.iter().map(replica_json).collect());
            print_if_full("replicas", all.len(), REPLICAS_MAX);
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

fn replica_row(replica: &RegisteredReplica) -> Vec<String> {
    let source = match replica.feed.as_deref() {
        None => "(older version)",
        Some("") => "change log",
        Some(_) => "change feed",
    };
    let waited_for = if replicas::is_waited_for(replica) { "yes" } else { "no" };
    vec![
        replica.id.clone(),
        format!("{} s ago", replica.seen_ms_ago / 1000),
        source.to_owned(),
        waited_for.to_owned(),
    ]
}

fn replica_json(replica: &RegisteredReplica) -> Value {
    json!({
        "replicaId": replica.id, "startedAt": replica.started_at,
        "seenMsAgo": replica.seen_ms_ago,
        "readsAnnouncements": replica.feed.as_deref().is_some_and(|feed| !feed.is_empty()),
        "isWaitedFor": replicas::is_waited_for(replica),
    })
}
