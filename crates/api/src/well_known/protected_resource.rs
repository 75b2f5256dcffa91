//! `GET /.well-known/oauth-protected-resource/{policy}`: the metadata of what a gateway protects (RFC 9728), which MCP clients
//! read.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, CACHE_CONTROL, CONTENT_TYPE,
};
use axum::http::{HeaderValue, Response, StatusCode};
use domain::app::App;
use domain::gateways::{self, METADATA_PATH};
use foundation::error::{Error, Result};
use foundation::model::{GatewayPolicy, KeySource};
use serde::Serialize;

/// The route of the metadata.
pub const ROUTE: &str = "/.well-known/oauth-protected-resource/{policy}";

/// The metadata of a protected resource.
#[derive(Serialize)]
struct Metadata<'a> {
    resource: String,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    authorization_servers: &'a [String],
    bearer_methods_supported: Vec<&'static str>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    scopes_supported: BTreeSet<String>,
    resource_name: &'a str,
}

/// Publishes the metadata of the policy with this id or name.
pub async fn serve(app: &App, id_or_name: &str) -> Response<Body> {
    match render(app, id_or_name).await {
        Ok(text) => {
            let mut response = Response::new(Body::from(text));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=60"));
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
            response
        }
        Err(error) => crate::render_path_error(app, METADATA_PATH, &error),
    }
}

/// Answers a preflight request: clients in browsers send headers such as `MCP-Protocol-Version`.
pub fn preflight() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET"));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    response
}

async fn render(app: &App, id_or_name: &str) -> Result<String> {
    let found = gateways::find_published(&app.gateways, id_or_name).await?;
    let found = found.ok_or(Error::PathNotFound)?;
    let policy = &found.value.policy;
    let GatewayPolicy { name, config, .. } = policy;
    let metadata = Metadata {
        resource: gateways::resource_of(policy, id_or_name, &app.context.settings.public_url),
        authorization_servers: &config.authorization_servers,
        bearer_methods_supported: config.key_from.iter().filter_map(to_bearer_method).collect(),
        scopes_supported: gateways::list_scopes(config)?,
        resource_name: name,
    };
    serde_json::to_string(&metadata)
        .map_err(|e| Error::Internal(format!("failed to encode metadata: {e}")))
}

/// Returns the way of RFC 6750 in which a key is sent.
fn to_bearer_method(source: &KeySource) -> Option<&'static str> {
    match source {
        KeySource::Bearer => Some("header"),
        KeySource::Query(name) if name == "access_token" => Some("query"),
        KeySource::Header(_) | KeySource::Query(_) | KeySource::Cookie(_) => None,
    }
}
