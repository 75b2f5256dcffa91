//! Tests that depend on real time, in their own binary, which cargo runs after the other tests.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "another test binary uses the rest")]
mod support;

mod backup;
mod change_feed;
#[path = "../support/client.rs"]
mod client;
mod cluster;
mod embedded;
#[path = "../nemesis/servers.rs"]
#[expect(dead_code, reason = "another test binary uses the rest")]
mod engines;
mod faults;
mod grpc_floods;
mod import;
mod leases;
mod limits;
#[path = "../nemesis/proxy.rs"]
#[expect(dead_code, reason = "another test binary uses the rest")]
mod proxy;
mod query_memory;
mod read_replica;
mod regions;
mod replicas;
mod rolling_restart;
mod schema_migrations;
mod schema_upgrade;
mod sentinel;
mod server_tls;
mod servers;
mod slow_clients;
mod stage;
mod startup;
mod storage_full;
mod tls;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TURN: RwLock<()> = RwLock::new(());

/// Acquires the lock that each test holds while it runs which loads the machine, or measures less than a second.
fn acquire_turn() -> RwLockWriteGuard<'static, ()> {
    TURN.write().unwrap_or_else(PoisonError::into_inner)
}

/// Acquires the lock that each other test holds while it runs. These mostly wait, and run at the same time.
fn share_turn() -> RwLockReadGuard<'static, ()> {
    TURN.read().unwrap_or_else(PoisonError::into_inner)
}
