//! `keyward namespace`: namespaces of the standalone rate limiter.

use clap::Subcommand;
use domain::ratelimits::namespaces;
use foundation::config::Settings;
use foundation::id::WorkspaceId;
use foundation::model::{self, OutagePolicy};
use serde_json::{Value, json};

use super::CommandResult;
use super::commands::open_app;
use super::operator::require_workspace;
use super::output::{CommandOutput, Table, format_time};

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
        /// Set the policy; local: each replica enforces its share; open: all checks are admitted; closed: none is admitted
        #[arg(long, value_name = "local|open|closed")]
        on_outage: OutagePolicy,
    },
    /// Delete a namespace; its name stays reserved
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
            let workspace = WorkspaceId::from(workspace);
            require_workspace(&app, &workspace).await?;
            let all = namespaces::list(&app.context, &workspace).await?;
            let rows = all.iter().map(namespace_row).collect();
            let table = Table { items: "namespaces", header: NAMESPACE_HEADER, rows };
            out.write_table(table, all.iter().map(namespace_json).collect());
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
            let fields = NAMESPACE_HEADER.iter().copied().zip(namespace_row(&set)).collect();
            out.write_fields(fields, &namespace_json(&set));
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

const NAMESPACE_HEADER: &[&str] = &["ID", "NAME", "ON OUTAGE", "STATUS", "CREATED"];

fn namespace_row(namespace: &model::Namespace) -> Vec<String> {
    let status = if namespace.deleted_at.is_some() { "deleted" } else { "active" };
    vec![
        namespace.id.to_string(),
        namespace.name.clone(),
        namespace.outage_policy.as_str().to_owned(),
        status.to_owned(),
        format_time(namespace.created_at),
    ]
}

fn namespace_json(namespace: &model::Namespace) -> Value {
    json!({
        "namespaceId": namespace.id, "name": namespace.name,
        "onOutage": namespace.outage_policy.as_str(), "createdAt": namespace.created_at,
        "deletedAt": namespace.deleted_at,
    })
}
