//! Deleting a gateway policy.

use askama::Template;
use axum::extract::Path;
use domain::gateways;
use domain::permission::Action;
use foundation::model::GatewayPolicy;

use super::super::failure::Failure;
use super::super::form::FormErrors;
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, redirect_to, render_invalid_page, render_page};
use super::{load, policy_path};

#[derive(Template)]
#[template(path = "gateways/delete.html")]
struct DeletePolicyPage<'a> {
    layout: Layout,
    path: String,
    policy: GatewayPolicy,
    typed_name: &'a str,
    errors: FormErrors,
}

async fn build_form<'a>(
    request: &'a WorkspaceRequest,
    named: &str,
) -> Result<DeletePolicyPage<'a>, Failure> {
    let policy = load(request, named).await?;
    request.caller.require_on(Action::DeleteGatewayPolicy, &policy.id)?;
    Ok(DeletePolicyPage {
        layout: Layout::for_workspace(request, Section::Gateways, "Delete policy")
            .await?
            .about(&policy.name),
        path: policy_path(request, &policy.id),
        policy,
        typed_name: request.page_request.form.text("name"),
        errors: FormErrors::default(),
    })
}

pub async fn confirm(
    request: WorkspaceRequest,
    Path((_, named)): Path<(String, String)>,
) -> PageResult {
    render_page(&build_form(&request, &named).await?)
}

pub async fn delete(
    request: WorkspaceRequest,
    Path((_, named)): Path<(String, String)>,
) -> PageResult {
    let mut form = build_form(&request, &named).await?;
    if form.typed_name.trim() != form.policy.name {
        let sentence = "The name doesn't match. Enter the name of the policy exactly as shown.";
        form.errors = FormErrors::single("name", sentence);
        return render_invalid_page(&form);
    }
    let context = &request.page_request.app.context;
    gateways::delete(context, &request.caller, form.policy.id.as_str()).await?;
    redirect_to(&request.workspace_path("/gateways?notice=gateway-deleted"))
}
