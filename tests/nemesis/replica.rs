//! A replica of Keyward as a process, with its ways to the servers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use foundation::clock::Stopwatch;

use crate::proxy::{LinkState, Proxy};
use crate::redis_pair::RedisPair;
use crate::schedule::REGIONS;
use crate::servers;
use crate::support::process::{free_port, get, keyward_command, signal};

/// The names of the regions, and how long it takes from one to another.
pub const REGION_NAMES: [&str; REGIONS] = ["eu", "us", "ap"];
const ONE_WAY: Duration = Duration::from_millis(75);
/// How long a replica may take until it is ready. The first one of a newer version migrates the database before.
const START_TIMEOUT: Duration = Duration::from_mins(1);

pub const ROOT_KEY: &str = "a_root_key_of_an_operator_1";

/// One replica of Keyward. It keeps its address when it is restarted.
pub struct Replica {
    pub address: SocketAddr,
    /// Its region, and the way to the Redis there.
    pub region: usize,
    pub redis: Proxy,
    pub postgres: Proxy,
    /// The ways to the Redis of other regions, with their numbers.
    pub away: Vec<(usize, Proxy)>,
    /// The difference of its clock from the machine's.
    pub skew_seconds: i64,
    pub settings: Vec<(String, String)>,
    /// The binary of another version. `None` for this one.
    pub program: Option<PathBuf>,
    pub log: PathBuf,
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
            region: 0,
            redis,
            postgres,
            away: Vec::new(),
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

    /// Places it in a region, with ways to the Redis of each, which are as long as between regions.
    pub fn place(&mut self, region: usize, redis: &[RedisPair]) {
        self.region = region;
        let others = redis.iter().enumerate().filter(|(other, _)| *other != region);
        self.away = others.map(|(other, pair)| (other, Proxy::to(pair.address()))).collect();
        self.mend_ways();
        let url = |other: usize| format!("redis://{}", self.way_to(other).address);
        let regions: Vec<_> = REGION_NAMES
            .iter()
            .zip(0..)
            .map(|(name, other)| format!("{name}={}", url(other)))
            .collect();
        self.set("KEYWARD_REGION", Some(REGION_NAMES[region]));
        self.set("KEYWARD_REGIONS", Some(&regions.join(",")));
    }

    /// Returns the way to the Redis of a region.
    pub fn way_to(&self, region: usize) -> &Proxy {
        let away = self.away.iter().find(|(other, _)| *other == region);
        away.map_or(&self.redis, |(_, proxy)| proxy)
    }

    /// Ends the faults of the ways to other regions.
    pub fn mend_ways(&self) {
        for (_, proxy) in &self.away {
            proxy.mend();
            proxy.set(LinkState::Slow(ONE_WAY), LinkState::Slow(ONE_WAY));
        }
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
            assert!(began.elapsed() < START_TIMEOUT, "the replica does not start: {}", response());
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
