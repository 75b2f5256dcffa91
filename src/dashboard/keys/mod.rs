//! Keys: looked for, looked at, made, changed and ended by people.

mod actions;
mod bulk;
mod create;
mod edit;
mod explain;
mod fields;
mod list;
mod show;

use askama::Template;
use axum::Router;
use axum::routing::{get, post};
use foundation::clock::Timestamp;
use foundation::error::{Error, FieldError, Result, Subject};
use foundation::id::{ApiId, KeyId};
use serde_json::json;

use super::format::{TimeLabel, curl};
use super::layout::{Layout, Section};
use super::page_request::WorkspaceRequest;
use super::{Answer, page};
use crate::domain::apis;
use crate::domain::keys::details::KeyStatus;
use crate::domain::page::Paging;
use crate::rpc::IssuedReply;

pub fn routes() -> Router {
    let of_key = |rest: &str| format!("/dashboard/{{workspace}}/keys/{{key}}{rest}");
    Router::new()
        .route("/dashboard/{workspace}/keys", get(list::list).post(create::create))
        .route("/dashboard/{workspace}/keys/new", get(create::new))
        .route("/dashboard/{workspace}/keys/find", post(list::find))
        .route("/dashboard/{workspace}/keys/why", get(explain::page_of))
        .route("/dashboard/{workspace}/keys/bulk", post(bulk::ask))
        .route("/dashboard/{workspace}/keys/bulk/do", post(bulk::run))
        .route(&of_key(""), get(show::show))
        .route(&of_key("/edit"), get(edit::ask).post(edit::save))
        .route(&of_key("/credits"), post(edit::credits))
        .route(&of_key("/enabled"), post(actions::set_enabled))
        .route(&of_key("/reroll"), get(actions::ask_reroll).post(actions::reroll))
        .route(&of_key("/delete"), get(actions::ask_delete).post(actions::delete))
}

/// What the person may do with keys.
struct May {
    /// To re-roll one is to make one.
    create: bool,
    update: bool,
    delete: bool,
}

/// How many APIs can be chosen from; who has more comes from the page of the API.
const APIS: usize = 100;

/// A key that has just been issued.
#[derive(Template)]
#[template(path = "keys/created.html")]
struct Made {
    shell: Layout,
    workspace: String,
    id: KeyId,
    name: String,
    secret: String,
    example: String,
    /// When the one that it replaces ends.
    old_ends: Option<TimeLabel>,
}

/// Shows a new key, this once.
async fn made(
    asked: &WorkspaceRequest,
    issued: &IssuedReply,
    name: &str,
    old_ends: Option<Timestamp>,
) -> Answer {
    let now = asked.visit.app.clock.now();
    let secret = issued.key.expose().to_owned();
    let body = json!({ "key": secret }).to_string();
    page(&Made {
        shell: Layout::of(asked, Section::Keys, "Your new key").await?,
        workspace: asked.membership.workspace_id.to_string(),
        id: issued.key_id.clone(),
        name: name.to_owned(),
        example: curl(&asked.visit.base_url, "keys.verifyKey", &body),
        secret,
        old_ends: old_ends.map(|at| TimeLabel::new(at, now)),
    })
}

/// A state as people say it.
fn spoken(state: KeyStatus) -> &'static str {
    match state {
        KeyStatus::Active => "active",
        KeyStatus::Disabled => "disabled",
        KeyStatus::Expired => "expired",
        KeyStatus::Exhausted => "no credits left",
    }
}

/// A choice of a list.
pub struct Choice {
    pub value: String,
    pub label: String,
    pub is_chosen: bool,
}

/// The APIs that can be chosen, and the one that has been, wherever it stands.
pub async fn choices(asked: &WorkspaceRequest, chosen: &str) -> Result<Vec<Choice>> {
    let (app, caller) = (&asked.visit.app, &asked.caller);
    let paging = Paging { limit: APIS, ..Paging::default() };
    let mut apis = apis::page(app, caller, &paging).await?.items;
    if !chosen.is_empty() && apis.iter().all(|api| api.id.as_str() != chosen) {
        apis.insert(0, apis::get(app, caller, &ApiId::from(chosen)).await?);
    }
    let choice = |api: foundation::model::Api| Choice {
        is_chosen: api.id.as_str() == chosen,
        value: api.id.to_string(),
        label: api.name,
    };
    Ok(apis.into_iter().map(choice).collect())
}

/// A role or a permission that is not there is a fault of the field that names it.
fn misnamed(error: Error) -> Error {
    let is_role = |subject: &Subject| matches!(subject, Subject::Role(_));
    let is_named =
        |subject: &Subject| is_role(subject) || matches!(subject, Subject::Permission(_));
    match error {
        Error::NotFound(subjects) if subjects.iter().all(is_named) => {
            let fault = |subject: &Subject| FieldError {
                location: if is_role(subject) { "roles" } else { "permissions" }.to_owned(),
                message: format!("{subject} does not exist: make it first"),
                fix: None,
            };
            Error::Invalid(subjects.iter().map(fault).collect())
        }
        other => other,
    }
}

/// Where a key has its page.
fn path(asked: &WorkspaceRequest, id: &impl std::fmt::Display, rest: &str) -> String {
    asked.path(&format!("/keys/{id}{rest}"))
}
