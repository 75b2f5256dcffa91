//! Changing a key: only what the person changes, so that what others change in the meantime stays.

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
    /// What is left of its credits; absent: it is unlimited.
    left: Option<i64>,
    fields: Fields,
    /// What the form was first shown with.
    was: String,
    /// What is to be done with the credits, as it was filled in.
    operation: String,
    value: String,
    faults: FormErrors,
    credit_faults: FormErrors,
}

async fn found(asked: &WorkspaceRequest, id: &str) -> Result<KeyDetails, Error> {
    asked.caller.require(Action::UpdateKey)?;
    details::get_details(&asked.visit.app, &asked.caller, &KeyId::from(id)).await
}

async fn editing(
    asked: &WorkspaceRequest,
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
    let form = &asked.visit.form;
    Ok(Edit {
        shell: Layout::of(asked, Section::Keys, "Change a key").await?,
        workspace: asked.membership.workspace_id.to_string(),
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

pub async fn ask(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let looked = found(&asked, &id).await?;
    page(&editing(&asked, &looked, None, [FormErrors::default(), FormErrors::default()]).await?)
}

pub async fn save(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let looked = found(&asked, &id).await?;
    let form = &asked.visit.form;
    let ((fields, is_step), was) = (Fields::read(form), form.text("was").to_owned());
    if is_step {
        let filled = Some((fields, was));
        let none = [FormErrors::default(), FormErrors::default()];
        return page(&editing(&asked, &looked, filled, none).await?);
    }
    match split_form_errors(saved(&asked, &id, &fields, &was).await)? {
        Ok(told) => redirect_to(&path(&asked, &id, told)),
        Err(faults) => {
            let filled = Some((fields, was));
            refused_page(&editing(&asked, &looked, filled, [faults, FormErrors::default()]).await?)
        }
    }
}

async fn saved(
    asked: &WorkspaceRequest,
    id: &str,
    fields: &Fields,
    was: &str,
) -> Result<&'static str, Error> {
    let app = &asked.visit.app;
    let was: Fields = serde_json::from_str(was)
        .map_err(|_| Error::invalid("", "The page was not whole: load it again."))?;
    let mut request = fields.to_update(&was, app.clock.now())?;
    if request.is_empty() {
        return Ok("?notice=key-unchanged");
    }
    let id = serde_json::value::to_raw_value(id).map_err(|e| Error::Internal(e.to_string()))?;
    request.insert("keyId", id);
    call::<UpdateKey>(app, &asked.caller, &request).await.map_err(misnamed)?;
    Ok("?notice=key-updated")
}

/// Sets the credits, adds some or takes some away.
pub async fn credits(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let looked = found(&asked, &id).await?;
    let form = &asked.visit.form;
    let value = form.text("value").trim();
    let request = match form.text("operation") {
        "unlimited" => json!({ "keyId": id, "operation": "set", "value": null }),
        operation => json!({ "keyId": id, "operation": operation, "value": number(value) }),
    };
    match split_form_errors(call::<UpdateCredits>(&asked.visit.app, &asked.caller, &request).await)?
    {
        Ok(_) => redirect_to(&path(&asked, &id, "?notice=key-credits")),
        Err(faults) => {
            refused_page(&editing(&asked, &looked, None, [FormErrors::default(), faults]).await?)
        }
    }
}
