//! The counters that all replicas share: Lua scripts in Redis, and the feed in which replicas tell
//! each other what changes.

mod announcements;
mod batch;
mod breaker;
mod budget;
mod cluster;
mod connections;
mod counter_groups;
pub mod inspect;
mod outage;
mod queue;
mod scripts;
mod server_clock;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use foundation::clock::{Clock, Timestamp};
use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use foundation::metrics::Metrics;
use foundation::traces;
use redis::Cmd;
use redis::cluster_routing::Slot;
use tokio::sync::oneshot;

use self::breaker::Breaker;
use self::connections::{RedisConnections, RetryPolicy, Script};
use self::outage::OutageWindows;
use self::queue::{ConsumeQueue, PendingRequest};
use self::scripts::{ScriptRunner, spawn_worker};
use self::server_clock::RedisTime;
use super::{
    CloseResult, ConsumeReply, ConsumeRequest, EXACT_MAX, Keyspace, ReplicaRank, Window,
    WindowCounters,
};

pub use self::budget::within as within_budget;
pub use self::outage::Unsettled;
pub use self::queue::Missed;

/// Where Redis is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    One(String),
    /// Some of the nodes of a Redis Cluster; they tell of the others.
    Cluster(Vec<String>),
}

impl Address {
    /// `redis-cluster://[user:password@]host:port[,host:port…]` is a cluster; any other URL is one server.
    pub fn parse(url: &str) -> Self {
        let Some(rest) = url.strip_prefix(CLUSTER_SCHEME) else {
            return Self::One(url.to_owned());
        };
        let (user, nodes) = match rest.rsplit_once('@') {
            Some((user, nodes)) => (format!("{user}@"), nodes),
            None => (String::new(), rest),
        };
        let nodes = nodes.trim_end_matches('/').split(',');
        Self::Cluster(nodes.map(|node| format!("redis://{user}{node}")).collect())
    }

    fn urls(&self) -> &[String] {
        match self {
            Self::One(url) => std::slice::from_ref(url),
            Self::Cluster(urls) => urls,
        }
    }
}

/// What the URL of a Redis Cluster begins with.
pub const CLUSTER_SCHEME: &str = "redis-cluster://";

pub use announcements::{FeedConnection, Found, Position};

pub struct RedisCounters {
    address: Address,
    keyspace: Keyspace,
    close: Script,
    busy: Script,
    announce: Script,
    queue: Arc<ConsumeQueue>,
    calls: Arc<ScriptRunner>,
}

impl RedisCounters {
    /// Does not connect: a replica starts while Redis is away. `timeout` bounds every call.
    pub fn new(
        url: &str,
        timeout: Duration,
        keyspace: Keyspace,
        metrics: &Metrics,
    ) -> Result<Self> {
        let address = Address::parse(url);
        let lanes = RedisConnections::new(&address, timeout)?;
        let workers_max =
            if lanes.is_cluster() { queue::CLUSTER_WORKERS_MAX } else { queue::WORKERS_MAX };
        let take = Script::new(fenced(include_str!("../../../../lua/consume.lua")));
        Ok(Self {
            address,
            announce: announcements::script(),
            close: Script::new(fenced(include_str!("../../../../lua/close_lease.lua"))),
            busy: Script::new(include_str!("../../../../lua/list_active_leases.lua").to_owned()),
            queue: ConsumeQueue::new(workers_max, lanes.timeout()),
            calls: Arc::new(ScriptRunner {
                lanes,
                take,
                charge: Script::new(include_str!("../../../../lua/charge.lua").to_owned()),
                probed: keyspace.probe(),
                breaker: Breaker::new(),
                time: RedisTime::new(),
                outage: OutageWindows::new(metrics.local_costs_dropped.clone()),
                asked: metrics.redis_calls.clone(),
                failed: metrics.counters_failures.clone(),
            }),
            keyspace,
        })
    }

    /// Whether Redis answers in time.
    pub async fn ping(&self) -> Result<()> {
        self.calls.ping().await
    }

    /// Whether Redis has been given up until it answers a probe.
    pub fn is_breaker_open(&self) -> bool {
        self.calls.breaker.is_open()
    }

    /// Takes everything or nothing. An error is an outage; it says too whether Redis may still do what was asked.
    pub async fn consume(
        &self,
        take: &ConsumeRequest,
        now: Option<Timestamp>,
    ) -> std::result::Result<ConsumeReply, Missed> {
        if self.is_breaker_open() {
            return Err(Error::CountersAway.into());
        }
        if Safeguard::AtomicConsume.is_disabled()
            && take.windows.iter().any(|window| window.cost > 0)
        {
            return self.consume_non_atomically(take, now).await;
        }
        if self.calls.lanes.is_cluster() {
            return Box::pin(traces::step("redis.take", self.consume_across_slots(take, now)))
                .await;
        }
        traces::step("redis.take", self.enqueue(take.clone(), None, now)).await
    }

    async fn enqueue(
        &self,
        take: ConsumeRequest,
        slot: Option<Slot>,
        now: Option<Timestamp>,
    ) -> std::result::Result<ConsumeReply, Missed> {
        let (answer, answered) = oneshot::channel();
        // A task of its own: whoever stops waiting must not end the batch that others are part of.
        if let Some(worker) = self.queue.add(PendingRequest { take, now, slot, answer }) {
            spawn_worker(&self.calls, worker);
        }
        // No timer: the worker sends away whose time is over.
        answered
            .await
            .unwrap_or_else(|_| Err(Error::Internal("the counters' worker was lost".into()).into()))
    }

    /// Decides windows without Redis, by this replica's share of each; see [`outage`]. Returns the shares too, as
    /// windows with a lower limit. `clock` counts where Redis' time is not known.
    pub fn consume_share(
        &self,
        windows: &[Window],
        rank: ReplicaRank,
        may_take: bool,
        unsettled: Option<Unsettled>,
        clock: &Clock,
    ) -> (ConsumeReply, Vec<Window>) {
        let known = clock.fixed_time().or_else(|| self.calls.time.deadline_after_ms(0));
        let now = known.unwrap_or_else(|| clock.now());
        self.calls.outage.consume(windows, rank, may_take, unsettled, now)
    }

    /// Charges what is due, unless Redis has been given up.
    pub fn charge_due(&self) {
        if !self.is_breaker_open() {
            self.calls.charge_due();
        }
    }

    /// What a limiter does that has no script. Only for the tests that show what comes of it.
    async fn consume_non_atomically(
        &self,
        take: &ConsumeRequest,
        now: Option<Timestamp>,
    ) -> std::result::Result<ConsumeReply, Missed> {
        let mut look = take.clone();
        look.windows.iter_mut().for_each(|window| window.cost = 0);
        look.spend = None;
        let seen = self.enqueue(look, None, now).await?;
        let mut taken = take.clone();
        if seen.windows.iter().zip(&take.windows).all(|(count, window)| count.passed(window)) {
            taken.windows.iter_mut().for_each(|window| window.limit = EXACT_MAX);
        }
        self.enqueue(taken, None, now).await
    }

    /// Of each purse what was spent from it, where something was less than `within` ago. A cluster, whose
    /// scripts see one slot each, tells of none: closing one by one finds out as well.
    pub async fn list_active_leases(
        &self,
        purses: &[String],
        within: Duration,
        now: Option<Timestamp>,
    ) -> Result<Vec<Option<i64>>> {
        if self.calls.lanes.is_cluster() || purses.is_empty() {
            return Ok(vec![None; purses.len()]);
        }
        if self.is_breaker_open() {
            return Err(Error::CountersAway);
        }
        let arguments = |command: &mut Cmd| {
            command.arg(purses.len()).arg(purses);
            batch::time(command, now);
            command.arg(u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
        };
        let asking = self.calls.lanes.run(&self.busy, RetryPolicy::Once, arguments);
        let spent: Vec<i64> = self.calls.record_outcome(asking).await?;
        Ok(spent.into_iter().map(|spent| (spent >= 0).then_some(spent)).collect())
    }

    /// Closes a purse for good, unless something was spent from it for less than `idle` ago. `life`: the one that it was
    /// made in.
    pub async fn close_lease(
        &self,
        purse: &str,
        life: i64,
        idle: Duration,
        now: Option<Timestamp>,
    ) -> Result<CloseResult> {
        if self.is_breaker_open() {
            return Err(Error::CountersAway);
        }
        let arguments = |command: &mut Cmd| {
            command.arg(1).arg(purse);
            batch::time(command, now);
            command.arg(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX)).arg(life);
        };
        let closing = self.calls.lanes.run(&self.close, RetryPolicy::Once, arguments);
        let (state, spent): (i64, i64) = self.calls.record_outcome(closing).await?;
        Ok(match state {
            0 => CloseResult::NotFound,
            1 => CloseResult::Closed { spent },
            2 => CloseResult::InUse,
            _ if Safeguard::ProvenClosed.is_disabled() => CloseResult::NotFound,
            _ => CloseResult::WrongGeneration,
        })
    }
}

/// The script as it is, but for the tests that show what comes of a purse that outlives its Redis, or of a value that is
/// read as what it is not.
fn fenced(source: &'static str) -> String {
    let (with, version) = ("local id = string.match", "or 1) > version");
    if Safeguard::FenceGeneration.is_disabled() {
        return source.replace(with, "local id = '0000000000001' or string.match");
    }
    if Safeguard::Format.is_disabled() {
        return source.replace(version, "or 1) > 255");
    }
    source.to_owned()
}

impl WindowCounters for RedisCounters {
    async fn consume_windows(
        &self,
        windows: &[Window],
        now: Option<Timestamp>,
    ) -> Result<ConsumeReply> {
        Ok(self.consume(&ConsumeRequest { windows: windows.to_vec(), spend: None }, now).await?)
    }
}
