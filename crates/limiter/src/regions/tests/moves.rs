//! Tests requests for a window whose home moves.

use super::super::super::{Moves, WindowHome};
use super::super::links::tests::{count_reply, misplaced_reply};
use super::*;

/// The first window that another home counts.
const AFTER: i64 = 10;
const ASK_OTHER: &str = "ask 2: 20 for 2, at least 2, in 6 parts";

/// Returns a request for the window of this number, whose home moves with [`AFTER`].
fn moving(number: i64, before: Option<u8>, after: Option<u8>) -> ConsumeRequest {
    let home = |first_window, home: Option<u8>| WindowHome { first_window, away: home.map(away) };
    let moves = Moves { homes: vec![home(0, before), home(AFTER, after)], begun: "b".into() };
    let placement = Placement { away: after.map(away), moves: Some(Arc::new(moves)) };
    let now = || Timestamp(number * MINUTE);
    ConsumeRequest::of_windows(vec![Window::new("w", 2_000, MINUTE, 5).placed(&placement, now)])
}

#[test]
fn window_is_counted_on_the_other_side_of_a_move_when_its_redis_says_so() {
    let links = ScriptedLinks::new([misplaced_reply(AFTER), sufficient()], []);

    let reply = consume_now(&links, &moving(BEFORE, None, Some(1)));

    assert!(reply.expect("a reply").is_admitted);
    assert_eq!(links.take_calls(""), ["consume here", "consume 1", "decided after waiting"]);
}

#[test]
fn question_is_for_the_other_side_of_a_move_when_the_home_says_so() {
    let replies = [insufficient(), insufficient(), sufficient()];
    let links = ScriptedLinks::new(replies, [misplaced_reply(AFTER), home_reply(20, 0)]);

    let reply = consume_now(&links, &moving(BEFORE, Some(1), Some(2)));

    assert!(reply.expect("a reply").is_admitted);
    let expected = [
        "consume 1",
        "spawn",
        ASK,
        "consume 2",
        "spawn",
        ASK_OTHER,
        ADD,
        "consume 2",
        "decided after waiting",
    ];
    assert_eq!(links.take_calls(""), expected);
}

#[test]
fn first_window_after_a_move_begins_with_the_count_of_the_last_one_before() {
    for (counts, closed, count) in [
        (vec![Some(42)], 1, 42),
        (vec![None, Some(42)], 2, 42),
        // It counts as used up.
        (vec![None, None], 2, 2_000),
    ] {
        let seeded = |region: &str| format!("seed 9 in {region} with {count}");
        let links = ScriptedLinks::new([misplaced_reply(AFTER), count_reply(true, AFTER)], []);
        links.script().counts = counts.clone().into();

        let reply = consume_now(&links, &moving(AFTER, Some(1), None));

        assert!(reply.expect("a reply").is_admitted);
        let calls = links.take_calls("");
        assert_eq!(calls[1..=closed], vec!["close 9 in 1"; closed]);
        assert_eq!(
            calls[closed + 1..],
            [seeded("here").as_str(), "consume here", "decided after waiting"]
        );

        let replies = [insufficient(), sufficient()];
        let links = ScriptedLinks::new(replies, [misplaced_reply(AFTER), home_reply(20, 0)]);
        links.script().counts = counts.into();
        consume_now(&links, &moving(AFTER, None, Some(2))).expect("a reply");
        let calls = links.take_calls("");
        assert_eq!(calls[2..4], [ASK_OTHER, "close 9 in here"]);
        assert_eq!(calls[closed + 3..closed + 6], [seeded("2").as_str(), ASK_OTHER, ADD]);
    }
}

#[test]
fn request_fails_when_no_region_counts_its_window() {
    let links = ScriptedLinks::new([misplaced_reply(AFTER)], []);
    links.script().call_ms = 50;
    links.script().counts = vec![Some(42); 100].into();

    let error = consume_now(&links, &moving(AFTER, Some(1), None)).expect_err("no count");

    assert!(matches!(*error, Error::HomeMoving));
    assert_eq!(links.take_calls("consume").len(), REDIRECTIONS_MAX + 1);
}

#[test]
fn request_is_rejected_when_each_home_refers_to_the_other() {
    let numbers = [AFTER, BEFORE, AFTER, BEFORE, AFTER, BEFORE, AFTER, BEFORE];
    let links = ScriptedLinks::new([insufficient()], numbers.map(misplaced_reply));
    links.script().call_ms = 50;

    let reply = consume_now(&links, &moving(BEFORE, Some(1), Some(2)));

    assert!(!reply.expect("a reply").is_admitted);
    assert_eq!(links.take_calls("ask").len(), REDIRECTIONS_MAX);
}
