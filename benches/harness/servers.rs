//! The processes of a benchmark: each is started here, pinned to a core, terminated by its process id, and terminated
//! by the kernel if the benchmark dies first.

use super::Outcome;
use super::cases::{Case, Place};
use super::ceiling;
use super::interfaces::Nginx;
use super::machine::Cores;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The root key of both stacks. It is valid only for temporary servers on loopback.
pub const ROOT_KEY: &str = "bench_root_key_0123456789abcdef";

const START_PATIENCE: Duration = Duration::from_mins(1);
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// A running server.
pub struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
    stop_signal: &'static str,
}

impl Process {
    pub fn start(name: &'static str, mut command: Command, log: PathBuf) -> Outcome<Self> {
        let fault = |e| format!("{name} did not start: {e}");
        let output = File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(fault)?)
            .stderr(output)
            .spawn()
            .map_err(fault)?;
        Ok(Self { name, child, log, stop_signal: "TERM" })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `is_ready`; fails at once if the process has exited.
    pub fn wait_until(&mut self, mut is_ready: impl FnMut() -> bool) -> Outcome<()> {
        let deadline = Instant::now() + START_PATIENCE;
        while !is_ready() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("{} ended ({status}): {}", self.name, self.last_words()));
            }
            if Instant::now() > deadline {
                return Err(format!("{} was not ready in time: {}", self.name, self.last_words()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Returns the last output of the process.
    pub fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(2)..].join("\n")
    }

    fn stop(&mut self) {
        let pid = self.pid().to_string();
        // A failure means that the process has exited, which the wait below detects.
        let _ = Command::new("sh")
            .args(["-c", "kill -s \"$1\" \"$2\"", "sh", self.stop_signal, &pid])
            .stderr(Stdio::null())
            .status();
        let deadline = Instant::now() + STOP_PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                eprintln!("{} did not stop in time and is killed", self.name);
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A server that answers requests.
pub struct Server {
    pub process: Process,
    pub address: SocketAddr,
    /// The address that the load is sent to: the same, or that of its gRPC listener or of nginx in front of it.
    pub target: SocketAddr,
    pub nginx: Option<Nginx>,
}

/// What all runs share: the folder, and the Redis and Postgres of the replicas.
pub struct Lab {
    pub cores: Cores,
    pub redis: Option<Store>,
    pub postgres: Option<Store>,
    /// The binary of Keyward.
    program: PathBuf,
    /// The last field, so that the folder is removed after the processes that write to it have exited.
    pub folder: TempDir,
}

/// A Redis or Postgres server for the benchmark alone.
pub struct Store {
    pub process: Process,
    pub address: SocketAddr,
    pub url: String,
}

impl Lab {
    pub fn build(cores: Cores, needs_redis: bool, needs_postgres: bool) -> Outcome<Self> {
        let folder = tempfile::Builder::new()
            .prefix("keyward-bench-")
            .tempdir()
            .map_err(|e| format!("no temporary folder: {e}"))?;
        // Postgres accesses this folder as another user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711))
            .map_err(|e| format!("{}: {e}", folder.path().display()))?;
        let mut lab = Self { cores, redis: None, postgres: None, program: this_binary(), folder };
        if needs_redis {
            lab.redis = Some(lab.start_redis()?);
        }
        if needs_postgres {
            // Redis and the load have priority, as if Postgres had a machine of its own: otherwise a dozen backends would
            // delay Redis while the server reads its first keys.
            lab.postgres = Some(lab.start_postgres(19, &[cores.load])?);
        }
        Ok(lab)
    }

    /// Starts what some cases need, for another binary of Keyward.
    pub fn of(cores: Cores, program: &Path, cases: &[&Case]) -> Outcome<Self> {
        let program =
            fs::canonicalize(program).map_err(|e| format!("{}: {e}", program.display()))?;
        let has_replica = cases.iter().any(|case| case.place == Place::Replica);
        Ok(Self { program, ..Self::build(cores, has_replica, has_replica)? })
    }

    /// Starts the server of a case and returns as soon as its process exists.
    pub fn spawn(&self, place: Place) -> Outcome<Server> {
        self.spawn_with(place, &[])
    }

    fn spawn_with(&self, place: Place, variables: &[(&str, &str)]) -> Outcome<Server> {
        let address = free_address()?;
        let mut command = match place {
            Place::Ceiling => self.ceiling_command(address)?,
            Place::Embedded | Place::Replica => self.keyward_command(place, address)?,
        };
        command.envs(variables.iter().copied());
        let log = self.folder.path().join(format!("{}-{}.log", place.name(), address.port()));
        let process = Process::start(place.name(), command, log)?;
        Ok(Server { process, address, target: address, nginx: None })
    }

    /// Starts a server and waits until it accepts connections.
    pub fn start(&self, place: Place) -> Outcome<Server> {
        self.start_with(place, &[])
    }

    /// Starts the server with additional environment variables and waits until it accepts connections.
    pub fn start_with(&self, place: Place, variables: &[(&str, &str)]) -> Outcome<Server> {
        let mut server = self.spawn_with(place, variables)?;
        let address = server.address;
        server.process.wait_until(|| TcpStream::connect(address).is_ok())?;
        Ok(server)
    }

    fn ceiling_command(&self, address: SocketAddr) -> Outcome<Command> {
        let program =
            std::env::current_exe().map_err(|e| format!("no path to this binary: {e}"))?;
        let mut command = pinned(self.cores.server, &program);
        command.arg(ceiling::ARGUMENT).arg(address.to_string());
        if let Some(redis) = &self.redis {
            command.arg(&redis.url);
        }
        Ok(command)
    }

    fn keyward_command(&self, place: Place, address: SocketAddr) -> Outcome<Command> {
        let mut command = pinned(self.cores.server, &self.program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("KEYWARD_") {
                command.env_remove(name);
            }
        }
        command
            .arg("serve")
            .env("KEYWARD_LISTEN", address.to_string())
            .env("KEYWARD_ROOT_KEY", ROOT_KEY)
            .env("KEYWARD_DRAIN_SECONDS", "0")
            .env("KEYWARD_LOG", "warn")
            .current_dir(self.folder.path());
        match (place, &self.postgres, &self.redis) {
            (Place::Replica, Some(postgres), Some(redis)) => {
                command
                    .env("KEYWARD_DATABASE_URL", &postgres.url)
                    .env("KEYWARD_REDIS_URL", &redis.url)
                    .env("KEYWARD_REDIS_TIMEOUT_MS", "1000");
            }
            (Place::Replica, _, _) => return Err("a replica needs Postgres and Redis".into()),
            (Place::Embedded | Place::Ceiling, _, _) => {
                command.env("KEYWARD_DATA_DIR", self.folder.path().join("keyward-data"));
            }
        }
        Ok(command)
    }

    pub fn start_redis(&self) -> Outcome<Store> {
        let program = program("redis-server", "redis-server")
            .or_else(|missing| program("valkey-server", "valkey").map_err(|_| missing))?;
        let address = free_address()?;
        let mut command = pinned(self.cores.load, &program);
        command
            .args(["--bind", "127.0.0.1", "--port", &address.port().to_string()])
            .args(["--save", "", "--appendonly", "no"])
            .current_dir(self.folder.path());
        let log = self.folder.path().join(format!("redis-{}.log", address.port()));
        let mut process = Process::start("redis-server", command, log)?;
        process.wait_until(|| TcpStream::connect(address).is_ok())?;
        Ok(Store { process, address, url: format!("redis://{address}") })
    }

    /// Starts Postgres on these cores, without durable writes: no case waits for them, but creating the keys does.
    pub fn start_postgres(&self, niceness: u8, cores: &[usize]) -> Outcome<Store> {
        let programs = postgres_programs()?;
        let data = self.folder.path().join("postgres");
        let user = unprivileged_user()?;
        fs::create_dir(&data).map_err(|e| format!("{}: {e}", data.display()))?;
        if let Some((uid, gid)) = user {
            chown(&data, Some(uid), Some(gid)).map_err(|e| format!("{}: {e}", data.display()))?;
        }
        let as_user = |mut command: Command| {
            if let Some((uid, gid)) = user {
                command.uid(uid).gid(gid);
            }
            command.current_dir(&data);
            command
        };

        let mut initdb = as_user(pinned(self.cores.load, &programs.join("initdb")));
        initdb
            .args(["--username=keyward", "--auth=trust", "--no-sync", "--no-locale"])
            .args(["--encoding=UTF8", "--pgdata"])
            .arg(&data);
        let made = initdb.output().map_err(|e| format!("initdb did not start: {e}"))?;
        if !made.status.success() {
            return Err(format!("initdb failed: {}", String::from_utf8_lossy(&made.stderr)));
        }

        let address = free_address()?;
        let mut postgres = as_user(pinned_to(cores, Path::new("nice")));
        postgres
            .args(["-n", &niceness.to_string()])
            .arg(programs.join("postgres"))
            .arg("-D")
            .arg(&data)
            .args(["-p", &address.port().to_string(), "-c", "listen_addresses=127.0.0.1"])
            .args(["-c", "unix_socket_directories=", "-c", "fsync=off"])
            .args(["-c", "synchronous_commit=off", "-c", "full_page_writes=off"]);
        let log = self.folder.path().join("postgres.log");
        let mut process = Process::start("postgres", postgres, log)?;
        // On SIGINT, Postgres closes client connections instead of waiting for clients to disconnect.
        process.stop_signal = "INT";
        process.wait_until(|| {
            fs::read_to_string(data.join("postmaster.pid"))
                .is_ok_and(|file| file.lines().nth(7).map(str::trim) == Some("ready"))
        })?;
        Ok(Store { process, address, url: format!("postgres://keyward@{address}/postgres") })
    }
}

/// Returns the path of the binary that this benchmark was built with.
pub fn this_binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_keyward"))
}

/// Checks that the programs that every run needs are installed.
pub fn require_tools() -> Outcome<()> {
    program("wrk", "wrk")?;
    program("taskset", "util-linux")?;
    program("setpriv", "util-linux")?;
    Ok(())
}

/// Returns a command that runs on one core and is terminated when this process ends for any reason.
pub fn pinned(core: usize, program: &Path) -> Command {
    pinned_to(&[core], program)
}

/// Like [`pinned`], for several cores.
fn pinned_to(cores: &[usize], program: &Path) -> Command {
    let list: Vec<_> = cores.iter().map(ToString::to_string).collect();
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "taskset", "-c", &list.join(",")]).arg(program);
    command
}

/// Moves this process to the core of the load, so that its own work never competes with the server.
pub fn pin_self(cores: Cores) -> Outcome<()> {
    let moved = Command::new("taskset")
        .args(["-a", "-c", "-p", &cores.load.to_string(), &std::process::id().to_string()])
        .output()
        .map_err(|e| format!("taskset did not start: {e}"))?;
    if moved.status.success() {
        Ok(())
    } else {
        Err(format!("taskset failed: {}", String::from_utf8_lossy(&moved.stderr)))
    }
}

/// Finds a program in `PATH`.
pub fn program(name: &str, package: &str) -> Outcome<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| format!("{name} is missing: install it with `apt-get install {package}`"))
}

/// Returns the folder with `initdb` and `postgres`, which Debian does not add to `PATH`.
pub fn postgres_programs() -> Outcome<PathBuf> {
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut folders: Vec<PathBuf> = debian.flatten().map(|d| d.path().join("bin")).collect();
    folders.sort();
    let on_path = program("initdb", "postgresql")
        .and_then(|initdb| fs::canonicalize(initdb).map_err(|e| e.to_string()));
    if let Some(folder) = on_path.as_ref().ok().and_then(|initdb| initdb.parent()) {
        folders.push(folder.to_path_buf());
    }
    folders.retain(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file());
    folders.pop().ok_or_else(|| {
        "PostgreSQL is missing: install it with `apt-get install postgresql`".to_owned()
    })
}

/// Returns the user and group that Postgres runs as: it refuses to run as root.
fn unprivileged_user() -> Outcome<Option<(u32, u32)>> {
    let own = fs::metadata("/proc/self").map_err(|e| format!("/proc/self: {e}"))?;
    if own.uid() != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(|e| format!("/etc/passwd: {e}"))?;
    let ids = users.lines().find_map(|line| {
        let fields: Vec<&str> = line.strip_prefix("postgres:")?.split(':').collect();
        Some((fields.get(1)?.parse().ok()?, fields.get(2)?.parse().ok()?))
    });
    match ids {
        Some(ids) => Ok(Some(ids)),
        None => Err("there is no user `postgres` to run PostgreSQL as: install it with \
                     `apt-get install postgresql`, or run the benchmark as another user than root"
            .into()),
    }
}

pub fn free_address() -> Outcome<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(|e| format!("no free port on loopback: {e}"))
}
