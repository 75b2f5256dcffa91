//! The settings of a role: name and description.

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use domain::permission::Action;
use domain::rbac::{self, RoleChange};
use foundation::model::Role;

use super::super::failure::Failure;
use super::super::form::{FormErrors, split_form_errors};
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, redirect_to, render_invalid_page, render_page};
use super::roles::load;

pub fn routes() -> Router {
    Router::new().route("/dashboard/{workspace}/roles/{role}/settings", get(show_form).post(save))
}

#[derive(Template)]
#[template(path = "permissions/role_settings.html")]
struct RoleSettingsPage {
    layout: Layout,
    path: String,
    title: String,
    name: String,
    description: String,
    /// The original values, so that concurrent changes of untouched fields are kept.
    original: (String, String),
    errors: FormErrors,
}

async fn build_form(
    request: &WorkspaceRequest,
    role: Role,
    filled: Option<(String, String)>,
    was: Option<(String, String)>,
    errors: FormErrors,
) -> Result<RoleSettingsPage, Failure> {
    let stored = (role.name.clone(), role.description.unwrap_or_default());
    let (name, description) = filled.unwrap_or_else(|| stored.clone());
    Ok(RoleSettingsPage {
        layout: Layout::for_workspace(request, Section::Permissions, "Role settings")
            .await?
            .about(&role.name),
        path: request.workspace_path(&format!("/roles/{}", role.id)),
        title: role.name,
        name,
        description,
        original: was.unwrap_or(stored),
        errors,
    })
}

async fn show_form(
    request: WorkspaceRequest,
    Path((_, named)): Path<(String, String)>,
) -> PageResult {
    request.caller.require(Action::UpdateRole)?;
    let role = load(&request, &named).await?;
    render_page(&build_form(&request, role, None, None, FormErrors::default()).await?)
}

async fn save(request: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> PageResult {
    let form = &request.page_request.form;
    let text = |name: &str| form.text(name).trim().to_owned();
    let (filled, was) =
        ((text("name"), text("description")), (text("was-name"), text("was-description")));
    let role = load(&request, &named).await?;
    let changed = |now: &String, was: &String| (now != was).then(|| now.clone());
    let change =
        RoleChange { name: changed(&filled.0, &was.0), description: changed(&filled.1, &was.1) };
    let set =
        rbac::update_role(&request.page_request.app.context, &request.caller, &role.id, change)
            .await;
    match split_form_errors(set)? {
        Ok(_) => redirect_to(&request.workspace_path(&format!("/roles/{}?notice=role", role.id))),
        Err(errors) => {
            render_invalid_page(&build_form(&request, role, Some(filled), Some(was), errors).await?)
        }
    }
}
