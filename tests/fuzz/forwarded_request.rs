//! Fuzzes how a gateway tells the request that it has received, against a list of everything that tells the same.

use std::borrow::Cow;

use api::gateway::ForwardedRequest;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Request};
use domain::gateways::OriginalRequest as _;
use foundation::model::KeySource;

use crate::compose;

const NAMES: &[&str] = &[
    "x-forwarded-method",
    "x-original-method",
    "x-forwarded-uri",
    "x-original-uri",
    "x-original-url",
    "x-forwarded-host",
    "authorization",
    "x-api-key",
    "cookie",
];

const PIECES: &[&[u8]] = &[
    b"\n0",
    b"\n1",
    b"\n2",
    b"\n3",
    b"\n4",
    b"\n5",
    b"\n6",
    b"\n7",
    b"\n8",
    b"GET",
    b"GET",
    b"POST",
    b"/a",
    b"/a",
    b"/b",
    b"/",
    b"?",
    b"#",
    b"key=1",
    b"key=",
    b"&",
    b"; ",
    b"%20",
    b"+",
    b"http://",
    b"HTTPS://",
    b"ftp://",
    b"host",
    b"Bearer ",
    b"bearer ",
    b" ",
    b"\"",
    b"\xc3\xa9",
    b"\xff",
    b"\t",
    b",",
];

/// An input is what follows the policy in the path of the gateway's request, and in each further line the number of a header of
/// [`NAMES`] and its value.
#[test]
fn request_is_what_all_sources_agree_on() {
    bolero::check!(name = "forwarded_request").for_each(|bytes: &[u8]| {
        for input in [bytes.to_vec(), compose(bytes, PIECES).concat()] {
            let mut lines = input.split(|byte| *byte == b'\n');
            let rest = lines.next().unwrap_or_default();
            let rest = std::str::from_utf8(rest).ok().filter(|rest| rest.starts_with('/'));
            let headers: Vec<_> = lines.filter_map(to_header).collect();
            let head = to_head(&headers);

            let request = ForwardedRequest::parse(&head, rest);

            // An unreadable value is as good as an empty one, which no request has.
            let values = |names: &[&str]| {
                let named = headers.iter().filter(|(name, _)| names.contains(&name.as_str()));
                named
                    .map(|(_, value)| value.to_str().unwrap_or_default().to_owned())
                    .collect::<Vec<_>>()
            };
            let mut methods = values(&NAMES[..2]);
            methods.extend(rest.map(|_| "PUT".to_owned()));
            let method = request.method().map(str::to_owned);
            assert_eq!(method, agreed(&methods), "{input:?}");
            let mut targets: Vec<_> =
                values(&NAMES[2..5]).iter().map(|value| read_target(value)).collect();
            targets.extend(rest.map(str::to_owned));
            let target = agreed(&targets);
            let path = target.as_ref().map(|target| target.split('?').next().unwrap().to_owned());
            assert_eq!(request.path().map(str::to_owned), path, "{input:?}");

            let found = |source: &str| {
                let source: KeySource = source.parse().unwrap();
                request.credential(&source).map(Cow::into_owned)
            };
            let non_empty = |text: &str| Some(text.trim().to_owned()).filter(|it| !it.is_empty());
            let bearer = values(&["authorization"]).iter().find_map(|value| {
                let (scheme, token) = value.split_once(' ')?;
                if scheme.to_lowercase() == "bearer" { non_empty(token) } else { None }
            });
            assert_eq!(found("authorization:bearer"), bearer, "{input:?}");
            let api_key = values(&["x-api-key"]).iter().find_map(|value| non_empty(value));
            assert_eq!(found("header:x-api-key"), api_key, "{input:?}");
            let parameter = target.and_then(|target| read_parameter(&target));
            assert_eq!(found("query:key"), parameter, "{input:?}");
            let cookie = values(&["cookie"]).iter().find_map(|value| read_cookie(value));
            assert_eq!(found("cookie:key"), cookie, "{input:?}");
        }
    });
}

fn to_header(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let (number, value) = line.split_first()?;
    let name = NAMES.get(usize::from(number.checked_sub(b'0')?))?;
    Some((HeaderName::from_static(name), HeaderValue::from_bytes(value).ok()?))
}

fn to_head(headers: &[(HeaderName, HeaderValue)]) -> Parts {
    let mut request = Request::builder().method("PUT");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.body(()).unwrap().into_parts().0
}

/// Returns what all sources tell, if there are any and none tells anything else.
fn agreed(told: &[String]) -> Option<String> {
    let first = told.first()?.clone();
    told.iter().all(|value| *value == first).then_some(first)
}

/// Returns the path and the query of a target or of a URL; of anything else nothing.
fn read_target(text: &str) -> String {
    let text = text.to_owned();
    let lower = text.to_lowercase();
    let after = |scheme| lower.starts_with(scheme).then(|| text[str::len(scheme)..].to_owned());
    match after("http://").or_else(|| after("https://")) {
        Some(rest) => match rest.trim_start_matches(|char| !"/?#".contains(char)) {
            "" => "/".to_owned(),
            target if target.starts_with('/') => target.to_owned(),
            _ => String::new(),
        },
        None if text.starts_with('/') => text,
        None => String::new(),
    }
}

fn read_parameter(target: &str) -> Option<String> {
    let (_, query) = target.split('#').next()?.split_once('?')?;
    let decode = |text: &str| {
        let bytes =
            percent_encoding::percent_decode_str(&text.replace('+', " ")).collect::<Vec<_>>();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut pairs = pairs.map(|(name, value)| (decode(name), decode(value)));
    pairs.find(|(name, value)| name == "key" && !value.is_empty()).map(|(_, value)| value)
}

/// Returns the first cookie with the name, unless it is empty.
fn read_cookie(header: &str) -> Option<String> {
    let pairs = header.split(';').filter_map(|pair| pair.trim().split_once('='));
    let value = pairs
        .filter(|(name, _)| *name == "key")
        .map(|(_, value)| value.trim().trim_matches('"').trim())
        .next()?;
    Some(value.to_owned()).filter(|value| !value.is_empty())
}
