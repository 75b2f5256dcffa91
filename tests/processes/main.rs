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
mod gateway_bodies;
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
mod traces;
mod turn;
mod wrong_clocks;

use turn::{SLACK_SECONDS, acquire_turn, share_turn};
