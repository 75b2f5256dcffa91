//! Reads the kernel's statistics of cores and processes. Only Linux has these files.

use super::Outcome;
use std::fs;

/// The kernel reports processor time in ticks of this length, whatever its timer frequency is.
const TICKS_PER_SECOND: f64 = 100.0;
const PAGES_PER_MIB: f64 = 256.0;

/// The cores of the benchmark: the server has one to itself; load generator, Redis, Postgres and this harness share the
/// other.
#[derive(Clone, Copy)]
pub struct Cores {
    pub server: usize,
    pub load: usize,
}

impl Cores {
    /// Returns the first two cores that this process may use.
    pub fn choose() -> Outcome<Self> {
        let status = fs::read_to_string("/proc/self/status")
            .map_err(|e| format!("the benchmark needs Linux: /proc/self/status: {e}"))?;
        let list = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
            .unwrap_or_default();
        let mut cores = list.trim().split(',').flat_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            first.parse().unwrap_or(0)..=last.parse().unwrap_or(0)
        });
        match (cores.next(), cores.next()) {
            (Some(server), Some(load)) => Ok(Self { server, load }),
            _ => Err("the benchmark needs two cores: one for the server, one for the load".into()),
        }
    }
}

/// Seconds that the two cores spent since the machine started.
#[derive(Clone, Copy)]
pub struct CoreTime {
    pub busy: f64,
    pub stolen: f64,
}

impl CoreTime {
    pub fn now(cores: Cores) -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let mut time = Self { busy: 0.0, stolen: 0.0 };
        for core in [cores.server, cores.load] {
            let name = format!("cpu{core}");
            let Some(line) = stat.lines().find(|l| l.split(' ').next() == Some(&name)) else {
                continue;
            };
            let ticks: Vec<f64> =
                line.split_whitespace().skip(1).map(|n| n.parse().unwrap_or(0.0)).collect();
            // In order: user, nice, system, idle, iowait, irq, softirq, steal.
            if let [user, nice, system, _, _, hard, soft, stolen, ..] = ticks[..] {
                time.busy += (user + nice + system + hard + soft) / TICKS_PER_SECOND;
                time.stolen += stolen / TICKS_PER_SECOND;
            }
        }
        time
    }
}

/// Returns the processor seconds, user and system, of a process and of all its running descendants. The time of an
/// ended child counts too, once its parent has waited for it.
pub fn tree_seconds(root: u32) -> f64 {
    let processes: Vec<Process> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Process::read)
        .collect();
    let mut tree = vec![root];
    let mut seconds = 0.0;
    while let Some(pid) = tree.pop() {
        tree.extend(processes.iter().filter(|p| p.parent == pid).map(|p| p.pid));
        seconds += processes.iter().find(|p| p.pid == pid).map_or(0.0, |p| p.seconds);
    }
    seconds
}

/// Returns the processor seconds of this process and of its children that have ended: the load generator, not the
/// servers that still run.
pub fn own_seconds() -> f64 {
    Process::read(std::process::id()).map_or(0.0, |process| process.seconds)
}

/// Returns the seconds since the machine started.
pub fn uptime_seconds() -> f64 {
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    uptime.split(' ').next().and_then(|seconds| seconds.parse().ok()).unwrap_or(0.0)
}

pub fn resident_mib(pid: u32) -> f64 {
    let pages = fs::read_to_string(format!("/proc/{pid}/statm"))
        .ok()
        .and_then(|statm| statm.split(' ').nth(1)?.parse::<f64>().ok());
    pages.unwrap_or(0.0) / PAGES_PER_MIB
}

struct Process {
    pid: u32,
    parent: u32,
    seconds: f64,
}

impl Process {
    fn read(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may contain anything, so fields are counted from its end.
        let fields: Vec<&str> = stat[stat.rfind(')')? + 2..].split(' ').collect();
        let ticks = |n: usize| fields.get(n)?.parse::<f64>().ok();
        let used = ticks(11)? + ticks(12)? + ticks(13)? + ticks(14)?;
        Some(Self { pid, parent: fields.get(1)?.parse().ok()?, seconds: used / TICKS_PER_SECOND })
    }
}
