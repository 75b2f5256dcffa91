//! Tests what is admitted without Redis, and how it is counted in Redis afterwards.

use super::super::super::{
    CounterGroup, GroupChange, Placement, RegionIndex, RegionalReply, WindowLeaseState,
};
use super::*;

const MINUTE: i64 = 60_000;
const NOW: Timestamp = Timestamp(100 * MINUTE);
const ALONE: ReplicaRank = ReplicaRank { rank: 0, replica_count: 1 };

fn no_regions(away: &Away, _: Charge) {
    panic!("a charge for {away:?}");
}

fn window(limit: i64, cost: i64) -> Window {
    Window::new("a", limit, MINUTE, cost)
}

fn consume(outage: &OutageWindows, limit: i64, cost: i64) -> bool {
    outage.consume(&[window(limit, cost)], ALONE, true, None, NOW, no_regions).0.is_admitted
}

fn reply(effective_count: i64, is_admitted: bool) -> ConsumeReply {
    ConsumeReply {
        is_admitted,
        windows: vec![WindowCount { effective_count, window_number: 100 }],
        lease: None,
        group_change: GroupChange::None,
        regional: None,
    }
}

fn consume_request(cost: i64) -> ConsumeRequest {
    ConsumeRequest::of_windows(vec![window(10, cost)])
}

fn drain_charges(outage: &OutageWindows) -> Vec<i64> {
    let charging = outage.try_start_charging().expect("no other task charges");
    charging.take_next(64).iter().map(|charge| charge.cost).collect()
}

#[test]
fn consume_admits_last_known_remaining_when_below_share() {
    let outage = OutageWindows::new(Counter::default());
    outage.record_reply(&consume_request(2), &reply(4, true));

    let admitted = (0..10).filter(|_| consume(&outage, 10, 1)).count();

    assert_eq!(admitted, 4);
    assert!(consume(&outage, 10, 0), "a peek succeeds");
    assert_eq!(drain_charges(&outage), [4]);
}

#[test]
fn shares_of_all_replicas_add_up_to_last_known_remaining() {
    let admitted: usize = (0..7)
        .map(|rank| {
            let outage = OutageWindows::new(Counter::default());
            outage.record_reply(&consume_request(0), &reply(5, true));
            let rank = ReplicaRank { rank, replica_count: 7 };
            let consume = |_: &i32| {
                outage.consume(&[window(10, 1)], rank, true, None, NOW, no_regions).0.is_admitted
            };
            (0..10).filter(consume).count()
        })
        .sum();

    assert_eq!(admitted, 5);
}

#[test]
fn charge_is_added_once_when_redis_has_not_consumed() {
    let outage = OutageWindows::new(Counter::default());
    let settle = |executed: Option<ConsumeReply>, admitted: bool| {
        let (unresolved, mut decided) = UnresolvedRequest::new();
        outage.consume(&[window(10, 3)], ALONE, admitted, Some(unresolved), NOW, no_regions);
        let decision = decided.try_recv().expect("a decision");
        outage.reconcile(&consume_request(3), executed.as_ref(), decision);
        drain_charges(&outage)
    };

    assert_eq!(settle(Some(reply(0, true)), true), [0; 0], "it is consumed");
    assert_eq!(settle(Some(reply(9, false)), true), [3], "Redis denied it");
    assert_eq!(settle(None, true), [3], "Redis has not executed it");
    assert_eq!(settle(Some(reply(0, true)), false), [-3], "it was denied here");
    assert_eq!(settle(None, false), [0; 0]);
}

#[test]
fn charges_count_against_share_until_redis_has_consumed_them() {
    let outage = OutageWindows::new(Counter::default());
    assert!(consume(&outage, 10, 10) && !consume(&outage, 10, 1));
    let charging = outage.try_start_charging().expect("no other task charges");
    assert!(outage.try_start_charging().is_none());
    let charges = charging.take_next(64);

    outage.record_charged(&charges, &[WindowCount { effective_count: 4, window_number: 100 }]);

    let admitted = (0..10).filter(|_| consume(&outage, 10, 1)).count();
    assert_eq!(admitted, 6);
}

#[test]
fn charges_are_dropped_and_counted_when_windows_exceed_maximum() {
    let outage = OutageWindows::new(Counter::default());
    let charge = |n: usize| Charge {
        key: n.to_string().into(),
        window_number: 1,
        duration_ms: MINUTE,
        cost: 2,
    };

    outage.add_charges((0..WINDOWS_MAX + 3).map(charge).collect());
    outage.add_charges(vec![charge(0)]);

    assert_eq!(outage.dropped_costs.get(), 6);
    assert_eq!(outage.pending_charges.lock().len(), WINDOWS_MAX);
}

#[test]
fn consume_admits_the_rest_of_a_window_after_a_denial() {
    let outage = OutageWindows::new(Counter::default());
    outage.record_reply(&consume_request(8), &reply(4, false));

    let admitted = (0..10).filter(|_| consume(&outage, 10, 1)).count();

    assert_eq!(admitted, 6, "a denied request consumes nothing");
}

/// Returns a window that is counted in another region.
fn window_away(cost: i64) -> Window {
    let away = Arc::new(Away { home: RegionIndex(1), lease: "lease".into() });
    window(10, cost).placed(&Placement { away: Some(away), moves: None }, || NOW)
}

/// Returns the reply to a request for that window, whose home had this count.
fn reply_away(count: i64, window_number: i64) -> ConsumeReply {
    let lease = WindowLease {
        state: WindowLeaseState::Sufficient,
        units: 5,
        count,
        window_number,
        granted_units: 5,
        spent_units: 0,
        since_ms: 0,
    };
    let regional = RegionalReply { leases: vec![lease], ..RegionalReply::default() };
    ConsumeReply { regional: Some(Box::new(regional)), ..reply(count - 5, true) }
}

#[test]
fn consume_admits_what_remained_at_the_home_of_a_window() {
    let outage = OutageWindows::new(Counter::default());
    let request = ConsumeRequest::of_windows(vec![window_away(1)]);
    outage.record_reply(&request, &reply_away(8, 100));
    // It tells of no window.
    outage.record_reply(&request, &reply_away(0, 0));
    let mut charged = Vec::new();

    let admitted = (0..10).filter(|_| {
        let charge_away = |away: &Away, charge: Charge| charged.push((away.home, charge.cost));
        outage.consume(&[window_away(1)], ALONE, true, None, NOW, charge_away).0.is_admitted
    });

    assert_eq!(admitted.count(), 2);
    assert_eq!(charged, [(RegionIndex(1), 1), (RegionIndex(1), 1)]);
    assert!(!outage.is_charge_due(), "it is counted elsewhere");
}

#[test]
fn charges_of_another_region_count_against_share_until_its_home_has_consumed_them() {
    let [outage, home] = [(); 2].map(|()| OutageWindows::new(Counter::default()));
    outage.share_usage(&home);
    let consume = || {
        let charge_away = |_: &Away, charge: Charge| home.add_charges(vec![charge]);
        outage.consume(&[window_away(1)], ALONE, true, None, NOW, charge_away).0.is_admitted
    };
    assert_eq!((0..20).filter(|_| consume()).count(), 10);
    let charges = home.try_start_charging().expect("no other task charges").take_next(64);

    home.record_charged(&charges, &[WindowCount { effective_count: 4, window_number: 100 }]);
    // The lease tells what the home had counted before.
    outage.record_reply(&ConsumeRequest::of_windows(vec![window_away(1)]), &reply_away(3, 100));

    assert_eq!((0..20).filter(|_| consume()).count(), 6);
}

#[test]
fn charge_is_due_until_it_is_taken() {
    let outage = OutageWindows::new(Counter::default());
    assert!(consume(&outage, 10, 0));
    assert!(!outage.is_charge_due(), "a peek costs nothing");

    assert!(consume(&outage, 10, 3));
    assert!(outage.is_charge_due());
    assert_eq!(drain_charges(&outage), [3]);
    assert!(!outage.is_charge_due());
}

#[test]
fn charge_remains_due_when_more_windows_wait_than_are_taken() {
    let outage = OutageWindows::new(Counter::default());
    let charge =
        |window_number| Charge { key: "a".into(), window_number, duration_ms: MINUTE, cost: 2 };
    outage.add_charges((1..=3).map(charge).collect());
    let charging = outage.try_start_charging().expect("no other task charges");

    assert_eq!(charging.take_next(2).len(), 2);
    assert!(outage.is_charge_due());
    assert_eq!(charging.take_next(2).len(), 1);
    assert!(!outage.is_charge_due() && charging.take_next(2).is_empty());
}

#[test]
fn cost_is_counted_as_dropped_when_its_charge_is_not_sent_again() {
    let outage = OutageWindows::new(Counter::default());
    let charge = |cost| Charge { key: "a".into(), window_number: 1, duration_ms: MINUTE, cost };

    outage.record_dropped_charges(&[charge(2), charge(-5), charge(3)]);

    assert_eq!(outage.dropped_costs.get(), 5, "a refund admits nothing");
}

#[test]
fn group_has_space_when_its_expired_counters_were_removed() {
    let outage = OutageWindows::new(Counter::default());
    let group = CounterGroup { name: "group".into(), workspace: "ws_1".into(), live_max: 1 };
    let group = Arc::new(group);
    // These windows ended long before the machine's time.
    let consume = |name: &str| {
        let window = Window::new(name, 10, MINUTE, 1).with_group(group.clone());
        outage.consume(&[window], ALONE, true, None, NOW, no_regions).0.is_admitted
    };
    assert!(consume("a") && !consume("b"));

    outage.remove_expired_groups();

    assert!(consume("b"));
}
