//! Calls the Redis of this region and those of others, for windows that are counted in another region.

use std::sync::Arc;

use foundation::clock::{Monotonic, Timestamp};
use foundation::error::{Error, Result};
use foundation::metrics::RegionMetrics;
use futures_util::future::BoxFuture;
use redis::Cmd;

use super::super::regions::{self, Questions, REST, RegionLinks, TakenBack};
use super::super::{Away, ConsumeReply, ConsumeRequest, Grant, Keyspace, RegionIndex, Window};
use super::connections::{RetryPolicy, Script};
use super::outage::{self, Charge};
use super::{ConsumeError, Consumer, RedisCounters, batch, script_source};

/// The counters of the other regions, and what this replica asks of them.
pub struct Regions {
    /// By the position of the region; `None` for this one.
    counters: Vec<Option<Arc<RedisCounters>>>,
    pub questions: Arc<Questions>,
    metrics: RegionMetrics,
    take_back_script: Script,
    close_script: Script,
    seed_script: Script,
    keyspace: Keyspace,
}

impl Regions {
    /// Creates the state of this region. Windows refer to counters by their position.
    pub fn new(
        counters: Vec<Option<Arc<RedisCounters>>>,
        keyspace: Keyspace,
        metrics: RegionMetrics,
    ) -> Self {
        let script = |source| Script::new(script_source(source));
        Self {
            close_script: script(include_str!("../../../../lua/close_window.lua")),
            seed_script: script(include_str!("../../../../lua/seed_window.lua")),
            keyspace,
            metrics,
            questions: Arc::new(Questions::new(counters.len())),
            counters,
            take_back_script: script(include_str!("../../../../lua/take_back.lua")),
        }
    }

    pub fn others(&self) -> impl Iterator<Item = &RedisCounters> {
        self.counters.iter().flatten().map(|counters| &**counters)
    }

    fn home(&self, home: RegionIndex) -> Result<&RedisCounters> {
        let found = self.counters.get(usize::from(home.0)).and_then(Option::as_deref);
        found.ok_or_else(|| Error::UnknownRegion(format!("of a window (number {})", home.0)))
    }
}

/// The links of one call.
#[derive(Clone)]
pub struct Links {
    pub consumer: Consumer,
    pub regions: Arc<Regions>,
    /// The time to count at; absent in production.
    pub now: Option<Timestamp>,
}

impl Links {
    /// Runs a script in a region; `None`: in this one. It may run twice.
    async fn run_in(
        &self,
        region: Option<RegionIndex>,
        script: &Script,
        arguments: impl Fn(&mut Cmd) + Send,
    ) -> Result<Vec<u8>> {
        let runner = match region {
            Some(region) => &self.regions.home(region)?.script_runner,
            None => &self.consumer.script_runner,
        };
        let running = runner.connections.run_script(script, RetryPolicy::Once, arguments);
        runner.record_outcome(running).await
    }
}

impl From<Arc<Error>> for ConsumeError {
    fn from(cause: Arc<Error>) -> Self {
        Error::Shared(cause).into()
    }
}

impl RegionLinks for Links {
    type CallError = ConsumeError;

    async fn consume_here(
        &self,
        request: ConsumeRequest,
    ) -> std::result::Result<ConsumeReply, ConsumeError> {
        self.consumer.enqueue(request, None, self.now).await
    }

    async fn ask_home(&self, home: RegionIndex, request: ConsumeRequest) -> Result<ConsumeReply> {
        let (home, metrics) = (self.regions.home(home)?, &self.regions.metrics);
        metrics.grants_requested.inc();
        let reply = home.consume(&request, self.now).await.map_err(|missed| missed.cause)?;
        let granted = reply.regional.as_ref().and_then(|regional| regional.granted);
        let units = granted.map_or(0, |granted| granted.units.unsigned_abs());
        metrics.units_granted.inc_by(units);
        Ok(reply)
    }

    async fn add_grants(&self, grants: Vec<Grant>) -> Result<()> {
        let request = ConsumeRequest { grants, ..ConsumeRequest::default() };
        self.consumer
            .enqueue(request, None, self.now)
            .await
            .map(drop)
            .map_err(|missed| missed.cause)
    }

    async fn take_back(&self, leases: &[Arc<str>]) -> Result<Vec<TakenBack>> {
        let arguments = |command: &mut Cmd| {
            command.arg(leases.len());
            for lease in leases {
                command.arg(&**lease);
            }
            batch::encode_time(command, self.now);
            command.arg(u64::try_from(REST.as_millis()).unwrap_or(u64::MAX));
        };
        let runner = &self.consumer.script_runner;
        let script = &self.regions.take_back_script;
        let taking =
            runner.connections.run_script::<Vec<u8>>(script, RetryPolicy::Never, arguments);
        let reply = runner.record_outcome(taking).await?;
        let taken = reply.chunks(32).map(|packed| {
            let [state, home_generation, window_number, units] = batch::decode_doubles(packed);
            TakenBack { had_units: state > 0, home_generation, window_number, units }
        });
        Ok(taken.collect())
    }

    async fn give_back(&self, home: RegionIndex, window: &Window, taken: TakenBack) -> Result<()> {
        let runner = &self.regions.home(home)?.script_runner;
        let charge = Charge {
            key: window.key.clone(),
            window_number: taken.window_number,
            duration_ms: window.duration_ms,
            cost: -taken.units,
        };
        let arguments = |command: &mut Cmd| {
            outage::encode_charges(command, std::slice::from_ref(&charge), self.now);
            command.arg(taken.home_generation);
        };
        let script = &runner.charge_script;
        let giving =
            runner.connections.run_script::<Vec<u8>>(script, RetryPolicy::Never, arguments);
        runner.record_outcome(giving).await?;
        self.regions.metrics.units_returned.inc_by(taken.units.unsigned_abs());
        Ok(())
    }

    async fn close_window(
        &self,
        region: Option<RegionIndex>,
        window: &Window,
        window_number: i64,
    ) -> Result<i64> {
        let kept = self.regions.keyspace.closed_window(&window.key);
        let arguments = |command: &mut Cmd| {
            command.arg(2).arg(&*window.key).arg(&kept);
            batch::encode_time(command, self.now);
            command.arg(batch::encode_doubles([window_number, window.duration_ms].into_iter()));
        };
        let reply = self.run_in(region, &self.regions.close_script, arguments).await?;
        let [count] = batch::decode_doubles(&reply);
        Ok(count)
    }

    async fn seed_window(
        &self,
        region: Option<RegionIndex>,
        window: &Window,
        window_number: i64,
        count: i64,
    ) -> Result<()> {
        let begun = self.regions.keyspace.begun_window(&window.key);
        let arguments = |command: &mut Cmd| {
            command.arg(2).arg(&*window.key).arg(&begun);
            batch::encode_time(command, self.now);
            let numbers = [window_number, count, window.duration_ms];
            command.arg(batch::encode_doubles(numbers.into_iter()));
        };
        self.run_in(region, &self.regions.seed_script, arguments).await.map(drop)
    }

    fn record_decision(&self, has_waited: bool) {
        let decisions = &self.regions.metrics.decisions;
        if has_waited {
            decisions.waited.inc()
        } else {
            decisions.local.inc()
        };
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }

    fn now(&self) -> Monotonic {
        Monotonic::now()
    }
}

impl RedisCounters {
    fn links(&self, now: Option<Timestamp>) -> Option<Links> {
        let regions = self.regions.clone()?;
        Some(Links { consumer: self.consumer.clone(), regions, now })
    }

    /// Consumes from windows of which some are counted in other regions.
    pub(super) async fn consume_regional(
        &self,
        request: &ConsumeRequest,
        now: Option<Timestamp>,
    ) -> std::result::Result<ConsumeReply, ConsumeError> {
        let Some(links) = self.links(now) else {
            return Err(Error::Internal("a window of another region".into()).into());
        };
        regions::consume(&links, &links.regions.questions, request).await
    }

    /// Charges the home of a window what was admitted here while it was away. A charge to an unknown region is dropped.
    pub(super) fn charge_away(&self, away: &Away, charge: Charge) {
        let home = self.regions.as_ref().and_then(|regions| regions.home(away.home).ok());
        if let Some(home) = home {
            home.script_runner.outage_windows.add_charges(vec![charge]);
        }
    }

    /// Marks this Redis as that of a region, unless it is marked. Returns the region that it is marked with.
    pub async fn mark_region(&self, region: &str) -> Result<String> {
        let runner = &self.consumer.script_runner;
        let before = runner.mark_region(&self.keyspace.region(), region).await?;
        Ok(before.unwrap_or_else(|| region.to_owned()))
    }

    /// Returns the region that this Redis is marked with. `None`: no replica of its region has found it yet.
    pub async fn load_region(&self) -> Result<Option<String>> {
        self.consumer.script_runner.load_region(&self.keyspace.region()).await
    }

    /// Gives the units of leases at rest back to their homes.
    pub async fn give_back_rests(&self, now: Option<Timestamp>) -> Result<()> {
        match self.links(now) {
            Some(links) => regions::give_back_rests(&links, &links.regions.questions).await,
            None => Ok(()),
        }
    }
}
