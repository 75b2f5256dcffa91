//! `keyward namespace`: namespaces of the standalone rate limiter.

use clap::Subcommand;
use domain::ratelimits::namespaces;
use foundation::config::Settings;
use foundation::id::WorkspaceId;
use foundation::model::{self, OutagePolicy, escape_hidden};
use serde_json::{Value, json};

use super::CommandResult;
use super::commands::open_app;
use super::output::CommandOutput;

#[derive(Subcommand)]
pub enum NamespaceCommand {
    /// List the namespaces of a workspace
    List {
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// Set the outage policy of a namespace
    Set {
        /// Name or ID of the namespace
        name: String,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
        /// Set the policy; local: each replica enforces its share; open: all checks pass; closed: no check passes
        #[arg(long, value_name = "local|open|closed")]
        on_outage: OutagePolicy,
    },
    /// Delete a namespace permanently; its name stays reserved
    Delete {
        /// Name or ID of the namespace
        name: String,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
}

pub async fn run(
    settings: Settings,
    out: CommandOutput,
    command: NamespaceCommand,
) -> CommandResult {
    let app = open_app(settings).await?;
    match command {
        NamespaceCommand::List { workspace } => {
            let all = namespaces::list(&app.context, &WorkspaceId::from(workspace)).await?;
            let lines: Vec<_> = all.iter().map(format_namespace).collect();
            let list: Vec<_> = all.iter().map(namespace_json).collect();
            out.write(&lines.join("\n"), &json!(list));
        }
        NamespaceCommand::Set { name, workspace, on_outage } => {
            let workspace = WorkspaceId::from(workspace);
            let set = namespaces::update_outage_policy_as_operator(
                &app.context,
                &workspace,
                &name,
                on_outage,
            )
            .await?;
            out.write(&format_namespace(&set), &namespace_json(&set));
        }
        NamespaceCommand::Delete { name, workspace } => {
            let workspace = WorkspaceId::from(workspace);
            let deleted = namespaces::delete_as_operator(&app.context, &workspace, &name).await?;
            out.write(&format!("deleted {}", deleted.id), &namespace_json(&deleted));
        }
    }
    app.context.store.close().await;
    Ok(())
}

fn format_namespace(namespace: &model::Namespace) -> String {
    let model::Namespace { id, name, outage_policy: on_outage, deleted_at, .. } = namespace;
    let state = if deleted_at.is_some() { "deleted" } else { "active" };
    let name = escape_hidden(name);
    format!("{id}  {}  {state}  {name}", on_outage.as_str())
}

fn namespace_json(namespace: &model::Namespace) -> Value {
    json!({
        "namespaceId": namespace.id, "name": namespace.name,
        "onOutage": namespace.outage_policy.as_str(), "createdAt": namespace.created_at,
        "deletedAt": namespace.deleted_at,
    })
}
