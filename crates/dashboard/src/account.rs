//! The account page of a user: password, single sign-on, sessions.

use askama::Template;
use axum::extract::Path;
use domain::users::single_sign_on::{SignInMethods, load_sign_in_methods};
use domain::users::{self, PASSWORD_LENGTH_MAX, PASSWORD_LENGTH_MIN};
use foundation::error::Error;
use foundation::id::SessionId;

use super::form::FormErrors;
use super::format::TimeLabel;
use super::layout::Layout;
use super::page_request::PageRequest;
use super::{PageResult, redirect_to, render_invalid_page, render_page};

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage {
    layout: Layout,
    email: String,
    sessions: Vec<SessionTableRow>,
    errors: FormErrors,
    password_min: usize,
    password_max: usize,
    sign_in_methods: SignInMethods,
    accepts_passwords: bool,
    /// The display name of the OIDC provider, if one is configured.
    oidc_name: Option<String>,
}

struct SessionTableRow {
    id: SessionId,
    is_current: bool,
    agent: String,
    address: String,
    last_used: TimeLabel,
    signed_in: TimeLabel,
}

async fn build_page(
    request: &PageRequest,
    errors: FormErrors,
) -> Result<AccountPage, super::Failure> {
    let known = request.require_session()?;
    let now = request.app.context.clock.now();
    let sessions = users::list_sessions(&request.app.context, known).await?;
    let row = |session: foundation::model::Session| SessionTableRow {
        is_current: session.id == known.session.id,
        agent: session.user_agent.unwrap_or_else(|| "Unknown browser".into()),
        address: session.address.unwrap_or_else(|| "–".into()),
        last_used: TimeLabel::new(session.seen_at, now),
        signed_in: TimeLabel::new(session.created_at, now),
        id: session.id,
    };
    Ok(AccountPage {
        layout: Layout::for_account(request, "Your account").await?,
        email: known.user.email.clone(),
        sessions: sessions.into_iter().map(row).collect(),
        errors,
        password_min: PASSWORD_LENGTH_MIN,
        password_max: PASSWORD_LENGTH_MAX,
        sign_in_methods: load_sign_in_methods(&request.app.context, &known.user).await?,
        accepts_passwords: users::require_passwords_enabled(&request.app.context).is_ok(),
        oidc_name: request.oidc_name().map(str::to_owned),
    })
}

pub async fn show(request: PageRequest) -> PageResult {
    render_page(&build_page(&request, FormErrors::default()).await?)
}

pub async fn change_password(request: PageRequest) -> PageResult {
    let known = request.require_session()?;
    let (old, new) = (request.form.text("current"), request.form.text("password"));
    let changed =
        users::change_password(&request.app.users, known, old, new, &request.origin).await;
    let errors = match changed {
        Ok(true) => return redirect_to("/dashboard/account?notice=password"),
        Ok(false) => FormErrors::single("current", "The current password is incorrect."),
        Err(Error::Invalid(errors)) => FormErrors::new(errors),
        Err(error) => return Err(error.into()),
    };
    render_invalid_page(&build_page(&request, errors).await?)
}

pub async fn end_session(request: PageRequest, Path(session): Path<String>) -> PageResult {
    let known = request.require_session()?;
    users::end_session(&request.app.context, known, &SessionId::from(session), &request.origin)
        .await?;
    redirect_to("/dashboard/account?notice=session")
}

pub async fn end_other_sessions(request: PageRequest) -> PageResult {
    let known = request.require_session()?;
    users::end_other_sessions(&request.app.context, known, &request.origin).await?;
    redirect_to("/dashboard/account?notice=others")
}
