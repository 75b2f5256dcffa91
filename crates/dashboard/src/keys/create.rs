//! Creating a key.

use askama::Template;
use domain::apis;
use domain::keys;
use domain::permission::Action;
use foundation::error::Error;
use foundation::id::{ApiId, KeyId};
use foundation::model::Api;

use super::super::expiry_field::EXPIRY_OPTIONS;
use super::super::failure::Failure;
use super::super::form::{FormErrors, split_form_errors};
use super::super::layout::{Layout, Section};
use super::super::one_time_form::{create_once, redirect_to_secret};
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, render_invalid_page, render_page};
use super::fields::{KeyForm, REFILL_OPTIONS};
use super::name_choice::NameChoice;
use super::{ApiOptions, field_error_from_not_found, load_api_options};

#[derive(Template)]
#[template(path = "keys/pick_api.html")]
struct PickApiPage {
    layout: Layout,
    workspace: String,
    apis: ApiOptions,
}

#[derive(Template)]
#[template(path = "keys/new.html")]
struct NewKeyPage {
    layout: Layout,
    workspace: String,
    api: ApiId,
    api_name: String,
    /// The default prefix of the API.
    prefix: String,
    bytes: String,
    may_be_recoverable: bool,
    fields: KeyForm,
    roles: NameChoice,
    permissions: NameChoice,
    errors: FormErrors,
}

async fn build_form(
    request: &WorkspaceRequest,
    api: Api,
    mut fields: KeyForm,
    errors: FormErrors,
) -> Result<NewKeyPage, Failure> {
    fields.limits = fields.limits.with_blank_row();
    let settings = api.settings;
    Ok(NewKeyPage {
        layout: Layout::for_workspace(request, Section::Keys, "Create key").await?.about(&api.name),
        workspace: request.membership.workspace_id.to_string(),
        may_be_recoverable: settings.allows_recoverable_keys
            && request.caller.is_allowed_on(Action::EncryptKey, &api.id),
        prefix: settings.default_prefix.unwrap_or_else(|| "none".into()),
        bytes: settings.default_byte_length.map_or_else(|| "16".into(), |n| n.to_string()),
        api: api.id,
        api_name: api.name,
        roles: NameChoice::load_roles(request, &fields.roles, &fields.typed_roles).await?,
        permissions: NameChoice::load_permissions(
            request,
            &fields.permissions,
            &fields.typed_permissions,
        )
        .await?,
        fields,
        errors,
    })
}

pub async fn show_form(request: WorkspaceRequest) -> PageResult {
    let id = request.page_request.query.text("api");
    if id.is_empty() {
        request.caller.require(Action::CreateKey)?;
        return render_page(&PickApiPage {
            layout: Layout::for_workspace(&request, Section::Keys, "Create key").await?,
            workspace: request.membership.workspace_id.to_string(),
            apis: load_api_options(&request, "").await?,
        });
    }
    let id = ApiId::from(id);
    request.caller.require_on(Action::CreateKey, &id)?;
    let api = apis::get(&request.page_request.app.context, &request.caller, &id).await?;
    let fields = KeyForm { is_enabled: true, ..KeyForm::default() };
    render_page(&build_form(&request, api, fields, FormErrors::default()).await?)
}

pub async fn create(request: WorkspaceRequest) -> PageResult {
    let (app, form) = (&request.page_request.app, &request.page_request.form);
    let id = ApiId::from(form.text("api"));
    request.caller.require_on(Action::CreateKey, &id)?;
    let api = apis::get(&app.context, &request.caller, &id).await?;
    let (fields, is_step) = KeyForm::from_form(form);
    if is_step {
        return render_page(&build_form(&request, api, fields, FormErrors::default()).await?);
    }
    match split_form_errors(create_once(&request, issue(&request, &id, &fields)).await)? {
        Ok(key) => redirect_to_secret(&request, &format!("/keys/{key}")),
        Err(errors) => render_invalid_page(&build_form(&request, api, fields, errors).await?),
    }
}

async fn issue(request: &WorkspaceRequest, api: &ApiId, fields: &KeyForm) -> Result<KeyId, Error> {
    let context = &request.page_request.app.context;
    let new = fields.to_create(api, context.clock.now())?;
    let issued = keys::create(context, &request.caller, new).await;
    Ok(issued.map_err(field_error_from_not_found)?.id)
}

/// Creates a key that has a name, and else the settings of its API.
pub async fn issue_named(
    request: &WorkspaceRequest,
    api: &ApiId,
    name: &str,
) -> Result<KeyId, Error> {
    let fields = KeyForm { name: name.to_owned(), is_enabled: true, ..KeyForm::default() };
    issue(request, api, &fields).await
}
