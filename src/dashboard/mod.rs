//! The dashboard: pages for people, at `/dashboard`.
//!
//! A door like [`crate::rpc`]: it reads a request, calls the domain, and words the answer; every rule is in the domain.
//! Every request walks one line, [`Dashboard::answer`]: who asks, is it allowed to come from there, the page, the
//! headers. Pages work without JavaScript, change nothing by GET, and show what is stored as text. A page is a file
//! with its templates beside it; its row in the `routes` of its section is all that there is to register.

mod accept_invitation;
mod account;
mod analytics;
mod apis;
mod assets;
mod audit;
mod charts;
mod confirm;
mod duration_field;
mod failure;
mod form;
mod format;
mod headers;
mod hidden;
mod identities;
mod imports;
mod key_row;
mod keys;
mod layout;
mod limit_rows;
mod members;
mod overview;
mod page_request;
mod pagination;
mod permissions;
mod ratelimits;
mod root_keys;
mod sign_in;
mod single_sign_on;

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method, Response, StatusCode};
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use failure::Failure;
use foundation::error::Error;
use foundation::id::RequestId;
use futures_util::FutureExt as _;
use page_request::PageRequest;
use tower::Service as _;

use crate::app::App;

/// What every path of the dashboard begins with.
pub const PREFIX: &str = "/dashboard";
/// The largest form that is read.
const FORM_BYTES_MAX: usize = 128 * 1024;

/// What a page answers with.
type Answer = Result<Response<Body>, Failure>;

/// The dashboard of a server.
#[derive(Clone)]
pub struct Dashboard {
    app: Arc<App>,
    routes: Router,
}

impl Dashboard {
    pub fn new(app: Arc<App>) -> Self {
        Self { app, routes: routes() }
    }

    /// Whether a path is one of its own.
    pub fn has(path: &str) -> bool {
        path.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Answers one request.
    pub async fn answer(self, request: Request) -> Response<Body> {
        if let Some(asset) = assets::answer(&request) {
            return headers::finish_asset(asset);
        }
        let request_id = RequestId::new(self.app.clock.now());
        let walked = AssertUnwindSafe(self.handle(request)).catch_unwind().await;
        let walked = walked
            .unwrap_or_else(|_| Err(Error::Internal("a page panicked".into()).into()))
            .map(|answer| Failure::render_into(answer, &request_id));
        let mut answer = walked.unwrap_or_else(|failure| failure.page(&request_id));
        headers::finish(&mut answer, &request_id);
        answer
    }

    async fn handle(mut self, request: Request) -> Answer {
        let (mut head, body) = request.into_parts();
        if ![Method::GET, Method::HEAD, Method::POST].contains(&head.method) {
            return Err(Error::WrongMethod(head.method.to_string(), "GET").into());
        }
        if head.uri.path().contains("%00") {
            return Err(Error::NoSuchPath.into());
        }
        let mut visit = PageRequest::begin(&self.app, &head).await?;
        if head.method == Method::POST {
            visit.read_form(&head, body).await?;
        }
        let fresh_guest = visit.fresh_guest();
        head.extensions.insert(visit);
        let called = self.routes.call(Request::from_parts(head, Body::empty())).await;
        let mut answer = called.unwrap_or_else(|never: Infallible| match never {});
        if let Some(token) = fresh_guest {
            headers::keep_guest(&mut answer, &token);
        }
        Ok(answer)
    }
}

fn routes() -> Router {
    Router::new()
        .route("/dashboard", get(overview::home))
        .route("/dashboard/login", get(sign_in::form).post(sign_in::sign_in))
        .route("/dashboard/logout", post(sign_in::sign_out))
        .route(
            "/dashboard/join/{token}",
            get(accept_invitation::form).post(accept_invitation::join),
        )
        .route("/dashboard/account", get(account::page_of))
        .route("/dashboard/account/password", post(account::change_password))
        .route("/dashboard/account/sessions/end-others", post(account::end_others))
        .route("/dashboard/account/sessions/{session}/end", post(account::end))
        .route("/dashboard/{workspace}", get(overview::page_of))
        .merge(analytics::routes())
        .merge(apis::routes())
        .merge(keys::routes())
        .merge(identities::routes())
        .merge(permissions::routes())
        .merge(ratelimits::routes())
        .merge(root_keys::routes())
        .merge(imports::routes())
        .merge(members::routes())
        .merge(audit::routes())
        .merge(single_sign_on::routes())
        .fallback(async || Failure::from(Error::NoSuchPath))
        .method_not_allowed_fallback(async |method: Method| {
            Failure::from(Error::WrongMethod(method.to_string(), "another method"))
        })
}

/// A page, whole.
fn page(template: &impl Template) -> Answer {
    let html = template.render().map_err(|e| Error::Internal(format!("a page failed: {e}")))?;
    let html_type = HeaderValue::from_static("text/html; charset=utf-8");
    Ok(([(CONTENT_TYPE, html_type)], hidden::write_out(html)).into_response())
}

/// A page that says what is wrong with what it was sent.
fn refused_page(template: &impl Template) -> Answer {
    let mut answer = page(template)?;
    *answer.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
    Ok(answer)
}

/// After an act: where to look next. `to` holds nothing but ids.
fn redirect_to(to: &str) -> Answer {
    headers::redirect(to).ok_or_else(|| Error::Internal("a path is no header".into()).into())
}
