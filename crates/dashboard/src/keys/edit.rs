//! Editing a key. Only the fields that the user changes are sent, so concurrent changes of other fields are kept.

use askama::Template;
use axum::extract::Path;
use domain::keys::details::{self, KeyDetails};
use domain::keys::{self, CreditsUpdate, IdleRefill, UpdatedAtPolicy};
use domain::permission::Action;
use foundation::error::Error;
use foundation::id::KeyId;

use super::super::expiry_field::EXPIRY_OPTIONS;
use super::super::failure::Failure;
use super::super::field_reader::FieldReader;
use super::super::form::{Form, FormErrors, split_form_errors};
use super::super::format::{format_grouped, format_start};
use super::super::layout::{Layout, Section};
use super::super::one_time_form::create_once;
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, redirect_to, render_invalid_page, render_page};
use super::fields::{KeyForm, REFILL_OPTIONS};
use super::name_choice::NameChoice;
use super::{field_error_from_not_found, key_path};

#[derive(Template)]
#[template(path = "keys/edit.html")]
struct EditKeyPage {
    layout: Layout,
    workspace: String,
    id: KeyId,
    title: String,
    /// The remaining credits; `None` if the key is unlimited.
    remaining: Option<String>,
    fields: KeyForm,
    roles: NameChoice,
    permissions: NameChoice,
    /// The original values of the form, serialized.
    original: String,
    /// The operation on the credits, as submitted.
    operation: String,
    value: String,
    errors: FormErrors,
    credit_errors: FormErrors,
}

async fn load(request: &WorkspaceRequest, id: &str) -> Result<KeyDetails, Error> {
    request.caller.require(Action::UpdateKey)?;
    details::get_details(&request.page_request.app.keys, &request.caller, &KeyId::from(id)).await
}

async fn build_form(
    request: &WorkspaceRequest,
    key_details: &KeyDetails,
    filled: Option<(KeyForm, String)>,
    [errors, credit_faults]: [FormErrors; 2],
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
    let form = &request.page_request.form;
    let title = key.name.clone().unwrap_or_else(|| format_start(&key.start, &key.id));
    Ok(EditKeyPage {
        layout: Layout::for_workspace(request, Section::Keys, "Edit key").await?.about(&title),
        workspace: request.membership.workspace_id.to_string(),
        id: key.id.clone(),
        title,
        remaining: key_details.found_key.credits.map(|(left, _)| format_grouped(left)),
        roles: NameChoice::load_roles(request, &fields.roles, &fields.typed_roles).await?,
        permissions: NameChoice::load_permissions(
            request,
            &fields.permissions,
            &fields.typed_permissions,
        )
        .await?,
        fields,
        original: was,
        operation: form.text("operation").to_owned(),
        value: form.text("value").to_owned(),
        errors,
        credit_errors: credit_faults,
    })
}

pub async fn show_form(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    let key_details = load(&request, &id).await?;
    render_page(
        &build_form(&request, &key_details, None, [FormErrors::default(), FormErrors::default()])
            .await?,
    )
}

pub async fn save(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    let key_details = load(&request, &id).await?;
    let form = &request.page_request.form;
    let ((fields, is_step), was) = (KeyForm::from_form(form), form.text("was").to_owned());
    if is_step {
        let filled = Some((fields, was));
        let none = [FormErrors::default(), FormErrors::default()];
        return render_page(&build_form(&request, &key_details, filled, none).await?);
    }
    match split_form_errors(apply_changes(&request, &id, &fields, &was).await)? {
        Ok(notice) => redirect_to(&key_path(&request, &id, notice)),
        Err(errors) => {
            let filled = Some((fields, was));
            render_invalid_page(
                &build_form(&request, &key_details, filled, [errors, FormErrors::default()])
                    .await?,
            )
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

/// Sets, adds or removes credits.
pub async fn update_credits(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    let key_details = load(&request, &id).await?;
    // Boxed: the future is large.
    let update = Box::pin(apply_credits_update(&request, &id));
    match split_form_errors(create_once(&request, update).await)? {
        Ok(_) => redirect_to(&key_path(&request, &id, "?notice=key-credits")),
        Err(errors) => render_invalid_page(
            &build_form(&request, &key_details, None, [FormErrors::default(), errors]).await?,
        ),
    }
}

async fn apply_credits_update(request: &WorkspaceRequest, id: &str) -> Result<KeyId, Error> {
    let update = read_credits_update(&request.page_request.form)?;
    let (keys, id) = (&request.page_request.app.keys, KeyId::from(id));
    keys::update_credits(keys, &request.caller, &id, update, UpdatedAtPolicy::Keep).await?;
    Ok(id)
}

fn read_credits_update(form: &Form) -> Result<CreditsUpdate, Error> {
    let mut fields = FieldReader::default();
    let read: fn(i64) -> CreditsUpdate = match form.text("operation") {
        "unlimited" => return Ok(CreditsUpdate::Unlimited(IdleRefill::Drop)),
        "increment" => CreditsUpdate::Increment,
        "decrement" => CreditsUpdate::Decrement,
        operation => {
            if operation != "set" {
                fields.reject("operation", "must be set, increment, decrement or unlimited");
            }
            CreditsUpdate::Set
        }
    };
    let value = fields.integer("value", form.text("value"), 0..=i64::MAX);
    fields.finish(read(value))
}
