//! Sign-in and sign-out.

use askama::Template;
use domain::users::{self, SignedIn};

use super::layout::Layout;
use super::next_page::{find_next, with_next};
use super::page_request::PageRequest;
use super::{PageResult, headers, redirect_to, render_invalid_page, render_page};

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage<'a> {
    layout: Layout,
    email: &'a str,
    error: Option<String>,
    accepts_passwords: bool,
    /// The display name of the OIDC provider, if one is configured.
    oidc_name: Option<&'a str>,
    oidc_path: String,
    /// The page to which the sign-in leads; `None`: the dashboard.
    next: Option<&'a str>,
}

impl<'a> SignInPage<'a> {
    fn new(request: &'a PageRequest, fault: Option<String>) -> Self {
        let next = find_next(request);
        Self {
            layout: Layout::without_workspace(request, "Sign in"),
            email: request.form.text("email"),
            error: fault,
            accepts_passwords: users::require_passwords_enabled(&request.app.context).is_ok(),
            oidc_name: request.oidc_name(),
            oidc_path: with_next("/dashboard/login/oidc", next),
            next,
        }
    }
}

pub async fn show_form(request: PageRequest) -> PageResult {
    match request.session {
        Some(_) => redirect_to(find_next(&request).unwrap_or("/dashboard")),
        None => render_page(&SignInPage::new(&request, None)),
    }
}

/// Renders the sign-in page with the reason for the rejection.
pub fn show_rejection(request: &PageRequest, fault: String) -> PageResult {
    render_invalid_page(&SignInPage::new(request, Some(fault)))
}

pub async fn sign_in(request: PageRequest) -> PageResult {
    let (email, password) = (request.form.text("email"), request.form.text("password"));
    let signed_in = users::sign_in(&request.app.users, email, password, &request.origin).await?;
    let Some(signed_in) = signed_in else {
        return show_rejection(&request, "Incorrect e-mail or password.".to_owned());
    };
    start_session(&request, &signed_in, find_next(&request).unwrap_or("/dashboard")).await
}

/// Gives the browser its new session and redirects it. Its previous session ends.
pub async fn start_session(request: &PageRequest, signed_in: &SignedIn, to: &str) -> PageResult {
    if let Some(known) = &request.session {
        users::sign_out(&request.app.context, known, &request.origin).await?;
    }
    let mut answer = redirect_to(to)?;
    headers::set_session_cookie(&mut answer, signed_in.token.expose());
    Ok(answer)
}

pub async fn sign_out(request: PageRequest) -> PageResult {
    if let Some(known) = &request.session {
        users::sign_out(&request.app.context, known, &request.origin).await?;
    }
    let mut answer = redirect_to("/dashboard/login")?;
    headers::delete_session_cookie(&mut answer);
    Ok(answer)
}
