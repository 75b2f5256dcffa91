//! `keyward replica`: lists registered replicas and removes stopped ones.

use foundation::config::Settings;
use serde_json::{Value, json};
use store::RegisteredReplica;

use super::commands::{CommandOutput, app};
use super::{CommandResult, Failure, Replica};
use crate::domain::replicas::{self, Forgotten};

pub async fn run(settings: Settings, out: CommandOutput, command: Replica) -> CommandResult {
    let app = app(settings).await?;
    match command {
        Replica::List => {
            let all = replicas::list(&app).await?;
            let lines: Vec<_> = all.iter().map(line).collect();
            let list: Vec<_> = all.iter().map(entry).collect();
            out.tell(&lines.join("\n"), &json!(list));
        }
        Replica::Forget { id } => match replicas::forget(&app, &id).await? {
            Forgotten::Done => {
                out.tell(&format!("forgot {id}"), &json!({ "replicaId": id, "forgotten": true }));
            }
            Forgotten::Present => {
                return Err(Failure::Use(format!(
                    "replica {id} has sent a heartbeat within the last few seconds; stop it first"
                )));
            }
            Forgotten::Unknown => {
                return Err(Failure::Use(format!(
                    "replica {id} not found; keyward replica list shows all replicas"
                )));
            }
        },
    }
    app.store.close().await;
    Ok(())
}

fn line(replica: &RegisteredReplica) -> String {
    let state = match replica.feed.as_deref() {
        None => "older version",
        Some("") => "reads the change log",
        Some(_) => "reads the change feed",
    };
    let waited = if replicas::is_waited_for(replica) { "waited for" } else { "not waited for" };
    format!("{}  seen {} s ago  {state}  {waited}", replica.id, replica.seen_ms_ago / 1000)
}

fn entry(replica: &RegisteredReplica) -> Value {
    json!({
        "replicaId": replica.id, "startedAt": replica.started_at,
        "seenMsAgo": replica.seen_ms_ago,
        "readsAnnouncements": replica.feed.as_deref().is_some_and(|feed| !feed.is_empty()),
        "isWaitedFor": replicas::is_waited_for(replica),
    })
}
