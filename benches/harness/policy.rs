//! The gateway policy of a deployment: its creation, and single requests as gateways and their clients send them.

use super::Outcome;
use super::cases::{Case, Interface, Place};
use super::client::Client;
use super::key_sets::{PLENTY, WINDOW_MS};
use super::servers::{Lab, Server};
use serde_json::json;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

pub const NAME: &str = "edge";
/// The namespace of the rate-limit service.
pub const NAMESPACE: &str = "bench";

/// Creates the policy that judges requests with the keys of an API, and stores its secret.
pub fn create(lab: &Lab, place: Place, address: SocketAddr, api_id: &str) -> Outcome<()> {
    let mut client = Client::connect(address).map_err(|e| format!("no connection: {e}"))?;
    let limit = json!({ "limit": PLENTY, "duration": WINDOW_MS });
    let request = json!({ "name": NAME, "apiIds": [api_id],
                          "namespaces": [{ "namespace": NAMESPACE, "defaultLimit": limit }] });
    let created = client.call("gateways.createPolicy", &request)?;
    let secret = created["secret"].as_str().ok_or("gateways.createPolicy gave no secret")?;
    let file = secret_file(lab, place);
    fs::write(&file, secret).map_err(|e| format!("{}: {e}", file.display()))
}

/// Returns the secret of the policy. A ceiling accepts any.
pub fn secret(lab: &Lab, place: Place) -> Outcome<String> {
    if place == Place::Ceiling {
        return Ok("keyward_gateway_0123456789abcdef".to_owned());
    }
    let file = secret_file(lab, place);
    fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))
}

fn secret_file(lab: &Lab, place: Place) -> PathBuf {
    lab.folder.path().join(format!("{}.secret", place.name()))
}

/// Returns the header of HTTP that tells which key was found: to the gateway, or to the client of nginx.
pub fn key_id_header(interface: Interface) -> Option<&'static str> {
    match interface {
        Interface::Gateway => Some("keyward-key-id"),
        Interface::Nginx => Some("x-key-id"),
        Interface::Operation | Interface::ExtAuthz | Interface::RateLimitService => None,
    }
}

/// Checks one response to a gateway, or to a client behind nginx: it must be admitted, and tell the key and its limit.
pub fn check(lab: &Lab, server: &Server, case: &Case, key: &str) -> Outcome<()> {
    let bearer = format!("Bearer {key}");
    let secret = secret(lab, case.place)?;
    let mut request = vec![("Authorization", bearer.as_str())];
    if case.interface == Interface::Gateway {
        request.push(("Keyward-Gateway-Secret", &secret));
        request.extend([("X-Forwarded-Method", "GET"), ("X-Forwarded-Uri", "/documents/1")]);
    }
    let (status, headers) = Client::connect(server.target)
        .and_then(|mut client| client.get(case.path, &request))
        .map_err(|e| format!("no answer: {e}"))?;
    let is_judged = case.place != Place::Ceiling;
    let key_id = key_id_header(case.interface).and_then(|name| headers.get(name));
    let has_key = key_id.is_some_and(|id| id.starts_with("key_"));
    let has_limit = headers.contains_key("ratelimit");
    let owes_limit = is_judged && case.keys.limits() > 0;
    if status == 200 && has_key == is_judged && has_limit == owes_limit {
        return Ok(());
    }
    Err(format!(
        "200 is due, with the id of the key and its limits, but {status} came: {headers:?}"
    ))
}
