//! Fuzzes the Authorization header against a simple parser of its words.

use api::Version;
use api::v1::V1;
use api::v2::V2;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue};
use foundation::error::{AuthenticationError, Error};

use crate::compose;

const PIECES: &[&[u8]] = &[
    b"Bearer ",
    b"Bearer",
    b"bearer ",
    b"BEARER ",
    b"Basic ",
    b" ",
    b"\t",
    b"k",
    b"keyward_4yT",
    b"\xc3\xa9",
    b"\xff",
    b",",
    b"=",
    b"~",
    b"Bearer\t",
];

#[test]
fn bearer_header_is_accepted_when_it_has_the_scheme_and_one_word() {
    bolero::check!(name = "bearer").for_each(|bytes: &[u8]| {
        assert_parsed_like::<V2>(bytes, expected_token);
        assert_parsed_like::<V2>(&[b"Bearer ", bytes].concat(), expected_token);
        assert_parsed_like::<V2>(&compose(bytes, PIECES).concat(), expected_token);
    });
}

#[test]
fn v1_accepts_a_token_without_scheme() {
    bolero::check!(name = "bearer").for_each(|bytes: &[u8]| {
        assert_parsed_like::<V1>(bytes, expected_token_v1);
        assert_parsed_like::<V1>(&[b"Bearer ", bytes].concat(), expected_token_v1);
        assert_parsed_like::<V1>(&compose(bytes, PIECES).concat(), expected_token_v1);
    });
}

#[test]
fn token_is_parsed_unchanged() {
    bolero::check!(name = "bearer").for_each(|bytes: &[u8]| {
        let token: String = bytes.iter().map(|byte| char::from(b'!' + byte % 94)).collect();
        if !token.is_empty() {
            let sent = headers(format!("Bearer {token}").as_bytes()).unwrap();

            assert_eq!(&*V1::parse_root_key(&sent).unwrap(), token.as_bytes());
            assert_eq!(&*V2::parse_root_key(&sent).unwrap(), token.as_bytes());
        }
    });
}

type ExpectedToken = fn(&[u8]) -> Result<&str, AuthenticationError>;

fn assert_parsed_like<V: Version>(value: &[u8], expected: ExpectedToken) {
    // A value that cannot be a header value never reaches the parser.
    let Some(headers) = headers(value) else { return };

    let parsed = V::parse_root_key(&headers);

    match (parsed, expected(value)) {
        (Ok(parsed), Ok(right)) => assert_eq!(&*parsed, right.as_bytes()),
        (Err(Error::Unauthenticated(parsed)), Err(right)) => assert_eq!(parsed, right, "{value:?}"),
        (parsed, right) => panic!("{value:?} is {parsed:?}, and not {right:?}"),
    }
}

/// Returns the only word of printable ASCII after the scheme and a space.
fn expected_token(value: &[u8]) -> Result<&str, AuthenticationError> {
    let text = std::str::from_utf8(value).map_err(|_| AuthenticationError::Malformed)?;
    let rest = text.strip_prefix("Bearer ").ok_or(AuthenticationError::Malformed)?;
    let mut words = rest.split([' ', '\t']).filter(|word| !word.is_empty());
    let word =
        words.next().filter(|_| words.next().is_none()).ok_or(AuthenticationError::Malformed)?;
    match word.chars().all(|c| ('!'..='~').contains(&c)) {
        true => Ok(word),
        false => Err(AuthenticationError::Malformed),
    }
}

/// The scheme may be omitted but is not a token itself; a header of spaces has none.
fn expected_token_v1(value: &[u8]) -> Result<&str, AuthenticationError> {
    let value = value.trim_ascii();
    if value.is_empty() {
        return Err(AuthenticationError::HeaderMissing);
    }
    let is_alone = !value.starts_with(b"Bearer ") && !value.contains(&b' ');
    let found = match std::str::from_utf8(value) {
        Ok(text) if is_alone && text.chars().all(|c| ('!'..='~').contains(&c)) => Ok(text),
        _ => expected_token(value),
    };
    found.and_then(
        |word| if word == "Bearer" { Err(AuthenticationError::Malformed) } else { Ok(word) },
    )
}

fn headers(value: &[u8]) -> Option<HeaderMap> {
    Some(HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_bytes(value).ok()?)]))
}
