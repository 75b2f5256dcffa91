//! The settings of a workspace, and what the server is configured to do for all of its workspaces.

use askama::Template;
use axum::Router;
use axum::routing::get;
use domain::permission::Action;
use domain::workspaces::{self, Workspace};
use foundation::config::{Deployment, Settings};
use foundation::model::Retention;

use super::failure::Failure;
use super::form::{FormErrors, split_form_errors};
use super::format::{TimeLabel, format_quantity};
use super::layout::{Layout, Section, is_allowed};
use super::page_request::WorkspaceRequest;
use super::{PageResult, redirect_to, render_invalid_page, render_page};

pub fn routes() -> Router {
    Router::new().route("/dashboard/{workspace}/workspace", get(show).post(rename))
}

#[derive(Template)]
#[template(path = "workspace.html")]
struct WorkspacePage {
    layout: Layout,
    workspace: Workspace,
    created: TimeLabel,
    role: &'static str,
    may_rename: bool,
    /// The name in the form, as submitted.
    name: String,
    errors: FormErrors,
    server: ServerFacts,
}

/// What the server is configured to do, in words.
struct ServerFacts {
    version: &'static str,
    storage: &'static str,
    rate_limiter: &'static str,
    region: String,
    has_vault: bool,
    verification_events: String,
    limit_events: String,
    has_clickhouse: bool,
    has_single_sign_on: bool,
}

impl ServerFacts {
    fn new(settings: &Settings, has_vault: bool) -> Self {
        let (storage, rate_limiter) = match settings.deployment {
            Deployment::Embedded { .. } => ("SQLite, on this server", "In this server"),
            Deployment::Replica { .. } => ("Postgres", "Redis"),
        };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            storage,
            rate_limiter,
            region: settings.region.clone(),
            has_vault,
            verification_events: describe_retention(&settings.retention.verifications),
            limit_events: describe_retention(&settings.retention.ratelimits),
            has_clickhouse: settings.clickhouse_url.is_some(),
            has_single_sign_on: settings.oidc.is_some(),
        }
    }
}

fn describe_retention(retention: &Retention) -> String {
    let days = |days: i64| format_quantity(days, i64::MAX, "day");
    let longest = days(retention.longest_days().into());
    format!("{}; charts go back {longest}", days(retention.raw_days.into()))
}

async fn show(request: WorkspaceRequest) -> PageResult {
    render_page(&build_page(&request, None, FormErrors::default()).await?)
}

async fn rename(request: WorkspaceRequest) -> PageResult {
    let context = &request.page_request.app.context;
    let name = request.page_request.form.text("name").trim();
    match split_form_errors(workspaces::rename(context, &request.caller, name).await)? {
        Ok(()) => redirect_to(&request.workspace_path("/workspace?notice=workspace-renamed")),
        Err(errors) => render_invalid_page(&build_page(&request, Some(name), errors).await?),
    }
}

async fn build_page(
    request: &WorkspaceRequest,
    submitted_name: Option<&str>,
    errors: FormErrors,
) -> Result<WorkspacePage, Failure> {
    let context = &request.page_request.app.context;
    let workspace = workspaces::get(context, &request.caller).await?;
    Ok(WorkspacePage {
        layout: Layout::for_workspace(request, Section::Workspace, "Workspace")
            .await?
            .about(&workspace.name),
        created: TimeLabel::new(workspace.created_at, context.clock.now()),
        role: request.membership.role.as_str(),
        may_rename: is_allowed(request, Action::RenameWorkspace),
        name: submitted_name.unwrap_or(&workspace.name).to_owned(),
        errors,
        server: ServerFacts::new(&context.settings, context.master_keys.load().is_some()),
        workspace,
    })
}
