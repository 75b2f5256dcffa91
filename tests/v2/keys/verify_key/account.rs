//! Bank and purse together against a plain number.

use foundation::clock::Timestamp;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::json;

use crate::on_both_stacks;
use crate::support::{Keyward, NOON, Stack};

const HOUR: i64 = 3_600_000;
const CASES: usize = 12;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Verifies on one of the servers, at this cost.
    Spend(usize, i64),
    /// Asks one of the servers what is left.
    Look(usize),
    Set(i64),
    /// Refills daily to this amount, or not at all.
    Refill(Option<i64>),
    Pass(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let amount = || prop_oneof![0..5_i64, 990..1_010_i64, 4_000..6_000_i64];
    let cost = prop_oneof![6 => Just(1_i64), 2 => 0..5_i64, 2 => 0..1_200_i64, 1 => 0..6_000_i64];
    prop_oneof![
        12 => (0..2_usize, cost).prop_map(|(server, cost)| Step::Spend(server, cost)),
        2 => (0..2_usize).prop_map(Step::Look),
        1 => amount().prop_map(Step::Set),
        1 => prop::option::of(amount()).prop_map(|a| Step::Refill(a.map(|a| a.max(1)))),
        2 => (0..30 * HOUR).prop_map(Step::Pass),
    ]
}

/// What a balance is to its owner.
#[derive(Debug)]
struct Account {
    balance: i64,
    refill: Option<i64>,
    /// The day for which it was refilled.
    day: i64,
}

impl Account {
    fn refresh(&mut self, now: Timestamp) {
        let day = now.0.div_euclid(24 * HOUR);
        match self.refill {
            Some(amount) if day > self.day => *self = Self { balance: amount, day, ..*self },
            Some(_) => {}
            None => self.day = day,
        }
    }

    fn spend(&mut self, cost: i64) -> bool {
        let enough = self.balance >= cost;
        if enough {
            self.balance -= cost;
        }
        enough
    }
}

/// Walks the same steps on the servers and on a plain number, which must agree after each.
async fn walk(servers: [&Keyward; 2], start: i64, steps: &[Step]) {
    let kw = servers[0];
    let key = kw.create_key(json!({ "credits": { "remaining": start } })).await;
    let mut account = Account { balance: start, refill: None, day: 0 };
    for (at, step) in steps.iter().enumerate() {
        account.refresh(kw.clock.now());
        match *step {
            Step::Spend(server, cost) => {
                let request = json!({ "credits": { "cost": cost } });
                let reply = servers[server].verify_with(&key.key, request).await;
                let valid = account.spend(cost);
                reply.assert_code(if valid { "VALID" } else { "USAGE_EXCEEDED" });
                assert_eq!(reply.data()["credits"], account.balance, "{at} of {steps:?}");
            }
            Step::Look(server) => {
                let told = servers[server].get_key(&key.id).await["credits"].clone();
                assert_eq!(told["remaining"], account.balance, "{at} of {steps:?}");
                let refill = account.refill.map(|amount| json!(amount)).unwrap_or_default();
                assert_eq!(told["refill"]["amount"], refill, "{at} of {steps:?}");
            }
            Step::Set(remaining) => {
                let change = json!({ "credits": { "remaining": remaining } });
                kw.update_key(&key.id, change).await.data();
                account.balance = remaining;
            }
            Step::Refill(amount) => {
                let refill = amount.map(|amount| json!({ "interval": "daily", "amount": amount }));
                kw.update_key(&key.id, json!({ "credits": { "refill": refill } })).await.data();
                account.refill = amount;
            }
            Step::Pass(ms) => kw.clock.advance_ms(ms),
        }
    }
    // The next case begins at noon again.
    kw.clock.advance_ms(NOON.0 - kw.clock.now().0);
}

async fn walk_all(servers: [&Keyward; 2]) {
    let mut runner = TestRunner::deterministic();
    let case = (0..6_000_i64, prop::collection::vec(step(), 40));
    for _ in 0..CASES {
        let (start, steps) = case.new_tree(&mut runner).expect("a case").current();
        walk(servers, start, &steps).await;
    }
}

on_both_stacks! {
    async fn any_sequence_of_uses_and_changes_spends_as_a_plain_number_would(kw) {
        walk_all([&kw, &kw]).await;
    }
}

#[tokio::test]
async fn any_sequence_on_two_replicas_spends_as_a_plain_number_would() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    walk_all([&kw, &other]).await;
}
