//! Injects random faults. A schedule repeats a few kinds that harm together, so that they coincide.

use std::time::Duration;

use super::database::DATABASE;
use super::redis::REDIS;
use super::{FAULTS_US, REPLICAS, World};
use crate::executor::{Node, lock};
use crate::network::LinkState;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A replica loses the database.
    DatabaseLink,
    /// A replica loses Redis.
    RedisLink,
    /// Every replica loses the database.
    DatabaseOutage,
    /// Every replica loses Redis.
    RedisOutage,
    /// The database rolls all transactions back.
    DatabaseRestart,
    Kill,
    /// A replica ends right before or after its next commit.
    Crash,
    /// The next commit of a replica is long on its way.
    SlowCommit,
    Pause,
    /// Redis restarts without its data.
    RedisRestart,
    /// Redis fails over to a copy that lags. One replica may stay with the old server for a while.
    RedisFailover,
    /// Redis discards announcements.
    Trim,
    /// A transaction of another application runs for long, and may have written to the change log.
    LongTransaction,
    /// Positions of the change log are used up by a transaction that is rolled back.
    LargeRollback,
    /// The clock of the database jumps.
    ClockJump,
    SlowDatabase,
    SlowRedis,
}

/// Faults that decide what a replica without the database learns from announcements.
const ANNOUNCEMENT_FAULTS: [Fault; 7] = [
    Fault::RedisLink,
    Fault::RedisOutage,
    Fault::RedisRestart,
    Fault::RedisFailover,
    Fault::Trim,
    Fault::Crash,
    Fault::Pause,
];

/// Faults of the only replica that reaches the database.
const COMMIT_FAULTS: [Fault; 3] = [Fault::Crash, Fault::SlowCommit, Fault::RedisLink];

/// Faults that decide what a replica without Redis learns from the change log.
const LOG_FAULTS: [Fault; 8] = [
    Fault::SlowCommit,
    Fault::LargeRollback,
    Fault::LongTransaction,
    Fault::ClockJump,
    Fault::SlowDatabase,
    Fault::DatabaseRestart,
    Fault::Crash,
    Fault::Pause,
];

const OTHER_FAULTS: [Fault; 8] = [
    Fault::DatabaseLink,
    Fault::DatabaseOutage,
    Fault::RedisLink,
    Fault::RedisFailover,
    Fault::SlowRedis,
    Fault::Kill,
    Fault::Crash,
    Fault::LongTransaction,
];

/// Injects faults until the world recovers.
pub async fn inject(world: World) {
    let (sim, victim) = (world.sim.clone(), *pick(&world, &REPLICAS));
    sim.sleep_ms(1_000 + sim.random(1_000)).await;
    // One or two replicas that have lost the database for long, all that have lost Redis for long, or anything.
    let others: Vec<_> = REPLICAS.into_iter().filter(|node| *node != victim).collect();
    let (long_cut, kinds): (Option<(&[Node], Node)>, &[Fault]) = match sim.random(4) {
        0 => (Some((&[victim], DATABASE)), &ANNOUNCEMENT_FAULTS),
        1 => (Some((&others, DATABASE)), &COMMIT_FAULTS),
        2 => (Some((&REPLICAS, REDIS)), &LOG_FAULTS),
        _ => (None, &OTHER_FAULTS),
    };
    if let Some((nodes, server)) = long_cut {
        let (world, nodes) = (world.clone(), nodes.to_vec());
        sim.trace(|| format!("fault: replicas {nodes:?} lose {server} until the world recovers"));
        let duration = Duration::from_micros(FAULTS_US - sim.now_us());
        sim.spawn(super::FAULTS, async move { cut(&world, &nodes, server, duration).await });
        sim.sleep_ms(1_500).await;
    }
    let kinds: Vec<_> = (0..2 + sim.random(2)).map(|_| *pick(&world, kinds)).collect();
    while sim.now_us() < FAULTS_US {
        let (fault, world) = (*pick(&world, &kinds), world.clone());
        let node = if sim.is_once_in(3) { victim } else { *pick(&world, &REPLICAS) };
        sim.spawn(super::FAULTS, async move { inject_one(&world, fault, node).await });
        sim.sleep_ms(100 + sim.random(2_500)).await;
    }
}

fn pick<'a, T>(world: &World, all: &'a [T]) -> &'a T {
    let count = u64::try_from(all.len()).expect("a small number");
    &all[usize::try_from(world.sim.random(count)).expect("a small number")]
}

async fn inject_one(world: &World, fault: Fault, node: Node) {
    let sim = &world.sim;
    let ms = if sim.is_once_in(3) { 8_000 } else { 1_500 };
    let duration = Duration::from_millis(10 + sim.random(ms));
    sim.trace(|| format!("fault: {fault:?}, replica {node}, {} ms", duration.as_millis()));
    match fault {
        Fault::DatabaseLink => cut(world, &[node], DATABASE, duration).await,
        Fault::RedisLink => cut(world, &[node], REDIS, duration).await,
        Fault::DatabaseOutage => cut(world, &REPLICAS, DATABASE, duration).await,
        Fault::RedisOutage => cut(world, &REPLICAS, REDIS, duration).await,
        Fault::DatabaseRestart => {
            let numbers = begin(world, &REPLICAS, true);
            lock(&world.database).restart();
            end(world, numbers);
        }
        Fault::Kill => {
            let numbers = begin(world, &[node], true);
            sim.kill(node);
            sim.sleep(duration).await;
            world.start_replica(node);
            end(world, numbers);
        }
        Fault::Crash => {
            let numbers = begin(world, &[node], true);
            lock(&world.checker).commit_faults.insert(node, None);
            sim.sleep(duration).await;
            // It has not crashed if it has committed nothing meanwhile.
            if lock(&world.checker).commit_faults.remove(&node).is_none() {
                world.start_replica(node);
            }
            end(world, numbers);
        }
        Fault::SlowCommit => {
            lock(&world.checker).commit_faults.insert(node, Some(duration));
        }
        Fault::Pause => {
            let numbers = begin(world, &[node], true);
            sim.pause(node, duration);
            sim.sleep(duration).await;
            end(world, numbers);
        }
        Fault::RedisRestart | Fault::RedisFailover => replace_redis(world, fault, node).await,
        Fault::Trim => {
            let numbers = begin(world, &REPLICAS, false);
            lock(&world.redis).trim();
            end(world, numbers);
        }
        Fault::LongTransaction => world.run_foreign_transaction(duration).await,
        Fault::LargeRollback => lock(&world.database).skip_positions(20_000),
        Fault::ClockJump => {
            let jump_ms = i64::try_from(sim.random(1_000)).expect("a small number") - 500;
            let numbers = begin(world, &REPLICAS, false);
            lock(&world.database).clock_offset_ms += jump_ms;
            end(world, numbers);
        }
        Fault::SlowDatabase => slow(world, DATABASE, duration).await,
        Fault::SlowRedis => slow(world, REDIS, duration).await,
    }
}

fn begin(world: &World, nodes: &[Node], is_severe: bool) -> Vec<usize> {
    let mut checker = lock(&world.checker);
    nodes.iter().map(|node| checker.begin_disturbance(&world.sim, *node, is_severe)).collect()
}

fn end(world: &World, numbers: Vec<usize>) {
    let mut checker = lock(&world.checker);
    for number in numbers {
        checker.end_disturbance(&world.sim, number);
    }
}

async fn cut(world: &World, nodes: &[Node], server: Node, duration: Duration) {
    let state = *pick(world, &[LinkState::Refused, LinkState::Hanging]);
    let numbers = begin(world, nodes, server == DATABASE);
    for node in nodes {
        world.network.set_link(*node, server, state);
    }
    world.sim.sleep(duration).await;
    for node in nodes {
        world.network.set_link(*node, server, LinkState::Up);
    }
    end(world, numbers);
}

async fn slow(world: &World, server: Node, duration: Duration) {
    let numbers = begin(world, &REPLICAS, server == DATABASE);
    world.network.set_slowness(server, 1 + world.sim.random(100));
    world.sim.sleep(duration).await;
    world.network.set_slowness(server, 1);
    end(world, numbers);
}

/// Replaces the Redis server. A replica that stays with the old one alone cannot prove anything by it.
async fn replace_redis(world: &World, fault: Fault, last: Node) {
    let sim = &world.sim;
    let numbers = begin(world, &REPLICAS, false);
    let lost = usize::try_from(sim.random(4)).expect("a small number");
    let server = lock(&world.redis).start((fault == Fault::RedisFailover).then_some(lost));
    for node in REPLICAS.into_iter().filter(|node| *node != last) {
        lock(&world.redis).route(node, server);
    }
    if fault == Fault::RedisFailover {
        sim.sleep_ms(sim.random(10_000)).await;
    }
    lock(&world.redis).route(last, server);
    lock(&world.redis).demote_others();
    end(world, numbers);
}

impl World {
    async fn run_foreign_transaction(&self, duration: Duration) {
        let client = super::DatabaseClient {
            network: self.network.clone(),
            node: super::FAULTS,
            database: self.database.clone(),
        };
        let Ok(mut tx) = client.begin().await else { return };
        let written = match self.sim.is_once_in(2) {
            true => tx.insert_changes(vec!["key:of_another".to_owned()]).await.map(drop),
            false => tx.write(super::database::Write::Key(1_000, 1, String::new())).await,
        };
        self.sim.sleep(duration).await;
        if written.is_ok() && self.sim.is_once_in(2) {
            let _ = tx.commit().await;
        }
    }
}
