//! Fuzzes the identifiers of rate-limit descriptors: each can be read back, so two descriptors never share a counter.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;

use crate::compose;

const PIECES: &[&str] =
    &["\n", "\n", "\t", "\t", "|", "=", "\\", "a", "b", "é", " ", "*", "\\|", "a=b"];

type Pair = (String, String);

/// An input is an entry in each line: its key, and after a tab its value.
#[test]
fn identifier_is_read_back() {
    bolero::check!(name = "descriptor").for_each(|bytes: &[u8]| {
        for text in [String::from_utf8_lossy(bytes).into_owned(), compose(bytes, PIECES).concat()] {
            let pairs: Vec<Pair> = text
                .split('\n')
                .map(|line| line.split_once('\t').unwrap_or((line, "")))
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect();

            let identifier = grpc::to_identifier(&to_descriptor(&pairs));

            assert_eq!(read_identifier(&identifier), pairs, "{identifier:?}");
        }
    });
}

fn to_descriptor(pairs: &[Pair]) -> RateLimitDescriptor {
    let entry = |(key, value): &Pair| Entry { key: key.clone(), value: value.clone() };
    RateLimitDescriptor {
        entries: pairs.iter().map(entry).collect(),
        ..RateLimitDescriptor::default()
    }
}

/// Reads `key=value|key=value`, in which a backslash is followed by a character that stands for itself.
fn read_identifier(identifier: &str) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let (mut key, mut text) = (None, String::new());
    let mut letters = identifier.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => text.push(letters.next().unwrap()),
            '=' => assert_eq!(key.replace(std::mem::take(&mut text)), None, "a second value"),
            '|' => pairs.push((key.take().unwrap(), std::mem::take(&mut text))),
            letter => text.push(letter),
        }
    }
    pairs.push((key.unwrap(), text));
    pairs
}
