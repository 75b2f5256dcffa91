//! The Authorization header, against the words that it consists of.

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue};
use foundation::error::{Error, Unknown};
use keyward::rpc::Version;
use keyward::rpc::v1::V1;
use keyward::rpc::v2::V2;

use crate::spelled;

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
fn a_header_is_taken_that_is_the_scheme_and_one_word_and_no_other() {
    bolero::check!(name = "bearer").for_each(|bytes: &[u8]| {
        hold_against_words::<V2>(bytes, word);
        hold_against_words::<V2>(&[b"Bearer ", bytes].concat(), word);
        hold_against_words::<V2>(&spelled(bytes, PIECES).concat(), word);
    });
}

#[test]
fn version_1_takes_the_word_alone_as_well() {
    bolero::check!(name = "bearer").for_each(|bytes: &[u8]| {
        hold_against_words::<V1>(bytes, word_of_version_1);
        hold_against_words::<V1>(&[b"Bearer ", bytes].concat(), word_of_version_1);
        hold_against_words::<V1>(&spelled(bytes, PIECES).concat(), word_of_version_1);
    });
}

#[test]
fn every_token_that_can_be_sent_arrives_as_it_is() {
    bolero::check!(name = "bearer").for_each(|bytes: &[u8]| {
        let token: String = bytes.iter().map(|byte| char::from(b'!' + byte % 94)).collect();
        if !token.is_empty() {
            let sent = headers(format!("Bearer {token}").as_bytes()).unwrap();

            assert_eq!(V1::bearer(&sent).unwrap(), token.as_bytes());
            assert_eq!(V2::bearer(&sent).unwrap(), token.as_bytes());
        }
    });
}

type Word = fn(&[u8]) -> Result<&str, Unknown>;

fn hold_against_words<V: Version>(value: &[u8], word: Word) {
    // What can be no value of a header at all has not come as far.
    let Some(headers) = headers(value) else { return };

    let told = V::bearer(&headers);

    match (told, word(value)) {
        (Ok(told), Ok(right)) => assert_eq!(told, right.as_bytes()),
        (Err(Error::Unauthenticated(told)), Err(right)) => assert_eq!(told, right, "{value:?}"),
        (told, right) => panic!("{value:?} is {told:?}, and not {right:?}"),
    }
}

/// The one word of printable ASCII that stands behind the scheme and a space.
fn word(value: &[u8]) -> Result<&str, Unknown> {
    let text = std::str::from_utf8(value).map_err(|_| Unknown::Malformed)?;
    let rest = text.strip_prefix("Bearer ").ok_or(Unknown::Malformed)?;
    let mut words = rest.split([' ', '\t']).filter(|word| !word.is_empty());
    let word = words.next().filter(|_| words.next().is_none()).ok_or(Unknown::Malformed)?;
    match word.chars().all(|c| ('!'..='~').contains(&c)) {
        true => Ok(word),
        false => Err(Unknown::Malformed),
    }
}

/// The scheme may be left out, but is no word itself; a header of spaces is none.
fn word_of_version_1(value: &[u8]) -> Result<&str, Unknown> {
    let value = value.trim_ascii();
    if value.is_empty() {
        return Err(Unknown::Missing);
    }
    let is_alone = !value.starts_with(b"Bearer ") && !value.contains(&b' ');
    let found = match std::str::from_utf8(value) {
        Ok(text) if is_alone && text.chars().all(|c| ('!'..='~').contains(&c)) => Ok(text),
        _ => word(value),
    };
    found.and_then(|word| if word == "Bearer" { Err(Unknown::Malformed) } else { Ok(word) })
}

fn headers(value: &[u8]) -> Option<HeaderMap> {
    Some(HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_bytes(value).ok()?)]))
}
