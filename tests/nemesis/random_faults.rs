//! Tests all guarantees with all faults: a fleet under load for a while.

use std::io::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use foundation::clock::{Clock, Timestamp};

use crate::caller::Shared;
use crate::check::Finding;
use crate::draw::{faults, is_known};
use crate::fleet::Fleet;
use crate::record::{Call, InjectedFault, Run};
use crate::schedule::{Fault, REPLICAS};
use crate::{acquire_turn, check, final_state, load, probes, report};

/// The duration of the load unless a variable sets it.
const LOAD_DURATION: Duration = Duration::from_secs(40);
/// The difference of the last replica's clock from the others'.
const SKEW_SECONDS: i64 = 300;

/// Whether all runs last longer.
pub fn is_long() -> bool {
    setting::<String>("KEYWARD_NEMESIS_LONG").is_some()
}

/// Checks a run against every guarantee and prints a report.
pub fn assert_guarantees_hold(test: &str, fleet: &Fleet, run: &Run) {
    let mut findings = check::all(run);
    let length = run.calls.iter().map(|call| call.received).max().unwrap_or_default();
    findings.push(check::work::check_scenario(run, length));
    tell(&report::text(&format!("./test --test nemesis {test}"), length, 0, run, &findings));
    assert_none_violated(&findings, test, fleet);
}

/// Panics with the violations and the end of the replicas' log if there are violations.
fn assert_none_violated(findings: &[Finding], repeat: &str, fleet: &Fleet) {
    let violations = report::violations(findings);
    assert!(
        violations.is_empty(),
        "a guarantee was violated ({repeat}):\n{violations}\nThe replicas logged:\n{}",
        report::log_around(&fleet.logs(), &violations)
    );
}

/// Returns a setting of the run from the environment.
fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} cannot be {text:?}")))
}

/// The settings of a run with random faults.
pub struct Settings {
    pub seed: Option<u64>,
    minutes: Option<f64>,
    /// How long the load lasts.
    pub length: Duration,
    /// The kinds of faults; empty means all.
    pub kinds: Vec<String>,
}

impl Settings {
    pub fn read() -> Self {
        let minutes: Option<f64> = setting("KEYWARD_NEMESIS_MINUTES");
        let in_minutes = |minutes| Duration::from_secs_f64(minutes * 60.0);
        let kinds: Option<String> = setting("KEYWARD_NEMESIS_FAULTS");
        let kinds = kinds.iter().flat_map(|list| list.split(',')).map(str::to_owned);
        let kinds: Vec<_> = kinds.collect();
        for name in &kinds {
            assert!(
                is_known(name),
                "KEYWARD_NEMESIS_FAULTS names {name:?}, which is not a kind of fault"
            );
        }
        let length = minutes.map_or(LOAD_DURATION, in_minutes);
        Self { seed: setting("KEYWARD_NEMESIS_SEED"), minutes, length, kinds }
    }

    /// Prints a report of the run, and panics if a guarantee was violated.
    pub fn report(
        &self,
        name: &str,
        seed: u64,
        skew_seconds: i64,
        run: &Run,
        findings: &[Finding],
        fleet: &Fleet,
    ) {
        let minutes =
            self.minutes.map_or_else(String::new, |minutes| format!(" --minutes {minutes}"));
        let faults = match self.kinds.len() {
            0 => String::new(),
            _ => format!(" --faults {}", self.kinds.join(",")),
        };
        let repeat = format!("./test nemesis{name} --seed {seed}{minutes}{faults}");
        tell(&report::text(&repeat, self.length, skew_seconds, run, findings));
        assert_none_violated(findings, &repeat, fleet);
    }
}

#[test]
fn guarantees_hold_under_load_and_random_faults() {
    let _turn = acquire_turn();
    let Timestamp(now) = Clock::System.now();
    let settings = Settings::read();
    let seed = settings.seed.unwrap_or(now.unsigned_abs());
    let skew_seconds = if seed.is_multiple_of(2) { SKEW_SECONDS } else { -SKEW_SECONDS };
    let length = settings.length;
    tell(&format!("Seed {seed}: {} s of load and faults.\n", length.as_secs()));

    let mut fleet = Fleet::start(skew_seconds);
    let faults = faults(seed, length, &settings.kinds);
    let run = run(&mut fleet, seed, length, |fleet, shared| inject(fleet, shared, &faults));
    let run = Run { skewed: Some(REPLICAS - 1), ..run };
    let mut findings = check::all(&run);
    if settings.kinds.is_empty() {
        findings.push(check::work::check(&run, length));
    }

    settings.report("", seed, skew_seconds, &run, &findings, &fleet);
}

/// Puts the fleet under load for this long and injects faults.
pub fn run(
    fleet: &mut Fleet,
    seed: u64,
    length: Duration,
    inject: impl FnOnce(&mut Fleet, &Shared) -> Vec<InjectedFault>,
) -> Run {
    let (shared, pools, prepared) = load::prepare(fleet);
    let load = || load::run(&shared, &pools, seed);
    run_load(fleet, (&shared, prepared), load, |fleet| {
        let injected = inject(fleet, &shared);
        sleep_until(&shared, shared.loaded + length);
        injected
    })
}

/// Runs a load beside faults, until they have been injected. Returns what was recorded, with the calls from before.
pub fn run_load(
    fleet: &mut Fleet,
    (shared, prepared): (&Shared, Vec<Call>),
    load: impl FnOnce() -> Vec<Call> + Send,
    inject: impl FnOnce(&mut Fleet) -> Vec<InjectedFault>,
) -> Run {
    let proxies = probes::addresses(&fleet.replicas);
    let (mut calls, stalls, injected) = std::thread::scope(|scope| {
        let load = scope.spawn(load);
        let probes = scope.spawn(|| probes::run(shared, &proxies));
        let inject = || inject(fleet);
        let injected = std::panic::catch_unwind(std::panic::AssertUnwindSafe(inject));
        shared.stop.store(true, Ordering::Relaxed);
        (load.join().expect("the load"), probes.join().expect("the probes"), injected)
    });
    let faults = injected.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    calls.extend(prepared);
    let keys = shared.keys().clone();
    let final_states = final_state::read_all(fleet, &keys);
    let began_unix_ms = shared.began_unix_ms;
    let mut run =
        Run { began_unix_ms, calls, faults, stalls, keys, final_states, ..Run::default() };
    run.sort();
    run
}

/// Begins and ends each fault at its time.
pub fn inject(fleet: &mut Fleet, shared: &Shared, faults: &[Fault]) -> Vec<InjectedFault> {
    let mut steps: Vec<_> = faults
        .iter()
        .enumerate()
        .flat_map(|(index, fault)| [(fault.at, index, true), (fault.end(), index, false)])
        .collect();
    steps.sort_unstable();
    let mut injected: Vec<_> = faults
        .iter()
        .map(|fault| InjectedFault { fault: *fault, began: fault.at, ended: fault.at })
        .collect();
    for (at, index, begins) in steps {
        sleep_until(shared, shared.loaded + at);
        if begins {
            injected[index].began = shared.began.elapsed();
            fleet.begin(&faults[index]);
        } else {
            fleet.end(&faults[index]);
        }
        injected[index].ended = shared.began.elapsed();
    }
    injected
}

pub fn sleep_until(shared: &Shared, at: Duration) {
    std::thread::sleep(at.saturating_sub(shared.began.elapsed()));
}

/// Prints a text whether or not the test passes.
pub fn tell(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
