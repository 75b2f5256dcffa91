//! Runs three replicas, each with its own proxies to one Postgres and one Redis, which has a follower.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use foundation::clock::Stopwatch;

use crate::lock::Lock;
use crate::proxy::{LinkState, Proxy};
use crate::report;
use crate::schedule::{Fault, FaultKind, REPLICAS};
use crate::servers::{self, Postgres, Redis};
use crate::support::process::{free_port, get, keyward_command, signal};

pub const ROOT_KEY: &str = "a_root_key_of_an_operator_1";

/// One replica of Keyward. It keeps its address when it is restarted.
pub struct Replica {
    pub address: SocketAddr,
    pub redis: Proxy,
    pub postgres: Proxy,
    /// The difference of its clock from the machine's.
    skew_seconds: i64,
    settings: Vec<(String, String)>,
    /// The binary of another version. `None` for this one.
    pub program: Option<PathBuf>,
    log: PathBuf,
    child: Option<Child>,
}

impl Replica {
    /// Creates a replica that has not been started.
    pub fn new(
        directory: &Path,
        name: usize,
        database: (&str, SocketAddr),
        redis: SocketAddr,
    ) -> Self {
        let (database_url, database) = database;
        let (redis, postgres) = (Proxy::to(redis), Proxy::to(database));
        let proxied = database_url.replace(&database.to_string(), &postgres.address.to_string());
        let settings = [
            ("KEYWARD_DATABASE_URL", proxied),
            ("KEYWARD_REDIS_URL", format!("redis://{}", redis.address)),
            ("KEYWARD_ROOT_KEY", ROOT_KEY.to_owned()),
            ("KEYWARD_DRAIN_SECONDS", "0".to_owned()),
            ("KEYWARD_LOG", "warn".to_owned()),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let log = directory.join(format!("replica-{name}.log"));
        Self {
            address,
            redis,
            postgres,
            skew_seconds: 0,
            settings,
            program: None,
            log,
            child: None,
        }
    }

    /// Sets or removes a variable for the next start.
    pub fn set(&mut self, name: &str, value: Option<&str>) {
        self.settings.retain(|(known, _)| known != name);
        self.settings.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }

    fn command(&self) -> Command {
        let Some(program) = &self.program else { return keyward_command() };
        let mut command = Command::new(program);
        command.env_clear().env("PATH", std::env::var("PATH").unwrap_or_default());
        command
    }

    /// Returns the error output of a start that fails.
    pub fn start_error(&self) -> String {
        let mut command = self.command();
        command.arg("serve").env("KEYWARD_LISTEN", self.address.to_string());
        let output = command.envs(self.settings.clone()).output().expect("it runs");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    pub fn start(&mut self) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&self.log);
        let mut command = self.command();
        command.arg("serve").env("KEYWARD_LISTEN", self.address.to_string());
        for (name, value) in &self.settings {
            command.env(name, value);
        }
        servers::set_clock(&mut command, self.skew_seconds);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("its log"))
            .spawn()
            .expect("the replica starts");
        self.child = Some(child);
    }

    pub fn await_ready(&self) {
        let began = Stopwatch::new();
        let is_ready =
            |(status, response): (u16, String)| status == 200 && response.contains("\"ready\"");
        while !get(self.address, "/readyz").is_ok_and(is_ready) {
            let response = || std::fs::read_to_string(&self.log).unwrap_or_default();
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "the replica does not start: {}",
                response()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Lets the replica finish its requests, and stops it.
    pub fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        signal(child.id(), "TERM");
        let ended = child.wait().expect("it ends");
        assert!(ended.success(), "{ended}");
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    pub fn signal(&self, name: &str) {
        signal(self.child.as_ref().expect("it runs").id(), name);
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Stops a process for 60 ms, lets it run for 60 ms, and repeats that until it is dropped.
pub struct Stalls {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stalls {
    pub fn of(pid: u32) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let flag = is_over.clone();
        let thread = std::thread::spawn(move || {
            while !flag.load(Ordering::Relaxed) {
                for name in ["STOP", "CONT"] {
                    signal(pid, name);
                    std::thread::sleep(Duration::from_millis(60));
                }
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub struct Fleet {
    pub replicas: Vec<Replica>,
    pub postgres: Postgres,
    master: Redis,
    follower: Redis,
    /// The proxy on the follower's replication connection.
    link: Proxy,
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
        let redis = || Redis::start(directory.path(), ahead);
        let (master, follower) = (redis(), redis());
        let link = Proxy::to(master.address());
        follower.follow(link.address);
        let replica = |name| {
            let database = (&*postgres.url(), postgres.address());
            Replica::new(directory.path(), name, database, master.address())
        };
        let replicas = (0..replicas).map(replica).collect();
        Self { replicas, postgres, master, follower, link, lock: None, stalls: None, directory }
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
        let mut command = keyward_command();
        command
            .env("KEYWARD_DATABASE_URL", self.postgres.url())
            .env("KEYWARD_REDIS_URL", format!("redis://{}", self.master.address()))
            .args(arguments);
        let output = command.current_dir(self.directory.path()).output().expect("it runs");
        let failed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "keyward {arguments:?}: {failed}");
        String::from_utf8_lossy(&output.stdout).into_owned()
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
            FaultKind::RestartRedis | FaultKind::WipeRedis => self.master.kill(),
            FaultKind::StopRedis => self.master.signal("STOP"),
            FaultKind::StallRedis => self.stalls = Some(Stalls::of(self.master.pid())),
            FaultKind::DemoteRedis => {
                self.master.await_follower();
                self.follower.promote();
                self.master.follow(self.follower.address());
            }
            FaultKind::FailOver => {
                // A follower without any data would be an empty Redis, which is another fault.
                self.master.await_follower();
                self.link.set(LinkState::Hole, LinkState::Hole);
            }
            FaultKind::KillPostgres => self.postgres.kill(),
            FaultKind::StopPostgres => self.postgres.signal("STOP"),
            FaultKind::SlowPostgres(r) => {
                let by = LinkState::Slow(Duration::from_millis(15));
                self.replicas[r].postgres.set(by, by);
            }
            FaultKind::LockPostgres => self.lock = Some(Lock::of_keys(self.postgres.url())),
            FaultKind::CutFeed(r) => self.replicas[r].redis.cut_feed(),
            FaultKind::FlushScripts => {
                self.master.call("SCRIPT FLUSH").expect("the scripts are flushed");
            }
            FaultKind::FillRedis => {
                self.master.call("CONFIG SET maxmemory 1").expect("the option is set");
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
                self.master.call("CONFIG SET maxmemory 0").expect("the option is set");
            }
            FaultKind::ReplaceReplica(r) => {
                self.replicas[r].start();
                self.replicas[r].await_ready();
            }
            FaultKind::Isolate(r) => {
                self.replicas[r].redis.mend();
                self.replicas[r].postgres.mend();
            }
            FaultKind::RestartRedis => self.master.restart(),
            FaultKind::WipeRedis => {
                self.master.wipe();
                self.master.restart();
            }
            FaultKind::StopRedis => self.master.signal("CONT"),
            FaultKind::StallRedis => self.stalls = None,
            FaultKind::DemoteRedis => {
                std::mem::swap(&mut self.master, &mut self.follower);
                for replica in &self.replicas {
                    replica.redis.lead_new_to(self.master.address());
                }
                self.link.lead_to(self.master.address());
                self.follower.follow(self.link.address);
            }
            FaultKind::FailOver | FaultKind::SplitRedis(_) => self.fail_over(),
            FaultKind::KillPostgres => self.postgres.restart(),
            FaultKind::StopPostgres => self.postgres.signal("CONT"),
        }
    }

    /// Promotes the follower, which has all of its master's data, and connects all replicas but one to it.
    pub fn split(&mut self, behind: usize) {
        self.master.await_follower();
        self.link.set(LinkState::Hole, LinkState::Hole);
        self.follower.promote();
        for (replica, _) in self.replicas.iter().zip(0..).filter(|(_, number)| *number != behind) {
            replica.redis.lead_to(self.follower.address());
        }
    }

    /// Runs a script in Redis, to do what a future version of the program would do.
    pub fn run_in_redis(&self, script: &str) {
        let response = self.master.call(&format!("EVAL \"{script}\" 0")).expect("it runs");
        assert!(!response.starts_with('-'), "{response}");
    }

    /// Ends the split: kills the old master, and connects every replica to the promoted one.
    pub fn end_split(&mut self) {
        self.fail_over();
    }

    /// Promotes the follower, which lags, and gives it the master's address.
    fn fail_over(&mut self) {
        self.master.kill();
        self.link.cut();
        self.follower.promote();
        std::mem::swap(&mut self.master, &mut self.follower);
        for replica in &self.replicas {
            replica.redis.lead_to(self.master.address());
        }
        self.link.mend();
        self.link.lead_to(self.master.address());
        self.follower.wipe();
        self.follower.restart();
        self.follower.follow(self.link.address);
    }
}
