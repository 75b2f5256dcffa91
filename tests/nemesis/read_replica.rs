//! Runs a fleet in which two of three replicas read from a standby that lags, and hangs, while replicas are killed.

use std::time::Duration;

use crate::acquire_turn;
use crate::caller::Shared;
use crate::fleet::{Fleet, Replica};
use crate::proxy::{LinkState, Proxy};
use crate::random_faults::{assert_guarantees_hold, inject, is_long, run, sleep_until};
use crate::schedule::{Fault, FaultKind, REPLICAS};
use crate::servers::{self, Postgres};
use crate::support::process::get;

/// How long one round of faults takes.
const ROUND: Duration = Duration::from_secs(22);

/// When the replication is in which state, since the beginning of a round, in milliseconds.
const REPLICATION: [(u64, LinkState); 4] = [
    (2_000, LinkState::Slow(Duration::from_millis(150))),
    (8_000, LinkState::Hole),
    (9_500, LinkState::Slow(Duration::from_millis(20))),
    (12_000, LinkState::Open),
];
/// When the standby is stopped, and when it continues.
const STOPPED_MS: [u64; 2] = [17_000, 18_500];

#[test]
fn guarantees_hold_when_replicas_read_from_a_standby_that_lags() {
    let _turn = acquire_turn();
    let mut fleet = Fleet::prepare(REPLICAS);
    fleet.replicas[0].start();
    fleet.replicas[0].await_ready();
    let (directory, link) = (servers::directory(), Proxy::to(fleet.postgres.address()));
    let standby = fleet.postgres.start_standby(directory.path(), link.address);
    for replica in &mut fleet.replicas[1..] {
        replica.set("KEYWARD_DATABASE_READ_URL", Some(&standby.url()));
        replica.start();
    }
    fleet.replicas.iter().for_each(Replica::await_ready);
    let rounds = if is_long() { 10 } else { 1 };
    let fault = |at, ms, kind| Fault {
        at: Duration::from_millis(at),
        duration: Duration::from_millis(ms),
        kind,
    };
    // A replica that was killed has cached nothing.
    let faults: Vec<_> = (0..rounds)
        .flat_map(|round| {
            let faults = [
                fault(3_000, 300, FaultKind::KillReplica(1)),
                fault(8_200, 300, FaultKind::KillReplica(2)),
                fault(13_000, 3_000, FaultKind::CutPostgres(1)),
                fault(16_500, 300, FaultKind::KillReplica(2)),
            ];
            faults.map(|fault| Fault { at: fault.at + ROUND * round, ..fault })
        })
        .collect();

    let run = run(&mut fleet, 6, ROUND * rounds, |fleet, shared| {
        std::thread::scope(|scope| {
            scope.spawn(|| disturb(shared, &standby, &link, rounds));
            inject(fleet, shared, &faults)
        })
    });

    assert_guarantees_hold(
        "guarantees_hold_when_replicas_read_from_a_standby_that_lags",
        &fleet,
        &run,
    );
    for replica in &fleet.replicas[1..] {
        assert!(served(replica) > 0, "the standby has served nothing");
    }
}

/// Delays and stops the replication, and stops the standby.
fn disturb(shared: &Shared, standby: &Postgres, link: &Proxy, rounds: u32) {
    for round in 0..rounds {
        let wait = |ms| {
            sleep_until(shared, shared.loaded + ROUND * round + Duration::from_millis(ms));
        };
        for (at, state) in REPLICATION {
            wait(at);
            link.set(state, state);
        }
        for (at, signal) in STOPPED_MS.into_iter().zip(["STOP", "CONT"]) {
            wait(at);
            standby.signal(signal);
        }
    }
}

/// Returns how many rows the standby has served to a replica since it was started.
fn served(replica: &Replica) -> u64 {
    let (_, metrics) = get(replica.address, "/metrics").expect("a reply");
    let sample = "keyward_read_replica_loads_total{result=\"served\"} ";
    let value = metrics.lines().find_map(|line| line.strip_prefix(sample)).expect("the metric");
    value.parse().expect("a number")
}
