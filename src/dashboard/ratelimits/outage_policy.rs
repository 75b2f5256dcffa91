//! The outage policy of a namespace: how checks are answered while Redis is unreachable.

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use foundation::id::NamespaceId;
use foundation::model::OutagePolicy;

use super::super::form::FormErrors;
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{Answer, page, redirect_to, refused_page};
use super::{found, path};
use crate::domain::permission::Action;
use crate::domain::ratelimits::namespaces;

pub fn routes() -> Router {
    Router::new().route("/dashboard/{workspace}/ratelimits/{namespace}/outage", get(ask).post(set))
}

#[derive(Template)]
#[template(path = "ratelimits/outage.html")]
struct Outage {
    shell: Layout,
    path: String,
    name: String,
    chosen: &'static str,
    faults: FormErrors,
}

async fn ask(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    page(&filled_in(&request, &id, FormErrors::default()).await?)
}

async fn filled_in(
    request: &WorkspaceRequest,
    id: &str,
    faults: FormErrors,
) -> Result<Outage, super::super::Failure> {
    request.caller.require_on(Action::UpdateNamespace, &id)?;
    let namespace = found(request, id).await?;
    Ok(Outage {
        shell: Layout::of(request, Section::Ratelimits, "If the rate limiter is unavailable")
            .await?,
        path: path(request, &namespace.id),
        name: namespace.name,
        chosen: namespace.on_outage.as_str(),
        faults,
    })
}

async fn set(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let on_outage: OutagePolicy = match request.visit.form.text("outage").parse() {
        Ok(on_outage) => on_outage,
        Err(fault) => {
            let faults = FormErrors::one("outage", format!("Outage policy {fault}."));
            return refused_page(&filled_in(&request, &id, faults).await?);
        }
    };
    let id = NamespaceId::from(id);
    namespaces::update_outage_policy(&request.visit.app, &request.caller, &id, on_outage).await?;
    redirect_to(&format!("{}?notice=namespace-updated", path(&request, &id)))
}
