//! The proof: replicas, Postgres and Redis as real processes, under concurrent load, with faults from a seed, and a
//! check of every answer that was given. `./test nemesis --minutes 30` runs it for longer, `--seed N` once more.

#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "the other binary uses the rest of the house")]
mod support;

mod caller;
mod check;
#[path = "../support/client.rs"]
mod client;
mod ending;
mod fleet;
mod general;
mod leases;
mod load;
#[path = "../support/older.rs"]
mod older;
mod proxy;
mod record;
mod report;
mod sabotage;
mod scenarios;
mod schedule;
mod servers;
mod standby;
mod upgrade;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by each test that measures time while it runs.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
