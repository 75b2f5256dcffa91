//! `keyward root-key`: root keys, with which programs call the API.

use clap::Subcommand;
use domain::root_keys::{self, NewRootKey};
use foundation::clock::Timestamp;
use foundation::config::Settings;
use foundation::error::Error;
use foundation::id::{KeyId, WorkspaceId};
use foundation::model;
use serde_json::{Value, json};

use super::commands::open_app;
use super::input::parse_moment;
use super::operator::require_workspace;
use super::output::{CommandOutput, Table, format_start, format_time, or_dash};
use super::{CommandError, CommandResult};

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
        /// Set when the root key expires: a time such as 2030-01-31T12:00:00Z, or a duration from now such as 90d
        /// [default: never]
        #[arg(long, value_name = "TIME", value_parser = parse_moment)]
        expires: Option<Timestamp>,
    },
    /// List the root keys of a workspace
    List {
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// Revoke a root key
    Revoke { id: String },
}

pub async fn run(settings: Settings, out: CommandOutput, command: RootKeyCommand) -> CommandResult {
    let app = open_app(settings).await?;
    root_keys::bootstrap_workspace(&app.context).await?;
    match command {
        RootKeyCommand::Create { permissions, all, workspace, name, expires } => {
            let permissions = if all { root_keys::all_permissions() } else { permissions };
            let workspace = WorkspaceId::from(workspace);
            let new = NewRootKey { name, permissions, expires_at: expires };
            let (id, key) = root_keys::create_as_operator(&app.context, &workspace, new).await?;
            let text = format!("{id}\n{}\n\nThe root key is shown only once.", key.expose());
            out.write(&text, &json!({ "keyId": id, "key": key }));
        }
        RootKeyCommand::List { workspace } => {
            let workspace = WorkspaceId::from(workspace);
            require_workspace(&app, &workspace).await?;
            let keys = root_keys::list(&app.context, &workspace).await?;
            let rows = keys.iter().map(|key| root_key_row(key, app.context.clock.now())).collect();
            let table = Table { items: "root keys", header: ROOT_KEY_HEADER, rows };
            out.write_table(table, keys.iter().map(root_key_json).collect());
        }
        RootKeyCommand::Revoke { id } => {
            let id = KeyId::from(id);
            root_keys::revoke_as_operator(&app.context, &id).await.map_err(|e| match e {
                Error::NotFound(_) => CommandError::Usage(format!(
                    "root key {id} does not exist, or is revoked already; keyward root-key list shows all root keys"
                )),
                other => other.into(),
            })?;
            out.write(&format!("revoked {id}"), &json!({ "keyId": id, "revoked": true }));
        }
    }
    app.context.store.close().await;
    Ok(())
}

const ROOT_KEY_HEADER: &[&str] =
    &["ID", "START", "STATUS", "NAME", "CREATED", "EXPIRES", "PERMISSIONS"];

fn root_key_row(key: &model::RootKey, now: Timestamp) -> Vec<String> {
    let status = match (key.revoked_at, key.expires_at) {
        (Some(_), _) => "revoked",
        (None, Some(expires)) if expires < now => "expired",
        (None, _) => "active",
    };
    let permissions = match key.permissions == root_keys::all_permissions() {
        true => "all".to_owned(),
        false => key.permissions.join(" "),
    };
    vec![
        key.id.to_string(),
        format_start(&key.start),
        status.to_owned(),
        or_dash(key.name.as_deref()),
        format_time(key.created_at),
        or_dash(key.expires_at.map(format_time)),
        permissions,
    ]
}

fn root_key_json(key: &model::RootKey) -> Value {
    json!({
        "keyId": key.id, "start": key.start, "name": key.name, "permissions": key.permissions,
        "createdAt": key.created_at, "expires": key.expires_at, "revokedAt": key.revoked_at,
    })
}
