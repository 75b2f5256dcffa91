//! The headers of every response, and cookies.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use domain::users::SESSION_LIFETIME_MS;
use foundation::id::{RequestId, WorkspaceId};

/// Names the session cookie of a signed-in user. Browsers accept a cookie with the prefix `__Host-` only over a secure
/// connection, for this host alone and for all of its paths.
pub const SESSION_COOKIE: &str = "__Host-keyward-session";
/// Names the cookie of a visitor who is not signed in. The CSRF token is derived from it.
pub const GUEST_COOKIE: &str = "__Host-keyward-guest";
/// Names the cookie with the pending authorization request of single sign-on.
pub const OIDC_COOKIE: &str = "__Host-keyward-oidc";
/// Names the cookie with the workspace that was visited last.
pub const WORKSPACE_COOKIE: &str = "__Host-keyward-workspace";
/// How long the last workspace is remembered, in seconds: a year.
const WORKSPACE_COOKIE_SECONDS: i64 = 365 * 86_400;
/// Limits how long the authorization request may take, in seconds.
const OIDC_COOKIE_SECONDS: i64 = 600;

const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const PERMISSIONS_POLICY: &str = "accelerometer=(), camera=(), display-capture=(), geolocation=(), \
    gyroscope=(), microphone=(), payment=(), usb=()";

/// The headers of every response. With `no-referrer`, browsers would send `Origin: null` with the dashboard's own
/// forms; `same-origin` reveals as little to other sites.
const COMMON_HEADERS: [(&str, &str); 7] = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", PERMISSIONS_POLICY),
    ("x-frame-options", "DENY"),
];

fn add_common_headers(headers: &mut HeaderMap) {
    for (name, value) in COMMON_HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

/// Adds the headers of a page, which must not be cached.
pub fn finish_page(answer: &mut Response<Body>, request_id: &RequestId) {
    let headers = answer.headers_mut();
    add_common_headers(headers);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(id) = HeaderValue::from_str(request_id.as_str()) {
        headers.insert("x-request-id", id);
    }
}

/// Adds the headers of a response that is the same for everyone.
pub fn finish_public(mut answer: Response<Body>) -> Response<Body> {
    add_common_headers(answer.headers_mut());
    answer
}

/// Creates a 303 redirect, which the browser follows with GET. `None`: `to` is not a valid header value.
pub fn redirect(to: &str) -> Option<Response<Body>> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::SEE_OTHER;
    answer.headers_mut().insert(LOCATION, HeaderValue::from_str(to).ok()?);
    Some(answer)
}

/// Sets the session cookie after sign-in and deletes the guest cookie.
pub fn set_session_cookie(answer: &mut Response<Body>, token: &str) {
    set_cookie(answer, SESSION_COOKIE, token, SESSION_LIFETIME_MS / 1000);
    set_cookie(answer, GUEST_COOKIE, "", 0);
}

pub fn delete_session_cookie(answer: &mut Response<Body>) {
    set_cookie(answer, SESSION_COOKIE, "", 0);
}

/// Sets the guest cookie for one day.
pub fn set_guest_cookie(answer: &mut Response<Body>, token: &str) {
    set_cookie(answer, GUEST_COOKIE, token, 86_400);
}

/// Stores the authorization request until the browser returns from the OIDC provider.
pub fn set_oidc_cookie(answer: &mut Response<Body>, trip: &str) {
    set_cookie(answer, OIDC_COOKIE, trip, OIDC_COOKIE_SECONDS);
}

/// Deletes the authorization request, so that a callback is accepted only once.
pub fn delete_oidc_cookie(answer: &mut Response<Body>) {
    set_cookie(answer, OIDC_COOKIE, "", 0);
}

/// Remembers the workspace that was visited last.
pub fn set_workspace_cookie(answer: &mut Response<Body>, workspace: &WorkspaceId) {
    set_cookie(answer, WORKSPACE_COOKIE, workspace.as_str(), WORKSPACE_COOKIE_SECONDS);
}

fn set_cookie(answer: &mut Response<Body>, name: &str, value: &str, seconds: i64) {
    let cookie =
        format!("{name}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Lax");
    // Never fails, because tokens are base58, IDs of workspaces are letters, digits and _, and pages are percent-encoded.
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        answer.headers_mut().append(SET_COOKIE, cookie);
    }
}

/// Returns the value of a cookie.
pub fn find_cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all("cookie").iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim())
}
