//! The page of an invitation link, which makes a user a member.

use askama::Template;
use axum::extract::Path;
use domain::users::{self, AcceptResult, PASSWORD_LENGTH_MAX, PASSWORD_LENGTH_MIN};
use foundation::error::Error;
use foundation::model::{Invitation, InvitationKind};

use super::form::FormErrors;
use super::layout::Layout;
use super::page_request::PageRequest;
use super::sign_in::start_session;
use super::{PageResult, render_invalid_page, render_page};

#[derive(Template)]
#[template(path = "join.html")]
struct AcceptInvitationPage<'a> {
    layout: Layout,
    token: &'a str,
    /// The invitation; `None` if the link is invalid.
    invitation: Option<Invitation>,
    email: &'a str,
    errors: FormErrors,
    password_min: usize,
    password_max: usize,
    accepts_password: bool,
    /// The display name of the OIDC provider, if one is configured.
    oidc_name: Option<&'a str>,
}

impl AcceptInvitationPage<'_> {
    /// Returns whether this is a setup link, which creates the first owner.
    fn is_first(&self) -> bool {
        self.invitation.as_ref().is_some_and(|link| link.kind != InvitationKind::Member)
    }
}

async fn build_page<'a>(
    request: &'a PageRequest,
    token: &'a str,
    errors: FormErrors,
) -> Result<AcceptInvitationPage<'a>, Error> {
    let link = users::find_invitation(&request.app.context, token).await?;
    Ok(AcceptInvitationPage {
        layout: Layout::without_workspace(request, "Join"),
        token,
        accepts_password: link
            .as_ref()
            .is_some_and(|link| users::is_password_allowed(&request.app.context, link)),
        oidc_name: request.oidc_name(),
        invitation: link,
        email: request.form.text("email"),
        errors,
        password_min: PASSWORD_LENGTH_MIN,
        password_max: PASSWORD_LENGTH_MAX,
    })
}

pub async fn show_form(request: PageRequest, Path(token): Path<String>) -> PageResult {
    render_page(&build_page(&request, &token, FormErrors::default()).await?)
}

pub async fn accept(request: PageRequest, Path(token): Path<String>) -> PageResult {
    let (email, password) = (request.form.text("email"), request.form.text("password"));
    let joined =
        users::accept_invitation(&request.app.users, &token, email, password, &request.origin)
            .await;
    let errors = match joined {
        Ok(AcceptResult::Joined(signed_in, workspace)) => {
            let to = format!("/dashboard/{workspace}?notice=joined");
            return start_session(&request, &signed_in, &to).await;
        }
        Ok(AcceptResult::InvalidInvitation) => FormErrors::default(),
        Ok(AcceptResult::WrongPassword) => {
            let sentence = "An account with this e-mail exists. Enter its password.";
            FormErrors::single("password", sentence)
        }
        Err(Error::Invalid(errors)) => FormErrors::new(errors),
        Err(error) => return Err(error.into()),
    };
    render_invalid_page(&build_page(&request, &token, errors).await?)
}
