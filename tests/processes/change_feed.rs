//! Tests that a change is visible on every replica in time, whatever the replica has lost: a change that a replica
//! could not learn of is not acknowledged, or the replica does not trust its cache. Real processes.

use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};
use sqlx::Executor as _;
use sqlx::postgres::PgConnection;

use crate::faults::ROOT_KEY;
use crate::stage::{Key, Replica, Stage, begin_transaction};
use crate::support::process::{get, v2};
use crate::{SLACK_SECONDS, acquire_turn, share_turn};

/// Seconds that exceed the interval at which a replica lists the transactions that write to the change log, and the
/// minimum age at which it looks up a missing row.
const COMMIT_DELAY_SECONDS: f32 = 33.0;

#[test]
fn change_returns_503_and_is_not_made_when_a_replica_could_not_learn_of_it() {
    let _turn = share_turn();
    let stage = Stage::new();
    let (reader, writer) = stage.pair();
    let key = writer.create_key();
    reader.assert_code(&key, "VALID");

    reader.postgres.cut();
    writer.redis.cut();
    let refused = writer.disable(&key);
    reader.assert_code_stays(&key, "VALID", 6.0);
    writer.assert_code(&key, "VALID");
    writer.redis.mend();
    let since = Stopwatch::new();
    while writer.disable(&key) != 200 {
        assert!(since.elapsed() < Duration::from_secs(5), "still refused");
    }

    assert_eq!(refused, 503);
    // Its cache is outdated, and it cannot read the database.
    reader.wait_for_code(&key, "503", 1.0 + SLACK_SECONDS);
    reader.postgres.mend();
    reader.wait_for_code(&key, "DISABLED", 2.5);
}

#[test]
fn change_waits_for_every_replica_when_writer_has_no_redis() {
    let _turn = acquire_turn();
    let stage = Stage::new();
    let (reader, writer) = stage.pair();
    let key = writer.create_key();
    reader.assert_code(&key, "VALID");

    writer.redis.cut();
    let began = Stopwatch::new();
    let acknowledged = writer.disable(&key);
    let took = began.elapsed();
    // From here on, only the intent that it has read keeps it from trusting its cache.
    reader.postgres.cut();

    assert_eq!(acknowledged, 200);
    // Half a second until the reader reads the change log, and half a second for the machine.
    assert!(took < Duration::from_secs(1), "{took:?}");
    let since = Stopwatch::new();
    while reader.verification_code(&key) == "VALID" {
        assert!(since.elapsed() < Duration::from_millis(2_500), "still valid");
        std::thread::sleep(Duration::from_millis(20));
    }
    writer.assert_code(&key, "DISABLED");
}

#[test]
fn changes_are_made_when_they_hold_every_connection_of_a_writer_without_redis() {
    let _turn = share_turn();
    let stage = Stage::new();
    let _reader = stage.replica();
    let writer = stage.replica_with(&[("KEYWARD_DATABASE_CONNECTIONS", "4")]);
    stage.await_readers(2);
    let keys: Vec<_> = (0..8).map(|_| writer.create_key()).collect();

    writer.redis.cut();
    let statuses: Vec<_> = std::thread::scope(|scope| {
        let changing: Vec<_> = keys.iter().map(|key| scope.spawn(|| writer.disable(key))).collect();
        changing.into_iter().map(|thread| thread.join().unwrap()).collect()
    });

    assert_eq!(statuses, [200; 8]);
    for key in &keys {
        writer.assert_code(key, "DISABLED");
    }
}

#[test]
fn only_the_changed_key_returns_503_when_writer_died_and_database_is_unreachable() {
    let _turn = share_turn();
    let stage = Stage::new();
    let reader = stage.replica();
    let (key, other) = (reader.create_key(), reader.create_key());
    let writer = stage.replica_with(&[("KEYWARD_DISABLE_SAFEGUARD", "result")]);
    stage.await_readers(2);
    reader.assert_code(&key, "VALID");
    reader.assert_code(&other, "VALID");

    reader.postgres.cut();
    let body = json!({ "keyId": key.id, "enabled": false });
    let died = v2(writer.server.address, ROOT_KEY, "keys.updateKey", &body);
    let since = Stopwatch::new();
    while reader.verification_code(&key) == "VALID" {
        assert!(since.elapsed() < Duration::from_secs(3), "still valid");
    }
    reader.assert_code(&key, "503");
    reader.assert_code_stays(&other, "VALID", 7.0);
    reader.assert_code(&key, "503");
    reader.postgres.mend();

    assert!(!died.as_ref().is_ok_and(|(status, _)| *status == 200), "{died:?}");
    reader.wait_for_code(&key, "DISABLED", 2.5);
    reader.assert_code(&other, "VALID");
}

#[test]
fn replica_without_database_keeps_old_value_when_writer_died_before_commit() {
    let _turn = share_turn();
    let stage = Stage::new();
    let reader = stage.replica();
    let key = reader.create_key();
    let _healthy = stage.replica();
    let writer = stage.replica_with(&[("KEYWARD_DISABLE_SAFEGUARD", "commit")]);
    stage.await_readers(3);
    reader.assert_code(&key, "VALID");

    reader.postgres.cut();
    // From here on, only announcements let it trust its cache.
    std::thread::sleep(Duration::from_secs(3));
    let body = json!({ "keyId": key.id, "enabled": false });
    let died = v2(writer.server.address, ROOT_KEY, "keys.updateKey", &body);
    assert!(!died.as_ref().is_ok_and(|(status, _)| *status == 200), "{died:?}");

    reader.wait_for_code(&key, "503", 1.0 + SLACK_SECONDS);
    reader.wait_for_code(&key, "VALID", 4.0);
    reader.assert_code_stays(&key, "VALID", 3.0);
}

/// Lets the reader cache both keys and lose its servers, then disables one of the keys.
fn disable_while_reader_is_isolated(key: &Key, other: &Key, reader: &Replica, writer: &Replica) {
    reader.assert_code(key, "VALID");
    reader.assert_code(other, "VALID");
    reader.postgres.cut();
    reader.redis.cut();
    assert_eq!(writer.disable(key), 200);
}

#[test]
fn missed_announcements_are_read_when_connection_is_restored() {
    let _turn = share_turn();
    let stage = Stage::new();
    let (reader, writer) = stage.pair();
    let (key, other) = (writer.create_key(), writer.create_key());
    disable_while_reader_is_isolated(&key, &other, &reader, &writer);
    reader.redis.mend();

    reader.wait_for_code(&key, "503", 1.5);
    reader.assert_code_stays(&other, "VALID", 7.0);
}

#[test]
fn stale_cache_is_not_trusted_when_announcements_were_lost() {
    let _turn = share_turn();
    let stage = Stage::new();
    let (reader, writer) = stage.pair();
    let (key, other) = (writer.create_key(), writer.create_key());
    disable_while_reader_is_isolated(&key, &other, &reader, &writer);
    let since = Stopwatch::new();
    redis::cmd("DEL").arg(stage.feed()).exec(&mut stage.redis.connect()).unwrap();
    reader.redis.mend();
    while reader.verification_code(&key) == "VALID" {
        assert!(since.elapsed() < Duration::from_millis(5_500), "still valid");
    }

    reader.wait_for_code(&other, "503", 3.0);
    reader.postgres.mend();
    reader.wait_for_code(&key, "DISABLED", 2.5);
    reader.wait_for_code(&other, "VALID", 2.5);
}

#[test]
fn changes_wait_for_killed_replica_until_operator_removes_it() {
    let _turn = share_turn();
    let stage = Stage::new();
    let (killed, writer) = stage.pair();
    let key = writer.create_key();
    drop(killed.server);
    std::thread::sleep(Duration::from_secs(8));

    writer.redis.cut();
    let refused = writer.disable(&key);
    let silent = |replica: &Value| replica["seenMsAgo"].as_i64().unwrap() > 7_000;
    let killed = stage.replicas().into_iter().find(silent).expect("the killed one");
    assert_eq!(killed["isWaitedFor"], true);
    let id = killed["replicaId"].as_str().unwrap();
    stage.run(&["replica", "forget", id]);

    assert_eq!(refused, 503);
    writer.assert_code(&key, "VALID");
    assert_eq!(writer.disable(&key), 200);
    let present = stage.replicas().into_iter().find(|replica| !silent(replica)).expect("the other");
    let mut command = stage.command(&stage.database.url, &stage.redis.url());
    for (id, code) in [(present["replicaId"].as_str().unwrap(), 2), ("rep_unknown", 2)] {
        let refused = command.args(["replica", "forget", id]).output().unwrap();
        assert_eq!(refused.status.code(), Some(code), "{id}");
        command = stage.command(&stage.database.url, &stage.redis.url());
    }
}

#[test]
fn changes_are_made_when_redis_is_unreachable_for_all_replicas() {
    let _turn = share_turn();
    let mut stage = Stage::new();
    let (reader, writer) = stage.pair();
    let keys: Vec<_> = (0..4).map(|_| writer.create_key()).collect();
    for key in &keys {
        reader.assert_code(key, "VALID");
    }

    stage.redis.kill();
    for key in &keys {
        assert_eq!(writer.disable(key), 200);
        reader.wait_for_code(key, "DISABLED", 1.5);
    }
}

#[test]
fn change_by_command_is_announced_to_replica_without_database() {
    let _turn = acquire_turn();
    let stage = Stage::new();
    let reader = stage.replica();
    let created = stage.run(&["root-key", "create", "--all"]);
    let (id, root_key) = (created["keyId"].as_str().unwrap(), created["key"].as_str().unwrap());
    stage.await_readers(1);
    let key = reader.create_key();
    let status = || {
        let body = json!({ "key": key.key });
        reader.server.v2(root_key, "keys.verifyKey", &body).0
    };
    assert_eq!(status(), 200);

    reader.postgres.cut();
    stage.run(&["root-key", "revoke", id]);

    let since = Stopwatch::new();
    while status() == 200 {
        assert!(since.elapsed() < Duration::from_secs(1), "still accepted");
    }
    reader.assert_code(&key, "VALID");
}

#[test]
fn change_is_visible_when_its_slow_commit_ends() {
    let _turn = share_turn();
    let stage = Stage::with_own_postgres();
    let (reader, writer) = stage.pair();
    let (key, other) = (writer.create_key(), writer.create_key());
    reader.assert_code(&key, "VALID");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let disable = format!("UPDATE keys SET enabled = FALSE WHERE id = '{}'", key.id);
    let log = format!("INSERT INTO changes (at, subject) VALUES (0, 'key:{}')", key.id);
    let mut commits = runtime.block_on(begin_transaction(&stage.database, &[&*disable, &*log]));
    // The row before this one is missing.
    assert_eq!(writer.disable(&other), 200);

    reader.wait_for_code(&other, "DISABLED", 1.0 + SLACK_SECONDS);
    reader.assert_code_stays(&key, "VALID", COMMIT_DELAY_SECONDS);
    runtime.block_on(commits.execute("COMMIT")).unwrap();

    reader.wait_for_code(&key, "DISABLED", 1.5);
}

#[test]
fn change_among_skipped_rows_is_visible_when_committed() {
    let _turn = acquire_turn();
    let stage = Stage::with_own_postgres();
    let reader = stage.replica();
    let (key, other) = (reader.create_key(), reader.create_key());
    // It learns of changes from the change log only.
    reader.redis.cut();
    reader.assert_code(&key, "VALID");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let now = "CAST(EXTRACT(EPOCH FROM now()) * 1000 AS BIGINT)";
    let disable = format!("UPDATE keys SET enabled = FALSE WHERE id = '{}'", key.id);
    let log = format!("INSERT INTO changes (at, subject) VALUES ({now}, 'key:{}')", key.id);
    let mut commits = runtime.block_on(begin_transaction(&stage.database, &[&*disable, &*log]));
    let many = format!(
        "INSERT INTO changes (at, subject) SELECT {now}, 'key:' || n FROM generate_series(1, 150000) n"
    );
    let last = format!(
        "WITH last AS (UPDATE keys SET enabled = FALSE WHERE id = '{id}')
        INSERT INTO changes (at, subject) VALUES ({now}, 'key:{id}')",
        id = other.id
    );
    let mut many = runtime.block_on(begin_transaction(&stage.database, &[&*many, &*last]));
    runtime.block_on(many.execute("COMMIT")).unwrap();

    reader.wait_for_code(&other, "DISABLED", 3.0);
    reader.assert_code_stays(&key, "VALID", 4.0);
    runtime.block_on(commits.execute("COMMIT")).unwrap();

    reader.wait_for_code(&key, "DISABLED", 1.5);
}

#[test]
fn replica_relies_on_announcements_when_an_unrelated_transaction_is_long() {
    let _turn = share_turn();
    let stage = Stage::with_own_postgres();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _somebody =
        runtime.block_on(begin_transaction(&stage.database, &["CREATE TABLE others (id INT)"]));
    let (reader, writer) = stage.pair();
    let key = writer.create_key();
    std::thread::sleep(Duration::from_secs(3));
    reader.assert_code(&key, "VALID");

    reader.postgres.cut();
    reader.assert_code_stays(&key, "VALID", 7.0);
    assert_eq!(writer.disable(&key), 200);
    reader.wait_for_code(&key, "503", 1.5);
    reader.postgres.mend();
    reader.wait_for_code(&key, "DISABLED", 2.5);
}

/// Returns the value of a sample of `/metrics`.
fn metric(replica: &Replica, name: &str) -> f64 {
    let (_, metrics) = get(replica.server.address, "/metrics").unwrap();
    let line = metrics.lines().find(|line| line.starts_with(&format!("{name} "))).expect(name);
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn each_change_is_visible_in_time_when_three_million_changes_are_inserted() {
    let _turn = acquire_turn();
    let stage = Stage::new();
    let (reader, writer) = stage.pair();
    // It learns of changes from the change log only.
    reader.redis.cut();
    let memory = || metric(&reader, "process_resident_memory_bytes");
    let (before, url) = (memory(), stage.database.url.clone());
    let bulk = std::thread::spawn(move || {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let mut connection = <PgConnection as sqlx::Connection>::connect(&url).await.unwrap();
            for _ in 0..6 {
                let sql = "
                    INSERT INTO changes (at, subject)
                    SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT),
                        'key:key_of_many_' || n
                    FROM generate_series(1, 500000) AS n";
                sqlx::query(sql).execute(&mut connection).await.unwrap();
            }
        });
    });

    let (mut slowest, mut most, mut rounds) = (Duration::ZERO, before, 0);
    while !bulk.is_finished() || rounds < 3 {
        let key = writer.create_key();
        reader.assert_code(&key, "VALID");
        assert_eq!(writer.disable(&key), 200);
        let since = Stopwatch::new();
        reader.wait_for_code(&key, "DISABLED", 5.0);
        slowest = slowest.max(since.elapsed());
        most = memory().max(most);
        rounds += 1;
    }
    bulk.join().unwrap();

    eprintln!("{rounds} changes, the slowest seen after {slowest:?}; {} bytes more", most - before);
    // One second, plus what the machine needs for the concurrent bulk insert.
    assert!(slowest <= Duration::from_secs(2), "{slowest:?}");
    assert!(most - before <= 64.0 * 1024.0 * 1024.0, "{before} {most}");
}
