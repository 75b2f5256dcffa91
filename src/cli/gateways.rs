//! `keyward gateway`: gateway policies, and the configurations of gateways for them.

use api::v2::gateways::create_policy::CreatePolicy;
use api::v2::gateways::delete_policy::DeletePolicy;
use api::v2::gateways::get_policy::GetPolicy;
use api::v2::gateways::list_policies::ListPolicies;
use api::v2::gateways::rotate_secret::RotateSecret;
use api::v2::gateways::update_policy::UpdatePolicy;
use clap::{Args, Subcommand};
use foundation::config::Settings;
use serde_json::{Value, json};

use super::gateway_configurations::{self, ConfigurationOptions};
use super::input::{FILE_MAX_BYTES, RequestFields, parse_duration_ms, read_json};
use super::operator::Operator;
use super::output::{CommandOutput, NO_VALUE, Table, counted};
use super::{CommandError, CommandResult, Switch};

/// The maximum number of policies in a list: those that a workspace can have.
const LISTED_POLICIES_MAX: usize = 1_000;
/// The maximum number of policies that one request lists.
const PAGE_LIMIT: usize = 100;

#[derive(Subcommand)]
pub enum GatewayCommand {
    /// Create a gateway policy, which says how the requests of a gateway are judged, and print its secret once
    Create {
        /// Set the name of the policy, unique in the workspace
        #[arg(long, required_unless_present = "file")]
        name: Option<String>,
        #[command(flatten)]
        fields: Box<PolicyFields>,
    },
    /// List the gateway policies of a workspace
    List {
        /// List only policies whose ID or name contains this text
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// Show a gateway policy
    Get {
        /// ID or name of the policy
        policy: String,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// Update a gateway policy; omitted options keep their values
    Update {
        /// ID or name of the policy
        policy: String,
        /// Set the name of the policy
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        fields: Box<PolicyFields>,
    },
    /// Replace the secret of a gateway policy and print the new one once
    RotateSecret {
        /// ID or name of the policy
        policy: String,
        /// Accept the previous secret for this long, such as 24h, at most 7d
        #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration_ms)]
        keep_previous: i64,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// Delete a gateway policy; its gateways are refused from then on
    Delete {
        /// ID or name of the policy
        policy: String,
        #[arg(long, default_value = "ws_default")]
        workspace: String,
    },
    /// Print the configuration of a gateway, filled in for a policy
    Config(Box<ConfigurationOptions>),
}

/// The fields of a policy besides its name. An empty value makes an empty list.
#[derive(Args)]
pub struct PolicyFields {
    /// Read the fields of `gateways.createPolicy` from a JSON file, or from standard input for -; options take precedence
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
    /// Accept keys of this API; repeatable
    #[arg(long = "api", value_name = "ID")]
    apis: Option<Vec<String>>,
    /// Read the key from here; repeatable: authorization:bearer, header:NAME, query:NAME or cookie:NAME
    #[arg(long, value_name = "SOURCE")]
    key_from: Option<Vec<String>>,
    /// Read the rules, a JSON list, from this file, or from standard input for -
    #[arg(long, value_name = "FILE")]
    rules: Option<String>,
    /// Tell the upstream who calls in this header; repeatable [default: all]
    #[arg(long = "identity-header", value_name = "HEADER")]
    identity_headers: Option<Vec<String>>,
    /// Tell the upstream this field of the meta of keys; repeatable
    #[arg(long = "meta", value_name = "FIELD")]
    meta: Option<Vec<String>>,
    /// Add a signed assertion of who calls
    #[arg(long, value_name = "on|off")]
    signed: Option<Switch>,
    /// Set the format of the body of refusals: problem+json, text or empty
    #[arg(long, value_name = "FORMAT")]
    on_failure: Option<String>,
    /// Require no secret of gateways in this network; repeatable
    #[arg(long, value_name = "NETWORK")]
    allow_from: Option<Vec<String>>,
    /// Read the namespaces of the rate-limit service, a JSON list, from this file, or from standard input for -
    #[arg(long, value_name = "FILE")]
    namespaces: Option<String>,
    /// Set the https URL by which clients know what the gateway protects; empty: none
    #[arg(long, value_name = "URL")]
    resource: Option<String>,
    /// Name this issuer in the metadata of the resource; repeatable
    #[arg(long = "authorization-server", value_name = "URL")]
    authorization_servers: Option<Vec<String>>,
    #[arg(long, default_value = "ws_default")]
    workspace: String,
}

pub async fn run(settings: Settings, out: CommandOutput, command: GatewayCommand) -> CommandResult {
    match command {
        GatewayCommand::Create { name, fields } => create(settings, out, name, *fields).await,
        GatewayCommand::List { search, workspace } => {
            list(settings, out, search.as_deref(), &workspace).await
        }
        GatewayCommand::Get { policy, workspace } => {
            let operator = Operator::open(settings, &workspace).await?;
            let found = operator.call::<GetPolicy>(&json!({ "policyId": policy })).await?;
            out.write_fields(policy_fields(&found), &found);
            operator.close().await;
            Ok(())
        }
        GatewayCommand::Update { policy, name, fields } => {
            update(settings, out, policy, name, *fields).await
        }
        GatewayCommand::RotateSecret { policy, keep_previous, workspace } => {
            let operator = Operator::open(settings, &workspace).await?;
            let request = json!({ "policyId": policy, "expiration": keep_previous });
            let rotated = operator.call::<RotateSecret>(&request).await?;
            write_secret(out, &rotated);
            operator.close().await;
            Ok(())
        }
        GatewayCommand::Delete { policy, workspace } => {
            let operator = Operator::open(settings, &workspace).await?;
            operator.call::<DeletePolicy>(&json!({ "policyId": policy })).await?;
            let deleted = json!({ "policyId": policy, "deleted": true });
            out.write(&format!("deleted {policy}"), &deleted);
            operator.close().await;
            Ok(())
        }
        GatewayCommand::Config(options) => {
            gateway_configurations::run(settings, out, *options).await
        }
    }
}

async fn create(
    settings: Settings,
    out: CommandOutput,
    name: Option<String>,
    fields: PolicyFields,
) -> CommandResult {
    let workspace = fields.workspace.clone();
    let (mut request, identity) = fields.read()?;
    request.set("name", name);
    if let Some(identity) = identity {
        let stored = request.get("identityHeaders").unwrap_or_default();
        request.set("identityHeaders", Some(identity.merge_into(stored)));
    }
    let operator = Operator::open(settings, &workspace).await?;
    let created = operator.call::<CreatePolicy>(&request).await?;
    write_secret(out, &created);
    operator.close().await;
    Ok(())
}

async fn update(
    settings: Settings,
    out: CommandOutput,
    policy: String,
    name: Option<String>,
    fields: PolicyFields,
) -> CommandResult {
    let workspace = fields.workspace.clone();
    let (mut request, identity) = fields.read()?;
    request.set("name", name);
    let operator = Operator::open(settings, &workspace).await?;
    if let Some(identity) = identity {
        let stored = match request.get("identityHeaders") {
            Some(given) => given,
            None => {
                let found = operator.call::<GetPolicy>(&json!({ "policyId": policy })).await?;
                found["identityHeaders"].clone()
            }
        };
        request.set("identityHeaders", Some(identity.merge_into(stored)));
    }
    request.set("policyId", Some(policy));
    let updated = operator.call::<UpdatePolicy>(&request).await?;
    out.write_fields(policy_fields(&updated), &updated);
    operator.close().await;
    Ok(())
}

async fn list(
    settings: Settings,
    out: CommandOutput,
    search: Option<&str>,
    workspace: &str,
) -> CommandResult {
    let operator = Operator::open(settings, workspace).await?;
    let mut all: Vec<Value> = Vec::new();
    loop {
        // A page starts at its cursor. What follows an ID sorts after it and before the next one.
        let cursor = all.last().and_then(|last| last["policyId"].as_str());
        let cursor = cursor.map_or_else(String::new, |id| format!("{id}!"));
        let search = search.unwrap_or_default();
        let request = json!({ "limit": PAGE_LIMIT, "search": search, "cursor": cursor });
        let page = operator.call::<ListPolicies>(&request).await?;
        let Value::Array(page) = page else { break };
        let is_last = page.len() < PAGE_LIMIT;
        all.extend(page);
        if is_last || all.len() >= LISTED_POLICIES_MAX {
            break;
        }
    }
    let header = &["ID", "NAME", "APIS", "KEYS FROM", "RULES"];
    let rows = all.iter().map(policy_row).collect();
    out.write_table(Table { items: "gateway policies", header, rows }, all);
    operator.close().await;
    Ok(())
}

/// The options about identity headers, which are one field of a policy.
struct IdentityOptions {
    headers: Option<Vec<String>>,
    meta: Option<Vec<String>>,
    signed: Option<Switch>,
}

impl IdentityOptions {
    /// Returns the field with the options that were given.
    fn merge_into(self, stored: Value) -> Value {
        let mut fields = RequestFields::from_value(stored);
        fields.set_list("headers", self.headers);
        fields.set_list("meta", self.meta);
        fields.set("signed", self.signed.map(Switch::is_on));
        fields.into_value()
    }
}

impl PolicyFields {
    /// Reads the files and returns the fields of a request, and the options about identity headers if there are any.
    fn read(self) -> Result<(RequestFields, Option<IdentityOptions>), CommandError> {
        let mut fields = RequestFields::read("--file", self.file.as_deref())?;
        for (name, option, path) in
            [("rules", "--rules", self.rules), ("namespaces", "--namespaces", self.namespaces)]
        {
            let list = path.map(|path| read_json(option, &path, FILE_MAX_BYTES)).transpose()?;
            fields.set(name, list);
        }
        fields.set_list("apiIds", self.apis);
        fields.set_list("keyFrom", self.key_from);
        fields.set_list("allowFrom", self.allow_from);
        fields.set_list("authorizationServers", self.authorization_servers);
        fields.set("onFailure", self.on_failure);
        fields.set("resource", self.resource);
        let Self { identity_headers: headers, meta, signed, .. } = self;
        let has_identity = headers.is_some() || meta.is_some() || signed.is_some();
        Ok((fields, has_identity.then_some(IdentityOptions { headers, meta, signed })))
    }
}

fn write_secret(out: CommandOutput, reply: &Value) {
    let text = |name: &str| reply[name].as_str().unwrap_or_default();
    let (id, secret) = (text("policyId"), text("secret"));
    out.write(&format!("{id}\n{secret}\n\nThe secret is shown only once."), reply);
}

fn policy_row(policy: &Value) -> Vec<String> {
    let text = |name: &str| policy[name].as_str().unwrap_or_default().to_owned();
    vec![
        text("policyId"),
        text("name"),
        join(&policy["apiIds"]),
        join(&policy["keyFrom"]),
        policy["rules"].as_array().map_or(0, Vec::len).to_string(),
    ]
}

fn policy_fields(policy: &Value) -> Vec<(&'static str, String)> {
    let text = |name: &str| policy[name].as_str().unwrap_or(NO_VALUE).to_owned();
    let identity = &policy["identityHeaders"];
    let headers = match &identity["headers"] {
        Value::Null => "all".to_owned(),
        headers => join(headers),
    };
    let rules = policy["rules"].as_array().map_or(0, Vec::len);
    let mut fields = vec![
        ("ID", text("policyId")),
        ("NAME", text("name")),
        ("APIS", join(&policy["apiIds"])),
        ("KEYS FROM", join(&policy["keyFrom"])),
        ("IDENTITY HEADERS", headers),
        ("META", join(&identity["meta"])),
        ("SIGNED", if identity["signed"] == true { "on" } else { "off" }.to_owned()),
        ("ON FAILURE", text("onFailure")),
        ("ALLOW FROM", join(&policy["allowFrom"])),
        ("RESOURCE", text("resource")),
        ("AUTHORIZATION SERVERS", join(&policy["authorizationServers"])),
        ("RULES", counted(rules, "rule", "rules")),
    ];
    let lists = [("", &policy["rules"]), ("NAMESPACE", &policy["namespaces"])];
    for (name, list) in lists {
        let items = list.as_array().into_iter().flatten();
        fields.extend(items.map(|item| (name, item.to_string())));
    }
    fields
}

/// Returns the texts of a list.
fn join(list: &Value) -> String {
    let texts: Vec<_> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if texts.is_empty() { NO_VALUE.to_owned() } else { texts.join(", ") }
}
