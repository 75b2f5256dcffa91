//! The pages of gateway policies: list, details with the configurations of gateways, create, edit, rotate the secret, delete,
//! and try a request.

mod configuration;
mod delete;
mod fields;
mod form;
mod namespace_rows;
mod outcome;
mod rule_rows;
mod secret;
mod show;
mod try_request;

use askama::Template;
use axum::Router;
use axum::routing::get;
use domain::gateways;
use domain::permission::Action;
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::GatewayPolicyId;
use foundation::model::GatewayPolicy;

use super::format::TimeLabel;
use super::layout::{Layout, Section};
use super::list_frame::{ListFrame, RowAction};
use super::page_request::WorkspaceRequest;
use super::sort_link::SortLink;
use super::{PageResult, render_page};

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/gateways", get(list).post(form::create))
        .route("/dashboard/{workspace}/gateways/new", get(form::show_create_form))
        .route("/dashboard/{workspace}/gateways/{policy}", get(show::show))
        .route(
            "/dashboard/{workspace}/gateways/{policy}/settings",
            get(form::show_settings).post(form::save_settings),
        )
        .route("/dashboard/{workspace}/gateways/{policy}/secret/{form}", get(secret::show))
        .route(
            "/dashboard/{workspace}/gateways/{policy}/rotate",
            get(secret::show_rotate_form).post(secret::rotate),
        )
        .route(
            "/dashboard/{workspace}/gateways/{policy}/delete",
            get(delete::confirm).post(delete::delete),
        )
        .route(
            "/dashboard/{workspace}/gateways/{policy}/try",
            get(try_request::show_form).post(try_request::try_request),
        )
}

/// The menu of a row.
const ROW_ACTIONS: &[RowAction] = &[
    RowAction { label: "Try a request", path: "try", needs: None },
    RowAction { label: "Settings", path: "settings", needs: Some(Action::UpdateGatewayPolicy) },
    RowAction { label: "Rotate secret", path: "rotate", needs: Some(Action::UpdateGatewayPolicy) },
    RowAction { label: "Delete", path: "delete", needs: Some(Action::DeleteGatewayPolicy) },
];

#[derive(Template)]
#[template(path = "gateways/list.html")]
struct PolicyListPage {
    layout: Layout,
    list: ListFrame,
    rows: Vec<PolicyTableRow>,
}

/// A policy as displayed in a list.
struct PolicyTableRow {
    id: GatewayPolicyId,
    name: String,
    apis: usize,
    rules: usize,
    changed: TimeLabel,
}

impl PolicyTableRow {
    fn new(policy: GatewayPolicy, now: Timestamp) -> Self {
        Self {
            id: policy.id,
            name: policy.name,
            apis: policy.config.api_ids.len(),
            rules: policy.config.rules.len(),
            changed: TimeLabel::new(policy.updated_at.unwrap_or(policy.created_at), now),
        }
    }
}

async fn list(request: WorkspaceRequest) -> PageResult {
    let context = &request.page_request.app.context;
    let (sort, paging) = SortLink::by_name(&request, "/gateways");
    let found = gateways::list(context, &request.caller, &paging).await?;
    let now = context.clock.now();
    let list = ListFrame::new(&request, "/gateways", found.next_start.as_deref());
    render_page(&PolicyListPage {
        layout: Layout::for_workspace(&request, Section::Gateways, "Gateways").await?,
        list: list
            .with_sort(sort)
            .with_create_form(&request, "/gateways/new", Action::CreateGatewayPolicy)
            .with_row_actions(&request, ROW_ACTIONS),
        rows: found.items.into_iter().map(|policy| PolicyTableRow::new(policy, now)).collect(),
    })
}

/// Loads a policy by its id or name.
async fn load(request: &WorkspaceRequest, named: &str) -> Result<GatewayPolicy, Error> {
    gateways::get(&request.page_request.app.context, &request.caller, named).await
}

/// Returns the path of a policy's page.
fn policy_path(request: &WorkspaceRequest, id: &GatewayPolicyId) -> String {
    request.workspace_path(&format!("/gateways/{id}"))
}
