//! Tests the guarantees with replicas, Postgres and Redis as real processes under concurrent load, with faults from a
//! seed and a check of every reply. `./test nemesis --minutes 30` runs longer, `--seed N` repeats a run.

#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "another test binary uses the rest")]
mod support;

mod caller;
mod check;
#[path = "../support/client.rs"]
#[expect(dead_code, reason = "another test binary uses the rest")]
mod client;
mod draw;
mod final_state;
mod fleet;
mod load;
mod lock;
mod probes;
mod proxy;
mod random_faults;
mod read_replica;
mod record;
mod redis_pair;
mod regions;
mod replica;
mod report;
mod rolling_upgrade;
mod safeguards;
mod scenarios;
mod schedule;
mod servers;
mod standby;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Acquires the lock that each test that measures time holds while it runs.
fn acquire_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
