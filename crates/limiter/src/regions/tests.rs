//! Tests what is asked of other regions and when, without a Redis.

use foundation::clock::{Monotonic, Timestamp};
use futures_util::FutureExt as _;

use super::super::{LeaseSpend, Placement, RegionIndex, TopUp, WindowCount};
use super::links::tests::{ScriptedLinks, home_reply, lease, lease_reply};
use super::questions::Running;
use super::*;

mod admitted;
mod moves;
mod top_ups;

const MINUTE: i64 = 60_000;
/// The window of the scripted replies.
const BEFORE: i64 = 9;

fn away(home: u8) -> Arc<Away> {
    Arc::new(Away { home: RegionIndex(home), lease: "a".into() })
}

/// Returns a window that is counted in this region, or here.
fn window_of(home: Option<u8>, limit: i64, duration_ms: i64, cost: i64) -> Window {
    let placement = Placement { away: home.map(away), moves: None };
    Window::new("w", limit, duration_ms, cost).placed(&placement, || Timestamp(0))
}

fn window(limit: i64, cost: i64) -> Window {
    window_of(Some(1), limit, MINUTE, cost)
}

fn questions() -> Arc<Questions> {
    Arc::new(Questions::new(3))
}

/// Consumes. No call of the links waits.
fn consume_now(
    links: &ScriptedLinks,
    request: &ConsumeRequest,
) -> std::result::Result<ConsumeReply, Arc<Error>> {
    consume(links, &questions(), request).now_or_never().expect("an answer")
}

/// Asks for a grant, or joins the question under way.
fn begin(
    links: &ScriptedLinks,
    questions: &Arc<Questions>,
    window: &Window,
    waiting: i64,
) -> Option<Running> {
    let lease = lease(WindowLeaseState::Insufficient, 0);
    let away = window.away().expect("another region");
    let regional = &RegionalReply::default();
    questions.begin(links, Need { index: 0, window, away, lease: &lease, regional, waiting })
}

fn finish(running: Option<Running>) -> std::result::Result<Asked, Arc<Error>> {
    running.expect("a question").now_or_never().expect("an answer")
}

fn insufficient() -> ConsumeReply {
    lease_reply(lease(WindowLeaseState::Insufficient, 3))
}

fn sufficient() -> ConsumeReply {
    lease_reply(lease(WindowLeaseState::Sufficient, 100))
}

const ASK: &str = "ask 1: 20 for 2, at least 2, in 6 parts";
const ADD: &str = "add 20 to a, denied until 0";

#[test]
fn request_is_decided_again_when_what_it_lacked_was_granted() {
    let links = ScriptedLinks::new([insufficient(), sufficient()], [home_reply(20, 0)]);
    let top_up = TopUp {
        redis_generation: 7,
        creates_lease: true,
        granted_before: 0,
        top_up: 9,
        account_balance: 0,
        refill_at: Timestamp(1),
    };
    let spend = LeaseSpend { lease: "p".into(), cost: 1, top_up: Some(top_up) };
    let request = ConsumeRequest::with_spend(vec![window(2_000, 5)], spend);

    let reply = consume_now(&links, &request).expect("a reply");

    assert!(reply.is_admitted);
    let expected =
        ["consume 1 with a top-up", "spawn", ASK, ADD, "consume 1", "decided after waiting"];
    assert_eq!(links.take_calls(""), expected);
}

#[test]
fn request_is_decided_at_once_when_its_lease_suffices() {
    let links = ScriptedLinks::new([sufficient()], []);
    let request = ConsumeRequest::of_windows(vec![window(2_000, 5)]);

    assert!(consume_now(&links, &request).expect("a reply").is_admitted);

    assert_eq!(links.take_calls(""), ["consume 1", "decided at once"]);
}

#[test]
fn home_is_asked_without_waiting_when_it_has_nearly_nothing() {
    let scarce = lease_reply(lease(WindowLeaseState::Scarce, 3));
    let links = ScriptedLinks::new([scarce], [home_reply(20, 0)]);
    let request = ConsumeRequest::of_windows(vec![window(2_000, 5)]);

    assert!(!consume_now(&links, &request).expect("a reply").is_admitted);

    assert_eq!(links.take_calls(""), ["consume 1", "spawn", "decided at once"]);
    let task = links.script().tasks.pop().expect("a task");
    assert!(task.now_or_never().is_some());
    assert_eq!(links.take_calls(""), [ASK, ADD]);
}

#[test]
fn request_is_rejected_when_others_spend_what_it_asked_for() {
    let links = ScriptedLinks::new([insufficient()], [home_reply(20, 0)]);
    links.script().call_ms = 50;
    let request = ConsumeRequest::of_windows(vec![window(2_000, 5)]);

    let reply = consume_now(&links, &request).expect("a reply");

    assert!(!reply.is_admitted && !reply.windows[0].is_within_limit(&request.windows[0]));
    let calls = links.take_calls("");
    let count = |prefix: &str| calls.iter().filter(|call| call.starts_with(prefix)).count();
    assert_eq!((count("consume"), count("ask")), (ROUNDS_MAX + 1, ROUNDS_MAX));
}

#[test]
fn request_is_not_sent_more_than_three_seconds_after_its_arrival() {
    for (call_ms, is_sent) in [(1_500, true), (1_501, false)] {
        let links = ScriptedLinks::new([insufficient(), sufficient()], [home_reply(20, 0)]);
        links.script().call_ms = call_ms;
        let request = ConsumeRequest::of_windows(vec![window(2_000, 5)]);

        let result = consume_now(&links, &request);

        assert_eq!(result.is_ok(), is_sent, "{call_ms} ms");
        assert_eq!(links.take_calls("consume").len(), 1 + usize::from(is_sent));
    }
}

#[test]
fn question_is_not_sent_more_than_three_seconds_after_it_began() {
    let links = ScriptedLinks::new([], [home_reply(20, 0)]);
    let (questions, window) = (questions(), window(2_000, 5));
    for (ms, is_sent) in [(3_000, true), (3_001, false), (0, true)] {
        let running = begin(&links, &questions, &window, 2);
        links.script().now_ms += ms;

        let result = finish(running);

        match result {
            Ok(asked) => assert!(is_sent && asked == Asked::Answered(GroupChange::None), "{ms} ms"),
            Err(e) => assert!(!is_sent && matches!(*e, Error::HomeMoving), "{ms} ms"),
        }
        assert_eq!(links.take_calls("ask").len(), usize::from(is_sent));
    }
}

/// Returns the reply of a home with a change of the group.
fn group_reply(units: i64, group_change: GroupChange) -> ConsumeReply {
    ConsumeReply { group_change, ..home_reply(units, 0) }
}

#[test]
fn reply_tells_how_homes_have_changed_the_group_of_a_window() {
    use GroupChange::{Full, Grown};
    let request = ConsumeRequest::of_windows(vec![window(2_000, 5)]);
    for (units, change, calls) in [
        (20, Grown, vec!["consume 1", "spawn", ASK, ADD, "consume 1", "decided after waiting"]),
        (0, Full, vec!["consume 1", "spawn", ASK, "decided after waiting"]),
    ] {
        let replies = [insufficient(), sufficient()];
        let links = ScriptedLinks::new(replies, [group_reply(units, change)]);

        let reply = consume_now(&links, &request).expect("a reply");

        assert_eq!((reply.is_admitted, reply.group_change), (units > 0, change));
        assert_eq!(reply.windows[0].is_within_limit(&request.windows[0]), units > 0);
        assert_eq!(links.take_calls(""), calls);
    }
}

#[test]
fn callers_share_a_question_and_the_next_one_covers_those_that_joined() {
    let links = ScriptedLinks::new([], [home_reply(20, 0)]);
    let (questions, window) = (questions(), window(2_000, 5));
    let first = begin(&links, &questions, &window, 1);
    let joined = [2, 3].map(|waiting| begin(&links, &questions, &window, waiting));

    for running in [first].into_iter().chain(joined) {
        assert_eq!(finish(running).expect("an answer"), Asked::Answered(GroupChange::None));
    }
    for _ in 0..2 {
        finish(begin(&links, &questions, &window, 1)).expect("an answer");
    }

    let ask = |waiting: i64| format!("ask 1: 20 for {waiting}, at least 1, in 6 parts");
    assert_eq!(links.take_calls("ask"), [ask(1), ask(5), ask(1)]);
}

#[test]
fn home_that_granted_nothing_is_not_asked_ahead_of_need_for_a_second() {
    let links = ScriptedLinks::new([], [home_reply(0, 0)]);
    let (questions, window, peek) = (questions(), window(2_000, 5), window(2_000, 0));
    // Asks ahead of need, or for callers that lack this much, or for a peek.
    let asks = |now_ms: u64, window: &Window, waiting: i64| {
        links.script().now_ms = now_ms;
        let running = begin(&links, &questions, window, waiting)?;
        finish(Some(running)).expect("an answer");
        links.take_calls("ask").pop()
    };
    let ahead = Some("ask 1: 20 for 0, at least 1, in 6 parts".to_owned());
    let waiting = Some(ASK.to_owned());
    let peeked = Some("ask 1: 0 for 0, at least 0, in 6 parts".to_owned());

    assert_eq!(asks(5_000, &window, 0), ahead);
    assert_eq!(asks(5_999, &window, 0), None);
    assert_eq!(asks(6_000, &window, 0), ahead);
    assert_eq!(asks(6_100, &window, 2), waiting, "a caller waits");
    assert_eq!(asks(6_200, &peek, 0), peeked);
    assert_eq!(asks(6_300, &window, 0), None);
    *links.script().home_replies.front_mut().expect("a reply") = home_reply(20, 0);
    assert_eq!(asks(6_400, &window, 2), waiting);
    assert_eq!(asks(6_400, &window, 0), ahead, "it has more");
}

#[test]
fn peek_does_not_keep_a_home_from_being_asked_ahead_of_need() {
    let (links, questions) = (ScriptedLinks::new([], [home_reply(0, 0)]), questions());
    finish(begin(&links, &questions, &window(2_000, 0), 0)).expect("an answer");

    assert!(begin(&links, &questions, &window(2_000, 5), 0).is_some());
}

#[test]
fn denial_ends_when_its_home_may_have_units() {
    for (duration_ms, retry_ms, denied_ms) in
        [(5_000, 0, 100), (MINUTE, 0, 200), (MINUTE, 700, 700), (MINUTE, 7_000, 1_000)]
    {
        let links = ScriptedLinks::new([], [home_reply(0, retry_ms)]);
        let window = window_of(Some(1), 2_000, duration_ms, 5);

        finish(begin(&links, &questions(), &window, 2)).expect("an answer");

        let added = format!("add 0 to a, denied until {denied_ms}");
        assert_eq!(links.take_calls("add"), [added]);
    }
}

#[test]
fn only_what_may_be_granted_and_admitted_is_missing() {
    use WindowLeaseState::{Denied, Insufficient, Scarce, Sufficient};
    for (limit, cost, state, units, expected) in [
        (10, 5, Sufficient, 5, None),
        (10, 5, Insufficient, 3, Some(2)),
        (10, 10, Insufficient, 3, Some(7)),
        (10, 11, Insufficient, 3, None),
        (10, 5, Scarce, 3, Some(2)),
        (10, 5, Denied, 3, None),
        (10, 0, Insufficient, 0, Some(0)),
        (0, 0, Insufficient, 0, None),
    ] {
        let request = ConsumeRequest::of_windows(vec![window(limit, cost)]);
        let reply = lease_reply(lease(state, units));
        let regional = reply.regional.as_deref().expect("another region");

        let missing = list_missing(&request, &reply, regional);

        let missing: Vec<_> = missing.iter().map(|need| need.waiting).collect();
        assert_eq!(missing, expected.as_slice(), "{cost} of {limit}, {units} {state:?}");
    }
}

#[test]
fn nothing_is_missing_when_a_window_here_rejects_the_request() {
    let windows = vec![window_of(None, 10, MINUTE, 1), window(10, 5)];
    let request = ConsumeRequest::of_windows(windows);
    for (effective_count, missing) in [(9, 1), (10, 0)] {
        let mut reply = insufficient();
        let here = WindowCount { effective_count, window_number: BEFORE };
        reply.windows.insert(0, here);
        let regional = reply.regional.as_deref().expect("another region");

        let listed = list_missing(&request, &reply, regional);

        assert_eq!(listed.len(), missing);
        assert!(listed.iter().all(|need| need.index == 1));
    }
}

#[test]
fn home_is_asked_ahead_of_need_when_a_lease_is_nearly_spent() {
    // Units before the request, those of the last grant, those spent in the half second since.
    for (cost, units, granted_units, spent_units, is_asked) in [
        (5, 105, 400, 0, false),
        (5, 104, 400, 0, true),
        (5, 305, 0, 500, false),
        (5, 304, 0, 500, true),
        (0, 0, 400, 500, false),
    ] {
        let known = lease(WindowLeaseState::Sufficient, units);
        let known = WindowLease { granted_units, spent_units, since_ms: 500, ..known };
        let links = ScriptedLinks::new([lease_reply(known)], [home_reply(20, 0)]);
        let request = ConsumeRequest::of_windows(vec![window(2_000, cost)]);

        consume_now(&links, &request).expect("a reply");

        assert_eq!(links.take_calls("spawn").len(), usize::from(is_asked), "{units} units");
    }
}

#[test]
fn home_is_asked_ahead_of_need_when_a_count_that_is_read_is_old() {
    for (since_ms, is_asked) in [(500, false), (501, true)] {
        let known = WindowLease { since_ms, ..lease(WindowLeaseState::Sufficient, 0) };
        let links = ScriptedLinks::new([lease_reply(known)], [home_reply(0, 0)]);
        let request = ConsumeRequest::of_windows(vec![window(2_000, 0)]);

        consume_now(&links, &request).expect("a reply");

        let tasks = std::mem::take(&mut links.script().tasks);
        assert_eq!(tasks.len(), usize::from(is_asked), "{since_ms} ms");
        for task in tasks {
            task.now_or_never().expect("an answer");
        }
        assert_eq!(links.take_calls("ask 1: 0 for 0, at least 0").len(), usize::from(is_asked));
    }
}

#[test]
fn units_are_given_back_to_the_home_that_was_asked_last() {
    let links = ScriptedLinks::new([], [home_reply(20, 0)]);
    let questions = questions();
    let running = begin(&links, &questions, &window(2_000, 5), 2);
    drop(begin(&links, &questions, &window_of(Some(2), 3_000, MINUTE, 5), 2));
    let give_back = |had_units, units| {
        links.script().taken = TakenBack { had_units, units, ..TakenBack::default() };
        let giving = give_back_rests(&links, &questions);
        giving.now_or_never().expect("an answer").expect("a reply");
        (links.take_calls("give"), questions.by_lease.lock().len())
    };
    let none = Vec::<String>::new();

    assert_eq!(give_back(false, 0), (none.clone(), 1), "a question is under way");
    finish(running).expect("an answer");
    assert_eq!(give_back(true, 0), (none.clone(), 1));
    assert_eq!(give_back(true, 8), (vec!["give 8 of 3000 back to 2".to_owned()], 1));
    assert_eq!(give_back(false, 0), (none, 0), "its lease is empty");
}

#[test]
fn lease_without_units_is_forgotten_when_its_home_may_be_asked_again() {
    let links = ScriptedLinks::new([], [home_reply(0, 0)]);
    let questions = questions();
    finish(begin(&links, &questions, &window(2_000, 5), 2)).expect("an answer");

    for (now_ms, known) in [(999, 1), (1_000, 0)] {
        links.script().now_ms = now_ms;
        let giving = give_back_rests(&links, &questions);
        giving.now_or_never().expect("an answer").expect("a reply");

        assert_eq!(questions.by_lease.lock().len(), known, "{now_ms} ms");
    }
}

#[test]
fn lease_is_not_forgotten_when_its_home_was_asked_since_it_was_read() {
    let links = ScriptedLinks::new([], [home_reply(20, 0)]);
    let questions = questions();
    for now_ms in [0, 1] {
        links.script().now_ms = now_ms;
        finish(begin(&links, &questions, &window(2_000, 5), 2)).expect("an answer");
    }

    questions.forget("a", Monotonic::from_ms(0), Monotonic::from_ms(2));
    assert_eq!(questions.by_lease.lock().len(), 1);
    questions.forget("a", Monotonic::from_ms(1), Monotonic::from_ms(2));
    assert_eq!(questions.by_lease.lock().len(), 0);
}
