//! The headers that tell the upstream who calls.

use std::fmt::Write as _;

use axum::http::HeaderName;
use domain::gateways::{ActivePolicy, BASE_IDENTITY_HEADERS};
use domain::keys::ResolvedKey;
use foundation::id::RequestId;
use serde_json::{Map, Value};

use super::assertion::AssertionSigner;
use super::outcome::Header;

/// The maximum length of a value. Gateways and upstreams refuse longer headers.
const VALUE_MAX_BYTES: usize = 4096;
/// The names of [`BASE_IDENTITY_HEADERS`], in their order. They are built once: a request has all of them.
const BASE_NAMES: [HeaderName; BASE_IDENTITY_HEADERS.len()] = [
    HeaderName::from_static("keyward-key-id"),
    HeaderName::from_static("keyward-api-id"),
    HeaderName::from_static("keyward-external-id"),
    HeaderName::from_static("keyward-identity-id"),
    HeaderName::from_static("keyward-permissions"),
    HeaderName::from_static("keyward-roles"),
    HeaderName::from_static("keyward-environment"),
    HeaderName::from_static("keyward-request-id"),
];
/// The header with the signed assertion.
const ASSERTION_HEADER: HeaderName = HeaderName::from_static("keyward-assertion");
/// Names the headers whose values were too long.
const OMITTED_HEADER: HeaderName = HeaderName::from_static("keyward-omitted");

/// Returns the headers of a request with this key. A header without a value is empty: so a
/// header of this name that the client has sent never reaches the upstream.
pub fn identity_headers(
    policy: &ActivePolicy,
    resolved: &ResolvedKey,
    request_id: &RequestId,
    signer: Option<&AssertionSigner<'_>>,
) -> Vec<Header> {
    let config = &policy.policy.config.identity_headers;
    let is_selected = |name: &str| {
        let names = config.headers.as_ref();
        names.is_none_or(|names| names.iter().any(|known| known.eq_ignore_ascii_case(name)))
    };
    let mut omitted = Vec::new();
    let mut bounded = |name: HeaderName, value: String| match value.len() <= VALUE_MAX_BYTES {
        true => (name, value),
        false => {
            omitted.push(name.to_string());
            (name, String::new())
        }
    };
    let mut headers = Vec::with_capacity(BASE_IDENTITY_HEADERS.len() + config.meta.len() + 2);
    for (name, header) in BASE_IDENTITY_HEADERS.into_iter().zip(BASE_NAMES) {
        let value = if is_selected(name) { base_value(name, resolved, request_id) } else { None };
        headers.push(bounded(header, value.unwrap_or_default()));
    }
    let meta = if config.meta.is_empty() { Map::new() } else { parse_meta(resolved) };
    for name in &config.meta {
        let value = meta.get(name).map_or_else(String::new, meta_value);
        // A policy has valid names alone.
        if let Ok(header) = HeaderName::try_from(format!("keyward-meta-{name}")) {
            headers.push(bounded(header, value));
        }
    }
    let assertion = signer.and_then(|signer| signer.sign(policy, resolved, request_id));
    headers.push(bounded(ASSERTION_HEADER, assertion.unwrap_or_default()));
    headers.push((OMITTED_HEADER, omitted.join(",")));
    headers
}

fn base_value(name: &str, resolved: &ResolvedKey, request_id: &RequestId) -> Option<String> {
    let key = &resolved.stored().key;
    let identity = resolved.identity();
    match name {
        "Keyward-Key-Id" => Some(key.id.to_string()),
        "Keyward-Api-Id" => Some(key.api_id.to_string()),
        "Keyward-External-Id" => identity
            .map(|identity| identity.external_id.as_str())
            .or(key.owner_id.as_deref())
            .map(|id| encode(id, "")),
        "Keyward-Identity-Id" => identity.map(|identity| identity.id.to_string()),
        "Keyward-Permissions" => Some(encode_list(&resolved.permissions)),
        "Keyward-Roles" => Some(encode_list(&resolved.roles)),
        "Keyward-Environment" => key.environment.as_deref().map(|text| encode(text, "")),
        "Keyward-Request-Id" => Some(request_id.to_string()),
        _ => None,
    }
}

fn parse_meta(resolved: &ResolvedKey) -> Map<String, Value> {
    let meta = resolved.stored().key.meta.as_ref();
    meta.and_then(|meta| serde_json::from_str(meta.as_str()).ok()).unwrap_or_default()
}

/// Returns the text of a text, and the JSON of every other value.
fn meta_value(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => encode(text, ""),
        other => encode(&other.to_string(), ""),
    }
}

fn encode_list(items: &[String]) -> String {
    items.iter().map(|item| encode(item, ",")).collect::<Vec<_>>().join(",")
}

/// Encodes a text for a header: `%` and every byte that is not printable ASCII become `%` and two hexadecimal digits, and
/// so do spaces at the ends and the characters of `reserved`.
fn encode(text: &str, reserved: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    let last = text.len().saturating_sub(1);
    for (at, byte) in text.bytes().enumerate() {
        let is_inner_space = byte == b' ' && at > 0 && at < last;
        let is_plain =
            byte.is_ascii_graphic() && byte != b'%' && !reserved.as_bytes().contains(&byte);
        if is_plain || is_inner_space {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string never fails.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_names_are_those_of_a_policy() {
        assert_eq!(
            BASE_NAMES.map(|name| name.to_string()),
            BASE_IDENTITY_HEADERS.map(str::to_ascii_lowercase)
        );
    }

    #[test]
    fn value_is_encoded_when_it_does_not_fit_into_a_header() {
        for (text, expected) in [
            ("user_1", "user_1"),
            ("a b", "a b"),
            (" a ", "%20a%20"),
            ("100%", "100%25"),
            ("a\r\nb", "a%0D%0Ab"),
            ("caf\u{e9}", "caf%C3%A9"),
            ("a,b", "a,b"),
            ("", ""),
        ] {
            assert_eq!(encode(text, ""), expected, "{text:?}");
        }
        assert_eq!(encode_list(&["a,b".into(), "c".into()]), "a%2Cb,c");
    }
}
