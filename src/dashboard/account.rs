//! A person's own account: the password, and where they are signed in.

use askama::Template;
use axum::extract::Path;

use super::shell::Shell;
use super::visit::Visit;
use super::words::Moment;
use super::{Answer, page, refused_page, see};
use crate::domain::people::single_sign_on::{WaysIn, ways_in};
use crate::domain::people::{self, PASSWORD_MAX, PASSWORD_MIN};
use crate::error::Error;
use crate::id::SessionId;

#[derive(Template)]
#[template(path = "account.html")]
struct Page {
    shell: Shell,
    email: String,
    sessions: Vec<Row>,
    fault: Option<String>,
    password_min: usize,
    password_max: usize,
    ways_in: WaysIn,
    takes_passwords: bool,
    /// How single sign-on is called, where there is one.
    issuer: Option<String>,
}

struct Row {
    id: SessionId,
    is_this: bool,
    agent: String,
    address: String,
    seen: Moment,
    began: Moment,
}

async fn account(visit: &Visit, fault: Option<String>) -> Result<Page, super::Failure> {
    let known = visit.signed_in()?;
    let now = visit.app.clock.now();
    let sessions = people::sessions(&visit.app, known).await?;
    let row = |session: crate::model::Session| Row {
        is_this: session.id == known.session.id,
        agent: session.user_agent.unwrap_or_else(|| "A browser that does not say".into()),
        address: session.address.unwrap_or_else(|| "–".into()),
        seen: Moment::new(session.seen_at, now),
        began: Moment::new(session.created_at, now),
        id: session.id,
    };
    Ok(Page {
        shell: Shell::of_account(visit, "Your account").await?,
        email: known.person.email.clone(),
        sessions: sessions.into_iter().map(row).collect(),
        fault,
        password_min: PASSWORD_MIN,
        password_max: PASSWORD_MAX,
        ways_in: ways_in(&visit.app, &known.person).await?,
        takes_passwords: people::takes_passwords(&visit.app).is_ok(),
        issuer: visit.issuer().map(str::to_owned),
    })
}

pub async fn page_of(visit: Visit) -> Answer {
    page(&account(&visit, None).await?)
}

pub async fn change_password(visit: Visit) -> Answer {
    let known = visit.signed_in()?;
    let (old, new) = (visit.form.text("current"), visit.form.text("password"));
    let changed = people::change_password(&visit.app, known, old, new, &visit.origin).await;
    let fault = match changed {
        Ok(true) => return see("/dashboard/account?told=password"),
        Ok(false) => Some("Your current password is another one.".to_owned()),
        Err(Error::Invalid(faults)) => faults.into_iter().next().map(|fault| fault.message),
        Err(error) => return Err(error.into()),
    };
    refused_page(&account(&visit, fault).await?)
}

pub async fn end(visit: Visit, Path(session): Path<String>) -> Answer {
    let known = visit.signed_in()?;
    people::end(&visit.app, known, &SessionId::from(session), &visit.origin).await?;
    see("/dashboard/account?told=session")
}

pub async fn end_others(visit: Visit) -> Answer {
    let known = visit.signed_in()?;
    people::end_others(&visit.app, known, &visit.origin).await?;
    see("/dashboard/account?told=others")
}
