//! Injects random faults: a schedule repeats a few kinds, so that they coincide.

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

const FAULTS: [Fault; 15] = [
    Fault::DatabaseLink,
    Fault::RedisLink,
    Fault::DatabaseOutage,
    Fault::RedisOutage,
    Fault::DatabaseRestart,
    Fault::Kill,
    Fault::Pause,
    Fault::RedisRestart,
    Fault::RedisFailover,
    Fault::Trim,
    Fault::LongTransaction,
    Fault::LargeRollback,
    Fault::ClockJump,
    Fault::SlowDatabase,
    Fault::SlowRedis,
];

/// Injects faults until the world recovers.
pub async fn inject(world: World) {
    let sim = world.sim.clone();
    let kinds: Vec<_> = (0..1 + sim.random(4)).map(|_| *pick(&world, &FAULTS)).collect();
    sim.sleep_ms(500 + sim.random(1_000)).await;
    while sim.now_us() < FAULTS_US {
        let (fault, world) = (*pick(&world, &kinds), world.clone());
        sim.spawn(super::FAULTS, async move { inject_one(&world, fault).await });
        sim.sleep_ms(100 + sim.random(2_500)).await;
    }
}

fn pick<'a, T>(world: &World, all: &'a [T]) -> &'a T {
    let count = u64::try_from(all.len()).expect("a small number");
    &all[usize::try_from(world.sim.random(count)).expect("a small number")]
}

async fn inject_one(world: &World, fault: Fault) {
    let (sim, node) = (&world.sim, *pick(world, &REPLICAS));
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
            // A fault before may have started it again.
            sim.kill(node);
            world.start_replica(node);
            end(world, numbers);
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
    numbers.into_iter().for_each(|number| checker.end_disturbance(&world.sim, number));
}

async fn cut(world: &World, nodes: &[Node], server: Node, duration: Duration) {
    let state = *pick(world, &[LinkState::Refused, LinkState::Hanging]);
    let numbers = begin(world, nodes, server == DATABASE);
    nodes.iter().for_each(|node| world.network.set_link(*node, server, state));
    world.sim.sleep(duration).await;
    nodes.iter().for_each(|node| world.network.set_link(*node, server, LinkState::Up));
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
        sim.sleep_ms(sim.random(6_000)).await;
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
            false => tx.write(super::database::Write::Key(1_000, 1)).await,
        };
        self.sim.sleep(duration).await;
        if written.is_ok() && self.sim.is_once_in(2) {
            let _ = tx.commit().await;
        }
    }
}
