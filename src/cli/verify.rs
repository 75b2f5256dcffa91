//! `keyward key verify` and `keyward limit check`: decisions of the running server.
//!
//! Rate limits of an embedded server are counted in its memory, and credits of a replica are leased by it. So only a
//! server decides exactly, and these commands ask it over HTTP.

use clap::{Args, Subcommand};
use domain::root_keys::{self, NewRootKey};
use foundation::clock::Timestamp;
use foundation::config::Settings;
use foundation::id::{KeyId, WorkspaceId};
use foundation::secret::Plaintext;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::commands::open_app;
use super::input::{STDIN, parse_count, parse_duration_ms, read_line};
use super::local_server::LocalServer;
use super::output::{CommandOutput, NO_VALUE, format_number, format_time};
use super::{CommandError, CommandResult};

/// The maximum size of a key that is read from standard input.
const KEY_MAX_BYTES: u64 = 4096;
/// How long the root key of a command is valid if it cannot be revoked.
const ROOT_KEY_TTL_MS: i64 = 60_000;

#[derive(Args)]
pub struct VerifyOptions {
    /// The key; without it, or with -, it is read from standard input, so that no list of processes shows it
    key: Option<String>,
    /// Set the number of credits to spend; 0 spends nothing [default: 1]
    #[arg(long, value_name = "CREDITS", value_parser = parse_count)]
    cost: Option<i64>,
    /// Require permissions, such as `documents.read AND (documents.write OR admin)`
    #[arg(long, value_name = "QUERY")]
    permissions: Option<String>,
    /// Check this rate limit of the key or its identity too; repeatable
    #[arg(long = "ratelimit", value_name = "NAME")]
    ratelimits: Vec<String>,
    /// Add a label for analytics; repeatable
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Set the address at which the key is used
    #[arg(long, value_name = "ADDRESS")]
    ip_address: Option<String>,
    #[arg(long, default_value = "ws_default")]
    workspace: String,
}

#[derive(Subcommand)]
pub enum LimitCommand {
    /// Check a rate limit with the running server, as `ratelimit.limit` does; exit with 1 if it is rejected
    Check(CheckOptions),
}

#[derive(Args)]
pub struct CheckOptions {
    /// Name or ID of the namespace; a missing one is created
    namespace: String,
    /// The identifier to limit, such as a user
    identifier: String,
    /// Set the maximum total cost per window
    #[arg(long, value_name = "NUMBER", value_parser = parse_count)]
    limit: i64,
    /// Set the window length, such as 60s
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_ms)]
    duration: i64,
    /// Set the cost to consume; 0 consumes nothing [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = parse_count)]
    cost: Option<i64>,
    #[arg(long, default_value = "ws_default")]
    workspace: String,
}

pub async fn run(settings: Settings, out: CommandOutput, options: VerifyOptions) -> CommandResult {
    let key = match options.key.filter(|key| key != STDIN) {
        Some(key) => key,
        None => read_line("Key", KEY_MAX_BYTES)?,
    };
    let limits = options.ratelimits.iter().map(|name| json!({ "name": name }));
    let mut request = json!({
        "key": key, "tags": options.tags, "ratelimits": limits.collect::<Vec<_>>(),
    });
    let optional = [
        ("credits", options.cost.map(|cost| json!({ "cost": cost }))),
        ("permissions", options.permissions.map(Value::String)),
        ("ipAddress", options.ip_address.map(Value::String)),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            request[name] = value;
        }
    }
    let permissions = ["api.*.verify_key"];
    let reply =
        ask(&settings, &options.workspace, &permissions, "keys.verifyKey", &request).await?;
    let verification = parse(&reply);
    out.write_fields(verification_fields(&verification), &reply);
    if verification["valid"] == true { Ok(()) } else { Err(CommandError::Negative) }
}

pub async fn run_limit(
    settings: Settings,
    out: CommandOutput,
    command: LimitCommand,
) -> CommandResult {
    let LimitCommand::Check(options) = command;
    let CheckOptions { namespace, identifier, limit, duration, cost, workspace } = options;
    let request = json!({
        "namespace": namespace, "identifier": identifier, "limit": limit, "duration": duration,
        "cost": cost.unwrap_or(1),
    });
    let permissions = ["ratelimit.*.limit", "ratelimit.*.create_namespace"];
    let check = ask(&settings, &workspace, &permissions, "ratelimit.limit", &request).await?;
    let reply = parse(&check);
    let time = |at: &Value| format_time(Timestamp(at.as_i64().unwrap_or_default()));
    let fields = vec![
        ("RESULT", if reply["success"] == true { "allowed" } else { "rejected" }.to_owned()),
        ("LIMIT", format_number(&reply["limit"])),
        ("REMAINING", format_number(&reply["remaining"])),
        ("RESET", time(&reply["reset"])),
        ("OVERRIDE", reply["overrideId"].as_str().unwrap_or(NO_VALUE).to_owned()),
    ];
    out.write_fields(fields, &check);
    if reply["success"] == true { Ok(()) } else { Err(CommandError::Negative) }
}

/// Returns a reply of the server for its fields. It may change metadata, such as numbers with many digits.
fn parse(reply: &RawValue) -> Value {
    serde_json::from_str(reply.get()).unwrap_or_default()
}

fn verification_fields(reply: &Value) -> Vec<(&'static str, String)> {
    let text = |name: &str| reply[name].as_str().unwrap_or(NO_VALUE).to_owned();
    let mut fields = vec![
        ("RESULT", text("code")),
        ("KEY", text("keyId")),
        ("NAME", text("name")),
        ("EXTERNAL ID", reply["identity"]["externalId"].as_str().unwrap_or(NO_VALUE).to_owned()),
    ];
    if !reply["credits"].is_null() {
        fields.push(("CREDITS", format_number(&reply["credits"])));
    }
    let limits = reply["ratelimits"].as_array().into_iter().flatten();
    fields.extend(limits.map(|limit| {
        let name = limit["name"].as_str().unwrap_or_default();
        let state = if limit["exceeded"] == true { "exceeded" } else { "within the limit" };
        let [remaining, of] = ["remaining", "limit"].map(|field| format_number(&limit[field]));
        ("RATE LIMIT", format!("{name}: {state}, {remaining} of {of} remaining"))
    }));
    fields
}

/// Calls an operation of the server at the listening address, with `KEYWARD_ROOT_KEY` in the default workspace, or else
/// with a root key that exists only for this call.
async fn ask(
    settings: &Settings,
    workspace: &str,
    permissions: &[&str],
    operation: &str,
    request: &Value,
) -> Result<Box<RawValue>, CommandError> {
    let certificate = settings.server_tls.as_ref();
    let server = LocalServer { address: settings.listen, has_tls: certificate.is_some() };
    server.require_listening().await?;
    let workspace = WorkspaceId::from(workspace);
    if let Some(root_key) = &settings.root_key
        && workspace == root_keys::default_workspace()
    {
        return server.call(certificate, operation, root_key.expose(), request).await;
    }
    let app = open_app(settings.clone()).await?;
    let (id, root_key) = create_root_key(&app, &workspace, permissions, operation).await?;
    let reply = server.call(certificate, operation, root_key.expose(), request).await;
    // If this fails, the root key expires within a minute.
    let revoked = root_keys::revoke_as_operator(&app.context, &id).await;
    app.context.close_store().await;
    let reply = reply?;
    revoked?;
    Ok(reply)
}

async fn create_root_key(
    app: &domain::app::App,
    workspace: &WorkspaceId,
    permissions: &[&str],
    operation: &str,
) -> Result<(KeyId, Plaintext), CommandError> {
    let new = NewRootKey {
        name: Some(format!("command line: {operation}")),
        permissions: permissions.iter().map(|tuple| (*tuple).to_owned()).collect(),
        expires_at: Some(app.context.clock.now().plus_ms(ROOT_KEY_TTL_MS)),
    };
    Ok(root_keys::create_as_operator(&app.context, workspace, new).await?)
}
