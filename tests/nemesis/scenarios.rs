//! Runs of their own, for what short faults at random do not reach.

use std::time::Duration;

use foundation::clock::{Clock, Timestamp};

use crate::alone;
use crate::caller::Shared;
use crate::check;
use crate::fleet::{Fleet, Replica};
use crate::general::{inject, is_long, judge, run, sleep_until};
use crate::record::{Asked, Done, Run};
use crate::schedule::{Fault, Kind, REPLICAS};

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// How many replicas there are at most.
const MANY: usize = 5;
/// How long it takes from one to all of them and back.
const TIDE: Duration = Duration::from_secs(22);

#[test]
fn every_promise_is_kept_while_replicas_come_and_go() {
    let _turn = alone();
    let mut fleet = Fleet::prepare(MANY);
    fleet.replicas[0].start();
    fleet.replicas[0].await_ready();
    let tides = if is_long() { 6 } else { 1 };

    let run = run(&mut fleet, 2, TIDE * tides, |fleet, shared| {
        (0..tides).flat_map(|tide| come_and_go(fleet, shared, TIDE * tide)).collect()
    });

    judge("every_promise_is_kept_while_replicas_come_and_go", &fleet, &run);
}

/// One replica more every two seconds, and then one less.
fn come_and_go(fleet: &mut Fleet, shared: &Shared, since: Duration) -> Vec<Done> {
    let away = |replica, began, ended| {
        let fault = Fault { at: began, lasts: Duration::ZERO, kind: Kind::ReplaceReplica(replica) };
        Done { fault, began, ended }
    };
    let mut done = Vec::new();
    for (at, replica) in (1..MANY).enumerate() {
        sleep_until(
            shared,
            shared.loaded + since + seconds(2) * u32::try_from(at + 1).expect("few"),
        );
        fleet.replicas[replica].start();
        fleet.replicas[replica].await_ready();
        // Until then it was not there.
        done.push(away(replica, Duration::ZERO, shared.began.elapsed()));
    }
    for (at, replica) in (1..MANY).rev().enumerate() {
        let later = seconds(2) * u32::try_from(at + MANY + 1).expect("few");
        sleep_until(shared, shared.loaded + since + later);
        let began = shared.began.elapsed();
        fleet.replicas[replica].stop();
        done.push(away(replica, began, Duration::MAX / 2));
    }
    done
}

/// The grace of cached keys, and what outlasts it.
const GRACE: Duration = Duration::from_secs(8);

#[test]
fn every_promise_is_kept_through_cuts_that_outlast_each_bound() {
    let _turn = alone();
    let mut fleet = Fleet::prepare(REPLICAS);
    for replica in &mut fleet.replicas {
        replica.set("KEYWARD_DATABASE_GRACE_SECONDS", Some(&GRACE.as_secs().to_string()));
        replica.start();
    }
    fleet.replicas.iter().for_each(Replica::await_ready);
    let rounds = if is_long() { 5 } else { 1 };
    let cut = |at, lasts, kind| Fault { at: seconds(at), lasts: seconds(lasts), kind };
    let mut faults = Vec::new();
    for round in 0..rounds {
        let at = 2 + 44 * round;
        faults.extend([
            cut(at, 13, Kind::CutPostgres(1)),
            cut(at + 1, 9, Kind::CutRedis(0)),
            cut(at + 16, 9, Kind::Isolate(2)),
            cut(at + 17, 7, Kind::StopReplica(0)),
            cut(at + 28, 12, Kind::HolePostgres(0)),
            cut(at + 29, 9, Kind::CutFeed(1)),
        ]);
    }
    let length = seconds(2 + 44 * rounds);

    let run = run(&mut fleet, 3, length, |fleet, shared| inject(fleet, shared, &faults));

    let run = Run { database_grace: Some(GRACE), ..run };
    judge("every_promise_is_kept_through_cuts_that_outlast_each_bound", &fleet, &run);
}

/// What happens while a replica hears no announcement, and how many seconds each lasts. The lock lasts longer than anything is trusted
/// without a proof.
const BESIDE_A_CUT_FEED: [(Kind, u64); 5] = [
    (Kind::DemoteRedis, 1),
    (Kind::FillRedis, 2),
    (Kind::FlushScripts, 1),
    (Kind::SlowPostgres(1), 2),
    (Kind::LockPostgres, 6),
];

#[test]
fn every_promise_is_kept_through_each_fault_while_a_feed_is_cut() {
    let _turn = alone();
    let mut fleet = Fleet::start(0);
    let fault = |at, lasts, kind| Fault { at: seconds(at), lasts: seconds(lasts), kind };
    let (mut faults, mut at) = (Vec::new(), 2);
    for _ in 0..if is_long() { 8 } else { 1 } {
        // A second master only where there is time.
        let split = is_long().then_some((Kind::SplitRedis(2), 3));
        for (kind, lasts) in BESIDE_A_CUT_FEED.into_iter().chain(split) {
            faults.push(fault(at, lasts + 2, Kind::CutFeed(1)));
            faults.push(fault(at + 1, lasts, kind));
            at += lasts + 3;
        }
    }

    let run = run(&mut fleet, 5, seconds(at + 1), |fleet, shared| inject(fleet, shared, &faults));

    judge("every_promise_is_kept_through_each_fault_while_a_feed_is_cut", &fleet, &run);
}

/// How long before midnight the servers start, and how long after it the load ends.
const BEFORE: i64 = 30;
const AFTER: Duration = Duration::from_secs(6);

#[test]
fn credits_are_refilled_once_when_the_day_begins_under_load() {
    let _turn = alone();
    let mut midnight = 0;
    let mut fleet = Fleet::prepare_ahead(REPLICAS, || {
        let Timestamp(now) = Clock::System.now();
        midnight = now + BEFORE * 1_000;
        (DAY_MS - now.rem_euclid(DAY_MS)) / 1_000 - BEFORE
    });
    fleet.replicas.iter_mut().for_each(Replica::start);
    fleet.replicas.iter().for_each(Replica::await_ready);

    let run = run(&mut fleet, 4, Duration::ZERO, |_, shared| {
        let until = u64::try_from(midnight - shared.began_unix_ms).expect("it is not over yet");
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
    for (key, facts) in run.keys.iter().enumerate() {
        let Some(refill) = facts.refill else { continue };
        let spent: i64 = run
            .acts
            .iter()
            .filter(|act| act.is_valid())
            .filter_map(|act| match act.asked {
                Asked::Verify { key: asked, cost } if asked == key => Some(cost),
                _ => None,
            })
            .sum();
        assert!(spent > refill, "key {}: {spent} were spent of {refill} a day", facts.id);
    }
}
