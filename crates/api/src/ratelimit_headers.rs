//! Rate-limit headers: the limits that a request was checked against, as headers of its response.
//!
//! Either the fields of draft-ietf-httpapi-ratelimit-headers-11, which are structured fields (RFC 9651), or the three
//! `X-RateLimit` headers, which predate it.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt::Write as _;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use domain::keys::{EvaluatedLimit, WindowStatus};
use foundation::clock::Timestamp;
pub use foundation::config::RatelimitHeaders;
use sfv::{ItemSerializer, StringRef};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STATUS: HeaderName = HeaderName::from_static("ratelimit");
const LEGACY_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const LEGACY_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const LEGACY_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The maximum length of a header value. Proxies have room for a few kilobytes of headers.
const VALUE_MAX_BYTES: usize = 1024;
/// The largest integer of a structured field, which has at most 15 digits.
const INTEGER_MAX: i64 = 999_999_999_999_999;
/// The capacity of a value at first: one or two limits fit.
const LIST_BYTES: usize = 64;

/// A limit that was checked, and its status after the check.
#[derive(Debug, Clone, Copy)]
pub struct CheckedLimit<'a> {
    pub name: &'a str,
    pub limit: i64,
    pub duration_ms: i64,
    pub status: WindowStatus,
}

impl<'a> From<&'a EvaluatedLimit> for CheckedLimit<'a> {
    fn from(evaluated: &'a EvaluatedLimit) -> Self {
        let EvaluatedLimit { limit, status, .. } = evaluated;
        Self {
            name: &limit.name,
            limit: limit.limit,
            duration_ms: limit.duration_ms,
            status: *status,
        }
    }
}

/// Adds the headers that describe these limits.
pub fn add<'a>(
    headers: &mut HeaderMap,
    format: RatelimitHeaders,
    limits: impl IntoIterator<Item = CheckedLimit<'a>>,
    now: Timestamp,
) {
    for (name, value) in list(format, limits, now) {
        // Numbers and structured fields are printable ASCII.
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
}

/// Returns the headers that describe these limits.
pub fn list<'a>(
    format: RatelimitHeaders,
    limits: impl IntoIterator<Item = CheckedLimit<'a>>,
    now: Timestamp,
) -> Vec<(HeaderName, String)> {
    if format == RatelimitHeaders::Off {
        return Vec::new();
    }
    let mut limits: Vec<_> = limits.into_iter().collect();
    // The tightest one first: one that is exceeded, then the one with the least remaining, then the last to reset.
    limits.sort_by_key(|limit| {
        let WindowStatus { is_exceeded, remaining, reset_at, used: _ } = limit.status;
        (Reverse(is_exceeded), remaining, Reverse(reset_at.0))
    });
    match format {
        RatelimitHeaders::Draft => list_draft(&limits, now),
        RatelimitHeaders::Legacy => list_legacy(&limits),
        RatelimitHeaders::Off => Vec::new(),
    }
}

/// Returns the fields of the draft, with as many limits as there is room for, the same in both.
fn list_draft(limits: &[CheckedLimit<'_>], now: Timestamp) -> Vec<(HeaderName, String)> {
    let mut policies = String::with_capacity(LIST_BYTES);
    let mut statuses = String::with_capacity(LIST_BYTES);
    for limit in limits {
        let (policies_len, statuses_len) = (policies.len(), statuses.len());
        let is_appended = append_items(limit, now, &mut policies, &mut statuses).is_some();
        if !is_appended || policies.len().max(statuses.len()) > VALUE_MAX_BYTES {
            policies.truncate(policies_len);
            statuses.truncate(statuses_len);
        }
    }
    if policies.is_empty() {
        return Vec::new();
    }
    vec![(POLICY, policies), (STATUS, statuses)]
}

/// Appends the items of a limit to `RateLimit-Policy` and to `RateLimit`. `None`: its name cannot be written.
fn append_items(
    limit: &CheckedLimit<'_>,
    now: Timestamp,
    policies: &mut String,
    statuses: &mut String,
) -> Option<()> {
    let name = escape_name(limit.name);
    let name = StringRef::from_str(&name).ok()?;
    let window_seconds = to_seconds(limit.duration_ms).max(1);
    // The clocks of Redis and of this replica may differ.
    let reset_seconds =
        to_seconds(limit.status.reset_at.0.saturating_sub(now.0)).clamp(0, window_seconds);
    append_item(policies, name, [(";q=", limit.limit), (";w=", window_seconds)]);
    append_item(statuses, name, [(";r=", limit.status.remaining), (";t=", reset_seconds)]);
    Some(())
}

/// Appends a name with two numbers. They are written without the serializer, whose formatting costs more than all else here.
fn append_item(list: &mut String, name: &StringRef, parameters: [(&str, i64); 2]) {
    if !list.is_empty() {
        list.push_str(", ");
    }
    let _ = ItemSerializer::with_buffer(list).bare_item(name).finish();
    let mut digits = itoa::Buffer::new();
    for (key, value) in parameters {
        list.push_str(key);
        list.push_str(digits.format(value.clamp(0, INTEGER_MAX)));
    }
}

fn list_legacy(limits: &[CheckedLimit<'_>]) -> Vec<(HeaderName, String)> {
    let Some(tightest) = limits.first() else { return Vec::new() };
    vec![
        (LEGACY_LIMIT, tightest.limit.to_string()),
        (LEGACY_REMAINING, tightest.status.remaining.to_string()),
        (LEGACY_RESET, to_seconds(tightest.status.reset_at.0).to_string()),
    ]
}

/// Percent-encodes what a string of a structured field cannot contain, and `%`, so that different names stay different.
fn escape_name(name: &str) -> Cow<'_, str> {
    if name.bytes().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        match is_plain(byte) {
            true => escaped.push(char::from(byte)),
            false => drop(write!(escaped, "%{byte:02X}")),
        }
    }
    Cow::Owned(escaped)
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'%'
}

/// Returns whole seconds, rounded up: a client that waits so long has not waited too little.
fn to_seconds(ms: i64) -> i64 {
    ms.div_euclid(1000) + i64::from(ms.rem_euclid(1000) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn limit(name: &str, remaining: i64, reset_ms: i64) -> CheckedLimit<'_> {
        let reset_at = NOW.plus_ms(reset_ms);
        let status = WindowStatus { used: 0, remaining, reset_at, is_exceeded: false };
        CheckedLimit { name, limit: 100, duration_ms: 60_000, status }
    }

    fn render(format: RatelimitHeaders, limits: &[CheckedLimit<'_>]) -> Vec<(String, String)> {
        let headers = list(format, limits.iter().copied(), NOW);
        headers.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }

    fn draft(limits: &[CheckedLimit<'_>]) -> (String, String) {
        let [(_, policies), (_, statuses)] = &render(RatelimitHeaders::Draft, limits)[..] else {
            panic!("two headers")
        };
        (policies.clone(), statuses.clone())
    }

    #[test]
    fn draft_lists_limits_from_the_tightest() {
        let exceeded = WindowStatus { is_exceeded: true, ..limit("", 7, 30_000).status };
        let limits = [
            limit("b", 5, 1000),
            limit("c", 5, 2000),
            CheckedLimit { status: exceeded, ..limit("d", 0, 0) },
            limit("a", 4, 60_000),
        ];

        let (policies, statuses) = draft(&limits);

        let expected = r#""d";q=100;w=60, "a";q=100;w=60, "c";q=100;w=60, "b";q=100;w=60"#;
        assert_eq!(policies, expected);
        assert_eq!(statuses, r#""d";r=7;t=30, "a";r=4;t=60, "c";r=5;t=2, "b";r=5;t=1"#);
    }

    #[test]
    fn times_are_rounded_up_to_seconds_within_the_window() {
        for (reset_ms, seconds) in
            [(-5, 0), (0, 0), (1, 1), (1000, 1), (1001, 2), (60_000, 60), (60_001, 60)]
        {
            let (_, statuses) = draft(&[limit("a", 1, reset_ms)]);
            assert_eq!(statuses, format!(r#""a";r=1;t={seconds}"#));
        }
        let short = CheckedLimit { duration_ms: 1500, ..limit("a", 1, 1) };
        assert_eq!(draft(&[short]).0, r#""a";q=100;w=2"#);
    }

    #[test]
    fn names_are_escaped_unambiguously() {
        for (name, escaped) in [
            ("requests", r#""requests""#),
            ("a \"b\" \\", r#""a \"b\" \\""#),
            ("h\u{fc}\n", r#""h%C3%BC%0A""#),
            ("h%C3%BC", r#""h%25C3%25BC""#),
            ("~\u{7f}", r#""~%7F""#),
            ("", r#""""#),
        ] {
            let (policies, _) = draft(&[limit(name, 1, 1000)]);
            assert_eq!(policies, format!("{escaped};q=100;w=60"));
        }
    }

    #[test]
    fn numbers_are_clamped_to_fifteen_digits() {
        let (most, too_many) = (999_999_999_999_999, 1_000_000_000_000_000);
        for (value, shown) in [(0, 0), (most, most), (too_many, most), (i64::MAX, most), (-1, 0)] {
            let limits = [CheckedLimit { limit: value, ..limit("a", value, 1000) }];
            let (policies, statuses) = draft(&limits);
            assert_eq!(policies, format!(r#""a";q={shown};w=60"#));
            assert_eq!(statuses, format!(r#""a";r={shown};t=1"#));
        }
        let forever = WindowStatus { reset_at: Timestamp(i64::MAX), ..limit("", 1, 0).status };
        let forever = CheckedLimit { duration_ms: i64::MAX, status: forever, ..limit("a", 1, 0) };
        assert_eq!(draft(&[forever]).0, format!(r#""a";q=100;w={most}"#));
    }

    #[test]
    fn limits_that_do_not_fit_are_left_out_of_both_headers() {
        let names: Vec<_> = (10..99).map(|number| format!("limit{number}")).collect();
        let limits: Vec<_> = names.iter().map(|name| limit(name, 1, 1000)).collect();

        let (policies, statuses) = draft(&limits);

        assert!((VALUE_MAX_BYTES - 30..=VALUE_MAX_BYTES).contains(&policies.len()), "{policies}");
        assert_eq!(policies.matches("limit").count(), statuses.matches("limit").count());
        let fits = "x".repeat(VALUE_MAX_BYTES - r#""";q=100;w=60"#.len());
        assert_eq!(draft(&[limit(&fits, 1, 1000)]).0.len(), VALUE_MAX_BYTES);
        let too_long = format!("{fits}x");
        assert_eq!(render(RatelimitHeaders::Draft, &[limit(&too_long, 1, 1000)]), []);
        // The next one may fit.
        let (policies, _) = draft(&[limit(&too_long, 1, 1000), limit("b", 2, 1000)]);
        assert_eq!(policies, r#""b";q=100;w=60"#);
    }

    #[test]
    fn legacy_describes_the_tightest_limit() {
        let limits = [limit("b", 5, 1000), limit("a", 4, 60_001)];

        let headers = render(RatelimitHeaders::Legacy, &limits);

        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [
            header("x-ratelimit-limit", "100"),
            header("x-ratelimit-remaining", "4"),
            header("x-ratelimit-reset", "1061"),
        ];
        assert_eq!(headers, expected);
    }

    #[test]
    fn there_are_no_headers_when_off_or_without_limits() {
        assert_eq!(render(RatelimitHeaders::Off, &[limit("a", 1, 1000)]), []);
        assert_eq!(render(RatelimitHeaders::Draft, &[]), []);
        assert_eq!(render(RatelimitHeaders::Legacy, &[]), []);
    }
}
