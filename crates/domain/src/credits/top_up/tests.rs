//! Tests top-ups of accounts in rare states.

mod in_flight;

use foundation::clock::DAY_MS;
use foundation::model::{Refill, RefillInterval};

use super::*;
use crate::context::OwnRegion;

const DATABASE_TIME: Timestamp = Timestamp(9_000);

fn account(balance: i64, leases: Vec<Lease>) -> CreditAccount {
    let last_lease_number = leases.last().map_or(0, |lease| lease.lease_number);
    let credits = Credits { balance, refill: None, last_lease_number, refilled_period: 0 };
    CreditAccount { credits, leases, database_time: DATABASE_TIME }
}

/// Gives an account a refill that is due.
fn with_refill_due(account: CreditAccount, amount: i64) -> CreditAccount {
    let refill = Some(Refill { interval: RefillInterval::Daily, amount });
    let credits = Credits { refill, refilled_period: -1, ..account.credits };
    CreditAccount { credits, ..account }
}

fn lease(lease_number: i64, redis_generation: i64, granted: i64, spent: i64) -> Lease {
    Lease {
        lease_number,
        redis_generation,
        granted,
        spent,
        opened_at: Timestamp(0),
        topped_up_at: Timestamp(0),
        topped_up_by: "rep_b".into(),
        withheld_at: None,
        closed: false,
        region: String::new(),
    }
}

fn observation(lease_number: i64, units: i64, problem: LeaseProblem) -> LeaseObservation {
    LeaseObservation { lease_number, redis_generation: 7, units, spent: 0, problem }
}

/// Tops up with these results of closing leases. Returns the steps, the result, and the account afterwards.
fn top_up(
    account: CreditAccount,
    observed: LeaseObservation,
    closes: &[CloseResult],
) -> (Vec<String>, TopUpResult, CreditAccount) {
    top_up_in(OwnRegion::default(), account, observed, closes)
}

/// Like [`top_up`], by a replica of a region.
fn top_up_in(
    region: OwnRegion,
    account: CreditAccount,
    observed: LeaseObservation,
    closes: &[CloseResult],
) -> (Vec<String>, TopUpResult, CreditAccount) {
    let replica = LeaseHolder { id: "rep_a", region };
    run(TopUpChange::new(account, observed, 1, replica, DATABASE_TIME), closes)
}

/// Tops up for a request of this cost, without closing a lease. Returns the result.
fn top_up_for_cost(cost: i64, account: CreditAccount, observed: LeaseObservation) -> TopUpResult {
    let replica = LeaseHolder { id: "rep_a", region: OwnRegion::default() };
    run(TopUpChange::new(account, observed, cost, replica, DATABASE_TIME), &[]).1
}

fn run(
    mut change: TopUpChange<'_>,
    closes: &[CloseResult],
) -> (Vec<String>, TopUpResult, CreditAccount) {
    let (mut steps, mut closes) = (Vec::new(), closes.iter());
    loop {
        let text = match change.next_step() {
            AccountStep::End => break,
            AccountStep::CloseLease { lease, .. } => {
                let text = format!("close {}", lease.lease_number);
                change.apply_close(*closes.next().expect("a result"));
                text
            }
            AccountStep::ForfeitLeases => "forfeit".into(),
            AccountStep::UpsertLease(lease) => format!("upsert {}", lease.lease_number),
            AccountStep::DeleteLease(lease) => format!("delete {}", lease.lease_number),
            AccountStep::UpdateBalance(credits) => format!("balance {}", credits.balance),
        };
        steps.push(text);
    }
    assert!(closes.next().is_none());
    (steps, change.result(), change.account)
}

/// Returns what the account and its leases hold together, as far as known.
fn total(account: &CreditAccount) -> i64 {
    account.credits.balance + account.leased_units()
}

#[test]
fn top_up_opens_lease_when_there_is_none() {
    let observed = observation(0, 0, LeaseProblem::Insufficient);

    let (steps, result, after) = top_up(account(1_000, Vec::new()), observed, &[]);

    assert_eq!(steps, ["balance 900", "upsert 1"]);
    let TopUpResult::Lease(1, top_up) = result else { panic!("{result:?}") };
    assert!(top_up.creates_lease && top_up.granted_before == 0 && top_up.top_up == 100);
    assert_eq!((after.leases[0].redis_generation, total(&after)), (7, 1_000));
}

#[test]
fn rejected_top_up_returns_once_when_it_is_reported_twice() {
    let rejected = LeaseProblem::TopUpRejected { block: 100, is_lost: false };
    let before = account(900, vec![lease(1, 7, 100, 0)]);

    let (steps, first, after) = top_up(before, observation(1, 0, rejected), &[]);
    assert_eq!(steps, ["balance 900", "upsert 1"]);
    assert!(matches!(first, TopUpResult::Lease(1, _)), "{first:?}");
    assert_eq!(total(&after), 1_000);

    // It was forfeited meanwhile, so nothing of it is left to return.
    let forfeited = account(900, vec![Lease { granted: 0, ..lease(1, 7, 100, 0) }]);
    let (_, _, after) = top_up(forfeited, observation(1, 0, rejected), &[]);
    assert_eq!(total(&after), 900);
}

#[test]
fn top_up_of_a_closed_lease_returns_what_was_not_spent_although_it_was_added() {
    let problem = LeaseProblem::Closed { block: 100 };
    // The lease reports what others have spent, which the account does not know.
    for (granted, spent, total_after) in [(100, 60, 940), (100, 0, 1_000), (300, 60, 940)] {
        let before = account(1_000 - granted, vec![lease(1, 7, granted, 0)]);
        let observed = LeaseObservation { spent, ..observation(1, 0, problem) };

        let closed = CloseResult::Closed { spent_units: spent };
        let (_, _, after) = top_up(before, observed, &[closed]);

        assert_eq!(total(&after), total_after, "{spent} of {granted}");
    }
}

#[test]
fn lost_lease_is_closed_before_another_is_opened() {
    let lost = LeaseProblem::TopUpRejected { block: 40, is_lost: true };
    let before = account(900, vec![lease(1, 7, 100, 10)]);

    let (steps, result, after) = top_up(before, observation(1, 0, lost), &[CloseResult::NotFound]);

    // The top-up returns; what the lease held before is missing and stays recorded. The lease, which is withheld
    // now, is not closed again.
    assert_eq!(steps, ["close 1", "upsert 1", "balance 891", "upsert 3"]);
    assert!(matches!(result, TopUpResult::Lease(3, _)), "a new lease number: {result:?}");
    assert!(after.leases[0].closed && after.leases[0].unspent_units() == 50);
    assert_eq!(total(&after), 990);
}

#[test]
fn lease_of_another_redis_generation_is_withheld_and_counts_as_leased() {
    let before = account(900, vec![lease(1, 6, 100, 0)]);

    let (steps, result, after) = top_up(before, observation(1, 0, LeaseProblem::Insufficient), &[]);

    assert_eq!(steps, ["upsert 1", "balance 900"]);
    assert!(matches!(result, TopUpResult::Withheld), "a tenth is leased already: {result:?}");
    assert_eq!(after.leases[0].withheld_at, Some(DATABASE_TIME));
    assert!(after.credits.last_lease_number > 1, "no replica learns of it any more");
}

#[test]
fn withheld_lease_of_another_redis_generation_is_written_only_to_return_a_top_up() {
    let withheld = || Lease { withheld_at: Some(Timestamp(1)), ..lease(1, 6, 50, 0) };
    let before = || account(900, vec![withheld()]);

    let observed = observation(1, 0, LeaseProblem::Insufficient);
    let (steps, result, after) = top_up(before(), observed, &[]);
    assert_eq!(steps, ["balance 855", "upsert 2"]);
    assert!(matches!(result, TopUpResult::Lease(2, _)), "{result:?}");
    assert_eq!(after.leases[0], withheld());

    let rejected = LeaseProblem::TopUpRejected { block: 20, is_lost: false };
    let (steps, _, after) = top_up(before(), observation(1, 0, rejected), &[]);
    assert_eq!(steps, ["upsert 1", "balance 855", "upsert 2"]);
    assert_eq!((after.leases[0].granted, total(&after)), (30, 950));
}

#[test]
fn lease_number_increases_when_the_last_lease_is_withheld() {
    // This replica reaches the Redis of an earlier lease.
    let before = account(850, vec![lease(1, 7, 100, 0), lease(2, 6, 50, 0)]);

    let (steps, result, after) = top_up(before, observation(1, 0, LeaseProblem::Insufficient), &[]);

    assert_eq!(steps, ["upsert 2", "upsert 1", "balance 850"]);
    assert!(matches!(result, TopUpResult::TopUpsInFlight(1, _)), "{result:?}");
    assert_eq!(after.credits.last_lease_number, 3, "no replica learns of the lease any more");
}

#[test]
fn withheld_lease_is_closed_when_its_redis_is_reached_again() {
    let withheld = Lease { withheld_at: Some(Timestamp(1)), ..lease(1, 7, 100, 0) };
    let observed = observation(0, 0, LeaseProblem::Insufficient);
    let closed = CloseResult::Closed { spent_units: 30 };

    let (steps, result, after) = top_up(account(900, vec![withheld]), observed, &[closed]);

    assert_eq!(steps, ["close 1", "delete 1", "balance 873", "upsert 2"]);
    assert!(matches!(result, TopUpResult::Lease(2, _)), "{result:?}");
    assert_eq!(total(&after), 970);
}

#[test]
fn account_itself_is_debited_when_a_script_cannot_count_the_cost() {
    let lease = || lease(1, 7, 100, 50);
    for cost in [LEASE_GRANTED_MAX + 51, i64::MAX] {
        let before = account(i64::MAX - 50, vec![lease()]);
        let observed = observation(1, 50, LeaseProblem::Insufficient);

        let result = top_up_for_cost(cost, before, observed);

        assert!(matches!(result, TopUpResult::Withheld), "{cost}: {result:?}");
    }
}

#[test]
fn top_up_covers_the_demand_since_the_last_one() {
    let lease_at =
        |topped_up_at, granted, spent| Lease { topped_up_at, ..lease(1, 7, granted, spent) };
    let before = account(100_000, vec![lease_at(Timestamp(6_000), 4_000, 1_000)]);
    let insufficient = observation(1, 0, LeaseProblem::Insufficient);
    let observed = LeaseObservation { spent: 4_000, ..insufficient };

    let (_, result, after) = top_up(before, observed, &[]);

    // 3,000 were spent in three seconds.
    let TopUpResult::Lease(1, top_up) = result else { panic!("{result:?}") };
    assert_eq!((top_up.granted_before, top_up.top_up), (4_000, 1_500));
    let topped_up = Lease { topped_up_by: "rep_a".into(), ..lease_at(DATABASE_TIME, 5_500, 4_000) };
    assert_eq!(after.leases, [topped_up]);
}

#[test]
fn leases_are_forfeited_before_the_top_up_when_a_refill_is_due() {
    let before = with_refill_due(account(5, vec![lease(1, 7, 100, 10)]), 1_000);
    let observed = observation(1, 90, LeaseProblem::Insufficient);
    let closed = CloseResult::Closed { spent_units: 30 };

    let (steps, result, after) = top_up(before, observed, &[closed]);

    assert_eq!(steps, ["forfeit", "close 1", "delete 1", "balance 900", "upsert 3"]);
    let TopUpResult::Lease(3, top_up) = result else { panic!("{result:?}") };
    assert_eq!((top_up.account_balance, top_up.refill_at), (900, Timestamp(DAY_MS)));
    assert_eq!(total(&after), 1_000, "nothing of the previous period returns");
}

#[test]
fn refill_removes_closed_leases_and_forfeits_the_others() {
    let withheld = Lease { withheld_at: Some(Timestamp(2)), ..lease(2, 6, 100, 50) };
    let closed = Lease { closed: true, withheld_at: Some(Timestamp(1)), ..lease(1, 7, 100, 40) };
    let leases = vec![closed, withheld.clone(), lease(3, 7, 100, 60)];
    let mut refilled = with_refill_due(account(5, leases), 1_000);

    assert!(refill_account(&mut refilled, DATABASE_TIME));

    let withheld = Lease { granted: 50, ..withheld };
    let open = Lease { withheld_at: Some(DATABASE_TIME), ..lease(3, 7, 60, 60) };
    assert_eq!(refilled.leases, [withheld, open]);
    assert_eq!((refilled.credits.balance, refilled.credits.last_lease_number), (1_000, 4));
    assert!(!refill_account(&mut refilled, DATABASE_TIME), "it is due once");
}

#[test]
fn lease_is_replaced_when_it_was_granted_the_maximum() {
    let full = lease(1, 7, LEASE_GRANTED_MAX, LEASE_GRANTED_MAX);
    let observed = observation(1, 0, LeaseProblem::Insufficient);
    let closed = CloseResult::Closed { spent_units: LEASE_GRANTED_MAX };

    let (steps, result, _) = top_up(account(1_000, vec![full]), observed, &[closed]);

    assert_eq!(steps, ["close 1", "delete 1", "balance 900", "upsert 2"]);
    assert!(matches!(result, TopUpResult::Lease(2, _)), "{result:?}");
}

#[test]
fn top_up_amount_is_at_most_a_tenth_of_the_rest_or_one_cost() {
    for (balance, leased, need, cost, demand, expected) in [
        (1_000, 0, 1, 1, 0, Some(100)),
        (1_000, 0, 1, 1, 1_000_000, Some(100)),
        (100_000, 0, 1, 1, 2_000, Some(2_000)),
        // Other leases hold the full share.
        (900, 100, 1, 1, 0, None),
        (901, 99, 1, 1, 0, Some(1)),
        (950, 50, 1, 1, 0, Some(50)),
        // Nothing is missing.
        (1_000, 0, 0, 1, 0, Some(0)),
        // One cost is more than a tenth.
        (1_000, 0, 250, 250, 0, Some(250)),
        (1_000, 0, 101, 101, 0, Some(101)),
        (1_000, 1, 250, 250, 0, None),
        (999, 1, 249, 250, 0, Some(249)),
        (2, 0, 1, 1, 0, Some(1)),
        // The balance is too small.
        (0, 0, 1, 1, 0, Some(0)),
        (2, 5, 3, 8, 0, Some(0)),
        (3, 5, 3, 8, 0, Some(3)),
        // A script can count this much.
        (i64::MAX, 0, LEASE_GRANTED_MAX, LEASE_GRANTED_MAX, 0, Some(LEASE_GRANTED_MAX)),
        (i64::MAX, 0, LEASE_GRANTED_MAX + 1, LEASE_GRANTED_MAX + 1, 0, None),
        (LEASE_GRANTED_MAX, 0, LEASE_GRANTED_MAX + 1, LEASE_GRANTED_MAX + 1, 0, Some(0)),
        // It reports no larger balance.
        (SCRIPT_BALANCE_MAX - 1, 0, i64::MAX, i64::MAX, 0, Some(0)),
        (SCRIPT_BALANCE_MAX, 0, i64::MAX, i64::MAX, 0, None),
        (i64::MAX, 0, 1, 1, i64::MAX, Some(i64::MAX / 10)),
    ] {
        let left = balance.saturating_add(leased);
        let actual = top_up_amount((balance, left, leased), need, cost, demand);
        let expected = expected.map(|amount: i64| amount.min(LEASE_GRANTED_MAX));
        assert_eq!(actual, expected, "{balance} {leased} {need} {cost} {demand}");
    }
}

#[test]
fn region_has_a_lease_of_its_own_and_leaves_those_of_others_alone() {
    let us = || OwnRegion { name: "us".into(), is_first: false };
    let elsewhere = || Lease { region: "eu".into(), ..lease(1, 3, 100, 0) };
    let first = || lease(2, 4, 50, 0);
    // Its region says whose it is, even in the same generation.
    let same_generation = || Lease { region: "ap".into(), ..lease(3, 7, 30, 0) };
    let leases = || vec![elsewhere(), first(), same_generation()];
    let observed = observation(0, 0, LeaseProblem::Insufficient);

    let (steps, result, after) = top_up_in(us(), account(820, leases()), observed, &[]);

    assert_eq!(steps, ["balance 720", "upsert 4"], "a tenth of what is left");
    assert!(matches!(result, TopUpResult::Lease(4, top_up) if top_up.creates_lease), "{result:?}");
    assert_eq!((after.leases[3].region.as_str(), after.leases[3].redis_generation), ("us", 7));
    assert_eq!(after.leases[..3], leases());

    let eu = OwnRegion { name: "eu".into(), is_first: true };
    let (steps, ..) = top_up_in(eu, account(820, leases()), observed, &[]);
    assert_eq!(steps[..2], ["upsert 1", "upsert 2"], "its Redis has another generation: withheld");
}
