//! Injects the faults that the safeguards of revocations and of the database protect against.

use std::time::Duration;

use super::stage::Stage;
use crate::record::{Action, KeyInfo};
use crate::schedule::FaultKind;

/// The replica knows the caller, and not the key.
pub fn ask_without_postgres(stage: &mut Stage) {
    let [cached, uncached] = [0, 0].map(|_| stage.key(KeyInfo::default()));
    stage.verify(1, cached, 0);
    stage.with_fault(FaultKind::CutPostgres(1), |stage| {
        stage.verify(1, uncached, 0);
    });
}

/// Replica 0 cannot announce what replica 1 could only learn from an announcement.
pub fn end_a_key_where_redis_is_away_for_one_and_postgres_for_another(stage: &mut Stage) {
    let key = stage.key(KeyInfo::default());
    stage.verify(1, key, 0);
    // Wait until announcements are relied on.
    std::thread::sleep(Duration::from_millis(1_500));
    stage.with_fault(FaultKind::CutPostgres(1), |stage| {
        stage.with_fault(FaultKind::CutRedis(0), |stage| {
            stage.caller.send(0, Action::Disable { key });
            stage.watch(1, key, 3_000);
        });
    });
}

/// Replica 1 learns of the change neither from the Redis that is lost, nor from the one that replaces it.
pub fn lose_an_announcement(stage: &mut Stage) {
    let key = stage.key(KeyInfo::default());
    stage.verify(1, key, 0);
    // Wait until announcements are relied on.
    std::thread::sleep(Duration::from_millis(1_500));
    stage.with_fault(FaultKind::CutPostgres(1), |stage| {
        stage.with_fault(FaultKind::CutRedis(1), |stage| {
            stage.with_fault(FaultKind::FailOver, |stage| {
                stage.caller.send(0, Action::Disable { key });
                // Wait until all other replicas know the outcome: they would announce it again in the new Redis.
                std::thread::sleep(Duration::from_millis(500));
            });
        });
        stage.watch(1, key, 8_000);
    });
}

/// Replica 1 stays with the old master, without Postgres, while the others use the promoted one.
pub fn end_a_key_beside_another_master(stage: &mut Stage) {
    let key = stage.key(KeyInfo::default());
    stage.verify(1, key, 0);
    // Wait until announcements are relied on.
    std::thread::sleep(Duration::from_millis(1_500));
    stage.with_fault(FaultKind::SplitRedis(1), |stage| {
        stage.with_fault(FaultKind::CutPostgres(1), |stage| {
            // Wait until no replica waits for it.
            std::thread::sleep(Duration::from_millis(2_500));
            let until = stage.shared.began.elapsed() + Duration::from_secs(10);
            let end = Action::Disable { key };
            while stage.shared.began.elapsed() < until
                && stage.caller.send(0, end.clone()).status != 200
            {
                std::thread::sleep(Duration::from_millis(100));
            }
            stage.watch(1, key, 8_000);
        });
    });
}

/// Replica 0 dies after the commit, and replica 1 learns of the intent alone.
pub fn die_before_a_result_is_announced(stage: &mut Stage) {
    let key = stage.key(KeyInfo::default());
    stage.verify(1, key, 0);
    // It would find the result in the change log, and announce it.
    stage.fleet.replicas[2].stop();
    stage.fleet.replicas[0].set("KEYWARD_DISABLE_SAFEGUARD", Some("result"));
    stage.replace(0);
    // Wait until announcements are relied on.
    std::thread::sleep(Duration::from_millis(1_500));
    stage.with_fault(FaultKind::CutPostgres(1), |stage| {
        // Wait until the last read of the change log is too old to prove anything.
        std::thread::sleep(Duration::from_millis(2_100));
        stage.caller.send(0, Action::Disable { key });
        stage.fleet.replicas[0].set("KEYWARD_DISABLE_SAFEGUARD", None);
        stage.with_fault(FaultKind::KillReplica(0), |_| {});
        stage.fleet.replicas[0].await_ready();
        // It does not know the intent, and reads the key.
        stage.verify(0, key, 0);
        stage.watch(1, key, 2_000);
    });
}

/// Replica 1 learns of a change neither from the change feed nor from the change log, of which it reads only the end
/// afterwards.
pub fn fall_behind_the_change_log(stage: &mut Stage) {
    let key = stage.key(KeyInfo::default());
    stage.verify(1, key, 0);
    stage.fleet.replicas[1].redis.cut_feed();
    stage.with_fault(FaultKind::HolePostgres(1), |stage| {
        stage.caller.send(0, Action::Disable { key });
        stage.fleet.postgres.execute(
            "INSERT INTO changes (at, subject)
            SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT), 'key:' || n
            FROM generate_series(1, 100001) n",
        );
    });
    // Wait until it has read the change log.
    std::thread::sleep(Duration::from_secs(1));
    stage.watch(1, key, 1_500);
    stage.fleet.replicas[1].redis.mend();
}
