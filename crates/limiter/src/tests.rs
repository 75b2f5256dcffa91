//! Tests windows, their statuses, requests, and the shares of replicas.

use super::*;

const MINUTE: i64 = 60_000;

fn count(effective_count: i64) -> WindowCount {
    WindowCount { effective_count, window_number: 1 }
}

fn away() -> Arc<Away> {
    Arc::new(Away { home: RegionIndex(1), lease: "a".into() })
}

/// Returns where a counter is counted that comes to this region with the window of number 10.
fn moving_here() -> Placement {
    let homes = vec![
        WindowHome { first_window: 0, away: Some(away()) },
        WindowHome { first_window: 10, away: None },
    ];
    Placement { away: None, moves: Some(Arc::new(Moves { homes, begun: "b".into() })) }
}

#[test]
fn cost_above_its_limit_is_rejected_when_both_are_clamped() {
    for (limit, cost, is_admitted) in [
        (10, 10, true),
        (10, 11, false),
        (EXACT_MAX, EXACT_MAX, true),
        (EXACT_MAX, EXACT_MAX + 1, false),
        (i64::MAX, i64::MAX, true),
        (i64::MAX - 1, i64::MAX, false),
    ] {
        let window = Window::new("a", limit, MINUTE, cost);

        assert_eq!(count(0).is_within_limit(&window), is_admitted, "{cost} of {limit}");
    }
}

#[test]
fn reply_has_the_amounts_and_the_end_of_each_window() {
    let windows = [Window::new("a", 10, MINUTE, 3), Window::new("b", 10, MINUTE, 3)];
    let mut reply = ConsumeReply {
        is_admitted: true,
        windows: vec![count(4), count(7)],
        lease: None,
        group_change: GroupChange::None,
        regional: None,
    };
    let reset_at = Timestamp(2 * MINUTE);
    let status =
        |used, remaining, is_exceeded| WindowStatus { used, remaining, reset_at, is_exceeded };

    assert_eq!(reply.window_statuses(&windows), [status(7, 3, false), status(10, 0, false)]);
    // One unit more, and the second window rejects the request. The first one keeps its units.
    (reply.is_admitted, reply.windows[1]) = (false, count(8));
    assert_eq!(reply.window_statuses(&windows), [status(4, 6, false), status(8, 0, true)]);
}

#[test]
fn status_without_a_count_follows_from_the_outage_policy() {
    let (window, now) = (Window::new("a", 10, MINUTE, 3), Timestamp(MINUTE + 1));
    let status = |used, remaining, is_exceeded| WindowStatus {
        used,
        remaining,
        reset_at: Timestamp(2 * MINUTE),
        is_exceeded,
    };

    assert_eq!(window.status_if_open(now), status(3, 7, false));
    assert_eq!(Window::new("a", 10, MINUTE, 11).status_if_open(now), status(11, 0, false));
    assert_eq!(window.status_if_closed(now), status(0, 0, true));
}

#[test]
fn limit_is_reduced_unless_the_request_is_a_peek() {
    for (cost, units, limit) in [(1, 4, 6), (1, 12, 0), (0, 4, 10)] {
        let reduced = Window::new("a", 10, MINUTE, cost).reduce_limit_by(units);

        assert_eq!(reduced, Window::new("a", limit, MINUTE, cost));
    }
}

#[test]
fn window_is_regional_while_it_is_away_and_while_its_home_moves() {
    let placed = |placement: &Placement, now_ms| {
        let window = Window::new("a", 10, MINUTE, 1).placed(placement, || Timestamp(now_ms));
        (window.is_regional(), window.is_away(), window.bounds())
    };
    let elsewhere = Placement { away: Some(away()), moves: None };
    let last = (1 << 53) - 1;

    assert_eq!(placed(&Placement::default(), 0), (false, false, None));
    assert_eq!(placed(&elsewhere, 0), (true, true, None));
    assert_eq!(placed(&moving_here(), 10 * MINUTE - 1), (true, true, Some((0, 9))));
    assert_eq!(placed(&moving_here(), 10 * MINUTE), (true, false, Some((10, last))));
    // The first window after the move, and a minute more.
    assert_eq!(placed(&moving_here(), 12 * MINUTE - 1), (true, false, Some((10, last))));
    assert_eq!(placed(&moving_here(), 12 * MINUTE), (false, false, None));
}

#[test]
fn request_tells_the_script_only_what_it_needs() {
    let window = Window::new("a", 10, MINUTE, 1);
    let elsewhere = Placement { away: Some(away()), moves: None };
    let flags = |placement: &Placement, now_ms| {
        let window = window.clone().placed(placement, || Timestamp(now_ms));
        let request = ConsumeRequest::of_windows(vec![window]);
        (request.uses_window_leases(), request.has_bounds())
    };
    let grant = Grant {
        lease: "a".into(),
        redis_generation: 1,
        home_generation: 1,
        window_number: 1,
        limit: 10,
        units: 1,
        count: 1,
        ends_at: Timestamp(1),
        denied_until: Timestamp(0),
        denied_cost: 0,
    };

    assert_eq!(flags(&Placement::default(), 0), (false, false));
    assert_eq!(flags(&elsewhere, 0), (true, false));
    // A lease knows no bounds: they are checked where the window is counted.
    assert_eq!(flags(&moving_here(), 9 * MINUTE), (true, false));
    assert_eq!(flags(&moving_here(), 10 * MINUTE), (false, true));
    let request = ConsumeRequest { grants: vec![grant], ..ConsumeRequest::default() };
    assert!(request.uses_window_leases());
}

#[test]
fn top_up_is_left_out_when_a_request_is_repeated() {
    let top_up = TopUp {
        redis_generation: 1,
        creates_lease: true,
        granted_before: 0,
        top_up: 5,
        account_balance: 0,
        refill_at: Timestamp(1),
    };
    let spend = LeaseSpend { lease: "p".into(), cost: 1, top_up: Some(top_up) };
    let request = ConsumeRequest::with_spend(vec![Window::new("a", 10, MINUTE, 1)], spend.clone());

    let repeated = request.without_top_up();

    assert!(request.has_top_up() && !repeated.has_top_up());
    let spend = LeaseSpend { top_up: None, ..spend };
    assert_eq!(repeated, ConsumeRequest { spend: Some(spend), ..request });
}

#[test]
fn shares_of_all_replicas_add_up_to_the_amount() {
    for replicas in [1, 2, 3, 7, 50] {
        for amount in [0, 1, 2, 6, 49, 50, 51, 1_000, EXACT_MAX] {
            for counter in ["a", "b", "kw:w:{key_1}:60000:requests"] {
                let share =
                    |rank| ReplicaRank { rank, replica_count: replicas }.share_of(amount, counter);
                let (least, most) = (share(0).min(share(1)), share(0).max(share(1)));
                assert!(most - least <= 1);
                assert_eq!((0..replicas).map(share).sum::<i64>(), amount);
            }
        }
    }
    assert_eq!(ReplicaRank { rank: 0, replica_count: 0 }.share_of(-3, "a"), 0);
}

#[test]
fn last_unit_goes_to_different_replicas_when_counters_differ() {
    let holder = |counter: &str| {
        (0..3).find(|rank| ReplicaRank { rank: *rank, replica_count: 3 }.share_of(1, counter) == 1)
    };
    let holders: std::collections::HashSet<_> =
        (0..20).map(|n| holder(&format!("counter {n}"))).collect();

    assert_eq!(holders.len(), 3);
}
