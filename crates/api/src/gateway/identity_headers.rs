//! The headers that tell the upstream who calls.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use domain::gateways::ActivePolicy;
use domain::keys::ResolvedKey;
use domain::resolved_key::HeaderValues;
use foundation::id::RequestId;
use serde_json::value::RawValue;

use super::assertion::AssertionSigner;

/// The maximum length of a value. Gateways and upstreams refuse longer headers.
const VALUE_MAX_BYTES: usize = 4096;
/// The header with the signed assertion.
const ASSERTION_HEADER: HeaderName = HeaderName::from_static("keyward-assertion");
/// Finds the event of a request.
pub const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("keyward-request-id");
/// Names the headers whose values were too long.
const OMITTED_HEADER: HeaderName = HeaderName::from_static("keyward-omitted");
const EMPTY: HeaderValue = HeaderValue::from_static("");

/// The headers that a policy can select: about a key, in the order of [`values_of_key`], and the request.
static SELECTABLE_HEADERS: [HeaderName; 8] = [
    HeaderName::from_static("keyward-key-id"),
    HeaderName::from_static("keyward-api-id"),
    HeaderName::from_static("keyward-external-id"),
    HeaderName::from_static("keyward-identity-id"),
    HeaderName::from_static("keyward-permissions"),
    HeaderName::from_static("keyward-roles"),
    HeaderName::from_static("keyward-environment"),
    REQUEST_ID_HEADER,
];

/// Tells caches to store no answer.
pub const NO_STORE: (HeaderName, HeaderValue) =
    (CACHE_CONTROL, HeaderValue::from_static("no-store"));

/// The headers that every request has, without values, in the order in which they were added, and [`NO_STORE`]. To copy them costs
/// less than to add each one to a map, and to copy a static name costs less than to share one.
static WITHOUT_VALUES: LazyLock<HeaderMap> = LazyLock::new(|| {
    let names = SELECTABLE_HEADERS.iter().cloned().chain([ASSERTION_HEADER, OMITTED_HEADER]);
    // With room for the other headers of an answer, so that these do not make it arrange all anew.
    let mut headers = HeaderMap::with_capacity(24);
    headers.extend(names.map(|name| (name, EMPTY)).chain([NO_STORE]));
    headers
});

/// Returns the headers of a request with this key, and [`NO_STORE`]. A header without a value is empty: so a
/// header of this name that the client has sent never reaches the upstream.
pub fn identity_headers(
    policy: &ActivePolicy,
    resolved: &ResolvedKey,
    request_id: &RequestId,
    signer: Option<&AssertionSigner<'_>>,
) -> HeaderMap {
    let config = &policy.policy.config.identity_headers;
    let is_selected = |name: &HeaderName| {
        let names = config.headers.as_ref();
        names
            .is_none_or(|names| names.iter().any(|known| known.eq_ignore_ascii_case(name.as_str())))
    };
    let mut omitted = Vec::new();
    let mut bound = |name: &HeaderName, value: Bytes| {
        if value.len() > VALUE_MAX_BYTES {
            omitted.push(name.to_string());
            return EMPTY;
        }
        // Values are built from valid characters alone.
        HeaderValue::from_maybe_shared(value).unwrap_or(EMPTY)
    };
    let mut headers = WITHOUT_VALUES.clone();
    let of_key = resolved.cached_headers.get_or_init(|| Box::new(values_of_key(resolved)));
    let of_request = Bytes::copy_from_slice(request_id.as_str().as_bytes());
    // The map begins with these headers: to find each one by its name would cost more.
    let fields = SELECTABLE_HEADERS.iter().zip(headers.values_mut());
    for ((name, field), value) in fields.zip(of_key.values().chain([of_request])) {
        if !value.is_empty() && is_selected(name) {
            *field = bound(name, value);
        }
    }
    if let Some(assertion) = signer.and_then(|signer| signer.sign(policy, resolved, request_id)) {
        headers.insert(ASSERTION_HEADER, bound(&ASSERTION_HEADER, assertion.into()));
    }
    let meta = if config.meta.is_empty() { HashMap::new() } else { parse_meta(resolved) };
    for name in &config.meta {
        let value = meta.get(name).map_or_else(String::new, |value| meta_value(value));
        // A policy has valid names alone.
        if let Ok(name) = HeaderName::try_from(format!("keyward-meta-{name}")) {
            let value = bound(&name, value.into());
            headers.insert(name, value);
        }
    }
    if !omitted.is_empty() {
        headers.insert(OMITTED_HEADER, HeaderValue::try_from(omitted.join(",")).unwrap_or(EMPTY));
    }
    headers
}

/// Returns the values of the headers about a key, of which those that do not apply are empty.
fn values_of_key(resolved: &ResolvedKey) -> HeaderValues {
    let (key, identity) = (&resolved.key, resolved.identity());
    let external_id = identity.map(|identity| identity.external_id.as_str());
    let values: [String; 7] = [
        key.id().to_owned(),
        key.api_id().as_str().to_owned(),
        encode(external_id.or(key.owner_id()).unwrap_or_default(), ""),
        identity.map_or_else(String::new, |identity| identity.id.as_str().to_owned()),
        encode_list(resolved.permissions()),
        encode_list(resolved.roles()),
        encode(key.environment().unwrap_or_default(), ""),
    ];
    // Longer ones are omitted, whatever their length: the key keeps no more of them. They are ASCII.
    let bounded = |mut value: String| {
        value.truncate(VALUE_MAX_BYTES + 1);
        value
    };
    HeaderValues::new(&values.map(bounded))
}

fn parse_meta(resolved: &ResolvedKey) -> HashMap<String, Box<RawValue>> {
    let meta = resolved.key.meta();
    meta.and_then(|meta| serde_json::from_str(meta.as_str()).ok()).unwrap_or_default()
}

/// Returns the text of a text, and the JSON of every other value. Numbers are not parsed, because they may lose digits.
fn meta_value(value: &RawValue) -> String {
    let json = value.get();
    if json.starts_with('"') {
        let text: Option<String> = serde_json::from_str(json).ok();
        return text.map_or_else(String::new, |text| encode(&text, ""));
    }
    if json == "null" { String::new() } else { encode(&compact_json(json), "") }
}

/// Removes the whitespace between the tokens of JSON.
fn compact_json(json: &str) -> String {
    let (mut in_string, mut is_escaped) = (false, false);
    let is_kept = |letter: &char| {
        if in_string {
            in_string = is_escaped || *letter != '"';
            is_escaped = !is_escaped && *letter == '\\';
            return true;
        }
        in_string = *letter == '"';
        !letter.is_ascii_whitespace()
    };
    json.chars().filter(is_kept).collect()
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
    use domain::gateways::BASE_IDENTITY_HEADERS;

    use super::*;

    #[test]
    fn every_header_that_a_policy_can_select_is_always_set() {
        for name in BASE_IDENTITY_HEADERS {
            assert!(WITHOUT_VALUES.contains_key(name), "{name}");
        }
        assert_eq!(WITHOUT_VALUES.len(), BASE_IDENTITY_HEADERS.len() + 3);
        assert!(WITHOUT_VALUES.keys().zip(&SELECTABLE_HEADERS).all(|(name, known)| name == known));
    }

    #[test]
    fn number_of_the_meta_has_the_digits_that_were_written() {
        for (json, expected) in [
            ("12345678901234567890123", "12345678901234567890123"),
            ("-1.50", "-1.50"),
            ("\"a b\"", "a b"),
            ("null", ""),
            ("{ \"a\": [true] }", "{\"a\":[true]}"),
            ("[12345678901234567890123,\n 1.50]", "[12345678901234567890123,1.50]"),
            (r#"{ "b": "x, \" : \\", "a": 1 }"#, r#"{"b":"x, \" : \\","a":1}"#),
        ] {
            let value = RawValue::from_string(json.to_owned()).expect("a JSON value");
            assert_eq!(meta_value(&value), expected, "{json}");
        }
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
