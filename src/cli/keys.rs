//! `keyward key`: keys of APIs.

use api::v2::keys::create_key::CreateKey;
use api::v2::keys::delete_key::DeleteKey;
use api::v2::keys::reroll_key::RerollKey;
use api::v2::keys::update_key::UpdateKey;
use api::v2::schemas::KeyReply;
use clap::Subcommand;
use domain::keys::{self, DecryptMode};
use domain::wording::format_rate;
use foundation::clock::Timestamp;
use foundation::config::Settings;
use foundation::id::KeyId;
use foundation::model::escape_hidden;
use serde::Serialize;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::input::parse_duration_ms;
use super::key_fields::{KeyCreation, KeyUpdate};
use super::key_list::{self, KeyListOptions};
use super::operator::Operator;
use super::output::{CommandOutput, NO_VALUE, format_number, format_start, format_time};
use super::verify::{self, VerifyOptions};
use super::{CommandError, CommandResult, Switch};

#[derive(Subcommand)]
pub enum KeyCommand {
    /// Create a key and print it once
    Create(Box<KeyCreation>),
    /// Show a key
    Get {
        /// ID of the key
        id: String,
        /// Print the key itself, which must be recoverable
        #[arg(long)]
        decrypt: bool,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// List keys, the latest first
    List(KeyListOptions),
    /// Verify a key with the running server, as `keys.verifyKey` does; exit with 1 if it is not valid
    Verify(Box<VerifyOptions>),
    /// Update a key; omitted options keep their values
    Update(Box<KeyUpdate>),
    /// Enable a key
    Enable {
        /// ID of the key
        id: String,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// Disable a key, so that it stops verifying at once
    Disable {
        /// ID of the key
        id: String,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// Create a key with the same configuration and print it once; the previous one expires
    Rotate {
        /// ID of the key
        id: String,
        /// Let the previous key expire after this time, such as 24h, rounded up to a full minute
        #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration_ms)]
        keep_previous: i64,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// Delete a key; it stops verifying at once
    Delete {
        /// ID of the key
        id: String,
        /// Erase the key completely, so that it cannot be restored
        #[arg(long)]
        permanent: bool,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
}

pub async fn run(settings: Settings, out: CommandOutput, command: KeyCommand) -> CommandResult {
    match command {
        KeyCommand::Create(options) => {
            let workspace = options.workspace.clone();
            let request = options.into_request()?;
            let operator = Operator::open(settings, &workspace).await?;
            let created = operator.call::<CreateKey>(&request).await?;
            write_key(out, &created);
            operator.close().await;
            Ok(())
        }
        KeyCommand::Get { id, decrypt, workspace } => {
            let operator = Operator::open(settings, &workspace).await?;
            let mode = if decrypt { DecryptMode::Required } else { DecryptMode::None };
            write_found_key(out, &operator, &id, mode).await?;
            operator.close().await;
            Ok(())
        }
        KeyCommand::List(options) => key_list::run(settings, out, options).await,
        KeyCommand::Verify(options) => verify::run(settings, out, *options).await,
        KeyCommand::Update(options) => {
            let (id, workspace) = (options.id.clone(), options.workspace.clone());
            let request = options.into_request()?;
            update(settings, out, &id, &workspace, &request).await
        }
        KeyCommand::Enable { id, workspace } => {
            set_enabled(settings, out, &id, &workspace, Switch::On).await
        }
        KeyCommand::Disable { id, workspace } => {
            set_enabled(settings, out, &id, &workspace, Switch::Off).await
        }
        KeyCommand::Rotate { id, keep_previous, workspace } => {
            let operator = Operator::open(settings, &workspace).await?;
            let request = json!({ "keyId": id, "expiration": keep_previous });
            let rotated = operator.call::<RerollKey>(&request).await?;
            write_key(out, &rotated);
            operator.close().await;
            Ok(())
        }
        KeyCommand::Delete { id, permanent, workspace } => {
            let operator = Operator::open(settings, &workspace).await?;
            let request = json!({ "keyId": id, "permanent": permanent });
            operator.call::<DeleteKey>(&request).await?;
            out.write(&format!("deleted {id}"), &json!({ "keyId": id, "deleted": true }));
            operator.close().await;
            Ok(())
        }
    }
}

async fn set_enabled(
    settings: Settings,
    out: CommandOutput,
    id: &str,
    workspace: &str,
    switch: Switch,
) -> CommandResult {
    let request = json!({ "keyId": id, "enabled": switch.is_on() });
    update(settings, out, id, workspace, &request).await
}

/// Updates a key and prints all of it.
async fn update(
    settings: Settings,
    out: CommandOutput,
    id: &str,
    workspace: &str,
    request: &impl Serialize,
) -> CommandResult {
    let operator = Operator::open(settings, workspace).await?;
    operator.call::<UpdateKey>(request).await?;
    write_found_key(out, &operator, id, DecryptMode::None).await?;
    operator.close().await;
    Ok(())
}

async fn write_found_key(
    out: CommandOutput,
    operator: &Operator,
    id: &str,
    mode: DecryptMode,
) -> CommandResult {
    let Operator { app, caller } = operator;
    app.context.connect_redis().await;
    let found = keys::get_without_ledger(&app.context, caller, &KeyId::from(id), mode).await?;
    let found = KeyReply::from(found);
    // A `Value` would change metadata, such as numbers with many digits.
    let reply = to_raw_value(&found)
        .map_err(|e| CommandError::Runtime(format!("failed to encode the key: {e}")))?;
    out.write_fields(key_fields(&json!(found)), &reply);
    Ok(())
}

fn write_key(out: CommandOutput, reply: &Value) {
    let text = |name: &str| reply[name].as_str().unwrap_or_default();
    let (id, key) = (text("keyId"), text("key"));
    out.write(&format!("{id}\n{key}\n\nThe key is shown only once."), reply);
}

/// Returns the fields of a key for people.
fn key_fields(key: &Value) -> Vec<(&'static str, String)> {
    let text = |name: &str| key[name].as_str().unwrap_or(NO_VALUE).to_owned();
    let time = |name: &str, none: &str| {
        key[name].as_i64().map_or_else(|| none.to_owned(), |at| format_time(Timestamp(at)))
    };
    let list = |name: &str| {
        let texts: Vec<_> =
            key[name].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if texts.is_empty() { NO_VALUE.to_owned() } else { texts.join(", ") }
    };
    let meta = match &key["meta"] {
        Value::Null => NO_VALUE.to_owned(),
        meta => meta.to_string(),
    };
    let mut fields = vec![
        ("ID", text("keyId")),
        ("START", format_start(key["start"].as_str().unwrap_or_default())),
        ("NAME", text("name")),
        ("ENABLED", if key["enabled"] == true { "yes" } else { "no" }.to_owned()),
        ("EXTERNAL ID", key["identity"]["externalId"].as_str().unwrap_or(NO_VALUE).to_owned()),
        ("CREDITS", format_credits(&key["credits"])),
        ("EXPIRES", time("expires", "never")),
        ("ROLES", list("roles")),
        ("PERMISSIONS", list("permissions")),
        ("META", meta),
        ("CREATED", time("createdAt", NO_VALUE)),
        ("LAST USED", time("lastUsedAt", "never")),
    ];
    let limits = key["ratelimits"].as_array().into_iter().flatten();
    fields.extend(limits.map(|limit| ("RATE LIMIT", format_limit(limit))));
    if let Some(key) = key["plaintext"].as_str() {
        fields.push(("KEY", key.to_owned()));
    }
    fields
}

fn format_credits(credits: &Value) -> String {
    if credits["remaining"].is_null() {
        return "unlimited".to_owned();
    }
    let remaining = format_number(&credits["remaining"]);
    match &credits["refill"] {
        Value::Null => remaining,
        refill => {
            let interval = refill["interval"].as_str().unwrap_or_default();
            let day = refill["refillDay"].as_i64().map(|day| format!(" on day {day}"));
            let day = day.unwrap_or_default();
            let amount = format_number(&refill["amount"]);
            format!("{remaining}, refilled to {amount} {interval}{day}")
        }
    }
}

fn format_limit(limit: &Value) -> String {
    let name = escape_hidden(limit["name"].as_str().unwrap_or_default());
    let when = if limit["autoApply"] == true { "" } else { ", if a verification names it" };
    let number = |field: &str| limit[field].as_i64().unwrap_or_default();
    format!("{name}: {}{when}", format_rate(number("limit"), number("duration")))
}
