//! Tests the checks of a Redis that is configured incorrectly, and of data that it has lost.

use redis::RedisResult;

use super::*;
use crate::servers::Cluster;

fn set_redis_option(redis: &Redis, name: &str, value: &str) {
    let done: RedisResult<()> =
        redis::cmd("CONFIG").arg(&["SET", name, value]).exec(&mut redis.connect());
    done.unwrap();
}

#[test]
fn doctor_reports_redis_that_evicts_does_not_persist_or_is_full() {
    let (database, redis) = (database(), Redis::start());
    let doctor = || DoctorReport::by(&mut replica(&database.url, &redis.url()));

    doctor().assert_finding("redis-persistence", "warning", &["appendonly"]).assert_problems(&[]);
    set_redis_option(&redis, "maxmemory-policy", "allkeys-lru");
    doctor().assert_problems(&["redis-memory"]).assert_finding(
        "redis-memory",
        "problem",
        &["allkeys-lru"],
    );
    set_redis_option(&redis, "maxmemory-policy", "noeviction");
    set_redis_option(&redis, "maxmemory", "1000000");
    doctor().assert_problems(&["redis-memory"]).assert_finding(
        "redis-memory",
        "problem",
        &["raise maxmemory"],
    );
}

#[test]
fn doctor_reports_redis_that_cannot_save_a_snapshot() {
    let (database, redis) = (database(), Redis::start_keeping(true));
    let doctor = || DoctorReport::by(&mut replica(&database.url, &redis.url()));
    let directory: Vec<String> =
        redis::cmd("CONFIG").arg(&["GET", "dir"]).query(&mut redis.connect()).unwrap();
    std::fs::remove_dir_all(&directory[1]).unwrap();
    set_redis_option(&redis, "save", "3600 1000000");
    doctor().assert_problems(&[]);

    redis::cmd("BGSAVE").exec(&mut redis.connect()).unwrap();
    let waited = Stopwatch::new();
    loop {
        let written = redis::cmd("SET").arg(&["probe", "1"]).exec(&mut redis.connect());
        match written {
            Err(e) if e.code() == Some("MISCONF") => break,
            _ => assert!(waited.elapsed() < Duration::from_secs(10), "{written:?}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }

    doctor().assert_problems(&["redis-persistence"]).assert_finding(
        "redis-persistence",
        "problem",
        &["rejects writes", "snapshot failed", "BGSAVE"],
    );
    set_redis_option(&redis, "stop-writes-on-bgsave-error", "no");
    doctor().assert_problems(&[]);
}

#[test]
fn doctor_reports_redis_replica_and_cluster_with_wrong_url() {
    let (database, redis, master) = (database(), Redis::start(), Redis::start());
    let doctor = |url: &str| DoctorReport::by(&mut replica(&database.url, url));
    let cluster = Cluster::start(3);
    let one = cluster.url().replace("redis-cluster://", "redis://");

    doctor(&cluster.url()).assert_finding("redis", "ok", &["of a cluster"]).assert_problems(&[]);
    let named = doctor(one.split(',').next().unwrap());
    named.assert_problems(&["redis"]).assert_finding("redis", "problem", &["redis-cluster://"]);
    let alone = doctor(&redis.url().replace("redis://", "redis-cluster://"));
    alone.assert_problems(&["redis"]).assert_finding(
        "redis",
        "problem",
        &["this is a single server"],
    );
    redis::cmd("REPLICAOF")
        .arg(&["127.0.0.1", &master.port.to_string()])
        .exec(&mut redis.connect())
        .unwrap();
    doctor(&redis.url()).assert_problems(&["redis"]).assert_finding(
        "redis",
        "problem",
        &["master"],
    );
}

#[test]
fn doctor_reports_withheld_credits() {
    let (database, mut redis) = (database(), Redis::start());
    let server = Server::start(replica(&database.url, &redis.url()));
    let (_, api) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let request = json!({ "apiId": api["data"]["apiId"], "credits": { "remaining": 1000 } });
    let (_, issued) = server.v2(ROOT_KEY, "keys.createKey", &request);
    let verify = json!({ "key": issued["data"]["key"] });
    for _ in 0..10 {
        server.v2(ROOT_KEY, "keys.verifyKey", &verify);
    }
    // A killed server cannot report its spend, and the new Redis has no data.
    server.signal("KILL");
    redis.kill();
    redis.restart();
    let next = Server::start(replica(&database.url, &redis.url()));
    next.v2(ROOT_KEY, "keys.verifyKey", &verify);

    let told = DoctorReport::by(&mut replica(&database.url, &redis.url()));

    told.assert_finding(
        "credits",
        "warning",
        &["are withheld, in 1 lease", "keyward credits list"],
    );
}
