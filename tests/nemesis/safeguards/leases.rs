//! Injects the faults that the safeguards of leases protect against.

use std::sync::Barrier;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::stage::Stage;
use crate::caller::Caller;
use crate::final_state;
use crate::proxy::LinkState;
use crate::record::{Action, Call, Change, KeyIndex};
use crate::schedule::FaultKind;

/// All three replicas verify keys that none has seen before. Then Redis loses its leases, and one of the replicas
/// cannot report its spend.
pub fn begin_at_once_and_lose_redis_and_a_replica(stage: &mut Stage) {
    let keys: Vec<_> = (0..6).map(|_| stage.metered(1_000)).collect();
    for key in &keys {
        let barrier = Barrier::new(3);
        let begun: Vec<Vec<Call>> = std::thread::scope(|scope| {
            let begin = |replica: usize| {
                let mut caller = Caller::new(stage.shared, StdRng::seed_from_u64(4));
                let barrier = &barrier;
                move || {
                    barrier.wait();
                    caller.send(replica, Action::Verify { key: *key, cost: 1 });
                    caller.calls
                }
            };
            let threads: Vec<_> = (0..3).map(|replica| scope.spawn(begin(replica))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a caller")).collect()
        });
        stage.caller.calls.extend(begun.into_iter().flatten());
    }
    stage.with_fault(FaultKind::WipeRedis, |stage| {
        stage.with_fault(FaultKind::KillReplica(2), |_| {});
    });
    stage.fleet.replicas[2].await_ready();
    std::thread::sleep(Duration::from_millis(500));
    for key in keys {
        stage.verify(0, key, 1);
    }
    std::thread::sleep(Duration::from_secs(2));
    let keys = stage.shared.keys().clone();
    stage.final_states = final_state::read_all(stage.fleet, &keys);
}

/// Replica 1 spends from a lease that only the old master has; the promoted one has the old data, in another
/// generation.
pub fn set_a_balance_beside_another_master(stage: &mut Stage) {
    let keys = [50_000, 50_000, 50_000].map(|credits| stage.metered(credits));
    for key in keys {
        stage.spend_for(300, 1, key, 10);
    }
    stage.fleet.split(1);
    for key in keys {
        let until = stage.shared.began.elapsed() + Duration::from_secs(10);
        let set = Action::Credits { key, change: Change::Set(0) };
        while stage.shared.began.elapsed() < until
            && stage.caller.send(0, set.clone()).status != 200
        {
            std::thread::sleep(Duration::from_millis(100));
        }
        stage.drain(1, key, 1, 200);
    }
    stage.fleet.end_split();
}

/// Replica 1 learns late that it has spent from a lease, in a Redis that no other replica reaches: meanwhile all
/// replicas have reported the lease, and its credits have been returned.
pub fn spend_from_another_master_after_the_report(stage: &mut Stage) {
    stage.fleet.replicas[1].set("KEYWARD_REDIS_TIMEOUT_MS", Some("5000"));
    stage.replace(1);
    let key = stage.metered(5_000);
    stage.verify(1, key, 100);
    stage.fleet.split(1);
    stage.fleet.replicas[1].redis.set(LinkState::Open, LinkState::Slow(Duration::from_secs(2)));
    let mut caller = Caller::new(stage.shared, StdRng::seed_from_u64(5));
    let calls = std::thread::scope(|scope| {
        let spending = scope.spawn(move || {
            caller.send(1, Action::Verify { key, cost: 400 });
            caller.calls
        });
        std::thread::sleep(Duration::from_millis(200));
        stage.verify(0, key, 100);
        spending.join().expect("a caller")
    });
    stage.caller.calls.extend(calls);
    stage.fleet.replicas[1].redis.mend();
    stage.fleet.end_split();
    stage.spend_all(key, 100);
    stage.fleet.replicas[1].set("KEYWARD_REDIS_TIMEOUT_MS", None);
}

/// Replica 1 is the last to report its spend from the leases of four keys, and the account of one of them is locked
/// when the rest is returned.
pub fn give_credits_back_beside_a_locked_account(stage: &mut Stage) {
    let mut keys = [20_000; 4].map(|credits| stage.metered(credits));
    // Accounts are locked in this order: a transaction that waits for the last one holds all others.
    let ids = stage.shared.keys().clone();
    keys.sort_by(|one, other| ids[*one].id.cmp(&ids[*other].id));
    let [others @ .., last] = keys;
    for key in keys {
        // The maximum that may be leased.
        stage.verify(1, key, 2_000);
    }
    let locked = stage.with_fault(FaultKind::StopReplica(1), |stage| {
        stage.with_fault(FaultKind::WipeRedis, |_| {});
        std::thread::sleep(Duration::from_millis(500));
        for key in keys {
            stage.verify(0, key, 1);
        }
        // The others report before the lock, for which they may wait; replica 1 gives the credits back as soon as it goes on.
        std::thread::sleep(Duration::from_secs(1));
        stage.lock_account(last)
    });
    // Wait until replica 1 has reported.
    std::thread::sleep(Duration::from_secs(1));
    // At once: one that waits for its account waits for three seconds.
    let shared = stage.shared;
    let verify = |key: KeyIndex| {
        let mut caller = Caller::new(shared, StdRng::seed_from_u64(7));
        let until = shared.began.elapsed() + Duration::from_secs(2);
        while shared.began.elapsed() < until {
            caller.send(0, Action::Verify { key, cost: 2_000 });
            std::thread::sleep(Duration::from_millis(20));
        }
        caller.calls
    };
    let calls: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = others.iter().map(|key| scope.spawn(move || verify(*key))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a caller")).collect()
    });
    stage.caller.calls.extend(calls);
    stage.unlock_account(locked);
}

/// Only replica 1 knows what it has spent.
pub fn lose_redis_while_a_replica_stands_still(stage: &mut Stage) {
    let key = stage.metered(5_000);
    for _ in 0..60 {
        stage.verify(1, key, 5);
    }
    stage.with_fault(FaultKind::StopReplica(1), |stage| {
        stage.with_fault(FaultKind::WipeRedis, |_| {});
        std::thread::sleep(Duration::from_millis(500));
        stage.verify(0, key, 5);
        std::thread::sleep(Duration::from_secs(2));
    });
    stage.spend_all(key, 5);
}
