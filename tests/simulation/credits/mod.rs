//! Simulates credit accounts, credit leases and direct debits (promise P1).

pub mod check;
pub mod database;
pub mod debits;
mod faults;
pub mod maintenance;
pub mod redis;
pub mod replica;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use check::Checker;
pub use check::Summary;
use database::{Database, DatabaseClient};
use domain::credits::closing_steps::CloseScope;
use foundation::id::KeyId;
use foundation::model::Credits;
use maintenance::CreditsUpdate;
use redis::{RedisClient, RedisServers};
use replica::Replica;

use crate::executor::{Node, Sim, lock};
use crate::network::Network;

/// The node on which faults are injected.
const FAULTS: Node = 901;
pub const REPLICAS: [Node; 3] = [1, 2, 3];
/// The number of keys that are verified.
const KEYS: u64 = 2;
const BALANCE_MAX: u64 = 4_000;
const COST_MAX: u64 = 30;
/// The time in which faults are injected, the time until which keys are verified, and the end.
const FAULTS_US: u64 = 5_000_000;
const VERIFIED_US: u64 = 6_000_000;
const END_US: u64 = 10_000_000;

/// The servers, and what they store.
#[derive(Clone)]
pub struct World {
    pub sim: Sim,
    pub network: Network,
    pub database: Arc<Mutex<Database>>,
    pub redis: Arc<Mutex<RedisServers>>,
    pub checker: Arc<Mutex<Checker>>,
    replicas: Arc<Mutex<[Option<Arc<Replica>>; 4]>>,
}

fn random_i64(sim: &Sim, end: u64) -> i64 {
    i64::try_from(sim.random(end)).expect("a small number")
}

fn pick<'a, T>(sim: &Sim, all: &'a [T]) -> &'a T {
    let count = u64::try_from(all.len()).expect("a small number");
    &all[usize::try_from(sim.random(count)).expect("a small number")]
}

impl World {
    fn new(sim: &Sim) -> Self {
        let world = Self {
            sim: sim.clone(),
            network: Network::new(sim),
            database: Arc::default(),
            redis: Arc::new(Mutex::new(RedisServers::new())),
            checker: Arc::default(),
            replicas: Arc::default(),
        };
        for number in 0..KEYS {
            let (key, balance) = (key_of(number), random_i64(sim, BALANCE_MAX));
            let credits =
                Credits { balance, last_lease_number: 1, refill: None, refilled_period: 0 };
            lock(&world.checker).record_increment(&key, balance);
            lock(&world.database).accounts.insert(key, credits);
        }
        world
    }

    fn pick_key(&self) -> KeyId {
        key_of(self.sim.random(KEYS))
    }

    fn random_jump_ms(&self) -> i64 {
        let max = if self.sim.is_once_in(2) { 300 } else { 20_000 };
        random_i64(&self.sim, 2 * max) - i64::try_from(max).expect("a small number")
    }

    fn database_client(&self, node: Node) -> DatabaseClient {
        let (network, database, checker) =
            (self.network.clone(), self.database.clone(), self.checker.clone());
        DatabaseClient { network, node, database, checker }
    }

    fn kill(&self, node: Node) {
        self.sim.kill(node);
        lock(&self.checker).end_process(node);
        lock(&self.replicas)[node] = None;
    }

    /// Starts a process on a node, with clients that verify keys and one that changes their credits.
    fn start_replica(&self, node: Node) {
        // Another fault may have started it again.
        self.kill(node);
        self.sim.set_clock(node, Duration::from_millis(100_000 + self.sim.random(1_000_000)));
        let id = format!("rep_{node}_{}", self.sim.now_us() / 1_000);
        self.sim.trace(|| format!("{id} starts"));
        let redis = RedisClient {
            network: self.network.clone(),
            node,
            servers: self.redis.clone(),
            database: self.database.clone(),
            checker: self.checker.clone(),
            breaker: Arc::default(),
            time: Arc::default(),
        };
        let replica = Arc::new(Replica::new(id.clone(), self.database_client(node), redis));
        lock(&self.checker).processes.insert(node, id);
        lock(&self.replicas)[node] = Some(replica.clone());
        replica.start_maintenance();
        self.sim.spawn(node, self.clone().verify(replica.clone()));
        self.sim.spawn(node, self.clone().update_credits(replica));
    }

    /// Lets a replica stop in an orderly manner: it receives no more requests, closes its leases, and reports.
    async fn stop_replica(&self, node: Node) {
        let Some(replica) = lock(&self.replicas)[node].take() else { return };
        let stopped = Arc::new(tokio::sync::Notify::new());
        let (sim, done) = (self.sim.clone(), stopped.clone());
        self.sim.spawn(node, async move {
            sim.sleep_ms(50).await;
            let result = replica.stop().await;
            sim.trace(|| format!("{} stops: {result:?}", replica.id));
            done.notify_one();
        });
        self.sim.timeout(Duration::from_secs(1), stopped.notified()).await;
        self.kill(node);
    }

    /// Returns whether requests are sent to a process.
    fn is_serving(&self, replica: &Arc<Replica>) -> bool {
        let current = lock(&self.replicas)[replica.node].clone();
        let is_current = current.is_some_and(|current| Arc::ptr_eq(&current, replica));
        is_current && self.sim.now_us() < VERIFIED_US
    }

    async fn verify(self, replica: Arc<Replica>) {
        while self.is_serving(&replica) {
            // Several requests at once, and pauses in which leases become idle.
            for _ in 0..=self.sim.random(3) {
                let (key, cost) = (self.pick_key(), 1 + random_i64(&self.sim, COST_MAX));
                self.sim.spawn(replica.node, replica.clone().verify(key, cost));
            }
            let ms = if self.sim.is_once_in(40) { 3_000 } else { 80 };
            self.sim.sleep_ms(self.sim.random(ms)).await;
        }
    }

    async fn update_credits(self, replica: Arc<Replica>) {
        while self.is_serving(&replica) {
            self.sim.sleep_ms(self.sim.random(4_000)).await;
            let value = random_i64(&self.sim, BALANCE_MAX);
            let update = match self.sim.is_once_in(2) {
                true => CreditsUpdate::Set(value),
                false => CreditsUpdate::Increment(value),
            };
            self.sim.spawn(replica.node, replica.clone().update_credits(self.pick_key(), update));
        }
    }

    /// Closes all leases after everything has recovered.
    async fn close_all_leases(self) {
        self.sim.sleep_ms(1_500).await;
        let replica = lock(&self.replicas)[1].clone().expect("the replica");
        for number in 0..KEYS {
            while replica.close_key_leases(&key_of(number), CloseScope::All).await.ok()
                != Some(true)
            {
                self.sim.sleep_ms(100).await;
            }
        }
    }
}

fn key_of(number: u64) -> KeyId {
    KeyId::from(format!("key_{number}").as_str())
}

/// Runs one schedule of random faults.
pub fn run(sim: &Sim) -> Result<Summary, String> {
    let world = World::new(sim);
    for node in REPLICAS {
        world.start_replica(node);
    }
    sim.spawn(FAULTS, faults::inject(world.clone()));
    sim.run_until(VERIFIED_US)?;
    // All processes run: a replica that has crashed is started again.
    sim.spawn(REPLICAS[0], world.clone().close_all_leases());
    sim.run_until(END_US)?;
    let (database, checker) = (lock(&world.database), lock(&world.checker));
    checker.check_end(sim, &database);
    *lock(&world.replicas) = Default::default();
    sim.violation().map_or(Ok(checker.summary), Err)
}
