//! The page behind a link that makes somebody a member.

use askama::Template;
use axum::extract::Path;
use foundation::error::Error;
use foundation::model::{Invitation, InvitationKind};

use super::layout::Layout;
use super::page_request::PageRequest;
use super::{Answer, headers, page, redirect_to, refused_page};
use crate::domain::users::{self, AcceptResult, PASSWORD_MAX, PASSWORD_MIN};

#[derive(Template)]
#[template(path = "join.html")]
struct Page<'a> {
    shell: Layout,
    token: &'a str,
    /// Absent: the link is not good.
    link: Option<Invitation>,
    email: &'a str,
    fault: Option<String>,
    password_min: usize,
    password_max: usize,
    takes_password: bool,
    /// How single sign-on is called, where there is one.
    issuer: Option<&'a str>,
}

impl Page<'_> {
    fn is_first(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.kind != InvitationKind::Member)
    }
}

async fn joining<'a>(
    visit: &'a PageRequest,
    token: &'a str,
    fault: Option<String>,
) -> Result<Page<'a>, Error> {
    let link = users::find_invitation(&visit.app, token).await?;
    Ok(Page {
        shell: Layout::bare(visit, "Join"),
        token,
        takes_password: link.as_ref().is_some_and(|link| users::takes_password(&visit.app, link)),
        issuer: visit.issuer(),
        link,
        email: visit.form.text("email"),
        fault,
        password_min: PASSWORD_MIN,
        password_max: PASSWORD_MAX,
    })
}

pub async fn form(visit: PageRequest, Path(token): Path<String>) -> Answer {
    page(&joining(&visit, &token, None).await?)
}

pub async fn join(visit: PageRequest, Path(token): Path<String>) -> Answer {
    let (email, password) = (visit.form.text("email"), visit.form.text("password"));
    let joined = users::accept(&visit.app, &token, email, password, &visit.origin).await;
    let fault = match joined {
        Ok(AcceptResult::In(signed_in, workspace)) => {
            let mut answer = redirect_to(&format!("/dashboard/{workspace}?notice=joined"))?;
            headers::keep_session(&mut answer, signed_in.token.expose());
            return Ok(answer);
        }
        Ok(AcceptResult::NoLink) => None,
        Ok(AcceptResult::WrongPassword) => {
            Some("This e-mail has an account already: give its password.".to_owned())
        }
        Err(Error::Invalid(faults)) => faults.into_iter().next().map(|fault| fault.message),
        Err(error) => return Err(error.into()),
    };
    refused_page(&joining(&visit, &token, fault).await?)
}
