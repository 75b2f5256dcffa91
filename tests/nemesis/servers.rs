//! A private Postgres and Redis, which tests kill, stop and restart. They store their data on disk and are ended by
//! their process ids.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Executor as _};

use crate::support::process::{free_port, redis_command, signal};

/// Creates a directory that the user of Postgres can access too.
pub fn directory() -> tempfile::TempDir {
    let created = tempfile::tempdir().expect("a directory");
    let open = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(created.path(), open).expect("its mode is set");
    created
}

fn is_root() -> bool {
    id(&["-u"]) == Some(0)
}

fn id(arguments: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(arguments).stderr(Stdio::null()).output().ok()?;
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..1_500 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: not within 15 seconds");
}

pub struct Postgres {
    pub port: u16,
    programs: PathBuf,
    data_dir: PathBuf,
    ahead_seconds: i64,
    child: Option<Child>,
}

impl Postgres {
    /// Starts a server whose clock is ahead of the machine's by this many seconds, which are computed just before it
    /// starts.
    pub fn start(directory: &Path, ahead_seconds: impl FnOnce() -> i64) -> Self {
        let programs = std::env::var("POSTGRES_BIN").unwrap_or_else(|_| {
            panic!("POSTGRES_BIN is not set: run ./test, which finds where initdb and postgres are")
        });
        let data_dir = directory.join("postgres");
        let (port, programs) = (free_port(), programs.into());
        let mut postgres = Self { port, programs, data_dir, ahead_seconds: 0, child: None };
        postgres.create_data();
        postgres.ahead_seconds = ahead_seconds();
        postgres.restart();
        postgres
    }

    /// Creates the data directory. The first one of the process is copied for the others: initdb takes a second.
    fn create_data(&self) {
        static TEMPLATE: OnceLock<tempfile::TempDir> = OnceLock::new();
        let template = TEMPLATE.get_or_init(|| {
            let template = directory();
            let data_dir = template.path().join("postgres");
            create_own_directory(&data_dir);
            let output = self
                .command_in(&data_dir, "initdb")
                .args(["--username=keyward", "--auth=trust", "--encoding=UTF8", "--no-locale"])
                .args(["--no-sync", "--pgdata=data"])
                .output()
                .expect("initdb runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            template
        });
        let (from, to) = (template.path().join("postgres"), &self.data_dir);
        let copied = Command::new("cp").arg("-a").args([&from, to]).status().expect("cp runs");
        assert!(copied.success(), "the data directory is copied");
    }

    /// Starts a streaming standby of this server, which replicates from it by an address that leads to it.
    pub fn start_standby(&self, directory: &Path, address: SocketAddr) -> Self {
        let (port, programs) = (free_port(), self.programs.clone());
        let data_dir = directory.join("standby");
        create_own_directory(&data_dir);
        let mut standby = Self { port, programs, data_dir, ahead_seconds: 0, child: None };
        let output = standby
            .command("pg_basebackup")
            .args(["--pgdata=data", "--write-recovery-conf", "--checkpoint=fast", "--no-sync"])
            .args(["--dbname", &url_at(address)])
            .output()
            .expect("pg_basebackup runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        standby.restart();
        standby
    }

    /// Returns a command that does not run as root: Postgres refuses that.
    fn command(&self, program: &str) -> Command {
        self.command_in(&self.data_dir, program)
    }

    fn command_in(&self, directory: &Path, program: &str) -> Command {
        let beside = self.programs.join(program);
        // Programs of clients may be on the system's path only.
        let mut command = Command::new(if beside.exists() { beside } else { program.into() });
        command.current_dir(directory).env("LC_ALL", "C");
        if let Some((user, group)) = user() {
            command.uid(user).gid(group);
        }
        command
    }

    /// Returns the path of its log.
    pub fn log(&self) -> PathBuf {
        self.data_dir.with_extension("log")
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    pub fn url(&self) -> String {
        url_at(self.address())
    }

    /// Runs a statement on a connection of the test.
    pub fn execute(&self, statement: &'static str) {
        block_on(async {
            let mut connection = PgConnection::connect(&self.url()).await.expect("Postgres");
            connection.execute(statement).await.expect("it runs");
        });
    }

    /// Starts it with its data, and waits until it replies.
    pub fn restart(&mut self) {
        wait_for("Postgres starts", || {
            let is_down =
                self.child.as_mut().is_none_or(|it| it.try_wait().is_ok_and(|it| it.is_some()));
            if is_down {
                // A process of its previous run may take a moment to notice that it has ended.
                self.child = Some(self.spawn());
            }
            block_on(async { PgConnection::connect(&self.url()).await.is_ok() })
        });
    }

    fn spawn(&self) -> Child {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log())
            .expect("its log");
        let port = self.port.to_string();
        // A killed process loses nothing that it has written, so data need not be flushed to disk.
        let mut command = self.command("postgres");
        set_clock(&mut command, self.ahead_seconds);
        command
            .args(["-D", "data", "-p", &port, "-c", "listen_addresses=127.0.0.1"])
            .args([
                "-c",
                "unix_socket_directories=",
                "-c",
                "fsync=off",
                "-c",
                "max_connections=200",
            ])
            .args(["-c", "log_lock_waits=on", "-c", "log_timezone=UTC"])
            .args(["-c", "log_line_prefix=%m postgres %p %a "])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("postgres runs")
    }

    /// Restarts it as a standby, which answers reads only. It has no primary.
    pub fn restart_as_standby(&mut self) {
        self.kill();
        std::fs::write(self.data_dir.join("data/standby.signal"), "").expect("the file is written");
        self.restart();
    }

    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let others = children(child.id());
        let _ = child.kill();
        let _ = child.wait();
        signal_all(&others, "KILL");
    }

    /// `STOP` pauses all its processes; `CONT` resumes them.
    pub fn signal(&self, name: &str) {
        let Some(child) = &self.child else { return };
        signal(child.id(), name);
        signal_all(&children(child.id()), name);
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.signal("CONT");
        if let Some(mut child) = self.child.take() {
            // Unlike a kill, this leaves no shared memory behind.
            signal(child.id(), "QUIT");
            for _ in 0..500 {
                if child.try_wait().is_ok_and(|ended| ended.is_some()) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            self.child = Some(child);
            self.kill();
        }
    }
}

/// Makes a process see a wrong wall clock; its timers stay correct.
pub fn set_clock(command: &mut Command, skew_seconds: i64) {
    if skew_seconds == 0 {
        return;
    }
    let library = std::env::var("FAKETIME_LIBRARY").unwrap_or_else(|_| {
        panic!("FAKETIME_LIBRARY is not set: run ./test, which finds where libfaketime is")
    });
    // An allocator that reads the clock would be called by the library for memory: Redis uses that of libc.
    let (preload, library) = match cfg!(target_os = "macos") {
        true => ("DYLD_INSERT_LIBRARIES", library),
        false => ("LD_PRELOAD", format!("{library}:libc.so.6")),
    };
    command
        .env(preload, library)
        .env("FAKETIME", format!("{skew_seconds:+}s"))
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("DONT_FAKE_MONOTONIC", "1");
}

pub fn url_at(address: SocketAddr) -> String {
    format!("postgres://keyward@{address}/postgres")
}

/// Creates a directory of the user that Postgres runs as.
fn create_own_directory(path: &Path) {
    std::fs::create_dir(path).expect("a directory");
    if let Some((user, group)) = user() {
        chown(path, Some(user), Some(group)).expect("the user of Postgres owns it");
    }
}

/// Returns the user that Postgres runs as, if this test runs as root.
fn user() -> Option<(u32, u32)> {
    if !is_root() {
        return None;
    }
    let name = if id(&["-u", "postgres"]).is_some() { "postgres" } else { "nobody" };
    Some((id(&["-u", name])?, id(&["-g", name])?))
}

fn children(parent: u32) -> Vec<u32> {
    let output =
        Command::new("pgrep").args(["-P", &parent.to_string()]).output().expect("pgrep runs");
    String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| line.parse().ok()).collect()
}

/// Some of the processes may have ended.
fn signal_all(ids: &[u32], name: &str) {
    let ids = ids.iter().map(u32::to_string);
    let _ = Command::new("kill").arg(format!("-{name}")).args(ids).stderr(Stdio::null()).status();
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

pub struct Redis {
    pub port: u16,
    data_dir: PathBuf,
    ahead_seconds: i64,
    child: Option<Child>,
}

impl Redis {
    /// Starts a server that appends writes to a file, as operators are told to run it, with a clock that is ahead of
    /// the machine's.
    pub fn start(directory: &Path, ahead_seconds: i64) -> Self {
        let port = free_port();
        let data_dir = directory.join(format!("redis-{port}"));
        let mut redis = Self { port, data_dir, ahead_seconds, child: None };
        redis.restart();
        redis
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Starts it with its data, and waits until it replies.
    pub fn restart(&mut self) {
        std::fs::create_dir_all(&self.data_dir).expect("its directory");
        let mut command = redis_command();
        set_clock(&mut command, self.ahead_seconds);
        let child = command
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "everysec"])
            .args(["--repl-diskless-sync-delay", "0"])
            .arg("--dir")
            .arg(&self.data_dir)
            .stdout(Stdio::null())
            .spawn()
            .expect("./test has found a Redis server");
        self.child = Some(child);
        wait_for("Redis starts", || self.call("PING").is_some_and(|output| output == "+PONG"));
    }

    /// Returns the first line of its reply.
    pub fn call(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address()).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(format!("{command}\r\n").as_bytes()).ok()?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok()?;
        Some(line.trim_end().to_owned())
    }

    pub fn follow(&self, master: SocketAddr) {
        self.call(&format!("REPLICAOF {} {}", master.ip(), master.port())).expect("it follows");
    }

    /// Waits until its follower has all data, for a limited time.
    pub fn await_follower(&self) {
        for _ in 0..200 {
            if self.call("WAIT 1 10").is_some_and(|output| output == ":1") {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn promote(&self) {
        self.call("REPLICAOF NO ONE").expect("Redis is promoted");
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Deletes its data; it must be stopped.
    pub fn wipe(&self) {
        std::fs::remove_dir_all(&self.data_dir).expect("its files are removed");
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    pub fn signal(&self, name: &str) {
        signal(self.child.as_ref().expect("it runs").id(), name);
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}
