//! Serves the dashboard at `/dashboard`.
//!
//! The dashboard is an interface like crate `api`: it reads a request, calls the domain and renders the response.
//! Every rule is in the domain. [`Dashboard::answer`] handles every request in four steps: authentication, the check of
//! the request's origin, the page, the headers. Pages work without JavaScript, change nothing on GET, and show stored
//! values as text. A page is a Rust file with its templates beside it, registered only by its row in the `routes` of
//! its section.

mod accept_invitation;
mod account;
mod analytics;
mod apis;
mod assets;
mod audit;
mod charts;
mod confirm;
mod duration_field;
mod error_links;
mod error_page;
mod expiry_field;
mod failure;
mod field_reader;
mod form;
mod format;
mod gateways;
mod get_started;
mod headers;
mod hidden;
mod icons;
mod identities;
mod imports;
mod key_names;
mod key_row;
mod keys;
mod last_workspace;
mod layout;
mod limit_rows;
mod list_frame;
mod logs;
mod members;
mod multipart;
mod namespace_names;
mod next_page;
mod number_field;
mod one_time_form;
mod overview;
mod page_request;
mod pagination;
mod permissions;
mod ratelimits;
mod root_keys;
mod search;
mod sign_in;
mod single_sign_on;
mod sort_link;
mod status_badge;
#[cfg(debug_assertions)]
mod styleguide;
mod workspace;

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method, Response, StatusCode, Uri};
use axum::response::IntoResponse as _;
use axum::routing::{MethodRouter, get, post};
use domain::app::App;
pub use error_page::{error_section, render_error_page};
use failure::{FailedRequest, Failure};
use foundation::error::Error;
use foundation::id::RequestId;
use futures_util::FutureExt as _;
pub use imports::parse_csv_keys;
use page_request::PageRequest;
use tower::Service as _;

/// Prefixes every path of the dashboard.
pub const PATH_PREFIX: &str = "/dashboard";
/// Limits the size of a form, in bytes.
const FORM_BYTES_MAX: usize = 128 * 1024;

/// The response of a page handler, or the failure to show instead.
type PageResult = Result<Response<Body>, Failure>;

/// Serves the pages and assets of the dashboard.
#[derive(Clone)]
pub struct Dashboard {
    app: Arc<App>,
    routes: Router,
}

impl Dashboard {
    pub fn new(app: Arc<App>) -> Self {
        Self { app, routes: routes() }
    }

    /// Returns whether a path belongs to the dashboard.
    pub fn is_dashboard_path(path: &str) -> bool {
        path.strip_prefix(PATH_PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Answers one request. A panic of a page becomes an internal error.
    pub async fn answer(self, request: Request) -> Response<Body> {
        if let Some(asset) = assets::serve(&request) {
            return headers::finish_public(asset);
        }
        let request_id = RequestId::new(self.app.context.clock.now());
        let mut failed = FailedRequest::new(&request);
        let caught = AssertUnwindSafe(self.handle(request, &mut failed)).catch_unwind().await;
        let result = caught
            .unwrap_or_else(|_| Err(Error::Internal("the page handler panicked".into()).into()));
        let mut answer = match result {
            Ok(answer) => Failure::render_into(answer, &failed, &request_id).await,
            Err(failure) => failure.render(&failed, &request_id).await,
        };
        headers::finish_page(&mut answer, &request_id);
        answer
    }

    /// Answers with a page, or fails. Notes in `failed` who sent the request.
    async fn handle(mut self, request: Request, failed: &mut FailedRequest) -> PageResult {
        let (mut head, body) = request.into_parts();
        if ![Method::GET, Method::HEAD, Method::POST].contains(&head.method) {
            return Err(Error::MethodNotAllowed(head.method.to_string(), "GET, HEAD, POST").into());
        }
        if head.uri.path().contains("%00") {
            return Err(Error::PathNotFound.into());
        }
        let mut page_request = PageRequest::authenticate(&self.app, &head).await?;
        failed.visitor = Some(page_request.clone());
        if head.method == Method::POST {
            page_request.read_form(&head, body).await?;
        }
        let fresh_guest = page_request.new_guest_token();
        let visited = last_workspace::find_visited(&page_request, &head);
        head.extensions.insert(page_request);
        let routed = self.routes.call(Request::from_parts(head, Body::empty())).await;
        let mut answer = routed.unwrap_or_else(|never: Infallible| match never {});
        if let Some(token) = fresh_guest {
            headers::set_guest_cookie(&mut answer, &token);
        }
        if let Some(workspace) = visited.filter(|_| answer.status() == StatusCode::OK) {
            headers::set_workspace_cookie(&mut answer, &workspace);
        }
        Ok(answer)
    }
}

fn routes() -> Router {
    let router = Router::new();
    #[cfg(debug_assertions)]
    let router = router.merge(styleguide::routes());
    router
        .route("/dashboard", get(last_workspace::redirect_home))
        .route("/dashboard/login", get(sign_in::show_form).post(sign_in::sign_in))
        .route("/dashboard/logout", post(sign_in::sign_out))
        .route(
            "/dashboard/join/{token}",
            get(accept_invitation::show_form).post(accept_invitation::accept),
        )
        .route("/dashboard/account", get(account::show))
        .route("/dashboard/account/password", form_page(1, "").post(account::change_password))
        .route(
            "/dashboard/account/sessions/end-others",
            form_page(2, "").post(account::end_other_sessions),
        )
        .route(
            "/dashboard/account/sessions/{session}/end",
            form_page(3, "").post(account::end_session),
        )
        .route("/dashboard/{workspace}", get(overview::show))
        .merge(get_started::routes())
        .merge(analytics::routes())
        .merge(logs::routes())
        .merge(apis::routes())
        .merge(keys::routes())
        .merge(identities::routes())
        .merge(permissions::routes())
        .merge(ratelimits::routes())
        .merge(gateways::routes())
        .merge(root_keys::routes())
        .merge(imports::routes())
        .merge(members::routes())
        .merge(audit::routes())
        .merge(workspace::routes())
        .merge(search::routes())
        .merge(single_sign_on::routes())
        .fallback(async || Failure::from(Error::PathNotFound))
        .method_not_allowed_fallback(async |method: Method| {
            // The router sets `Allow`.
            Failure::from(Error::MethodNotAllowed(method.to_string(), ""))
        })
}

/// Answers GET at an address that accepts a form of another page: redirects there. The browser is at such an address after an
/// error in the form. The path of the page has `up` segments less, followed by `rest`.
fn form_page(up: usize, rest: &'static str) -> MethodRouter {
    get(move |uri: Uri| async move {
        let page = uri.path().rsplitn(up + 1, '/').last().unwrap_or_default();
        let redirect = headers::redirect(&format!("{page}{rest}"));
        redirect.ok_or_else(|| Failure::from(Error::PathNotFound))
    })
}

/// Renders a page with status 200.
fn render_page(template: &impl Template) -> PageResult {
    let html =
        template.render().map_err(|e| Error::Internal(format!("failed to render a page: {e}")))?;
    let html_type = HeaderValue::from_static("text/html; charset=utf-8");
    Ok(([(CONTENT_TYPE, html_type)], hidden::escape_hidden(html)).into_response())
}

/// Renders a page with status 422, for a form with invalid values.
fn render_invalid_page(template: &impl Template) -> PageResult {
    let mut answer = render_page(template)?;
    *answer.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
    Ok(answer)
}

/// Redirects the browser after a change (303). `to` must contain only ids, so that it is a valid header.
fn redirect_to(to: &str) -> PageResult {
    headers::redirect(to).ok_or_else(|| {
        Error::Internal("the redirect path is not a valid header value".into()).into()
    })
}
