//! One run of one case: a new server process, a warm-up that checks every response, then the measured load.

use super::cases::{Case, Interface, Place};
use super::client::{self, Counted};
use super::machine::{self, CoreTime};
use super::servers::{Lab, Process, Server};
use super::{Options, Outcome, grpc_load, policy, wrk};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bounds the warm-up: only a server that hardly responds needs longer.
const WARM_UP_KEYS_PER_SECOND: usize = 5_000;
/// Load of other processes, in cores, above which a run counts as disturbed.
const FOREIGN_CORES_MAX: f64 = 0.2;
/// Load of the two cores below which a second counts as calm.
const CALM_CORES: f64 = 0.15;
pub const CALM_PATIENCE: Duration = Duration::from_secs(6);
const REPEAT_PATIENCE: Duration = Duration::from_secs(30);

/// The results of one run. Fields in microseconds are processor time per request.
#[derive(Serialize)]
pub struct Run {
    pub case: &'static str,
    pub repeat: u32,
    /// Whether other processes used part of the cores.
    pub is_disturbed: bool,
    /// Whether this run replaces one that was disturbed.
    pub is_repeated: bool,
    pub requests: u64,
    pub requests_per_second: f64,
    pub server_us: f64,
    pub redis_us: f64,
    pub postgres_us: f64,
    pub load_us: f64,
    pub redis_calls: f64,
    /// Lease top-ups debited from credit accounts.
    pub withdrawals_per_second: f64,
    /// Events that were written; the next field has those that were dropped because the buffer was full.
    pub events_per_second: f64,
    pub dropped_per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub server_busy_cores: f64,
    pub resident_mib: f64,
    pub foreign_cores: f64,
    pub stolen_cores: f64,
}

/// Runs a case. A run in which other processes kept the cores busy is repeated once, even if it failed: a server
/// without processor time misses its deadlines, which proves nothing about it.
pub fn run(lab: &Lab, case: &Case, keys: &Path, repeat: u32, options: &Options) -> Outcome<Run> {
    let before = Snapshot::take(lab, None);
    match run_once(lab, case, keys, options) {
        Ok(run) if !run.is_disturbed => return Ok(Run { repeat, ..run }),
        Ok(run) => eprintln!("  disturbed by {:.2} cores of other work", run.foreign_cores),
        Err(fault) => {
            let foreign_cores = Snapshot::take(lab, None).since(&before).foreign_cores();
            if foreign_cores <= FOREIGN_CORES_MAX {
                return Err(fault);
            }
            eprintln!("  failed beside {foreign_cores:.2} cores of other work: {fault}");
        }
    }
    wait_for_calm(lab, REPEAT_PATIENCE);
    eprintln!("  once more");
    let second = run_once(lab, case, keys, options)?;
    Ok(Run { repeat, is_repeated: true, ..second })
}

/// Runs a case once. The server is a new process on the same data: effects of the previous run (a larger heap, events
/// that are not written yet) do not count in the next, and repeats differ in hash seeds and addresses.
fn run_once(lab: &Lab, case: &Case, keys: &Path, options: &Options) -> Outcome<Run> {
    let server = start(lab, case, keys, options)?;
    wait_for_calm(lab, CALM_PATIENCE);
    let run = measure(lab, case, keys, &server, options.secs)?;
    check_sample(lab, case, keys, &server, options)?;
    Ok(run)
}

/// Starts a server and warms it up.
pub fn start(lab: &Lab, case: &Case, keys: &Path, options: &Options) -> Outcome<Server> {
    let server = lab.start_case(case)?;
    check_sample(lab, case, keys, &server, options)?;
    warm_up(lab, case, keys, &server, options)?;
    Ok(server)
}

fn check_sample(
    lab: &Lab,
    case: &Case,
    keys: &Path,
    server: &Server,
    options: &Options,
) -> Outcome<()> {
    let listed = fs::read_to_string(keys).map_err(|e| format!("{}: {e}", keys.display()))?;
    let mut sample = listed.lines().step_by((options.keys / 8).max(1));
    sample.try_for_each(|key| match case.interface {
        Interface::Operation => client::check(server.address, case, key),
        Interface::Gateway | Interface::Nginx => policy::check(lab, server, case, key),
        Interface::ExtAuthz | Interface::RateLimitService => {
            grpc_load::check(lab, server, case, key)
        }
    })
}

/// Generates load until every key was verified twice, so that the measured requests find their data in memory, and
/// checks every response.
fn warm_up(lab: &Lab, case: &Case, keys: &Path, server: &Server, o: &Options) -> Outcome<()> {
    let seconds_max = 20 + 2 * o.keys / WARM_UP_KEYS_PER_SECOND;
    let mut requests = 0;
    for _ in 0..seconds_max {
        let answered =
            generate(lab, case, keys, server, Phase::WarmUp { first: requests })?.requests;
        requests += answered;
        if requests >= 2 * o.keys as u64 {
            return Ok(());
        }
    }
    Err(format!("{seconds_max} s of warm-up brought only {requests} answers"))
}

/// Measures a server under load for some seconds.
pub fn measure(lab: &Lab, case: &Case, keys: &Path, server: &Server, seconds: u32) -> Outcome<Run> {
    let scripts_before = script_calls(lab)?;
    let counted_before = counted(case, server)?;
    let before = Snapshot::take(lab, Some(server));
    let load = generate(lab, case, keys, server, Phase::Measured { seconds })?;
    let spent = Snapshot::take(lab, Some(server)).since(&before);
    let scripts = script_calls(lab)? - scripts_before;
    let counted = counted(case, server)?;

    let requests = real(load.requests);
    let each_us = |seconds: f64| seconds / requests * 1e6;
    let load_seconds = real(load.duration_us) / 1e6;
    let per_second = |count: u64| real(count) / load_seconds;
    Ok(Run {
        case: case.name,
        repeat: 0,
        is_disturbed: spent.foreign_cores() > FOREIGN_CORES_MAX,
        is_repeated: false,
        requests: load.requests,
        requests_per_second: requests / load_seconds,
        server_us: each_us(spent.server),
        redis_us: each_us(spent.redis),
        postgres_us: each_us(spent.postgres),
        load_us: each_us(spent.own),
        redis_calls: real(scripts) / requests,
        withdrawals_per_second: per_second(counted.withdrawals - counted_before.withdrawals),
        events_per_second: per_second(counted.events_written - counted_before.events_written),
        dropped_per_second: per_second(counted.events_dropped - counted_before.events_dropped),
        p50_us: load.p50_us,
        p99_us: load.p99_us,
        server_busy_cores: spent.server / load_seconds,
        resident_mib: machine::resident_mib(server.process.pid()),
        foreign_cores: spent.foreign_cores(),
        stolen_cores: spent.cores.stolen / spent.seconds,
    })
}

/// Processor seconds of all processes of the benchmark, up to a moment or between two.
struct Snapshot {
    seconds: f64,
    cores: CoreTime,
    server: f64,
    redis: f64,
    postgres: f64,
    /// The service behind nginx.
    service: f64,
    /// This process and its children that have ended: wrk and stopped servers.
    own: f64,
}

impl Snapshot {
    fn take(lab: &Lab, server: Option<&Server>) -> Self {
        let used = |process: Option<&Process>| {
            process.map_or(0.0, |process| machine::tree_seconds(process.pid()))
        };
        let nginx = server.and_then(|server| server.nginx.as_ref());
        Self {
            seconds: machine::uptime_seconds(),
            cores: CoreTime::now(lab.cores),
            server: used(server.map(|server| &server.process)) + used(nginx.map(|n| &n.gateway)),
            redis: used(lab.redis.as_ref().map(|store| &store.process)),
            postgres: used(lab.postgres.as_ref().map(|store| &store.process)),
            service: used(nginx.map(|nginx| &nginx.service)),
            own: machine::own_seconds(),
        }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            seconds: self.seconds - earlier.seconds,
            cores: CoreTime {
                busy: self.cores.busy - earlier.cores.busy,
                stolen: self.cores.stolen - earlier.cores.stolen,
            },
            server: self.server - earlier.server,
            redis: self.redis - earlier.redis,
            postgres: self.postgres - earlier.postgres,
            service: self.service - earlier.service,
            own: self.own - earlier.own,
        }
    }

    /// Returns how much of the two cores other processes used.
    fn foreign_cores(&self) -> f64 {
        let part = self.server + self.redis + self.postgres + self.service + self.own;
        // A run that fails at once may end within one tick of the kernel clock.
        if self.seconds > 0.0 { ((self.cores.busy - part) / self.seconds).max(0.0) } else { 0.0 }
    }
}

/// Waits for a second in which the cores are nearly idle, for a limited time.
pub fn wait_for_calm(lab: &Lab, patience: Duration) {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        let before = CoreTime::now(lab.cores);
        std::thread::sleep(Duration::from_secs(1));
        if CoreTime::now(lab.cores).busy - before.busy < CALM_CORES {
            return;
        }
    }
}

/// What a load generator reports.
#[derive(Default, Deserialize)]
pub struct Load {
    pub requests: u64,
    pub duration_us: u64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Answers with an error status.
    pub errors: u64,
    /// Requests that were not answered.
    pub unanswered: u64,
    /// Other answers that were not right.
    pub wrong: u64,
    /// One of them.
    #[serde(skip)]
    pub sample: String,
}

#[derive(Clone, Copy)]
pub enum Phase {
    /// One second that checks every response and starts with this key.
    WarmUp {
        first: u64,
    },
    Measured {
        seconds: u32,
    },
}

/// Generates load on a server and returns an error if a reply was wrong.
pub fn generate(
    lab: &Lab,
    case: &Case,
    keys: &Path,
    server: &Server,
    phase: Phase,
) -> Outcome<Load> {
    let load = match case.interface.is_grpc() {
        true => grpc_load::run(lab, case, keys, server, phase)?,
        false => wrk::run(lab, case, keys, server, phase)?,
    };
    if load.requests > 0 && load.errors + load.unanswered + load.wrong == 0 {
        return Ok(load);
    }
    let looks_at_answers = matches!(phase, Phase::WarmUp { .. });
    Err(format!(
        "of {} answers {} were errors, {} requests had no answer{}; the server's last words: {}",
        load.requests,
        load.errors,
        load.unanswered,
        match load.sample.is_empty() {
            false if looks_at_answers =>
                format!(", {} answers were not right, such as {}", load.wrong, load.sample),
            _ => String::new(),
        },
        server.process.last_words(),
    ))
}

/// Returns the counters of the server since it started; a ceiling server has none.
fn counted(case: &Case, server: &Server) -> Outcome<Counted> {
    if case.place == Place::Ceiling {
        Ok(Counted::default())
    } else {
        client::counted(server.address)
    }
}

/// Returns the number of scripts that Redis has run since it started.
fn script_calls(lab: &Lab) -> Outcome<u64> {
    let Some(redis) = &lab.redis else { return Ok(0) };
    let statistics: String = redis::Client::open(redis.url.as_str())
        .and_then(|client| client.get_connection())
        .and_then(|mut connection| redis::cmd("INFO").arg("commandstats").query(&mut connection))
        .map_err(|e| format!("Redis did not give its statistics: {e}"))?;
    let calls = statistics.lines().filter_map(|line| {
        let (command, figures) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        if !matches!(command, "eval" | "evalsha" | "fcall") {
            return None;
        }
        figures.split(',').next()?.parse::<u64>().ok()
    });
    Ok(calls.sum())
}

#[expect(clippy::cast_precision_loss, reason = "counts of one run stay far below 2^52")]
pub fn real(count: u64) -> f64 {
    count as f64
}
