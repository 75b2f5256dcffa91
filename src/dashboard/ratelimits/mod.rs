//! Namespaces of the standalone limiter, their overrides, and what a check would come to.

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
    /// Where it is chosen what happens while the counters are away, for who may.
    outage: Option<String>,
    may_delete_namespace: bool,
}

/// A namespace as it is shown.
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
                OutagePolicy::Local => "each replica enforces its share",
                OutagePolicy::Open => "all checks pass",
                OutagePolicy::Closed => "no check passes",
            },
        }
    }
}

async fn list(asked: WorkspaceRequest) -> Answer {
    let app = &asked.visit.app;
    let path = asked.path("/ratelimits");
    let found = namespaces::page(app, &asked.caller, &paging(&asked)).await?;
    let now = app.clock.now();
    page(&List {
        shell: Layout::of(&asked, Section::Ratelimits, "Rate limits").await?,
        workspace: asked.membership.workspace_id.to_string(),
        pages: Pages::new(&asked, &path, found.next.as_deref()),
        path,
        rows: found.items.into_iter().map(|namespace| Row::new(namespace, now)).collect(),
        search: asked.visit.query.text("q"),
        may_create: may(&asked, Action::CreateNamespace),
    })
}

async fn filled_in(asked: &WorkspaceRequest, faults: FormErrors) -> Result<New<'_>, Failure> {
    Ok(New {
        shell: Layout::of(asked, Section::Ratelimits, "New namespace").await?,
        workspace: asked.membership.workspace_id.to_string(),
        name: asked.visit.form.text("name"),
        faults,
    })
}

async fn new(asked: WorkspaceRequest) -> Answer {
    asked.caller.require(Action::CreateNamespace)?;
    page(&filled_in(&asked, FormErrors::default()).await?)
}

async fn create(asked: WorkspaceRequest) -> Answer {
    let name = asked.visit.form.text("name").trim();
    match split_form_errors(namespaces::create(&asked.visit.app, &asked.caller, name).await)? {
        Ok(made) => {
            redirect_to(&asked.path(&format!("/ratelimits/{}?notice=namespace-created", made.id)))
        }
        Err(faults) => refused_page(&filled_in(&asked, faults).await?),
    }
}

/// The namespace of a page, by its id.
async fn found(asked: &WorkspaceRequest, id: &str) -> Result<Namespace, Error> {
    namespaces::get(&asked.visit.app, &asked.caller, id).await
}

/// The page of a namespace.
fn path(asked: &WorkspaceRequest, id: &NamespaceId) -> String {
    asked.path(&format!("/ratelimits/{id}"))
}

async fn show(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let app = &asked.visit.app;
    let namespace = found(&asked, &id).await?;
    let path = path(&asked, &namespace.id);
    let listed = domain_overrides::list(app, &asked.caller, &id, &paging(&asked)).await?;
    let number = domain_overrides::count(app, &asked.caller, &id).await?;
    let now = app.clock.now();
    let row = |known| overrides::Row::new(known, &path, now);
    page(&Show {
        shell: Layout::of(&asked, Section::Ratelimits, "Namespace").await?,
        workspace: asked.membership.workspace_id.to_string(),
        overrides: count(number, i64::MAX),
        pages: Pages::new(&asked, &path, listed.next.as_deref()),
        rows: listed.items.into_iter().map(row).collect(),
        search: asked.visit.query.text("q"),
        may_set: asked.caller.may_on(Action::SetOverride, &namespace.id),
        may_delete: asked.caller.may_on(Action::DeleteOverride, &namespace.id),
        outage: asked
            .caller
            .may_on(Action::UpdateNamespace, &namespace.id)
            .then(|| format!("{path}/outage")),
        may_delete_namespace: asked.caller.may_on(Action::DeleteNamespace, &namespace.id),
        namespace: Row::new(namespace, now),
        path,
    })
}

async fn ask_delete(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    asked.caller.require_on(Action::DeleteNamespace, &id)?;
    let namespace = found(&asked, &id).await?;
    let number = domain_overrides::count(&asked.visit.app, &asked.caller, &id).await?;
    let path = path(&asked, &namespace.id);
    page(&Confirm {
        shell: Layout::of(&asked, Section::Ratelimits, "Delete a namespace").await?,
        question: format!("Delete {}?", namespace.name),
        told: vec![
            "Every check in it is refused from then on, as an error that callers see.".into(),
            format!(
                "{} with it. Its name stays taken: there can be no other namespace of it. If it was a mistake, the audit log undoes it.",
                match number {
                    1 => "Its override goes".to_owned(),
                    number => format!("Its {} overrides go", count(number, i64::MAX)),
                },
            ),
        ],
        act: format!("{path}/delete"),
        fields: Vec::new(),
        button: "Delete",
        back: path,
    })
}

async fn delete(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    namespaces::delete_by(&asked.visit.app, &asked.caller, &NamespaceId::from(id)).await?;
    redirect_to(&asked.path("/ratelimits?notice=namespace-deleted"))
}
