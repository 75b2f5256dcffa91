//! Simulates the change feed and the freshness of caches (promises P5 and P6).

mod cached_value;
pub mod check;
pub mod database;
mod faults;
pub mod redis;
pub mod replica;
pub mod standby;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use check::Checker;
use database::{Database, DatabaseClient};
use redis::{RedisClient, RedisServers};
use replica::Replica;
use standby::{Standby, StandbyClient};

use crate::executor::{Node, Sim, lock};
use crate::network::Network;

/// The node on which faults are injected.
const FAULTS: Node = 901;
pub const REPLICAS: [Node; 3] = [1, 2, 3];
/// The number of keys that are verified.
const KEYS: u64 = 10;
/// The time in which faults are injected, and the time in which everything recovers.
const FAULTS_US: u64 = 12_000_000;
const END_US: u64 = 14_500_000;

/// The servers, and what they store.
#[derive(Clone)]
pub struct World {
    pub sim: Sim,
    pub network: Network,
    pub database: Arc<Mutex<Database>>,
    /// Absent in a schedule without a standby.
    pub standby: Option<Arc<Mutex<Standby>>>,
    pub redis: Arc<Mutex<RedisServers>>,
    pub checker: Arc<Mutex<Checker>>,
}

/// The result of a schedule in which every guarantee held.
#[derive(Default)]
pub struct Summary {
    pub delays_us: Vec<u64>,
    pub served: u64,
    pub rejected: u64,
}

impl World {
    fn new(sim: &Sim, standby: Option<Arc<Mutex<Standby>>>) -> Self {
        Self {
            sim: sim.clone(),
            network: Network::new(sim),
            database: Arc::default(),
            standby,
            redis: Arc::new(Mutex::new(RedisServers::new())),
            checker: Arc::default(),
        }
    }

    /// Starts a process on a node, with a client that verifies keys and one that changes them.
    fn start_replica(&self, node: Node) {
        // Another fault may have started it again.
        self.sim.kill(node);
        self.sim.set_clock(node, Duration::from_millis(100_000 + self.sim.random(1_000_000)));
        let world = self.clone();
        self.sim.spawn(node, async move {
            let World { sim, network, database, standby, redis, checker } = world.clone();
            let id = format!("rep_{node}_{}", sim.now_us() / 1_000);
            sim.trace(|| format!("{id} starts"));
            let standby = standby.map(|standby| {
                let (network, database) = (network.clone(), database.clone());
                StandbyClient { network, node, database, standby }
            });
            let database = DatabaseClient { network: network.clone(), node, database };
            let redis = RedisClient { network, node, servers: redis };
            let replica = Replica::start(id, database, standby, redis, checker.clone());
            lock(&checker).replicas.insert(node, replica.clone());
            sim.spawn(node, world.clone().verify(replica.clone()));
            sim.spawn(node, world.change(replica));
        });
    }

    async fn verify(self, replica: Arc<Replica>) {
        loop {
            let key = usize::try_from(self.sim.random(KEYS)).expect("a small number");
            let (world, replica, began_us) = (self.clone(), replica.clone(), self.sim.now_us());
            self.sim.spawn(replica.node, async move {
                match replica.get(key).await {
                    Ok(value) => {
                        let database = lock(&world.database);
                        let mut checker = lock(&world.checker);
                        checker.check_served(&replica, &database, (key, value), began_us);
                    }
                    Err(()) => lock(&world.checker).rejected += 1,
                }
            });
            self.sim.sleep_ms(50 + self.sim.random(200)).await;
        }
    }

    async fn change(self, replica: Arc<Replica>) {
        loop {
            self.sim.sleep_ms(self.sim.random(6_000)).await;
            let key = usize::try_from(self.sim.random(KEYS)).expect("a small number");
            // Changes of the same key, and of others, follow each other closely.
            let keys = if self.sim.is_once_in(3) { vec![key, key, key + 1] } else { vec![key] };
            for key in keys {
                self.sim.spawn(replica.node, replica.clone().change(key));
                self.sim.sleep_ms(self.sim.random(20)).await;
            }
        }
    }
}

/// Runs one schedule of random faults.
pub fn run(sim: &Sim) -> Result<Summary, String> {
    run_world(sim, &World::new(sim, None))
}

/// Runs one schedule in which replicas read from a standby that lags.
pub fn run_with_standby(sim: &Sim) -> Result<Summary, String> {
    let standby = Arc::<Mutex<Standby>>::default();
    sim.spawn(FAULTS, standby::change_lag(sim.clone(), standby.clone()));
    run_world(sim, &World::new(sim, Some(standby)))
}

fn run_world(sim: &Sim, world: &World) -> Result<Summary, String> {
    for node in REPLICAS {
        world.start_replica(node);
    }
    sim.spawn(FAULTS, faults::inject(world.clone()));
    let result = sim.run_until(END_US);
    let mut checker = lock(&world.checker);
    // A replica holds its checker.
    checker.replicas.clear();
    let Checker { delays_us, served, rejected, .. } = std::mem::take(&mut *checker);
    result.map(|()| Summary { delays_us, served, rejected })
}
