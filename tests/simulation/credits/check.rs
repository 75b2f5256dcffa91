//! Checks that no credits are spent that were not granted, and that none are lost.

use std::collections::BTreeMap;
use std::time::Duration;

use foundation::id::KeyId;
use limiter::LeaseStatus;

use super::database::Database;
use super::replica::Request;
use crate::executor::{Node, Sim};

#[derive(Default)]
pub struct Checker {
    keys: BTreeMap<KeyId, KeyTotals>,
    last_request: u64,
    /// The requests without an answer, each with what Redis and the database have spent for it.
    open_requests: BTreeMap<u64, (Request, i64)>,
    /// The replicas that crash when they commit or, with a duration, that commit only after it.
    pub commit_faults: BTreeMap<Node, Option<Duration>>,
    /// The process that runs on each node, and until when it was paused.
    pub processes: BTreeMap<Node, String>,
    pub paused_until_us: BTreeMap<Node, u64>,
    pub summary: Summary,
}

/// What a schedule did in which every guarantee held.
#[derive(Debug, Clone, Copy, Default)]
pub struct Summary {
    pub valid: u64,
    /// The VALID answers for which the account was debited without Redis.
    pub debited: u64,
    pub rejected: u64,
    pub failed: u64,
}

/// The credits of a key since its balance was last set.
#[derive(Default)]
struct KeyTotals {
    granted: i64,
    /// What Redis and the database have spent, whether or not its caller received an answer.
    spent: i64,
    /// What was spent for VALID answers.
    valid: i64,
}

impl Checker {
    pub fn begin_request(&mut self, node: Node, key: &KeyId, cost: i64) -> Request {
        self.last_request += 1;
        let request = Request { number: self.last_request, node, key: key.clone(), cost };
        self.open_requests.insert(request.number, (request.clone(), 0));
        request
    }

    /// Records that Redis or the database has spent the cost of a request.
    pub fn record_spend(&mut self, request: &Request) {
        self.keys.entry(request.key.clone()).or_default().spent += request.cost;
        if let Some((_, spent)) = self.open_requests.get_mut(&request.number) {
            *spent += request.cost;
        }
    }

    /// Records the answer to a request. `is_valid` is absent if it failed.
    pub fn end_request(
        &mut self,
        sim: &Sim,
        database: &Database,
        request: &Request,
        is_valid: Option<bool>,
    ) {
        let Some((_, spent)) = self.open_requests.remove(&request.number) else { return };
        match is_valid {
            Some(true) => {
                self.summary.valid += 1;
                self.keys.entry(request.key.clone()).or_default().valid += request.cost;
                if spent < request.cost {
                    sim.fail(format!("a VALID answer for which nothing was spent: {request:?}"));
                }
                self.check_database(sim, database);
            }
            Some(false) => self.summary.rejected += 1,
            None => self.summary.failed += 1,
        }
    }

    /// Forgets the requests of a process that has ended: they are never answered.
    pub fn end_process(&mut self, node: Node) {
        self.processes.remove(&node);
        self.open_requests.retain(|_, (request, _)| request.node != node);
    }

    /// Records that credits were added to a balance.
    pub fn record_increment(&mut self, key: &KeyId, value: i64) {
        self.keys.entry(key.clone()).or_default().granted += value;
    }

    /// Records that a balance was set. Only what is already spent may be answered VALID from before.
    pub fn record_set(&mut self, key: &KeyId, balance: i64) {
        let open = self.open_requests.values().filter(|(request, _)| request.key == *key);
        let open: i64 = open.map(|(_, spent)| spent).sum();
        let totals = self.keys.entry(key.clone()).or_default();
        totals.spent = totals.valid + open;
        totals.granted = totals.spent + balance;
    }

    /// Checks what the database stores after a commit or a VALID answer.
    pub fn check_database(&self, sim: &Sim, database: &Database) {
        for (key, credits) in &database.accounts {
            let KeyTotals { granted, valid, .. } = self.keys[key];
            if credits.balance < 0 {
                sim.fail(format!("negative balance: {key:?} has {}", credits.balance));
            }
            if valid + credits.balance > granted {
                sim.fail(format!(
                    "over-granted: {key:?} has {} of {granted} credits left, and {valid} were spent",
                    credits.balance,
                ));
            }
        }
    }

    /// Checks that a transaction is not retried for longer than a second, unless its process was paused meanwhile.
    pub fn check_retry(&self, sim: &Sim, node: Node, began_us: u64) {
        let (now_us, pause_max_us) = (sim.now_us(), 160_000);
        let paused_until_us = self.paused_until_us.get(&node).copied().unwrap_or(0);
        if now_us > began_us.max(paused_until_us) + 1_000_000 + pause_max_us {
            sim.fail(format!(
                "late retry, {} ms after the first attempt",
                (now_us - began_us) / 1_000
            ));
        }
    }

    /// Checks that every credit is accounted for, after all leases were closed.
    pub fn check_end(&self, sim: &Sim, database: &Database) {
        for (key, credits) in &database.accounts {
            let KeyTotals { granted, spent, .. } = self.keys[key];
            let mut withheld = 0;
            for lease in database.leases_of(key) {
                let unreported = database.list_unreported_by(key, lease.lease_number);
                let is_live = |id: &String| self.processes.values().any(|live| live == id);
                if lease.withheld_at.is_none() || !unreported.iter().any(|id| !is_live(id)) {
                    sim.fail(format!(
                        "a lease is left, which {unreported:?} must report: {lease:?}"
                    ));
                }
                withheld += lease.unspent_units();
            }
            if granted > spent + withheld + credits.balance {
                sim.fail(format!(
                    "lost credits: {key:?} was granted {granted}, of which {spent} were spent, \
                     {withheld} are withheld, and {} are left",
                    credits.balance,
                ));
            }
        }
    }
}

/// Checks the bound on leased credits after a top-up for a request of this cost.
pub fn check_leased(sim: &Sim, database: &Database, key: &KeyId, cost: i64) {
    let leased: i64 = database.leases_of(key).map(foundation::model::Lease::unspent_units).sum();
    let left = database.accounts[key].balance + leased;
    if leased > (left / 10).max(cost) {
        sim.fail(format!("too much leased: {leased} of the {left} credits of {key:?}"));
    }
}

/// Checks that a lease holds no more in Redis than was debited for it, unless it has ended.
pub fn check_granted(
    sim: &Sim,
    database: &Database,
    (key, lease_number): (&KeyId, i64),
    status: LeaseStatus,
) {
    let Some((_, lease)) = database.leases.get(&(key.clone(), lease_number)) else { return };
    let held = status.units + status.spent_units;
    if !lease.is_ended()
        && lease.redis_generation == status.redis_generation
        && held > lease.granted
    {
        sim.fail(format!("over-granted: {held} credits were added to {lease:?} of {key:?}"));
    }
}
