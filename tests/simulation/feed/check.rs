//! Checks what each replica serves against what was committed before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use store::freshness::ReadVersion;

use super::database::{CommittedValue, Database};
use super::replica::Replica;
use crate::executor::{Node, Sim, lock};

/// The maximum time until a change is seen by every replica that reaches the database.
const HEALTHY_MAX_US: u64 = 1_000_000;
/// The maximum time for which any replica trusts what it has read.
const ANY_MAX_US: u64 = 5_000_000;
/// How long after a fault a replica counts as healthy again.
const RECOVERY_MAX_US: u64 = 3_000_000;
const PROBE_INTERVAL: Duration = Duration::from_millis(5);

/// What a fault affects, and when.
struct Disturbance {
    node: Node,
    /// The replica may neither be reached by the database nor run.
    is_severe: bool,
    from_us: u64,
    /// Absent while it lasts.
    until_us: Option<u64>,
}

#[derive(Default)]
pub struct Checker {
    /// When each process acknowledged the values of the keys that it has changed.
    acknowledged_us: BTreeMap<(String, usize, i64), u64>,
    /// The replicas that crash when they commit or, with a duration, that commit only after it.
    pub commit_faults: BTreeMap<Node, Option<Duration>>,
    disturbances: Vec<Disturbance>,
    /// The replicas that serve.
    pub replicas: BTreeMap<Node, Arc<Replica>>,
    /// How long it took until a replica without any fault has seen a change.
    pub delays_us: Vec<u64>,
    pub served: u64,
    pub rejected: u64,
}

impl Checker {
    /// Records the begin of a fault of a replica. `is_severe`: it may lose the database, or not run.
    pub fn begin_disturbance(&mut self, sim: &Sim, node: Node, is_severe: bool) -> usize {
        let from_us = sim.now_us();
        self.disturbances.push(Disturbance { node, is_severe, from_us, until_us: None });
        self.disturbances.len() - 1
    }

    pub fn end_disturbance(&mut self, sim: &Sim, number: usize) {
        self.disturbances[number].until_us = Some(sim.now_us());
    }

    /// Returns whether no fault affected a replica, counting severe ones only or all.
    fn is_healthy(&self, node: Node, (from_us, to_us): (u64, u64), only_severe: bool) -> bool {
        self.disturbances.iter().all(|fault| {
            let until_us = fault.until_us.map_or(u64::MAX, |until_us| until_us + RECOVERY_MAX_US);
            let is_outside = to_us < fault.from_us || until_us < from_us;
            fault.node != node || is_outside || (only_severe && !fault.is_severe)
        })
    }

    /// Records a change that a replica acknowledges now, and observes when each other replica sees it. `version` was
    /// taken before the change.
    pub fn record_change(&mut self, writer: &Replica, key: usize, value: i64, own: ReadVersion) {
        let at_us = writer.sim.now_us();
        self.acknowledged_us.insert((writer.id.clone(), key, value), at_us);
        if writer.is_fresh(own, key) {
            let id = &writer.id;
            writer.sim.fail(format!("stale value, its own change: {id} may serve key {key}"));
        }
        if !self.is_healthy(writer.node, (at_us, at_us), false) {
            return;
        }
        let others = self.replicas.values().filter(|other| other.id != writer.id);
        for other in others.filter(|other| self.is_healthy(other.node, (at_us, at_us), false)) {
            let (other, checker) = (other.clone(), writer.checker());
            other.sim.clone().spawn(other.node, async move {
                let has_older = |cached: Option<i64>| cached.is_some_and(|cached| cached < value);
                if !has_older(other.cached_value(key).await) {
                    return;
                }
                while has_older(other.cached_value(key).await) {
                    other.sim.sleep(PROBE_INTERVAL).await;
                }
                let seen_us = other.sim.now_us();
                let mut checker = lock(&checker);
                if checker.is_healthy(other.node, (at_us, seen_us), false) {
                    checker.delays_us.push(seen_us - at_us);
                }
            });
        }
    }

    /// Checks the value of a key that a replica has served for a request that began at `began_us`.
    pub fn check_served(
        &mut self,
        replica: &Replica,
        database: &Database,
        (key, value): (usize, i64),
        began_us: u64,
    ) {
        self.served += 1;
        for change in database.history.get(&key).into_iter().flatten().rev() {
            if change.value <= value {
                break;
            }
            let own = (change.writer.clone(), key, change.value);
            let acknowledged_us = self.acknowledged_us.get(&own).copied().unwrap_or(u64::MAX);
            let healthy_period = (change.at_us, change.at_us + HEALTHY_MAX_US);
            if change.writer == replica.id && began_us > acknowledged_us {
                return fail(replica, (key, value), change, "its own change");
            }
            if began_us > change.at_us + ANY_MAX_US {
                return fail(replica, (key, value), change, "without proof for 5 seconds");
            }
            if began_us > change.at_us + HEALTHY_MAX_US
                && self.is_healthy(replica.node, healthy_period, true)
            {
                return fail(replica, (key, value), change, "beside a reachable database");
            }
        }
    }
}

/// Ends the run, because a replica has served an old value of a key.
fn fail(replica: &Replica, (key, value): (usize, i64), change: &CommittedValue, which: &str) {
    let CommittedValue { value: newer, at_us, writer } = change;
    let age_ms = (replica.sim.now_us() - at_us) / 1_000;
    replica.sim.fail(format!(
        "stale value, {which}: {} served value {value} of key {key}, {age_ms} ms after {writer} had committed {newer}",
        replica.id,
    ));
}
