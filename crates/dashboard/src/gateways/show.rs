//! The page of a gateway policy.

use askama::Template;
use axum::extract::Path;
use domain::apis;
use domain::gateways::METADATA_PATH;
use domain::permission::Action;
use foundation::id::{ApiId, GatewayPolicyId};
use foundation::model::{
    EnforcementMode, GatewayLimit, GatewayNamespace, GatewayPolicy, GatewayRule,
};

use super::super::format::{TimeLabel, format_count};
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::ratelimits::format_rate;
use super::super::{PageResult, render_page};
use super::configuration::ConfigurationView;
use super::fields::FAILURE_FORMATS;
use super::{load, policy_path};

#[derive(Template)]
#[template(path = "gateways/show.html")]
struct PolicyPage {
    layout: Layout,
    workspace: String,
    path: String,
    id: GatewayPolicyId,
    name: String,
    /// The ids and names of its APIs.
    apis: Vec<(ApiId, String)>,
    key_from: Vec<String>,
    rules: Vec<RuleTableRow>,
    identity_headers: String,
    is_signed: bool,
    failure_format: &'static str,
    networks: String,
    namespaces: Vec<String>,
    resource: String,
    /// The path of the published metadata, after the address of the server.
    metadata_path: String,
    created: TimeLabel,
    changed: Option<TimeLabel>,
    configuration: ConfigurationView,
    may_update: bool,
    may_delete: bool,
}

/// A rule as displayed.
pub struct RuleTableRow {
    pub methods: String,
    pub path: String,
    pub permissions: String,
    pub cost: String,
    pub limits: Vec<String>,
    pub tags: Vec<String>,
}

impl RuleTableRow {
    pub fn new(rule: &GatewayRule) -> Self {
        Self {
            methods: match rule.methods.as_slice() {
                [] => "Any".to_owned(),
                methods => methods.join(" "),
            },
            path: rule.path.clone().unwrap_or_else(|| "Any".to_owned()),
            permissions: rule.permissions.clone().unwrap_or_default(),
            cost: rule.cost.map_or_else(|| "1".to_owned(), |cost| format_count(cost, i64::MAX)),
            limits: rule.ratelimits.iter().map(describe_limit).collect(),
            tags: rule.tags.clone(),
        }
    }
}

fn describe_limit(limit: &GatewayLimit) -> String {
    let rate = match (limit.limit, limit.duration) {
        (Some(limit), Some(duration)) => format_rate(limit, duration),
        _ => "as configured for the key".to_owned(),
    };
    let cost = match limit.cost {
        None | Some(1) => String::new(),
        Some(cost) => format!(", cost {}", format_count(cost, i64::MAX)),
    };
    format!("{}: {rate}{cost}", limit.name)
}

fn describe_namespace(namespace: &GatewayNamespace) -> String {
    let name = &namespace.namespace;
    let default = match namespace.default_limit {
        None => "no default limit".to_owned(),
        Some(default) => format_rate(default.limit, default.duration),
    };
    let mode = match namespace.mode {
        EnforcementMode::Enforce => "",
        EnforcementMode::Shadow => ", shadow",
    };
    let refused = if namespace.count_refused { ", counts rejected calls" } else { "" };
    format!("{name}: {default}{mode}{refused}")
}

fn describe_identity_headers(policy: &GatewayPolicy) -> String {
    let headers = &policy.config.identity_headers;
    let mut names = match &headers.headers {
        None => vec!["All".to_owned()],
        Some(names) if names.is_empty() => vec!["None".to_owned()],
        Some(names) => names.clone(),
    };
    names.extend(headers.meta.iter().map(|name| format!("Keyward-Meta-{name}")));
    names.join(", ")
}

pub async fn show(
    request: WorkspaceRequest,
    Path((_, named)): Path<(String, String)>,
) -> PageResult {
    let context = &request.page_request.app.context;
    let policy = load(&request, &named).await?;
    let config = &policy.config;
    let names = apis::load_names(context, &request.caller, &config.api_ids).await?;
    let api = |id: &ApiId| (id.clone(), names.get(id).unwrap_or(&id.to_string()).clone());
    let now = context.clock.now();
    let networks: Vec<_> = config.allow_from.iter().map(ToString::to_string).collect();
    let format = FAILURE_FORMATS.iter().find(|(.., format)| *format == config.on_failure);
    render_page(&PolicyPage {
        layout: Layout::for_workspace(&request, Section::Gateways, "Gateways")
            .await?
            .about(&policy.name),
        workspace: request.membership.workspace_id.to_string(),
        path: policy_path(&request, &policy.id),
        apis: config.api_ids.iter().map(api).collect(),
        key_from: config.key_from.iter().map(ToString::to_string).collect(),
        rules: config.rules.iter().map(RuleTableRow::new).collect(),
        identity_headers: describe_identity_headers(&policy),
        is_signed: config.identity_headers.signed,
        failure_format: format.map(|(_, label, _)| *label).unwrap_or_default(),
        networks: networks.join(", "),
        namespaces: config.namespaces.iter().map(describe_namespace).collect(),
        resource: config.resource.clone(),
        metadata_path: format!("{METADATA_PATH}{}", policy.id),
        created: TimeLabel::new(policy.created_at, now),
        changed: policy.updated_at.map(|at| TimeLabel::new(at, now)),
        configuration: ConfigurationView::new(&request, &policy),
        may_update: request.caller.is_allowed_on(Action::UpdateGatewayPolicy, &policy.id),
        may_delete: request.caller.is_allowed_on(Action::DeleteGatewayPolicy, &policy.id),
        id: policy.id,
        name: policy.name,
    })
}
