//! Redis servers that Sentinels watch.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use redis::{Connection, ConnectionAddr, IntoConnectionInfo as _, RedisConnectionInfo};

use super::wait_until;
use crate::servers::{Redis, ServerTls};
use crate::support::certificates::Certificate;
use crate::support::process::{free_port, redis_command};

/// The name of the primary and its replicas.
pub const SERVICE: &str = "counters";
pub const SENTINEL_PASSWORD: &str = "a_password_of_sentinel";
const PASSWORD: &str = "a_password_of_redis";
const USER: &str = "a_user_of_redis";
const SENTINEL_USER: &str = "a_user_of_sentinel";

/// Servers, and the Sentinels that watch them.
pub struct Guarded {
    pub servers: Vec<Redis>,
    sentinels: Vec<Sentinel>,
    has_passwords: bool,
    has_users: bool,
    has_tls: bool,
}

impl Guarded {
    /// Starts a primary, a replica and three Sentinels of which two must agree, all with passwords.
    pub fn start_with_passwords() -> Self {
        // A replica stores what it receives in its directory.
        let servers = vec![Redis::start_keeping(true), Redis::start_keeping(true)];
        for server in &servers {
            protect(server);
        }
        let lines = [
            format!("requirepass {SENTINEL_PASSWORD}"),
            format!("sentinel sentinel-pass {SENTINEL_PASSWORD}"),
            format!("sentinel monitor {SERVICE} 127.0.0.1 {} 2", servers[0].port),
            format!("sentinel auth-pass {SERVICE} {PASSWORD}"),
        ];
        follow(&servers[1], servers[0].port);
        let sentinels = (0..3).map(|_| Sentinel::start(&lines)).collect();
        let guarded = Self { has_passwords: true, ..Self::open(servers, sentinels) };
        guarded.await_agreement();
        guarded
    }

    /// Starts one server and one Sentinel.
    pub fn start_alone() -> Self {
        let server = Redis::start();
        let monitor = format!("sentinel monitor {SERVICE} 127.0.0.1 {} 1", server.port);
        let sentinels = vec![Sentinel::start(&[monitor])];
        Self::open(vec![server], sentinels)
    }

    /// Starts one server and one Sentinel, each with a user that has a password. The default users have none, which they
    /// do not accept with one.
    pub fn start_with_users() -> Self {
        let server = Redis::start();
        let mut command = redis::cmd("ACL");
        command.arg(&["SETUSER", USER, "on", &format!(">{PASSWORD}")]);
        let () =
            command.arg(&["allkeys", "allchannels", "+@all"]).query(&mut server.connect()).unwrap();
        let lines = [
            format!("user {SENTINEL_USER} on >{SENTINEL_PASSWORD} allkeys allchannels +@all"),
            format!("sentinel monitor {SERVICE} 127.0.0.1 {} 1", server.port),
        ];
        let sentinels = vec![Sentinel::start(&lines)];
        Self { has_users: true, ..Self::open(vec![server], sentinels) }
    }

    /// Starts one server and one Sentinel that accept only clients with a certificate of the authority.
    pub fn start_with_tls(authority: PathBuf, server: Certificate) -> Self {
        let tls = ServerTls { authority, server };
        let (server, tls_port) = Redis::start_with_tls(&tls);
        let lines = [
            "tls-replication yes".to_owned(),
            format!("tls-ca-cert-file {}", tls.authority.display()),
            format!("tls-cert-file {}", tls.server.certificate.display()),
            format!("tls-key-file {}", tls.server.key.display()),
            format!("sentinel monitor {SERVICE} 127.0.0.1 {tls_port} 1"),
        ];
        let sentinels = vec![Sentinel::start_with_tls(&lines)];
        Self { has_tls: true, ..Self::open(vec![server], sentinels) }
    }

    /// Describes servers and Sentinels that accept every client.
    fn open(servers: Vec<Redis>, sentinels: Vec<Sentinel>) -> Self {
        Self { servers, sentinels, has_passwords: false, has_users: false, has_tls: false }
    }

    /// Returns the URL of the primary, in the second database where there are passwords.
    pub fn url(&self) -> String {
        let addresses: Vec<_> =
            self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        let (addresses, scheme) =
            (addresses.join(","), if self.has_tls { "rediss-sentinel" } else { "redis-sentinel" });
        match (self.has_passwords, self.has_users) {
            (false, false) => format!("{scheme}://{addresses}/{SERVICE}"),
            (true, _) => format!(
                "{scheme}://:{PASSWORD}@{addresses}/{SERVICE}/1?sentinel-password={SENTINEL_PASSWORD}"
            ),
            (false, true) => format!(
                "{scheme}://{USER}:{PASSWORD}@{addresses}/{SERVICE}\
                ?sentinel-user={SENTINEL_USER}&sentinel-password={SENTINEL_PASSWORD}"
            ),
        }
    }

    /// Returns the port of the primary, as the first Sentinel knows it.
    pub fn primary_port(&self) -> u16 {
        let (_, port): (String, u16) = redis::cmd("SENTINEL")
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(SERVICE)
            .query(&mut self.ask(0))
            .unwrap();
        port
    }

    pub fn kill_primary(&mut self) {
        let port = self.primary_port();
        self.server(port).kill();
    }

    /// Starts a server again, and waits until Sentinel has made it a replica that has all data.
    pub fn restart(&mut self, port: u16) {
        let server = self.server(port);
        // A server that asks for a password does not answer the ping of the start.
        server.restart();
        protect(server);
        wait_until("the server replicates", || {
            // Sentinel closes all connections when it makes a server a replica.
            let Ok(mut connection) = try_connect(port, Some(PASSWORD)) else { return false };
            let info = redis::cmd("INFO").arg("replication").query(&mut connection);
            let info: String = info.unwrap_or_default();
            info.contains("role:slave") && info.contains("master_link_status:up")
        });
    }

    /// Makes Sentinel promote a replica while the primary runs.
    pub fn fail_over_to(&self, port: u16) {
        assert_ne!(self.primary_port(), port);
        wait_until("Sentinel begins", || {
            let mut command = redis::cmd("SENTINEL");
            command.arg("FAILOVER").arg(SERVICE).query::<String>(&mut self.ask(0)).is_ok()
        });
    }

    /// Waits until the replica has every write.
    pub fn await_replication(&self) {
        let mut connection = connect(self.primary_port(), Some(PASSWORD));
        let replicas: u32 = redis::cmd("WAIT").arg(1).arg(10_000).query(&mut connection).unwrap();
        assert_eq!(replicas, 1);
    }

    /// Makes the Sentinel name another server.
    pub fn monitor(&self, port: u16) {
        let mut sentinel = self.ask(0);
        let sentinel_command = |arguments: &[&str]| {
            let mut command = redis::cmd("SENTINEL");
            command.arg(arguments).clone()
        };
        let () = sentinel_command(&["REMOVE", SERVICE]).query(&mut sentinel).unwrap();
        let port = port.to_string();
        let monitor = ["MONITOR", SERVICE, "127.0.0.1", &port, "1"];
        let () = sentinel_command(&monitor).query(&mut sentinel).unwrap();
    }

    /// Kills the last Sentinel, which stays in the URL. Returns its port.
    pub fn kill_sentinel(&mut self) -> u16 {
        let running = self.sentinels.iter_mut().rev().find(|sentinel| sentinel.child.is_some());
        let sentinel = running.expect("a Sentinel");
        sentinel.kill();
        sentinel.port
    }

    /// Waits until all Sentinels know each other, the primary and the replica.
    fn await_agreement(&self) {
        for number in 0..self.sentinels.len() {
            wait_until("the Sentinels know each other", || {
                let master: std::collections::HashMap<String, String> = redis::cmd("SENTINEL")
                    .arg("MASTER")
                    .arg(SERVICE)
                    .query(&mut self.ask(number))
                    .unwrap();
                master["num-other-sentinels"] == "2"
                    && master["num-slaves"] == "1"
                    && master["flags"] == "master"
            });
        }
    }

    fn ask(&self, number: usize) -> Connection {
        let password = self.has_passwords.then_some(SENTINEL_PASSWORD);
        connect(self.sentinels[number].port, password)
    }

    fn server(&mut self, port: u16) -> &mut Redis {
        self.servers.iter_mut().find(|server| server.port == port).expect("a server")
    }
}

struct Sentinel {
    port: u16,
    child: Option<Child>,
    /// The file with its configuration, which it writes.
    _directory: tempfile::TempDir,
}

impl Sentinel {
    fn start(lines: &[String]) -> Self {
        let port = free_port();
        let sentinel = Self::run(port, &format!("port {port}"), lines);
        wait_until("the Sentinel accepts connections", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        sentinel
    }

    fn start_with_tls(lines: &[String]) -> Self {
        let port = free_port();
        let sentinel = Self::run(port, &format!("port 0\ntls-port {port}"), lines);
        wait_until("the Sentinel accepts connections", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        sentinel
    }

    fn run(port: u16, listen: &str, lines: &[String]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("sentinel.conf");
        let times = format!(
            "sentinel down-after-milliseconds {SERVICE} 1000\nsentinel failover-timeout {SERVICE} 5000"
        );
        let path = directory.path().display();
        let text = format!("bind 127.0.0.1\ndir {path}\n{listen}\n{}\n{times}\n", lines.join("\n"));
        std::fs::write(&file, text).unwrap();
        let child = redis_command().arg(&file).arg("--sentinel").stdout(Stdio::null()).spawn();
        Self { port, child: Some(child.unwrap()), _directory: directory }
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Makes a server ask for a password, and send it to others.
fn protect(server: &Redis) {
    let mut connection = server.connect();
    for name in ["masterauth", "requirepass"] {
        let mut command = redis::cmd("CONFIG");
        let () = command.arg("SET").arg(name).arg(PASSWORD).query(&mut connection).unwrap();
    }
}

fn follow(server: &Redis, port: u16) {
    let mut connection = connect(server.port, Some(PASSWORD));
    let () = redis::cmd("REPLICAOF").arg("127.0.0.1").arg(port).query(&mut connection).unwrap();
}

fn connect(port: u16, password: Option<&str>) -> Connection {
    try_connect(port, password).unwrap()
}

fn try_connect(port: u16, password: Option<&str>) -> redis::RedisResult<Connection> {
    let mut settings = RedisConnectionInfo::default();
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    let address = ConnectionAddr::Tcp("127.0.0.1".to_owned(), port);
    let info = address.into_connection_info().unwrap().set_redis_settings(settings);
    redis::Client::open(info)?.get_connection()
}
