//! Patterns of paths, and the paths of requests that are matched with them.
//!
//! The gateway passes on the path as the client sent it, and the upstream may read it in another way than Keyward does.
//! So a path that servers are known to read in different ways has no [`RequestPath`]: no rule with a path matches it.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// A pattern in which `*` stands for one segment and `**` for any number of segments, even none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern(Vec<PatternSegment>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternSegment {
    Literal(Box<str>),
    /// Exactly one segment.
    Any,
    /// Any number of segments.
    AnyNumber,
}

/// The maximum number of `**` in a pattern.
const ANY_NUMBER_MAX: usize = 4;

impl PathPattern {
    /// Parses a pattern. The error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix('/') else {
            return Err("must begin with `/`".to_owned());
        };
        let mut segments = Vec::new();
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            segments.push(match segment {
                "*" => PatternSegment::Any,
                "**" => PatternSegment::AnyNumber,
                "." | ".." => return Err("must not contain the segments `.` and `..`".to_owned()),
                wild if wild.contains('*') => {
                    return Err("must contain `*` and `**` only as whole segments".to_owned());
                }
                ambiguous if ambiguous.contains(['?', '#', '%', ';', '\\']) => {
                    return Err("must not contain ?, #, %, ; and \\".to_owned());
                }
                literal => PatternSegment::Literal(literal.into()),
            });
        }
        let is_many = |segment: &&PatternSegment| **segment == PatternSegment::AnyNumber;
        if segments.iter().filter(is_many).count() > ANY_NUMBER_MAX {
            return Err(format!("must contain `**` at most {ANY_NUMBER_MAX} times"));
        }
        Ok(Self(segments))
    }

    /// Returns whether the pattern matches the whole path.
    pub fn matches(&self, path: &RequestPath<'_>) -> bool {
        matches(&self.0, &path.0)
    }
}

impl PatternSegment {
    /// Returns whether it stands for this segment alone.
    fn accepts(&self, segment: &str) -> bool {
        match self {
            Self::Literal(literal) => **literal == *segment,
            Self::Any | Self::AnyNumber => true,
        }
    }
}

/// Compares segment by segment. What follows a `**` is looked for at the first place where it matches up to the next `**`: no
/// other place leaves more of the path. So only the last `**` ever takes one segment more, and the time is bounded by the product
/// of the lengths.
fn matches(pattern: &[PatternSegment], path: &[Cow<'_, str>]) -> bool {
    let (mut part_at, mut segment_at) = (0, 0);
    // The place after the last `**`, and the first segment that it does not take.
    let mut last_many = None;
    loop {
        match (pattern.get(part_at), path.get(segment_at)) {
            (None, None) => return true,
            (Some(PatternSegment::AnyNumber), _) => {
                part_at += 1;
                last_many = Some((part_at, segment_at));
            }
            (Some(part), Some(segment)) if part.accepts(segment) => {
                part_at += 1;
                segment_at += 1;
            }
            // With fewer segments, the rest matches even less.
            (Some(_), None) => return false,
            (_, Some(_)) => {
                let Some((after, first)) = &mut last_many else { return false };
                *first += 1;
                (part_at, segment_at) = (*after, *first);
            }
        }
    }
}

/// The decoded segments of a request's path. Slashes in a row count as one, except at the beginning, and a slash at the end
/// does not count: many servers ignore both.
#[derive(Debug)]
pub struct RequestPath<'a>(Vec<Cow<'a, str>>);

/// The maximum number of segments of a path that rules can match.
const SEGMENTS_MAX: usize = 256;

impl<'a> RequestPath<'a> {
    /// Parses the path of a request, without its query. Returns `None` if servers read it in different ways: if it
    /// contains, also percent-encoded, a segment `.` or `..`, a backslash, a semicolon, a control character or a slash
    /// within a segment, or a `#` that is not encoded, or if it is not valid UTF-8. After two slashes at the beginning, some
    /// take the first segment for a host.
    pub fn parse(path: &'a str) -> Option<Self> {
        let path = path.strip_prefix('/')?;
        if path.starts_with('/') || path.contains('#') {
            return None;
        }
        let mut segments = Vec::new();
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            let decoded = percent_decode_str(segment).decode_utf8().ok()?;
            let is_ambiguous = |c: char| matches!(c, '/' | '\\' | ';' | '%') || c.is_control();
            if decoded == "." || decoded == ".." || decoded.contains(is_ambiguous) {
                return None;
            }
            segments.push(decoded);
        }
        (segments.len() <= SEGMENTS_MAX).then_some(Self(segments))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn is_match(pattern: &str, path: &str) -> bool {
        let pattern = PathPattern::parse(pattern).expect("a pattern");
        RequestPath::parse(path).is_some_and(|path| pattern.matches(&path))
    }

    #[test]
    fn pattern_matches_segments_as_its_wildcards_say() {
        for (pattern, path, expected) in [
            ("/", "/", true),
            ("/", "/a", false),
            ("/a/b", "/a/b", true),
            ("/a/b", "/a", false),
            ("/a/b", "/A/b", false),
            ("/a/*", "/a/b", true),
            ("/a/*", "/a", false),
            ("/a/*", "/a/b/c", false),
            ("/a/**", "/a", true),
            ("/a/**", "/a/b/c", true),
            ("/a/**", "/ab", false),
            ("/**", "/", true),
            ("/**/c", "/a/b/c", true),
            ("/**/c", "/c", true),
            ("/**/c", "/c/d", false),
            ("/a/**/d/*", "/a/b/c/d/e", true),
            ("/a/**/d/*", "/a/d", false),
            ("/**/a/*/c/**/d", "/a/a/b/a/b/c/x/d", true),
            ("/**/a/*/c/**/d", "/a/a/b/a/b/c/x/d/e", false),
            ("/**/a/**/a/b", "/a/b/a/a/b", true),
            ("/**/a/**/a/b", "/a/b/b", false),
            ("/**/**", "/", true),
            ("/caf\u{e9}", "/caf%C3%A9", true),
            ("/*", "/a%23b", true),
        ] {
            assert_eq!(is_match(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn long_path_is_compared_quickly_when_many_of_its_parts_match() {
        let pattern = PathPattern::parse("/**/a/**/a/**/a/**/b").expect("a pattern");
        let path = "/a".repeat(SEGMENTS_MAX);

        // As often as a policy may have rules. All ways to divide the path would take minutes.
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let path = RequestPath::parse(&path).expect("a path");
            sender.send((0..100).any(|_| pattern.matches(&path)))
        });

        assert_eq!(receiver.recv_timeout(Duration::from_secs(5)), Ok(false));
    }

    #[test]
    fn path_matches_as_servers_read_it_when_slashes_repeat() {
        for path in ["/admin", "/admin/", "/admin//", "/%61dmin"] {
            assert!(is_match("/admin", path), "{path}");
        }
        assert!(is_match("/a/b", "/a//b/"));
    }

    #[test]
    fn path_is_none_when_servers_read_it_in_different_ways() {
        for path in [
            "/public/../admin",
            "/public/%2e%2e/admin",
            "/public/.%2E/admin",
            "/./admin",
            "/public/..%2fadmin",
            "/admin%2fusers",
            "/admin%5cusers",
            "/admin\\users",
            "/admin;a=b/users",
            "/admin%3busers",
            "/public/%252e%252e/admin",
            "/public#/../admin",
            "/public#",
            "//admin",
            "//public/admin",
            "//",
            "/admin%00",
            "/admin\u{7f}",
            "/%ff",
            "admin",
            "",
        ] {
            assert!(RequestPath::parse(path).is_none(), "{path}");
        }
        assert!(RequestPath::parse(&"/a".repeat(SEGMENTS_MAX)).is_some());
        assert!(RequestPath::parse(&"/a".repeat(SEGMENTS_MAX + 1)).is_none());
    }

    #[test]
    fn parse_returns_the_reason_when_pattern_is_invalid() {
        for pattern in ["", "a", "/a*", "/**b", "/../a", "/./a", "/a?b", "/a%20b", "/a;b", "/a\\b"]
        {
            assert!(PathPattern::parse(pattern).is_err(), "{pattern}");
        }
        assert!(PathPattern::parse(&"/**/a".repeat(ANY_NUMBER_MAX)).is_ok());
        assert!(PathPattern::parse(&"/**/a".repeat(ANY_NUMBER_MAX + 1)).is_err());
    }
}
