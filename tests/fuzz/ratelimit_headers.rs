//! Fuzzes the rate-limit headers: whatever the names and numbers of limits are, a parser of structured fields reads both fields,
//! and finds the same limits in both.

use api::ratelimit_headers::{self, CheckedLimit, RatelimitHeaders};
use axum::http::HeaderMap;
use domain::keys::WindowStatus;
use foundation::clock::Timestamp;
use percent_encoding::percent_decode_str;
use sfv::{BareItem, Item, List, ListEntry, Parser};

use crate::compose;

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const PIECES: &[&str] =
    &["\n", "\n", "a", "\"", "\\", "%", "%41", "é", ";", ",", " ", "\u{0}", "=", "\u{1f511}", "\t"];
const NUMBERS: &[i64] = &[
    0,
    1,
    -1,
    59,
    1_000,
    999_999_999_999_999,
    1_000_000_000_000_000,
    i64::MAX,
    i64::MIN,
    60_000,
    1_800_000_060_000,
];

/// The maximum length of a value.
const VALUE_MAX_BYTES: usize = 1024;

/// An input is a limit in each line: its name. Its numbers are chosen by the letters of the name.
#[test]
fn fields_are_read_by_a_parser_of_structured_fields() {
    bolero::check!(name = "ratelimit_headers").for_each(|bytes: &[u8]| {
        for text in [String::from_utf8_lossy(bytes).into_owned(), compose(bytes, PIECES).concat()] {
            let limits: Vec<_> =
                text.split('\n').enumerate().map(|(at, name)| to_limit(at, name)).collect();
            let mut headers = HeaderMap::new();

            ratelimit_headers::add(
                &mut headers,
                RatelimitHeaders::Draft,
                limits.iter().copied(),
                NOW,
            );

            let [policies, statuses] =
                ["ratelimit-policy", "ratelimit"].map(|name| read_field(&headers, name));
            let names = |items: &[Item]| items.iter().map(read_name).collect::<Vec<_>>();
            assert_eq!(names(&policies), names(&statuses), "{text:?}");
            for (policy, status) in policies.iter().zip(&statuses) {
                let name = read_name(policy);
                let known = limits.iter().filter(|limit| limit.name == name);
                let [quota, window] = read_numbers(policy, ["q", "w"]);
                let [remaining, reset] = read_numbers(status, ["r", "t"]);
                let is_shown =
                    |shown: i64, value: i64| shown == value.clamp(0, 999_999_999_999_999);
                let mut same = known.filter(|limit| is_shown(quota, limit.limit));
                assert!(
                    same.any(|limit| is_shown(remaining, limit.status.remaining)),
                    "{name:?} in {text:?}"
                );
                assert!(window >= 1 && (0..=window).contains(&reset), "{text:?}");
            }
            // A byte needs up to three characters, and the numbers of a limit up to 40.
            let bytes_max: usize = limits.iter().map(|limit| 3 * limit.name.len() + 44).sum();
            assert!(bytes_max > VALUE_MAX_BYTES || policies.len() == limits.len(), "{text:?}");
        }
    });
}

fn to_limit(at: usize, name: &str) -> CheckedLimit<'_> {
    let number = |place: usize| {
        let byte = name.as_bytes().get(place).copied().unwrap_or_default();
        NUMBERS[(usize::from(byte) + at + place) % NUMBERS.len()]
    };
    let status = WindowStatus {
        used: 0,
        remaining: number(0),
        reset_at: Timestamp(number(1)),
        is_exceeded: at.is_multiple_of(3),
    };
    CheckedLimit { name, limit: number(2), duration_ms: number(3).max(1), status }
}

fn read_field(headers: &HeaderMap, name: &str) -> Vec<Item> {
    let Some(value) = headers.get(name) else { return Vec::new() };
    assert!(value.len() <= VALUE_MAX_BYTES, "{value:?}");
    let list: List =
        Parser::new(value.as_bytes()).parse().unwrap_or_else(|e| panic!("{e}: {value:?}"));
    let to_item = |entry| match entry {
        ListEntry::Item(item) => item,
        ListEntry::InnerList(list) => panic!("{list:?}"),
    };
    list.into_iter().map(to_item).collect()
}

fn read_name(item: &Item) -> String {
    let BareItem::String(name) = &item.bare_item else { panic!("{item:?}") };
    percent_decode_str(name.as_str()).decode_utf8().unwrap().into_owned()
}

fn read_numbers(item: &Item, names: [&str; 2]) -> [i64; 2] {
    assert_eq!(item.params.keys().map(|key| key.as_str()).collect::<Vec<_>>(), names, "{item:?}");
    let mut values = item.params.values();
    names.map(|_| match values.next() {
        Some(BareItem::Integer(number)) => i64::from(*number),
        other => panic!("{other:?}"),
    })
}
