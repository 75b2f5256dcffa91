//! APIs: the sets of keys that a backend accepts, made, set and deleted by people.

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

/// How many APIs a page lists, and how far their keys are counted there.
const PAGE: usize = 25;
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

/// What the person may do with an API.
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

/// An API as it is shown.
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

async fn list(asked: WorkspaceRequest) -> Answer {
    let app = &asked.visit.app;
    let query = &asked.visit.query;
    let search = query.text("q").to_owned();
    let paging = Paging { from: query.text("from").to_owned(), limit: PAGE, search };
    let found = apis::page(app, &asked.caller, &paging).await?;
    let counted = apis::counted(app, &asked.caller, found.items, KEYS_MAX).await?;
    let now = app.clock.now();
    page(&List {
        shell: Layout::of(&asked, Section::Apis, "APIs").await?,
        workspace: asked.membership.workspace_id.to_string(),
        rows: counted.into_iter().map(|counted| Row::new(counted, KEYS_MAX, now)).collect(),
        search: query.text("q"),
        pages: Pages::new(&asked, &asked.path("/apis"), found.next.as_deref()),
        may_create: may(&asked, Action::CreateApi),
    })
}

async fn making(asked: &WorkspaceRequest, faults: FormErrors) -> Result<New<'_>, Failure> {
    Ok(New {
        shell: Layout::of(asked, Section::Apis, "New API").await?,
        workspace: asked.membership.workspace_id.to_string(),
        name: asked.visit.form.text("name"),
        faults,
    })
}

async fn new(asked: WorkspaceRequest) -> Answer {
    asked.caller.require(Action::CreateApi)?;
    page(&making(&asked, FormErrors::default()).await?)
}

async fn create(asked: WorkspaceRequest) -> Answer {
    let name = asked.visit.form.text("name").trim();
    let request = json!({ "name": name });
    match split_form_errors(call::<CreateApi>(&asked.visit.app, &asked.caller, &request).await)? {
        Ok(made) => redirect_to(&asked.path(&format!("/apis/{}?notice=api-created", made.api_id))),
        Err(faults) => refused_page(&making(&asked, faults).await?),
    }
}

/// An API, and how many keys it has.
async fn found(asked: &WorkspaceRequest, id: &str) -> Result<(Api, Row), Error> {
    let app = &asked.visit.app;
    let api = apis::get(app, &asked.caller, &ApiId::from(id)).await?;
    let counted = apis::counted(app, &asked.caller, vec![api.clone()], SIZE_MAX).await?;
    let counted = counted.into_iter().next();
    let counted = counted.ok_or_else(|| Error::Internal("an API was not counted".into()))?;
    Ok((api, Row::new(counted, SIZE_MAX, app.clock.now())))
}

async fn show(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let (api, row) = found(&asked, &id).await?;
    let body = json!({ "apiId": api.id, "name": "my first key" }).to_string();
    page(&Show {
        shell: Layout::of(&asked, Section::Apis, "API").await?,
        workspace: asked.membership.workspace_id.to_string(),
        prefix: api.settings.default_prefix,
        bytes: api.settings.default_byte_length,
        networks: api.settings.allowed_networks.as_ref().map(Networks::texts).map(|n| n.join(", ")),
        is_recoverable: api.settings.recoverable_keys,
        example: curl(&asked.visit.base_url, "keys.createKey", &body),
        may: May {
            update: asked.caller.may_on(Action::UpdateApi, &api.id),
            delete: asked.caller.may_on(Action::DeleteApi, &api.id),
            create_key: asked.caller.may_on(Action::CreateKey, &api.id),
        },
        api: row,
    })
}

async fn deleting<'a>(
    asked: &'a WorkspaceRequest,
    id: &str,
    faults: FormErrors,
) -> Result<AskDelete<'a>, Failure> {
    let (_, api) = found(asked, id).await?;
    Ok(AskDelete {
        shell: Layout::of(asked, Section::Apis, "Delete an API").await?,
        workspace: asked.membership.workspace_id.to_string(),
        api,
        typed: asked.visit.form.text("name"),
        faults,
    })
}

async fn ask_delete(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    asked.caller.require_on(Action::DeleteApi, &id)?;
    page(&deleting(&asked, &id, FormErrors::default()).await?)
}

async fn delete(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    asked.caller.require_on(Action::DeleteApi, &id)?;
    let mut asking = deleting(&asked, &id, FormErrors::default()).await?;
    if asking.typed.trim() != asking.api.name.trim() {
        asking.faults =
            FormErrors::one("name", "This is not the name of the API. Type it as it stands above.");
        return refused_page(&asking);
    }
    let request = json!({ "apiId": id });
    match call::<DeleteApi>(&asked.visit.app, &asked.caller, &request).await {
        Ok(_) => redirect_to(&asked.path("/apis?notice=api-deleted")),
        // Its page says what to do about it.
        Err(Error::Refused(Refusal::Protected(_))) => {
            refused_page(&deleting(&asked, &id, FormErrors::default()).await?)
        }
        Err(error) => Err(error.into()),
    }
}
