//! The account page of a user: password, single sign-on, sessions.

use askama::Template;
use axum::extract::Path;
use foundation::error::Error;
use foundation::id::SessionId;

use super::format::TimeLabel;
use super::layout::Layout;
use super::page_request::PageRequest;
use super::{Answer, page, redirect_to, refused_page};
use crate::domain::users::single_sign_on::{SignInMethods, ways_in};
use crate::domain::users::{self, PASSWORD_MAX, PASSWORD_MIN};

#[derive(Template)]
#[template(path = "account.html")]
struct Page {
    shell: Layout,
    email: String,
    sessions: Vec<Row>,
    fault: Option<String>,
    password_min: usize,
    password_max: usize,
    ways_in: SignInMethods,
    takes_passwords: bool,
    /// The display name of the OIDC provider, if one is configured.
    issuer: Option<String>,
}

struct Row {
    id: SessionId,
    is_this: bool,
    agent: String,
    address: String,
    seen: TimeLabel,
    began: TimeLabel,
}

async fn account(request: &PageRequest, fault: Option<String>) -> Result<Page, super::Failure> {
    let known = request.signed_in()?;
    let now = request.app.clock.now();
    let sessions = users::sessions(&request.app, known).await?;
    let row = |session: foundation::model::Session| Row {
        is_this: session.id == known.session.id,
        agent: session.user_agent.unwrap_or_else(|| "Unknown browser".into()),
        address: session.address.unwrap_or_else(|| "–".into()),
        seen: TimeLabel::new(session.seen_at, now),
        began: TimeLabel::new(session.created_at, now),
        id: session.id,
    };
    Ok(Page {
        shell: Layout::of_account(request, "Your account").await?,
        email: known.person.email.clone(),
        sessions: sessions.into_iter().map(row).collect(),
        fault,
        password_min: PASSWORD_MIN,
        password_max: PASSWORD_MAX,
        ways_in: ways_in(&request.app, &known.person).await?,
        takes_passwords: users::require_passwords_enabled(&request.app).is_ok(),
        issuer: request.issuer().map(str::to_owned),
    })
}

pub async fn page_of(request: PageRequest) -> Answer {
    page(&account(&request, None).await?)
}

pub async fn change_password(request: PageRequest) -> Answer {
    let known = request.signed_in()?;
    let (old, new) = (request.form.text("current"), request.form.text("password"));
    let changed = users::change_password(&request.app, known, old, new, &request.origin).await;
    let fault = match changed {
        Ok(true) => return redirect_to("/dashboard/account?notice=password"),
        Ok(false) => Some("The current password is incorrect.".to_owned()),
        Err(Error::Invalid(faults)) => faults.into_iter().next().map(|fault| fault.message),
        Err(error) => return Err(error.into()),
    };
    refused_page(&account(&request, fault).await?)
}

pub async fn end(request: PageRequest, Path(session): Path<String>) -> Answer {
    let known = request.signed_in()?;
    users::end(&request.app, known, &SessionId::from(session), &request.origin).await?;
    redirect_to("/dashboard/account?notice=session")
}

pub async fn end_others(request: PageRequest) -> Answer {
    let known = request.signed_in()?;
    users::end_others(&request.app, known, &request.origin).await?;
    redirect_to("/dashboard/account?notice=others")
}
