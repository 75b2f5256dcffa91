//! Tests two versions side by side: replicas of the previous version are replaced one after the other under load.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Executor as _, query_scalar};

use crate::acquire_turn;
use crate::caller::Shared;
use crate::fleet::{Fleet, Replica};
use crate::random_faults::{assert_guarantees_hold, inject, run};
use crate::record::InjectedFault;
use crate::schedule::{Fault, FaultKind, REPLICAS};
use crate::servers::block_on;

const LOAD_DURATION: Duration = Duration::from_secs(26);
/// How long two versions run side by side before the next replica is replaced.
const SIDE_BY_SIDE: Duration = Duration::from_secs(5);
/// The last schema migration that the previous version knows.
const LAST_KNOWN_MIGRATION: i64 = 16;

/// Keys that are migrated under load, which takes seconds; they are never verified. What the migration of a million keys costs
/// the replicas, `tests/processes/schema_migrations.rs` measures.
const FILL: &str = "
    INSERT INTO apis (id, workspace_id, name, created_at) VALUES ('api_many', 'ws_default', 'Many', 1);
    INSERT INTO keys (id, workspace_id, api_id, hash, start, byte_length, enabled, created_at)
        SELECT 'key_' || md5(n::TEXT), 'ws_default', 'api_many', 'hash_' || n, 'start', 16, TRUE, n
        FROM generate_series(1, 200000) n;
    ANALYZE;";

#[test]
fn guarantees_hold_when_replicas_are_replaced_by_a_newer_version() {
    let _turn = acquire_turn();
    let program = previous_binary();
    let mut fleet = Fleet::prepare(REPLICAS);
    for replica in &mut fleet.replicas {
        replica.program = Some(program.clone());
        replica.start();
    }
    fleet.replicas.iter().for_each(Replica::await_ready);
    let postgres = fleet.postgres.url();
    let migrated = block_on(async {
        let mut connection = PgConnection::connect(&postgres).await.expect("Postgres");
        connection.execute(FILL).await.expect("the keys");
        connection
    });
    drop(migrated);

    let run = run(&mut fleet, 1, LOAD_DURATION, replace_one_by_one);

    assert_guarantees_hold(
        "guarantees_hold_when_replicas_are_replaced_by_a_newer_version",
        &fleet,
        &run,
    );
    assert_newer_schema_is_rejected(&mut fleet, program);
}

/// Returns the binary of the previous version, which is built if necessary.
fn previous_binary() -> PathBuf {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nemesis/previous-version");
    let output = Command::new(script).stdin(Stdio::null()).output().expect("the script runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a path").trim_end().into()
}

fn replace_one_by_one(fleet: &mut Fleet, shared: &Shared) -> Vec<InjectedFault> {
    for replica in &mut fleet.replicas {
        replica.program = None;
    }
    let replacement = |replica| {
        let times = u32::try_from(replica).expect("a small number") + 1;
        let at = SIDE_BY_SIDE * times;
        Fault { at, duration: Duration::from_millis(50), kind: FaultKind::ReplaceReplica(replica) }
    };
    let faults: Vec<_> = (0..REPLICAS).map(replacement).collect();
    inject(fleet, shared, &faults)
}

/// Checks that the previous version does not start with a schema that it does not know.
fn assert_newer_schema_is_rejected(fleet: &mut Fleet, program: PathBuf) {
    let postgres = fleet.postgres.url();
    let last: i64 = block_on(async {
        let mut connection = PgConnection::connect(&postgres).await.expect("Postgres");
        let last = query_scalar("SELECT MAX(version) FROM _sqlx_migrations");
        last.fetch_one(&mut connection).await.expect("the last migration")
    });
    fleet.replicas[0].stop();
    fleet.replicas[0].program = Some(program);
    if last > LAST_KNOWN_MIGRATION {
        let message = fleet.replicas[0].start_error();
        assert!(message.contains("is newer than this keyward"), "{message}");
    } else {
        fleet.replicas[0].start();
        fleet.replicas[0].await_ready();
    }
}
