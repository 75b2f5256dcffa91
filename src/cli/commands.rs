//! The small one-shot commands. Like all of them, they work on the server's database, also while the server runs: it sees
//! changes within a second.

use domain::app::App;
use domain::{root_keys, users, vault};
use foundation::clock::Clock;
use foundation::config::{Deployment, Settings};
use foundation::id::WorkspaceId;
use foundation::vault::file;
use serde_json::json;

use super::output::{CommandOutput, counted, print_line};
use super::serve::setup_url;
use super::startup::{open_store, require_database};
use super::{ApiVersion, CommandError, CommandResult};

pub async fn open_app(settings: Settings) -> Result<App, CommandError> {
    require_database(&settings)?;
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
    let data = counted(data_keys, "data key", "data keys");
    let signing = counted(signing_keys, "signing key", "signing keys");
    let text = format!("re-encrypted {data} and {signing} with master key {master}");
    let value = json!({ "rotated": data_keys, "signingKeys": signing_keys, "masterKeyId": master });
    out.write(&text, &value);
    app.context.store.close().await;
    Ok(())
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
