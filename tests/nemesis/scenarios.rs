//! Runs scenarios that short random faults do not cover.

use std::time::Duration;

use foundation::clock::{Clock, Timestamp};

use crate::acquire_turn;
use crate::caller::Shared;
use crate::check;
use crate::fleet::{Fleet, Replica};
use crate::random_faults::{assert_guarantees_hold, inject, is_long, run, sleep_until};
use crate::record::{Action, InjectedFault, Run};
use crate::schedule::{Fault, FaultKind, REPLICAS};

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The maximum number of replicas.
const REPLICAS_MAX: usize = 5;
/// How long it takes to grow from one replica to all of them and back.
const SCALING_DURATION: Duration = Duration::from_secs(22);

#[test]
fn guarantees_hold_when_replicas_are_added_and_removed() {
    let _turn = acquire_turn();
    let mut fleet = Fleet::prepare(REPLICAS_MAX);
    fleet.replicas[0].start();
    fleet.replicas[0].await_ready();
    let tides = if is_long() { 6 } else { 1 };

    let run = run(&mut fleet, 2, SCALING_DURATION * tides, |fleet, shared| {
        (0..tides)
            .flat_map(|tide| scale_up_and_down(fleet, shared, SCALING_DURATION * tide))
            .collect()
    });

    assert_guarantees_hold("guarantees_hold_when_replicas_are_added_and_removed", &fleet, &run);
}

/// Adds one replica every two seconds, and then removes one at a time.
fn scale_up_and_down(fleet: &mut Fleet, shared: &Shared, since: Duration) -> Vec<InjectedFault> {
    let absence = |replica, began, ended| {
        let fault =
            Fault { at: began, duration: Duration::ZERO, kind: FaultKind::ReplaceReplica(replica) };
        InjectedFault { fault, began, ended }
    };
    let mut injected = Vec::new();
    for (at, replica) in (1..REPLICAS_MAX).enumerate() {
        sleep_until(
            shared,
            shared.loaded + since + seconds(2) * u32::try_from(at + 1).expect("few"),
        );
        fleet.replicas[replica].start();
        fleet.replicas[replica].await_ready();
        // Until then it was not running.
        injected.push(absence(replica, Duration::ZERO, shared.began.elapsed()));
    }
    for (at, replica) in (1..REPLICAS_MAX).rev().enumerate() {
        let later = seconds(2) * u32::try_from(at + REPLICAS_MAX + 1).expect("few");
        sleep_until(shared, shared.loaded + since + later);
        let began = shared.began.elapsed();
        fleet.replicas[replica].stop();
        injected.push(absence(replica, began, Duration::MAX / 2));
    }
    injected
}

/// The grace period of cached keys, and a duration that outlasts it.
const GRACE: Duration = Duration::from_secs(8);

#[test]
fn guarantees_hold_when_cuts_outlast_each_bound() {
    let _turn = acquire_turn();
    let mut fleet = Fleet::prepare(REPLICAS);
    for replica in &mut fleet.replicas {
        replica.set("KEYWARD_DATABASE_GRACE_SECONDS", Some(&GRACE.as_secs().to_string()));
        replica.start();
    }
    fleet.replicas.iter().for_each(Replica::await_ready);
    let rounds = if is_long() { 5 } else { 1 };
    let cut = |at, duration, kind| Fault { at: seconds(at), duration: seconds(duration), kind };
    let mut faults = Vec::new();
    for round in 0..rounds {
        let at = 2 + 44 * round;
        faults.extend([
            cut(at, 13, FaultKind::CutPostgres(1)),
            cut(at + 1, 9, FaultKind::CutRedis(0)),
            cut(at + 16, 9, FaultKind::Isolate(2)),
            cut(at + 17, 7, FaultKind::StopReplica(0)),
            cut(at + 28, 12, FaultKind::HolePostgres(0)),
            cut(at + 29, 9, FaultKind::CutFeed(1)),
        ]);
    }
    let length = seconds(2 + 44 * rounds);

    let run = run(&mut fleet, 3, length, |fleet, shared| inject(fleet, shared, &faults));

    let run = Run { database_grace: Some(GRACE), ..run };
    assert_guarantees_hold("guarantees_hold_when_cuts_outlast_each_bound", &fleet, &run);
}

/// The faults that occur while a replica's change feed is cut, and how many seconds each lasts. The lock lasts longer
/// than any cached value is trusted without proof.
const FAULTS_WITH_CUT_FEED: [(FaultKind, u64); 5] = [
    (FaultKind::DemoteRedis, 1),
    (FaultKind::FillRedis, 2),
    (FaultKind::FlushScripts, 1),
    (FaultKind::SlowPostgres(1), 2),
    (FaultKind::LockPostgres, 6),
];

#[test]
fn guarantees_hold_when_a_feed_is_cut_during_each_fault() {
    let _turn = acquire_turn();
    let mut fleet = Fleet::start(0);
    let fault = |at, duration, kind| Fault { at: seconds(at), duration: seconds(duration), kind };
    let (mut faults, mut at) = (Vec::new(), 2);
    for _ in 0..if is_long() { 8 } else { 1 } {
        // A second master only in long runs.
        let split = is_long().then_some((FaultKind::SplitRedis(2), 3));
        for (kind, duration) in FAULTS_WITH_CUT_FEED.into_iter().chain(split) {
            faults.push(fault(at, duration + 2, FaultKind::CutFeed(1)));
            faults.push(fault(at + 1, duration, kind));
            at += duration + 3;
        }
    }

    let run = run(&mut fleet, 5, seconds(at + 1), |fleet, shared| inject(fleet, shared, &faults));

    assert_guarantees_hold("guarantees_hold_when_a_feed_is_cut_during_each_fault", &fleet, &run);
}

/// How long before midnight the servers start, and how long after it the load ends.
const BEFORE: i64 = 30;
const AFTER: Duration = Duration::from_secs(6);

#[test]
fn credits_are_refilled_once_when_the_day_starts_under_load() {
    let _turn = acquire_turn();
    let mut midnight = 0;
    let mut fleet = Fleet::prepare_ahead(REPLICAS, || {
        let Timestamp(now) = Clock::System.now();
        midnight = now + BEFORE * 1_000;
        (DAY_MS - now.rem_euclid(DAY_MS)) / 1_000 - BEFORE
    });
    fleet.replicas.iter_mut().for_each(Replica::start);
    fleet.replicas.iter().for_each(Replica::await_ready);

    let run = run(&mut fleet, 4, Duration::ZERO, |_, shared| {
        let until =
            u64::try_from(midnight - shared.began_unix_ms).expect("midnight is still ahead");
        let until = Duration::from_millis(until);
        assert!(
            shared.loaded < until,
            "the servers were too slow: the day had begun before the load"
        );
        sleep_until(shared, until + AFTER);
        Vec::new()
    });

    let run = Run { days: 1, ..run };
    for finding in [check::credits::check(&run), check::changes::check(&run)] {
        assert!(finding.violations.is_empty(), "{finding:#?}");
    }
    for (key, info) in run.keys.iter().enumerate() {
        let Some(refill) = info.refill else { continue };
        let spent: i64 = run
            .calls
            .iter()
            .filter(|call| call.is_valid())
            .filter_map(|call| match call.action {
                Action::Verify { key: verified, cost } if verified == key => Some(cost),
                _ => None,
            })
            .sum();
        assert!(spent > refill, "key {}: {spent} were spent of {refill} a day", info.id);
    }
}
