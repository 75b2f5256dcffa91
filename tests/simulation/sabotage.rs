//! Tests that the simulation finds faults: with a safeguard disabled, some schedule violates a guarantee.
//!
//! A safeguard is disabled for a whole process (see [`foundation::fault_injection`]), so this program runs itself.

use std::process::Command;

/// A safeguard, the simulation that needs it, and a part of the violation without it.
struct Case {
    /// Its name in `KEYWARD_DISABLE_SAFEGUARD`.
    safeguard: &'static str,
    simulation: &'static str,
    found: &'static str,
    /// The first schedule: to save time, one that is not long before a schedule that finds the fault.
    first_seed: u64,
}

/// The maximum number of schedules for one fault; the first one that finds it is the last.
const SCHEDULES_MAX: &str = "3000";

const CASES: [Case; 28] = [
    feed("own-change", "stale value, its own change", 0),
    feed("read-version", "stale value", 20),
    feed("trust", "stale value, without proof", 80),
    feed("missing-rows", "stale value", 180),
    feed("intent", "stale value, without proof", 150),
    feed("gap", "stale value, without proof", 0),
    feed("majority", "stale value, without proof", 820),
    feed("reach", "stale value, without proof", 10),
    feed("skip", "stale value, beside a reachable database", 460),
    standby("standby-position", "stale value", 0),
    credits("fence", "over-granted", 0),
    credits("debit-first", "over-granted", 0),
    credits("close-lease", "over-granted", 0),
    credits("lease-bound", "too much leased", 0),
    credits("proven-closed", "over-granted", 0),
    credits("reported", "over-granted", 0),
    credits("every-report", "over-granted", 0),
    credits("close-once", "over-granted", 0),
    credits("top-up-once", "over-granted", 240),
    credits("retry-deadline", "late retry", 0),
    regions("fence", "over-admitted", 1_320),
    regions("grant-counted", "over-admitted", 0),
    regions("grant-once", "over-admitted", 40),
    regions("lease-end", "after its end", 0),
    regions("taken-first", "over-admitted", 40),
    regions("home-bounds", "over-admitted", 10),
    regions("closed-window", "over-admitted", 100),
    regions("moved-count", "over-admitted", 0),
];

const fn feed(safeguard: &'static str, found: &'static str, first_seed: u64) -> Case {
    let simulation = "schedules::changes_are_seen_in_time_whatever_fails";
    Case { safeguard, simulation, found, first_seed }
}

const fn standby(safeguard: &'static str, found: &'static str, first_seed: u64) -> Case {
    let simulation = "schedules::stale_rows_of_a_standby_are_not_served";
    Case { safeguard, simulation, found, first_seed }
}

const fn credits(safeguard: &'static str, found: &'static str, first_seed: u64) -> Case {
    let simulation = "schedules::credits_are_exact_whatever_fails";
    Case { safeguard, simulation, found, first_seed }
}

const fn regions(safeguard: &'static str, found: &'static str, first_seed: u64) -> Case {
    let simulation = "schedules::limits_are_shared_between_regions_whatever_fails";
    Case { safeguard, simulation, found, first_seed }
}

#[test]
fn schedules_find_each_disabled_safeguard() {
    let program = std::env::current_exe().expect("the path of this program");
    let mut missed = Vec::new();
    for Case { safeguard, simulation, found, first_seed } in CASES {
        let output = Command::new(&program)
            .args([simulation, "--exact", "--nocapture"])
            .env("KEYWARD_DISABLE_SAFEGUARD", safeguard)
            .env("KEYWARD_SIMULATION_FIRST_SEED", first_seed.to_string())
            .env("KEYWARD_SIMULATION_SCHEDULES", SCHEDULES_MAX)
            .env_remove("KEYWARD_SIMULATION_SEED")
            .env("RUST_BACKTRACE", "0")
            .output()
            .expect("this program runs");
        let text = String::from_utf8_lossy(&output.stderr);
        let is_found = text.contains(found) && text.contains("KEYWARD_SIMULATION_SEED=");
        let seed = text.lines().find(|line| line.starts_with("seed "));
        eprintln!("without {safeguard}: {}", seed.unwrap_or("nothing found"));
        if output.status.success() || !is_found {
            let summary: Vec<_> = text.lines().take(8).collect();
            missed.push(format!("without {safeguard}: {}", summary.join("\n")));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
