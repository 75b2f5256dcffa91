//! Tests window leases: where a window is counted, and what a lease tells of it.

use super::super::GroupChange;
use super::*;

const MINUTE: i64 = 60_000;

fn away(home: u8) -> Arc<Away> {
    Arc::new(Away { home: RegionIndex(home), lease: "a".into() })
}

/// Returns the moves of a counter from the second region to this one, and then to the third.
fn moves() -> Arc<Moves> {
    let home = |first_window, away| WindowHome { first_window, away };
    let homes = vec![home(0, Some(away(1))), home(10, None), home(20, Some(away(2)))];
    Arc::new(Moves { homes, begun: "b".into() })
}

#[test]
fn side_has_the_bounds_and_the_home_of_its_windows() {
    let moved = |first_window, before, after| Some(Moved { first_window, before, after });
    let [second, third] = [1, 2].map(|home| Some(RegionIndex(home)));
    for (number, bounds, home, begun, start) in [
        (0, (0, 9), second, None, None),
        (9, (0, 9), second, None, None),
        (10, (10, 19), None, Some("b"), moved(10, second, None)),
        (19, (10, 19), None, Some("b"), moved(10, second, None)),
        (20, (20, WINDOW_NUMBER_MAX), third, Some("b"), moved(20, None, third)),
    ] {
        let side = Side::of(moves(), number);

        assert_eq!(side.bounds(), bounds, "window {number}");
        assert_eq!(side.away().map(|away| away.home), home, "window {number}");
        assert_eq!((side.begun(), side.start()), (begun, start), "window {number}");
    }
}

#[test]
fn window_is_on_another_side_when_a_move_lies_between() {
    let side = Side::of(moves(), 10);

    let others: Vec<_> = [9, 10, 19, 20].map(|number| side.is_other(number)).into();

    assert_eq!(others, [true, false, false, true]);
    assert_eq!(side.other(20), Side::of(moves(), 20));
}

fn lease(state: WindowLeaseState, count: i64, units: i64) -> WindowLease {
    let (spent_units, since_ms) = (100, 500);
    let window_number = 3;
    WindowLease { state, units, count, window_number, granted_units: 0, spent_units, since_ms }
}

#[test]
fn demand_is_measured_over_a_quarter_of_a_second_at_least() {
    let mut lease = lease(WindowLeaseState::Sufficient, 0, 0);
    assert_eq!(lease.demand_of(3_000), 600);

    lease.since_ms = 10;
    assert_eq!(lease.demand_of(3_000), 1_200);
}

#[test]
fn window_count_of_a_lease_agrees_with_its_state() {
    use WindowLeaseState::{Denied, Insufficient, Scarce, Sufficient};
    let window = Window::new("w", 10, MINUTE, 3);
    for (state, count, units, expected) in [
        (Sufficient, 5, 2, 3),
        (Sufficient, 1, 5, 0),
        (Sufficient, 30, 2, 7),
        // Its home may have more.
        (Insufficient, 5, 0, 5),
        (Insufficient, 12, 0, 7),
        (Scarce, 10, 2, 8),
        (Denied, 12, 0, 12),
    ] {
        let counted = lease(state, count, units).window_count(&window, Timestamp(9 * MINUTE));

        assert_eq!(counted, WindowCount { effective_count: expected, window_number: 3 });
        let is_rejected = matches!(state, Scarce | Denied);
        assert_eq!(counted.is_within_limit(&window), !is_rejected, "{state:?}");
        assert!(lease(state, count, units).rejecting_count(&window) > 7, "{state:?}");
    }
}

#[test]
fn window_count_without_a_lease_is_of_the_current_window() {
    let none = WindowLease { window_number: 0, ..lease(WindowLeaseState::Insufficient, 0, 0) };
    for cost in [10, 11, 12] {
        let window = Window::new("w", 10, MINUTE, cost);

        let counted = none.window_count(&window, Timestamp(9 * MINUTE + 1));

        assert_eq!(counted, WindowCount { effective_count: 0, window_number: 9 });
        assert_eq!(counted.is_within_limit(&window), cost == 10);
    }
}

/// Returns the reply of a home with this grant.
fn home_reply(effective_count: i64, granted: Granted) -> ConsumeReply {
    let regional = RegionalReply { granted: Some(granted), ..RegionalReply::default() };
    ConsumeReply {
        is_admitted: granted.units > 0,
        windows: vec![WindowCount { effective_count, window_number: 9 }],
        lease: None,
        group_change: GroupChange::None,
        regional: Some(Box::new(regional)),
    }
}

#[test]
fn grant_says_until_when_its_home_has_no_more() {
    let asked = RegionalReply { redis_time: Timestamp(50_000), ..RegionalReply::default() };
    for (effective_count, units, retry_ms, denied_until) in [
        // A fiftieth of the limit is left, and less.
        (970, 10, 0, 0),
        (971, 10, 0, 50_000),
        (995, 0, 5, 50_200),
        (995, 0, 700, 50_700),
        (995, 0, 7_000, 51_000),
    ] {
        let granted = Granted { units, left_ms: 400, retry_ms, generation: 3 };
        let reply = home_reply(effective_count, granted);
        let terms = GrantTerms { waiting: 7, least: 7, parts: 6 };
        let grant = Grant::from_reply("a".into(), 1_000, terms, &asked, &reply, (200, 1_000));

        let grant = grant.expect("a grant");
        assert_eq!(grant.denied_until, Timestamp(denied_until), "{effective_count}");
        assert_eq!((grant.units, grant.count), (units, effective_count + units));
        assert_eq!((grant.ends_at, grant.denied_cost), (Timestamp(50_400), 7));
    }
}

#[test]
fn reserve_that_was_not_granted_is_a_denial_only_if_nearly_nothing_is_left() {
    let asked = RegionalReply { redis_time: Timestamp(50_000), ..RegionalReply::default() };
    for (limit, effective_count, waiting, is_denied) in [
        (5, 1, 0, false),
        (5, 4, 0, false),
        (5, 5, 0, true),
        (5, 4, 1, true),
        (200, 196, 0, false),
        (200, 197, 0, true),
    ] {
        let granted = Granted { units: 0, left_ms: 400, retry_ms: 0, generation: 3 };
        let reply = home_reply(effective_count, granted);
        let terms = GrantTerms { waiting, least: 1, parts: 6 };

        let grant = Grant::from_reply("a".into(), limit, terms, &asked, &reply, (200, 1_000));

        let grant = grant.expect("a grant");
        let expected = if is_denied { (Timestamp(50_200), 1) } else { (Timestamp(0), 0) };
        let denied = (grant.denied_until, grant.denied_cost);
        assert_eq!(denied, expected, "{effective_count} of {limit}, {waiting} wait");
    }
}

#[test]
fn reserve_that_was_granted_has_the_cost_that_is_not_denied() {
    let asked = RegionalReply { redis_time: Timestamp(50_000), ..RegionalReply::default() };
    let granted = Granted { units: 10, left_ms: 400, retry_ms: 0, generation: 3 };
    let (reply, terms) = (home_reply(900, granted), GrantTerms { waiting: 0, least: 7, parts: 6 });

    let grant = Grant::from_reply("a".into(), 1_000, terms, &asked, &reply, (200, 1_000));

    let grant = grant.expect("a grant");
    assert_eq!((grant.denied_until, grant.denied_cost), (Timestamp(0), 7));
}
