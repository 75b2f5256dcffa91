//! Injects random faults. A schedule repeats two or three kinds, so that they coincide.

use std::time::Duration;

use super::database::{DATABASE, DatabaseClient};
use super::redis::REDIS;
use super::{FAULTS, FAULTS_US, REPLICAS, World, pick};
use crate::executor::{Node, lock};
use crate::network::LinkState;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A replica loses the database or Redis.
    Cut(Node),
    /// Every replica loses it.
    Outage(Node),
    Slow(Node),
    /// The connection of a replica to Redis breaks again and again.
    BrokenConnections,
    /// The database rolls all transactions back.
    DatabaseRestart,
    Kill,
    /// A replica stops in an orderly manner, and is started again.
    Stop,
    /// A replica ends right before or after its next commit.
    Crash,
    /// The next commit of a replica is long on its way.
    SlowCommit,
    Pause,
    /// Another application locks an account.
    LockedAccount,
    /// Redis restarts without its data.
    RedisRestart,
    /// Redis fails over to a copy that lags. One replica stays with the old server for a while.
    RedisFailover,
    DatabaseClockJump,
    RedisClockJump,
}

const ALL_FAULTS: [Fault; 18] = [
    Fault::Cut(DATABASE),
    Fault::Cut(REDIS),
    Fault::Outage(DATABASE),
    Fault::Outage(REDIS),
    Fault::Slow(DATABASE),
    Fault::Slow(REDIS),
    Fault::BrokenConnections,
    Fault::DatabaseRestart,
    Fault::Kill,
    Fault::Stop,
    Fault::Crash,
    Fault::SlowCommit,
    Fault::Pause,
    Fault::LockedAccount,
    Fault::RedisRestart,
    Fault::RedisFailover,
    Fault::DatabaseClockJump,
    Fault::RedisClockJump,
];

/// Injects faults until the world recovers.
pub async fn inject(world: World) {
    let sim = world.sim.clone();
    sim.sleep_ms(300 + sim.random(500)).await;
    let kinds: Vec<_> = (0..2 + sim.random(2)).map(|_| *pick(&sim, &ALL_FAULTS)).collect();
    while sim.now_us() < FAULTS_US {
        let (fault, node, world) = (*pick(&sim, &kinds), *pick(&sim, &REPLICAS), world.clone());
        sim.spawn(FAULTS, async move { inject_one(&world, fault, node).await });
        sim.sleep_ms(50 + sim.random(1_200)).await;
    }
}

async fn inject_one(world: &World, fault: Fault, node: Node) {
    let sim = &world.sim;
    let ms = if sim.is_once_in(4) { 5_000 } else { 800 };
    let longest_ms = (FAULTS_US + 500_000).saturating_sub(sim.now_us()) / 1_000;
    let duration = Duration::from_millis((10 + sim.random(ms)).min(longest_ms));
    sim.trace(|| format!("fault: {fault:?}, replica {node}, {} ms", duration.as_millis()));
    match fault {
        Fault::Cut(server) => cut(world, &[node], server, duration).await,
        Fault::Outage(server) => cut(world, &REPLICAS, server, duration).await,
        Fault::Slow(server) => {
            world.network.set_slowness(server, 1 + sim.random(60));
            sim.sleep(duration).await;
            world.network.set_slowness(server, 1);
        }
        Fault::BrokenConnections => {
            let until_us = sim.now_us() + u64::try_from(duration.as_micros()).expect("short");
            while sim.now_us() < until_us {
                world.network.set_link(node, REDIS, LinkState::Refused);
                sim.sleep_ms(1).await;
                world.network.set_link(node, REDIS, LinkState::Up);
                sim.sleep_ms(1 + sim.random(5)).await;
            }
        }
        Fault::DatabaseRestart => lock(&world.database).restart(),
        Fault::Kill => {
            world.kill(node);
            sim.sleep(duration).await;
            world.start_replica(node);
        }
        Fault::Stop => {
            world.stop_replica(node).await;
            sim.sleep(duration).await;
            world.start_replica(node);
        }
        Fault::Crash => {
            lock(&world.checker).commit_faults.insert(node, None);
            sim.sleep(duration).await;
            // It has not crashed if it has committed nothing meanwhile.
            if lock(&world.checker).commit_faults.remove(&node).is_none() {
                world.start_replica(node);
            }
        }
        Fault::SlowCommit => {
            lock(&world.checker).commit_faults.insert(node, Some(duration));
        }
        Fault::Pause => {
            sim.pause(node, duration);
            let until_us = sim.now_us() + u64::try_from(duration.as_micros()).expect("short");
            lock(&world.checker).paused_until_us.insert(node, until_us);
        }
        Fault::LockedAccount => {
            let Ok(tx) = world.database_client(FAULTS).begin().await else { return };
            if let Ok(Some(_)) = tx.claim_account(&world.pick_key()).await {
                sim.sleep(duration).await;
            }
        }
        Fault::RedisRestart => replace_redis(world, None, node, Duration::ZERO).await,
        Fault::RedisFailover => {
            replace_redis(world, Some(sim.random(900_000)), node, duration).await;
        }
        Fault::DatabaseClockJump => lock(&world.database).clock_offset_ms += world.random_jump_ms(),
        Fault::RedisClockJump => lock(&world.redis).move_clocks(world.random_jump_ms()),
    }
}

async fn cut(world: &World, nodes: &[Node], server: Node, duration: Duration) {
    let state = *pick(&world.sim, &[LinkState::Refused, LinkState::Hanging]);
    for node in nodes {
        world.network.set_link(*node, server, state);
    }
    world.sim.sleep(duration).await;
    for node in nodes {
        world.network.set_link(*node, server, LinkState::Up);
    }
}

/// Replaces the Redis server. One replica stays with the old one for a while.
async fn replace_redis(world: &World, lag_us: Option<u64>, last: Node, delay: Duration) {
    let server = lock(&world.redis).start(lag_us, world.sim.now_us());
    for node in REPLICAS.into_iter().filter(|node| *node != last) {
        lock(&world.redis).route(node, server);
    }
    world.sim.sleep(delay).await;
    lock(&world.redis).route(last, server);
}

/// Ends the process or waits if a fault says so, here once in so many times.
pub async fn inject_commit_fault(client: &DatabaseClient, times: u64) {
    let (sim, node) = (&client.network.sim, client.node);
    let fault = lock(&client.checker).commit_faults.get(&node).copied();
    let Some(fault) = fault.filter(|_| sim.is_once_in(times)) else { return };
    lock(&client.checker).commit_faults.remove(&node);
    match fault {
        Some(duration) => sim.sleep(duration).await,
        None => {
            sim.trace(|| format!("replica {node} crashes"));
            sim.kill(node);
            lock(&client.checker).end_process(node);
            std::future::pending::<()>().await;
        }
    }
}
