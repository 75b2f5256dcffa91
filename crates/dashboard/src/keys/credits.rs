//! Changing the credits of a key. A page of its own, so that *Save changes* of another form cannot discard an amount.

use askama::Template;
use axum::extract::Path;
use domain::keys::{self, CreditsUpdate, DecryptMode, IdleRefill, UpdatedAtPolicy};
use domain::permission::Action;
use foundation::error::Error;
use foundation::id::KeyId;

use super::super::failure::Failure;
use super::super::field_reader::FieldReader;
use super::super::form::{Form, FormErrors, split_form_errors};
use super::super::format::format_grouped;
use super::super::layout::{Layout, Section};
use super::super::one_time_form::create_once;
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, redirect_to, render_invalid_page, render_page};
use super::{SelectOption, key_path, key_title};

/// The operations on credits: form values and labels.
const OPERATIONS: [(&str, &str); 4] = [
    ("increment", "Add"),
    ("decrement", "Remove"),
    ("set", "Set to"),
    ("unlimited", "Make unlimited"),
];

#[derive(Template)]
#[template(path = "keys/credits.html")]
struct CreditsPage {
    layout: Layout,
    workspace: String,
    id: KeyId,
    name: String,
    /// The remaining credits; `None` if the key is unlimited.
    remaining: Option<String>,
    operations: Vec<SelectOption>,
    /// The amount, as submitted.
    value: String,
    errors: FormErrors,
}

async fn build_page(
    request: &WorkspaceRequest,
    id: &str,
    errors: FormErrors,
) -> Result<CreditsPage, Failure> {
    let (keys, id) = (&request.page_request.app.keys, KeyId::from(id));
    let found = keys::get(keys, &request.caller, &id, DecryptMode::None).await?;
    let remaining = found.credits.map(|(left, _)| format_grouped(left));
    let form = &request.page_request.form;
    let selected = match form.text("operation") {
        // Nothing can be added to unlimited credits.
        "" if remaining.is_none() => "set",
        operation => operation,
    };
    let option = |(value, label): (&str, &str)| SelectOption {
        value: value.to_owned(),
        label: label.to_owned(),
        is_selected: value == selected,
    };
    let name = key_title(found.stored.key.name);
    Ok(CreditsPage {
        layout: Layout::for_workspace(request, Section::Keys, "Change credits").await?.about(&name),
        workspace: request.membership.workspace_id.to_string(),
        id,
        name,
        remaining,
        operations: OPERATIONS.map(option).into_iter().collect(),
        value: form.text("value").to_owned(),
        errors,
    })
}

pub async fn show_form(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    request.caller.require(Action::UpdateKey)?;
    render_page(&build_page(&request, &id, FormErrors::default()).await?)
}

/// Sets, adds or removes credits.
pub async fn update(
    request: WorkspaceRequest,
    Path((_, id)): Path<(String, String)>,
) -> PageResult {
    request.caller.require(Action::UpdateKey)?;
    // Boxed: the future is large.
    let update = Box::pin(apply(&request, &id));
    match split_form_errors(create_once(&request, update).await)? {
        Ok(_) => redirect_to(&key_path(&request, &id, "?notice=key-credits")),
        Err(errors) => render_invalid_page(&build_page(&request, &id, errors).await?),
    }
}

async fn apply(request: &WorkspaceRequest, id: &str) -> Result<KeyId, Error> {
    let update = read_update(&request.page_request.form)?;
    let (keys, id) = (&request.page_request.app.keys, KeyId::from(id));
    keys::update_credits(keys, &request.caller, &id, update, UpdatedAtPolicy::Keep).await?;
    Ok(id)
}

fn read_update(form: &Form) -> Result<CreditsUpdate, Error> {
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
