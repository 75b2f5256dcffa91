//! How a role is called, and what it is for.

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;

use super::super::failure::Failure;
use super::super::form::{Faults, tried};
use super::super::shell::{Section, Shell};
use super::super::visit::InWorkspace;
use super::super::{Answer, page, refused_page, see};
use super::roles::found;
use crate::domain::permission::Action;
use crate::domain::rbac::{self, RoleChange};
use crate::model::Role;

pub fn routes() -> Router {
    Router::new().route("/dashboard/{workspace}/roles/{role}/settings", get(ask).post(set))
}

#[derive(Template)]
#[template(path = "permissions/role_settings.html")]
struct Settings {
    shell: Shell,
    path: String,
    title: String,
    name: String,
    description: String,
    /// What was there when the form was made: who leaves a field alone sets nothing back.
    was: (String, String),
    faults: Faults,
}

async fn shown(
    asked: &InWorkspace,
    role: Role,
    filled: Option<(String, String)>,
    was: Option<(String, String)>,
    faults: Faults,
) -> Result<Settings, Failure> {
    let there = (role.name.clone(), role.description.unwrap_or_default());
    let (name, description) = filled.unwrap_or_else(|| there.clone());
    Ok(Settings {
        shell: Shell::of(asked, Section::Permissions, "Settings of a role").await?,
        path: asked.path(&format!("/roles/{}", role.id)),
        title: role.name,
        name,
        description,
        was: was.unwrap_or(there),
        faults,
    })
}

async fn ask(asked: InWorkspace, Path((_, named)): Path<(String, String)>) -> Answer {
    asked.caller.require(Action::UpdateRole)?;
    let role = found(&asked, &named).await?;
    page(&shown(&asked, role, None, None, Faults::default()).await?)
}

async fn set(asked: InWorkspace, Path((_, named)): Path<(String, String)>) -> Answer {
    let form = &asked.visit.form;
    let text = |name: &str| form.text(name).trim().to_owned();
    let (filled, was) =
        ((text("name"), text("description")), (text("was-name"), text("was-description")));
    let role = found(&asked, &named).await?;
    let changed = |now: &String, was: &String| (now != was).then(|| now.clone());
    let change =
        RoleChange { name: changed(&filled.0, &was.0), description: changed(&filled.1, &was.1) };
    let set = rbac::change_role(&asked.visit.app, &asked.caller, &role.id, change).await;
    match tried(set)? {
        Ok(_) => see(&asked.path(&format!("/roles/{}?told=role", role.id))),
        Err(faults) => refused_page(&shown(&asked, role, Some(filled), Some(was), faults).await?),
    }
}
