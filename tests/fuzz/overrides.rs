//! Fuzzes which override applies to an identifier, against a simple implementation with a table.

use std::cmp::Reverse;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use foundation::clock::Timestamp;
use foundation::id::OverrideId;
use foundation::model::{Override, Overrides, WILDCARDS_MAX};

use crate::compose;

const NOW: Timestamp = Timestamp(1000);

const PIECES: &[&str] = &["a", "b", "*", "a", "é", "**", "ab", "\n", "*", "\u{1f511}"];

/// An input is an identifier and, in the following lines, the overrides.
#[test]
fn override_is_selected_by_exact_text_then_longest_pattern_then_age() {
    bolero::check!(name = "overrides").for_each(|bytes: &[u8]| {
        for text in [String::from_utf8_lossy(bytes).into_owned(), compose(bytes, PIECES).concat()] {
            let mut lines = text.lines().map(|line| line.chars().take(100).collect::<String>());
            let identifier = lines.next().unwrap_or_default();
            let mut known: Vec<Override> = Vec::new();
            for line in lines.take(20) {
                if known.iter().all(|known| known.identifier != line) {
                    known.push(override_at(known.len(), line));
                }
            }

            let right = expected_override(&known, &identifier).map(|known| known.id.clone());

            let overrides = Overrides::new(known);
            let selected = overrides.find_active(&identifier, NOW).map(|known| known.id.clone());
            assert_eq!(selected, right, "{text:?}");
        }
    });
}

/// As many as a namespace may have. Each fails only at its last letter, wherever its stars are placed.
#[test]
fn slow_patterns_are_skipped_quickly() {
    let pattern =
        |at: usize| format!("{}{}b*", "*a".repeat(WILDCARDS_MAX - 1), "a".repeat(at % 400));
    let known = Overrides::new((0..10_000).map(|at| override_at(at, pattern(at))).collect());
    let identifier = "a".repeat(512);

    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(known.find_active(&identifier, NOW).is_some()));

    assert_eq!(receiver.recv_timeout(Duration::from_secs(5)), Ok(false));
}

/// Two overrides are created at each moment; one expires now, and one has expired.
fn override_at(at: usize, identifier: String) -> Override {
    Override {
        is_approximate: false,
        id: OverrideId::from(format!("rlor_{:05}", 99_999 - at)),
        identifier,
        limit: 1,
        duration_ms: 1000,
        expires_at: [None, Some(NOW), None, Some(NOW.plus_ms(-1))][at % 4],
        created_at: Timestamp(i64::try_from(at / 2).unwrap()),
        updated_at: None,
    }
}

fn expected_override<'a>(known: &'a [Override], identifier: &str) -> Option<&'a Override> {
    let live = || known.iter().filter(|known| known.expires_at.is_none_or(|last| NOW <= last));
    let is_pattern = |known: &&Override| known.identifier.contains('*');
    live().find(|known| known.identifier == identifier).or_else(|| {
        live().filter(is_pattern).filter(|known| matches(&known.identifier, identifier)).min_by_key(
            |known| {
                let literal = known.identifier.chars().filter(|c| *c != '*').count();
                (Reverse(literal), known.created_at, known.id.as_str())
            },
        )
    })
}

/// Whether a pattern matches, computed by prefixes: the row holds, for every prefix of the text, whether the pattern up
/// to here matches it completely.
fn matches(pattern: &str, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let mut row = vec![false; text.len() + 1];
    row[0] = true;
    for letter in pattern.chars() {
        let before = row;
        row = vec![letter == '*' && before[0]];
        for (at, c) in text.iter().enumerate() {
            row.push(match letter {
                '*' => before[at + 1] || row[at],
                letter => before[at] && letter == *c,
            });
        }
    }
    row[text.len()]
}
