//! Injects the faults that the safeguards of limits and credits in several regions protect against.

use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::Value;

use super::stage::Stage;
use crate::caller::Caller;
use crate::record::{Action, Call, Change, KeyInfo};
use crate::schedule::{FaultKind, REGIONS, RegionFault};

const HOUR_MS: i64 = 3_600_000;
/// Units that nobody has spent for a second go back to their home, which is 75 ms away.
const REST: Duration = Duration::from_millis(1_700);

/// A counter of the first region, its limit, and the cost of a request.
struct Counter {
    name: String,
    limit: i64,
    cost: i64,
}

impl Counter {
    /// Returns a counter that no earlier case has used.
    fn new(stage: &Stage, limit: i64, cost: i64) -> Self {
        Self { name: format!("eu/{}", stage.shared.began_unix_ms), limit, cost }
    }

    fn consume(&self, stage: &mut Stage, replica: usize) -> bool {
        let (counter, limit, cost) = (self.name.clone(), self.limit, self.cost);
        let action = Action::Limit { counter, limit, duration_ms: HOUR_MS, cost };
        stage.caller.send(replica, action).is_valid()
    }

    /// Consumes in all regions in turn until a few times nothing was left, or far too much was admitted.
    fn use_up(&self, stage: &mut Stage) {
        let (mut denials, mut admitted) = (0, 0);
        for replica in (0..REGIONS).cycle() {
            match self.consume(stage, replica) {
                true => (denials, admitted) = (0, admitted + self.cost),
                false => denials += 1,
            }
            if denials == 3 * REGIONS || admitted > 2 * self.limit {
                break;
            }
        }
    }
}

pub fn use_up_a_limit_in_all_regions(stage: &mut Stage) {
    Counter::new(stage, 20, 1).use_up(stage);
}

/// The second region does not need all that it was granted.
pub fn use_up_a_limit_after_a_rest(stage: &mut Stage) {
    let counter = Counter::new(stage, 400, 1);
    counter.consume(stage, 0);
    for _ in 0..80 {
        counter.consume(stage, 1);
    }
    std::thread::sleep(REST);
    Counter { cost: 5, ..counter }.use_up(stage);
}

/// The follower of the second region lags while its lease is spent, and is promoted.
pub fn spend_from_a_region_that_fails_over(stage: &mut Stage) {
    let counter = Counter::new(stage, 4_000, 5);
    counter.consume(stage, 0);
    for _ in 0..3 {
        // The lease is granted for such a demand, and has enough for what follows.
        for _ in 0..60 {
            counter.consume(stage, 1);
        }
        std::thread::sleep(Duration::from_millis(300));
        stage.with_fault(FaultKind::InRegion(1, RegionFault::FailOver), |stage| {
            for _ in 0..15 {
                counter.consume(stage, 1);
            }
        });
        std::thread::sleep(Duration::from_millis(500));
    }
    std::thread::sleep(REST);
    counter.use_up(stage);
}

/// A namespace moves from the first region to the second one while all use up its windows.
pub fn move_a_home_under_load(stage: &mut Stage) {
    let action =
        Action::Limit { counter: "moving/load".into(), limit: 20, duration_ms: 2_000, cost: 1 };
    stage.caller.send(0, action.clone());
    let list: Value =
        serde_json::from_str(&stage.fleet.command(&["namespace", "list", "--json"])).expect("JSON");
    let is_moving = |namespace: &&Value| namespace["name"] == "moving";
    let found = list.as_array().and_then(|list| list.iter().find(is_moving));
    let id = found.and_then(|namespace| namespace["namespaceId"].as_str()).expect("the namespace");
    let to = ["us", "eu"]
        .into_iter()
        .find(|to| stage.fleet.try_command(&["region", "move", id, "--to", to]).is_ok());
    assert!(to.is_some(), "the home moves");
    let shared = stage.shared;
    let until = shared.began.elapsed() + Duration::from_secs(15);
    let calls: Vec<Vec<Call>> = std::thread::scope(|scope| {
        let consume = |replica: usize| {
            let mut caller = Caller::new(shared, StdRng::seed_from_u64(6));
            let action = action.clone();
            move || {
                while shared.began.elapsed() < until {
                    caller.send(replica, action.clone());
                    std::thread::sleep(Duration::from_millis(8));
                }
                caller.calls
            }
        };
        let threads: Vec<_> = (0..REGIONS).map(|replica| scope.spawn(consume(replica))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a caller")).collect()
    });
    stage.caller.calls.extend(calls.into_iter().flatten());
}

/// The second region spends from a lease when the first one sets the balance.
pub fn set_a_balance_in_another_region(stage: &mut Stage) {
    let key = stage.metered(5_000);
    stage.spend_for(300, 1, key, 5);
    stage.caller.send(0, Action::Credits { key, change: Change::Set(0) });
    stage.drain(1, key, 5, 200);
}

/// The second region reads the announcements in its own Redis, which no change from another region reaches.
pub fn end_a_key_beside_a_region_that_is_cut_off(stage: &mut Stage) {
    let key = stage.key(KeyInfo::default());
    for replica in 0..REGIONS {
        stage.verify(replica, key, 0);
    }
    stage.with_fault(FaultKind::InRegion(1, RegionFault::CutOff), |stage| {
        stage.with_fault(FaultKind::CutPostgres(1), |stage| {
            stage.caller.send(0, Action::Disable { key });
            stage.watch(1, key, 8_000);
        });
    });
}
