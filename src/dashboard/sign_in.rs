//! Sign-in and sign-out.

use askama::Template;

use super::layout::Layout;
use super::page_request::PageRequest;
use super::{Answer, headers, page, redirect_to, refused_page};
use crate::domain::users;

#[derive(Template)]
#[template(path = "sign_in.html")]
struct Page<'a> {
    shell: Layout,
    email: &'a str,
    fault: Option<String>,
    takes_passwords: bool,
    /// The display name of the OIDC provider, if one is configured.
    issuer: Option<&'a str>,
}

impl<'a> Page<'a> {
    fn new(request: &'a PageRequest, fault: Option<String>) -> Self {
        Self {
            shell: Layout::bare(request, "Sign in"),
            email: request.form.text("email"),
            fault,
            takes_passwords: users::require_passwords_enabled(&request.app).is_ok(),
            issuer: request.issuer(),
        }
    }
}

pub async fn form(request: PageRequest) -> Answer {
    match request.known {
        Some(_) => redirect_to("/dashboard"),
        None => page(&Page::new(&request, None)),
    }
}

/// Renders the sign-in page with the reason for the rejection.
pub fn refused(request: &PageRequest, fault: String) -> Answer {
    refused_page(&Page::new(request, Some(fault)))
}

pub async fn sign_in(request: PageRequest) -> Answer {
    let (email, password) = (request.form.text("email"), request.form.text("password"));
    let signed_in = users::sign_in(&request.app, email, password, &request.origin).await?;
    let Some(signed_in) = signed_in else {
        return refused(&request, "Incorrect e-mail or password.".to_owned());
    };
    // The previous session of this browser ends.
    if let Some(known) = &request.known {
        users::sign_out(&request.app, known, &request.origin).await?;
    }
    let mut answer = redirect_to("/dashboard")?;
    headers::keep_session(&mut answer, signed_in.token.expose());
    Ok(answer)
}

pub async fn sign_out(request: PageRequest) -> Answer {
    if let Some(known) = &request.known {
        users::sign_out(&request.app, known, &request.origin).await?;
    }
    let mut answer = redirect_to("/dashboard/login")?;
    headers::forget_session(&mut answer);
    Ok(answer)
}
