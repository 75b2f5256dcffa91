//! Tests what the reply to a request that asks another region tells of its top-up.

use super::super::super::LeaseStatus;
use super::*;

/// Returns a request with a top-up of this many credits, for a window that is counted elsewhere.
fn request_with_top_up(amount: i64) -> ConsumeRequest {
    let top_up = TopUp {
        redis_generation: 7,
        creates_lease: false,
        granted_before: 0,
        top_up: amount,
        account_balance: 0,
        refill_at: Timestamp(1),
    };
    let spend = LeaseSpend { lease: "p".into(), cost: 1, top_up: Some(top_up) };
    ConsumeRequest::with_spend(vec![window(2_000, 5)], spend)
}

/// Returns a reply that also tells of a credit lease in this state.
fn reply_with(state: LeaseState, reply: ConsumeReply) -> ConsumeReply {
    let lease = LeaseStatus {
        state,
        units: 0,
        account_balance: Some(0),
        spent_units: 0,
        redis_generation: 7,
    };
    let is_admitted = reply.is_admitted && state == LeaseState::Sufficient;
    ConsumeReply { is_admitted, lease: Some(lease), ..reply }
}

/// Consumes with these replies. Returns the state of the credit lease, and the calls to this region.
fn consume_with(amount: i64, replies: [ConsumeReply; 2]) -> (Option<LeaseState>, Vec<String>) {
    let links = ScriptedLinks::new(replies, [home_reply(20, 0)]);
    let reply = consume_now(&links, &request_with_top_up(amount)).expect("a reply");
    (reply.lease.map(|lease| lease.state), links.take_calls("consume"))
}

const ONCE: [&str; 1] = ["consume 1 with a top-up"];
const TWICE: [&str; 2] = ["consume 1 with a top-up", "consume 1"];

#[test]
fn request_is_not_decided_again_when_its_top_up_is_rejected() {
    for state in [LeaseState::Closed, LeaseState::WrongGeneration, LeaseState::NotFound] {
        let replies = || {
            let second = reply_with(LeaseState::Insufficient, sufficient());
            [reply_with(state, insufficient()), second]
        };

        let (told, calls) = consume_with(9, replies());
        assert_eq!(told, Some(state), "the caller learns that the credits were not added");
        assert_eq!(calls, ONCE);

        let (_, calls) = consume_with(0, replies());
        assert_eq!(calls, TWICE, "nothing was to be added");
    }
}

#[test]
fn lease_that_is_closed_after_a_top_up_is_not_reported_as_closed() {
    for (amount, expected) in [(9, LeaseState::Insufficient), (0, LeaseState::Closed)] {
        let first = reply_with(LeaseState::Sufficient, insufficient());
        let second = reply_with(LeaseState::Closed, sufficient());

        let (told, calls) = consume_with(amount, [first, second]);

        assert_eq!(told, Some(expected), "its top-up of {amount} was added");
        assert_eq!(calls, TWICE);
    }
}
