//! Three replicas, each with a way of its own to one Postgres and one Redis, which has a follower.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use foundation::clock::Stopwatch;

use crate::proxy::{Proxy, Way};
use crate::schedule::{Fault, Kind, REPLICAS};
use crate::servers::{self, Lock, Postgres, Redis};
use crate::support::process::{free_port, get, keyward, signal};

pub const ROOT_KEY: &str = "a_root_key_of_an_operator_1";

/// One replica of Keyward. It keeps its address when it is started again.
pub struct Replica {
    pub address: SocketAddr,
    pub redis: Proxy,
    pub postgres: Proxy,
    /// How far its clock is from the machine's.
    skew_seconds: i64,
    settings: Vec<(String, String)>,
    /// Another version than this one.
    pub program: Option<PathBuf>,
    log: PathBuf,
    child: Option<Child>,
}

impl Replica {
    /// A replica that waits to be started.
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

    /// A setting that counts from the next start.
    pub fn set(&mut self, name: &str, value: Option<&str>) {
        self.settings.retain(|(known, _)| known != name);
        self.settings.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }

    fn command(&self) -> Command {
        let Some(program) = &self.program else { return keyward() };
        let mut command = Command::new(program);
        command.env_clear().env("PATH", std::env::var("PATH").unwrap_or_default());
        command
    }

    /// What it says when it is started and cannot serve.
    pub fn refusal(&self) -> String {
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
        let is_ready = |(status, told): (u16, String)| status == 200 && told.contains("\"ready\"");
        while !get(self.address, "/readyz").is_ok_and(is_ready) {
            let told = || std::fs::read_to_string(&self.log).unwrap_or_default();
            assert!(began.elapsed() < Duration::from_secs(20), "it does not start: {}", told());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Has it finish what it has begun, and end.
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

/// Stops a process for 60 ms, lets it run for 60, and so on until it is dropped.
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
    /// The way on which the follower hears of its master.
    link: Proxy,
    lock: Option<Lock>,
    /// What stops Redis again and again.
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

    /// So many replicas, which wait to be started.
    pub fn prepare(replicas: usize) -> Self {
        Self::prepare_ahead(replicas, || 0)
    }

    /// As [`Fleet::prepare`], with servers whose clocks are ahead of the machine's by so many seconds.
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

    /// What the replicas have logged.
    pub fn logs(&self) -> String {
        let log = |replica: &Replica| std::fs::read_to_string(&replica.log).unwrap_or_default();
        self.replicas.iter().map(log).collect()
    }

    /// Runs a command of the binary on this fleet's database and Redis; its output.
    pub fn command(&self, arguments: &[&str]) -> String {
        let mut command = keyward();
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
            Kind::KillReplica(r) => self.replicas[r].kill(),
            Kind::StopReplica(r) => self.replicas[r].signal("STOP"),
            Kind::CutRedis(r) => self.replicas[r].redis.cut(),
            Kind::HoleRedis(r) => self.replicas[r].redis.set(Way::Hole, Way::Hole),
            Kind::SlowRedis(r) => {
                let by = Way::Slow(Duration::from_millis(4));
                self.replicas[r].redis.set(by, by);
            }
            Kind::CutPostgres(r) => self.replicas[r].postgres.cut(),
            Kind::HolePostgres(r) => self.replicas[r].postgres.set(Way::Hole, Way::Hole),
            Kind::Isolate(r) => {
                self.replicas[r].redis.cut();
                self.replicas[r].postgres.cut();
            }
            Kind::RestartRedis | Kind::WipeRedis => self.master.kill(),
            Kind::StopRedis => self.master.signal("STOP"),
            Kind::StallRedis => self.stalls = Some(Stalls::of(self.master.pid())),
            Kind::DemoteRedis => {
                self.master.await_follower();
                self.follower.promote();
                self.master.follow(self.follower.address());
            }
            Kind::FailOver => {
                // A follower that never heard of anything would be an empty Redis, which is another fault.
                self.master.await_follower();
                self.link.set(Way::Hole, Way::Hole);
            }
            Kind::KillPostgres => self.postgres.kill(),
            Kind::StopPostgres => self.postgres.signal("STOP"),
            Kind::SlowPostgres(r) => {
                let by = Way::Slow(Duration::from_millis(15));
                self.replicas[r].postgres.set(by, by);
            }
            Kind::LockPostgres => self.lock = Some(Lock::of_keys(self.postgres.url())),
            Kind::CutFeed(r) => self.replicas[r].redis.cut_feed(),
            Kind::FlushScripts => {
                self.master.ask("SCRIPT FLUSH").expect("it forgets them");
            }
            Kind::FillRedis => {
                self.master.ask("CONFIG SET maxmemory 1").expect("it is set");
            }
            Kind::SplitRedis(r) => self.split(r),
            Kind::ReplaceReplica(r) => self.replicas[r].stop(),
        }
    }

    pub fn end(&mut self, fault: &Fault) {
        match fault.kind {
            Kind::KillReplica(r) => self.replicas[r].start(),
            Kind::StopReplica(r) => self.replicas[r].signal("CONT"),
            Kind::CutRedis(r) | Kind::HoleRedis(r) | Kind::SlowRedis(r) | Kind::CutFeed(r) => {
                self.replicas[r].redis.mend();
            }
            Kind::CutPostgres(r) | Kind::HolePostgres(r) | Kind::SlowPostgres(r) => {
                self.replicas[r].postgres.mend();
            }
            Kind::LockPostgres => self.lock = None,
            Kind::FlushScripts => {}
            Kind::FillRedis => {
                self.master.ask("CONFIG SET maxmemory 0").expect("it is set");
            }
            Kind::ReplaceReplica(r) => {
                self.replicas[r].start();
                self.replicas[r].await_ready();
            }
            Kind::Isolate(r) => {
                self.replicas[r].redis.mend();
                self.replicas[r].postgres.mend();
            }
            Kind::RestartRedis => self.master.restart(),
            Kind::WipeRedis => {
                self.master.wipe();
                self.master.restart();
            }
            Kind::StopRedis => self.master.signal("CONT"),
            Kind::StallRedis => self.stalls = None,
            Kind::DemoteRedis => {
                std::mem::swap(&mut self.master, &mut self.follower);
                for replica in &self.replicas {
                    replica.redis.lead_new_to(self.master.address());
                }
                self.link.lead_to(self.master.address());
                self.follower.follow(self.link.address);
            }
            Kind::FailOver | Kind::SplitRedis(_) => self.fail_over(),
            Kind::KillPostgres => self.postgres.restart(),
            Kind::StopPostgres => self.postgres.signal("CONT"),
        }
    }

    /// The follower, which has all that its master had, is promoted, and led to from all replicas but one.
    pub fn split(&mut self, behind: usize) {
        self.master.await_follower();
        self.link.set(Way::Hole, Way::Hole);
        self.follower.promote();
        for (replica, _) in self.replicas.iter().zip(0..).filter(|(_, number)| *number != behind) {
            replica.redis.lead_to(self.follower.address());
        }
    }

    /// Runs a script in Redis, which is to do what a program does that there is not yet.
    pub fn run_in_redis(&self, script: &str) {
        let told = self.master.ask(&format!("EVAL \"{script}\" 0")).expect("it runs");
        assert!(!told.starts_with('-'), "{told}");
    }

    /// Ends that: the old master is killed, and the promoted one is everybody's.
    pub fn unite(&mut self) {
        self.fail_over();
    }

    /// The follower, which is behind, takes the master's place and address.
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
