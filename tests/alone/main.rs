//! What is told by the clock on the wall: one test at a time, in a binary of their own, which cargo
//! runs when the others are done.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "the other binary uses the rest of the house")]
mod support;

mod backup;
#[path = "../support/client.rs"]
mod client;
mod cluster;
mod embedded;
#[path = "../nemesis/servers.rs"]
#[expect(dead_code, reason = "the other binary uses the rest")]
mod engines;
mod faults;
mod feed;
mod full;
mod import;
mod leases;
mod limits;
#[path = "../nemesis/proxy.rs"]
#[expect(dead_code, reason = "the other binary uses the rest")]
mod proxy;
mod queries;
mod replicas;
mod rolling;
mod servers;
mod slow;
mod stage;
mod starts;
mod upgrades;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by each test while it runs.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
