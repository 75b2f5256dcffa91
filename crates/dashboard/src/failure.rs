//! Error pages, which say what happened and what to do.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::http::header::{ALLOW, RETRY_AFTER, SET_COOKIE};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use foundation::error::Error;
use foundation::id::RequestId;

use super::assets::{AssetPaths, asset_paths};
use super::{headers, render_page};

/// The reason why a page cannot be shown.
#[derive(Debug)]
pub enum Failure {
    /// The browser is not signed in, or its session has expired. Redirects to the sign-in page.
    SignIn,
    /// The form does not come from a page of this server, or its CSRF token is invalid.
    Forged,
    /// The browser did not store the guest cookie.
    NoCookies,
    Domain(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Domain(error)
    }
}

/// Carries a failure through the router as a response extension, which must implement `Clone`.
#[derive(Debug, Clone)]
struct FailureExtension(Arc<Failure>);

impl IntoResponse for Failure {
    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status();
        response.extensions_mut().insert(FailureExtension(Arc::new(self)));
        response
    }
}

#[derive(Template)]
#[template(path = "failure.html")]
struct FailurePage<'a> {
    assets: AssetPaths,
    title: &'static str,
    sentence: String,
    request_id: &'a str,
}

impl Failure {
    fn status(&self) -> StatusCode {
        let status = match self {
            Self::SignIn => 303,
            Self::Forged => 403,
            Self::NoCookies => 400,
            // `Error::code` may map a missing root key to 401; here it is an object that was looked up: 404.
            Self::Domain(Error::NotFound(_)) => 404,
            Self::Domain(error) => error.code().status(),
        };
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Replaces a response that carries a failure by the page of that failure; returns other responses unchanged.
    pub fn render_into(mut answer: Response<Body>, request_id: &RequestId) -> Response<Body> {
        let Some(failed) = answer.extensions_mut().remove::<FailureExtension>() else {
            return answer;
        };
        let mut response = failed.0.render(request_id);
        // `Allow` is set by the router. Cookies that the handler deletes must be deleted on failure too.
        for name in [ALLOW, SET_COOKIE] {
            for value in answer.headers().get_all(&name) {
                response.headers_mut().append(&name, value.clone());
            }
        }
        response
    }

    /// Renders the failure as a page, and logs it if it is a server error.
    pub fn render(&self, request_id: &RequestId) -> Response<Body> {
        let status = self.status();
        let sentence = match self {
            Self::SignIn => return headers::redirect("/dashboard/login").unwrap_or_default(),
            Self::Forged => "The form has expired. Reload the page and try again.".to_owned(),
            Self::NoCookies => "Your browser did not store the sign-in cookie. Cookies of the dashboard require \
                https; without it they work only on the server itself, at http://127.0.0.1 or http://localhost \
                (in Chromium and Firefox). Give Keyward a certificate, or put a TLS proxy in front of it, and allow cookies for this address."
                .to_owned(),
            Self::Domain(error) => user_message(error),
        };
        if let Self::Domain(error) = self
            && status.is_server_error()
        {
            tracing::error!(
                operation = "dashboard", request.id = %request_id, error = %error,
                "failed to serve a dashboard page: {error}"
            );
        }
        let title = status_title(status);
        let template =
            FailurePage { assets: asset_paths(), title, sentence, request_id: request_id.as_str() };
        let mut response = render_page(&template).unwrap_or_default();
        *response.status_mut() = status;
        if matches!(status.as_u16(), 429 | 503) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    }
}

fn user_message(error: &Error) -> String {
    match error {
        Error::Forbidden(missing) => {
            format!("Your role in this workspace lacks the permission {missing}.")
        }
        Error::PathNotFound => "There is no page at this address.".to_owned(),
        Error::MethodNotAllowed(..) => "This address does not support the request method.".to_owned(),
        Error::OidcProvider(_) => {
            "Single sign-on is unavailable. Sign in with your password if you have one, or try again in a few \
            seconds. If the problem persists, send the request id below to the operator of this server."
                .to_owned()
        }
        Error::OperationDisabled(_) => {
            "This server allows only single sign-on.".to_owned()
        }
        Error::NotFound(_) => "Not found, or you don't have access.".to_owned(),
        other => {
            let detail = other.detail();
            let mut letters = detail.chars();
            let first = letters.next().into_iter().flat_map(char::to_uppercase);
            first.chain(letters).chain(['.']).collect()
        }
    }
}

fn status_title(status: StatusCode) -> &'static str {
    match status.as_u16() {
        403 => "Permission denied",
        404 => "Not found",
        405 => "Method not allowed",
        413 => "Request too large",
        429 => "Too many attempts",
        503 => "Service unavailable",
        500..=599 => "Internal error",
        _ => "Invalid request",
    }
}
