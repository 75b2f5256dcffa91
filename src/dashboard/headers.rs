//! The headers of every answer, and cookies.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use foundation::id::RequestId;

use crate::domain::users::LIFE_MS;

/// The cookie of somebody who is signed in, and of somebody who is not yet. The prefix has a browser take them only
/// over a safe connection, for this host alone and for all of its paths.
pub const SESSION: &str = "__Host-keyward-session";
pub const GUEST: &str = "__Host-keyward-guest";
/// The cookie of somebody who is on the way to the issuer of single sign-on and back.
pub const TRIP: &str = "__Host-keyward-oidc";
/// How long that may take, in seconds.
const TRIP_SECONDS: i64 = 600;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const FEATURES: &str = "accelerometer=(), camera=(), display-capture=(), geolocation=(), \
    gyroscope=(), microphone=(), payment=(), usb=()";

/// What every answer says. A policy of `no-referrer` would have browsers send `Origin: null` with the forms of the
/// dashboard itself; `same-origin` tells others as little.
const ALWAYS: [(&str, &str); 7] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", FEATURES),
    ("x-frame-options", "DENY"),
];

fn add_always(headers: &mut HeaderMap) {
    for (name, value) in ALWAYS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

/// Finishes a page: nobody keeps it.
pub fn finish(answer: &mut Response<Body>, request_id: &RequestId) {
    let headers = answer.headers_mut();
    add_always(headers);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(id) = HeaderValue::from_str(request_id.as_str()) {
        headers.insert("x-request-id", id);
    }
}

pub fn finish_asset(mut answer: Response<Body>) -> Response<Body> {
    add_always(answer.headers_mut());
    answer
}

/// Sends a browser elsewhere, which it asks for with GET.
pub fn redirect(to: &str) -> Option<Response<Body>> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::SEE_OTHER;
    answer.headers_mut().insert(LOCATION, HeaderValue::from_str(to).ok()?);
    Some(answer)
}

/// Keeps the token of somebody who has just signed in, and forgets the guest.
pub fn keep_session(answer: &mut Response<Body>, token: &str) {
    keep(answer, SESSION, token, LIFE_MS / 1000);
    keep(answer, GUEST, "", 0);
}

pub fn forget_session(answer: &mut Response<Body>) {
    keep(answer, SESSION, "", 0);
}

/// Keeps the token of a guest for as long as the browser runs a day.
pub fn keep_guest(answer: &mut Response<Body>, token: &str) {
    keep(answer, GUEST, token, 86_400);
}

/// Keeps what is needed when somebody comes back from the issuer of single sign-on.
pub fn keep_trip(answer: &mut Response<Body>, trip: &str) {
    keep(answer, TRIP, trip, TRIP_SECONDS);
}

/// An answer of the issuer is heard once.
pub fn forget_trip(answer: &mut Response<Body>) {
    keep(answer, TRIP, "", 0);
}

fn keep(answer: &mut Response<Body>, name: &str, value: &str, seconds: i64) {
    let cookie =
        format!("{name}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Lax");
    // Tokens are base58.
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        answer.headers_mut().append(SET_COOKIE, cookie);
    }
}

/// The value of a cookie.
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all("cookie").iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim())
}
