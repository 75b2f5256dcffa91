//! `keyward root-key`: root keys, with which programs call the API.

use clap::Subcommand;
use domain::root_keys;
use foundation::config::Settings;
use foundation::id::{KeyId, WorkspaceId};
use foundation::model::{self, escape_hidden};
use serde_json::{Value, json};

use super::CommandResult;
use super::commands::open_app;
use super::output::CommandOutput;

#[derive(Subcommand)]
pub enum RootKeyCommand {
    /// Create a root key and print it once
    Create {
        /// Grant a permission, as `<type>.<id or *>.<action>`; repeatable
        #[arg(long = "permission", required_unless_present = "all")]
        permissions: Vec<String>,
        /// Grant all permissions
        #[arg(long, conflicts_with = "permissions")]
        all: bool,
        /// Set the workspace of the root key
        #[arg(long, default_value = "ws_default")]
        workspace: String,
        /// Set the name of the root key
        #[arg(long)]
        name: Option<String>,
    },
    /// List the root keys of a workspace
    List {
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// Revoke a root key permanently
    Revoke { id: String },
}

pub async fn run(settings: Settings, out: CommandOutput, command: RootKeyCommand) -> CommandResult {
    let app = open_app(settings).await?;
    root_keys::bootstrap_workspace(&app.context).await?;
    match command {
        RootKeyCommand::Create { permissions, all, workspace, name } => {
            let permissions = if all { root_keys::all_permissions() } else { permissions };
            let workspace = WorkspaceId::from(workspace);
            let (id, key) =
                root_keys::create_as_operator(&app.context, &workspace, name, permissions).await?;
            let text = format!("{id}\n{}\n\nThe root key is shown only once.", key.expose());
            out.write(&text, &json!({ "keyId": id, "key": key }));
        }
        RootKeyCommand::List { workspace } => {
            let keys = root_keys::list(&app.context, &WorkspaceId::from(workspace)).await?;
            let lines: Vec<_> = keys.iter().map(format_root_key).collect();
            let list: Vec<_> = keys.iter().map(root_key_json).collect();
            out.write(&lines.join("\n"), &json!(list));
        }
        RootKeyCommand::Revoke { id } => {
            let id = KeyId::from(id);
            root_keys::revoke_as_operator(&app.context, &id).await?;
            out.write(&format!("revoked {id}"), &json!({ "keyId": id, "revoked": true }));
        }
    }
    app.context.store.close().await;
    Ok(())
}

fn format_root_key(key: &model::RootKey) -> String {
    let state = if key.revoked_at.is_some() { "revoked" } else { "active" };
    let name = escape_hidden(key.name.as_deref().unwrap_or("-"));
    format!("{}  {}…  {state}  {name}  {}", key.id, key.start, key.permissions.join(" "))
}

fn root_key_json(key: &model::RootKey) -> Value {
    json!({
        "keyId": key.id, "start": key.start, "name": key.name, "permissions": key.permissions,
        "createdAt": key.created_at, "expires": key.expires_at, "revokedAt": key.revoked_at,
    })
}
