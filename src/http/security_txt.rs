//! Serves `/.well-known/security.txt`, which tells where to report a vulnerability (RFC 9116).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response, Uri};
use axum::response::IntoResponse as _;
use domain::app::App;
use foundation::config::SecurityContact;
use foundation::error::Error;

pub async fn serve(State(app): State<Arc<App>>, uri: Uri) -> Response<Body> {
    let Some(contact) = &app.context.settings.security.contact else {
        return api::render_path_error(&app, uri.path(), &Error::PathNotFound);
    };
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    ([(CONTENT_TYPE, text)], render_text(contact, &app.context.settings.public_url)).into_response()
}

fn render_text(contact: &SecurityContact, public_url: &str) -> String {
    let mut lines: Vec<_> = contact.uris.iter().map(|uri| format!("Contact: {uri}")).collect();
    lines.push(format!("Expires: {}", contact.expires));
    if public_url.starts_with("https://") {
        lines.push(format!("Canonical: {public_url}/.well-known/security.txt"));
    }
    lines.join("\n") + "\n"
}
