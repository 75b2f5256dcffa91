//! The page that was requested before the sign-in, and to which the sign-in leads.
//!
//! It is in the URL of the sign-in page, to which any site may link. So only a page of this dashboard is accepted, and none that
//! begins another sign-in.

use super::PATH_PREFIX;
use super::page_request::PageRequest;

/// Names the query parameter and the form field.
const FIELD: &str = "next";
/// Limits the path and query of the page, in bytes. Percent-encoded, they fit into a cookie.
const NEXT_BYTES_MAX: usize = 1_024;
/// The paths of sign-in, with all paths below them.
const SIGN_IN_PATHS: [&str; 4] =
    ["/dashboard/login", "/dashboard/logout", "/dashboard/join", "/dashboard/account/oidc"];

/// Returns the page to which the sign-in leads, if the request names a valid one.
pub fn find_next(request: &PageRequest) -> Option<&str> {
    match request.form.text(FIELD) {
        "" => parse_next(request.query.text(FIELD)),
        submitted => parse_next(submitted),
    }
}

/// Returns a text if it is the path, and query, of a page of the dashboard.
pub fn parse_next(text: &str) -> Option<&str> {
    let path = text.split(['?', '#']).next().unwrap_or_default();
    let is_plain = text.len() <= NEXT_BYTES_MAX
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
        && !text.contains("//");
    // Browsers resolve these segments, also if they are encoded.
    let decoded = path.to_ascii_lowercase().replace("%2e", ".");
    let is_resolved = !decoded.split('/').any(|segment| [".", ".."].contains(&segment));
    let is_page = path.strip_prefix(PATH_PREFIX).is_some_and(|rest| rest.starts_with('/'));
    let is_sign_in = SIGN_IN_PATHS.iter().any(|other| {
        path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    (is_plain && is_resolved && is_page && !is_sign_in).then_some(text)
}

/// Adds the page to which the sign-in leads to a path.
pub fn with_next(path: &str, next: Option<&str>) -> String {
    let Some(next) = next else { return path.to_owned() };
    let query = form_urlencoded::Serializer::new(String::new()).append_pair(FIELD, next).finish();
    format!("{path}?{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_next_accepts_pages_of_the_dashboard() {
        for page in [
            "/dashboard/ws_1",
            "/dashboard/ws_1/keys?q=a+b&order=ascending",
            "/dashboard/account",
            "/dashboard/ws_1/identities/a%2Fb",
            "/dashboard/loginx",
        ] {
            assert_eq!(parse_next(page), Some(page));
        }
    }

    #[test]
    fn parse_next_rejects_other_addresses() {
        for other in [
            "",
            "/",
            "/dashboard",
            "/dashboards/ws_1",
            "//evil.example",
            "//evil.example/dashboard/ws_1",
            "/\\evil.example",
            "/dashboard/\\evil.example",
            "/dashboard//evil.example",
            "https://evil.example/dashboard/ws_1",
            "javascript:alert(1)",
            "/dashboard/ws_1\r\nset-cookie: a=b",
            "/dashboard/ws_1\t",
            "/dashboard/é",
            "/dashboard/../v2/liveness",
            "/dashboard/%2E%2e/v2/liveness",
            "/dashboard/login",
            "/dashboard/login?next=/dashboard/ws_1",
            "/dashboard/login/oidc",
            "/dashboard/join/token",
            "/dashboard/account/oidc",
        ] {
            assert_eq!(parse_next(other), None, "{other}");
        }
    }

    #[test]
    fn parse_next_accepts_up_to_1024_bytes() {
        let page = |bytes: usize| format!("/dashboard/{}", "a".repeat(bytes - 11));

        assert!(parse_next(&page(1_024)).is_some());
        assert_eq!(parse_next(&page(1_025)), None);
    }
}
