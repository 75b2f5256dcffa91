//! Signing in and out.

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
    /// How single sign-on is called, where there is one.
    issuer: Option<&'a str>,
}

impl<'a> Page<'a> {
    fn new(visit: &'a PageRequest, fault: Option<String>) -> Self {
        Self {
            shell: Layout::bare(visit, "Sign in"),
            email: visit.form.text("email"),
            fault,
            takes_passwords: users::require_passwords_enabled(&visit.app).is_ok(),
            issuer: visit.issuer(),
        }
    }
}

pub async fn form(visit: PageRequest) -> Answer {
    match visit.known {
        Some(_) => redirect_to("/dashboard"),
        None => page(&Page::new(&visit, None)),
    }
}

/// The page with the reason why somebody has not come in.
pub fn refused(visit: &PageRequest, fault: String) -> Answer {
    refused_page(&Page::new(visit, Some(fault)))
}

pub async fn sign_in(visit: PageRequest) -> Answer {
    let (email, password) = (visit.form.text("email"), visit.form.text("password"));
    let signed_in = users::sign_in(&visit.app, email, password, &visit.origin).await?;
    let Some(signed_in) = signed_in else {
        return refused(&visit, "No account has this e-mail and this password.".to_owned());
    };
    // Whoever was signed in here before is not any more.
    if let Some(known) = &visit.known {
        users::sign_out(&visit.app, known, &visit.origin).await?;
    }
    let mut answer = redirect_to("/dashboard")?;
    headers::keep_session(&mut answer, signed_in.token.expose());
    Ok(answer)
}

pub async fn sign_out(visit: PageRequest) -> Answer {
    if let Some(known) = &visit.known {
        users::sign_out(&visit.app, known, &visit.origin).await?;
    }
    let mut answer = redirect_to("/dashboard/login")?;
    headers::forget_session(&mut answer);
    Ok(answer)
}
