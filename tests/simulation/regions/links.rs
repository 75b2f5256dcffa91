//! The calls of a simulated replica.

use std::sync::Arc;
use std::time::Duration;

use foundation::clock::Monotonic;
use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use futures_util::future::BoxFuture;
use limiter::regions::{REST, RegionLinks, TakenBack};
use limiter::{ConsumeReply, ConsumeRequest, Grant, RegionIndex, Window};

use super::engine::Engine;
use super::{FAULTS_US, World, redis_node};
use crate::executor::{Node, lock, now};

/// How long a replica waits for a reply.
const TIMEOUT: Duration = Duration::from_millis(600);

/// One reply in so many is lost.
const REPLIES_PER_LOSS: u64 = 200;

#[derive(Clone)]
pub struct SimulatedLinks {
    pub world: World,
    pub region: usize,
    pub node: Node,
}

fn lost() -> Error {
    Error::Internal("the reply was lost".into())
}

impl SimulatedLinks {
    /// Runs an operation on the Redis of a region. A call that failed may be repeated, as by the client.
    async fn call<T: Send + 'static>(
        &self,
        region: usize,
        may_repeat: bool,
        operation: impl Fn(&World, &mut Engine, i64) -> T + Clone + Send + 'static,
    ) -> Result<T> {
        let World { sim, network, .. } = &self.world;
        let attempts = if may_repeat && sim.is_once_in(2) { 2 } else { 1 };
        for _ in 0..attempts {
            let (world, operation) = (self.world.clone(), operation.clone());
            let calling = network.call(self.node, redis_node(region), async move {
                let now = world.redis_now(region);
                let mut redis = lock(&world.redis[region]);
                operation(&world, &mut redis.engine, now)
            });
            let reply = sim.timeout(TIMEOUT, calling).await;
            // While there are faults, a connection also breaks between a request and its reply.
            let is_lost = sim.now_us() < FAULTS_US && sim.is_once_in(REPLIES_PER_LOSS);
            if let Some(Ok(reply)) = reply.filter(|_| !is_lost) {
                return Ok(reply);
            }
        }
        Err(lost())
    }
}

impl RegionLinks for SimulatedLinks {
    type CallError = Arc<Error>;

    async fn consume_here(
        &self,
        request: ConsumeRequest,
    ) -> std::result::Result<ConsumeReply, Arc<Error>> {
        let region = self.region;
        let consuming = self.call(region, true, move |world, engine, now| {
            let reply = engine.consume(&request, now);
            if reply.is_admitted {
                lock(&world.checker).record(world, &request, &reply, region);
            }
            reply
        });
        consuming.await.map_err(Arc::new)
    }

    async fn ask_home(&self, home: RegionIndex, request: ConsumeRequest) -> Result<ConsumeReply> {
        lock(&self.world.checker).asked += 1;
        self.call(usize::from(home.0), true, move |_, engine, now| engine.consume(&request, now))
            .await
    }

    async fn add_grants(&self, grants: Vec<Grant>) -> Result<()> {
        let request = ConsumeRequest { grants, ..ConsumeRequest::default() };
        let may_repeat = Safeguard::GrantOnce.is_disabled();
        self.call(self.region, may_repeat, move |_, engine, now| {
            engine.consume(&request, now);
        })
        .await
    }

    async fn take_back(&self, leases: &[Arc<str>]) -> Result<Vec<TakenBack>> {
        let leases = leases.to_vec();
        let rest_ms = i64::try_from(REST.as_millis()).expect("small");
        let taking = self.call(self.region, false, move |_, engine, now| {
            leases.iter().map(|lease| engine.take_back(lease, rest_ms, now)).collect()
        });
        taking.await
    }

    async fn give_back(&self, home: RegionIndex, window: &Window, taken: TakenBack) -> Result<()> {
        let window = window.clone();
        self.call(usize::from(home.0), false, move |_, engine, now| {
            engine.give_back(&window, taken, now);
        })
        .await
    }

    async fn close_window(
        &self,
        region: Option<RegionIndex>,
        window: &Window,
        window_number: i64,
    ) -> Result<i64> {
        let region = region.map_or(self.region, |region| usize::from(region.0));
        let window = window.clone();
        let operation = move |world: &World, engine: &mut Engine, _| {
            let count = engine.close_window(&window, window_number);
            world.sim.trace(|| format!("region {region} closes window {window_number}: {count}"));
            count
        };
        self.call(region, true, operation).await
    }

    async fn seed_window(
        &self,
        region: Option<RegionIndex>,
        window: &Window,
        window_number: i64,
        count: i64,
    ) -> Result<()> {
        let region = region.map_or(self.region, |region| usize::from(region.0));
        let window = window.clone();
        let operation = move |world: &World, engine: &mut Engine, _| {
            world.sim.trace(|| format!("region {region} gets window {window_number}: {count}"));
            engine.seed_window(&window, window_number, count);
        };
        self.call(region, true, operation).await
    }

    fn record_decision(&self, _has_waited: bool) {}

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.world.sim.spawn(self.node, task);
    }

    fn now(&self) -> Monotonic {
        now()
    }
}
