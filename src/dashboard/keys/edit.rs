//! Editing a key. Only the fields that the user changes are sent, so concurrent changes of other fields are kept.

use askama::Template;
use axum::extract::Path;
use foundation::error::Error;
use foundation::id::KeyId;
use serde_json::json;

use super::super::duration_field::number;
use super::super::failure::Failure;
use super::super::form::{FormErrors, split_form_errors};
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{Answer, page, redirect_to, refused_page};
use super::fields::{EXPIRES, Fields, REFILLS};
use super::{misnamed, path};
use crate::domain::keys::details::{self, KeyDetails};
use crate::domain::permission::Action;
use crate::rpc::v2::call;
use crate::rpc::v2::keys::update_credits::UpdateCredits;
use crate::rpc::v2::keys::update_key::UpdateKey;

#[derive(Template)]
#[template(path = "keys/edit.html")]
struct Edit {
    shell: Layout,
    workspace: String,
    id: KeyId,
    title: String,
    /// The remaining credits; `None` if the key is unlimited.
    left: Option<i64>,
    fields: Fields,
    /// The original values of the form, serialized.
    was: String,
    /// The operation on the credits, as submitted.
    operation: String,
    value: String,
    faults: FormErrors,
    credit_faults: FormErrors,
}

async fn found(request: &WorkspaceRequest, id: &str) -> Result<KeyDetails, Error> {
    request.caller.require(Action::UpdateKey)?;
    details::get_details(&request.visit.app, &request.caller, &KeyId::from(id)).await
}

async fn editing(
    request: &WorkspaceRequest,
    looked: &KeyDetails,
    filled: Option<(Fields, String)>,
    [faults, credit_faults]: [FormErrors; 2],
) -> Result<Edit, Failure> {
    let key = &looked.found.view.stored().key;
    let (mut fields, was) = match filled {
        Some(filled) => filled,
        None => {
            let fields = Fields::of(looked);
            let was = fields.mark();
            (fields, was)
        }
    };
    fields.limits = fields.limits.or_blank();
    let form = &request.visit.form;
    Ok(Edit {
        shell: Layout::of(request, Section::Keys, "Edit key").await?,
        workspace: request.membership.workspace_id.to_string(),
        id: key.id.clone(),
        title: key.name.clone().unwrap_or_else(|| format!("{}…", key.start)),
        left: looked.found.credits.map(|(left, _)| left),
        fields,
        was,
        operation: form.text("operation").to_owned(),
        value: form.text("value").to_owned(),
        faults,
        credit_faults,
    })
}

pub async fn ask(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let looked = found(&request, &id).await?;
    page(&editing(&request, &looked, None, [FormErrors::default(), FormErrors::default()]).await?)
}

pub async fn save(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let looked = found(&request, &id).await?;
    let form = &request.visit.form;
    let ((fields, is_step), was) = (Fields::read(form), form.text("was").to_owned());
    if is_step {
        let filled = Some((fields, was));
        let none = [FormErrors::default(), FormErrors::default()];
        return page(&editing(&request, &looked, filled, none).await?);
    }
    match split_form_errors(saved(&request, &id, &fields, &was).await)? {
        Ok(notice) => redirect_to(&path(&request, &id, notice)),
        Err(faults) => {
            let filled = Some((fields, was));
            refused_page(
                &editing(&request, &looked, filled, [faults, FormErrors::default()]).await?,
            )
        }
    }
}

async fn saved(
    request: &WorkspaceRequest,
    id: &str,
    fields: &Fields,
    was: &str,
) -> Result<&'static str, Error> {
    let app = &request.visit.app;
    let was: Fields = serde_json::from_str(was).map_err(|_| {
        Error::invalid("", "The form is incomplete. Reload the page and try again.")
    })?;
    let mut body = fields.to_update(&was, app.clock.now())?;
    if body.is_empty() {
        return Ok("?notice=key-unchanged");
    }
    let id = serde_json::value::to_raw_value(id).map_err(|e| Error::Internal(e.to_string()))?;
    body.insert("keyId", id);
    call::<UpdateKey>(app, &request.caller, &body).await.map_err(misnamed)?;
    Ok("?notice=key-updated")
}

/// Sets, adds or removes credits.
pub async fn credits(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let looked = found(&request, &id).await?;
    let form = &request.visit.form;
    let value = form.text("value").trim();
    let body = match form.text("operation") {
        "unlimited" => json!({ "keyId": id, "operation": "set", "value": null }),
        operation => json!({ "keyId": id, "operation": operation, "value": number(value) }),
    };
    match split_form_errors(
        call::<UpdateCredits>(&request.visit.app, &request.caller, &body).await,
    )? {
        Ok(_) => redirect_to(&path(&request, &id, "?notice=key-credits")),
        Err(faults) => {
            refused_page(&editing(&request, &looked, None, [FormErrors::default(), faults]).await?)
        }
    }
}
