//! P6 whatever a replica has lost: what it cannot hear of is not acknowledged, or not trusted. Real processes.

use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};
use sqlx::Executor as _;
use sqlx::postgres::PgConnection;

use crate::alone;
use crate::faults::ROOT_KEY;
use crate::stage::{Key, Replica, Stage, under_way};
use crate::support::process::{get, v2};

/// For longer than a replica waits before it asks which transactions have written into the change log, and than it asks for a
/// missing row at least, in seconds.
const COMMIT_TAKES: f32 = 33.0;

#[test]
fn a_change_that_a_replica_could_not_learn_of_is_refused_and_not_made() {
    let _turn = alone();
    let stage = Stage::new();
    let (reader, writer) = stage.pair();
    let key = writer.key();
    reader.is(&key, "VALID");

    reader.postgres.cut();
    writer.redis.cut();
    let refused = writer.disable(&key);
    reader.stays(&key, "VALID", 6.0);
    writer.is(&key, "VALID");
    writer.redis.mend();
    let since = Stopwatch::new();
    while writer.disable(&key) != 200 {
        assert!(since.elapsed() < Duration::from_secs(5), "it is still refused");
    }

    assert_eq!(refused, 503);
    // What it knows is out of date, and it cannot read anew.
    reader.comes_to(&key, "503", 1.0);
    reader.postgres.mend();
    reader.comes_to(&key, "DISABLED", 2.5);
}

#[test]
fn a_writer_without_redis_waits_until_every_replica_has_read_of_its_change() {
    let _turn = alone();
    let stage = Stage::new();
    let (reader, writer) = stage.pair();
    let key = writer.key();
    reader.is(&key, "VALID");

    writer.redis.cut();
    let acknowledged = writer.disable(&key);
    // From here on only what it has read of the intent keeps it from trusting what it has.
    reader.postgres.cut();

    assert_eq!(acknowledged, 200);
    let since = Stopwatch::new();
    while reader.code(&key) == "VALID" {
        assert!(since.elapsed() < Duration::from_millis(2_500), "still valid");
        std::thread::sleep(Duration::from_millis(20));
    }
    writer.is(&key, "DISABLED");
}

#[test]
fn changes_that_hold_every_connection_of_a_writer_without_redis_are_made() {
    let _turn = alone();
    let stage = Stage::new();
    let _reader = stage.replica();
    let writer = stage.replica_with(&[("KEYWARD_DATABASE_CONNECTIONS", "4")]);
    stage.await_readers(2);
    let keys: Vec<_> = (0..8).map(|_| writer.key()).collect();

    writer.redis.cut();
    let statuses: Vec<_> = std::thread::scope(|scope| {
        let changing: Vec<_> = keys.iter().map(|key| scope.spawn(|| writer.disable(key))).collect();
        changing.into_iter().map(|thread| thread.join().unwrap()).collect()
    });

    assert_eq!(statuses, [200; 8]);
    for key in &keys {
        writer.is(key, "DISABLED");
    }
}

#[test]
fn a_change_whose_writer_died_is_unknown_without_the_database_and_nothing_else_is() {
    let _turn = alone();
    let stage = Stage::new();
    let reader = stage.replica();
    let (key, other) = (reader.key(), reader.key());
    let writer = stage.replica_with(&[("KEYWARD_DISABLE_SAFEGUARD", "result")]);
    stage.await_readers(2);
    reader.is(&key, "VALID");
    reader.is(&other, "VALID");

    reader.postgres.cut();
    let body = json!({ "keyId": key.id, "enabled": false });
    let died = v2(writer.server.address, ROOT_KEY, "keys.updateKey", &body);
    let since = Stopwatch::new();
    while reader.code(&key) == "VALID" {
        assert!(since.elapsed() < Duration::from_secs(3), "still valid");
    }
    reader.is(&key, "503");
    reader.stays(&other, "VALID", 7.0);
    reader.is(&key, "503");
    reader.postgres.mend();

    assert!(!died.as_ref().is_ok_and(|(status, _)| *status == 200), "{died:?}");
    reader.comes_to(&key, "DISABLED", 2.5);
    reader.is(&other, "VALID");
}

#[test]
fn a_change_whose_writer_died_before_its_commit_is_undone_for_a_replica_without_the_database() {
    let _turn = alone();
    let stage = Stage::new();
    let reader = stage.replica();
    let key = reader.key();
    let _healthy = stage.replica();
    let writer = stage.replica_with(&[("KEYWARD_DISABLE_SAFEGUARD", "commit")]);
    stage.await_readers(3);
    reader.is(&key, "VALID");

    reader.postgres.cut();
    // From here on only announcements make it trust what it has.
    std::thread::sleep(Duration::from_secs(3));
    let body = json!({ "keyId": key.id, "enabled": false });
    let died = v2(writer.server.address, ROOT_KEY, "keys.updateKey", &body);
    assert!(!died.as_ref().is_ok_and(|(status, _)| *status == 200), "{died:?}");

    reader.comes_to(&key, "503", 1.0);
    reader.comes_to(&key, "VALID", 4.0);
    reader.stays(&key, "VALID", 3.0);
}

/// Has the reader know both keys and lose its servers, and ends one of the keys.
fn end_where_nothing_is_heard(key: &Key, other: &Key, reader: &Replica, writer: &Replica) {
    reader.is(key, "VALID");
    reader.is(other, "VALID");
    reader.postgres.cut();
    reader.redis.cut();
    assert_eq!(writer.disable(key), 200);
}

#[test]
fn announcements_that_came_while_the_connection_was_down_are_read_when_it_is_back() {
    let _turn = alone();
    let stage = Stage::new();
    let (reader, writer) = stage.pair();
    let (key, other) = (writer.key(), writer.key());
    end_where_nothing_is_heard(&key, &other, &reader, &writer);
    reader.redis.mend();

    reader.comes_to(&key, "503", 1.5);
    reader.stays(&other, "VALID", 7.0);
}

#[test]
fn announcements_that_were_lost_are_missed_and_nothing_old_is_trusted_without_them() {
    let _turn = alone();
    let stage = Stage::new();
    let (reader, writer) = stage.pair();
    let (key, other) = (writer.key(), writer.key());
    end_where_nothing_is_heard(&key, &other, &reader, &writer);
    let since = Stopwatch::new();
    redis::cmd("DEL").arg(stage.feed()).exec(&mut stage.redis.connect()).unwrap();
    reader.redis.mend();
    while reader.code(&key) == "VALID" {
        assert!(since.elapsed() < Duration::from_millis(5_500), "still valid");
    }

    reader.comes_to(&other, "503", 3.0);
    reader.postgres.mend();
    reader.comes_to(&key, "DISABLED", 2.5);
    reader.comes_to(&other, "VALID", 2.5);
}

#[test]
fn a_replica_that_was_killed_is_waited_for_until_an_operator_says_that_it_is_gone() {
    let _turn = alone();
    let stage = Stage::new();
    let (killed, writer) = stage.pair();
    let key = writer.key();
    drop(killed.server);
    std::thread::sleep(Duration::from_secs(8));

    writer.redis.cut();
    let refused = writer.disable(&key);
    let silent = |replica: &Value| replica["seenMsAgo"].as_i64().unwrap() > 7_000;
    let gone = stage.replicas().into_iter().find(silent).expect("the killed one");
    assert_eq!(gone["isWaitedFor"], true);
    let id = gone["replicaId"].as_str().unwrap();
    stage.run(&["replica", "forget", id]);

    assert_eq!(refused, 503);
    writer.is(&key, "VALID");
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
fn while_redis_is_away_for_all_changes_are_made_as_ever() {
    let _turn = alone();
    let mut stage = Stage::new();
    let (reader, writer) = stage.pair();
    let keys: Vec<_> = (0..4).map(|_| writer.key()).collect();
    for key in &keys {
        reader.is(key, "VALID");
    }

    stage.redis.kill();
    for key in &keys {
        assert_eq!(writer.disable(key), 200);
        reader.comes_to(key, "DISABLED", 1.5);
    }
}

#[test]
fn what_a_command_changes_is_announced_to_a_replica_without_the_database() {
    let _turn = alone();
    let stage = Stage::new();
    let reader = stage.replica();
    let created = stage.run(&["root-key", "create", "--all"]);
    let (id, root_key) = (created["keyId"].as_str().unwrap(), created["key"].as_str().unwrap());
    stage.await_readers(1);
    let key = reader.key();
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
    reader.is(&key, "VALID");
}

#[test]
fn a_change_whose_commit_takes_long_is_seen_when_it_is_over() {
    let _turn = alone();
    let stage = Stage::new();
    let (reader, writer) = stage.pair();
    let (key, other) = (writer.key(), writer.key());
    reader.is(&key, "VALID");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let disable = format!("UPDATE keys SET enabled = FALSE WHERE id = '{}'", key.id);
    let log = format!("INSERT INTO changes (at, subject) VALUES (0, 'key:{}')", key.id);
    let mut commits = runtime.block_on(under_way(&stage.database, &[&*disable, &*log]));
    // The row before this one is missing.
    assert_eq!(writer.disable(&other), 200);

    reader.comes_to(&other, "DISABLED", 1.0);
    reader.stays(&key, "VALID", COMMIT_TAKES);
    runtime.block_on(commits.execute("COMMIT")).unwrap();

    reader.comes_to(&key, "DISABLED", 1.5);
}

#[test]
fn a_change_among_rows_that_were_skipped_is_seen_when_it_is_committed() {
    let _turn = alone();
    let stage = Stage::new();
    let reader = stage.replica();
    let (key, other) = (reader.key(), reader.key());
    // Only the change log tells it anything.
    reader.redis.cut();
    reader.is(&key, "VALID");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let now = "CAST(EXTRACT(EPOCH FROM now()) * 1000 AS BIGINT)";
    let disable = format!("UPDATE keys SET enabled = FALSE WHERE id = '{}'", key.id);
    let log = format!("INSERT INTO changes (at, subject) VALUES ({now}, 'key:{}')", key.id);
    let mut commits = runtime.block_on(under_way(&stage.database, &[&*disable, &*log]));
    let many = format!(
        "INSERT INTO changes (at, subject) SELECT {now}, 'key:' || n FROM generate_series(1, 150000) n"
    );
    let last = format!(
        "WITH last AS (UPDATE keys SET enabled = FALSE WHERE id = '{id}')
        INSERT INTO changes (at, subject) VALUES ({now}, 'key:{id}')",
        id = other.id
    );
    let mut many = runtime.block_on(under_way(&stage.database, &[&*many, &*last]));
    runtime.block_on(many.execute("COMMIT")).unwrap();

    reader.comes_to(&other, "DISABLED", 3.0);
    reader.stays(&key, "VALID", 4.0);
    runtime.block_on(commits.execute("COMMIT")).unwrap();

    reader.comes_to(&key, "DISABLED", 1.5);
}

#[test]
fn a_long_transaction_of_somebody_else_does_not_keep_a_replica_from_relying_on_announcements() {
    let _turn = alone();
    let stage = Stage::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _somebody = runtime.block_on(under_way(&stage.database, &["CREATE TABLE others (id INT)"]));
    let (reader, writer) = stage.pair();
    let key = writer.key();
    std::thread::sleep(Duration::from_secs(3));
    reader.is(&key, "VALID");

    reader.postgres.cut();
    reader.stays(&key, "VALID", 7.0);
    assert_eq!(writer.disable(&key), 200);
    reader.comes_to(&key, "503", 1.5);
    reader.postgres.mend();
    reader.comes_to(&key, "DISABLED", 2.5);
}

/// What `/metrics` tells of this.
fn metric(replica: &Replica, name: &str) -> f64 {
    let (_, told) = get(replica.server.address, "/metrics").unwrap();
    let line = told.lines().find(|line| line.starts_with(&format!("{name} "))).expect(name);
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn three_million_changes_are_gone_past_while_each_change_is_seen() {
    let _turn = alone();
    let stage = Stage::new();
    let (reader, writer) = stage.pair();
    // It learns of changes from the change log alone.
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
        let key = writer.key();
        reader.is(&key, "VALID");
        assert_eq!(writer.disable(&key), 200);
        let since = Stopwatch::new();
        reader.comes_to(&key, "DISABLED", 5.0);
        slowest = slowest.max(since.elapsed());
        most = memory().max(most);
        rounds += 1;
    }
    bulk.join().unwrap();

    eprintln!("{rounds} changes, the slowest seen after {slowest:?}; {} bytes more", most - before);
    // A second, and what the machine needs for the bulk beside it.
    assert!(slowest <= Duration::from_secs(2), "{slowest:?}");
    assert!(most - before <= 64.0 * 1024.0 * 1024.0, "{before} {most}");
}
