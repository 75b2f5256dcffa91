//! Tests replicas whose Redis is the primary that Redis Sentinel names, with real processes.

mod sentinels;

use std::process::Command;
use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};

use self::sentinels::{Guarded, SENTINEL_PASSWORD, SERVICE};
use crate::faults::{ROOT_KEY, create_key, database, replica_command, verify, withheld};
use crate::servers::Redis;
use crate::support::certificates::Authority;
use crate::support::database::Database;
use crate::support::process::Server;
use crate::support::random_letters;
use crate::{acquire_turn, share_turn};

/// How long replicas may decide without Redis after Sentinel has promoted another server: two seconds, and one for a
/// machine that is busy.
const RECOVERY: Duration = Duration::from_secs(3);

/// Two replicas on one database.
struct Pair {
    one: Server,
    other: Server,
    database: Database,
}

impl Pair {
    fn start(redis_url: &str) -> Self {
        let (database, prefix) = (database(), format!("t{}:", random_letters()));
        let start = || {
            let mut command = replica_command(&database.url, redis_url);
            command.env("KEYWARD_REDIS_PREFIX", &prefix);
            // The machine may be compiling at the same time.
            Server::start(with_timeout(command))
        };
        let (one, other) = (start(), start());
        let pair = Self { one, other, database };
        pair.await_redis();
        pair
    }

    fn servers(&self) -> [&Server; 2] {
        [&self.one, &self.other]
    }

    fn create_key(&self, fields: &Value) -> String {
        create_key(&self.one, fields)
    }

    /// Waits until both replicas decide with Redis. Each verification until then has an answer.
    fn await_redis(&self) {
        let key = self.create_key(&limit(1_000_000));
        for server in self.servers() {
            wait_until("the replica decides with Redis", || !is_degraded(&verify(server, &key)));
        }
    }

    /// Fails unless a new key with a limit of 10 admits 10 of 40 concurrent verifications on both replicas, and none is
    /// decided without Redis.
    #[track_caller]
    fn assert_limits_are_exact(&self) {
        assert_eq!(self.verify_40_with_limit_10(), (10, 0));
    }

    /// Verifies a new key with a limit of 10 forty times on both replicas. Returns how many verifications were valid,
    /// and how many were decided without Redis.
    fn verify_40_with_limit_10(&self) -> (usize, usize) {
        let key = self.create_key(&limit(10));
        let verify_10 = &|server| (0..10).map(|_| verify(server, &key)).collect::<Vec<_>>();
        let answers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = [&self.one, &self.other, &self.one, &self.other]
                .map(|server| scope.spawn(move || verify_10(server)))
                .into();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(answers.len(), 40);
        let valid = answers.iter().filter(|answer| code(answer) == "VALID").count();
        (valid, answers.iter().filter(|answer| is_degraded(answer)).count())
    }
}

fn with_timeout(mut command: Command) -> Command {
    command.env("KEYWARD_REDIS_TIMEOUT_MS", "1000");
    command
}

fn limit(limit: u32) -> Value {
    let limit =
        json!({ "name": "requests", "limit": limit, "duration": 86_400_000, "autoApply": true });
    json!({ "ratelimits": [limit] })
}

fn code((status, reply): &(u16, Value)) -> &str {
    assert_eq!(*status, 200, "{reply}");
    reply["data"]["code"].as_str().unwrap()
}

fn is_degraded(answer: &(u16, Value)) -> bool {
    answer.1["meta"]["degraded"] == true
}

#[track_caller]
fn wait_until(what: &str, mut is_reached: impl FnMut() -> bool) {
    let since = Stopwatch::new();
    while !is_reached() {
        assert!(since.elapsed() < Duration::from_secs(30), "not reached: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn replicas_count_exactly_on_the_server_that_sentinel_promotes() {
    let _turn = acquire_turn();
    let mut guarded = Guarded::start_with_passwords();
    let pair = Pair::start(&guarded.url());
    pair.assert_limits_are_exact();
    let used_up = pair.create_key(&limit(1));
    assert_eq!(code(&verify(&pair.one, &used_up)), "VALID");
    let with_credits = pair.create_key(&json!({ "credits": { "remaining": 500 } }));
    let mut spent = 0;
    let mut spend = |server| {
        let answer = verify(server, &with_credits);
        // While leases are lost and Redis is unreachable, a request may be rejected.
        spent += u32::from(answer.0 == 200 && code(&answer) == "VALID");
    };
    (0..20).for_each(|_| spend(&pair.one));
    guarded.await_replication();

    let old_primary = guarded.primary_port();
    guarded.kill_primary();
    let key = pair.create_key(&limit(1_000_000));
    let mut has_degraded = false;
    wait_until("Sentinel promotes the other server", || {
        has_degraded |= is_degraded(&verify(&pair.one, &key));
        spend(&pair.other);
        guarded.primary_port() != old_primary
    });
    let promoted = Stopwatch::new();
    for server in pair.servers() {
        wait_until("the replica decides with Redis", || !is_degraded(&verify(server, &key)));
    }
    let took = promoted.elapsed();

    assert!(has_degraded, "the outage policy applies in between");
    assert!(took < RECOVERY, "{took:?}");
    pair.assert_limits_are_exact();
    assert_eq!(code(&verify(&pair.other, &used_up)), "RATE_LIMITED", "the counter was replicated");
    (0..20).for_each(|_| spend(&pair.one));
    let disabled = pair.create_key(&json!({}));
    assert_eq!(code(&verify(&pair.other, &disabled)), "VALID");
    disable(&pair.one, &disabled);
    wait_until("the other replica knows", || code(&verify(&pair.other, &disabled)) == "DISABLED");

    // The old primary returns as a replica, and is promoted while the other one still runs.
    guarded.restart(old_primary);
    guarded.fail_over_to(old_primary);
    wait_until("Sentinel promotes the old primary", || guarded.primary_port() == old_primary);
    // Until a replica has asked Sentinel again, it counts on the server that is being demoted. As long as both do, or
    // both no longer do, limits are exact: that they are is no sign that both have changed.
    let promoted = Stopwatch::new();
    while promoted.elapsed() < RECOVERY {
        pair.verify_40_with_limit_10();
    }
    pair.assert_limits_are_exact();
    assert_eq!(code(&verify(&pair.one, &used_up)), "RATE_LIMITED");
    while code(&verify(&pair.one, &with_credits)) == "VALID" {
        spent += 1;
    }
    let withheld = withheld(&pair.database.url, &guarded.url());
    assert!(spent <= 500, "{spent}");
    assert!(i64::from(spent) + withheld <= 500, "{spent} spent, {withheld} withheld");
    assert!(spent > 400, "{spent} spent, {withheld} withheld");
}

fn disable(server: &Server, key: &str) {
    let (_, found) = server.v2(ROOT_KEY, "keys.whoami", &json!({ "key": key }));
    let request = json!({ "keyId": found["data"]["keyId"], "enabled": false });
    let (status, reply) = server.v2(ROOT_KEY, "keys.updateKey", &request);
    assert_eq!(status, 200, "{reply}");
}

#[test]
fn replicas_leave_a_running_server_when_sentinel_names_another() {
    let _turn = share_turn();
    let guarded = Guarded::start_alone();
    let pair = Pair::start(&guarded.url());
    pair.assert_limits_are_exact();
    let (old, new) = (&guarded.servers[0], Redis::start());
    assert!(count_clients(old) > 1);

    guarded.monitor(new.port);
    wait_until("the replicas have left", || {
        let key = pair.create_key(&limit(10));
        for server in pair.servers() {
            assert_eq!(code(&verify(server, &key)), "VALID");
        }
        // The test itself is connected.
        count_clients(old) == 1
    });

    pair.assert_limits_are_exact();
    assert!(count_clients(&new) > 1);
    let counted: u64 = redis::cmd("DBSIZE").query(&mut new.connect()).unwrap();
    assert_ne!(counted, 0);
}

fn count_clients(server: &Redis) -> usize {
    let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut server.connect()).unwrap();
    clients.lines().count()
}

#[test]
fn replicas_find_the_primary_with_tls() {
    let _turn = share_turn();
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::create(directory.path().join("ca.pem"));
    let issue = |name| authority.issue("127.0.0.1", directory.path(), name);
    let (server, client) = (issue("server"), issue("client"));
    let guarded = Guarded::start_with_tls(authority.file.clone(), server);
    let database = database();
    let mut command = with_timeout(replica_command(&database.url, &guarded.url()));
    command.env("KEYWARD_REDIS_TLS_CA", &authority.file);
    command.env("KEYWARD_REDIS_TLS_CERT", &client.certificate);
    command.env("KEYWARD_REDIS_TLS_KEY", &client.key);

    assert_decides_with_redis(&Server::start(command));
}

#[test]
fn replicas_find_the_primary_as_users_of_sentinel_and_redis() {
    let _turn = share_turn();
    let (guarded, database) = (Guarded::start_with_users(), database());

    let command = with_timeout(replica_command(&database.url, &guarded.url()));

    assert_decides_with_redis(&Server::start(command));
}

#[track_caller]
fn assert_decides_with_redis(server: &Server) {
    let key = create_key(server, &limit(2));
    wait_until("the replica decides with Redis", || !is_degraded(&verify(server, &key)));
    let key = create_key(server, &limit(2));
    let codes = [(); 3].map(|()| code(&verify(server, &key)).to_owned());
    assert_eq!(codes, ["VALID", "VALID", "RATE_LIMITED"]);
}

/// Returns what `keyward doctor` finds in a check: the states and the descriptions.
fn diagnose(database_url: &str, redis_url: &str, check: &str) -> Vec<(String, String)> {
    let output =
        replica_command(database_url, redis_url).args(["doctor", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    assert!(!report.to_string().contains(SENTINEL_PASSWORD), "{report}");
    let findings = report.as_array().unwrap().iter().filter(|finding| finding["check"] == check);
    let text = |finding: &Value, name: &str| finding[name].as_str().unwrap().to_owned();
    findings.map(|finding| (text(finding, "state"), text(finding, "found"))).collect()
}

#[test]
fn doctor_checks_the_sentinels_and_the_primary_that_they_name() {
    let _turn = share_turn();
    let mut guarded = Guarded::start_with_passwords();
    let database = database();
    let url = guarded.url();
    let check = |check| diagnose(&database.url, &url, check);

    let [(state, found)] = &check("redis")[..] else { panic!("one finding") };
    assert_eq!(state, "ok", "{found}");
    assert!(found.contains(&format!("at 127.0.0.1:{}", guarded.primary_port())), "{found}");
    let [(state, found)] = &check("redis-sentinel")[..] else { panic!("one finding") };
    assert_eq!((state.as_str(), found.as_str()), ("ok", "3 Sentinels can replace the primary"));

    let lost = guarded.kill_sentinel();
    let found = check("redis-sentinel");
    assert!(
        matches!(&found[..], [(state, found)] if state == "warning"
        && found.contains(&format!("127.0.0.1:{lost}"))),
        "{found:?}"
    );
    guarded.kill_sentinel();
    wait_until("the last Sentinel misses the others", || {
        let found = check("redis-sentinel");
        matches!(&found[..], [(state, found)] if state == "problem" && found.contains("NOQUORUM"))
    });
    guarded.kill_sentinel();
    let found = check("redis");
    assert!(
        matches!(&found[..], [(state, found)] if state == "problem"
        && found.contains("the address that Sentinel names")),
        "{found:?}"
    );
    assert_eq!(SERVICE, "counters");
}
