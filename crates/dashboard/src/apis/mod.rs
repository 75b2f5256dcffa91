//! The pages of APIs: list, details, create and delete.

mod settings;

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use domain::apis::{self, ApiWithKeyCount};
use domain::bounds::{API_NAME_MAX, API_NAME_MIN};
use domain::page::COUNT_MAX;
use domain::permission::Action;
use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal};
use foundation::id::ApiId;
use foundation::model::{AllowedChars, Api, Networks};
use serde_json::json;

use super::analytics::{Selection, UsageSection};
use super::failure::Failure;
use super::field_reader::FieldReader;
use super::form::{FormErrors, split_form_errors};
use super::format::{TimeLabel, curl_command, format_count};
use super::layout::{Layout, Section, is_allowed};
use super::list_frame::{ListFrame, RowAction};
use super::one_time_form::create_once;
use super::page_request::WorkspaceRequest;
use super::sort_link::SortLink;
use super::{PageResult, redirect_to, render_invalid_page, render_page};

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/apis", get(list).post(create))
        .route("/dashboard/{workspace}/apis/new", get(show_form))
        .route("/dashboard/{workspace}/apis/{api}", get(show))
        .route(
            "/dashboard/{workspace}/apis/{api}/settings",
            get(settings::show).post(settings::save),
        )
        .route("/dashboard/{workspace}/apis/{api}/delete", get(confirm_delete).post(delete))
}

/// Limits how many keys per API are counted in the list.
const KEYS_COUNTED_MAX: i64 = 1_000;

/// The menu of a row.
const ROW_ACTIONS: &[RowAction] = &[
    RowAction { label: "Settings", path: "settings", needs: Some(Action::UpdateApi) },
    RowAction { label: "Delete", path: "delete", needs: Some(Action::DeleteApi) },
];

#[derive(Template)]
#[template(path = "apis/list.html")]
struct ApiListPage {
    layout: Layout,
    list: ListFrame,
    rows: Vec<ApiTableRow>,
}

#[derive(Template)]
#[template(path = "apis/new.html")]
struct NewApiPage<'a> {
    layout: Layout,
    workspace: String,
    name: &'a str,
    errors: FormErrors,
}

#[derive(Template)]
#[template(path = "apis/show.html")]
struct ApiPage {
    layout: Layout,
    workspace: String,
    api: ApiTableRow,
    prefix: Option<String>,
    bytes: Option<u8>,
    networks: Option<String>,
    is_recoverable: bool,
    usage: UsageSection,
    example: String,
    /// The path of the form of a root key that verifies keys of the API; `None` if the user may not create one.
    root_key_path: Option<String>,
    may: ApiAccess,
}

/// What the user may do with an API.
struct ApiAccess {
    update: bool,
    delete: bool,
    create_key: bool,
}

#[derive(Template)]
#[template(path = "apis/delete.html")]
struct DeleteApiPage<'a> {
    layout: Layout,
    workspace: String,
    api: ApiTableRow,
    typed_name: &'a str,
    errors: FormErrors,
}

/// An API as displayed.
struct ApiTableRow {
    id: ApiId,
    name: String,
    keys: String,
    created: TimeLabel,
    is_protected: bool,
}

impl ApiTableRow {
    fn new((api, keys): ApiWithKeyCount, max: i64, now: Timestamp) -> Self {
        Self {
            id: api.id,
            name: api.name,
            keys: format_count(keys, max),
            created: TimeLabel::new(api.created_at, now),
            is_protected: api.settings.is_delete_protected,
        }
    }
}

async fn list(request: WorkspaceRequest) -> PageResult {
    let app = &request.page_request.app;
    let (sort, paging) = SortLink::by_name(&request, "/apis");
    let found = apis::list_for_caller(&app.context, &request.caller, &paging).await?;
    let counted =
        apis::add_key_counts(&app.context, &request.caller, found.items, KEYS_COUNTED_MAX).await?;
    let now = app.context.clock.now();
    let list = ListFrame::new(&request, "/apis", found.next_start.as_deref());
    render_page(&ApiListPage {
        layout: Layout::for_workspace(&request, Section::Apis, "APIs").await?,
        list: list
            .with_sort(sort)
            .with_create_form(&request, "/apis/new", Action::CreateApi)
            .with_row_actions(&request, ROW_ACTIONS),
        rows: counted
            .into_iter()
            .map(|counted| ApiTableRow::new(counted, KEYS_COUNTED_MAX, now))
            .collect(),
    })
}

async fn build_form(
    request: &WorkspaceRequest,
    errors: FormErrors,
) -> Result<NewApiPage<'_>, Failure> {
    Ok(NewApiPage {
        layout: Layout::for_workspace(request, Section::Apis, "Create API").await?,
        workspace: request.membership.workspace_id.to_string(),
        name: request.page_request.form.text("name"),
        errors,
    })
}

async fn show_form(request: WorkspaceRequest) -> PageResult {
    request.caller.require(Action::CreateApi)?;
    render_page(&build_form(&request, FormErrors::default()).await?)
}

async fn create(request: WorkspaceRequest) -> PageResult {
    match split_form_errors(create_once(&request, create_from_form(&request)).await)? {
        Ok(id) => redirect_to(&request.workspace_path(&format!("/apis/{id}?notice=api-created"))),
        Err(errors) => render_invalid_page(&build_form(&request, errors).await?),
    }
}

/// Creates the API that the form names.
pub async fn create_from_form(request: &WorkspaceRequest) -> Result<ApiId, Error> {
    let mut fields = FieldReader::default();
    let (name, lengths) = (request.page_request.form.text("name"), API_NAME_MIN..=API_NAME_MAX);
    let name = fields.text("name", name.trim(), lengths, AllowedChars::Printable);
    let (context, name) = (&request.page_request.app.context, fields.finish(name)?);
    apis::create(context, &request.caller, name).await
}

/// Loads an API and counts its keys.
async fn load(request: &WorkspaceRequest, id: &str) -> Result<(Api, ApiTableRow), Error> {
    let app = &request.page_request.app;
    let api = apis::get(&app.context, &request.caller, &ApiId::from(id)).await?;
    let counted =
        apis::add_key_counts(&app.context, &request.caller, vec![api.clone()], COUNT_MAX).await?;
    let counted = counted.into_iter().next();
    let counted =
        counted.ok_or_else(|| Error::Internal("the keys of an API were not counted".into()))?;
    Ok((api, ApiTableRow::new(counted, COUNT_MAX, app.context.clock.now())))
}

async fn show(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    let (api, row) = load(&request, &id).await?;
    let body = json!({ "apiId": api.id, "name": "my first key" }).to_string();
    render_page(&ApiPage {
        layout: Layout::for_workspace(&request, Section::Apis, "APIs").await?.about(&row.name),
        workspace: request.membership.workspace_id.to_string(),
        prefix: api.settings.default_prefix,
        bytes: api.settings.default_byte_length,
        networks: api
            .settings
            .allowed_networks
            .as_ref()
            .map(Networks::to_strings)
            .map(|n| n.join(", ")),
        is_recoverable: api.settings.allows_recoverable_keys,
        usage: UsageSection::load(&request, &Selection::api(&api.id)).await,
        example: curl_command(&request.page_request.base_url, "keys.createKey", &body),
        root_key_path: is_allowed(&request, Action::CreateRootKey).then(|| {
            request.workspace_path(&format!("/root-keys/new?preset=verify&add=api+{}", api.id))
        }),
        may: ApiAccess {
            update: request.caller.is_allowed_on(Action::UpdateApi, &api.id),
            delete: request.caller.is_allowed_on(Action::DeleteApi, &api.id),
            create_key: request.caller.is_allowed_on(Action::CreateKey, &api.id),
        },
        api: row,
    })
}

async fn build_delete_form<'a>(
    request: &'a WorkspaceRequest,
    id: &str,
    errors: FormErrors,
) -> Result<DeleteApiPage<'a>, Failure> {
    let (_, api) = load(request, id).await?;
    Ok(DeleteApiPage {
        layout: Layout::for_workspace(request, Section::Apis, "Delete API").await?.about(&api.name),
        workspace: request.membership.workspace_id.to_string(),
        api,
        typed_name: request.page_request.form.text("name"),
        errors,
    })
}

async fn confirm_delete(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    request.caller.require_on(Action::DeleteApi, &id)?;
    render_page(&build_delete_form(&request, &id, FormErrors::default()).await?)
}

async fn delete(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    request.caller.require_on(Action::DeleteApi, &id)?;
    let mut asking = build_delete_form(&request, &id, FormErrors::default()).await?;
    if asking.typed_name.trim() != asking.api.name.trim() {
        asking.errors = FormErrors::single(
            "name",
            "The name doesn't match. Enter the name of the API exactly as shown.",
        );
        return render_invalid_page(&asking);
    }
    let context = &request.page_request.app.context;
    match apis::delete(context, &request.caller, &ApiId::from(id.as_str())).await {
        Ok(()) => redirect_to(&request.workspace_path("/apis?notice=api-deleted")),
        // The reloaded page shows that the API is protected and what to do.
        Err(Error::PreconditionFailed(Refusal::DeleteProtected(_))) => {
            render_invalid_page(&build_delete_form(&request, &id, FormErrors::default()).await?)
        }
        Err(error) => Err(error.into()),
    }
}
