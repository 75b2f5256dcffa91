//! Signing in and out.

use askama::Template;

use super::shell::Shell;
use super::visit::Visit;
use super::{Answer, headers, page, refused_page, see};
use crate::domain::people;

#[derive(Template)]
#[template(path = "sign_in.html")]
struct Page<'a> {
    shell: Shell,
    email: &'a str,
    fault: Option<String>,
    takes_passwords: bool,
    /// How single sign-on is called, where there is one.
    issuer: Option<&'a str>,
}

impl<'a> Page<'a> {
    fn new(visit: &'a Visit, fault: Option<String>) -> Self {
        Self {
            shell: Shell::bare(visit, "Sign in"),
            email: visit.form.text("email"),
            fault,
            takes_passwords: people::takes_passwords(&visit.app).is_ok(),
            issuer: visit.issuer(),
        }
    }
}

pub async fn form(visit: Visit) -> Answer {
    match visit.known {
        Some(_) => see("/dashboard"),
        None => page(&Page::new(&visit, None)),
    }
}

/// The page with the reason why somebody has not come in.
pub fn refused(visit: &Visit, fault: String) -> Answer {
    refused_page(&Page::new(visit, Some(fault)))
}

pub async fn sign_in(visit: Visit) -> Answer {
    let (email, password) = (visit.form.text("email"), visit.form.text("password"));
    let signed_in = people::sign_in(&visit.app, email, password, &visit.origin).await?;
    let Some(signed_in) = signed_in else {
        return refused(&visit, "No account has this e-mail and this password.".to_owned());
    };
    // Whoever was signed in here before is not any more.
    if let Some(known) = &visit.known {
        people::sign_out(&visit.app, known, &visit.origin).await?;
    }
    let mut answer = see("/dashboard")?;
    headers::keep_session(&mut answer, signed_in.token.expose());
    Ok(answer)
}

pub async fn sign_out(visit: Visit) -> Answer {
    if let Some(known) = &visit.known {
        people::sign_out(&visit.app, known, &visit.origin).await?;
    }
    let mut answer = see("/dashboard/login")?;
    headers::forget_session(&mut answer);
    Ok(answer)
}
