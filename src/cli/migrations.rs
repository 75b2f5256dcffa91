//! `keyward migration`: sets of keys that were issued elsewhere.

use clap::Subcommand;
use domain::{migrations, root_keys};
use foundation::config::Settings;
use foundation::id::WorkspaceId;
use foundation::model::{self, Algorithm};
use serde_json::{Value, json};

use super::CommandResult;
use super::commands::open_app;
use super::operator::require_workspace;
use super::output::{CommandOutput, Table, format_time, or_dash};

#[derive(Subcommand)]
pub enum MigrationCommand {
    /// Create a migration
    Create {
        /// Set the hash algorithm; sha256: of the full key, as for native keys; prefixed-api-key: of the last part of
        /// `prefix_short_long`
        #[arg(long, value_name = "sha256|prefixed-api-key")]
        algorithm: Algorithm,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
        /// Set the name of the migration
        #[arg(long)]
        name: Option<String>,
    },
    /// List the migrations of a workspace
    List {
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
}

pub async fn run(
    settings: Settings,
    out: CommandOutput,
    command: MigrationCommand,
) -> CommandResult {
    let app = open_app(settings).await?;
    root_keys::bootstrap_workspace(&app.context).await?;
    match command {
        MigrationCommand::Create { algorithm, workspace, name } => {
            let workspace = WorkspaceId::from(workspace);
            let migration =
                migrations::create_as_operator(&app.context, &workspace, algorithm, name).await?;
            out.write(migration.id.as_str(), &migration_json(&migration));
        }
        MigrationCommand::List { workspace } => {
            let workspace = WorkspaceId::from(workspace);
            require_workspace(&app, &workspace).await?;
            let all = migrations::list(&app.context, &workspace).await?;
            let row = |migration: &model::Migration| {
                vec![
                    migration.id.to_string(),
                    migration.algorithm.as_str().to_owned(),
                    or_dash(migration.name.as_deref()),
                    format_time(migration.created_at),
                ]
            };
            let rows = all.iter().map(row).collect();
            let header = &["ID", "ALGORITHM", "NAME", "CREATED"];
            let table = Table { items: "migrations", header, rows };
            out.write_table(table, all.iter().map(migration_json).collect());
        }
    }
    app.context.store.close().await;
    Ok(())
}

fn migration_json(migration: &model::Migration) -> Value {
    json!({
        "migrationId": migration.id, "algorithm": migration.algorithm.as_str(),
        "name": migration.name, "createdAt": migration.created_at,
    })
}
