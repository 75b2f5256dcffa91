//! Injects the faults that the safeguards of credits protect against.

use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use sqlx::Connection as _;
use sqlx::postgres::PgConnection;

use super::stage::Stage;
use crate::caller::Caller;
use crate::proxy::LinkState;
use crate::record::{Action, Change, KeyIndex, KeyInfo};
use crate::schedule::FaultKind;
use crate::servers::block_on;

/// All credits are spent, but the follower lags and has the leases of before.
pub fn fail_over_to_a_redis_that_is_behind(stage: &mut Stage) {
    let keys = [10_000, 10_000, 10_000].map(|credits| stage.metered(credits));
    for key in keys {
        stage.spend_for(300, 0, key, 50);
    }
    stage.with_fault(FaultKind::FailOver, |stage| {
        for key in keys {
            stage.drain(0, key, 50, 400);
        }
    });
    // Wait until the replicas find the promoted Redis.
    std::thread::sleep(Duration::from_millis(500));
    for key in keys {
        stage.spend_for(100, 1, key, 1);
    }
}

pub fn kill_a_replica_that_has_spent(stage: &mut Stage) {
    let key = stage.metered(1_000);
    stage.verify(0, key, 250);
    stage.with_fault(FaultKind::KillReplica(0), |_| {});
    stage.drain(1, key, 250, 8);
    stage.fleet.replicas[0].await_ready();
}

/// Replica 1 learns of changes half a second late from Redis, and not at all from Postgres.
pub fn spend_where_a_change_is_not_known(stage: &mut Stage) {
    stage.fleet.replicas[1].set("KEYWARD_REDIS_TIMEOUT_MS", Some("5000"));
    stage.restart(1);
    let key = stage.metered(50_000);
    stage.spend_for(1_200, 1, key, 10);
    stage.with_fault(FaultKind::HolePostgres(1), |stage| {
        let late = LinkState::Slow(Duration::from_millis(500));
        stage.fleet.replicas[1].redis.set(LinkState::Open, late);
        stage.caller.send(0, Action::Credits { key, change: Change::Set(0) });
        let (shared, patient) = (stage.shared, StdRng::seed_from_u64(2));
        let calls = std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let mut caller = Caller::new(shared, patient);
                caller.send(1, Action::Verify { key, cost: 1 });
                caller.calls
            });
            std::thread::sleep(Duration::from_millis(1_200));
            stage.fleet.replicas[1].redis.mend();
            stage.fleet.replicas[1].postgres.mend();
            thread.join().expect("a caller")
        });
        stage.caller.calls.extend(calls);
    });
    stage.fleet.replicas[1].set("KEYWARD_REDIS_TIMEOUT_MS", None);
}

/// Replica 0 cannot close the lease that replica 1 spends from.
pub fn set_a_balance_without_redis(stage: &mut Stage) {
    let keys = [50_000, 50_000, 50_000].map(|credits| stage.metered(credits));
    for key in keys {
        stage.spend_for(400, 1, key, 10);
    }
    stage.with_fault(FaultKind::CutRedis(0), |stage| {
        for key in keys {
            stage.caller.send(0, Action::Credits { key, change: Change::Set(0) });
            stage.drain(1, key, 1, 200);
        }
    });
}

pub fn spend_for_a_day_and_the_next(stage: &mut Stage) {
    let info = KeyInfo { credits: Some(20), refill: Some(20), ..KeyInfo::default() };
    let key = stage.key(info);
    stage.drain(0, key, 5, 10);
    let id = stage.shared.keys()[key].id.clone();
    block_on(async {
        let mut connection = PgConnection::connect(&stage.fleet.postgres.url()).await.expect("it");
        let update = "UPDATE keys SET refilled = refilled - 1 WHERE id = $1";
        let updated = sqlx::query(update).bind(id).execute(&mut connection).await;
        assert_eq!(updated.expect("the key").rows_affected(), 1);
    });
    stage.days = 1;
    stage.drain(1, key, 5, 20);
}

/// Redis is unreachable for replica 0, which debits accounts directly, and one of them is locked.
pub fn debit_beside_a_locked_account(stage: &mut Stage) {
    let keys = [1_000_000; 4].map(|credits| stage.metered(credits));
    let [locked, ..] = keys;
    for key in keys {
        stage.verify(0, key, 0);
    }
    let shared = stage.shared;
    stage.with_fault(FaultKind::CutRedis(0), |stage| {
        stage.with_locked_account(locked, |stage| {
            let call = |key: KeyIndex| {
                let mut caller = Caller::new(shared, StdRng::seed_from_u64(6));
                let until = shared.began.elapsed() + Duration::from_millis(1_500);
                while shared.began.elapsed() < until {
                    caller.send(0, Action::Verify { key, cost: 1 });
                    std::thread::sleep(Duration::from_millis(5));
                }
                caller.calls
            };
            let calls: Vec<_> = std::thread::scope(|scope| {
                let keys = [locked; 3].into_iter().chain(keys);
                let threads: Vec<_> = keys.map(|key| scope.spawn(move || call(key))).collect();
                threads.into_iter().flat_map(|it| it.join().expect("a caller")).collect()
            });
            stage.caller.calls.extend(calls);
        });
    });
}
