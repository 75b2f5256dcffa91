//! Runs schedules, and replays the one that violates a guarantee.

use std::fmt::Write as _;
use std::sync::Mutex;

use crate::executor::{Sim, lock};
use crate::{credits, feed, regions};

/// The maximum number of events in the message about a violation.
const TRACE_END_MAX: usize = 60;

/// A simulation.
struct Simulation<T> {
    /// A part of the name of its test.
    name: &'static str,
    /// The number of schedules.
    schedules: u64,
    /// Runs one schedule.
    run: fn(&Sim) -> Result<T, String>,
}

const FEED: Simulation<feed::Summary> =
    Simulation { name: "changes_are_seen", schedules: 2_000, run: feed::run };
const STANDBY: Simulation<feed::Summary> =
    Simulation { name: "stale_rows_of_a_standby", schedules: 500, run: feed::run_with_standby };
const CREDITS: Simulation<credits::Summary> =
    Simulation { name: "credits_are_exact", schedules: 2_000, run: credits::run };

const REGIONS: Simulation<regions::Summary> =
    Simulation { name: "limits_are_shared", schedules: 10_000, run: regions::run };

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is {value:?}, which is not a number")))
}

/// Runs schedules, on all processors, until one violates a guarantee. Returns their results.
fn run_schedules<T: Send>(simulation: &Simulation<T>) -> Vec<T> {
    let (seeds, is_replay) = match setting("KEYWARD_SIMULATION_SEED") {
        Some(seed) => (seed..seed + 1, true),
        None => {
            let first = setting("KEYWARD_SIMULATION_FIRST_SEED").unwrap_or(0);
            let count = setting("KEYWARD_SIMULATION_SCHEDULES").unwrap_or(simulation.schedules);
            (first..first + count, false)
        }
    };
    if is_replay {
        let (result, trace) = run_traced(simulation, seeds.start);
        eprintln!("{}", trace.join("\n"));
        return vec![result.unwrap_or_else(|violation| panic!("{violation}"))];
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // The lowest seed that violates a guarantee: higher ones are not run any more.
    let lowest = Mutex::new(None::<(u64, String)>);
    let is_decided = |seed| lock(&lowest).as_ref().is_some_and(|(lower, _)| *lower < seed);
    let run_every_nth = |first: usize| {
        let mut results = Vec::new();
        for seed in seeds.clone().skip(first).step_by(threads) {
            if is_decided(seed) {
                break;
            }
            let sim = Sim::new(seed, false);
            let result = (simulation.run)(&sim);
            sim.finish();
            match result {
                Ok(result) => results.push(result),
                Err(violation) if is_decided(seed) => drop(violation),
                Err(violation) => *lock(&lowest) = Some((seed, violation)),
            }
        }
        results
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|first| {
                scope.spawn({
                    let run = &run_every_nth;
                    move || run(first)
                })
            })
            .collect();
        running.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    match &*lock(&lowest) {
        Some((seed, violation)) => panic!("{}", describe(simulation, *seed, violation)),
        None => results,
    }
}

fn run_traced<T>(simulation: &Simulation<T>, seed: u64) -> (Result<T, String>, Vec<String>) {
    let sim = Sim::new(seed, true);
    let result = (simulation.run)(&sim);
    (result, sim.finish())
}

/// Describes a violation: how to replay it, and what happened last.
fn describe<T>(simulation: &Simulation<T>, seed: u64, violation: &str) -> String {
    let (_, trace) = run_traced(simulation, seed);
    let mut text = format!(
        "{violation}\nseed {seed}; replay it with\n\
         KEYWARD_SIMULATION_SEED={seed} cargo test --locked -p keyward-simulation -- \
         {} --nocapture\n",
        simulation.name
    );
    for event in &trace[trace.len().saturating_sub(TRACE_END_MAX)..] {
        let _ = writeln!(text, "{event}");
    }
    text
}

#[test]
fn changes_are_seen_in_time_whatever_fails() {
    assert_seen_in_time(&run_schedules(&FEED));
}

#[test]
fn stale_rows_of_a_standby_are_not_served() {
    assert_seen_in_time(&run_schedules(&STANDBY));
}

fn assert_seen_in_time(results: &[feed::Summary]) {
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
fn credits_are_exact_whatever_fails() {
    let results = run_schedules(&CREDITS);

    let sum = |count: fn(&credits::Summary) -> u64| results.iter().map(count).sum::<u64>();
    let (valid, debited) = (sum(|one| one.valid), sum(|one| one.debited));
    let (rejected, failed) = (sum(|one| one.rejected), sum(|one| one.failed));
    eprintln!("{valid} valid, {debited} of them debited, {rejected} rejected, {failed} failed");
    assert!(valid > 0 && debited < valid);
}

/// Checks that schedules are the same when they are repeated.
fn assert_repeatable<T>(simulation: &Simulation<T>) {
    for seed in 0..5 {
        let (first, second) = (run_traced(simulation, seed).1, run_traced(simulation, seed).1);

        assert!(first.len() > 20, "the schedule of seed {seed} has {} events", first.len());
        assert_eq!(first, second);
    }
}

#[test]
fn schedule_repeats_when_its_seed_is_the_same() {
    assert_repeatable(&FEED);
    assert_repeatable(&STANDBY);
    assert_repeatable(&CREDITS);
    assert_repeatable(&REGIONS);
}

#[test]
fn limits_are_shared_between_regions_whatever_fails() {
    let results = run_schedules(&REGIONS);

    let sum = |of: fn(&regions::Summary) -> u64| results.iter().map(of).sum::<u64>();
    let admitted: i64 = results.iter().map(|one| one.admitted).sum();
    eprintln!(
        "{admitted} admitted in {} requests, {} denied, homes asked {} times",
        sum(|one| one.calls),
        sum(|one| one.denied),
        sum(|one| one.asked)
    );
    assert!(admitted > 0);
}
