//! What a page cannot do, told so that a person knows what to do next.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::http::header::{ALLOW, RETRY_AFTER, SET_COOKIE};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use foundation::error::Error;
use foundation::id::RequestId;

use super::assets::{Assets, assets};
use super::{headers, page};

/// Why there is no page.
#[derive(Debug)]
pub enum Failure {
    /// Nobody is signed in, or not any more.
    SignIn,
    /// The form does not come from a page of this server.
    Forged,
    /// The browser did not keep the cookie that it was given.
    NoCookies,
    Known(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Known(error)
    }
}

/// A failure on its way through the router, which wants every answer to be one that can be copied.
#[derive(Debug, Clone)]
struct Failed(Arc<Failure>);

impl IntoResponse for Failure {
    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status();
        response.extensions_mut().insert(Failed(Arc::new(self)));
        response
    }
}

#[derive(Template)]
#[template(path = "failure.html")]
struct Page<'a> {
    assets: Assets,
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
            // A root key that is not there is no root key that somebody asks with.
            Self::Known(Error::NotFound(_)) => 404,
            Self::Known(error) => error.code().status(),
        };
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// An answer of the router, with the page of the failure that it carries, if it carries one.
    pub fn render_into(mut answer: Response<Body>, request_id: &RequestId) -> Response<Body> {
        let Some(failed) = answer.extensions_mut().remove::<Failed>() else { return answer };
        let mut told = failed.0.page(request_id);
        // The router knows which methods there are; and what a browser is to forget, it forgets all the same.
        for name in [ALLOW, SET_COOKIE] {
            for value in answer.headers().get_all(&name) {
                told.headers_mut().append(&name, value.clone());
            }
        }
        told
    }

    /// The page that says so.
    pub fn page(&self, request_id: &RequestId) -> Response<Body> {
        let status = self.status();
        let sentence = match self {
            Self::SignIn => return headers::redirect("/dashboard/login").unwrap_or_default(),
            Self::Forged => "This form did not come from a page of this dashboard, or the page \
                was too old. Go back, load the page again, and repeat what you did."
                .to_owned(),
            Self::NoCookies => "Your browser did not keep the cookie that it was given, so it cannot be signed in. \
                Cookies of the dashboard need https; without it they work only on the machine itself, at \
                http://127.0.0.1 or http://localhost (in Chromium and Firefox). Put a proxy with TLS in front of \
                Keyward, and allow cookies for this address."
                .to_owned(),
            Self::Known(error) => sentence(error),
        };
        if let Self::Known(error) = self
            && status.is_server_error()
        {
            tracing::error!(
                operation = "dashboard", request.id = %request_id, error = %error,
                "a page of the dashboard failed: {error}"
            );
        }
        let title = title(status);
        let template = Page { assets: assets(), title, sentence, request_id: request_id.as_str() };
        let mut response = page(&template).unwrap_or_default();
        *response.status_mut() = status;
        if matches!(status.as_u16(), 429 | 503) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    }
}

fn sentence(error: &Error) -> String {
    match error {
        Error::Forbidden(missing) => {
            format!("Your role in this workspace does not allow that: it lacks {missing}.")
        }
        Error::NoSuchPath => "There is no page at this address.".to_owned(),
        Error::WrongMethod(..) => "This address cannot be asked in this way.".to_owned(),
        Error::Issuer(_) => {
            "Single sign-on cannot be used at this moment. Who has a password can sign in with it; \
            else try again in a moment, and tell whoever runs this server the request below."
                .to_owned()
        }
        Error::OperationDisabled(_) => {
            "This server lets people in by single sign-on alone.".to_owned()
        }
        Error::NotFound(_) => "It does not exist, not any more, or not for you.".to_owned(),
        other => {
            let detail = other.detail();
            let mut letters = detail.chars();
            let first = letters.next().into_iter().flat_map(char::to_uppercase);
            first.chain(letters).chain(['.']).collect()
        }
    }
}

fn title(status: StatusCode) -> &'static str {
    match status.as_u16() {
        403 => "You may not do that",
        404 => "There is nothing here",
        405 => "That is not how to ask",
        413 => "That is too much",
        429 => "Too many attempts",
        503 => "Something is away",
        500..=599 => "Something failed",
        _ => "That did not work",
    }
}
