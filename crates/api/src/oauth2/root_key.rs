//! The root key of a resource server, which it sends as a bearer token or as a client secret.

use std::borrow::Cow;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use foundation::error::{AuthenticationError, Error, Result};
use percent_encoding::percent_decode;

/// Returns the token of `Authorization: Bearer`, or the password of `Authorization: Basic`.
pub fn parse(headers: &HeaderMap) -> Result<Cow<'_, [u8]>> {
    let header = headers
        .get(AUTHORIZATION)
        .ok_or(Error::Unauthenticated(AuthenticationError::HeaderMissing))?
        .as_bytes();
    let (scheme, credentials) = match header.iter().position(|byte| *byte == b' ') {
        Some(end) => (&header[..end], header[end..].trim_ascii()),
        None => (header, &[][..]),
    };
    let root_key = match () {
        () if scheme.eq_ignore_ascii_case(b"bearer") => Some(Cow::Borrowed(credentials)),
        () if scheme.eq_ignore_ascii_case(b"basic") => parse_password(credentials).map(Cow::Owned),
        () => None,
    };
    root_key
        .filter(|root_key| !root_key.is_empty() && root_key.iter().all(u8::is_ascii_graphic))
        .ok_or(Error::Unauthenticated(AuthenticationError::Malformed))
}

/// Returns the password of Basic credentials. OAuth clients encode it like a form before they encode it in base64
/// (RFC 6749, 2.3.1); this changes only `+` and `%`, which no generated root key contains.
fn parse_password(credentials: &[u8]) -> Option<Vec<u8>> {
    let decoded = STANDARD.decode(credentials).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let spaced: Vec<u8> =
        decoded[colon + 1..].iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    Some(percent_decode(&spaced).collect())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn parse_header(value: &str) -> Option<String> {
        let value = HeaderValue::from_str(value).expect("a header");
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        let root_key = parse(&headers).ok()?;
        Some(String::from_utf8(root_key.into_owned()).expect("ASCII"))
    }

    fn parse_basic(credentials: &str) -> Option<String> {
        parse_header(&format!("Basic {}", STANDARD.encode(credentials)))
    }

    #[test]
    fn bearer_token_is_the_root_key() {
        for header in ["Bearer root_1", "bearer root_1", "BEARER  root_1 "] {
            assert_eq!(parse_header(header).as_deref(), Some("root_1"), "{header}");
        }
    }

    #[test]
    fn basic_password_is_the_root_key_whatever_the_user_name_is() {
        for credentials in ["client:root_1", ":root_1", "a%3Ab:root_1", "client:root%5f1"] {
            assert_eq!(parse_basic(credentials).as_deref(), Some("root_1"), "{credentials}");
        }
        assert_eq!(parse_basic("client:a:b").as_deref(), Some("a:b"));
        assert_eq!(parse_basic("client:a%2Bb%25").as_deref(), Some("a+b%"));
        assert_eq!(parse_header("basic OnJvb3RfMQ==").as_deref(), Some("root_1"));
    }

    #[test]
    fn credentials_of_another_form_are_malformed() {
        for header in ["", "Bearer", "Bearer ", "Bearer two words", "root_1", "Digest root_1"] {
            assert_eq!(parse_header(header), None, "{header}");
        }
        for header in ["Basic", "Basic ", "Basic root_1", "Basic OnJvb3RfMQ"] {
            assert_eq!(parse_header(header), None, "{header}");
        }
        for credentials in ["root_1", "client:", "client:two+words", "client:%00", "client:\u{e9}"]
        {
            assert_eq!(parse_basic(credentials), None, "{credentials}");
        }
    }
}
