//! The one-shot commands. They work on the server's database, also while the server runs: it sees changes within a
//! second.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use foundation::clock::Clock;
use foundation::config::{Deployment, Settings};
use foundation::id::{KeyId, WorkspaceId};
use foundation::model::{self, WithheldCredits, is_hidden, shown};
use foundation::vault::file;
use serde_json::{Value, json};
use store::{AuditFilter, StoredEntry};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::serve::setup_url;
use super::startup::open;
use super::{ApiVersion, Audit, CommandResult, Credits, Failure, Migration, Namespace, RootKey};
use crate::app::App;
use crate::domain::ratelimits::namespaces;
use crate::domain::{audit, credits, migrations, root_keys, users, vault};
use crate::rpc;

/// Limits how long a server may take to answer `/readyz`.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(3);

/// Prints the result of a command as text or JSON.
#[derive(Debug, Clone, Copy)]
pub struct CommandOutput {
    pub json: bool,
}

impl CommandOutput {
    pub fn tell(self, text: &str, value: &Value) {
        if self.json { print(&escaped(value)) } else { print(text) }
    }
}

/// Returns JSON in which hidden characters, which change how text is displayed, are escaped too. They occur only in
/// strings.
fn escaped(value: &Value) -> String {
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
fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

pub async fn app(settings: Settings) -> Result<App, Failure> {
    let store = open(&settings).await?;
    // A command has no background tasks, so it publishes its changes itself.
    let (app, _) = App::new(settings, Clock::System)?;
    app.store.set(store);
    Ok(app)
}

pub async fn migrate(settings: Settings, out: CommandOutput) -> CommandResult {
    open(&settings).await?.close().await;
    out.tell("the database schema is up to date", &json!({ "migrated": true }));
    Ok(())
}

pub async fn root_key(settings: Settings, out: CommandOutput, command: RootKey) -> CommandResult {
    let app = app(settings).await?;
    root_keys::bootstrap_workspace(&app).await?;
    match command {
        RootKey::Create { permissions, all, workspace, name } => {
            let permissions = if all { root_keys::every_permission() } else { permissions };
            let workspace = WorkspaceId::from(workspace);
            let (id, key) = root_keys::create(&app, &workspace, name, permissions).await?;
            let text = format!("{id}\n{}\n\nThe root key is shown only once.", key.expose());
            out.tell(&text, &json!({ "keyId": id, "key": key }));
        }
        RootKey::List { workspace } => {
            let keys = root_keys::list(&app, &WorkspaceId::from(workspace)).await?;
            let lines: Vec<_> = keys.iter().map(line).collect();
            let list: Vec<_> = keys.iter().map(entry).collect();
            out.tell(&lines.join("\n"), &json!(list));
        }
        RootKey::Revoke { id } => {
            let id = KeyId::from(id);
            root_keys::revoke(&app, &id).await?;
            out.tell(&format!("revoked {id}"), &json!({ "keyId": id, "revoked": true }));
        }
    }
    app.store.close().await;
    Ok(())
}

fn line(key: &model::RootKey) -> String {
    let state = if key.revoked_at.is_some() { "revoked" } else { "active" };
    let name = shown(key.name.as_deref().unwrap_or("-"));
    format!("{}  {}…  {state}  {name}  {}", key.id, key.start, key.permissions.join(" "))
}

fn entry(key: &model::RootKey) -> Value {
    json!({
        "keyId": key.id, "start": key.start, "name": key.name, "permissions": key.permissions,
        "createdAt": key.created_at, "expires": key.expires_at, "revokedAt": key.revoked_at,
    })
}

pub async fn credits(settings: Settings, out: CommandOutput, command: Credits) -> CommandResult {
    let app = app(settings).await?;
    match command {
        Credits::List => {
            let withheld = credits::withheld(&app, None).await?;
            let line = |entry: &WithheldCredits| format!("{}  {}", entry.key_id, entry.units);
            let lines: Vec<_> = withheld.iter().map(line).collect();
            let entry = |entry: &WithheldCredits| {
                json!({
                    "keyId": entry.key_id, "withheld": entry.units, "since": entry.since,
                })
            };
            let list: Vec<_> = withheld.iter().map(entry).collect();
            out.tell(&lines.join("\n"), &json!(list));
        }
        Credits::Release { key, all: _ } => {
            let key = key.map(KeyId::from);
            let released = credits::release(&app, key.as_ref()).await?;
            out.tell(&format!("released {released} credits"), &json!({ "released": released }));
        }
    }
    app.store.close().await;
    Ok(())
}

pub async fn create_workspace(settings: Settings, out: CommandOutput, name: &str) -> CommandResult {
    let app = app(settings).await?;
    let id = root_keys::create_workspace(&app, name).await?;
    out.tell(id.as_str(), &json!({ "workspaceId": id }));
    app.store.close().await;
    Ok(())
}

pub async fn setup_link(
    settings: Settings,
    out: CommandOutput,
    workspace: String,
) -> CommandResult {
    let app = app(settings).await?;
    root_keys::bootstrap_workspace(&app).await?;
    let token = users::operator_link(&app, &WorkspaceId::from(workspace)).await?;
    let url = setup_url(&app.settings, &token);
    out.tell(&url, &json!({ "url": url }));
    app.store.close().await;
    Ok(())
}

pub async fn migration(
    settings: Settings,
    out: CommandOutput,
    command: Migration,
) -> CommandResult {
    let app = app(settings).await?;
    root_keys::bootstrap_workspace(&app).await?;
    match command {
        Migration::Create { algorithm, workspace, name } => {
            let workspace = WorkspaceId::from(workspace);
            let migration = migrations::create(&app, &workspace, algorithm, name).await?;
            out.tell(migration.id.as_str(), &migration_entry(&migration));
        }
        Migration::List { workspace } => {
            let all = migrations::list(&app, &WorkspaceId::from(workspace)).await?;
            let line = |migration: &model::Migration| {
                let name = shown(migration.name.as_deref().unwrap_or("-"));
                format!("{}  {}  {name}", migration.id, migration.algorithm.as_str())
            };
            let lines: Vec<_> = all.iter().map(line).collect();
            let list: Vec<_> = all.iter().map(migration_entry).collect();
            out.tell(&lines.join("\n"), &json!(list));
        }
    }
    app.store.close().await;
    Ok(())
}

fn migration_entry(migration: &model::Migration) -> Value {
    json!({
        "migrationId": migration.id, "algorithm": migration.algorithm.as_str(),
        "name": migration.name, "createdAt": migration.created_at,
    })
}

pub async fn audit(settings: Settings, out: CommandOutput, command: Audit) -> CommandResult {
    let Audit::List { workspace, event, actor, about, before, limit } = command;
    let app = app(settings).await?;
    let filter = AuditFilter { before, event, actor, about, limit, ..AuditFilter::default() };
    let all = audit::list(&app, &WorkspaceId::from(workspace), &filter).await?;
    let list: Vec<_> = all.iter().map(audit_entry).collect();
    let lines: Vec<_> = all.iter().map(audit_line).collect();
    out.tell(&lines.join("\n"), &json!(list));
    app.store.close().await;
    Ok(())
}

fn audit_line(entry: &StoredEntry) -> String {
    let actor = shown(entry.actor_name.as_deref().unwrap_or(&entry.actor_id));
    let targets: Vec<Value> = serde_json::from_str(&entry.targets).unwrap_or_default();
    let ids = targets.iter().filter_map(|target| target["id"].as_str());
    let ids = shown(&ids.collect::<Vec<_>>().join(" "));
    let address = entry.remote_address.as_deref().unwrap_or("-");
    let at = jiff::Timestamp::from_millisecond(entry.at.0).unwrap_or_default();
    format!("{}  {at}  {}  {actor}  {address}  {ids}", entry.id, entry.event)
}

fn audit_entry(entry: &StoredEntry) -> Value {
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

/// Re-encrypts every data key with the current master key. For an embedded server with a key file, it first creates a
/// new master key.
pub async fn rotate(settings: Settings, out: CommandOutput) -> CommandResult {
    let file_dir = match (&settings.engines, &settings.master_keys) {
        (Deployment::Embedded { data_dir }, None) => Some(data_dir.clone()),
        _ => None,
    };
    let configured = settings.master_keys.clone();
    let app = app(settings).await?;
    let masters = match &file_dir {
        Some(data_dir) => file::begin_rotation(data_dir).map_err(Failure::Run)?,
        None => configured.ok_or_else(|| Failure::Use("set KEYWARD_MASTER_KEY to the new master key and KEYWARD_MASTER_KEY_PREVIOUS to the old one".into()))?,
    };
    let rotated = vault::rotate(&app, &masters).await?;
    if let Some(data_dir) = &file_dir {
        file::end_rotation(data_dir).map_err(Failure::Run)?;
    }
    let master = &masters.current.id;
    let text = format!("re-encrypted {rotated} data keys with master key {master}");
    out.tell(&text, &json!({ "rotated": rotated, "masterKeyId": master }));
    app.store.close().await;
    Ok(())
}

pub async fn namespace(
    settings: Settings,
    out: CommandOutput,
    command: Namespace,
) -> CommandResult {
    let app = app(settings).await?;
    match command {
        Namespace::List { workspace } => {
            let all = namespaces::list(&app, &WorkspaceId::from(workspace)).await?;
            let lines: Vec<_> = all.iter().map(namespace_line).collect();
            let list: Vec<_> = all.iter().map(namespace_entry).collect();
            out.tell(&lines.join("\n"), &json!(list));
        }
        Namespace::Set { name, workspace, on_outage } => {
            let workspace = WorkspaceId::from(workspace);
            let set = namespaces::set_on_outage(&app, &workspace, &name, on_outage).await?;
            out.tell(&namespace_line(&set), &namespace_entry(&set));
        }
        Namespace::Delete { name, workspace } => {
            let workspace = WorkspaceId::from(workspace);
            let deleted = namespaces::delete(&app, &workspace, &name).await?;
            out.tell(&format!("deleted {}", deleted.id), &namespace_entry(&deleted));
        }
    }
    app.store.close().await;
    Ok(())
}

fn namespace_line(namespace: &model::Namespace) -> String {
    let model::Namespace { id, name, on_outage, deleted_at, .. } = namespace;
    let state = if deleted_at.is_some() { "deleted" } else { "active" };
    let name = shown(name);
    format!("{id}  {}  {state}  {name}", on_outage.as_str())
}

fn namespace_entry(namespace: &model::Namespace) -> Value {
    json!({
        "namespaceId": namespace.id, "name": namespace.name,
        "onOutage": namespace.on_outage.as_str(), "createdAt": namespace.created_at,
        "deletedAt": namespace.deleted_at,
    })
}

pub fn openapi(settings: &Settings, version: ApiVersion) -> CommandResult {
    let table = match version {
        ApiVersion::V1 => rpc::v1::table(),
        ApiVersion::V2 => rpc::v2::table(),
    };
    let document = rpc::document(&table, &settings.docs_url);
    let text = serde_json::to_string_pretty(&document)
        .map_err(|e| Failure::Run(format!("failed to render the document: {e}")))?;
    print(&text);
    Ok(())
}

/// Requests `/readyz` of the server, because a container image has no curl.
pub async fn health(listen: SocketAddr) -> CommandResult {
    let not_ready =
        |why: String| Failure::Run(format!("the server at {listen} is not ready: {why}"));
    match tokio::time::timeout(HEALTH_TIMEOUT, ask(listen, "/readyz")).await {
        Ok(Ok(answer)) if answer.starts_with("HTTP/1.1 200 ") => Ok(()),
        Ok(Ok(answer)) => {
            Err(not_ready(answer.lines().next().unwrap_or("empty response").to_owned()))
        }
        Ok(Err(e)) => Err(not_ready(e.to_string())),
        Err(_) => Err(not_ready(format!("no response within {} s", HEALTH_TIMEOUT.as_secs()))),
    }
}

/// Sends a GET request to the server at an address and returns the response, head and body.
pub async fn ask(listen: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut address = listen;
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
