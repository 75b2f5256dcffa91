//! Runs replicas, each with its own proxies to one Postgres and one Redis, which has a follower; or to the Redis of each of
//! several regions.

use std::time::Duration;

use crate::lock::Lock;
use crate::proxy::{LinkState, Proxy};
use crate::redis_pair::RedisPair;
pub use crate::replica::{REGION_NAMES, ROOT_KEY, Replica, Stalls};
use crate::report;
use crate::schedule::{Fault, FaultKind, REGIONS, REPLICAS, RegionFault};
use crate::servers::{self, Postgres};
use crate::support::process::keyward_command;

pub struct Fleet {
    pub replicas: Vec<Replica>,
    pub postgres: Postgres,
    /// One for each region.
    redis: Vec<RedisPair>,
    lock: Option<Lock>,
    /// The process that repeatedly stops Redis.
    stalls: Option<Stalls>,
    /// Removed last.
    directory: tempfile::TempDir,
}

impl Fleet {
    /// Starts everything and waits until it is ready. The last replica's clock is wrong.
    pub fn start(skew_seconds: i64) -> Self {
        let mut fleet = Self::prepare(REPLICAS);
        fleet.replicas[REPLICAS - 1].skew_seconds = skew_seconds;
        fleet.replicas.iter_mut().for_each(Replica::start);
        fleet.replicas.iter().for_each(Replica::await_ready);
        fleet
    }

    /// Whether there is more than one region.
    pub fn has_regions(&self) -> bool {
        self.redis.len() > 1
    }

    /// Returns the region of each replica; none if there is one region.
    pub fn list_regions(&self) -> Vec<usize> {
        let regions = self.replicas.iter().map(|replica| replica.region);
        if self.has_regions() { regions.collect() } else { Vec::new() }
    }

    /// Creates this many replicas without starting them.
    pub fn prepare(replicas: usize) -> Self {
        Self::prepare_ahead(replicas, || 0)
    }

    /// Like [`Fleet::prepare`], with servers whose clocks are ahead of the machine's by this many seconds.
    pub fn prepare_ahead(replicas: usize, ahead_seconds: impl FnOnce() -> i64) -> Self {
        let directory = servers::directory();
        let mut ahead = 0;
        let postgres = Postgres::start(directory.path(), || {
            ahead = ahead_seconds();
            ahead
        });
        let redis = RedisPair::start(directory.path(), ahead);
        let replica = |name| {
            let database = (&*postgres.url(), postgres.address());
            Replica::new(directory.path(), name, database, redis.address())
        };
        let replicas = (0..replicas).map(replica).collect();
        Self { replicas, postgres, redis: vec![redis], lock: None, stalls: None, directory }
    }

    /// Starts several regions with this many replicas each, and waits until all are ready.
    pub fn start_regions(replicas_each: usize) -> Self {
        let mut fleet = Self::prepare(REGIONS * replicas_each);
        let directory = fleet.directory.path();
        fleet.redis.extend((1..REGIONS).map(|_| RedisPair::start(directory, 0)));
        for (number, replica) in fleet.replicas.iter_mut().enumerate() {
            let region = number / replicas_each;
            replica.redis.lead_to(fleet.redis[region].address());
            replica.place(region, &fleet.redis);
            replica.start();
        }
        fleet.replicas.iter().for_each(Replica::await_ready);
        fleet
    }

    /// Returns what the replicas and Postgres have logged, by time.
    pub fn logs(&self) -> String {
        let logs = self.replicas.iter().map(|replica| replica.log.clone());
        let logs = logs.chain([self.postgres.log()]);
        let logs: Vec<_> =
            logs.map(|log| std::fs::read_to_string(log).unwrap_or_default()).collect();
        report::merge_logs(&logs)
    }

    /// Runs a command of the binary on this fleet's database and Redis. Returns its output.
    pub fn command(&self, arguments: &[&str]) -> String {
        let failed = |e| panic!("keyward {arguments:?}: {e}");
        self.try_command(arguments).unwrap_or_else(failed)
    }

    /// Like [`Fleet::command`]; the error is what it has written if it failed.
    pub fn try_command(&self, arguments: &[&str]) -> Result<String, String> {
        let urls: Vec<_> =
            self.redis.iter().map(|pair| format!("redis://{}", pair.address())).collect();
        let mut command = keyward_command();
        command
            .env("KEYWARD_DATABASE_URL", self.postgres.url())
            .env("KEYWARD_REDIS_URL", &urls[0])
            .args(arguments);
        if urls.len() > 1 {
            let regions = REGION_NAMES.iter().zip(&urls).map(|(name, url)| format!("{name}={url}"));
            let regions: Vec<_> = regions.collect();
            command
                .env("KEYWARD_REGION", REGION_NAMES[0])
                .env("KEYWARD_REGIONS", regions.join(","));
        }
        let output = command.current_dir(self.directory.path()).output().expect("it runs");
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Begins or ends that a region cannot exchange data with any other.
    fn cut_off(&self, region: usize, cut: Option<fn(&Proxy)>) {
        for replica in &self.replicas {
            match cut {
                None => replica.mend_ways(),
                Some(cut) => {
                    let is_cut = |to: usize| (replica.region == region) != (to == region);
                    let ways = replica.away.iter().filter(|(to, _)| is_cut(*to));
                    ways.for_each(|(_, proxy)| cut(proxy));
                }
            }
        }
    }

    /// Returns the ways that lead to the Redis of a region.
    fn ways_to(&self, region: usize) -> Vec<Proxy> {
        self.replicas.iter().map(|replica| replica.way_to(region).clone()).collect()
    }

    fn begin_in_region(&mut self, region: usize, fault: RegionFault) {
        match fault {
            RegionFault::RestartRedis | RegionFault::WipeRedis => self.redis[region].master.kill(),
            RegionFault::StopRedis => self.redis[region].master.signal("STOP"),
            RegionFault::DemoteRedis => self.redis[region].begin_demotion(),
            RegionFault::FailOver => self.redis[region].begin_lag(),
            RegionFault::CutOff => self.cut_off(region, Some(Proxy::cut)),
            RegionFault::HoleOff => {
                self.cut_off(region, Some(|proxy| proxy.set(LinkState::Hole, LinkState::Hole)));
            }
        }
    }

    fn end_in_region(&mut self, region: usize, fault: RegionFault) {
        let ways = self.ways_to(region);
        match fault {
            RegionFault::RestartRedis => self.redis[region].master.restart(),
            RegionFault::WipeRedis => {
                self.redis[region].master.wipe();
                self.redis[region].master.restart();
            }
            RegionFault::StopRedis => self.redis[region].master.signal("CONT"),
            RegionFault::DemoteRedis => self.redis[region].end_demotion(&ways),
            RegionFault::FailOver => self.redis[region].fail_over(&ways),
            RegionFault::CutOff | RegionFault::HoleOff => self.cut_off(region, None),
        }
    }

    pub fn begin(&mut self, fault: &Fault) {
        match fault.kind {
            FaultKind::KillReplica(r) => self.replicas[r].kill(),
            FaultKind::StopReplica(r) => self.replicas[r].signal("STOP"),
            FaultKind::CutRedis(r) => self.replicas[r].redis.cut(),
            FaultKind::HoleRedis(r) => self.replicas[r].redis.set(LinkState::Hole, LinkState::Hole),
            FaultKind::SlowRedis(r) => {
                let by = LinkState::Slow(Duration::from_millis(4));
                self.replicas[r].redis.set(by, by);
            }
            FaultKind::CutPostgres(r) => self.replicas[r].postgres.cut(),
            FaultKind::HolePostgres(r) => {
                self.replicas[r].postgres.set(LinkState::Hole, LinkState::Hole);
            }
            FaultKind::Isolate(r) => {
                self.replicas[r].redis.cut();
                self.replicas[r].postgres.cut();
            }
            FaultKind::RestartRedis => self.begin_in_region(0, RegionFault::RestartRedis),
            FaultKind::WipeRedis => self.begin_in_region(0, RegionFault::WipeRedis),
            FaultKind::StopRedis => self.begin_in_region(0, RegionFault::StopRedis),
            FaultKind::DemoteRedis => self.begin_in_region(0, RegionFault::DemoteRedis),
            FaultKind::FailOver => self.begin_in_region(0, RegionFault::FailOver),
            FaultKind::InRegion(region, fault) => self.begin_in_region(region, fault),
            FaultKind::StallRedis => self.stalls = Some(Stalls::of(self.redis[0].master.pid())),
            FaultKind::KillPostgres => self.postgres.kill(),
            FaultKind::StopPostgres => self.postgres.signal("STOP"),
            FaultKind::SlowPostgres(r) => {
                let by = LinkState::Slow(Duration::from_millis(15));
                self.replicas[r].postgres.set(by, by);
            }
            FaultKind::LockPostgres => self.lock = Some(Lock::of_keys(self.postgres.url())),
            FaultKind::CutFeed(r) => self.replicas[r].redis.cut_feed(),
            FaultKind::FlushScripts => {
                self.redis[0].master.call("SCRIPT FLUSH").expect("the scripts are flushed");
            }
            FaultKind::FillRedis => {
                self.redis[0].master.call("CONFIG SET maxmemory 1").expect("the option is set");
            }
            FaultKind::SplitRedis(r) => self.split(r),
            FaultKind::ReplaceReplica(r) => self.replicas[r].stop(),
        }
    }

    pub fn end(&mut self, fault: &Fault) {
        match fault.kind {
            FaultKind::KillReplica(r) => self.replicas[r].start(),
            FaultKind::StopReplica(r) => self.replicas[r].signal("CONT"),
            FaultKind::CutRedis(r)
            | FaultKind::HoleRedis(r)
            | FaultKind::SlowRedis(r)
            | FaultKind::CutFeed(r) => {
                self.replicas[r].redis.mend();
            }
            FaultKind::CutPostgres(r) | FaultKind::HolePostgres(r) | FaultKind::SlowPostgres(r) => {
                self.replicas[r].postgres.mend();
            }
            FaultKind::LockPostgres => self.lock = None,
            FaultKind::FlushScripts => {}
            FaultKind::FillRedis => {
                self.redis[0].master.call("CONFIG SET maxmemory 0").expect("the option is set");
            }
            FaultKind::ReplaceReplica(r) => {
                self.replicas[r].start();
                self.replicas[r].await_ready();
            }
            FaultKind::Isolate(r) => {
                self.replicas[r].redis.mend();
                self.replicas[r].postgres.mend();
            }
            FaultKind::RestartRedis => self.end_in_region(0, RegionFault::RestartRedis),
            FaultKind::WipeRedis => self.end_in_region(0, RegionFault::WipeRedis),
            FaultKind::StopRedis => self.end_in_region(0, RegionFault::StopRedis),
            FaultKind::DemoteRedis => self.end_in_region(0, RegionFault::DemoteRedis),
            FaultKind::FailOver | FaultKind::SplitRedis(_) => self.end_split(),
            FaultKind::InRegion(region, fault) => self.end_in_region(region, fault),
            FaultKind::StallRedis => self.stalls = None,
            FaultKind::KillPostgres => self.postgres.restart(),
            FaultKind::StopPostgres => self.postgres.signal("CONT"),
        }
    }

    /// Promotes the follower, which has all of its master's data, and connects all replicas but one to it.
    pub fn split(&mut self, behind: usize) {
        self.redis[0].begin_lag();
        self.redis[0].follower.promote();
        for (replica, _) in self.replicas.iter().zip(0..).filter(|(_, number)| *number != behind) {
            replica.redis.lead_to(self.redis[0].follower.address());
        }
    }

    /// Runs a script in Redis, to do what a future version of the program would do.
    pub fn run_in_redis(&self, script: &str) {
        let response = self.redis[0].master.call(&format!("EVAL \"{script}\" 0")).expect("it runs");
        assert!(!response.starts_with('-'), "{response}");
    }

    /// Ends the split: kills the old master, and connects every replica to the promoted one.
    pub fn end_split(&mut self) {
        self.end_in_region(0, RegionFault::FailOver);
    }
}
