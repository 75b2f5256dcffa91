//! `keyward workspace`: workspaces, which own everything else.

use clap::Subcommand;
use domain::root_keys;
use foundation::config::Settings;
use serde_json::json;

use super::CommandResult;
use super::commands::open_app;
use super::output::CommandOutput;

#[derive(Subcommand)]
pub enum WorkspaceCommand {
    /// Create a workspace
    Create {
        #[arg(long)]
        name: String,
    },
}

pub async fn run(
    settings: Settings,
    out: CommandOutput,
    command: WorkspaceCommand,
) -> CommandResult {
    let WorkspaceCommand::Create { name } = command;
    let app = open_app(settings).await?;
    let id = root_keys::create_workspace(&app.context, &name).await?;
    out.write(id.as_str(), &json!({ "workspaceId": id }));
    app.context.store.close().await;
    Ok(())
}
