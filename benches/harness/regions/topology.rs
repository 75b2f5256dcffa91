//! Three regions on one machine: each has a Redis and two replicas, and is far from the Redis of the others. Postgres is
//! near all of them.

use super::super::Outcome;
use super::super::cases::{Place, VERIFY};
use super::super::client::{Client, Metrics};
use super::super::machine::{self, CoreTime, Cores};
use super::super::proxy::{LinkState, Proxy};
use super::super::servers::{Lab, Server, Store};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

pub const NAMES: [&str; 3] = ["eu", "us", "ap"];
pub const REPLICAS_EACH: usize = 2;
/// The name of the limit of a key.
pub const LIMIT_NAME: &str = "requests";
/// Between a replica and the Redis of another region.
pub const ROUND_TRIP: Duration = Duration::from_millis(150);
/// The time after which every replica knows all others, and the distances.
const DISCOVERY_TIME: Duration = Duration::from_secs(3);
/// The time after which what a region has not spent is back at its home.
const REST_TIME: Duration = Duration::from_secs(2);

pub struct Regions {
    pub replicas: Vec<Vec<Server>>,
    /// An API of each region, whose keys are counted there.
    apis: Vec<String>,
    /// Those of the second and the third region. The first is that of the lab.
    other_redis: Vec<Store>,
    pub lab: Lab,
}

impl Regions {
    pub fn start(cores: Cores) -> Outcome<Self> {
        let mut lab = Lab::build(cores, true, false)?;
        // Six replicas read keys while they are measured.
        lab.postgres = Some(lab.start_postgres(0, &[cores.load])?);
        let other_redis = NAMES[1..].iter().map(|_| lab.start_redis()).collect::<Outcome<_>>()?;
        let mut regions = Self { replicas: Vec::new(), apis: Vec::new(), other_redis, lab };
        for region in 0..NAMES.len() {
            let started = regions.start_replicas(region)?;
            regions.replicas.push(started);
        }
        std::thread::sleep(DISCOVERY_TIME);
        for region in 0..NAMES.len() {
            let api = regions.call(region, "apis.createApi", &json!({ "name": "benchmark" }))?;
            let id = api["apiId"].as_str().ok_or("apis.createApi answered without an apiId")?;
            regions.apis.push(id.to_owned());
        }
        regions.warm_up()?;
        Ok(regions)
    }

    fn start_replicas(&self, region: usize) -> Outcome<Vec<Server>> {
        let redis: Vec<_> = self.lab.redis.iter().chain(&self.other_redis).collect();
        let address = |home: usize| match home == region {
            true => redis[home].address,
            false => delayed(redis[home].address),
        };
        let list: Vec<_> = (NAMES.iter().enumerate())
            .map(|(home, name)| format!("{name}=redis://{}", address(home)))
            .collect();
        let list = list.join(",");
        let variables = [
            ("KEYWARD_REGION", NAMES[region]),
            ("KEYWARD_REGIONS", &list),
            ("KEYWARD_REDIS_URL", &redis[region].url),
            // All replicas together stay below what Postgres accepts.
            ("KEYWARD_DATABASE_CONNECTIONS", "8"),
        ];
        (0..REPLICAS_EACH).map(|_| self.lab.start_with(Place::Replica, &variables)).collect()
    }

    /// Has every replica spend units of every other region, so that its connections exist and each Redis has the scripts.
    fn warm_up(&self) -> Outcome<()> {
        for home in 0..NAMES.len() {
            let body = json!({ "key": self.create_key(home, &limit(1_000, 60_000))? }).to_string();
            for server in self.replicas.iter().flatten() {
                verify(server.address, &body)?;
            }
        }
        std::thread::sleep(REST_TIME);
        Ok(())
    }

    fn call(&self, region: usize, operation: &str, body: &Value) -> Outcome<Value> {
        connect(self.replicas[region][0].address)?.call(operation, body)
    }

    /// Returns the ID of an API whose keys are counted in a region.
    pub fn api(&self, home: usize) -> &str {
        &self.apis[home]
    }

    /// Creates a key that is counted in a region, with these fields. Returns the key.
    pub fn create_key(&self, home: usize, fields: &Value) -> Outcome<String> {
        let mut request = fields.clone();
        request["apiId"] = json!(self.api(home));
        let created = self.call(home, "keys.createKey", &request)?;
        let key = created["key"].as_str().ok_or("keys.createKey answered without a key")?;
        Ok(key.to_owned())
    }

    /// Returns the last output of each replica that has any: warnings and errors.
    pub fn last_words(&self) -> String {
        let words = self.replicas.iter().flatten().map(|server| server.process.last_words());
        words.filter(|words| !words.is_empty()).collect::<Vec<_>>().join("\n")
    }

    /// Returns what the replicas of some regions have counted since they started.
    pub fn counts(&self, regions: &[usize]) -> Outcome<RegionCounts> {
        let mut counts = RegionCounts::default();
        for server in regions.iter().flat_map(|region| &self.replicas[*region]) {
            let metrics = Metrics::fetch(server.address)?;
            counts.local += metrics.sum("keyward_regional_decisions_total{waited=\"false\"}")?;
            counts.waited += metrics.sum("keyward_regional_decisions_total{waited=\"true\"}")?;
            counts.requested += metrics.sum("keyward_region_grants_requested_total")?;
            counts.returned += metrics.sum("keyward_region_units_returned_total")?;
        }
        Ok(counts)
    }

    /// Returns the shortest and the longest distance that a replica has measured, in milliseconds.
    pub fn distances(&self) -> Outcome<(f64, f64)> {
        let (mut least, mut most) = (f64::MAX, 0.0_f64);
        for server in self.replicas.iter().flatten() {
            let metrics = Metrics::fetch(server.address)?;
            for seconds in metrics.values::<f64>("keyward_region_round_trip_seconds") {
                (least, most) = (least.min(seconds * 1e3), most.max(seconds * 1e3));
            }
        }
        Ok((least, most))
    }

    /// Returns the processor seconds of the two cores up to now, and those of them that this benchmark has used.
    pub fn core_seconds(&self) -> (f64, f64) {
        let stores = self.lab.redis.iter().chain(&self.lab.postgres).chain(&self.other_redis);
        let processes = stores
            .map(|store| &store.process)
            .chain(self.replicas.iter().flatten().map(|server| &server.process));
        let used: f64 = processes.map(|process| machine::tree_seconds(process.pid())).sum();
        (CoreTime::now(self.lab.cores).busy, used + machine::own_seconds())
    }
}

/// Counters of the replicas of some regions.
#[derive(Default)]
pub struct RegionCounts {
    /// Decisions on limits of other regions that no other region was asked for, and others.
    pub local: u64,
    pub waited: u64,
    /// Requests for units.
    pub requested: u64,
    /// Units.
    pub returned: u64,
}

impl RegionCounts {
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            local: self.local - earlier.local,
            waited: self.waited - earlier.waited,
            requested: self.requested - earlier.requested,
            returned: self.returned - earlier.returned,
        }
    }
}

/// Sends a verification that must be admitted.
pub fn verify(address: SocketAddr, body: &str) -> Outcome<()> {
    let answer = connect(address)?.post(VERIFY, body);
    let (status, answer) = answer.map_err(|e| format!("no answer: {e}"))?;
    match status == 200 && answer["data"]["valid"] == true {
        true => Ok(()),
        false => Err(format!("a first verification was answered {status}: {answer}")),
    }
}

/// Returns the fields of a key with one limit.
pub fn limit(limit: u64, duration_ms: u64) -> Value {
    let limit =
        json!({ "name": "requests", "limit": limit, "duration": duration_ms, "autoApply": true });
    json!({ "ratelimits": [limit] })
}

pub fn connect(address: SocketAddr) -> Outcome<Client> {
    Client::connect(address).map_err(|e| format!("no connection: {e}"))
}

/// Returns an address through which a server is far away.
fn delayed(server: SocketAddr) -> SocketAddr {
    let proxy = Proxy::to(server);
    let one_way = LinkState::Slow(ROUND_TRIP / 2);
    proxy.set(one_way, one_way);
    proxy.address
}
