//! Injects the faults that the safeguards of windows protect against.

use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::stage::Stage;
use crate::caller::Caller;
use crate::fleet::Stalls;
use crate::record::{Action, Call, KeyIndex, KeyInfo};
use crate::schedule::FaultKind;

pub fn crowd_at_a_window(stage: &mut Stage) {
    for _ in 0..3 {
        let key = stage.limited(20);
        verify_concurrently(stage, key, (12, 6), Duration::ZERO);
    }
}

/// A window is full, and a later version of the program stores its count in another format.
pub fn count_beside_a_later_version(stage: &mut Stage) {
    let key = stage.limited(9);
    stage.drain(0, key, 0, 9);
    stage.fleet.run_in_redis(
        "for _, key in ipairs(redis.call('KEYS', '*w:{*')) do \
        local number = string.sub(redis.call('GET', key), 1, 8) \
        local value = number .. string.rep(string.char(0), 16) .. string.char(2) .. 'nine' \
        redis.call('SET', key, value, 'KEEPTTL') \
        end",
    );
    stage.drain(1, key, 0, 12);
}

pub fn fill_a_window_without_redis(stage: &mut Stage) {
    let key = stage.limited(9);
    stage.with_fault(FaultKind::RestartRedis, |stage| {
        for replica in 0..3 {
            (0..12).for_each(|_| {
                stage.verify(replica, key, 0);
            });
        }
    });
}

pub fn ask_while_redis_hangs(stage: &mut Stage) {
    let key = stage.limited(1_000_000);
    stage.verify(0, key, 0);
    let shared = stage.shared;
    let calls = std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let mut caller = Caller::new(shared, StdRng::seed_from_u64(3));
            for _ in 0..20 {
                std::thread::sleep(Duration::from_millis(20));
                caller.send(0, Action::Control);
                caller.send(0, Action::Verify { key, cost: 0 });
            }
            caller.calls
        });
        stage.with_fault(FaultKind::StopRedis, |_| std::thread::sleep(Duration::from_secs(1)));
        thread.join().expect("a caller")
    });
    stage.caller.calls.extend(calls);
}

pub fn use_up_a_window_while_redis_stalls(stage: &mut Stage) {
    let key = create_wide_limit(stage);
    stage.with_fault(FaultKind::StallRedis, |stage| {
        verify_concurrently(stage, key, (9, 60), Duration::from_millis(15));
    });
    verify_concurrently(stage, key, (9, 30), Duration::ZERO);
}

/// Each replica runs for 40 of 100 ms, as with a CPU quota.
pub fn use_up_a_window_while_replicas_are_throttled(stage: &mut Stage) {
    let key = create_wide_limit(stage);
    let stalls: Vec<_> =
        stage.fleet.replicas.iter().map(|replica| Stalls::of(replica.pid())).collect();
    verify_concurrently(stage, key, (9, 60), Duration::ZERO);
    drop(stalls);
}

/// Creates a key with a limit that two seconds of a crowd use up.
fn create_wide_limit(stage: &mut Stage) -> KeyIndex {
    let limits = vec![("requests".to_owned(), 400, 3_600_000)];
    stage.key(KeyInfo { limits, ..KeyInfo::default() })
}

/// Verifies a key from this many callers, this many times each, with a pause in between.
fn verify_concurrently(
    stage: &mut Stage,
    key: KeyIndex,
    (callers, times): (u64, usize),
    rest: Duration,
) {
    let shared = stage.shared;
    let calls: Vec<Vec<Call>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..callers)
            .map(|n| {
                let mut caller = Caller::new(shared, StdRng::seed_from_u64(n));
                scope.spawn(move || {
                    let replica = (n % 3) as usize;
                    for _ in 0..times {
                        caller.send(replica, Action::Verify { key, cost: 0 });
                        std::thread::sleep(rest);
                    }
                    caller.calls
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a caller")).collect()
    });
    stage.caller.calls.extend(calls.into_iter().flatten());
}
