//! The page of an invitation link, which makes a user a member.

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
    /// The invitation; `None` if the link is invalid.
    link: Option<Invitation>,
    email: &'a str,
    fault: Option<String>,
    password_min: usize,
    password_max: usize,
    takes_password: bool,
    /// The display name of the OIDC provider, if one is configured.
    issuer: Option<&'a str>,
}

impl Page<'_> {
    /// Returns whether this is a setup link, which creates the first owner.
    fn is_first(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.kind != InvitationKind::Member)
    }
}

async fn joining<'a>(
    request: &'a PageRequest,
    token: &'a str,
    fault: Option<String>,
) -> Result<Page<'a>, Error> {
    let link = users::find_invitation(&request.app, token).await?;
    Ok(Page {
        shell: Layout::bare(request, "Join"),
        token,
        takes_password: link.as_ref().is_some_and(|link| users::takes_password(&request.app, link)),
        issuer: request.issuer(),
        link,
        email: request.form.text("email"),
        fault,
        password_min: PASSWORD_MIN,
        password_max: PASSWORD_MAX,
    })
}

pub async fn form(request: PageRequest, Path(token): Path<String>) -> Answer {
    page(&joining(&request, &token, None).await?)
}

pub async fn join(request: PageRequest, Path(token): Path<String>) -> Answer {
    let (email, password) = (request.form.text("email"), request.form.text("password"));
    let joined = users::accept(&request.app, &token, email, password, &request.origin).await;
    let fault = match joined {
        Ok(AcceptResult::In(signed_in, workspace)) => {
            let mut answer = redirect_to(&format!("/dashboard/{workspace}?notice=joined"))?;
            headers::keep_session(&mut answer, signed_in.token.expose());
            return Ok(answer);
        }
        Ok(AcceptResult::NoLink) => None,
        Ok(AcceptResult::WrongPassword) => {
            Some("An account with this e-mail exists. Enter its password.".to_owned())
        }
        Err(Error::Invalid(faults)) => faults.into_iter().next().map(|fault| fault.message),
        Err(error) => return Err(error.into()),
    };
    refused_page(&joining(&request, &token, fault).await?)
}
