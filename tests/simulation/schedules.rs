//! Runs schedules, and replays the one that violates a guarantee.

use std::fmt::Write as _;

use crate::executor::Sim;
use crate::feed;

/// The number of schedules of each simulation.
const SCHEDULES: u64 = 1_000;
/// The maximum number of events in the message about a violation.
const TRACE_END_MAX: usize = 60;

/// A simulation: runs one schedule.
type Simulation<T> = fn(&Sim) -> Result<T, String>;

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is {value:?}, which is not a number")))
}

/// Runs schedules, on all processors, until one violates a guarantee. Returns their results.
fn run_schedules<T: Send>(simulation: Simulation<T>) -> Vec<T> {
    let (seeds, is_replay) = match setting("KEYWARD_SIMULATION_SEED") {
        Some(seed) => (seed..seed + 1, true),
        None => (0..setting("KEYWARD_SIMULATION_SCHEDULES").unwrap_or(SCHEDULES), false),
    };
    if is_replay {
        let (result, trace) = run_traced(simulation, seeds.start);
        eprintln!("{}", trace.join("\n"));
        return vec![result.unwrap_or_else(|violation| panic!("{violation}"))];
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let run_every_nth = |first: usize| {
        let mut results = Vec::new();
        for seed in seeds.clone().skip(first).step_by(threads) {
            let sim = Sim::new(seed, false);
            let result = simulation(&sim);
            sim.finish();
            results.push(result.map_err(|violation| (seed, violation))?);
        }
        Ok(results)
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> =
            (0..threads).map(|first| scope.spawn(move || run_every_nth(first))).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let results: Result<Vec<_>, _> = results.into_iter().collect();
    match results {
        Ok(results) => results.into_iter().flatten().collect(),
        Err((seed, violation)) => panic!("{}", describe(simulation, seed, &violation)),
    }
}

fn run_traced<T>(simulation: Simulation<T>, seed: u64) -> (Result<T, String>, Vec<String>) {
    let sim = Sim::new(seed, true);
    let result = simulation(&sim);
    (result, sim.finish())
}

/// Describes a violation: how to replay it, and what happened last.
fn describe<T>(simulation: Simulation<T>, seed: u64, violation: &str) -> String {
    let (_, trace) = run_traced(simulation, seed);
    let mut text = format!(
        "{violation}\nseed {seed}; replay it with\n\
         KEYWARD_SIMULATION_SEED={seed} cargo test --locked --test simulation -- \
         changes_are_seen --nocapture\n"
    );
    for event in &trace[trace.len().saturating_sub(TRACE_END_MAX)..] {
        let _ = writeln!(text, "{event}");
    }
    text
}

#[test]
fn changes_are_seen_in_time_whatever_fails() {
    let results = run_schedules(feed::run);

    let mut delays_us: Vec<_> = results.iter().flat_map(|one| one.delays_us.clone()).collect();
    delays_us.sort_unstable();
    let served: u64 = results.iter().map(|one| one.served).sum();
    let rejected: u64 = results.iter().map(|one| one.rejected).sum();
    eprintln!("{served} served, {rejected} rejected, {} delays", delays_us.len());
    if let Some(p99_us) = delays_us.get(delays_us.len() * 99 / 100) {
        eprintln!("p99 {} ms, maximum {:?} us", p99_us / 1_000, delays_us.last());
        assert!(*p99_us <= 250_000, "changes were seen after {} ms (p99)", p99_us / 1_000);
    }
}

#[test]
fn schedule_repeats_when_its_seed_is_the_same() {
    for seed in 0..5 {
        let (first, second) = (run_traced(feed::run, seed).1, run_traced(feed::run, seed).1);

        assert!(first.len() > 20, "the schedule of seed {seed} has {} events", first.len());
        assert_eq!(first, second);
    }
}
