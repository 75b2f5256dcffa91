//! The settings of a role: name and description.

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use foundation::model::Role;

use super::super::failure::Failure;
use super::super::form::{FormErrors, split_form_errors};
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{Answer, page, redirect_to, refused_page};
use super::roles::found;
use crate::domain::permission::Action;
use crate::domain::rbac::{self, RoleChange};

pub fn routes() -> Router {
    Router::new().route("/dashboard/{workspace}/roles/{role}/settings", get(ask).post(set))
}

#[derive(Template)]
#[template(path = "permissions/role_settings.html")]
struct Settings {
    shell: Layout,
    path: String,
    title: String,
    name: String,
    description: String,
    /// The original values, so that concurrent changes of untouched fields are kept.
    was: (String, String),
    faults: FormErrors,
}

async fn shown(
    request: &WorkspaceRequest,
    role: Role,
    filled: Option<(String, String)>,
    was: Option<(String, String)>,
    faults: FormErrors,
) -> Result<Settings, Failure> {
    let stored = (role.name.clone(), role.description.unwrap_or_default());
    let (name, description) = filled.unwrap_or_else(|| stored.clone());
    Ok(Settings {
        shell: Layout::of(request, Section::Permissions, "Role settings").await?,
        path: request.path(&format!("/roles/{}", role.id)),
        title: role.name,
        name,
        description,
        was: was.unwrap_or(stored),
        faults,
    })
}

async fn ask(request: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> Answer {
    request.caller.require(Action::UpdateRole)?;
    let role = found(&request, &named).await?;
    page(&shown(&request, role, None, None, FormErrors::default()).await?)
}

async fn set(request: WorkspaceRequest, Path((_, named)): Path<(String, String)>) -> Answer {
    let form = &request.visit.form;
    let text = |name: &str| form.text(name).trim().to_owned();
    let (filled, was) =
        ((text("name"), text("description")), (text("was-name"), text("was-description")));
    let role = found(&request, &named).await?;
    let changed = |now: &String, was: &String| (now != was).then(|| now.clone());
    let change =
        RoleChange { name: changed(&filled.0, &was.0), description: changed(&filled.1, &was.1) };
    let set = rbac::change_role(&request.visit.app, &request.caller, &role.id, change).await;
    match split_form_errors(set)? {
        Ok(_) => redirect_to(&request.path(&format!("/roles/{}?notice=role", role.id))),
        Err(faults) => refused_page(&shown(&request, role, Some(filled), Some(was), faults).await?),
    }
}
