//! Creating and editing a gateway policy.

use askama::Template;
use axum::extract::Path;
use domain::apis;
use domain::gateways::{self, BASE_IDENTITY_HEADERS};
use domain::page::Paging;
use domain::permission::Action;
use foundation::error::{Error, FieldError, ResourceRef};
use foundation::id::{ApiId, GatewayPolicyId};
use foundation::model::GatewayPolicy;

use super::super::failure::Failure;
use super::super::form::{FormErrors, split_form_errors};
use super::super::layout::{Layout, Section};
use super::super::one_time_form::{create_once, redirect_to_secret};
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, redirect_to, render_invalid_page, render_page};
use super::fields::{FAILURE_FORMATS, PolicyForm};
use super::{load, policy_path};

/// The number of APIs offered in addition to the selected ones.
const OPTIONS_MAX: usize = 100;

#[derive(Template)]
#[template(path = "gateways/form.html")]
struct PolicyFormPage {
    layout: Layout,
    /// The current name; `None` if the policy is new.
    name: Option<String>,
    action_url: String,
    back_url: String,
    /// Whether the form has room for the policy.
    fits: bool,
    fields: PolicyForm,
    /// The original values of the form, serialized; empty if the policy is new.
    original: String,
    apis: Vec<FormOption>,
    has_more_apis: bool,
    headers: Vec<FormOption>,
    formats: Vec<FormOption>,
    errors: FormErrors,
}

struct FormOption {
    value: String,
    label: String,
    is_selected: bool,
}

async fn build_form(
    request: &WorkspaceRequest,
    policy: Option<&GatewayPolicy>,
    (fields, original): (PolicyForm, String),
    errors: FormErrors,
) -> Result<PolicyFormPage, Failure> {
    let (apis, has_more_apis) = load_api_options(request, &fields.api_ids).await?;
    let header = |name: &str| FormOption {
        value: name.to_owned(),
        label: name.to_owned(),
        is_selected: fields.headers.iter().any(|known| known == name),
    };
    let format = |value: &str, label: &str| FormOption {
        value: value.to_owned(),
        label: label.to_owned(),
        is_selected: value == fields.on_failure,
    };
    let list = request.workspace_path("/gateways");
    let path = policy.map(|policy| policy_path(request, &policy.id));
    Ok(PolicyFormPage {
        layout: match policy {
            None => Layout::for_workspace(request, Section::Gateways, "Create policy").await?,
            Some(policy) => Layout::for_workspace(request, Section::Gateways, "Policy settings")
                .await?
                .about(&policy.name),
        },
        name: policy.map(|policy| policy.name.clone()),
        action_url: path.as_ref().map_or_else(|| list.clone(), |path| format!("{path}/settings")),
        back_url: path.unwrap_or(list),
        fits: fields.fits_form(),
        headers: BASE_IDENTITY_HEADERS.into_iter().map(header).collect(),
        formats: FAILURE_FORMATS.iter().map(|(value, label, _)| format(value, label)).collect(),
        fields,
        original,
        apis,
        has_more_apis,
        errors,
    })
}

/// Returns the selected APIs and some others. The flag says whether there are more.
async fn load_api_options(
    request: &WorkspaceRequest,
    selected: &[String],
) -> Result<(Vec<FormOption>, bool), Error> {
    let context = &request.page_request.app.context;
    let ids: Vec<_> = selected.iter().map(|id| ApiId::from(id.as_str())).collect();
    let names = apis::load_names(context, &request.caller, &ids).await?;
    let option = |id: &ApiId, label: Option<&String>| FormOption {
        value: id.to_string(),
        label: label.cloned().unwrap_or_else(|| "Unknown API".to_owned()),
        is_selected: ids.contains(id),
    };
    let mut options: Vec<_> = ids.iter().map(|id| option(id, names.get(id))).collect();
    let paging = Paging::first_by_name(OPTIONS_MAX);
    let found = apis::list_for_caller(context, &request.caller, &paging).await?;
    let others = found.items.iter().filter(|api| !ids.contains(&api.id));
    options.extend(others.map(|api| option(&api.id, Some(&api.name))));
    Ok((options, found.next_start.is_some()))
}

pub async fn show_create_form(request: WorkspaceRequest) -> PageResult {
    request.caller.require(Action::CreateGatewayPolicy)?;
    let mut fields = PolicyForm::new();
    let (apis, _) = load_api_options(&request, &[]).await?;
    // The only API is selected.
    if let [api] = apis.as_slice() {
        fields.api_ids.push(api.value.clone());
    }
    let filled = (fields, String::new());
    render_page(&build_form(&request, None, filled, FormErrors::default()).await?)
}

pub async fn create(request: WorkspaceRequest) -> PageResult {
    request.caller.require(Action::CreateGatewayPolicy)?;
    let (fields, is_step) = PolicyForm::from_form(&request.page_request.form);
    if is_step {
        let filled = (fields, String::new());
        return render_page(&build_form(&request, None, filled, FormErrors::default()).await?);
    }
    let creation = create_from_form(&request, &fields);
    match split_form_errors(create_once(&request, creation).await)? {
        Ok(policy) => redirect_to_secret(&request, &format!("/gateways/{policy}")),
        Err(errors) => {
            let filled = (fields, String::new());
            render_invalid_page(&build_form(&request, None, filled, errors).await?)
        }
    }
}

async fn create_from_form(
    request: &WorkspaceRequest,
    fields: &PolicyForm,
) -> Result<GatewayPolicyId, Error> {
    let context = &request.page_request.app.context;
    let created = gateways::create(context, &request.caller, fields.read()?).await;
    Ok(created.map_err(to_field_errors)?.policy.id)
}

pub async fn show_settings(
    request: WorkspaceRequest,
    Path((_, named)): Path<(String, String)>,
) -> PageResult {
    let policy = load(&request, &named).await?;
    request.caller.require_on(Action::UpdateGatewayPolicy, &policy.id)?;
    let fields = PolicyForm::from_policy(&policy);
    let original = fields.serialize();
    let filled = (fields, original);
    render_page(&build_form(&request, Some(&policy), filled, FormErrors::default()).await?)
}

pub async fn save_settings(
    request: WorkspaceRequest,
    Path((_, named)): Path<(String, String)>,
) -> PageResult {
    let policy = load(&request, &named).await?;
    request.caller.require_on(Action::UpdateGatewayPolicy, &policy.id)?;
    let form = &request.page_request.form;
    let ((fields, is_step), original) = (PolicyForm::from_form(form), form.text("was").to_owned());
    if is_step {
        let filled = (fields, original);
        let page = build_form(&request, Some(&policy), filled, FormErrors::default()).await?;
        return render_page(&page);
    }
    match split_form_errors(apply_changes(&request, &policy, &fields, &original).await)? {
        Ok(notice) => {
            redirect_to(&format!("{}?notice={notice}", policy_path(&request, &policy.id)))
        }
        Err(errors) => {
            let filled = (fields, original);
            render_invalid_page(&build_form(&request, Some(&policy), filled, errors).await?)
        }
    }
}

async fn apply_changes(
    request: &WorkspaceRequest,
    policy: &GatewayPolicy,
    fields: &PolicyForm,
    original: &str,
) -> Result<&'static str, Error> {
    let incomplete = "The form is incomplete. Reload the page and try again.";
    let original: PolicyForm =
        serde_json::from_str(original).map_err(|_| Error::invalid("", incomplete))?;
    let Some(change) = fields.read_change(&original)? else { return Ok("key-unchanged") };
    let (context, id) = (&request.page_request.app.context, policy.id.as_str());
    let updated = gateways::update(context, &request.caller, id, change).await;
    updated.map_err(to_field_errors)?;
    Ok("gateway-updated")
}

/// Shows a name that is taken, and APIs that do not exist, as errors of their fields.
fn to_field_errors(error: Error) -> Error {
    let is_api = |resource: &ResourceRef| matches!(resource, ResourceRef::Api(_));
    match error {
        Error::NotFound(resources) if resources.iter().all(is_api) => {
            let fault = |resource: &ResourceRef| FieldError {
                location: "apiIds".to_owned(),
                message: format!("{resource} does not exist"),
                fix: None,
            };
            Error::Invalid(resources.iter().map(fault).collect())
        }
        Error::AlreadyExists(ResourceRef::GatewayPolicyName(_)) => {
            Error::invalid("name", "name is already in use by another policy; choose another one")
        }
        other => other,
    }
}
