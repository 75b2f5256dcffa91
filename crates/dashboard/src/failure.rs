//! Error pages, which say what happened and what to do, and lead on.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{ALLOW, REFERER, RETRY_AFTER, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use axum::response::IntoResponse;
use domain::users::single_sign_on::CALLBACK_PATH;
use foundation::error::{Code, Error};
use foundation::id::RequestId;

use super::form::Form;
use super::format::{capitalize, format_grouped};
use super::layout::Layout;
use super::next_page::{parse_next, with_next};
use super::page_request::PageRequest;
use super::{Dashboard, headers, render_page};

/// When a page can be requested again while a dependency of the server is unavailable, in seconds.
const OUTAGE_RETRY_SECONDS: i64 = 5;

/// The collections of a workspace whose address accepts a form that creates an object, and the pages with these forms.
const CREATE_FORMS: [(&str, &str); 9] = [
    ("apis", "apis/new"),
    ("gateways", "gateways/new"),
    ("identities", "new-identity"),
    ("imports", "imports/new"),
    ("keys", "keys/new"),
    ("permissions", "permissions/new"),
    ("ratelimits", "ratelimits/new"),
    ("roles", "roles/new"),
    ("root-keys", "root-keys/new"),
];

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

/// What the page of a failure shows of the request.
pub struct FailedRequest {
    path_and_query: String,
    /// Whether the request can be repeated by a link.
    is_read: bool,
    /// The page of the dashboard from which the browser sent the request.
    referrer: Option<String>,
    /// The visitor, as soon as it is known who sent the request.
    pub visitor: Option<PageRequest>,
}

impl FailedRequest {
    pub fn new(request: &Request) -> Self {
        let uri = request.uri();
        Self {
            path_and_query: uri.path_and_query().map_or_else(String::new, ToString::to_string),
            is_read: [Method::GET, Method::HEAD].contains(request.method()),
            referrer: referrer_path(request.headers()),
            visitor: None,
        }
    }

    /// Returns the page that repeats a request. A callback of the OIDC provider is accepted once: the sign-in begins anew.
    fn retry_path(&self) -> String {
        match self.path_and_query.split('?').next() {
            Some(CALLBACK_PATH) => "/dashboard/login".to_owned(),
            Some(_) | None => self.path_and_query.clone(),
        }
    }

    /// Returns the sign-in page that leads to the requested page, without its notice. A form is not sent again.
    fn sign_in_path(&self) -> String {
        let requested = self.path_and_query.as_str();
        let (path, query) = requested.split_once('?').unwrap_or((requested, ""));
        let query = Form::parse(query.as_bytes()).query_without(&["notice"]).finish();
        let next = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        with_next("/dashboard/login", parse_next(&next).filter(|_| self.is_read))
    }

    /// Returns the page whose form was submitted. A form of another site has none here. A form with errors was shown at the
    /// address of its collection, which shows a list when it is opened again.
    fn form_path(&self) -> Option<String> {
        let is_own = self.visitor.as_ref().is_some_and(|visitor| visitor.is_same_origin);
        let referrer = self.referrer.clone().filter(|_| is_own && !self.is_read)?;
        let create_form = create_form_path(&referrer).filter(|_| referrer == self.path_and_query);
        Some(create_form.unwrap_or(referrer))
    }
}

/// Returns the path of the form that creates an object in a collection.
fn create_form_path(collection: &str) -> Option<String> {
    let (workspace, name) = collection.rsplit_once('/')?;
    let (_, form) = CREATE_FORMS.iter().find(|(known, _)| *known == name)?;
    (workspace.matches('/').count() == 2).then(|| format!("{workspace}/{form}"))
}

/// Returns the path and query of the `Referer` header, if they are those of a dashboard.
fn referrer_path(headers: &HeaderMap) -> Option<String> {
    let (_, rest) = headers.get(REFERER)?.to_str().ok()?.split_once("://")?;
    let (_, path) = rest.split_once('/')?;
    let path = format!("/{}", path.split('#').next().unwrap_or_default());
    let is_dashboard = path.split('?').next().is_some_and(Dashboard::is_dashboard_path);
    is_dashboard.then_some(path)
}

#[derive(Template)]
#[template(path = "failure.html")]
struct FailurePage<'a> {
    layout: Layout,
    sentence: String,
    /// Where the user can go on: paths and labels, the most useful first.
    links: Vec<(String, &'static str)>,
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
    pub async fn render_into(
        mut answer: Response<Body>,
        request: &FailedRequest,
        request_id: &RequestId,
    ) -> Response<Body> {
        let Some(failed) = answer.extensions_mut().remove::<FailureExtension>() else {
            return answer;
        };
        let mut response = failed.0.render(request, request_id).await;
        // `Allow` is set by the router. Cookies that the handler deletes must be deleted on failure too.
        for name in [ALLOW, SET_COOKIE] {
            for value in answer.headers().get_all(&name) {
                response.headers_mut().append(&name, value.clone());
            }
        }
        response
    }

    /// Renders the failure as a page, and logs it if it is a server error.
    pub async fn render(&self, request: &FailedRequest, request_id: &RequestId) -> Response<Body> {
        if let Self::SignIn = self {
            return headers::redirect(&request.sign_in_path()).unwrap_or_default();
        }
        let status = self.status();
        if let Self::Domain(error) = self
            && status.is_server_error()
        {
            tracing::error!(
                operation = "dashboard", request.id = %request_id, error = %error,
                "failed to serve a dashboard page: {error}"
            );
        }
        let template = FailurePage {
            layout: self.layout(request).await,
            sentence: self.sentence(),
            links: self.links(request),
            request_id: request_id.as_str(),
        };
        let mut response = render_page(&template).unwrap_or_default();
        *response.status_mut() = status;
        if let Self::Domain(Error::MethodNotAllowed(_, allowed)) = self
            && !allowed.is_empty()
        {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        }
        if is_temporary(status) {
            response.headers_mut().insert(RETRY_AFTER, self.retry_after_seconds().into());
        }
        response
    }

    /// Creates the layout with the navigation of the workspace, unless the server has failed: then even that may fail.
    async fn layout(&self, request: &FailedRequest) -> Layout {
        let title = self.title();
        match &request.visitor {
            Some(visitor) if self.status().is_client_error() => {
                Layout::for_failure(visitor, &request.path_and_query, title).await
            }
            _ => Layout::bare(title),
        }
    }

    /// Returns after how many seconds the request can succeed.
    fn retry_after_seconds(&self) -> i64 {
        match self {
            Self::Domain(Error::TooManyRequests { retry_after, .. }) => retry_after.seconds(),
            Self::SignIn | Self::Forged | Self::NoCookies | Self::Domain(_) => OUTAGE_RETRY_SECONDS,
        }
    }

    fn links(&self, request: &FailedRequest) -> Vec<(String, &'static str)> {
        let mut links = Vec::new();
        if request.is_read && is_temporary(self.status()) {
            links.push((request.retry_path(), "Try again"));
        }
        links.extend(request.form_path().map(|path| (path, "Back to the form")));
        links.push(("/dashboard".to_owned(), "Go to dashboard"));
        links
    }

    fn title(&self) -> &'static str {
        match self {
            Self::Forged => "Form expired",
            Self::NoCookies => "Cookies required",
            Self::Domain(Error::OidcProvider(_)) => "Single sign-on unavailable",
            Self::SignIn | Self::Domain(_) => status_title(self.status()),
        }
    }

    fn sentence(&self) -> String {
        match self {
            Self::SignIn => "Sign in to continue.".to_owned(),
            Self::Forged => "The form has expired. Open it again and resubmit your changes.".to_owned(),
            Self::NoCookies => "Your browser did not store the sign-in cookie. Cookies of the dashboard require \
                https. Without it, they work only on the server itself, at http://127.0.0.1 or http://localhost, in \
                Chromium and Firefox. Give Keyward a certificate or put a TLS proxy in front of it, and allow cookies \
                for this address."
                .to_owned(),
            Self::Domain(error) => user_message(error),
        }
    }
}

fn is_temporary(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
}

fn user_message(error: &Error) -> String {
    match error {
        Error::Forbidden(missing) => format!(
            "Your role in this workspace lacks the permission {missing}. Ask an owner for a role with more access."
        ),
        Error::PathNotFound => "There is no page at this address.".to_owned(),
        Error::MethodNotAllowed(method, _) if method == "GET" || method == "HEAD" => {
            "This address only accepts submitted forms. Open the page with the form instead.".to_owned()
        }
        Error::MethodNotAllowed(method, _) => {
            format!("This address does not support the method {method}.")
        }
        Error::BodyTooLarge(bytes) => {
            let max = format_grouped(i64::try_from(bytes / 1024).unwrap_or(i64::MAX));
            format!("The form is larger than the maximum of {max} KiB. Shorten its values and try again.")
        }
        Error::BodyTimeout(seconds) => format!(
            "The form did not arrive within {seconds} seconds. Check your connection and try again."
        ),
        Error::OidcProvider(_) => {
            "Sign in with your password if you have one, or try again in a few seconds. If the problem persists, send \
            the request ID below to the operator of this server."
                .to_owned()
        }
        Error::OperationDisabled(_) => "This server allows only single sign-on.".to_owned(),
        Error::NotFound(_) => "Not found, or you don't have access.".to_owned(),
        other => match other.code() {
            Code::UnexpectedError => {
                "An unexpected error occurred. Find its cause in the server log by the request ID.".to_owned()
            }
            Code::ServiceUnavailable => {
                "A service that Keyward depends on is unavailable. Try again in a few seconds.".to_owned()
            }
            _ => capitalize(&other.detail()) + ".",
        },
    }
}

fn status_title(status: StatusCode) -> &'static str {
    match status.as_u16() {
        403 => "Permission denied",
        404 => "Page not found",
        405 => "Method not allowed",
        408 => "Request timed out",
        413 => "Form too large",
        429 => "Too many attempts",
        503 => "Service unavailable",
        500..=599 => "Internal error",
        _ => "Invalid request",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn referrer_is_a_page_of_a_dashboard_or_none() {
        let path = |referrer: &'static str| {
            let headers = [(REFERER, HeaderValue::from_static(referrer))].into_iter().collect();
            referrer_path(&headers)
        };

        assert_eq!(
            path("https://a.example/dashboard/ws_1?x=1#y").as_deref(),
            Some("/dashboard/ws_1?x=1")
        );
        assert_eq!(path("http://127.0.0.1:3000/dashboard").as_deref(), Some("/dashboard"));
        for other in [
            "https://a.example",
            "https://a.example/",
            "https://a.example/dashboards",
            "/dashboard",
            "",
        ] {
            assert_eq!(path(other), None, "{other}");
        }
        assert_eq!(referrer_path(&HeaderMap::new()), None);
    }
}
