//! The first steps in a workspace: an API, a root key, a key, and a verification, each on the spot.

mod create;
mod recent;
mod snippets;
mod verify;

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use domain::first_steps::{self, FirstStep, FirstSteps};
use domain::keys::{self, DecryptMode};
use domain::permission::Action;
use domain::{root_keys, users};
use foundation::error::Error;
use foundation::id::KeyId;
use recent::RecentVerifications;
use snippets::Snippet;
use verify::VerificationOutcome;

use super::failure::Failure;
use super::form::FormErrors;
use super::keys::{SelectOption, load_api_options};
use super::layout::{Layout, Section, is_allowed};
use super::one_time_form::{render_secret_page, take_secret};
use super::page_request::WorkspaceRequest;
use super::{PageResult, form_page, render_page};

pub fn routes() -> Router {
    let at = |rest: &str| format!("/dashboard/{{workspace}}/get-started{rest}");
    Router::new()
        .route(&at(""), get(show))
        .route(&at("/api"), form_page(1, "").post(create::create_api))
        .route(&at("/root-key"), form_page(1, "").post(create::create_root_key))
        .route(&at("/key"), form_page(1, "").post(create::create_key))
        .route(&at("/verify"), form_page(1, "").post(verify::verify))
        .route(&at("/root-keys/{key}/secret/{form}"), get(show_root_key))
        .route(&at("/keys/{key}/secret/{form}"), get(show_key))
}

#[derive(Template)]
#[template(path = "get_started/page.html")]
struct GetStartedPage {
    layout: Layout,
    path: String,
    workspace: String,
    steps: FirstSteps,
    /// The APIs to select from, by name.
    apis: Vec<SelectOption>,
    has_more_apis: bool,
    /// The steps that the user may take.
    may: FirstSteps,
    /// The name of the API, as submitted.
    api_name: String,
    /// The root key that was just created, or the reason why it cannot be shown.
    root_key: Option<Result<String, &'static str>>,
    /// The same of the key.
    key: Option<Result<String, &'static str>>,
    /// The key to verify.
    verified_key: String,
    errors: FormErrors,
    outcome: Option<VerificationOutcome>,
    recent: Option<RecentVerifications>,
    snippets: Vec<Snippet>,
}

/// Returns the first steps that have been completed. `None` if the events cannot be read.
pub async fn find_first_steps(
    request: &WorkspaceRequest,
    counts: &users::ResourceCounts,
) -> Option<FirstSteps> {
    let app = &request.page_request.app;
    let found = first_steps::find(&app.context, &app.analytics, &request.caller, counts).await;
    match found {
        Ok(steps) => Some(steps),
        Err(error) => {
            tracing::warn!(error = %error, "failed to find the completed first steps: {error}");
            None
        }
    }
}

impl GetStartedPage {
    /// Creates the page. The snippets contain `base_url`, under which the browser reaches this server.
    async fn new(request: &WorkspaceRequest, base_url: &str) -> Result<Self, Failure> {
        let context = &request.page_request.app.context;
        let counts = users::count_resources(context, &request.caller).await?;
        let steps = find_first_steps(request, &counts).await;
        let steps = steps.unwrap_or_else(|| {
            FirstSteps::filter(|step| match step {
                FirstStep::CreateApi => counts.apis > 0,
                FirstStep::CreateKey => counts.keys > 0,
                FirstStep::CreateRootKey | FirstStep::VerifyKey => false,
            })
        });
        let may = FirstSteps::filter(|step| {
            let action = match step {
                FirstStep::CreateApi => Action::CreateApi,
                FirstStep::CreateRootKey => Action::CreateRootKey,
                FirstStep::CreateKey => Action::CreateKey,
                FirstStep::VerifyKey => Action::VerifyKey,
            };
            is_allowed(request, action)
        });
        let apis = load_api_options(request, "").await?;
        Ok(Self {
            layout: Layout::for_workspace(request, Section::Overview, "Get started").await?,
            path: request.workspace_path("/get-started"),
            workspace: request.membership.workspace_id.to_string(),
            steps,
            apis: apis.options,
            has_more_apis: apis.has_more,
            may,
            api_name: String::new(),
            root_key: None,
            key: None,
            verified_key: String::new(),
            errors: FormErrors::default(),
            outcome: None,
            recent: None,
            snippets: snippets::build(base_url, None),
        })
    }
}

async fn show(request: WorkspaceRequest) -> PageResult {
    let mut page = GetStartedPage::new(&request, &request.page_request.base_url).await?;
    page.recent = RecentVerifications::from_query(&request).await?;
    render_page(&page)
}

/// Shows the root key that was just created, once.
async fn show_root_key(
    request: WorkspaceRequest,
    Path((_, id, form_id)): Path<(String, String, String)>,
) -> PageResult {
    let context = &request.page_request.app.context;
    let root_key = root_keys::get(context, &request.caller, &KeyId::from(id)).await?.key;
    show_secret(&request, &root_key.id, form_id, |page, secret| page.root_key = Some(secret)).await
}

/// Shows the key that was just created, once, and offers to verify it.
async fn show_key(
    request: WorkspaceRequest,
    Path((_, id, form_id)): Path<(String, String, String)>,
) -> PageResult {
    let (app, id) = (&request.page_request.app, KeyId::from(id));
    keys::get(&app.keys, &request.caller, &id, DecryptMode::None).await?;
    show_secret(&request, &id, form_id, |page, secret| {
        page.verified_key = secret.clone().unwrap_or_default();
        page.key = Some(secret);
    })
    .await
}

/// Shows the page with the secret of what a form created.
async fn show_secret(
    request: &WorkspaceRequest,
    id: &KeyId,
    form_id: String,
    add: impl FnOnce(&mut GetStartedPage, Result<String, &'static str>),
) -> PageResult {
    let taken = take_secret(request, id.as_str(), form_id).await?;
    let (base_url, secret) = match taken {
        Ok(secret) => (secret.base_url, Ok(secret.plaintext.expose().to_owned())),
        Err(reason) => (request.page_request.base_url.clone(), Err(reason)),
    };
    let is_shown = secret.is_ok();
    let mut page = GetStartedPage::new(request, &base_url).await?;
    add(&mut page, secret);
    if !page.verified_key.is_empty() {
        page.snippets = snippets::build(&base_url, Some(&page.verified_key));
    }
    render_secret_page(&page, is_shown)
}

/// Returns the API of a form, or an error if it names none.
fn require_api(request: &WorkspaceRequest) -> Result<foundation::id::ApiId, Error> {
    match request.page_request.form.text("api") {
        "" => Err(Error::invalid("api", "select an API")),
        api => Ok(api.into()),
    }
}
