//! Tests that limits stay exact while Redis stalls, is demoted, or the processor is busy, with real processes.

mod approximate;
mod distance;
mod late_replies;

use std::net::SocketAddr;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};

use crate::acquire_turn;
use crate::client::Client;
use crate::faults::{
    ROOT_KEY, assert_recovers, assert_valid, create_key, database, limited, replica_command, verify,
};
use crate::proxy::Proxy;
use crate::servers::Redis;
use crate::support::database::Database;
use crate::support::process::{Server, get, signal};
use crate::support::random_letters;

/// Replicas of one stack. They share a Redis prefix and therefore their windows.
struct Stack {
    replicas: Vec<Server>,
    redis: Redis,
    database: Database,
    prefix: String,
}

/// The number of callers that send requests concurrently.
const CALLERS: usize = 24;
/// The time after which every replica knows all others.
const DISCOVERY_TIME: Duration = Duration::from_millis(1_500);

fn start_stack(replicas: usize) -> Stack {
    let (database, redis) = (database(), Redis::start());
    let prefix = format!("t{}:", random_letters());
    let mut stack = Stack { replicas: Vec::new(), redis, database, prefix };
    for _ in 0..replicas {
        stack.start_replica(&stack.redis.url());
    }
    stack
}

fn check(identifier: &str, limit: usize, cost: i64) -> Value {
    json!({
        "namespace": "exact", "identifier": identifier, "limit": limit, "duration": 86_400_000,
        "cost": cost
    })
}

/// Counts the replies to requests for one counter.
#[derive(Debug, Default, PartialEq, Eq)]
struct Replies {
    admitted: usize,
    degraded: usize,
}

impl Stack {
    /// Adds a replica that reaches Redis at this URL.
    fn start_replica(&mut self, redis_url: &str) {
        let mut command = replica_command(&self.database.url, redis_url);
        command.env("KEYWARD_REDIS_PREFIX", &self.prefix).env("KEYWARD_DATABASE_CONNECTIONS", "2");
        self.replicas.push(Server::start(command));
    }

    /// Makes every replica cache the namespace and the counter.
    fn warm_up(&self, identifier: &str, limit: usize) {
        for replica in &self.replicas {
            let (status, reply) =
                replica.v2(ROOT_KEY, "ratelimit.limit", &check(identifier, limit, 0));
            assert_eq!(status, 200, "{reply}");
        }
    }

    /// Sends requests from many callers until all of them are denied and the faults are over.
    fn exhaust(
        &self,
        identifier: &str,
        limit: usize,
        rest: Duration,
        faults: impl FnOnce(),
    ) -> Replies {
        self.warm_up(identifier, limit);
        let is_over = AtomicBool::new(false);
        let addresses: Vec<_> = self.replicas.iter().map(|replica| replica.address).collect();
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..CALLERS)
                .map(|n| {
                    let (address, is_over) = (addresses[n % addresses.len()], &is_over);
                    scope.spawn(move || call(address, &check(identifier, limit, 1), rest, is_over))
                })
                .collect();
            faults();
            is_over.store(true, Ordering::Relaxed);
            let replies = callers.into_iter().map(|caller| caller.join().expect("a caller"));
            replies.fold(Replies::default(), |all, one| Replies {
                admitted: all.admitted + one.admitted,
                degraded: all.degraded + one.degraded,
            })
        })
    }
}

/// The number of consecutive denials that stops a caller.
const DENIALS: usize = 10;

fn call(address: SocketAddr, request: &Value, rest: Duration, is_over: &AtomicBool) -> Replies {
    let mut client = Client::new(address);
    let (mut replies, mut denials) = (Replies::default(), 0);
    while denials < DENIALS || !is_over.load(Ordering::Relaxed) {
        let reply = client.v2(ROOT_KEY, "ratelimit.limit", request).expect("a reply");
        assert_eq!(reply.status, 200, "{}", reply.body);
        let body: Value = serde_json::from_str(&reply.body).unwrap();
        let is_admitted = body["data"]["success"] == true;
        replies.admitted += usize::from(is_admitted);
        replies.degraded += usize::from(body["meta"]["degraded"] == true);
        denials = if is_admitted { 0 } else { denials + 1 };
        std::thread::sleep(rest);
    }
    replies
}

/// Stops a process for 60 of every 100 ms, as a CPU quota of 40 % does, until it is dropped.
struct Throttle {
    shell: Child,
    pid: u32,
}

impl Throttle {
    fn of(pid: u32) -> Self {
        let script =
            format!("while :; do kill -STOP {pid}; sleep 0.06; kill -CONT {pid}; sleep 0.04; done");
        let shell = Command::new("sh").args(["-c", &script]).spawn().expect("a shell");
        Self { shell, pid }
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
        signal(self.pid, "CONT");
    }
}

#[test]
fn limit_is_kept_within_two_percent_when_redis_stalls() {
    let _turn = acquire_turn();
    let stack = start_stack(3);
    std::thread::sleep(DISCOVERY_TIME);

    let replies = stack.exhaust("stalls", 2_000, Duration::from_millis(20), || {
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(100));
            stack.redis.signal("STOP");
            std::thread::sleep(Duration::from_millis(60));
            stack.redis.signal("CONT");
        }
    });

    assert!((1_960..=2_040).contains(&replies.admitted), "{replies:?}");
    assert!(replies.degraded > 0, "no stall was noticed: {replies:?}");
}

/// The maximum time of a Redis reply in a round that Redis decides alone: less than a replica waits for it.
const PROMPT_REPLY_MAX: Duration = Duration::from_millis(30);

/// Uses up a limit of 500 until three rounds were decided by Redis alone: those are exact. In a round in which this
/// machine pauses Redis long enough to count as a stall, which a probe notices too, the limit is as exact as with
/// stalls. Each round loads the machine less than the one before, since a slow one cannot do without stalls at full load.
fn assert_exact(stack: &Stack, name: &str) {
    let mut exact = 0;
    for round in 0..12 {
        let rest = Duration::from_millis(3 * round);
        let (replies, slowest) = with_redis_probe(&stack.redis, || {
            stack.exhaust(&format!("{name}-{round}"), 500, rest, || {})
        });
        match replies.degraded {
            0 => assert_eq!(replies.admitted, 500, "{replies:?}"),
            _ => assert!(replies.admitted <= 500 + CALLERS, "{replies:?}"),
        }
        assert!(replies.degraded == 0 || slowest > PROMPT_REPLY_MAX, "{replies:?} {slowest:?}");
        exact += usize::from(replies.degraded == 0);
        if exact == 3 {
            return;
        }
    }
    panic!("{exact} of 12 rounds were decided by Redis alone");
}

/// Runs a function. Returns its result and the duration of the slowest Redis reply during it.
fn with_redis_probe<T>(redis: &Redis, run: impl FnOnce() -> T) -> (T, Duration) {
    let is_over = AtomicBool::new(false);
    let mut connection = redis.connect();
    std::thread::scope(|scope| {
        let probe = scope.spawn(|| {
            let mut slowest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let asked = Stopwatch::new();
                redis::cmd("PING").exec(&mut connection).unwrap();
                slowest = slowest.max(asked.elapsed());
                std::thread::sleep(Duration::from_millis(2));
            }
            slowest
        });
        let outcome = run();
        is_over.store(true, Ordering::Relaxed);
        (outcome, probe.join().expect("the probe"))
    })
}

#[test]
fn limit_is_exact_when_replica_is_throttled() {
    let _turn = acquire_turn();
    let stack = start_stack(2);
    let _throttle = Throttle::of(stack.replicas[0].pid());

    assert_exact(&stack, "throttled");
}

#[test]
fn limit_is_exact_when_machine_is_busy() {
    let _turn = acquire_turn();

    assert_exact(&start_stack(3), "busy");
}

#[test]
fn limit_is_exact_when_there_are_twenty_replicas() {
    let _turn = acquire_turn();

    assert_exact(&start_stack(20), "twenty");
}

#[test]
fn shares_add_up_to_limit_when_redis_is_down() {
    let _turn = acquire_turn();
    let mut stack = start_stack(3);
    std::thread::sleep(DISCOVERY_TIME);
    for (identifier, limit) in [("one", 1), ("seven", 7)] {
        stack.warm_up(identifier, limit);
    }

    stack.redis.kill();

    for (identifier, limit) in [("one", 1), ("seven", 7)] {
        let mut shares: Vec<_> = stack
            .replicas
            .iter()
            .map(|replica| {
                let ask = |_: &usize| {
                    let request = check(identifier, limit, 1);
                    let (_, reply) = replica.v2(ROOT_KEY, "ratelimit.limit", &request);
                    assert_eq!(reply["meta"]["degraded"], true, "{reply}");
                    reply["data"]["success"] == true
                };
                (0..=limit).filter(ask).count()
            })
            .collect();
        shares.sort_unstable();
        let wanted = if limit == 1 { [0, 0, 1] } else { [2, 2, 3] };
        assert_eq!(shares, wanted, "{identifier}");
    }
}

#[test]
fn local_admissions_are_consumed_in_redis_when_it_returns() {
    let _turn = acquire_turn();
    let stack = start_stack(2);
    std::thread::sleep(DISCOVERY_TIME);
    stack.warm_up("charged", 100);

    stack.redis.signal("STOP");
    let admitted = (0..10).filter(|n| {
        let replica = &stack.replicas[n % 2];
        let (_, reply) = replica.v2(ROOT_KEY, "ratelimit.limit", &check("charged", 100, 3));
        reply["data"]["success"] == true && reply["meta"]["degraded"] == true
    });
    assert_eq!(admitted.count(), 10);
    stack.redis.signal("CONT");

    let began = Stopwatch::new();
    loop {
        let request = check("charged", 100, 0);
        let (_, reply) = stack.replicas[0].v2(ROOT_KEY, "ratelimit.limit", &request);
        if reply["meta"]["degraded"] != true && reply["data"]["remaining"] == 70 {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(1), "{reply}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn counters_recover_when_redis_is_demoted_and_connections_are_kept() {
    let _turn = acquire_turn();
    let (database, master, other) = (database(), Redis::start(), Redis::start());
    let at = |redis: &Redis| SocketAddr::from(([127, 0, 0, 1], redis.port));
    let proxy = Proxy::to(at(&master));
    let server =
        Server::start(replica_command(&database.url, &format!("redis://{}", proxy.address)));
    let key = create_key(&server, &limited());
    assert_valid(&verify(&server, &key));

    let follow = |redis: &Redis, master: &Redis| {
        let mut command = redis::cmd("REPLICAOF");
        command.arg("127.0.0.1").arg(master.port).exec(&mut redis.connect()).expect("it follows");
    };
    follow(&master, &other);
    let began = Stopwatch::new();
    while verify(&server, &key).1["meta"]["degraded"] != true {
        assert!(began.elapsed() < Duration::from_secs(1), "the demotion was not noticed");
    }
    // The address still belongs to the demoted server for a while.
    let began = Stopwatch::new();
    while began.elapsed() < Duration::from_secs(2) {
        assert_valid(&verify(&server, &key));
        std::thread::sleep(Duration::from_millis(20));
    }
    proxy.lead_new_to(at(&other));

    assert_recovers(&server, &key);
}
