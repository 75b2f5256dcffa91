//! The pages of keys: list, search, details, create, edit, rotate and delete.

mod actions;
mod bulk;
mod bulk_undo;
mod commands;
mod create;
mod created;
mod credits;
mod deleted;
mod edit;
mod explain;
mod fields;
mod list;
mod name_choice;
mod reveal;
mod search;
mod show;

pub use create::issue_named;
pub use explain::explain_outcome;
pub use fields::mark;
pub use search::{answer_live_search, find_full_key, may_be_full_key};
pub use show::VerificationEventRow;

use axum::Router;
use axum::routing::{get, post};
use domain::apis;
use domain::keys::details::KeyStatus;
use domain::page::Paging;
use foundation::error::{Error, FieldError, ResourceRef, Result};
use foundation::id::ApiId;

use super::form_page;
use super::page_request::WorkspaceRequest;

pub fn routes() -> Router {
    let of_key = |rest: &str| format!("/dashboard/{{workspace}}/keys/{{key}}{rest}");
    Router::new()
        .route("/dashboard/{workspace}/keys", get(list::list).post(create::create))
        .route("/dashboard/{workspace}/keys/new", get(create::show_form))
        .route("/dashboard/{workspace}/keys/search", get(list::list).post(search::search))
        .route("/dashboard/{workspace}/keys/search/live", post(search::search_live))
        .route("/dashboard/{workspace}/keys/why", get(explain::show))
        .route("/dashboard/{workspace}/keys/bulk", form_page(1, "").post(bulk::confirm))
        .route("/dashboard/{workspace}/keys/bulk/do", form_page(2, "").post(bulk::run))
        .route("/dashboard/{workspace}/keys/bulk/undo", form_page(2, "").post(bulk_undo::undo))
        .route(&of_key(""), get(show::show))
        .route(&of_key("/secret/{form}"), get(created::show))
        .route(&of_key("/reveal"), form_page(1, "").post(reveal::show))
        .route(&of_key("/edit"), get(edit::show_form).post(edit::save))
        .route(&of_key("/credits"), get(credits::show_form).post(credits::update))
        .route(&of_key("/enabled"), form_page(1, "").post(actions::set_enabled))
        .route(&of_key("/reroll"), get(actions::show_rotate_form).post(actions::rotate))
        .route(&of_key("/restore"), form_page(1, "").post(deleted::restore))
        .route(&of_key("/delete"), get(actions::confirm_delete).post(actions::delete))
}

/// What the user may do with keys.
struct KeyAccess {
    /// Also required to rotate a key.
    create: bool,
    update: bool,
    delete: bool,
}

/// The maximum number of APIs in a select. The page of an API links to the form for any other.
pub const APIS_MAX: usize = 100;

/// Returns what a page calls a key: its name, if it has one. Its start or ID stands beside.
pub fn key_title(name: Option<String>) -> String {
    name.unwrap_or_else(|| "Unnamed key".to_owned())
}

/// Returns the label of a key status.
pub fn status_label(state: KeyStatus) -> &'static str {
    match state {
        KeyStatus::Active => "Active",
        KeyStatus::Disabled => "Disabled",
        KeyStatus::Expired => "Expired",
        KeyStatus::Exhausted => "Credits exhausted",
    }
}

/// An option of a select.
pub struct SelectOption {
    pub value: String,
    pub label: String,
    pub is_selected: bool,
}

/// The APIs to choose from.
pub struct ApiOptions {
    pub options: Vec<SelectOption>,
    /// Whether more APIs exist than are offered.
    pub has_more: bool,
}

/// Returns the APIs to choose from, including the chosen one even if it is beyond the maximum.
pub async fn load_api_options(request: &WorkspaceRequest, chosen: &str) -> Result<ApiOptions> {
    let (app, caller) = (&request.page_request.app, &request.caller);
    let paging = Paging::first_by_name(APIS_MAX);
    let found = apis::list_for_caller(&app.context, caller, &paging).await?;
    let (mut apis, has_more) = (found.items, found.next_start.is_some());
    if !chosen.is_empty() && apis.iter().all(|api| api.id.as_str() != chosen) {
        apis.insert(0, apis::get(&app.context, caller, &ApiId::from(chosen)).await?);
    }
    let choice = |api: foundation::model::Api| SelectOption {
        is_selected: api.id.as_str() == chosen,
        value: api.id.to_string(),
        label: api.name,
    };
    Ok(ApiOptions { options: apis.into_iter().map(choice).collect(), has_more })
}

/// Converts "not found" of a role or permission into an error of the form field that names it.
fn field_error_from_not_found(error: Error) -> Error {
    let is_role = |subject: &ResourceRef| matches!(subject, ResourceRef::Role(_));
    let is_named =
        |subject: &ResourceRef| is_role(subject) || matches!(subject, ResourceRef::Permission(_));
    match error {
        Error::NotFound(subjects) if subjects.iter().all(is_named) => {
            let fault = |subject: &ResourceRef| FieldError {
                location: if is_role(subject) { "roles" } else { "permissions" }.to_owned(),
                message: format!("{subject} does not exist; create it first"),
                fix: None,
            };
            Error::Invalid(subjects.iter().map(fault).collect())
        }
        other => other,
    }
}

/// Returns the path of a key's page.
fn key_path(request: &WorkspaceRequest, id: &impl std::fmt::Display, rest: &str) -> String {
    request.workspace_path(&format!("/keys/{id}{rest}"))
}
