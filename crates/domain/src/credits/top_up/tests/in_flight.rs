//! Tests top-ups while others are in flight.

use super::*;

#[test]
fn top_up_waits_when_top_ups_of_other_replicas_are_in_flight() {
    let before = account(900, vec![lease(1, 7, 100, 0)]);

    let (steps, result, after) = top_up(before, observation(1, 0, LeaseProblem::Insufficient), &[]);

    assert_eq!(steps, ["upsert 1", "balance 900"]);
    let TopUpResult::TopUpsInFlight(1, top_up) = result else { panic!("{result:?}") };
    assert_eq!((top_up.top_up, top_up.granted_before, total(&after)), (0, 100, 1_000));
}

#[test]
fn top_up_waits_only_for_top_ups_in_flight_whose_spend_would_make_room() {
    // A thousand credits are left, so 100 may be leased. Five are in flight, and five are missing.
    let result = |withheld| {
        let lost = Lease { withheld_at: Some(Timestamp(1)), ..lease(1, 6, withheld, 0) };
        let before = account(950 - withheld, vec![lost, lease(2, 7, 50, 0)]);
        top_up_for_cost(50, before, observation(2, 45, LeaseProblem::Insufficient))
    };

    assert!(matches!(result(50), TopUpResult::TopUpsInFlight(2, _)));
    assert!(matches!(result(51), TopUpResult::Withheld));
}

/// Tops up a lease that has spent 250 of the 500 credits that it was granted, for a request of this cost.
fn top_up_with_half_in_flight(
    (balance, cost): (i64, i64),
    observed: LeaseObservation,
) -> (TopUpResult, CreditAccount) {
    let replica = LeaseHolder { id: "rep_a", region: OwnRegion::default() };
    let before = account(balance, vec![lease(1, 7, 500, 250)]);
    let change = TopUpChange::new(before, observed, cost, replica, DATABASE_TIME);
    let (_, result, after) = run(change, &[]);
    assert_eq!(total(&after), balance + 250);
    (result, after)
}

#[test]
fn top_up_waits_for_credits_in_flight_when_the_balance_is_too_small_without_them() {
    let insufficient = observation(1, 0, LeaseProblem::Insufficient);
    let observed = LeaseObservation { spent: 250, ..insufficient };
    for (balance, cost, is_waiting) in [(0, 250, true), (0, 251, false), (1, 251, true)] {
        let (result, after) = top_up_with_half_in_flight((balance, cost), observed);

        let top_up = match result {
            TopUpResult::TopUpsInFlight(1, top_up) if is_waiting => top_up,
            TopUpResult::Lease(1, top_up) if !is_waiting => top_up,
            other => panic!("{cost} of {balance}: {other:?}"),
        };
        // The state before the top-up in flight: it is void if that top-up has arrived.
        assert_eq!((top_up.top_up, top_up.granted_before), (0, 250));
        assert_eq!(top_up.account_balance, balance + 250);
        assert_eq!(after.leases[0].topped_up_at, Timestamp(0), "the lease becomes idle");
    }
}

#[test]
fn top_up_does_not_wait_when_nothing_in_flight_is_known_or_needed() {
    let insufficient = |number, units| observation(number, units, LeaseProblem::Insufficient);

    // The replica does not know what the lease holds.
    let (result, _) = top_up_with_half_in_flight((0, 250), insufficient(0, 0));
    let TopUpResult::Lease(1, top_up) = result else { panic!("{result:?}") };
    assert_eq!((top_up.granted_before, top_up.account_balance), (250, 250));

    // The top-up has arrived, and is not enough.
    let observed = LeaseObservation { spent: 250, ..insufficient(1, 250) };
    let (result, after) = top_up_with_half_in_flight((0, 251), observed);
    let TopUpResult::Lease(1, top_up) = result else { panic!("{result:?}") };
    assert_eq!((top_up.top_up, top_up.granted_before, top_up.account_balance), (0, 500, 0));
    assert_eq!(after.leases[0].topped_up_at, DATABASE_TIME);
}

#[test]
fn credits_in_flight_do_not_count_when_the_balance_is_just_enough_without_them() {
    let observed = LeaseObservation { spent: 250, ..observation(1, 0, LeaseProblem::Insufficient) };

    let (result, _) = top_up_with_half_in_flight((250, 250), observed);

    let TopUpResult::TopUpsInFlight(1, top_up) = result else { panic!("{result:?}") };
    assert_eq!((top_up.top_up, top_up.granted_before, top_up.account_balance), (0, 500, 250));
}

#[test]
fn top_up_waits_for_credits_in_flight_that_suffice_although_their_spend_makes_no_room() {
    // 270 credits are left, so 250 may be leased for this cost, and 270 are leased.
    let lost = Lease { withheld_at: Some(Timestamp(1)), ..lease(1, 6, 20, 0) };
    let before = account(0, vec![lost, lease(2, 7, 250, 0)]);

    let result = top_up_for_cost(250, before, observation(2, 0, LeaseProblem::Insufficient));

    assert!(matches!(result, TopUpResult::TopUpsInFlight(2, _)), "{result:?}");
}

#[test]
fn top_up_does_not_wait_for_more_than_a_lease_is_ever_granted() {
    for (cost, is_waiting) in [(LEASE_GRANTED_MAX, true), (LEASE_GRANTED_MAX + 1, false)] {
        let before = account(cost, vec![lease(1, 7, 10, 0)]);

        let result = top_up_for_cost(cost, before, observation(1, 0, LeaseProblem::Insufficient));

        match result {
            TopUpResult::TopUpsInFlight(1, _) if is_waiting => {}
            TopUpResult::Withheld if !is_waiting => {}
            other => panic!("{cost}: {other:?}"),
        }
    }
}
