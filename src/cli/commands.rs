//! The one-shot commands. They work on the server's database, also while the server runs: it sees changes within a
//! second.

use std::io::Write as _;

use domain::app::App;
use domain::ratelimits::namespaces;
use domain::{audit, credits, migrations, root_keys, users, vault};
use foundation::clock::Clock;
use foundation::config::{Deployment, Settings};
use foundation::id::{KeyId, WorkspaceId};
use foundation::model::{self, WithheldCredits, escape_hidden, is_hidden};
use foundation::vault::file;
use serde_json::{Value, json};
use store::{AuditFilter, StoredEntry};

use super::serve::setup_url;
use super::startup::open_store;
use super::{
    ApiVersion, AuditCommand, CommandError, CommandResult, CreditsCommand, MigrationCommand,
    NamespaceCommand, RootKeyCommand,
};

/// Prints the result of a command as text or JSON.
#[derive(Debug, Clone, Copy)]
pub struct CommandOutput {
    pub json: bool,
}

impl CommandOutput {
    pub fn write(self, text: &str, value: &Value) {
        if self.json { print_line(&escape_json(value)) } else { print_line(text) }
    }
}

/// Returns JSON in which hidden characters, which change how text is displayed, are escaped too. They occur only in
/// strings.
fn escape_json(value: &Value) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        match is_hidden(c) {
            true => text.extend(c.encode_utf16(&mut [0; 2]).iter().map(|u| format!("\\u{u:04x}"))),
            false => text.push(c),
        }
    }
    text
}

/// Prints a line to standard output. A closed pipe (as with `head`) is not an error.
fn print_line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

pub async fn open_app(settings: Settings) -> Result<App, CommandError> {
    let store = open_store(&settings).await?;
    // A command has no background tasks, so it publishes its changes itself.
    let (app, _) = App::new(settings, Clock::System)?;
    app.context.store.set(store);
    Ok(app)
}

pub async fn migrate(settings: Settings, out: CommandOutput) -> CommandResult {
    open_store(&settings).await?.close().await;
    out.write("the database schema is up to date", &json!({ "migrated": true }));
    Ok(())
}

pub async fn root_key(
    settings: Settings,
    out: CommandOutput,
    command: RootKeyCommand,
) -> CommandResult {
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

pub async fn credits(
    settings: Settings,
    out: CommandOutput,
    command: CreditsCommand,
) -> CommandResult {
    let app = open_app(settings).await?;
    match command {
        CreditsCommand::List => {
            let withheld = credits::list_withheld(&app.context, None).await?;
            let line = |entry: &WithheldCredits| format!("{}  {}", entry.key_id, entry.units);
            let lines: Vec<_> = withheld.iter().map(line).collect();
            let entry = |entry: &WithheldCredits| {
                json!({
                    "keyId": entry.key_id, "withheld": entry.units, "since": entry.since,
                })
            };
            let list: Vec<_> = withheld.iter().map(entry).collect();
            out.write(&lines.join("\n"), &json!(list));
        }
        CreditsCommand::Release { key, all: _ } => {
            let key = key.map(KeyId::from);
            let released = credits::release_withheld(&app.ledger, key.as_ref()).await?;
            out.write(&format!("released {released} credits"), &json!({ "released": released }));
        }
    }
    app.context.store.close().await;
    Ok(())
}

pub async fn create_workspace(settings: Settings, out: CommandOutput, name: &str) -> CommandResult {
    let app = open_app(settings).await?;
    let id = root_keys::create_workspace(&app.context, name).await?;
    out.write(id.as_str(), &json!({ "workspaceId": id }));
    app.context.store.close().await;
    Ok(())
}

pub async fn setup_link(
    settings: Settings,
    out: CommandOutput,
    workspace: String,
) -> CommandResult {
    let app = open_app(settings).await?;
    root_keys::bootstrap_workspace(&app.context).await?;
    let token =
        users::create_operator_invitation(&app.context, &WorkspaceId::from(workspace)).await?;
    let url = setup_url(&app.context.settings, &token);
    out.write(&url, &json!({ "url": url }));
    app.context.store.close().await;
    Ok(())
}

pub async fn migration(
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
            let all = migrations::list(&app.context, &WorkspaceId::from(workspace)).await?;
            let line = |migration: &model::Migration| {
                let name = escape_hidden(migration.name.as_deref().unwrap_or("-"));
                format!("{}  {}  {name}", migration.id, migration.algorithm.as_str())
            };
            let lines: Vec<_> = all.iter().map(line).collect();
            let list: Vec<_> = all.iter().map(migration_json).collect();
            out.write(&lines.join("\n"), &json!(list));
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

pub async fn audit(settings: Settings, out: CommandOutput, command: AuditCommand) -> CommandResult {
    let AuditCommand::List { workspace, event, actor, about, before, limit } = command;
    let app = open_app(settings).await?;
    let filter = AuditFilter {
        before_id: before,
        event,
        actor,
        target: about,
        rows_max: limit,
        ..AuditFilter::default()
    };
    let all = audit::list(&app.context, &WorkspaceId::from(workspace), &filter).await?;
    let list: Vec<_> = all.iter().map(audit_entry_json).collect();
    let lines: Vec<_> = all.iter().map(format_audit_entry).collect();
    out.write(&lines.join("\n"), &json!(list));
    app.context.store.close().await;
    Ok(())
}

fn format_audit_entry(entry: &StoredEntry) -> String {
    let actor = escape_hidden(entry.actor_name.as_deref().unwrap_or(&entry.actor_id));
    let targets: Vec<Value> = serde_json::from_str(&entry.targets).unwrap_or_default();
    let ids = targets.iter().filter_map(|target| target["id"].as_str());
    let ids = escape_hidden(&ids.collect::<Vec<_>>().join(" "));
    let address = entry.remote_address.as_deref().unwrap_or("-");
    let at = jiff::Timestamp::from_millisecond(entry.at.0).unwrap_or_default();
    format!("{}  {at}  {}  {actor}  {address}  {ids}", entry.id, entry.event)
}

fn audit_entry_json(entry: &StoredEntry) -> Value {
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let targets = read(&entry.targets);
    json!({
        "id": entry.id, "at": entry.at, "event": entry.event,
        "actor": { "type": entry.actor_type, "id": entry.actor_id, "name": entry.actor_name },
        "remoteAddress": entry.remote_address, "userAgent": entry.user_agent, "targets": targets,
        "correlationId": entry.correlation_id,
        "before": entry.before.as_deref().map(read), "after": entry.after.as_deref().map(read),
        "undoes": entry.undoes, "undoneBy": entry.undone_by,
    })
}

/// Re-encrypts every data key and signing key with the current master key. For an embedded server with a key file, it first creates a
/// new master key.
pub async fn rotate(settings: Settings, out: CommandOutput) -> CommandResult {
    let file_dir = match (&settings.deployment, &settings.master_keys) {
        (Deployment::Embedded { data_dir }, None) => Some(data_dir.clone()),
        _ => None,
    };
    let configured = settings.master_keys.clone();
    let app = open_app(settings).await?;
    let masters = match &file_dir {
        Some(data_dir) => file::begin_rotation(data_dir).map_err(CommandError::Runtime)?,
        None => configured.ok_or_else(|| CommandError::Usage("set KEYWARD_MASTER_KEY to the new master key and KEYWARD_MASTER_KEY_PREVIOUS to the old one".into()))?,
    };
    let resealed = vault::reseal_all(&app.context, &masters).await?;
    if let Some(data_dir) = &file_dir {
        file::end_rotation(data_dir).map_err(CommandError::Runtime)?;
    }
    let master = &masters.current_key.id;
    let vault::Resealed { data_keys, signing_keys } = resealed;
    let text = format!(
        "re-encrypted {data_keys} data keys and {signing_keys} signing keys with master key {master}"
    );
    let value = json!({ "rotated": data_keys, "signingKeys": signing_keys, "masterKeyId": master });
    out.write(&text, &value);
    app.context.store.close().await;
    Ok(())
}

pub async fn namespace(
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

pub fn openapi(settings: &Settings, version: ApiVersion) -> CommandResult {
    let document = match version {
        ApiVersion::V1 => api::v1_document(&settings.docs_url),
        ApiVersion::V2 => api::v2_document(&settings.docs_url),
    };
    let text = serde_json::to_string_pretty(&document)
        .map_err(|e| CommandError::Runtime(format!("failed to render the document: {e}")))?;
    print_line(&text);
    Ok(())
}
