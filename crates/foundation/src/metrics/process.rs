//! Exports what the system reports about this process, under the names that all programs use. Values that the system
//! does not report are left out.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::clock::Clock;

/// Metrics of this process, read when they are scraped.
#[derive(Debug)]
pub struct ProcessMetrics {
    memory_bytes: Gauge,
    open_files: Gauge,
}

impl ProcessMetrics {
    pub fn new(registry: &mut Registry) -> Self {
        let started = Gauge::<f64, AtomicU64>::default();
        started.set(
            std::time::Duration::from_millis(Clock::System.now().0.unsigned_abs()).as_secs_f64(),
        );
        registry.register(
            "process_start_time_seconds",
            "Start time of the process, in Unix seconds",
            started,
        );
        let process = Self { memory_bytes: Gauge::default(), open_files: Gauge::default() };
        if cfg!(target_os = "linux") {
            let memory = process.memory_bytes.clone();
            registry.register("process_resident_memory_bytes", "Resident memory", memory);
            registry.register(
                "process_open_fds",
                "Open files and sockets",
                process.open_files.clone(),
            );
        }
        process
    }

    /// Reads the current values.
    pub fn refresh(&self) {
        if let Some(bytes) = resident_bytes() {
            self.memory_bytes.set(bytes);
        }
        if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
            // One of them is the directory that is being read.
            self.open_files.set(i64::try_from(entries.count()).unwrap_or(i64::MAX) - 1);
        }
    }
}

fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: i64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
