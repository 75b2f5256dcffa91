//! The request that a gateway has received, as the gateway's own request tells it.

use std::borrow::Cow;

use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use domain::gateways::{Credential, OriginalRequest};
use foundation::model::KeySource;

/// The headers with the method.
static METHOD_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("x-forwarded-method"), HeaderName::from_static("x-original-method")];
/// The headers with the path and the query, or with the whole URL.
static URI_HEADERS: [HeaderName; 3] = [
    HeaderName::from_static("x-forwarded-uri"),
    HeaderName::from_static("x-original-uri"),
    HeaderName::from_static("x-original-url"),
];

/// A request as HTTP gateways tell it: in headers, or as the rest of the path.
///
/// A gateway sets some of the headers and may pass on the others as the client sent them. So what two sources tell
/// differently is unknown.
#[derive(Debug)]
pub struct ForwardedRequest<'a> {
    headers: &'a HeaderMap,
    method: Option<&'a str>,
    /// The path and the query.
    target: Option<&'a str>,
    has_stray_slash: bool,
}

impl<'a> ForwardedRequest<'a> {
    /// Creates a request whose method, path and query are known.
    pub fn new(headers: &'a HeaderMap, method: &'a str, target: &'a str) -> Self {
        Self { headers, method: Some(method), target: Some(target), has_stray_slash: false }
    }

    /// Parses the request of a gateway. `rest` is what follows the policy in its path and query, if anything does.
    pub fn parse(head: &'a Parts, rest: Option<&'a str>) -> Self {
        let headers = &head.headers;
        // Below the policy's own path, a gateway repeats the method.
        let own_method = rest.map(|_| head.method.as_str());
        let (mut method, mut target) = (Told::Nothing.add(own_method), Told::Nothing.add(rest));
        // An unreadable value contradicts every other.
        for (name, value) in headers {
            let text = || value.to_str().unwrap_or_default();
            if METHOD_HEADERS.contains(name) {
                method = method.add(Some(text()));
            } else if URI_HEADERS.contains(name) {
                target = target.add(Some(to_target(text()).unwrap_or_default()));
            }
        }
        let target = target.agreed();
        let has_stray_slash = target.is_none() && rest.is_some_and(|rest| path_of(rest) == "/");
        Self { headers, method: method.agreed(), target, has_stray_slash }
    }

    /// Returns whether the gateway's own path ends with a slash after the policy, and a header tells another path: it was
    /// configured so by mistake, and would get no request but `/` admitted.
    pub fn has_stray_slash(&self) -> bool {
        self.has_stray_slash
    }
}

/// What the sources that tell something agree on.
enum Told<'a> {
    Nothing,
    Agreed(&'a str),
    Contradiction,
}

impl<'a> Told<'a> {
    fn add(self, other: Option<&'a str>) -> Self {
        match (self, other) {
            (told, None) => told,
            (Self::Nothing, Some(value)) => Self::Agreed(value),
            (Self::Agreed(known), Some(value)) if known == value => Self::Agreed(known),
            (Self::Agreed(_) | Self::Contradiction, Some(_)) => Self::Contradiction,
        }
    }

    fn agreed(self) -> Option<&'a str> {
        match self {
            Self::Agreed(value) => Some(value),
            Self::Nothing | Self::Contradiction => None,
        }
    }
}

/// Returns the path and the query of a target or of a URL. Of a URL with a query or a fragment, but without a path, nothing is
/// returned: a slash that follows is no path, and a client can put one there, since nginx accepts `h?x=` as the name of a host.
fn to_target(text: &str) -> Option<&str> {
    if text.starts_with('/') {
        return Some(text);
    }
    let (scheme, rest) = text.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    match rest.find(['/', '?', '#']) {
        None => Some("/"),
        Some(at) => Some(&rest[at..]).filter(|target| target.starts_with('/')),
    }
}

impl OriginalRequest for ForwardedRequest<'_> {
    fn method(&self) -> Option<&str> {
        self.method
    }

    fn path(&self) -> Option<&str> {
        self.target.map(path_of)
    }

    fn credential(&self, source: &KeySource) -> Option<Credential<'_>> {
        match source {
            KeySource::Bearer => self
                .headers
                .get_all(AUTHORIZATION)
                .iter()
                .find_map(|value| bearer_token(text(value)?)),
            KeySource::Header(name) => {
                let values = self.headers.get_all(name.as_str());
                values.iter().find_map(|value| non_empty(text(value)?))
            }
            KeySource::Query(name) => query_parameter(query_of(self.target?), name),
            KeySource::Cookie(name) => {
                self.headers.get_all(COOKIE).iter().find_map(|value| cookie(text(value)?, name))
            }
        }
    }
}

fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok()
}

/// Returns the path of a target. A `#` is part of it: gateways pass it on, and servers read it in different ways.
pub fn path_of(target: &str) -> &str {
    target.split('?').next().unwrap_or_default()
}

/// Returns the query of a target. A fragment is no part of it.
pub fn query_of(target: &str) -> &str {
    let target = target.split('#').next().unwrap_or_default();
    target.split_once('?').map_or("", |(_, query)| query)
}

/// Returns a text without spaces around it, unless nothing is left.
pub fn non_empty(text: &str) -> Option<Credential<'_>> {
    Some(text.trim()).filter(|text| !text.is_empty()).map(Cow::Borrowed)
}

/// Returns the token of an `Authorization` header of the scheme Bearer.
pub fn bearer_token(header: &str) -> Option<Credential<'_>> {
    let (scheme, token) = header.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") { non_empty(token) } else { None }
}

/// Returns the first parameter of a query with this name.
pub fn query_parameter<'a>(query: &'a str, name: &str) -> Option<Credential<'a>> {
    form_urlencoded::parse(query.as_bytes())
        .find(|(known, value)| known == name && !value.is_empty())
        .map(|(_, value)| value)
}

/// Returns the first cookie of a `Cookie` header with this name.
pub fn cookie<'a>(header: &'a str, name: &str) -> Option<Credential<'a>> {
    let value = |pair: &'a str| {
        let (known, value) = pair.trim().split_once('=')?;
        (known == name).then(|| value.trim().trim_matches('"'))
    };
    header.split(';').find_map(value).and_then(non_empty)
}

/// Returns the rest of a path and its query below the path of a policy: `/a?b` of `/gateway/<policy>/a?b`.
pub fn rest_of(uri: &Uri, prefix_len: usize) -> Option<&str> {
    uri.path_and_query()?.as_str().get(prefix_len..).filter(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn head(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method("POST");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    fn told(headers: &[(&str, &str)], rest: Option<&str>) -> (Option<String>, Option<String>) {
        let head = head(headers);
        let request = ForwardedRequest::parse(&head, rest);
        (request.method().map(str::to_owned), request.path().map(str::to_owned))
    }

    fn some(method: &str, path: &str) -> (Option<String>, Option<String>) {
        (Some(method.to_owned()), Some(path.to_owned()))
    }

    #[test]
    fn request_is_told_by_headers_of_each_gateway() {
        let traefik = [("x-forwarded-method", "GET"), ("x-forwarded-uri", "/a/b?c=d")];
        assert_eq!(told(&traefik, None), some("GET", "/a/b"));
        let nginx = [("x-original-method", "PUT"), ("x-original-uri", "/a?b")];
        assert_eq!(told(&nginx, None), some("PUT", "/a"));
        let ingress = [("x-original-method", "PUT"), ("x-original-url", "https://a.example/b?c")];
        assert_eq!(told(&ingress, None), some("PUT", "/b"));
        assert_eq!(told(&[("x-original-url", "http://a.example")], None).1, Some("/".into()));
        // A slash in the query or in the fragment is no path.
        for url in ["http://a.example?x=/b", "http://a.example#/b", "http://a.example?/b#"] {
            assert_eq!(told(&[("x-original-url", url)], None).1, Some(String::new()), "{url}");
        }
        assert_eq!(told(&[], Some("/a/b?c")), some("POST", "/a/b"));
        assert_eq!(told(&[], Some("/a#b?c")), some("POST", "/a#b"));
        assert_eq!(told(&[], Some("/a?b#c?d")), some("POST", "/a"));
    }

    #[test]
    fn request_is_unknown_when_sources_contradict_each_other() {
        let uris = [("x-forwarded-uri", "/admin"), ("x-original-uri", "/public")];
        assert_eq!(told(&uris, None), (None, None));
        let twice = [("x-forwarded-uri", "/admin"), ("x-forwarded-uri", "/public")];
        assert_eq!(told(&twice, None).1, None);
        assert_eq!(told(&[("x-original-uri", "/public")], Some("/admin")).1, None);
        let methods = [("x-forwarded-method", "GET"), ("x-original-method", "POST")];
        assert_eq!(told(&methods, None).0, None);
        assert_eq!(told(&[("x-forwarded-method", "GET")], Some("/a")).0, None);
        assert_eq!(told(&[("x-original-url", "ftp://a/b")], Some("/b")).1, None);
        assert_eq!(told(&[("x-forwarded-uri", "")], Some("/b")).1, None);
        // The same twice is no contradiction.
        assert_eq!(told(&[("x-original-uri", "/a")], Some("/a")).1, Some("/a".into()));
    }

    #[test]
    fn credential_is_found_in_each_source() {
        let head = head(&[
            ("authorization", "Basic other"),
            ("authorization", "bearer key_1"),
            ("x-api-key", ""),
            ("x-api-key", " key_2 "),
            ("x-forwarded-uri", "/a?api_key=key%5F3&api_key=other#api_key=no"),
            ("cookie", "a=b; key=key_4; key=other"),
            ("cookie", "session=\"key_5\""),
        ]);
        let request = ForwardedRequest::parse(&head, None);
        for (source, expected) in [
            ("authorization:bearer", Some("key_1")),
            ("header:x-api-key", Some("key_2")),
            ("query:api_key", Some("key_3")),
            ("cookie:key", Some("key_4")),
            ("cookie:session", Some("key_5")),
            ("header:x-other", None),
            ("query:other", None),
            ("cookie:other", None),
        ] {
            let source = source.parse().expect("a source");
            assert_eq!(request.credential(&source).as_deref(), expected, "{source}");
        }
    }

    #[test]
    fn credential_is_absent_when_it_is_empty_or_of_another_scheme() {
        let head = head(&[
            ("authorization", "Basic key_1"),
            ("x-api-key", " "),
            ("x-forwarded-uri", "/a?api_key="),
            ("cookie", "key="),
        ]);
        let request = ForwardedRequest::parse(&head, None);
        for source in ["authorization:bearer", "header:x-api-key", "query:api_key", "cookie:key"] {
            let parsed = source.parse().expect("a source");
            assert!(request.credential(&parsed).is_none(), "{source}");
        }
    }
}
