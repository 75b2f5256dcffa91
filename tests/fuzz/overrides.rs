//! Which override applies to an identifier, against the rule read off a table.

use std::cmp::Reverse;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use foundation::clock::Timestamp;
use foundation::id::OverrideId;
use foundation::model::{Override, Overrides, STARS_MAX};

use crate::spelled;

const NOW: Timestamp = Timestamp(1000);

const PIECES: &[&str] = &["a", "b", "*", "a", "é", "**", "ab", "\n", "*", "\u{1f511}"];

/// An input is an identifier and, in the lines below it, the overrides.
#[test]
fn the_exact_text_applies_then_the_longest_pattern_that_matches_then_the_older() {
    bolero::check!(name = "overrides").for_each(|bytes: &[u8]| {
        for text in [String::from_utf8_lossy(bytes).into_owned(), spelled(bytes, PIECES).concat()] {
            let mut lines = text.lines().map(|line| line.chars().take(100).collect::<String>());
            let identifier = lines.next().unwrap_or_default();
            let mut known: Vec<Override> = Vec::new();
            for line in lines.take(20) {
                if known.iter().all(|known| known.identifier != line) {
                    known.push(made(known.len(), line));
                }
            }

            let right = applying(&known, &identifier).map(|known| known.id.clone());

            let told = Overrides::new(known);
            let told = told.find_active(&identifier, NOW).map(|known| known.id.clone());
            assert_eq!(told, right, "{text:?}");
        }
    });
}

/// As many as a namespace may have. Each fails at its last letter only, wherever its stars are put.
#[test]
fn patterns_made_to_be_slow_are_passed_over_at_once() {
    let pattern = |at: usize| format!("{}{}b*", "*a".repeat(STARS_MAX - 1), "a".repeat(at % 400));
    let known = Overrides::new((0..10_000).map(|at| made(at, pattern(at))).collect());
    let identifier = "a".repeat(512);

    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(known.find_active(&identifier, NOW).is_some()));

    assert_eq!(told.recv_timeout(Duration::from_secs(5)), Ok(false));
}

/// Two of them are made at one moment; one expires now, and one has.
fn made(at: usize, identifier: String) -> Override {
    Override {
        is_async: false,
        id: OverrideId::from(format!("rlor_{:05}", 99_999 - at)),
        identifier,
        limit: 1,
        duration_ms: 1000,
        expires_at: [None, Some(NOW), None, Some(NOW.plus_ms(-1))][at % 4],
        created_at: Timestamp(i64::try_from(at / 2).unwrap()),
        updated_at: None,
    }
}

fn applying<'a>(known: &'a [Override], identifier: &str) -> Option<&'a Override> {
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

/// Whether a pattern matches, by what each of its beginnings matches of the text: the row holds, for every
/// beginning of the text, whether the pattern up to here is the whole of it.
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
