//! Provides private servers for tests that stop, pause or disconnect them. They are ended by their process ids.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::certificates::Certificate;
use crate::support::process::{free_port, redis_command, signal};

/// A private Redis server.
pub struct Redis {
    pub port: u16,
    /// The directory of its data. `None` if it starts empty each time.
    directory: Option<tempfile::TempDir>,
    child: Option<Child>,
}

impl Redis {
    /// Starts a server without persistence.
    pub fn start() -> Self {
        Self::start_keeping(false)
    }

    /// Starts a server that keeps its data when it is killed, or does not.
    pub fn start_keeping(keeps: bool) -> Self {
        let directory = keeps.then(|| tempfile::tempdir().expect("a directory"));
        let mut redis = Self { port: free_port(), directory, child: None };
        redis.restart();
        redis
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Starts a server without persistence that also serves TLS, on the second port. Clients must present a certificate of
    /// the same authority.
    pub fn start_with_tls(tls: &ServerTls) -> (Self, u16) {
        let (port, tls_port) = (free_port(), free_port());
        let mut command = Self::command(port);
        tls.apply_to(&mut command, tls_port);
        (Self::run(port, command), tls_port)
    }

    fn command(port: u16) -> Command {
        let mut command = redis_command();
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]).args(["--save", ""]);
        command
    }

    fn run(port: u16, command: Command) -> Self {
        let mut redis = Self { port, directory: None, child: None };
        redis.spawn(command);
        redis
    }

    pub fn connect(&self) -> redis::Connection {
        let client = redis::Client::open(self.url()).expect("its address");
        client.get_connection().expect("a connection")
    }

    /// Starts the server on the same port.
    pub fn restart(&mut self) {
        let mut command = Self::command(self.port);
        match &self.directory {
            Some(directory) => command.args(["--appendonly", "yes", "--dir"]).arg(directory.path()),
            None => command.args(["--appendonly", "no"]),
        };
        self.spawn(command);
    }

    fn spawn(&mut self, mut command: Command) {
        let child = command.stdout(Stdio::null()).spawn().expect("./test has found a Redis server");
        self.child = Some(child);
        for _ in 0..500 {
            if answers(self.port) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("Redis does not reply");
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// `STOP` makes it accept connections and never reply; `CONT` ends that.
    pub fn signal(&self, name: &str) {
        signal(self.child.as_ref().expect("it runs").id(), name);
    }
}

/// The certificates of a Redis server.
pub struct ServerTls {
    pub authority: PathBuf,
    pub server: Certificate,
}

impl ServerTls {
    fn apply_to(&self, command: &mut Command, port: u16) {
        command.args(["--tls-port", &port.to_string()]);
        command.arg("--tls-ca-cert-file").arg(&self.authority);
        command.arg("--tls-cert-file").arg(&self.server.certificate);
        command.arg("--tls-key-file").arg(&self.server.key);
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A Redis Cluster of masters without persistence, each with a part of the slots.
pub struct Cluster {
    masters: Vec<Redis>,
    directories: Vec<tempfile::TempDir>,
    /// The ports with TLS. Empty without TLS.
    tls_ports: Vec<u16>,
}

impl Cluster {
    pub fn start(masters: u16) -> Self {
        Self::start_with(masters, None)
    }

    /// Starts a cluster whose masters also serve TLS.
    pub fn start_with_tls(masters: u16, tls: &ServerTls) -> Self {
        Self::start_with(masters, Some(tls))
    }

    fn start_with(masters: u16, tls: Option<&ServerTls>) -> Self {
        let (masters_started, directories, tls_ports) = Default::default();
        let mut cluster = Self { masters: masters_started, directories, tls_ports };
        for _ in 0..masters {
            let directory = tempfile::tempdir().expect("a directory");
            let port = free_port();
            let mut command = Redis::command(port);
            command
                .args(["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"])
                .args(["--cluster-require-full-coverage", "no", "--dir"])
                .arg(directory.path())
                // The port of the cluster bus.
                .args(["--cluster-port", &free_port().to_string()]);
            if let Some(tls) = tls {
                let tls_port = free_port();
                tls.apply_to(&mut command, tls_port);
                // The masters announce their ports with TLS.
                command.args(["--tls-cluster", "yes"]);
                cluster.tls_ports.push(tls_port);
            }
            cluster.masters.push(Redis::run(port, command));
            cluster.directories.push(directory);
        }
        cluster.join();
        cluster
    }

    fn join(&self) {
        let slots = 16_384 / self.masters.len();
        for (at, master) in self.masters.iter().enumerate() {
            let last = if at + 1 == self.masters.len() { 16_383 } else { (at + 1) * slots - 1 };
            let mut connection = master.connect();
            let mut ask = |arguments: &[&str]| -> redis::RedisResult<redis::Value> {
                redis::cmd("CLUSTER").arg(arguments).query(&mut connection)
            };
            ask(&["ADDSLOTSRANGE", &(at * slots).to_string(), &last.to_string()]).expect("slots");
            ask(&["SET-CONFIG-EPOCH", &(at + 1).to_string()]).expect("an epoch");
            let first = &self.masters[0];
            let first_port = self.tls_ports.first().unwrap_or(&first.port);
            let bus: Vec<String> = redis::cmd("CONFIG")
                .arg(&["GET", "cluster-port"])
                .query(&mut first.connect())
                .expect("the bus port");
            redis::cmd("CLUSTER")
                .arg(&["MEET", "127.0.0.1", &first_port.to_string(), &bus[1]])
                .exec(&mut connection)
                .expect("they meet");
        }
        for master in &self.masters {
            let mut connection = master.connect();
            let know_each_other = (0..500).any(|_| {
                std::thread::sleep(Duration::from_millis(20));
                let info: String =
                    redis::cmd("CLUSTER").arg("INFO").query(&mut connection).expect("its state");
                let assigned = "cluster_slots_assigned:16384";
                info.contains("cluster_state:ok") && info.contains(assigned)
            });
            assert!(know_each_other, "the cluster was not formed");
        }
    }

    pub fn url(&self) -> String {
        let list = |ports: Vec<u16>| {
            ports.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
        };
        match self.tls_ports.is_empty() {
            true => {
                let ports = self.masters.iter().map(|master| master.port).collect();
                format!("redis-cluster://{}", list(ports))
            }
            false => format!("rediss-cluster://{}", list(self.tls_ports.clone())),
        }
    }

    pub fn kill_one(&mut self) {
        self.masters[1].kill();
    }

    /// Returns the number of Redis keys on each master.
    pub fn names(&self) -> Vec<i64> {
        let names = |master: &Redis| redis::cmd("DBSIZE").query(&mut master.connect()).unwrap();
        self.masters.iter().map(names).collect()
    }
}

fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut answer = [0; 5];
    stream.write_all(b"PING\r\n").is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && &answer == b"+PONG"
}

/// A proxy in front of a server whose connections can be cut.
pub struct Proxy {
    pub address: SocketAddr,
    mode: Arc<Mutex<ProxyMode>>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    /// Counts the calls of [`Proxy::silence`].
    silences: Arc<AtomicU64>,
}

/// What happens to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProxyMode {
    Open,
    Cut,
    /// It is accepted and never answered.
    Hole,
}

impl Proxy {
    pub fn to(target: String) -> Self {
        Self::at(SocketAddr::from(([127, 0, 0, 1], 0)), target)
    }

    pub fn at(address: SocketAddr, target: String) -> Self {
        let listener = TcpListener::bind(address).expect("a port");
        let address = listener.local_addr().expect("an address");
        let mode = Arc::new(Mutex::new(ProxyMode::Open));
        let streams = Arc::new(Mutex::new(Vec::new()));
        let silences = Arc::new(AtomicU64::new(0));
        let proxy = Self {
            address,
            mode: mode.clone(),
            streams: streams.clone(),
            silences: silences.clone(),
        };
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // In this order: a connection that is accepted during a cut is among those that the cut breaks.
                let mut open_streams = streams.lock().expect("no panic while it is held");
                let mode = *mode.lock().expect("no panic while it is held");
                match mode {
                    ProxyMode::Cut => {}
                    ProxyMode::Hole => open_streams.push(client),
                    ProxyMode::Open => {
                        let Ok(server) = TcpStream::connect(&target) else { continue };
                        for (from, to) in [(&client, &server), (&server, &client)] {
                            let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else {
                                continue;
                            };
                            open_streams.extend(from.try_clone());
                            let silences = silences.clone();
                            std::thread::spawn(move || forward(from, to, &silences));
                        }
                    }
                }
            }
        });
        proxy
    }

    /// Breaks every connection and accepts none until [`Proxy::mend`].
    pub fn cut(&self) {
        self.set(ProxyMode::Cut);
        for stream in self.streams.lock().expect("no panic while it is held").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Accepts new connections and never answers them; [`Proxy::mend`] ends that for connections opened later.
    pub fn swallow(&self) {
        self.set(ProxyMode::Hole);
    }

    /// Discards from now on everything that is sent on open connections without closing them, as if the server or the
    /// network had failed. Later connections are served.
    pub fn silence(&self) {
        self.silences.fetch_add(1, Ordering::SeqCst);
    }

    pub fn mend(&self) {
        self.set(ProxyMode::Open);
    }

    fn set(&self, mode: ProxyMode) {
        *self.mode.lock().expect("no panic while it is held") = mode;
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, silences: &AtomicU64) {
    let opened = silences.load(Ordering::SeqCst);
    let is_silent = || silences.load(Ordering::SeqCst) != opened;
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if !is_silent() && to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    if !is_silent() {
        let _ = to.shutdown(Shutdown::Both);
    }
}
