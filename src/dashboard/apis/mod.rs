//! The pages of APIs: list, details, create and delete.

mod settings;

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal};
use foundation::id::ApiId;
use foundation::model::{Api, Networks};
use serde_json::json;

use super::failure::Failure;
use super::form::{FormErrors, split_form_errors};
use super::format::{TimeLabel, count, curl};
use super::layout::{Layout, Section, may};
use super::page_request::WorkspaceRequest;
use super::pagination::Pages;
use super::{Answer, page, redirect_to, refused_page};
use crate::domain::apis::{self, ApiWithKeyCount};
use crate::domain::page::Paging;
use crate::domain::permission::Action;
use crate::domain::users::SIZE_MAX;
use crate::rpc::v2::apis::create_api::CreateApi;
use crate::rpc::v2::apis::delete_api::DeleteApi;
use crate::rpc::v2::call;

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/apis", get(list).post(create))
        .route("/dashboard/{workspace}/apis/new", get(new))
        .route("/dashboard/{workspace}/apis/{api}", get(show))
        .route(
            "/dashboard/{workspace}/apis/{api}/settings",
            get(settings::page_of).post(settings::set),
        )
        .route("/dashboard/{workspace}/apis/{api}/delete", get(ask_delete).post(delete))
}

/// The number of APIs per page.
const PAGE: usize = 25;
/// Limits how many keys per API are counted in the list.
const KEYS_MAX: i64 = 1_000;

#[derive(Template)]
#[template(path = "apis/list.html")]
struct List<'a> {
    shell: Layout,
    workspace: String,
    rows: Vec<Row>,
    search: &'a str,
    pages: Pages,
    may_create: bool,
}

#[derive(Template)]
#[template(path = "apis/new.html")]
struct New<'a> {
    shell: Layout,
    workspace: String,
    name: &'a str,
    faults: FormErrors,
}

#[derive(Template)]
#[template(path = "apis/show.html")]
struct Show {
    shell: Layout,
    workspace: String,
    api: Row,
    prefix: Option<String>,
    bytes: Option<u8>,
    networks: Option<String>,
    is_recoverable: bool,
    example: String,
    may: May,
}

/// What the user may do with an API.
struct May {
    update: bool,
    delete: bool,
    create_key: bool,
}

#[derive(Template)]
#[template(path = "apis/delete.html")]
struct AskDelete<'a> {
    shell: Layout,
    workspace: String,
    api: Row,
    typed: &'a str,
    faults: FormErrors,
}

/// An API as displayed.
struct Row {
    id: ApiId,
    name: String,
    keys: String,
    created: TimeLabel,
    is_protected: bool,
}

impl Row {
    fn new((api, keys): ApiWithKeyCount, max: i64, now: Timestamp) -> Self {
        Self {
            id: api.id,
            name: api.name,
            keys: count(keys, max),
            created: TimeLabel::new(api.created_at, now),
            is_protected: api.settings.delete_protection,
        }
    }
}

async fn list(request: WorkspaceRequest) -> Answer {
    let app = &request.visit.app;
    let query = &request.visit.query;
    let search = query.text("q").to_owned();
    let paging = Paging { from: query.text("from").to_owned(), limit: PAGE, search };
    let found = apis::page(app, &request.caller, &paging).await?;
    let counted = apis::counted(app, &request.caller, found.items, KEYS_MAX).await?;
    let now = app.clock.now();
    page(&List {
        shell: Layout::of(&request, Section::Apis, "APIs").await?,
        workspace: request.membership.workspace_id.to_string(),
        rows: counted.into_iter().map(|counted| Row::new(counted, KEYS_MAX, now)).collect(),
        search: query.text("q"),
        pages: Pages::new(&request, &request.path("/apis"), found.next.as_deref()),
        may_create: may(&request, Action::CreateApi),
    })
}

async fn making(request: &WorkspaceRequest, faults: FormErrors) -> Result<New<'_>, Failure> {
    Ok(New {
        shell: Layout::of(request, Section::Apis, "New API").await?,
        workspace: request.membership.workspace_id.to_string(),
        name: request.visit.form.text("name"),
        faults,
    })
}

async fn new(request: WorkspaceRequest) -> Answer {
    request.caller.require(Action::CreateApi)?;
    page(&making(&request, FormErrors::default()).await?)
}

async fn create(request: WorkspaceRequest) -> Answer {
    let name = request.visit.form.text("name").trim();
    let body = json!({ "name": name });
    match split_form_errors(call::<CreateApi>(&request.visit.app, &request.caller, &body).await)? {
        Ok(api) => redirect_to(&request.path(&format!("/apis/{}?notice=api-created", api.api_id))),
        Err(faults) => refused_page(&making(&request, faults).await?),
    }
}

/// Loads an API and counts its keys.
async fn found(request: &WorkspaceRequest, id: &str) -> Result<(Api, Row), Error> {
    let app = &request.visit.app;
    let api = apis::get(app, &request.caller, &ApiId::from(id)).await?;
    let counted = apis::counted(app, &request.caller, vec![api.clone()], SIZE_MAX).await?;
    let counted = counted.into_iter().next();
    let counted =
        counted.ok_or_else(|| Error::Internal("the keys of an API were not counted".into()))?;
    Ok((api, Row::new(counted, SIZE_MAX, app.clock.now())))
}

async fn show(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let (api, row) = found(&request, &id).await?;
    let body = json!({ "apiId": api.id, "name": "my first key" }).to_string();
    page(&Show {
        shell: Layout::of(&request, Section::Apis, "API").await?,
        workspace: request.membership.workspace_id.to_string(),
        prefix: api.settings.default_prefix,
        bytes: api.settings.default_byte_length,
        networks: api.settings.allowed_networks.as_ref().map(Networks::texts).map(|n| n.join(", ")),
        is_recoverable: api.settings.recoverable_keys,
        example: curl(&request.visit.base_url, "keys.createKey", &body),
        may: May {
            update: request.caller.may_on(Action::UpdateApi, &api.id),
            delete: request.caller.may_on(Action::DeleteApi, &api.id),
            create_key: request.caller.may_on(Action::CreateKey, &api.id),
        },
        api: row,
    })
}

async fn deleting<'a>(
    request: &'a WorkspaceRequest,
    id: &str,
    faults: FormErrors,
) -> Result<AskDelete<'a>, Failure> {
    let (_, api) = found(request, id).await?;
    Ok(AskDelete {
        shell: Layout::of(request, Section::Apis, "Delete API").await?,
        workspace: request.membership.workspace_id.to_string(),
        api,
        typed: request.visit.form.text("name"),
        faults,
    })
}

async fn ask_delete(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    request.caller.require_on(Action::DeleteApi, &id)?;
    page(&deleting(&request, &id, FormErrors::default()).await?)
}

async fn delete(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    request.caller.require_on(Action::DeleteApi, &id)?;
    let mut asking = deleting(&request, &id, FormErrors::default()).await?;
    if asking.typed.trim() != asking.api.name.trim() {
        asking.faults = FormErrors::one(
            "name",
            "The name doesn't match. Enter the name of the API exactly as shown.",
        );
        return refused_page(&asking);
    }
    let body = json!({ "apiId": id });
    match call::<DeleteApi>(&request.visit.app, &request.caller, &body).await {
        Ok(_) => redirect_to(&request.path("/apis?notice=api-deleted")),
        // The reloaded page shows that the API is protected and what to do.
        Err(Error::Refused(Refusal::Protected(_))) => {
            refused_page(&deleting(&request, &id, FormErrors::default()).await?)
        }
        Err(error) => Err(error.into()),
    }
}
