//! `keyward workspace`: workspaces, which own everything else.

use clap::Subcommand;
use domain::root_keys;
use domain::workspaces::{self, WORKSPACES_MAX, Workspace};
use foundation::config::Settings;
use serde_json::{Value, json};

use super::CommandResult;
use super::commands::open_app;
use super::operator::Operator;
use super::output::{CommandOutput, Table, format_time, print_if_full};

#[derive(Subcommand)]
pub enum WorkspaceCommand {
    /// Create a workspace
    Create {
        /// Set the name of the workspace
        #[arg(long)]
        name: String,
    },
    /// Change the name of a workspace
    Rename {
        /// Set the name of the workspace
        #[arg(long)]
        name: String,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// List the workspaces of the server
    List,
}

pub async fn run(
    settings: Settings,
    out: CommandOutput,
    command: WorkspaceCommand,
) -> CommandResult {
    match command {
        WorkspaceCommand::Create { name } => {
            let app = open_app(settings).await?;
            let id = root_keys::create_workspace(&app.context, &name).await?;
            out.write(id.as_str(), &json!({ "workspaceId": id }));
            app.context.store.close().await;
        }
        WorkspaceCommand::Rename { name, workspace } => {
            let operator = Operator::open(settings, &workspace).await?;
            workspaces::rename(&operator.app.context, &operator.caller, &name).await?;
            let text = format!("renamed {workspace} to {name}");
            out.write(&text, &json!({ "workspaceId": workspace, "name": name }));
            operator.close().await;
        }
        WorkspaceCommand::List => {
            let app = open_app(settings).await?;
            root_keys::bootstrap_workspace(&app.context).await?;
            let all = workspaces::list(&app.context).await?;
            let rows = all.iter().map(workspace_row).collect();
            let header = &["ID", "NAME", "STATUS", "CREATED"];
            let table = Table { items: "workspaces", header, rows };
            out.write_table(table, all.iter().map(workspace_json).collect());
            print_if_full("workspaces", all.len(), WORKSPACES_MAX);
            app.context.store.close().await;
        }
    }
    Ok(())
}

fn workspace_row(workspace: &Workspace) -> Vec<String> {
    let status = if workspace.is_enabled { "active" } else { "disabled" };
    vec![
        workspace.id.to_string(),
        workspace.name.clone(),
        status.to_owned(),
        format_time(workspace.created_at),
    ]
}

fn workspace_json(workspace: &Workspace) -> Value {
    json!({
        "workspaceId": workspace.id, "name": workspace.name, "enabled": workspace.is_enabled,
        "createdAt": workspace.created_at,
    })
}
