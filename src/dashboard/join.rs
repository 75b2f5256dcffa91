//! The page behind a link that makes somebody a member.

use askama::Template;
use axum::extract::Path;

use super::shell::Shell;
use super::visit::Visit;
use super::{Answer, headers, page, refused_page, see};
use crate::domain::people::{self, Joined, PASSWORD_MAX, PASSWORD_MIN};
use crate::error::Error;
use crate::model::{Invitation, InvitationKind};

#[derive(Template)]
#[template(path = "join.html")]
struct Page<'a> {
    shell: Shell,
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
    visit: &'a Visit,
    token: &'a str,
    fault: Option<String>,
) -> Result<Page<'a>, Error> {
    let link = people::opened(&visit.app, token).await?;
    Ok(Page {
        shell: Shell::bare(visit, "Join"),
        token,
        takes_password: link.as_ref().is_some_and(|link| people::takes_password(&visit.app, link)),
        issuer: visit.issuer(),
        link,
        email: visit.form.text("email"),
        fault,
        password_min: PASSWORD_MIN,
        password_max: PASSWORD_MAX,
    })
}

pub async fn form(visit: Visit, Path(token): Path<String>) -> Answer {
    page(&joining(&visit, &token, None).await?)
}

pub async fn join(visit: Visit, Path(token): Path<String>) -> Answer {
    let (email, password) = (visit.form.text("email"), visit.form.text("password"));
    let joined = people::accept(&visit.app, &token, email, password, &visit.origin).await;
    let fault = match joined {
        Ok(Joined::In(signed_in, workspace)) => {
            let mut answer = see(&format!("/dashboard/{workspace}?told=joined"))?;
            headers::keep_session(&mut answer, signed_in.token.expose());
            return Ok(answer);
        }
        Ok(Joined::NoLink) => None,
        Ok(Joined::WrongPassword) => {
            Some("This e-mail has an account already: give its password.".to_owned())
        }
        Err(Error::Invalid(faults)) => faults.into_iter().next().map(|fault| fault.message),
        Err(error) => return Err(error.into()),
    };
    refused_page(&joining(&visit, &token, fault).await?)
}
