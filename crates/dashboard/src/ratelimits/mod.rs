//! The pages of rate-limit namespaces: list, details, overrides, outage policy and simulator.

mod outage_policy;
mod overrides;
mod simulator;

pub use overrides::format_rate;

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use domain::page::{PageOrder, Paging};
use domain::permission::Action;
use domain::ratelimits::{namespaces, overrides as domain_overrides};
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::NamespaceId;
use foundation::model::{Namespace, OutagePolicy};
use futures_util::TryFutureExt as _;

use super::analytics::{IdentifierSection, Selection, UsageSection};
use super::confirm::ConfirmPage;
use super::failure::Failure;
use super::form::{FormErrors, split_form_errors};
use super::format::{TimeLabel, format_count};
use super::layout::{Layout, Section};
use super::list_frame::{ListFrame, RowAction};
use super::one_time_form::create_once;
use super::page_request::WorkspaceRequest;
use super::pagination::{PageLinks, paging_from_query};
use super::sort_link::SortLink;
use super::{PageResult, redirect_to, render_invalid_page, render_page};

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/ratelimits", get(list).post(create))
        .route("/dashboard/{workspace}/ratelimits/new", get(show_form))
        .route("/dashboard/{workspace}/ratelimits/{namespace}", get(show))
        .route(
            "/dashboard/{workspace}/ratelimits/{namespace}/delete",
            get(confirm_delete).post(delete),
        )
        .merge(outage_policy::routes())
        .merge(overrides::routes())
        .merge(simulator::routes())
}

/// The menu of a row.
const ROW_ACTIONS: &[RowAction] = &[
    RowAction { label: "Simulator", path: "simulator", needs: None },
    RowAction { label: "Create override", path: "override", needs: Some(Action::SetOverride) },
    RowAction { label: "Delete", path: "delete", needs: Some(Action::DeleteNamespace) },
];

#[derive(Template)]
#[template(path = "ratelimits/list.html")]
struct NamespaceListPage {
    layout: Layout,
    list: ListFrame,
    rows: Vec<NamespaceTableRow>,
}

#[derive(Template)]
#[template(path = "ratelimits/new.html")]
struct NewNamespacePage<'a> {
    layout: Layout,
    workspace: String,
    name: &'a str,
    errors: FormErrors,
}

#[derive(Template)]
#[template(path = "ratelimits/show.html")]
struct NamespacePage<'a> {
    layout: Layout,
    workspace: String,
    path: String,
    namespace: NamespaceTableRow,
    overrides: String,
    rows: Vec<overrides::OverrideTableRow>,
    search: &'a str,
    pages: PageLinks,
    may_set: bool,
    may_delete: bool,
    /// The path of the page for the outage policy; `None` if the user may not change it.
    outage_policy_path: Option<String>,
    may_delete_namespace: bool,
    usage: UsageSection,
    identifiers: IdentifierSection,
}

/// A namespace as displayed.
struct NamespaceTableRow {
    id: NamespaceId,
    name: String,
    created: TimeLabel,
    outage_policy: &'static str,
}

impl NamespaceTableRow {
    fn new(namespace: Namespace, now: Timestamp) -> Self {
        Self {
            id: namespace.id,
            name: namespace.name,
            created: TimeLabel::new(namespace.created_at, now),
            outage_policy: match namespace.outage_policy {
                OutagePolicy::Local => "Each replica enforces its share",
                OutagePolicy::Open => "All checks are allowed",
                OutagePolicy::Closed => "All checks are rejected",
            },
        }
    }
}

async fn list(request: WorkspaceRequest) -> PageResult {
    let app = &request.page_request.app;
    let (sort, paging) = SortLink::by_name(&request, "/ratelimits");
    let found = namespaces::list_for_caller(&app.context, &request.caller, &paging).await?;
    let now = app.context.clock.now();
    let list = ListFrame::new(&request, "/ratelimits", found.next_start.as_deref());
    render_page(&NamespaceListPage {
        layout: Layout::for_workspace(&request, Section::Ratelimits, "Rate limits").await?,
        list: list
            .with_sort(sort)
            .with_create_form(&request, "/ratelimits/new", Action::CreateNamespace)
            .with_row_actions(&request, ROW_ACTIONS),
        rows: found
            .items
            .into_iter()
            .map(|namespace| NamespaceTableRow::new(namespace, now))
            .collect(),
    })
}

async fn build_form(
    request: &WorkspaceRequest,
    errors: FormErrors,
) -> Result<NewNamespacePage<'_>, Failure> {
    Ok(NewNamespacePage {
        layout: Layout::for_workspace(request, Section::Ratelimits, "Create namespace").await?,
        workspace: request.membership.workspace_id.to_string(),
        name: request.page_request.form.text("name"),
        errors,
    })
}

async fn show_form(request: WorkspaceRequest) -> PageResult {
    request.caller.require(Action::CreateNamespace)?;
    render_page(&build_form(&request, FormErrors::default()).await?)
}

async fn create(request: WorkspaceRequest) -> PageResult {
    let name = request.page_request.form.text("name").trim();
    let context = &request.page_request.app.context;
    let creation = namespaces::create(context, &request.caller, name).map_ok(|created| created.id);
    match split_form_errors(create_once(&request, creation).await)? {
        Ok(id) => {
            let path = format!("/ratelimits/{id}?notice=namespace-created");
            redirect_to(&request.workspace_path(&path))
        }
        Err(errors) => render_invalid_page(&build_form(&request, errors).await?),
    }
}

/// Loads a namespace by its id.
async fn load(request: &WorkspaceRequest, id: &str) -> Result<Namespace, Error> {
    namespaces::get(&request.page_request.app.context, &request.caller, id).await
}

/// Returns the path of a namespace's page.
fn namespace_path(request: &WorkspaceRequest, id: &NamespaceId) -> String {
    request.workspace_path(&format!("/ratelimits/{id}"))
}

async fn show(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    let app = &request.page_request.app;
    let namespace = load(&request, &id).await?;
    let path = namespace_path(&request, &namespace.id);
    let paging = Paging { order: PageOrder::ByName, ..paging_from_query(&request) };
    let listed = domain_overrides::list(&app.context, &request.caller, &id, &paging).await?;
    let number = domain_overrides::count(&app.context, &request.caller, &id).await?;
    let now = app.context.clock.now();
    let row = |stored| overrides::OverrideTableRow::new(stored, &path, now);
    render_page(&NamespacePage {
        layout: Layout::for_workspace(&request, Section::Ratelimits, "Rate limits")
            .await?
            .about(&namespace.name),
        workspace: request.membership.workspace_id.to_string(),
        overrides: format_count(number, i64::MAX),
        pages: PageLinks::new(&request, &path, listed.next_start.as_deref()),
        rows: listed.items.into_iter().map(row).collect(),
        search: request.page_request.query.text("q"),
        may_set: request.caller.is_allowed_on(Action::SetOverride, &namespace.id),
        may_delete: request.caller.is_allowed_on(Action::DeleteOverride, &namespace.id),
        outage_policy_path: request
            .caller
            .is_allowed_on(Action::UpdateNamespace, &namespace.id)
            .then(|| format!("{path}/outage")),
        may_delete_namespace: request.caller.is_allowed_on(Action::DeleteNamespace, &namespace.id),
        usage: UsageSection::load(&request, &Selection::namespace(&namespace.id)).await,
        identifiers: IdentifierSection::load(&request, &namespace).await,
        namespace: NamespaceTableRow::new(namespace, now),
        path,
    })
}

async fn confirm_delete(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    request.caller.require_on(Action::DeleteNamespace, &id)?;
    let namespace = load(&request, &id).await?;
    let number =
        domain_overrides::count(&request.page_request.app.context, &request.caller, &id).await?;
    let path = namespace_path(&request, &namespace.id);
    render_page(&ConfirmPage {
        layout: Layout::for_workspace(&request, Section::Ratelimits, "Delete namespace")
            .await?
            .about(&namespace.name),
        question: format!("Delete {}?", namespace.name),
        consequences: vec![
            "Limit checks in this namespace fail with an error.".into(),
            format!(
                "{}. Its name stays reserved and cannot be used again. You can undo the deletion in the audit log.",
                match number {
                    1 => "Its override is deleted too".to_owned(),
                    number =>
                        format!("Its {} overrides are deleted too", format_count(number, i64::MAX)),
                },
            ),
        ],
        action_url: format!("{path}/delete"),
        fields: Vec::new(),
        button: "Delete",
        back_url: path,
        back_label: namespace.name,
    })
}

async fn delete(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    namespaces::delete(&request.page_request.app.context, &request.caller, &NamespaceId::from(id))
        .await?;
    redirect_to(&request.workspace_path("/ratelimits?notice=namespace-deleted"))
}
