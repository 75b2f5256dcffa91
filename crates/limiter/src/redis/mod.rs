//! Implements the counters that all replicas share: Lua scripts in Redis, and the feed in which replicas announce
//! changes to each other.

mod address;
mod announcements;
mod batch;
pub mod breaker;
mod budget;
mod cluster;
mod connections;
mod counter_groups;
mod errors;
pub mod inspect;
pub mod outage;
mod primary;
mod queue;
mod region_links;
mod scripts;
pub mod server_clock;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use foundation::clock::{Clock, Monotonic, Timestamp};
use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use foundation::metrics::Metrics;
use foundation::traces;
use redis::Cmd;
use redis::cluster_routing::Slot;
use tokio::sync::oneshot;

use self::breaker::Breaker;
use self::connections::{RedisConnections, Script};
use self::outage::{Charge, OutageWindows};
use self::queue::{ConsumeQueue, PendingRequest};
use self::region_links::Regions;
use self::scripts::{ScriptRunner, spawn_worker};
use self::server_clock::RedisTime;
use super::{
    Adjustment, CloseResult, ConsumeReply, ConsumeRequest, EXACT_MAX, Keyspace, ReplicaRank,
    Window, WindowCounters,
};

pub use self::address::RedisAddress;
pub use self::budget::wait_with_timeout as within_budget;
pub use self::connections::RetryPolicy;
pub use self::outage::UnresolvedRequest;
pub use self::queue::ConsumeError;

pub use announcements::{FeedConnection, FeedPosition, FeedReadResult, check_entries};

/// The maximum number of concurrent scripts while Redis is far away. With [`scripts::FAR_KEYS_MAX`] keys each, they consume far
/// more than 20,000 windows a second 100 ms away.
const FAR_WORKERS_MAX: usize = 32;
/// The maximum number of concurrent scripts in a cluster, where only requests for the same slot share a script.
const CLUSTER_WORKERS_MAX: usize = 64;
/// For how many milliseconds of distance one more script may be under way.
const MS_PER_WORKER: usize = 3;
/// How long a caller waits until an adjustment is counted.
const ADJUSTMENT_TIMEOUT: Duration = Duration::from_millis(500);

pub struct RedisCounters {
    address: RedisAddress,
    keyspace: Keyspace,
    close_script: Script,
    list_active_script: Script,
    announce_script: Script,
    consumer: Consumer,
    script_runner: Arc<ScriptRunner>,
    /// The other regions, if there are any.
    regions: Option<Arc<Regions>>,
}

/// Sends consume requests in batches.
#[derive(Clone)]
struct Consumer {
    queue: Arc<ConsumeQueue>,
    script_runner: Arc<ScriptRunner>,
}

impl Consumer {
    pub async fn enqueue(
        &self,
        request: ConsumeRequest,
        slot: Option<Slot>,
        now: Option<Timestamp>,
    ) -> std::result::Result<ConsumeReply, ConsumeError> {
        let (reply_sender, reply) = oneshot::channel();
        // The worker runs in its own task: a caller that stops waiting must not end the batch of other callers.
        let pending = PendingRequest { request, now, slot, reply_sender };
        if let Some(worker) = self.queue.add(pending, self.workers_max(), Monotonic::now()) {
            spawn_worker(&self.script_runner, worker);
        }
        // No timer is needed: the worker times out callers whose deadline has passed.
        reply.await.unwrap_or_else(|_| {
            Err(Error::Internal("the worker of the consume queue ended unexpectedly".into()).into())
        })
    }

    /// Returns the maximum number of concurrent scripts. The farther Redis is, the more of them are under way.
    fn workers_max(&self) -> usize {
        if self.script_runner.connections.is_cluster() {
            return CLUSTER_WORKERS_MAX;
        }
        let needed = self.script_runner.round_trip_ms() / MS_PER_WORKER;
        needed.clamp(queue::WORKERS_MAX, FAR_WORKERS_MAX)
    }
}

impl RedisCounters {
    /// Creates the counters without connecting, so that a replica starts while Redis is unreachable. `timeout` bounds
    /// every call, unless Redis is far away: [`Self::timeout`].
    pub fn new(
        address: RedisAddress,
        timeout: Duration,
        keyspace: Keyspace,
        metrics: &Metrics,
    ) -> Result<Self> {
        let connections = RedisConnections::new(&address, timeout)?;
        let consume = Script::new(script_source(include_str!("../../../../lua/consume.lua")));
        let script_runner = Arc::new(ScriptRunner {
            connections,
            consume_script: consume,
            charge_script: Script::new(script_source(include_str!("../../../../lua/charge.lua"))),
            probe_key: keyspace.probe(),
            breaker: Breaker::default(),
            redis_time: RedisTime::default(),
            outage_windows: OutageWindows::new(metrics.local_costs_dropped.clone()),
            call_counter: metrics.redis_calls.clone(),
            failure_counter: metrics.redis_failures.clone(),
        });
        let queue = ConsumeQueue::new(Monotonic::now());
        Ok(Self {
            address,
            announce_script: announcements::announce_script(),
            close_script: Script::new(script_source(include_str!(
                "../../../../lua/close_lease.lua"
            ))),
            list_active_script: Script::new(
                include_str!("../../../../lua/list_active_leases.lua").to_owned(),
            ),
            consumer: Consumer { queue, script_runner: script_runner.clone() },
            script_runner,
            regions: None,
            keyspace,
        })
    }

    /// Returns the same counters with those of the other regions, to whose positions windows refer.
    /// `None` stands for this region.
    pub fn with_regions(self, counters: Vec<Option<Arc<Self>>>, metrics: &Metrics) -> Self {
        let regions = Regions::new(counters, self.keyspace.clone(), metrics.regions.clone());
        for other in regions.others() {
            self.script_runner.outage_windows.share_usage(&other.script_runner.outage_windows);
        }
        Self { regions: Some(Arc::new(regions)), ..self }
    }

    /// Returns an error unless Redis replies within the timeout.
    pub async fn ping(&self) -> Result<()> {
        self.script_runner.ping().await
    }

    /// Connects, so that the first request does not have to: that takes longer than a request waits for Redis. Returns an
    /// error unless Redis replies within this time.
    pub async fn connect(&self, within: Duration) -> Result<()> {
        self.script_runner.connect(within).await
    }

    /// Returns whether Redis Sentinel names the primary.
    pub fn has_sentinel(&self) -> bool {
        self.address.has_sentinel()
    }

    /// Asks Sentinel for the primary, and leaves a server that is no longer it.
    pub async fn follow_primary(&self) -> Result<()> {
        self.script_runner.connections.follow_primary().await
    }

    /// Returns the shortest round trip of the last seconds. `None`: there was no reply yet.
    pub fn round_trip(&self) -> Option<Duration> {
        self.script_runner.connections.distance().round_trip()
    }

    /// Returns the time that a call may take: the timeout, or four round trips, up to a second, if Redis is far away.
    pub fn timeout(&self) -> Duration {
        self.script_runner.connections.timeout()
    }

    /// Returns whether the circuit breaker is open.
    pub fn is_breaker_open(&self) -> bool {
        self.script_runner.breaker.is_open()
    }

    /// Consumes everything or nothing. An error means an outage; it also says whether Redis may still execute the
    /// request.
    pub async fn consume(
        &self,
        request: &ConsumeRequest,
        now: Option<Timestamp>,
    ) -> std::result::Result<ConsumeReply, ConsumeError> {
        if self.is_breaker_open() {
            return Err(Error::RedisBreakerOpen.into());
        }
        if Safeguard::AtomicConsume.is_disabled()
            && request.windows.iter().any(|window| window.cost > 0)
        {
            return self.consume_non_atomically(request, now).await;
        }
        if self.script_runner.connections.is_cluster() {
            return Box::pin(traces::step("redis.take", self.consume_across_slots(request, now)))
                .await;
        }
        // A request for a grant comes from another region.
        let is_from_elsewhere = request.grant_terms.is_some();
        if !is_from_elsewhere && request.windows.iter().any(Window::is_regional) {
            return Box::pin(traces::step("redis.take", self.consume_regional(request, now))).await;
        }
        traces::step("redis.take", self.enqueue(request.clone(), None, now)).await
    }

    async fn enqueue(
        &self,
        request: ConsumeRequest,
        slot: Option<Slot>,
        now: Option<Timestamp>,
    ) -> std::result::Result<ConsumeReply, ConsumeError> {
        self.consumer.enqueue(request, slot, now).await
    }

    /// Decides windows without Redis, by this replica's share of each; see [`outage`]. Also returns the shares, as
    /// windows with a lower limit. `clock` is used if Redis' time is unknown.
    pub fn consume_share(
        &self,
        windows: &[Window],
        rank: ReplicaRank,
        may_consume: bool,
        unresolved: Option<UnresolvedRequest>,
        clock: &Clock,
    ) -> (ConsumeReply, Vec<Window>) {
        let redis_time = &self.script_runner.redis_time;
        let redis_now =
            clock.fixed_time().or_else(|| redis_time.deadline_after_ms(0, Monotonic::now()));
        let now = redis_now.unwrap_or_else(|| clock.now());
        self.script_runner.outage_windows.consume(
            windows,
            rank,
            may_consume,
            unresolved,
            now,
            |away, charge| self.charge_away(away, charge),
        )
    }

    /// Changes counts. They are sent like charges: at most once, and in the time of a call if nothing delays them. A count
    /// never falls below 0, and a window that has ended is not changed.
    pub async fn adjust(&self, adjustments: Vec<Adjustment>) {
        for Adjustment { window, window_number, units } in adjustments {
            let charge = Charge {
                key: window.key.clone(),
                window_number,
                duration_ms: window.duration_ms,
                cost: units,
            };
            match window.away() {
                Some(away) => self.charge_away(away, charge),
                None => self.script_runner.outage_windows.add_charges(vec![charge]),
            }
        }
        if let Some(sending) = self.script_runner.send_due_charges() {
            // It goes on if this takes too long.
            let _ = tokio::time::timeout(ADJUSTMENT_TIMEOUT, sending).await;
        }
        self.send_due_charges();
    }

    /// Sends due charges to the Redis of each region.
    pub fn send_due_charges(&self) {
        let others = self.regions.iter().flat_map(|regions| regions.others());
        for counters in std::iter::once(self).chain(others) {
            counters.script_runner.send_due_charges();
        }
    }

    /// Consumes without the atomicity of a script. It is used only by tests that show the resulting fault.
    async fn consume_non_atomically(
        &self,
        request: &ConsumeRequest,
        now: Option<Timestamp>,
    ) -> std::result::Result<ConsumeReply, ConsumeError> {
        let mut peek = request.clone();
        peek.windows.iter_mut().for_each(|window| window.cost = 0);
        peek.spend = None;
        let counts = self.enqueue(peek, None, now).await?;
        let mut unchecked = request.clone();
        if counts
            .windows
            .iter()
            .zip(&request.windows)
            .all(|(count, window)| count.is_within_limit(window))
        {
            unchecked.windows.iter_mut().for_each(|window| window.limit = EXACT_MAX);
        }
        self.enqueue(unchecked, None, now).await
    }

    /// Returns the credits spent from each lease that was spent from within `within`. In a cluster, whose scripts
    /// access one slot each, it returns none: closing each lease gives the same information.
    pub async fn list_active_leases(
        &self,
        leases: &[String],
        within: Duration,
        now: Option<Timestamp>,
    ) -> Result<Vec<Option<i64>>> {
        if self.script_runner.connections.is_cluster() || leases.is_empty() {
            return Ok(vec![None; leases.len()]);
        }
        if self.is_breaker_open() {
            return Err(Error::RedisBreakerOpen);
        }
        let arguments = |command: &mut Cmd| {
            command.arg(leases.len()).arg(leases);
            batch::encode_time(command, now);
            command.arg(u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
        };
        let calling = self.script_runner.connections.run_script(
            &self.list_active_script,
            RetryPolicy::Once,
            arguments,
        );
        let spent: Vec<i64> = self.script_runner.record_outcome(calling).await?;
        Ok(spent.into_iter().map(|spent| (spent >= 0).then_some(spent)).collect())
    }

    /// Closes a lease permanently, unless it was spent from within `idle`. `generation` is the Redis generation in
    /// which it was created. Closing it again returns the same result.
    pub async fn close_lease(
        &self,
        lease: &str,
        generation: i64,
        idle: Duration,
        now: Option<Timestamp>,
    ) -> Result<CloseResult> {
        if self.is_breaker_open() {
            return Err(Error::RedisBreakerOpen);
        }
        let arguments = |command: &mut Cmd| {
            command.arg(1).arg(lease);
            batch::encode_time(command, now);
            command.arg(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX)).arg(generation);
        };
        let closing = self.script_runner.connections.run_script(
            &self.close_script,
            RetryPolicy::Once,
            arguments,
        );
        let (state, spent): (i64, i64) = self.script_runner.record_outcome(closing).await?;
        Ok(CloseResult::from_reply(state, spent))
    }
}

/// What tests replace in the scripts to show the fault that a safeguard prevents.
const SABOTAGES: [(Safeguard, &str, &str); 6] = [
    (
        Safeguard::FenceGeneration,
        "local id = string.match",
        "local id = '0000000000001' or string.match",
    ),
    (Safeguard::Format, "or 1) > version", "or 1) > 255"),
    (Safeguard::GrantCounted, "count[k] + cost", "count[k] + (least and 0 or cost)"),
    (Safeguard::GrantCounted, "count[k] - cost", "count[k] - (granted and 0 or cost)"),
    (Safeguard::TakenFirst, "call('SETRANGE', KEYS[k], 32, write('>d', 0))", ""),
    (Safeguard::ClosedWindow, "if last <= number then", "if false then"),
];

/// Returns the script unchanged, except in tests that disable a safeguard.
fn script_source(source: &'static str) -> String {
    let is_disabled = |(safeguard, ..): &&(Safeguard, _, _)| safeguard.is_disabled();
    let sabotages = SABOTAGES.iter().filter(is_disabled);
    sabotages.fold(source.to_owned(), |source, (_, from, to)| source.replace(from, to))
}

impl WindowCounters for RedisCounters {
    async fn consume_windows(
        &self,
        windows: &[Window],
        now: Option<Timestamp>,
    ) -> Result<ConsumeReply> {
        Ok(self.consume(&ConsumeRequest::of_windows(windows.to_vec()), now).await?)
    }
}

#[cfg(test)]
mod tests;
