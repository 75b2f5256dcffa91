//! Editing a key. Only the fields that the user changes are sent, so concurrent changes of other fields are kept.

use askama::Template;
use axum::extract::Path;
use domain::keys;
use domain::keys::details::{self, KeyDetails};
use domain::permission::Action;
use foundation::error::Error;
use foundation::id::KeyId;

use super::super::expiry_field::EXPIRY_OPTIONS;
use super::super::failure::Failure;
use super::super::form::{FormErrors, split_form_errors};
use super::super::format::format_start;
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, redirect_to, render_invalid_page, render_page};
use super::fields::{KeyForm, REFILL_OPTIONS};
use super::name_choice::NameChoice;
use super::{field_error_from_not_found, key_path, key_title};

#[derive(Template)]
#[template(path = "keys/edit.html")]
struct EditKeyPage {
    layout: Layout,
    workspace: String,
    id: KeyId,
    title: String,
    start: String,
    fields: KeyForm,
    roles: NameChoice,
    permissions: NameChoice,
    /// The original values of the form, serialized.
    original: String,
    errors: FormErrors,
}

async fn load(request: &WorkspaceRequest, id: &str) -> Result<KeyDetails, Error> {
    request.caller.require(Action::UpdateKey)?;
    details::get_details(&request.page_request.app.keys, &request.caller, &KeyId::from(id)).await
}

async fn build_form(
    request: &WorkspaceRequest,
    key_details: &KeyDetails,
    filled: Option<(KeyForm, String)>,
    errors: FormErrors,
) -> Result<EditKeyPage, Failure> {
    let key = &key_details.found_key.stored.key;
    let (mut fields, was) = match filled {
        Some(filled) => filled,
        None => {
            let fields = KeyForm::from_key(key_details);
            let was = fields.serialize_original();
            (fields, was)
        }
    };
    fields.limits = fields.limits.with_blank_row();
    let title = key_title(key.name.clone());
    Ok(EditKeyPage {
        layout: Layout::for_workspace(request, Section::Keys, "Edit key").await?.about(&title),
        workspace: request.membership.workspace_id.to_string(),
        id: key.id.clone(),
        title,
        start: format_start(&key.start, &key.id),
        roles: NameChoice::load_roles(request, &fields.roles, &fields.typed_roles).await?,
        permissions: NameChoice::load_permissions(
            request,
            &fields.permissions,
            &fields.typed_permissions,
        )
        .await?,
        fields,
        original: was,
        errors,
    })
}

pub async fn show_form(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    let key_details = load(&request, &id).await?;
    render_page(&build_form(&request, &key_details, None, FormErrors::default()).await?)
}

pub async fn save(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    let key_details = load(&request, &id).await?;
    let form = &request.page_request.form;
    let ((fields, is_step), was) = (KeyForm::from_form(form), form.text("was").to_owned());
    if is_step {
        let filled = Some((fields, was));
        let page = build_form(&request, &key_details, filled, FormErrors::default()).await?;
        return render_page(&page);
    }
    match split_form_errors(apply_changes(&request, &id, &fields, &was).await)? {
        Ok(notice) => redirect_to(&key_path(&request, &id, notice)),
        Err(errors) => {
            let filled = Some((fields, was));
            render_invalid_page(&build_form(&request, &key_details, filled, errors).await?)
        }
    }
}

async fn apply_changes(
    request: &WorkspaceRequest,
    id: &str,
    fields: &KeyForm,
    was: &str,
) -> Result<&'static str, Error> {
    let app = &request.page_request.app;
    let was: KeyForm = serde_json::from_str(was).map_err(|_| {
        Error::invalid("", "The form is incomplete. Reload the page and try again.")
    })?;
    let change = fields.to_update(&was, app.context.clock.now())?;
    if change.is_empty() {
        return Ok("?notice=key-unchanged");
    }
    let updated = keys::update(&app.keys, &request.caller, &KeyId::from(id), change).await;
    updated.map_err(field_error_from_not_found)?;
    Ok("?notice=key-updated")
}
