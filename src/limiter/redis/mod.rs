//! The counters that all replicas share: Lua scripts in Redis, and the feed in which replicas tell
//! each other what changes.

mod batch;
mod breaker;
mod budget;
mod calls;
mod feed;
mod groups;
pub mod inspect;
mod lanes;
mod outage;
mod queue;
mod split;
mod time;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;
use redis::cluster_routing::Slot;
use tokio::sync::oneshot;

use self::breaker::Breaker;
use self::calls::{Calls, spawn_worker};
use self::lanes::{Again, Lanes, Script};
use self::outage::OutageWindows;
use self::queue::{Asked, Queue};
use self::time::RedisTime;
use super::{Closed, EXACT_MAX, Engine, Keyspace, ReplicaRank, Take, Taken, Window};
use crate::clock::{Clock, Timestamp};
use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::sabotage::Safeguard;
use crate::traces;

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

pub use feed::{FeedConnection, Found, Position};

pub struct RedisCounters {
    address: Address,
    keyspace: Keyspace,
    close: Script,
    busy: Script,
    announce: Script,
    queue: Arc<Queue>,
    calls: Arc<Calls>,
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
        let lanes = Lanes::new(&address, timeout)?;
        let workers_max =
            if lanes.is_cluster() { queue::CLUSTER_WORKERS_MAX } else { queue::WORKERS_MAX };
        let take = Script::new(fenced(include_str!("../../../lua/take.lua")));
        Ok(Self {
            address,
            announce: feed::script(),
            close: Script::new(fenced(include_str!("../../../lua/close.lua"))),
            busy: Script::new(include_str!("../../../lua/busy.lua").to_owned()),
            queue: Queue::new(workers_max, lanes.timeout()),
            calls: Arc::new(Calls {
                lanes,
                take,
                charge: Script::new(include_str!("../../../lua/charge.lua").to_owned()),
                probed: keyspace.probe(),
                breaker: Breaker::new(),
                time: RedisTime::new(),
                outage: OutageWindows::new(metrics.local_costs_dropped.clone()),
                asked: metrics.counters_calls.clone(),
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
    pub fn is_away(&self) -> bool {
        self.calls.breaker.is_open()
    }

    /// Takes everything or nothing. An error is an outage; it says too whether Redis may still do what was asked.
    pub async fn take(
        &self,
        take: &Take,
        now: Option<Timestamp>,
    ) -> std::result::Result<Taken, Missed> {
        if self.is_away() {
            return Err(Error::CountersAway.into());
        }
        if Safeguard::AtomicTake.is_off() && take.windows.iter().any(|window| window.cost > 0) {
            return self.take_in_two_steps(take, now).await;
        }
        if self.calls.lanes.is_cluster() {
            return Box::pin(traces::step("redis.take", self.take_by_slots(take, now))).await;
        }
        traces::step("redis.take", self.ask(take.clone(), None, now)).await
    }

    async fn ask(
        &self,
        take: Take,
        slot: Option<Slot>,
        now: Option<Timestamp>,
    ) -> std::result::Result<Taken, Missed> {
        let (answer, answered) = oneshot::channel();
        // A task of its own: whoever stops waiting must not end the batch that others are part of.
        if let Some(worker) = self.queue.add(Asked { take, now, slot, answer }) {
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
    ) -> (Taken, Vec<Window>) {
        let known = clock.fixed().or_else(|| self.calls.time.after_ms(0));
        let now = known.unwrap_or_else(|| clock.now());
        self.calls.outage.consume(windows, rank, may_take, unsettled, now)
    }

    /// Charges what is due, unless Redis has been given up.
    pub fn charge_due(&self) {
        if !self.is_away() {
            self.calls.charge_due();
        }
    }

    /// What a limiter does that has no script. Only for the tests that show what comes of it.
    async fn take_in_two_steps(
        &self,
        take: &Take,
        now: Option<Timestamp>,
    ) -> std::result::Result<Taken, Missed> {
        let mut look = take.clone();
        look.windows.iter_mut().for_each(|window| window.cost = 0);
        look.spend = None;
        let seen = self.ask(look, None, now).await?;
        let mut taken = take.clone();
        if seen.windows.iter().zip(&take.windows).all(|(count, window)| count.passed(window)) {
            taken.windows.iter_mut().for_each(|window| window.limit = EXACT_MAX);
        }
        self.ask(taken, None, now).await
    }

    /// Of each purse what was spent from it, where something was less than `within` ago. A cluster, whose
    /// scripts see one slot each, tells of none: closing one by one finds out as well.
    pub async fn busy(
        &self,
        purses: &[String],
        within: Duration,
        now: Option<Timestamp>,
    ) -> Result<Vec<Option<i64>>> {
        if self.calls.lanes.is_cluster() || purses.is_empty() {
            return Ok(vec![None; purses.len()]);
        }
        if self.is_away() {
            return Err(Error::CountersAway);
        }
        let arguments = |command: &mut Cmd| {
            command.arg(purses.len()).arg(purses);
            batch::time(command, now);
            command.arg(u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
        };
        let asking = self.calls.lanes.run(&self.busy, Again::Once, arguments);
        let spent: Vec<i64> = self.calls.watched(asking).await?;
        Ok(spent.into_iter().map(|spent| (spent >= 0).then_some(spent)).collect())
    }

    /// Closes a purse for good, unless something was spent from it for less than `idle` ago. `life`: the one that it was
    /// made in.
    pub async fn close(
        &self,
        purse: &str,
        life: i64,
        idle: Duration,
        now: Option<Timestamp>,
    ) -> Result<Closed> {
        if self.is_away() {
            return Err(Error::CountersAway);
        }
        let arguments = |command: &mut Cmd| {
            command.arg(1).arg(purse);
            batch::time(command, now);
            command.arg(u64::try_from(idle.as_millis()).unwrap_or(u64::MAX)).arg(life);
        };
        let closing = self.calls.lanes.run(&self.close, Again::Once, arguments);
        let (state, spent): (i64, i64) = self.calls.watched(closing).await?;
        Ok(match state {
            0 => Closed::Missing,
            1 => Closed::Settled { spent },
            2 => Closed::Busy,
            _ if Safeguard::ProvenClosed.is_off() => Closed::Missing,
            _ => Closed::Elsewhere,
        })
    }
}

/// The script as it is, but for the tests that show what comes of a purse that outlives its Redis, or of a value that is
/// read as what it is not.
fn fenced(source: &'static str) -> String {
    let (with, version) = ("local id = string.match", "or 1) > version");
    if Safeguard::Fence.is_off() {
        return source.replace(with, "local id = '0000000000001' or string.match");
    }
    if Safeguard::Format.is_off() {
        return source.replace(version, "or 1) > 255");
    }
    source.to_owned()
}

impl Engine for RedisCounters {
    async fn count(&self, windows: &[Window], now: Option<Timestamp>) -> Result<Taken> {
        Ok(self.take(&Take { windows: windows.to_vec(), spend: None }, now).await?)
    }
}
