//! Forms that create something once, and the pages to which they lead.
//!
//! Such a form contains a one-time token. It is answered with a redirect, so that reloading the next page sends no form;
//! the same form, sent again, leads to what it created the first time. A page that shows a secret shows it once.

use std::sync::Arc;

use askama::Template;
use axum::http::{Method, StatusCode};
use domain::form_results::{self, FormSecret, ShownSecret};
use domain::form_submission::{FormResultKey, FormSubmission};
use foundation::error::Error;
use foundation::secret::Plaintext;

use super::page_request::{PageRequest, WorkspaceRequest};
use super::{PageResult, redirect_to, render_page};

/// Names the form field with the one-time token.
const TOKEN_FIELD: &str = "form-token";
/// The number of random bytes of a one-time token.
const TOKEN_BYTES: u8 = 16;

pub fn generate_token() -> String {
    Plaintext::generate(None, TOKEN_BYTES).expose().to_owned()
}

/// Returns the submission of the form that a signed-in browser has sent to a path. A form without a token, such as one of
/// a previous version, gets a new one: it is not recognized when it is sent again.
pub fn read_submission(request: &PageRequest, path: &str) -> Option<Arc<FormSubmission>> {
    let session_id = request.session.as_ref()?.session.id.clone();
    let session_token = request.session_token.as_ref()?.expose();
    let form_token = match request.form.text(TOKEN_FIELD) {
        "" => generate_token(),
        token => token.to_owned(),
    };
    let (form, base_url) = ((path, form_token.as_str()), request.base_url.clone());
    Some(Arc::new(FormSubmission::new(session_id, session_token, form, base_url)))
}

/// Runs what the form of the request creates, unless the form was sent before. Returns the id of what it created.
pub async fn create_once<Id: AsRef<str>>(
    request: &WorkspaceRequest,
    creation: impl Future<Output = Result<Id, Error>>,
) -> Result<String, Error> {
    form_results::create_once(&request.page_request.app.context, &request.caller, creation).await
}

/// Redirects to the page that shows the secret of what the form of the request created. `rest`: its path in the workspace.
pub fn redirect_to_secret(request: &WorkspaceRequest, rest: &str) -> PageResult {
    let submission = request.caller.form_submission.as_ref();
    let submission =
        submission.ok_or_else(|| Error::Internal("the request has no form".to_owned()))?;
    let form_id = &submission.key.form_id;
    redirect_to(&request.workspace_path(&format!("{rest}/secret/{form_id}")))
}

/// Returns the secret of what a form of this session created, once, or the reason why it cannot be shown.
pub async fn take_secret(
    request: &WorkspaceRequest,
    created_id: &str,
    form_id: String,
) -> Result<Result<ShownSecret, &'static str>, Error> {
    let PageRequest { app, method, session_token, .. } = &request.page_request;
    let Some(token) = session_token.as_ref().filter(|_| method != Method::HEAD) else {
        return Ok(Err(NOT_FOUND));
    };
    let key = FormResultKey::new(request.known.session.id.clone(), token.expose(), form_id);
    Ok(match form_results::take_secret(&app.context, &key, created_id).await? {
        FormSecret::Available(secret) => Ok(secret),
        FormSecret::Shown => Err("This secret was shown. It cannot be shown again."),
        FormSecret::Expired => {
            Err("This secret was not shown within 60 seconds. It can no longer be shown.")
        }
        FormSecret::NotFound => Err(NOT_FOUND),
    })
}

const NOT_FOUND: &str = "A secret is shown once, in the browser session in which it was created.";

/// Renders a page that shows a secret, with status 410 if the secret cannot be shown.
pub fn render_secret_page(template: &impl Template, is_shown: bool) -> PageResult {
    let mut answer = render_page(template)?;
    if !is_shown {
        *answer.status_mut() = StatusCode::GONE;
    }
    Ok(answer)
}
