//! Runs real processes: the binary, started as an operator starts it, and ended by its process id.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::Value;

/// Returns a command of the binary whose environment contains only what the test sets, and the mutant that
/// `./test mutants` tests.
pub fn keyward_command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keyward"));
    command.env_clear().env("PATH", std::env::var("PATH").unwrap_or_default());
    command.envs(std::env::vars().filter(|(name, _)| name.starts_with("MUTANT")));
    command
}

/// Like [`keyward_command`], in a process with this soft and this hard limit on open files.
pub fn keyward_command_with_files(soft: u32, hard: u32) -> Command {
    let mut command = Command::new("sh");
    command.env_clear().env("PATH", std::env::var("PATH").unwrap_or_default());
    command.args(["-c", r#"ulimit -Sn "$1" && ulimit -Hn "$2" && shift 2 && exec "$@""#, "sh"]);
    command.args([soft.to_string(), hard.to_string()]).arg(env!("CARGO_BIN_EXE_keyward"));
    command
}

/// Returns a command of the Redis or Valkey server that `./test` uses, or else of the one on the `PATH`.
pub fn redis_command() -> Command {
    Command::new(std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into()))
}

/// Returns a port without a listener that the system does not assign to outgoing connections: those get higher ones
/// (32768 and above on Linux, 49152 and above on macOS). No two calls return the same port, which the first caller may
/// not listen on yet.
pub fn free_port() -> u16 {
    static NEXT: LazyLock<AtomicU16> =
        LazyLock::new(|| rand::random_range(0..PORTS.end - PORTS.start).into());
    let mut ports = std::iter::repeat_with(|| {
        PORTS.start + NEXT.fetch_add(1, Ordering::Relaxed) % (PORTS.end - PORTS.start)
    });
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.by_ref().take(1_000).find(is_free).expect("a port")
}

const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// A server that runs until it is dropped.
pub struct Server {
    pub address: SocketAddr,
    /// Its output before it was ready.
    pub banner: String,
    /// Its output after the first line.
    pub stdout: BufReader<ChildStdout>,
    child: Child,
}

impl Server {
    /// Starts `keyward serve`, on a free port unless the command sets one, and waits until it has its database.
    pub fn start(command: Command) -> Self {
        Self::launch(command, Stdio::inherit()).wait_until_ready()
    }

    /// Like [`Server::start`], with its log in a file.
    pub fn start_logging(command: Command, log: &Path) -> Self {
        let log = std::fs::File::create(log).expect("the log");
        Self::launch(command, log.into()).wait_until_ready()
    }

    /// Starts `keyward serve`, on a free port unless the command sets one, and waits until it listens.
    pub fn launch(mut command: Command, log: Stdio) -> Self {
        if !command.get_envs().any(|(name, _)| name == "KEYWARD_LISTEN") {
            command.env("KEYWARD_LISTEN", "127.0.0.1:0");
        }
        let mut child =
            command.stdout(Stdio::piped()).stderr(log).spawn().expect("the server starts");
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        let mut greeting = String::new();
        out.read_line(&mut greeting).expect("its first line");
        let address = greeting.split("://").nth(1).and_then(|rest| rest.split(' ').next());
        let address: SocketAddr = address
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| panic!("the server did not start: {greeting:?}"));
        Self { address, banner: greeting, stdout: out, child }
    }

    fn wait_until_ready(mut self) -> Self {
        let began = Stopwatch::new();
        // The machine may be compiling at the same time.
        while began.elapsed() < Duration::from_mins(1) {
            match get(self.address, "/readyz") {
                Ok((200, ready)) if ready.contains("\"database\":\"ok\"") => {
                    // The banner is written at once, so the rest of it arrived with the first line.
                    self.banner.push_str(&String::from_utf8_lossy(self.stdout.buffer()));
                    return self;
                }
                Ok(_) | Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        panic!("the server at {} is not ready", self.address);
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Calls an operation of version 2.
    pub fn v2(&self, root_key: &str, operation: &str, body: &Value) -> (u16, Value) {
        v2(self.address, root_key, operation, body).expect("an answer")
    }

    /// Sends a signal by name: `TERM`, `STOP`, `CONT`, `KILL`.
    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Waits until it ends by itself. Returns its exit code.
    pub fn wait(mut self) -> Option<i32> {
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill -{name} {pid}");
}

/// Runs a command of the binary to its end.
pub fn run(data_dir: &Path, arguments: &[&str]) -> Output {
    keyward_command().env("KEYWARD_DATA_DIR", data_dir).args(arguments).output().expect("it runs")
}

/// Sends one POST over a new connection.
pub fn v2(
    address: SocketAddr,
    root_key: &str,
    operation: &str,
    body: &Value,
) -> std::io::Result<(u16, Value)> {
    let body = body.to_string();
    let request = format!(
        "POST /v2/{operation} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
        Authorization: Bearer {root_key}\r\nContent-Type: application/json\r\n\
        Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (status, text) = exchange(address, request.as_bytes())?;
    Ok((status, serde_json::from_str(&text).unwrap_or(Value::Null)))
}

pub fn get(address: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    exchange(address, request.as_bytes())
}

/// Sends bytes and reads the complete reply. Returns the status and the body.
pub fn exchange(address: SocketAddr, request: &[u8]) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(request)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status, body.to_owned()))
}
