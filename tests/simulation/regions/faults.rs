//! Faults: links are cut or hang, replicas are killed and paused, Redis loses its data or fails over, clocks jump.

use std::time::Duration;

use super::engine::Engine;
use super::{FAULTS_US, REGIONS, World, redis_node, replicas};
use crate::executor::lock;
use crate::network::LinkState;

pub async fn inject(world: World) {
    let World { sim, .. } = &world;
    // Half of the schedules have no jumps of clocks, so that the sliding rule is checked to the millisecond.
    let may_jump = sim.is_once_in(2);
    while sim.now_us() < FAULTS_US {
        sim.sleep_ms(sim.random(1_500)).await;
        let all: Vec<_> = replicas().collect();
        let (region, node) = all[usize::try_from(sim.random(all.len() as u64)).expect("small")];
        let server = usize::try_from(sim.random(REGIONS as u64)).expect("small");
        let until = Duration::from_millis(sim.random(2_000));
        match sim.random(7) {
            0 | 1 => {
                let state = if sim.is_once_in(2) { LinkState::Refused } else { LinkState::Hanging };
                sim.trace(|| format!("the link of {node} to Redis {server} is {state:?}"));
                world.network.set_link(node, redis_node(server), state);
                heal_later(&world, node, server, until);
            }
            2 => world.start_replica(region, node),
            3 => sim.pause(node, until),
            4 => lose_data(&world, server),
            5 => fail_over(&world, server, until),
            _ if may_jump => {
                let ms = i64::try_from(sim.random(4_000)).expect("small") - 2_000;
                sim.trace(|| format!("the clock of Redis {server} jumps by {ms} ms"));
                lock(&world.checker).has_jumped = true;
                lock(&world.redis[server]).clock_offset_ms += ms;
            }
            _ => {}
        }
    }
}

fn heal_later(world: &World, node: usize, server: usize, after: Duration) {
    let (sim, network) = (world.sim.clone(), world.network.clone());
    world.network.spawn(async move {
        sim.sleep(after).await;
        network.set_link(node, redis_node(server), LinkState::Up);
    });
}

fn record_loss(world: &World, server: usize) {
    let settings = lock(&world.settings).clone();
    if settings.homes().any(|home| home == server) {
        let number = world.redis_now(server).div_euclid(settings.duration_ms);
        lock(&world.checker).record_loss(number);
    }
}

/// A Redis without persistence restarts.
fn lose_data(world: &World, server: usize) {
    world.sim.trace(|| format!("Redis {server} loses its data"));
    record_loss(world, server);
    let mut redis = lock(&world.redis[server]);
    redis.engine = Engine::empty(redis.engine.generation + 10);
}

/// A follower that lags is promoted.
fn fail_over(world: &World, server: usize, lag: Duration) {
    let mut copy = lock(&world.redis[server]).engine.clone();
    let world = world.clone();
    world.clone().network.spawn(async move {
        world.sim.sleep(lag).await;
        world.sim.trace(|| format!("Redis {server} fails over to a copy {lag:?} old"));
        record_loss(&world, server);
        let mut redis = lock(&world.redis[server]);
        copy.generation = redis.engine.generation + 10;
        redis.engine = copy;
    });
}
