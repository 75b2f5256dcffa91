//! Tests limits and credits that three regions share, each with a Redis of its own, 150 ms (round trip) from each other.

mod approximate;
mod moves;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};

use crate::client::Client;
use crate::faults::{ROOT_KEY, database, replica_command};
use crate::proxy::{LinkState, Proxy};
use crate::servers::Redis;
use crate::support::database::Database;
use crate::support::process::{Server, get};
use crate::support::random_letters;
use crate::{acquire_turn, share_turn};

const NAMES: [&str; 3] = ["eu", "us", "ap"];
/// The delay of each direction between two regions.
const ONE_WAY: Duration = Duration::from_millis(75);
/// The time after which every replica knows all others, and the distances.
const DISCOVERY_TIME: Duration = Duration::from_secs(2);

/// Three regions, each with a Redis and replicas. Their database is near each of them.
struct Regions {
    replicas: Vec<Vec<Server>>,
    /// The way from each region to the Redis of each, and `None` to its own.
    links: Vec<Vec<Option<Proxy>>>,
    redis: Vec<Redis>,
    database: Database,
    prefix: String,
}

impl Regions {
    fn start(replicas_each: usize) -> Self {
        let redis: Vec<_> = NAMES.iter().map(|_| Redis::start()).collect();
        let link = |from: usize, to: usize| {
            let proxy = Proxy::to(SocketAddr::from(([127, 0, 0, 1], redis[to].port)));
            proxy.set(LinkState::Slow(ONE_WAY), LinkState::Slow(ONE_WAY));
            (from != to).then_some(proxy)
        };
        let links = (0..3).map(|from| (0..3).map(|to| link(from, to)).collect()).collect();
        let (database, prefix) = (database(), format!("t{}:", random_letters()));
        let mut regions = Self { replicas: Vec::new(), links, redis, database, prefix };
        for region in 0..3 {
            let start = |_| Server::start(regions.command(region, &NAMES));
            let started = (0..replicas_each).map(start).collect();
            regions.replicas.push(started);
        }
        std::thread::sleep(DISCOVERY_TIME);
        regions
    }

    /// Returns the command of a replica in a region, with the regions in this order.
    fn command(&self, region: usize, order: &[&str]) -> Command {
        let url = |to: usize| match &self.links[region][to] {
            Some(link) => format!("redis://{}", link.address),
            None => self.redis[to].url(),
        };
        let position = |name: &str| NAMES.iter().position(|known| *known == name).unwrap();
        let listed: Vec<_> =
            order.iter().map(|name| format!("{name}={}", url(position(name)))).collect();
        let mut command = replica_command(&self.database.url, &self.redis[region].url());
        command
            .env("KEYWARD_REDIS_PREFIX", &self.prefix)
            // Longer than the machine pauses, and shorter than a round trip to another region, with which it must grow.
            .env("KEYWARD_REDIS_TIMEOUT_MS", "120")
            .env("KEYWARD_DATABASE_CONNECTIONS", "4")
            .env("KEYWARD_REGION", NAMES[region])
            .env("KEYWARD_REGIONS", listed.join(","));
        command
    }

    /// Cuts a region off from the Redis of the others, and the others off from its Redis; or ends that.
    fn cut_off(&self, region: usize, is_cut: bool) {
        for other in (0..3).filter(|other| *other != region) {
            for (from, to) in [(region, other), (other, region)] {
                let link = self.links[from][to].as_ref().unwrap();
                match is_cut {
                    true => link.cut(),
                    false => {
                        link.mend();
                        link.set(LinkState::Slow(ONE_WAY), LinkState::Slow(ONE_WAY));
                    }
                }
            }
        }
    }

    /// Runs a command. Returns its output.
    fn run(&self, arguments: &[&str]) -> Value {
        let output = self.command(0, &NAMES).args(arguments).arg("--json").output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn ok(&self, region: usize, operation: &str, body: &Value) -> Value {
        let (status, reply) = self.replicas[region][0].v2(ROOT_KEY, operation, body);
        assert_eq!(status, 200, "{operation} in {}: {reply}", NAMES[region]);
        reply
    }

    /// Creates a key with these fields in a region.
    fn create_key(&self, region: usize, fields: &Value) -> Value {
        let api = self.ok(region, "apis.createApi", &json!({ "name": "payments" }));
        let mut request = fields.clone();
        request["apiId"] = api["data"]["apiId"].clone();
        self.ok(region, "keys.createKey", &request)["data"].clone()
    }

    /// Sends a request from two callers to each replica until each has been refused several times and `is_over`. Returns
    /// the number of admissions that are flagged as degraded and of those that are not, in each region.
    fn exhaust(
        &self,
        (operation, body): (&str, &Value),
        rest: Duration,
        during: impl FnOnce(),
    ) -> Vec<Admitted> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let is_over = &is_over;
            let callers: Vec<Vec<_>> = (self.replicas.iter())
                .map(|replicas| {
                    let callers = replicas.iter().flat_map(|replica| [replica.address; 2]);
                    let call = |address| {
                        scope.spawn(move || {
                            call_until_refused(address, operation, body, rest, is_over)
                        })
                    };
                    callers.map(call).collect()
                })
                .collect();
            during();
            is_over.store(true, Ordering::Relaxed);
            let sum = |callers: Vec<std::thread::ScopedJoinHandle<Admitted>>| {
                callers.into_iter().map(|caller| caller.join().expect("a caller")).fold(
                    Admitted::default(),
                    |all, one| Admitted {
                        exact: all.exact + one.exact,
                        degraded: all.degraded + one.degraded,
                        degraded_replies: all.degraded_replies + one.degraded_replies,
                    },
                )
            };
            callers.into_iter().map(sum).collect()
        })
    }
}

/// The number of admissions.
#[derive(Debug, Clone, Copy, Default)]
struct Admitted {
    exact: usize,
    degraded: usize,
    degraded_replies: usize,
}

/// The number of consecutive refusals after which a caller stops.
const REFUSALS: usize = 30;

fn call_until_refused(
    address: SocketAddr,
    operation: &str,
    body: &Value,
    rest: Duration,
    is_over: &AtomicBool,
) -> Admitted {
    let (mut client, mut admitted, mut refusals) = (Client::new(address), Admitted::default(), 0);
    while refusals < REFUSALS || !is_over.load(Ordering::Relaxed) {
        let reply = client.v2(ROOT_KEY, operation, body).expect("a reply");
        assert_eq!(reply.status, 200, "{}", reply.body);
        let reply: Value = serde_json::from_str(&reply.body).unwrap();
        let is_admitted = reply["data"]["success"] == true || reply["data"]["valid"] == true;
        let is_degraded = reply["meta"]["degraded"] == true;
        admitted.exact += usize::from(is_admitted && !is_degraded);
        admitted.degraded += usize::from(is_admitted && is_degraded);
        admitted.degraded_replies += usize::from(is_degraded);
        refusals = if is_admitted { 0 } else { refusals + 1 };
        std::thread::sleep(rest);
    }
    admitted
}

fn check(identifier: &str, limit: i64) -> Value {
    json!({ "namespace": "exact", "identifier": identifier, "limit": limit, "duration": 86_400_000, "cost": 1 })
}

fn sum(admitted: &[Admitted], count: impl Fn(&Admitted) -> usize) -> usize {
    admitted.iter().map(count).sum()
}

#[test]
fn limit_of_a_namespace_is_shared_by_all_regions() {
    let _turn = acquire_turn();
    let regions = Regions::start(2);
    regions.ok(0, "ratelimit.limit", &check("warm", 10));
    std::thread::sleep(Duration::from_secs(1));

    for limit in [5_u16, 1_000] {
        let body = check(&format!("of {limit}"), i64::from(limit));
        let admitted =
            regions.exhaust(("ratelimit.limit", &body), Duration::from_millis(20), || {
                std::thread::sleep(Duration::from_secs(4));
            });

        assert_eq!(sum(&admitted, |it| it.degraded_replies), 0, "{admitted:?}");
        let (total, limit) = (sum(&admitted, |it| it.exact), usize::from(limit));
        let missing_max = if limit < 20 { 3 } else { limit / 20 };
        assert!((limit - missing_max..=limit).contains(&total), "{total} of {limit}: {admitted:?}");
    }
}

/// Returns the value of a sample in the metrics of a replica.
fn metric(server: &Server, sample: &str) -> f64 {
    let (status, metrics) = get(server.address, "/metrics").unwrap();
    assert_eq!(status, 200);
    let value = metrics.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {sample}:\n{metrics}")).parse().unwrap()
}

#[test]
fn busy_counter_is_mostly_decided_without_its_home() {
    let _turn = acquire_turn();
    let regions = Regions::start(1);
    regions.ok(0, "ratelimit.limit", &check("warm", 10));
    std::thread::sleep(Duration::from_secs(1));
    let body = check("busy", 100_000);

    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for region in 1..3 {
            let (address, body, is_over) = (regions.replicas[region][0].address, &body, &is_over);
            scope.spawn(move || {
                let mut client = Client::new(address);
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(
                        client.v2(ROOT_KEY, "ratelimit.limit", body).expect("a reply").status,
                        200
                    );
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
        }
        std::thread::sleep(Duration::from_secs(6));
        is_over.store(true, Ordering::Relaxed);
    });

    for region in 1..3 {
        let server = &regions.replicas[region][0];
        let decisions = |waited| {
            metric(server, &format!("keyward_regional_decisions_total{{waited=\"{waited}\"}}"))
        };
        let (local, waited) = (decisions("false"), decisions("true"));
        assert!(local > 200.0 && waited <= 0.01 * local + 2.0, "{waited} of {local} waited");
        let asked = metric(server, "keyward_region_grants_requested_total");
        assert!(asked <= 0.01 * local + 5.0, "asked {asked} times for {local} decisions");
        let distance = metric(server, "keyward_region_round_trip_seconds{region=\"eu\"}");
        assert!((0.15..0.4).contains(&distance), "{distance}");
    }
}

#[test]
fn limits_of_keys_and_identities_are_shared_by_all_regions() {
    let _turn = acquire_turn();
    let regions = Regions::start(1);
    let limit = |name: &str, limit: i64| json!({ "name": name, "limit": limit, "duration": 86_400_000, "autoApply": true });
    regions.ok(
        2,
        "identities.createIdentity",
        &json!({ "externalId": "customer", "ratelimits": [limit("shared", 300)] }),
    );
    let fields = json!({ "externalId": "customer", "ratelimits": [limit("own", 200)] });
    let keys = [regions.create_key(0, &fields), regions.create_key(1, &fields)];
    std::thread::sleep(Duration::from_secs(1));

    let mut total = 0;
    for key in keys {
        let body = json!({ "key": key["key"] });
        let admitted =
            regions.exhaust(("keys.verifyKey", &body), Duration::from_millis(20), || {
                std::thread::sleep(Duration::from_secs(3));
            });
        assert_eq!(sum(&admitted, |it| it.degraded_replies), 0, "{admitted:?}");
        let admitted = sum(&admitted, |it| it.exact);
        assert!(admitted <= 200, "{admitted} of 200");
        total += admitted;
    }
    assert!((285..=300).contains(&total), "{total} of 300");
}

#[test]
fn credits_are_spent_once_by_all_regions() {
    let _turn = acquire_turn();
    let regions = Regions::start(1);
    let key = regions.create_key(1, &json!({ "credits": { "remaining": 1_000 } }));
    std::thread::sleep(Duration::from_secs(1));
    let body = json!({ "key": key["key"] });

    let admitted = regions.exhaust(("keys.verifyKey", &body), Duration::from_millis(10), || {});

    assert_eq!(sum(&admitted, |it| it.exact + it.degraded), 1_000, "{admitted:?}");
    let change = json!({ "keyId": key["keyId"], "operation": "set", "value": 500 });
    regions.ok(2, "keys.updateCredits", &change);
    let admitted = regions.exhaust(("keys.verifyKey", &body), Duration::from_millis(10), || {
        std::thread::sleep(Duration::from_millis(300));
    });
    assert_eq!(sum(&admitted, |it| it.exact + it.degraded), 500, "{admitted:?}");
}

#[test]
fn change_is_seen_in_all_regions_within_a_second() {
    let _turn = acquire_turn();
    let regions = Regions::start(1);
    let key = regions.create_key(0, &json!({}));
    let verify = json!({ "key": key["key"] });
    for region in 0..3 {
        assert_eq!(regions.ok(region, "keys.verifyKey", &verify)["data"]["valid"], true);
    }

    regions.ok(0, "keys.updateKey", &json!({ "keyId": key["keyId"], "enabled": false }));

    let since = Stopwatch::new();
    for (region, name) in NAMES.iter().enumerate() {
        while regions.ok(region, "keys.verifyKey", &verify)["data"]["valid"] == true {
            assert!(since.elapsed() < Duration::from_millis(1_150), "still valid in {name}");
        }
    }
}

#[test]
fn region_that_is_cut_off_decides_by_the_outage_policy_and_is_exact_again() {
    let _turn = acquire_turn();
    let regions = Regions::start(1);
    let body = check("cut", 2_000);
    regions.ok(0, "ratelimit.limit", &body);
    std::thread::sleep(Duration::from_secs(1));

    let is_exact_again = AtomicUsize::new(0);
    let admitted = regions.exhaust(("ratelimit.limit", &body), Duration::from_millis(20), || {
        std::thread::sleep(Duration::from_millis(500));
        regions.cut_off(2, true);
        std::thread::sleep(Duration::from_secs(2));
        regions.cut_off(2, false);
        std::thread::sleep(Duration::from_secs(1));
        let (status, reply) =
            regions.replicas[2][0].v2(ROOT_KEY, "ratelimit.limit", &check("cut", 2_000));
        assert_eq!(status, 200, "{reply}");
        is_exact_again.fetch_add(usize::from(reply["meta"]["degraded"] != true), Ordering::Relaxed);
    });

    assert_eq!(
        is_exact_again.load(Ordering::Relaxed),
        1,
        "still degraded a second after the link's return"
    );
    assert_eq!(admitted[0].degraded_replies + admitted[1].degraded_replies, 0, "{admitted:?}");
    // At most the share of one of three replicas, and at least some of what was asked for while the region was cut off.
    assert!((40..=667).contains(&admitted[2].degraded), "{admitted:?}");
    // It was charged to the home afterwards, but for charges that were under way when the link broke, which are sent once.
    let total = sum(&admitted, |it| it.exact + it.degraded);
    assert!((1_900..=2_020).contains(&total), "{total}: {admitted:?}");
}

#[test]
fn replica_does_not_start_when_its_regions_differ_from_those_of_the_others() {
    let _turn = share_turn();
    let regions = Regions::start(1);
    let first_is_us = regions.command(1, &["us", "eu", "ap"]);
    let mut is_swapped = regions.command(1, &NAMES);
    let [eu, _, ap] = [0, 1, 2].map(|region| regions.redis[region].url());
    is_swapped.env("KEYWARD_REGIONS", format!("eu={ap},us={},ap={eu}", regions.redis[1].url()));

    for (mut command, problem) in [
        (first_is_us, "the first region of this deployment is eu: list eu first"),
        (is_swapped, "the Redis of eu in the settings is that of ap: each region needs a Redis"),
    ] {
        let output = command.output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(problem), "{error}");
        command.arg("doctor");
        let found =
            String::from_utf8_lossy(&command.output().expect("it runs").stdout).into_owned();
        assert!(found.contains(problem.split(':').next().unwrap()), "{found}");
    }
    let (status, _) = get(regions.replicas[1][0].address, "/readyz").unwrap();
    assert_eq!(status, 200);
}
