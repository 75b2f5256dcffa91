//! The pages of rate-limit namespaces: list, details, overrides, outage policy and simulator.

mod outage_policy;
mod overrides;
mod simulator;

pub use overrides::rate;

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::NamespaceId;
use foundation::model::{Namespace, OutagePolicy};

use super::confirm::Confirm;
use super::failure::Failure;
use super::form::{FormErrors, split_form_errors};
use super::format::{TimeLabel, count};
use super::layout::{Layout, Section, may};
use super::page_request::WorkspaceRequest;
use super::pagination::{Pages, paging};
use super::{Answer, page, redirect_to, refused_page};
use crate::domain::permission::Action;
use crate::domain::ratelimits::{namespaces, overrides as domain_overrides};

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/ratelimits", get(list).post(create))
        .route("/dashboard/{workspace}/ratelimits/new", get(new))
        .route("/dashboard/{workspace}/ratelimits/{namespace}", get(show))
        .route("/dashboard/{workspace}/ratelimits/{namespace}/delete", get(ask_delete).post(delete))
        .merge(outage_policy::routes())
        .merge(overrides::routes())
        .merge(simulator::routes())
}

#[derive(Template)]
#[template(path = "ratelimits/list.html")]
struct List<'a> {
    shell: Layout,
    workspace: String,
    path: String,
    rows: Vec<Row>,
    search: &'a str,
    pages: Pages,
    may_create: bool,
}

#[derive(Template)]
#[template(path = "ratelimits/new.html")]
struct New<'a> {
    shell: Layout,
    workspace: String,
    name: &'a str,
    faults: FormErrors,
}

#[derive(Template)]
#[template(path = "ratelimits/show.html")]
struct Show<'a> {
    shell: Layout,
    workspace: String,
    path: String,
    namespace: Row,
    overrides: String,
    rows: Vec<overrides::Row>,
    search: &'a str,
    pages: Pages,
    may_set: bool,
    may_delete: bool,
    /// The path of the page for the outage policy; `None` if the user may not change it.
    outage: Option<String>,
    may_delete_namespace: bool,
}

/// A namespace as displayed.
struct Row {
    id: NamespaceId,
    name: String,
    created: TimeLabel,
    on_outage: &'static str,
}

impl Row {
    fn new(namespace: Namespace, now: Timestamp) -> Self {
        Self {
            id: namespace.id,
            name: namespace.name,
            created: TimeLabel::new(namespace.created_at, now),
            on_outage: match namespace.on_outage {
                OutagePolicy::Local => "Each replica enforces its share",
                OutagePolicy::Open => "All checks are allowed",
                OutagePolicy::Closed => "All checks are rejected",
            },
        }
    }
}

async fn list(request: WorkspaceRequest) -> Answer {
    let app = &request.visit.app;
    let path = request.path("/ratelimits");
    let found = namespaces::page(app, &request.caller, &paging(&request)).await?;
    let now = app.clock.now();
    page(&List {
        shell: Layout::of(&request, Section::Ratelimits, "Rate limits").await?,
        workspace: request.membership.workspace_id.to_string(),
        pages: Pages::new(&request, &path, found.next.as_deref()),
        path,
        rows: found.items.into_iter().map(|namespace| Row::new(namespace, now)).collect(),
        search: request.visit.query.text("q"),
        may_create: may(&request, Action::CreateNamespace),
    })
}

async fn filled_in(request: &WorkspaceRequest, faults: FormErrors) -> Result<New<'_>, Failure> {
    Ok(New {
        shell: Layout::of(request, Section::Ratelimits, "New namespace").await?,
        workspace: request.membership.workspace_id.to_string(),
        name: request.visit.form.text("name"),
        faults,
    })
}

async fn new(request: WorkspaceRequest) -> Answer {
    request.caller.require(Action::CreateNamespace)?;
    page(&filled_in(&request, FormErrors::default()).await?)
}

async fn create(request: WorkspaceRequest) -> Answer {
    let name = request.visit.form.text("name").trim();
    match split_form_errors(namespaces::create(&request.visit.app, &request.caller, name).await)? {
        Ok(namespace) => {
            let path = format!("/ratelimits/{}?notice=namespace-created", namespace.id);
            redirect_to(&request.path(&path))
        }
        Err(faults) => refused_page(&filled_in(&request, faults).await?),
    }
}

/// Loads a namespace by its id.
async fn found(request: &WorkspaceRequest, id: &str) -> Result<Namespace, Error> {
    namespaces::get(&request.visit.app, &request.caller, id).await
}

/// Returns the path of a namespace's page.
fn path(request: &WorkspaceRequest, id: &NamespaceId) -> String {
    request.path(&format!("/ratelimits/{id}"))
}

async fn show(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let app = &request.visit.app;
    let namespace = found(&request, &id).await?;
    let path = path(&request, &namespace.id);
    let listed = domain_overrides::list(app, &request.caller, &id, &paging(&request)).await?;
    let number = domain_overrides::count(app, &request.caller, &id).await?;
    let now = app.clock.now();
    let row = |stored| overrides::Row::new(stored, &path, now);
    page(&Show {
        shell: Layout::of(&request, Section::Ratelimits, "Namespace").await?,
        workspace: request.membership.workspace_id.to_string(),
        overrides: count(number, i64::MAX),
        pages: Pages::new(&request, &path, listed.next.as_deref()),
        rows: listed.items.into_iter().map(row).collect(),
        search: request.visit.query.text("q"),
        may_set: request.caller.may_on(Action::SetOverride, &namespace.id),
        may_delete: request.caller.may_on(Action::DeleteOverride, &namespace.id),
        outage: request
            .caller
            .may_on(Action::UpdateNamespace, &namespace.id)
            .then(|| format!("{path}/outage")),
        may_delete_namespace: request.caller.may_on(Action::DeleteNamespace, &namespace.id),
        namespace: Row::new(namespace, now),
        path,
    })
}

async fn ask_delete(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    request.caller.require_on(Action::DeleteNamespace, &id)?;
    let namespace = found(&request, &id).await?;
    let number = domain_overrides::count(&request.visit.app, &request.caller, &id).await?;
    let path = path(&request, &namespace.id);
    page(&Confirm {
        shell: Layout::of(&request, Section::Ratelimits, "Delete namespace").await?,
        question: format!("Delete {}?", namespace.name),
        told: vec![
            "All further checks in it fail with an error.".into(),
            format!(
                "{}. Its name stays reserved and cannot be used again. You can undo the deletion in the audit log.",
                match number {
                    1 => "Its override is deleted too".to_owned(),
                    number => format!("Its {} overrides are deleted too", count(number, i64::MAX)),
                },
            ),
        ],
        act: format!("{path}/delete"),
        fields: Vec::new(),
        button: "Delete",
        back: path,
    })
}

async fn delete(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    namespaces::delete_by(&request.visit.app, &request.caller, &NamespaceId::from(id)).await?;
    redirect_to(&request.path("/ratelimits?notice=namespace-deleted"))
}
