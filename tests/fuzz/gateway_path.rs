//! Fuzzes the paths of gateways' rules: a path has segments only if other servers read the same ones, and a pattern matches as a
//! table of segments says.

use api::gateway::path_of;
use domain::gateways::{PathPattern, RequestPath};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::compose;

const PIECES: &[&str] = &[
    "/", "/", "/", "a", "admin", "A", "*", "**", ".", "..", "%2e", "%2E", "%2f", "%5C", "\\", ";",
    "%3b", "%25", "%", "%ff", "%C3%A9", "é", "%00", "\u{7f}", " ", "\t", "#", "%23", "?", "|", "~",
    "@", "\"", "//",
];

/// The maximum number of segments of a path.
const SEGMENTS_MAX: usize = 256;

/// An input is a pattern and, in the next line, a target.
#[test]
fn path_is_read_as_other_servers_read_it() {
    bolero::check!(name = "gateway_path").for_each(|bytes: &[u8]| {
        for text in [String::from_utf8_lossy(bytes).into_owned(), compose(bytes, PIECES).concat()] {
            let target = text.split_once('\n').map_or(&*text, |(_, target)| target);
            let path = path_of(target);

            let parsed = RequestPath::parse(path);

            let Some(segments) = read_segments(path) else {
                assert!(parsed.is_none(), "{path:?} is {parsed:?}");
                continue;
            };
            let parsed = parsed.unwrap_or_else(|| panic!("{path:?} is refused"));
            // The question mark keeps spaces at the end.
            let url = Url::parse(&format!("http://host{path}?")).unwrap();
            let elsewhere: Vec<_> =
                url.path_segments().unwrap().filter(|segment| !segment.is_empty()).collect();
            let decode =
                |segment: &&str| percent_decode_str(segment).decode_utf8().unwrap().into_owned();
            assert_eq!(elsewhere.iter().map(decode).collect::<Vec<_>>(), segments, "{path:?}");
            let any = "/*".repeat(segments.len());
            let any = PathPattern::parse(if any.is_empty() { "/" } else { &any }).unwrap();
            assert!(any.matches(&parsed), "{path:?} has not {} segments", segments.len());
        }
    });
}

#[test]
fn pattern_matches_segment_by_segment() {
    bolero::check!(name = "gateway_path").for_each(|bytes: &[u8]| {
        for text in [String::from_utf8_lossy(bytes).into_owned(), compose(bytes, PIECES).concat()] {
            // Without a second line, the second half.
            let middle = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
            let (pattern, target) = text.split_once('\n').unwrap_or_else(|| text.split_at(middle));

            let parsed = PathPattern::parse(pattern);

            let Some(expected) = read_pattern(pattern) else {
                assert!(parsed.is_err(), "{pattern:?} is {parsed:?}");
                continue;
            };
            let parsed = parsed.unwrap();
            if let Some(path) = RequestPath::parse(path_of(target)) {
                let segments = read_segments(path_of(target)).unwrap();
                assert_eq!(
                    parsed.matches(&path),
                    matches(&expected, &segments),
                    "{pattern:?} {target:?}"
                );
            }
        }
    });
}

/// Returns the decoded segments of a path, unless it can be read in two ways.
fn read_segments(path: &str) -> Option<Vec<String>> {
    // Some servers read two slashes at the start as the beginning of a host.
    if !path.starts_with('/') || path.starts_with("//") || path.contains('#') {
        return None;
    }
    let segments: Vec<_> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    if segments.len() > SEGMENTS_MAX {
        return None;
    }
    let decode = |segment: &str| {
        let decoded = String::from_utf8(percent_decode_str(segment).collect()).ok()?;
        let is_plain = |c: char| !"/\\;%".contains(c) && !c.is_control();
        (decoded != "." && decoded != ".." && decoded.chars().all(is_plain)).then_some(decoded)
    };
    segments.into_iter().map(decode).collect()
}

fn read_pattern(pattern: &str) -> Option<Vec<&str>> {
    let segments: Vec<_> =
        pattern.strip_prefix('/')?.split('/').filter(|segment| !segment.is_empty()).collect();
    let is_valid = |segment: &&str| match *segment {
        "*" | "**" => true,
        "." | ".." => false,
        literal => !literal.contains(['*', '?', '#', '%', ';', '\\']),
    };
    let many = segments.iter().filter(|segment| **segment == "**").count();
    (segments.iter().all(is_valid) && many <= 4).then_some(segments)
}

/// Whether a pattern matches, computed by prefixes: the row holds, for every number of segments, whether the pattern up to here
/// matches the first ones.
fn matches(pattern: &[&str], path: &[String]) -> bool {
    let mut row = vec![false; path.len() + 1];
    row[0] = true;
    for part in pattern {
        let before = row;
        row = vec![*part == "**" && before[0]];
        for (at, segment) in path.iter().enumerate() {
            row.push(match *part {
                "**" => before[at + 1] || row[at],
                "*" => before[at],
                literal => before[at] && literal == segment,
            });
        }
    }
    row[path.len()]
}
