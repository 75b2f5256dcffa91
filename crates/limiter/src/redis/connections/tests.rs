//! Tests which commands are sent again, and which connections are used again.

use foundation::clock::Timestamp;

use super::super::super::{Grant, LeaseSpend, TopUp, Window};
use super::*;

fn spend(top_up: Option<TopUp>) -> ConsumeRequest {
    let window = Window::new("w", 10, 1_000, 1);
    ConsumeRequest::with_spend(vec![window], LeaseSpend { lease: "p".into(), cost: 1, top_up })
}

fn top_up() -> TopUp {
    TopUp {
        redis_generation: 1,
        creates_lease: false,
        granted_before: 0,
        top_up: 10,
        account_balance: 0,
        refill_at: Timestamp(i64::MAX),
    }
}

fn grant() -> Grant {
    Grant {
        lease: "a".into(),
        redis_generation: 1,
        home_generation: 1,
        window_number: 1,
        limit: 10,
        units: 5,
        count: 5,
        ends_at: Timestamp(1_000),
        denied_until: Timestamp(0),
        denied_cost: 0,
    }
}

#[test]
fn consume_requests_are_sent_again_unless_one_adds_a_top_up_or_a_grant() {
    let grants = ConsumeRequest { grants: vec![grant()], ..ConsumeRequest::default() };
    let plain = || spend(None);

    let policies = [
        vec![plain(), plain()],
        vec![plain(), spend(Some(top_up()))],
        vec![plain(), grants.clone()],
        vec![spend(Some(top_up())), grants],
    ]
    .map(|requests| RetryPolicy::for_consume(&requests));

    assert_eq!(
        policies,
        [RetryPolicy::Once, RetryPolicy::Never, RetryPolicy::Never, RetryPolicy::Never]
    );
}

#[test]
fn connection_is_not_used_again_when_connections_were_discarded_after_its_creation() {
    let discard_time = DiscardTime::default();
    let (old_connection, mut new_connection) = (Metrics::default(), Metrics::default());
    assert!(!discard_time.is_discarded(&old_connection), "none were discarded");

    discard_time.record();

    assert!(discard_time.is_discarded(&old_connection));
    new_connection.created += Duration::from_mins(1);
    assert!(!discard_time.is_discarded(&new_connection));
}
