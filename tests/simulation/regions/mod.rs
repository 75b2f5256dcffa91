//! Simulates windows that several regions share: limits are exact by the rule of their home (see [`limiter::regions`]).
//!
//! One window, counted in the first region, from which its home may move to another. Every region has a Redis, and replicas that run the program's own state machine.

mod check;
mod engine;
mod faults;
mod links;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use check::Checker;
use engine::Engine;
use foundation::clock::Timestamp;
use limiter::regions::{self, Questions};
use limiter::{Away, ConsumeRequest, Moves, Placement, RegionIndex, Window, WindowHome};
use links::SimulatedLinks;

use crate::executor::{Node, Sim, lock};
use crate::network::Network;

pub const REGIONS: usize = 3;
const REPLICAS_PER_REGION: usize = 2;
/// The node on which faults are injected.
const FAULTS: Node = 901;
/// The time in which faults are injected; the time in which everything recovers and nothing is consumed, which is at least
/// two windows; and the time in which all regions consume.
const FAULTS_US: u64 = 5_000_000;
/// The time of the clocks when a schedule begins, in milliseconds.
const CLOCK_START_MS: i64 = 1_000_000_000;
const WINDOW_NAME: &str = "t:w:{key_a}:requests";
const LEASE_NAME: &str = "t:aw:{key_a}:requests";

/// Returns the node of a region's Redis.
pub fn redis_node(region: usize) -> Node {
    300 + region
}

/// Returns the node of a replica.
pub fn replica_node(region: usize, replica: usize) -> Node {
    10 * (region + 1) + replica
}

pub fn replicas() -> impl Iterator<Item = (usize, Node)> {
    (0..REGIONS)
        .flat_map(|region| (0..REPLICAS_PER_REGION).map(move |n| (region, replica_node(region, n))))
}

/// The Redis of a region, with its clock.
#[derive(Default)]
pub struct RegionRedis {
    pub engine: Engine,
    pub clock_offset_ms: i64,
}

/// The window that is consumed.
#[derive(Debug, Clone)]
pub struct Settings {
    pub limit: i64,
    pub duration_ms: i64,
    /// The time between two requests of one caller, at most.
    pause_ms: u64,
    callers: usize,
    /// The homes, and the number of the first window of each, which is 0 for the first one.
    homes: Vec<(usize, i64)>,
}

impl Settings {
    /// Returns the region that counts a window.
    pub fn home_of(&self, number: i64) -> usize {
        let home = self.homes.iter().rfind(|(_, first)| number >= *first);
        home.map_or(0, |(region, _)| *region)
    }

    /// Returns the region that counts the windows after all moves.
    fn last_home(&self) -> usize {
        self.home_of(i64::MAX)
    }

    /// Returns the regions that are or become the home.
    pub fn homes(&self) -> impl Iterator<Item = usize> {
        self.homes.iter().map(|(region, _)| *region)
    }
}

#[derive(Clone)]
pub struct World {
    pub sim: Sim,
    pub network: Network,
    pub redis: Arc<Vec<Mutex<RegionRedis>>>,
    pub checker: Arc<Mutex<Checker>>,
    pub settings: Arc<Mutex<Settings>>,
    /// Whether callers consume.
    pub is_demanded: Arc<Mutex<bool>>,
}

/// The result of a schedule in which every guarantee held.
pub struct Summary {
    pub admitted: i64,
    pub denied: u64,
    pub asked: u64,
    pub calls: u64,
}

impl World {
    fn new(sim: &Sim) -> Self {
        let limits = [1, 3, 19, 20, 60, 300];
        let durations = [500, 1_000, 2_000];
        let pick = |values: &[i64]| {
            values[usize::try_from(sim.random(values.len() as u64)).expect("small")]
        };
        let duration_ms = pick(&durations);
        // Clocks that differ by seconds delay a move by as much, so they differ less then.
        let is_moving = sim.is_once_in(3);
        let differences_ms = if is_moving { 300 } else { 20_000 };
        let redis = (0..REGIONS).map(|region| {
            let engine = Engine::empty(1 + i64::try_from(region).expect("small"));
            let difference = i64::try_from(sim.random(differences_ms)).expect("small");
            Mutex::new(RegionRedis { engine, clock_offset_ms: CLOCK_START_MS + difference })
        });
        let redis: Vec<_> = redis.collect();
        let mut homes = vec![(0, 0)];
        let mut at_ms =
            CLOCK_START_MS + i64::try_from(sim.random(FAULTS_US / 1_000)).expect("small");
        while is_moving && (homes.len() == 1 || (homes.len() < 5 && sim.is_once_in(2))) {
            let step = 1 + usize::try_from(sim.random(REGIONS as u64 - 1)).expect("small");
            let (from, last) = homes[homes.len() - 1];
            homes.push(((from + step) % REGIONS, (at_ms / duration_ms).max(last) + 1));
            at_ms += i64::try_from(sim.random(2_000)).expect("small");
        }
        let settings = Settings {
            limit: pick(&limits),
            duration_ms,
            pause_ms: 10 + sim.random(190),
            callers: 1 + usize::try_from(sim.random(4)).expect("small"),
            homes,
        };
        let world = Self {
            sim: sim.clone(),
            network: Network::new(sim),
            redis: Arc::new(redis),
            checker: Arc::new(Mutex::new(Checker::new(settings.clone()))),
            settings: Arc::new(Mutex::new(settings)),
            is_demanded: Arc::new(Mutex::new(true)),
        };
        for (region, node) in replicas() {
            for other in (0..REGIONS).filter(|other| *other != region) {
                let one_way = Duration::from_millis(1 + sim.random(120));
                world.network.set_distance(node, redis_node(other), one_way);
            }
        }
        world
    }

    /// Returns the time of a region's Redis, in milliseconds.
    pub fn redis_now(&self, region: usize) -> i64 {
        let ms = i64::try_from(self.sim.now_us() / 1_000).expect("small");
        ms + lock(&self.redis[region]).clock_offset_ms
    }

    /// Returns the window as a region sees it now.
    fn window(&self, region: usize, settings: &Settings, cost: i64) -> Window {
        let away = |home: usize| {
            let home = RegionIndex(u8::try_from(home).expect("small"));
            (usize::from(home.0) != region)
                .then(|| Arc::new(Away { home, lease: LEASE_NAME.into() }))
        };
        let homes = settings.homes.iter().map(|(home, first_window)| WindowHome {
            first_window: *first_window,
            away: away(*home),
        });
        let moves = Moves { homes: homes.collect(), begun: "t:b".into() };
        let moves = (settings.homes.len() > 1).then(|| Arc::new(moves));
        let placement = Placement { away: away(settings.last_home()), moves };
        let window = Window::new(WINDOW_NAME, settings.limit, settings.duration_ms, cost);
        window.placed(&placement, || Timestamp(self.redis_now(region)))
    }

    /// Starts a process on a node, with its callers.
    pub fn start_replica(&self, region: usize, node: Node) {
        self.sim.kill(node);
        self.sim.trace(|| format!("replica {node} starts"));
        let questions = Arc::new(Questions::new(REGIONS));
        let links = SimulatedLinks { world: self.clone(), region, node };
        let settings = lock(&self.settings).clone();
        for _ in 0..settings.callers {
            self.sim.spawn(node, self.clone().call(region, links.clone(), questions.clone()));
        }
        let (world, links) = (self.clone(), links);
        self.sim.spawn(node, async move {
            loop {
                world.sim.sleep_ms(500).await;
                let _ = regions::give_back_rests(&links, &questions).await;
            }
        });
    }

    async fn call(self, region: usize, links: SimulatedLinks, questions: Arc<Questions>) {
        loop {
            let settings = lock(&self.settings).clone();
            self.sim.sleep_ms(self.sim.random(settings.pause_ms + 1)).await;
            if !*lock(&self.is_demanded) {
                self.sim.sleep_ms(10).await;
                continue;
            }
            let cost = if self.sim.is_once_in(8) { 1 + self.sim.random(4) } else { 1 };
            let cost = i64::try_from(cost).expect("small");
            let window = self.window(region, &settings, cost);
            let request = ConsumeRequest::of_windows(vec![window]);
            let reply = regions::consume(&links, &questions, &request).await;
            if let Some(reply) = reply.ok().filter(|reply| !reply.is_admitted) {
                // What a caller is told follows from the statuses of the windows.
                let statuses = reply.window_statuses(&request.windows);
                if !statuses.iter().any(|status| status.is_exceeded) {
                    self.sim.fail(format!("denied without a reason: {reply:?}"));
                }
                lock(&self.checker).denied += 1;
                self.sim.sleep_ms(4 * self.sim.random(settings.pause_ms + 1)).await;
            }
        }
    }
}

/// Runs one schedule of random faults, and then one window without any.
pub fn run(sim: &Sim) -> Result<Summary, String> {
    let world = World::new(sim);
    sim.trace(|| format!("{:?}", lock(&world.settings)));
    for (region, node) in replicas() {
        world.start_replica(region, node);
    }
    sim.spawn(FAULTS, faults::inject(world.clone()));
    let duration_us = u64::try_from(lock(&world.settings).duration_ms).expect("positive") * 1_000;
    let calm_us = FAULTS_US + 2_000_000;
    sim.run_until(calm_us)?;
    *lock(&world.is_demanded) = false;
    // Three windows, in which the leases of the past end and nothing counts any more; then to the start of a window.
    let rest_us = calm_us + 3 * duration_us + 1_000_000;
    sim.run_until(rest_us)?;
    let settings = lock(&world.settings).clone();
    let duration_ms = settings.duration_ms;
    let home = settings.last_home();
    let offset_ms = lock(&world.redis[home]).clock_offset_ms;
    let rest_ms = i64::try_from(rest_us / 1_000).expect("small");
    let number = (rest_ms + offset_ms) / duration_ms + 1;
    let start_us = u64::try_from(number * duration_ms - offset_ms).expect("later") * 1_000;
    sim.run_until(start_us)?;
    *lock(&world.is_demanded) = true;
    sim.run_until(start_us + duration_us)?;
    let checker = lock(&world.checker);
    checker.check_use(number)?;
    let Checker { admitted, denied, asked, calls, .. } = &*checker;
    Ok(Summary { admitted: *admitted, denied: *denied, asked: *asked, calls: *calls })
}
