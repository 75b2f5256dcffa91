//! The outage policy of a namespace: how checks are answered while Redis is unreachable.

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use domain::permission::Action;
use domain::ratelimits::namespaces;
use foundation::id::NamespaceId;
use foundation::model::OutagePolicy;

use super::super::form::FormErrors;
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, redirect_to, render_invalid_page, render_page};
use super::{load, namespace_path};

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/ratelimits/{namespace}/outage", get(show_form).post(save))
}

#[derive(Template)]
#[template(path = "ratelimits/outage.html")]
struct OutagePolicyPage {
    layout: Layout,
    path: String,
    name: String,
    selected: &'static str,
    errors: FormErrors,
}

async fn show_form(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    render_page(&build_form(&request, &id, FormErrors::default()).await?)
}

async fn build_form(
    request: &WorkspaceRequest,
    id: &str,
    errors: FormErrors,
) -> Result<OutagePolicyPage, super::super::Failure> {
    request.caller.require_on(Action::UpdateNamespace, &id)?;
    let namespace = load(request, id).await?;
    Ok(OutagePolicyPage {
        layout: Layout::for_workspace(request, Section::Ratelimits, "Outage policy")
            .await?
            .about(&namespace.name),
        path: namespace_path(request, &namespace.id),
        name: namespace.name,
        selected: namespace.outage_policy.as_str(),
        errors,
    })
}

async fn save(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    let on_outage: OutagePolicy = match request.page_request.form.text("outage").parse() {
        Ok(on_outage) => on_outage,
        Err(fault) => {
            let errors = FormErrors::single("outage", format!("Outage policy {fault}."));
            return render_invalid_page(&build_form(&request, &id, errors).await?);
        }
    };
    let id = NamespaceId::from(id);
    namespaces::update_outage_policy(
        &request.page_request.app.context,
        &request.caller,
        &id,
        on_outage,
    )
    .await?;
    redirect_to(&format!("{}?notice=namespace-updated", namespace_path(&request, &id)))
}
