//! Two versions side by side: replicas of the version before are replaced one after the other, under load.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Executor as _, query_scalar};

use crate::alone;
use crate::caller::Shared;
use crate::fleet::{Fleet, Replica};
use crate::general::{inject, judge, run};
use crate::older::older;
use crate::record::Done;
use crate::schedule::{Fault, Kind, REPLICAS};
use crate::servers::block_on;

const LENGTH: Duration = Duration::from_secs(26);
/// How long two versions run side by side before the next replica is replaced.
const SIDE_BY_SIDE: Duration = Duration::from_secs(5);
/// The last schema migration that the version before knows.
const KNOWN_BEFORE: i64 = 16;

/// What a large installation has; nobody asks for these keys.
const FILL: &str = "
    INSERT INTO apis (id, workspace_id, name, created_at) VALUES ('api_many', 'ws_default', 'Many', 1);
    INSERT INTO keys (id, workspace_id, api_id, hash, start, byte_length, enabled, created_at)
        SELECT 'key_' || md5(n::TEXT), 'ws_default', 'api_many', 'hash_' || n, 'start', 16, TRUE, n
        FROM generate_series(1, 1000000) n;
    ANALYZE;";

#[test]
fn every_promise_is_kept_while_replicas_are_replaced_by_a_newer_version() {
    let _turn = alone();
    let program = older();
    let mut fleet = Fleet::prepare(REPLICAS);
    for replica in &mut fleet.replicas {
        replica.program = Some(program.clone());
        replica.start();
    }
    fleet.replicas.iter().for_each(Replica::await_ready);
    let postgres = fleet.postgres.url();
    let migrated = block_on(async {
        let mut connection = PgConnection::connect(&postgres).await.expect("Postgres");
        connection.execute(FILL).await.expect("a million keys");
        connection
    });
    drop(migrated);

    let run = run(&mut fleet, 1, LENGTH, replace_one_by_one);

    judge("every_promise_is_kept_while_replicas_are_replaced", &fleet, &run);
    refuses_a_newer_schema(&mut fleet, program);
}

fn replace_one_by_one(fleet: &mut Fleet, shared: &Shared) -> Vec<Done> {
    for replica in &mut fleet.replicas {
        replica.program = None;
    }
    let replacement = |replica| {
        let times = u32::try_from(replica).expect("a small number") + 1;
        let at = SIDE_BY_SIDE * times;
        Fault { at, lasts: Duration::from_millis(50), kind: Kind::ReplaceReplica(replica) }
    };
    let faults: Vec<_> = (0..REPLICAS).map(replacement).collect();
    inject(fleet, shared, &faults)
}

/// The version before does not start on a schema that it does not know.
fn refuses_a_newer_schema(fleet: &mut Fleet, older: std::path::PathBuf) {
    let postgres = fleet.postgres.url();
    let last: i64 = block_on(async {
        let mut connection = PgConnection::connect(&postgres).await.expect("Postgres");
        let last = query_scalar("SELECT MAX(version) FROM _sqlx_migrations");
        last.fetch_one(&mut connection).await.expect("the last migration")
    });
    fleet.replicas[0].stop();
    fleet.replicas[0].program = Some(older);
    if last > KNOWN_BEFORE {
        let told = fleet.replicas[0].refusal();
        assert!(told.contains("is newer than this keyward knows"), "{told}");
    } else {
        fleet.replicas[0].start();
        fleet.replicas[0].await_ready();
    }
}
