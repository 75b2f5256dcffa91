//! `keyward api`: settings of APIs that the HTTP interface leaves to operators.

use foundation::config::Settings;
use foundation::id::{ApiId, WorkspaceId};
use foundation::model::{self, ApiSettings, Networks, shown};
use serde_json::{Value, json};

use super::commands::{CommandOutput, app};
use super::{Api, ApiUpdate, CommandResult, Failure, Switch};
use crate::domain::apis::{self, PREFIX_MAX, is_prefix};

pub async fn run(settings: Settings, out: CommandOutput, command: Api) -> CommandResult {
    match command {
        Api::List { workspace } => {
            let app = app(settings).await?;
            let all = apis::list(&app, &WorkspaceId::from(workspace)).await?;
            let lines: Vec<_> = all.iter().map(line).collect();
            let list: Vec<_> = all.iter().map(entry).collect();
            out.tell(&lines.join("\n"), &json!(list));
            app.store.close().await;
        }
        Api::Update(update) => {
            let (id, workspace) = (update.id.clone(), update.workspace.clone());
            let change = change(*update)?;
            let app = app(settings).await?;
            let (id, workspace) = (ApiId::from(id), WorkspaceId::from(workspace));
            let api = apis::update(&app, &workspace, &id, change).await?;
            out.tell(&line(&api), &entry(&api));
            app.store.close().await;
        }
    }
    Ok(())
}

/// Validates the options and returns the change to apply.
fn change(update: ApiUpdate) -> Result<impl FnOnce(&mut ApiSettings), Failure> {
    let prefix = update.default_prefix;
    if !prefix.as_deref().is_none_or(is_prefix) {
        let fault = format!("--default-prefix must be at most {PREFIX_MAX} letters, digits and _");
        return Err(Failure::Use(fault));
    }
    let networks = update.allow.as_deref().map(Networks::parse).transpose();
    let networks = networks.map_err(|fault| Failure::Use(format!("--allow: {fault}")))?;
    if networks.as_ref().is_some_and(|networks| networks.len() > Networks::MAX) {
        return Err(Failure::Use(format!("--allow accepts at most {} networks", Networks::MAX)));
    }
    let is_on = |switch: Switch| matches!(switch, Switch::On);
    Ok(move |settings: &mut ApiSettings| {
        if let Some(prefix) = prefix {
            settings.default_prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
        }
        settings.default_byte_length = update.default_bytes.or(settings.default_byte_length);
        if let Some(switch) = update.recoverable_keys {
            settings.recoverable_keys = is_on(switch);
        }
        if let Some(switch) = update.delete_protection {
            settings.delete_protection = is_on(switch);
        }
        if let Some(networks) = networks {
            settings.allowed_networks = Networks::new(networks);
        }
    })
}

fn line(api: &model::Api) -> String {
    let settings = &api.settings;
    let set = [
        settings.default_prefix.as_ref().map(|prefix| format!("prefix {prefix}")),
        settings.default_byte_length.map(|length| format!("{length} bytes")),
        settings.recoverable_keys.then(|| "recoverable keys".to_owned()),
        settings.delete_protection.then(|| "delete protection".to_owned()),
        settings.allowed_networks.as_ref().map(|n| format!("from {}", n.texts().join(","))),
    ];
    let name = [api.id.to_string(), shown(&api.name)];
    name.into_iter().chain(set.into_iter().flatten()).collect::<Vec<_>>().join("  ")
}

fn entry(api: &model::Api) -> Value {
    let settings = &api.settings;
    json!({
        "apiId": api.id, "name": api.name, "createdAt": api.created_at,
        "defaultPrefix": settings.default_prefix, "defaultBytes": settings.default_byte_length,
        "recoverableKeys": settings.recoverable_keys,
        "deleteProtection": settings.delete_protection,
        "allow": settings.allowed_networks.as_ref().map(Networks::texts),
    })
}
