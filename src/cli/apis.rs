//! `keyward api`: APIs, and their settings that the HTTP interface leaves to operators.

use api::v2::apis::create_api::CreateApi;
use api::v2::apis::delete_api::DeleteApi;
use clap::{Args, Subcommand};
use domain::apis::{self, is_valid_prefix};
use domain::bounds::KEY_PREFIX_MAX;
use foundation::config::Settings;
use foundation::id::{ApiId, WorkspaceId};
use foundation::model::{self, ApiSettings, Networks};
use serde_json::{Value, json};

use super::commands::open_app;
use super::operator::Operator;
use super::output::{CommandOutput, NO_VALUE, Table, format_time};
use super::{CommandError, CommandResult, Switch};

#[derive(Subcommand)]
pub enum ApiCommand {
    /// Create an API, a set of keys that a backend accepts
    Create {
        /// Set the name of the API
        #[arg(long)]
        name: String,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// List the APIs of a workspace
    List {
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// Show an API and its settings
    Get {
        /// ID of the API
        id: String,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// Update API settings; omitted options keep their values
    Update(Box<ApiUpdate>),
    /// Delete an API; its keys stop verifying at once
    Delete {
        /// ID of the API
        id: String,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
}

#[derive(Args)]
pub struct ApiUpdate {
    /// ID of the API
    id: String,
    #[arg(long, default_value = "ws_default")]
    workspace: String,
    /// Set the default prefix of its keys; empty: no prefix
    #[arg(long, value_name = "PREFIX")]
    default_prefix: Option<String>,
    /// Set the default number of random bytes in its keys, 16 to 255
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u8).range(16..))]
    default_bytes: Option<u8>,
    /// Allow storing encrypted copies of its keys
    #[arg(long, value_name = "on|off")]
    recoverable_keys: Option<Switch>,
    /// Protect the API from deletion
    #[arg(long, value_name = "on|off")]
    delete_protection: Option<Switch>,
    /// Set the networks from which its keys may be used, such as `10.0.0.0/8,2001:db8::1`; empty: any
    #[arg(long, value_name = "NETWORKS")]
    allow: Option<String>,
}

pub async fn run(settings: Settings, out: CommandOutput, command: ApiCommand) -> CommandResult {
    match command {
        ApiCommand::Create { name, workspace } => {
            let operator = Operator::open(settings, &workspace).await?;
            let created = operator.call::<CreateApi>(&json!({ "name": name })).await?;
            out.write(created["apiId"].as_str().unwrap_or_default(), &created);
            operator.close().await;
        }
        ApiCommand::List { workspace } => {
            let Operator { app, caller } = Operator::open(settings, &workspace).await?;
            let all = apis::list(&app.context, caller.workspace_id()).await?;
            let rows = all.iter().map(api_row).collect();
            let table = Table { items: "APIs", header: API_HEADER, rows };
            out.write_table(table, all.iter().map(api_json).collect());
            app.context.store.close().await;
        }
        ApiCommand::Get { id, workspace } => {
            let Operator { app, caller } = Operator::open(settings, &workspace).await?;
            let api = apis::get(&app.context, &caller, &ApiId::from(id)).await?;
            out.write_fields(api_fields(&api), &api_json(&api));
            app.context.store.close().await;
        }
        ApiCommand::Update(update) => {
            let (id, workspace) = (update.id.clone(), update.workspace.clone());
            let change = parse_change(*update)?;
            let app = open_app(settings).await?;
            let (id, workspace) = (ApiId::from(id), WorkspaceId::from(workspace));
            let api = apis::update_as_operator(&app.context, &workspace, &id, change).await?;
            out.write_fields(api_fields(&api), &api_json(&api));
            app.context.store.close().await;
        }
        ApiCommand::Delete { id, workspace } => {
            let operator = Operator::open(settings, &workspace).await?;
            operator.call::<DeleteApi>(&json!({ "apiId": id })).await?;
            out.write(&format!("deleted {id}"), &json!({ "apiId": id, "deleted": true }));
            operator.close().await;
        }
    }
    Ok(())
}

/// Validates the options and returns the change to apply.
fn parse_change(update: ApiUpdate) -> Result<impl FnOnce(&mut ApiSettings), CommandError> {
    let prefix = update.default_prefix;
    if !prefix.as_deref().is_none_or(is_valid_prefix) {
        let fault =
            format!("--default-prefix must be at most {KEY_PREFIX_MAX} letters, digits and _");
        return Err(CommandError::Usage(fault));
    }
    let networks = update.allow.as_deref().map(Networks::parse).transpose();
    let networks = networks.map_err(|fault| CommandError::Usage(format!("--allow: {fault}")))?;
    if networks.as_ref().is_some_and(|networks| networks.len() > Networks::MAX) {
        return Err(CommandError::Usage(format!(
            "--allow accepts at most {} networks",
            Networks::MAX
        )));
    }
    Ok(move |settings: &mut ApiSettings| {
        if let Some(prefix) = prefix {
            settings.default_prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
        }
        settings.default_byte_length = update.default_bytes.or(settings.default_byte_length);
        if let Some(switch) = update.recoverable_keys {
            settings.allows_recoverable_keys = switch.is_on();
        }
        if let Some(switch) = update.delete_protection {
            settings.is_delete_protected = switch.is_on();
        }
        if let Some(networks) = networks {
            settings.allowed_networks = Networks::new(networks);
        }
    })
}

const API_HEADER: &[&str] = &["ID", "NAME", "CREATED", "SETTINGS"];

fn api_row(api: &model::Api) -> Vec<String> {
    let settings = &api.settings;
    let set = [
        settings.default_prefix.as_ref().map(|prefix| format!("prefix {prefix}")),
        settings.default_byte_length.map(|length| format!("{length} bytes")),
        settings.allows_recoverable_keys.then(|| "recoverable keys".to_owned()),
        settings.is_delete_protected.then(|| "delete protection".to_owned()),
        settings.allowed_networks.as_ref().map(|n| format!("from {}", n.to_strings().join(","))),
    ];
    let set: Vec<_> = set.into_iter().flatten().collect();
    let set = if set.is_empty() { NO_VALUE.to_owned() } else { set.join(", ") };
    vec![api.id.to_string(), api.name.clone(), format_time(api.created_at), set]
}

fn api_fields(api: &model::Api) -> Vec<(&'static str, String)> {
    API_HEADER.iter().copied().zip(api_row(api)).collect()
}

fn api_json(api: &model::Api) -> Value {
    let settings = &api.settings;
    json!({
        "apiId": api.id, "name": api.name, "createdAt": api.created_at,
        "defaultPrefix": settings.default_prefix, "defaultBytes": settings.default_byte_length,
        "recoverableKeys": settings.allows_recoverable_keys,
        "deleteProtection": settings.is_delete_protected,
        "allow": settings.allowed_networks.as_ref().map(Networks::to_strings),
    })
}
