//! Measures how much memory a process needs while a function runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Returns the anonymous memory of a process in kB, or `None` if it has ended.
fn anonymous_kb(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// Runs a function. Returns its result and the maximum growth of one of the processes in kB, sampled every millisecond.
pub async fn growth_kb<T>(pids: &[i32], run: impl Future<Output = T>) -> (T, u64) {
    let before: Vec<_> = pids.iter().filter_map(|pid| Some((*pid, anonymous_kb(*pid)?))).collect();
    assert!(!before.is_empty(), "none of the processes {pids:?} runs");
    let (is_over, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let watcher = {
        let (is_over, most) = (is_over.clone(), most.clone());
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                for (pid, before) in &before {
                    let grown = anonymous_kb(*pid).unwrap_or(0).saturating_sub(*before);
                    most.fetch_max(grown, Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(1));
            }
        })
    };
    let result = run.await;
    is_over.store(true, Ordering::Relaxed);
    watcher.join().expect("the watcher does not panic");
    (result, most.load(Ordering::Relaxed))
}
