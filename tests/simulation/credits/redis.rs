//! A model of Redis servers with leases, as `lua/consume.lua` and `lua/close_lease.lua` define them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::fault_injection::Safeguard;
use limiter::redis::RetryPolicy;
use limiter::redis::breaker::Breaker;
use limiter::redis::server_clock::RedisTime;
use limiter::{
    CloseResult, ConsumeReply, ConsumeRequest, GroupChange, LeaseSpend, LeaseState, LeaseStatus,
    TopUp,
};

use super::check::{Checker, check_granted};
use super::database::Database;
use super::replica::{Request, lease_name};
use crate::executor::{Node, lock, now};
use crate::network::{Lost, Network, Servers};

/// The node of every server.
pub const REDIS: Node = 200;
pub const REDIS_TIMEOUT: Duration = Duration::from_millis(40);
const PROBE_TIMEOUT: Duration = Duration::from_millis(100);
const PROBE_PAUSE: Duration = Duration::from_millis(50);

/// A Redis server between two restarts or failovers.
#[derive(Default)]
pub struct RedisServer {
    generation: i64,
    clock_offset_ms: i64,
    leases: BTreeMap<String, LeaseValue>,
    /// What was written, and when.
    log: Vec<(u64, String, LeaseValue)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct LeaseValue {
    generation: i64,
    units: i64,
    spent: i64,
    account_balance: i64,
    /// The most that a top-up said was granted.
    granted: i64,
    used_at: i64,
    closed: ClosedState,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ClosedState {
    #[default]
    Open,
    Closed,
    /// It was closed before it existed.
    NeverExisted,
}

impl RedisServer {
    fn now_ms(&self, now_us: u64) -> i64 {
        2_000_000_000 + self.clock_offset_ms + i64::try_from(now_us / 1_000).expect("short")
    }

    fn generation(&self) -> i64 {
        if Safeguard::FenceGeneration.is_disabled() { 1 } else { self.generation }
    }

    fn find(&self, lease: &str) -> Option<LeaseValue> {
        self.leases.get(lease).copied().filter(|value| value.generation == self.generation())
    }

    fn store(&mut self, lease: &str, value: LeaseValue, now_us: u64) {
        let value = LeaseValue { generation: self.generation(), ..value };
        self.leases.insert(lease.to_owned(), value);
        self.log.push((now_us, lease.to_owned(), value));
    }

    fn consume(&mut self, spend: &LeaseSpend, now_us: u64) -> ConsumeReply {
        let (generation, now_ms) = (self.generation(), self.now_ms(now_us));
        let found = self.find(&spend.lease);
        let missing = LeaseValue { account_balance: -1, used_at: now_ms, ..LeaseValue::default() };
        let (mut value, mut exists, mut is_changed) =
            (found.unwrap_or(missing), found.is_some(), false);
        let is_closed = value.closed != ClosedState::Open;
        let rejected_top_up = match spend.top_up {
            Some(top_up) if top_up.redis_generation != generation => {
                Some(LeaseState::WrongGeneration)
            }
            Some(_) if is_closed => Some(LeaseState::Closed),
            Some(top_up) if !exists && !top_up.creates_lease => Some(LeaseState::NotFound),
            Some(top_up) => {
                let granted = top_up.granted_before + top_up.top_up;
                if !exists || granted >= value.granted {
                    (value.granted, value.account_balance) = (granted, top_up.account_balance);
                }
                value.units += top_up.top_up;
                (exists, is_changed) = (true, true);
                None
            }
            None => None,
        };
        let state = rejected_top_up.unwrap_or(match value.units >= spend.cost {
            _ if is_closed => LeaseState::Closed,
            _ if !exists => LeaseState::Insufficient,
            true => LeaseState::Sufficient,
            false if value.units + value.account_balance >= spend.cost => LeaseState::Insufficient,
            false => LeaseState::AccountExhausted,
        });
        let is_admitted = state == LeaseState::Sufficient;
        if is_admitted {
            value.units -= spend.cost;
            value.spent += spend.cost;
            (value.used_at, is_changed) = (now_ms, true);
        }
        if is_changed {
            self.store(&spend.lease, value, now_us);
        }
        let status = LeaseStatus {
            state,
            units: value.units,
            account_balance: (value.account_balance != -1).then_some(value.account_balance),
            spent_units: value.spent,
            redis_generation: generation,
        };
        let (windows, group_change) = (Vec::new(), GroupChange::None);
        ConsumeReply { is_admitted, windows, lease: Some(status), group_change, regional: None }
    }

    /// Returns the state and the credits spent, as the script replies.
    fn close(&mut self, lease: &str, generation: i64, idle_ms: i64, now_us: u64) -> (i64, i64) {
        let now_ms = self.now_ms(now_us);
        if generation != self.generation() {
            return (3, 0);
        }
        let Some(value) = self.find(lease) else {
            let closed = ClosedState::NeverExisted;
            let value = LeaseValue { account_balance: -1, closed, ..LeaseValue::default() };
            self.store(lease, value, now_us);
            return (0, 0);
        };
        match value.closed {
            ClosedState::NeverExisted => return (0, 0),
            ClosedState::Open if idle_ms > 0 && now_ms - value.used_at < idle_ms => {
                return (2, value.spent);
            }
            ClosedState::Open => {
                let closed = LeaseValue { units: 0, closed: ClosedState::Closed, ..value };
                self.store(lease, closed, now_us);
            }
            ClosedState::Closed => {}
        }
        (1, value.spent)
    }
}

pub type RedisServers = Servers<RedisServer>;

impl Servers<RedisServer> {
    pub fn new() -> Self {
        Self::from_first(RedisServer { generation: 1_000, ..RedisServer::default() })
    }

    /// Starts a server, and returns its number. It has what the last one had `lag_us` ago; without that, nothing.
    pub fn start(&mut self, lag_us: Option<u64>, now_us: u64) -> usize {
        let generation = 1_000 + i64::try_from(self.all.len()).expect("few");
        let mut server = RedisServer { generation, ..RedisServer::default() };
        if let (Some(lag_us), Some(last)) = (lag_us, self.all.last()) {
            server.clock_offset_ms = last.clock_offset_ms;
            let is_copied = |(at_us, _, _): &&(u64, String, LeaseValue)| *at_us + lag_us <= now_us;
            server.log = last.log.iter().filter(is_copied).cloned().collect();
            server.leases = server.log.iter().map(|(_, id, value)| (id.clone(), *value)).collect();
        }
        self.all.push(server);
        self.all.len() - 1
    }

    pub fn move_clocks(&mut self, ms: i64) {
        self.all.iter_mut().for_each(|server| server.clock_offset_ms += ms);
    }
}

/// The client of one process.
#[derive(Clone)]
pub struct RedisClient {
    pub network: Network,
    pub node: Node,
    pub servers: Arc<Mutex<RedisServers>>,
    /// What Redis holds is checked against it.
    pub database: Arc<Mutex<Database>>,
    pub checker: Arc<Mutex<Checker>>,
    pub breaker: Arc<Breaker>,
    pub time: Arc<RedisTime>,
}

impl RedisClient {
    /// Runs a script, and once more if the connection breaks and the policy permits it.
    async fn run<T: Send + 'static>(
        &self,
        policy: RetryPolicy,
        script: impl FnOnce(&mut RedisServer, u64) -> T + Clone + Send + 'static,
    ) -> std::result::Result<T, Lost> {
        let once = || {
            let (servers, node, sim) = (self.servers.clone(), self.node, self.network.sim.clone());
            let script = script.clone();
            self.network.call(node, REDIS, async move {
                script(lock(&servers).server_of(node), sim.now_us())
            })
        };
        match once().await {
            Err(Lost) if policy == RetryPolicy::Once => {
                self.network.sim.trace(|| format!("replica {} sends to Redis again", self.node));
                once().await
            }
            result => result,
        }
    }

    /// Runs a script unless the circuit breaker is open, and reports the outcome to it.
    async fn run_in_time<T: Send + 'static>(
        &self,
        policy: RetryPolicy,
        script: impl FnOnce(&mut RedisServer, u64) -> T + Clone + Send + 'static,
    ) -> Result<T> {
        if self.breaker.is_open() {
            return Err(Error::RedisBreakerOpen);
        }
        let ran = self.network.sim.timeout(REDIS_TIMEOUT, self.run(policy, script)).await;
        if let Some(Ok(reply)) = ran {
            self.breaker.record_success(now());
            return Ok(reply);
        }
        if self.breaker.record_failure(now()) {
            let client = self.clone();
            self.network.sim.spawn(self.node, async move { client.probe().await });
        }
        Err(Error::RedisTimeout(40))
    }

    async fn probe(&self) {
        let sim = &self.network.sim;
        loop {
            let probe = self.run(RetryPolicy::Once, |_, _| {});
            if let Some(Ok(())) = sim.timeout(PROBE_TIMEOUT, probe).await {
                return self.breaker.close();
            }
            sim.sleep(PROBE_PAUSE).await;
        }
    }

    /// Spends from a lease. After the deadline of the caller, Redis does nothing.
    pub async fn consume(
        &self,
        request: &Request,
        lease_number: i64,
        top_up: Option<TopUp>,
    ) -> Result<ConsumeReply> {
        let lease = lease_name(&request.key, lease_number);
        let spend = LeaseSpend { lease, cost: request.cost, top_up };
        let consume = ConsumeRequest::with_spend(Vec::new(), spend.clone());
        let policy = RetryPolicy::for_consume(&[consume]);
        let deadline = self.time.deadline_after_ms(40, now());
        let (client, request) = (self.clone(), request.clone());
        let script = move |server: &mut RedisServer, now_us| {
            let at = Timestamp(server.now_ms(now_us));
            if deadline.is_some_and(|deadline| at > deadline) {
                return (at, None);
            }
            let sim = &client.network.sim;
            let reply = server.consume(&spend, now_us);
            if reply.is_admitted {
                lock(&client.checker).record_spend(&request);
            }
            if let (Some(top_up), Some(status)) = (top_up, reply.lease) {
                sim.trace(|| format!("{request:?} with {top_up:?}: {status:?}"));
                check_granted(sim, &lock(&client.database), (&request.key, lease_number), status);
            }
            (at, Some(reply))
        };
        match self.run_in_time(policy, script).await? {
            (at, None) => {
                self.time.reset(at, now());
                Err(Error::RedisDeadlinePassed)
            }
            (at, Some(reply)) => {
                self.time.record_reply(at, now());
                Ok(reply)
            }
        }
    }

    pub async fn close_lease(
        &self,
        lease: String,
        generation: i64,
        idle: Duration,
    ) -> Result<CloseResult> {
        let idle_ms = i64::try_from(idle.as_millis()).expect("short");
        let closing = self.run_in_time(RetryPolicy::Once, move |server, now_us| {
            server.close(&lease, generation, idle_ms, now_us)
        });
        closing.await.map(|(state, spent)| CloseResult::from_reply(state, spent))
    }
}
