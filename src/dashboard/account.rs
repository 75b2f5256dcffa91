//! A person's own account: the password, and where they are signed in.

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
    /// How single sign-on is called, where there is one.
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

async fn account(visit: &PageRequest, fault: Option<String>) -> Result<Page, super::Failure> {
    let known = visit.signed_in()?;
    let now = visit.app.clock.now();
    let sessions = users::sessions(&visit.app, known).await?;
    let row = |session: foundation::model::Session| Row {
        is_this: session.id == known.session.id,
        agent: session.user_agent.unwrap_or_else(|| "A browser that does not say".into()),
        address: session.address.unwrap_or_else(|| "–".into()),
        seen: TimeLabel::new(session.seen_at, now),
        began: TimeLabel::new(session.created_at, now),
        id: session.id,
    };
    Ok(Page {
        shell: Layout::of_account(visit, "Your account").await?,
        email: known.person.email.clone(),
        sessions: sessions.into_iter().map(row).collect(),
        fault,
        password_min: PASSWORD_MIN,
        password_max: PASSWORD_MAX,
        ways_in: ways_in(&visit.app, &known.person).await?,
        takes_passwords: users::require_passwords_enabled(&visit.app).is_ok(),
        issuer: visit.issuer().map(str::to_owned),
    })
}

pub async fn page_of(visit: PageRequest) -> Answer {
    page(&account(&visit, None).await?)
}

pub async fn change_password(visit: PageRequest) -> Answer {
    let known = visit.signed_in()?;
    let (old, new) = (visit.form.text("current"), visit.form.text("password"));
    let changed = users::change_password(&visit.app, known, old, new, &visit.origin).await;
    let fault = match changed {
        Ok(true) => return redirect_to("/dashboard/account?notice=password"),
        Ok(false) => Some("Your current password is another one.".to_owned()),
        Err(Error::Invalid(faults)) => faults.into_iter().next().map(|fault| fault.message),
        Err(error) => return Err(error.into()),
    };
    refused_page(&account(&visit, fault).await?)
}

pub async fn end(visit: PageRequest, Path(session): Path<String>) -> Answer {
    let known = visit.signed_in()?;
    users::end(&visit.app, known, &SessionId::from(session), &visit.origin).await?;
    redirect_to("/dashboard/account?notice=session")
}

pub async fn end_others(visit: PageRequest) -> Answer {
    let known = visit.signed_in()?;
    users::end_others(&visit.app, known, &visit.origin).await?;
    redirect_to("/dashboard/account?notice=others")
}
