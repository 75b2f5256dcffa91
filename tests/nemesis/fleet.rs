//! Three replicas, each with a way of its own to one Postgres and one Redis, which has a follower.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use keyward::clock::Stopwatch;

use crate::proxy::{Proxy, Way};
use crate::schedule::{Fault, Kind, REPLICAS};
use crate::servers::{self, Postgres, Redis};
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
        Self { address, redis, postgres, skew_seconds: 0, settings, log, child: None }
    }

    /// A setting that counts from the next start.
    pub fn set(&mut self, name: &str, value: Option<&str>) {
        self.settings.retain(|(known, _)| known != name);
        self.settings.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }

    pub fn start(&mut self) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&self.log);
        let mut command = keyward();
        command.arg("serve").env("KEYWARD_LISTEN", self.address.to_string());
        for (name, value) in &self.settings {
            command.env(name, value);
        }
        if self.skew_seconds != 0 {
            set_clock(&mut command, self.skew_seconds);
        }
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

    pub fn signal(&self, name: &str) {
        signal(self.child.as_ref().expect("it runs").id(), name);
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Has a process see a clock on the wall that is wrong by so much; its timers stay right.
fn set_clock(command: &mut Command, skew_seconds: i64) {
    let library = std::env::var("FAKETIME_LIBRARY").unwrap_or_else(|_| {
        panic!("FAKETIME_LIBRARY is not set: run ./test, which finds where libfaketime is")
    });
    let preload = if cfg!(target_os = "macos") { "DYLD_INSERT_LIBRARIES" } else { "LD_PRELOAD" };
    command
        .env(preload, library)
        .env("FAKETIME", format!("{skew_seconds:+}s"))
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("DONT_FAKE_MONOTONIC", "1");
}

pub struct Fleet {
    pub replicas: Vec<Replica>,
    pub postgres: Postgres,
    master: Redis,
    follower: Redis,
    /// The way on which the follower hears of its master.
    link: Proxy,
    /// Removed last.
    directory: tempfile::TempDir,
}

impl Fleet {
    /// Starts everything and waits until it is ready. The last replica's clock is wrong.
    pub fn start(skew_seconds: i64) -> Self {
        let directory = servers::directory();
        let postgres = Postgres::start(directory.path());
        let (master, follower) = (Redis::start(directory.path()), Redis::start(directory.path()));
        let link = Proxy::to(master.address());
        follower.follow(link.address);
        let replica = |name| {
            let database = (&*postgres.url(), postgres.address());
            Replica::new(directory.path(), name, database, master.address())
        };
        let mut replicas: Vec<_> = (0..REPLICAS).map(replica).collect();
        replicas[REPLICAS - 1].skew_seconds = skew_seconds;
        replicas.iter_mut().for_each(Replica::start);
        replicas.iter().for_each(Replica::await_ready);
        Self { replicas, postgres, master, follower, link, directory }
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
            Kind::FailOver => {
                // A follower that never heard of anything would be an empty Redis, which is another fault.
                self.master.await_follower();
                self.link.set(Way::Hole, Way::Hole);
            }
            Kind::KillPostgres => self.postgres.kill(),
            Kind::StopPostgres => self.postgres.signal("STOP"),
        }
    }

    pub fn end(&mut self, fault: &Fault) {
        match fault.kind {
            Kind::KillReplica(r) => self.replicas[r].start(),
            Kind::StopReplica(r) => self.replicas[r].signal("CONT"),
            Kind::CutRedis(r) | Kind::HoleRedis(r) | Kind::SlowRedis(r) => {
                self.replicas[r].redis.mend();
            }
            Kind::CutPostgres(r) | Kind::HolePostgres(r) => self.replicas[r].postgres.mend(),
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
            Kind::FailOver => self.fail_over(),
            Kind::KillPostgres => self.postgres.restart(),
            Kind::StopPostgres => self.postgres.signal("CONT"),
        }
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
