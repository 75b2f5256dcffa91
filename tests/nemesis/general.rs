//! All faults against all promises: a fleet under load, for a while.

use std::io::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use foundation::clock::{Clock, Timestamp};

use crate::caller::Shared;
use crate::fleet::Fleet;
use crate::record::{Done, Run};
use crate::schedule::{Fault, REPLICAS, faults, is_known};
use crate::{alone, check, ending, load, report};

/// How long the load lasts, when nothing else is said.
const LENGTH: Duration = Duration::from_secs(40);
/// How far the clock of the last replica is from the others'.
const SKEW_SECONDS: i64 = 300;

/// Whether everything is to last longer.
pub fn is_long() -> bool {
    setting::<String>("KEYWARD_NEMESIS_LONG").is_some()
}

/// Holds a run against every promise, and tells of it.
pub fn judge(test: &str, fleet: &Fleet, run: &Run) {
    let findings = check::all(run);
    let length = run.acts.iter().map(|act| act.received).max().unwrap_or_default();
    tell(&report::text(&format!("./test --test nemesis {test}"), length, 0, run, &findings));
    let is_kept = findings.iter().all(|finding| finding.violations.is_empty());
    assert!(is_kept, "a promise was broken, as told above; the replicas logged:\n{}", tail(fleet));
}

/// Settings of the run, for whoever wants another one.
fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} cannot be {text:?}")))
}

#[test]
fn every_promise_is_kept_under_load_and_faults() {
    let _turn = alone();
    let Timestamp(now) = Clock::System.now();
    let seed = setting("KEYWARD_NEMESIS_SEED").unwrap_or(now.unsigned_abs());
    let minutes: Option<f64> = setting("KEYWARD_NEMESIS_MINUTES");
    let length = minutes.map_or(LENGTH, |minutes| Duration::from_secs_f64(minutes * 60.0));
    let wanted: Option<String> = setting("KEYWARD_NEMESIS_FAULTS");
    let wanted: Vec<_> =
        wanted.iter().flat_map(|list| list.split(',')).map(str::to_owned).collect();
    for name in &wanted {
        assert!(is_known(name), "KEYWARD_NEMESIS_FAULTS names {name:?}, which is no kind of fault");
    }
    let skew_seconds = if seed % 2 == 0 { SKEW_SECONDS } else { -SKEW_SECONDS };
    tell(&format!("Seed {seed}: {} s of load and faults.\n", length.as_secs()));

    let mut fleet = Fleet::start(skew_seconds);
    let faults = faults(seed, length, &wanted);
    let run = run(&mut fleet, seed, length, |fleet, shared| inject(fleet, shared, &faults));
    let run = Run { skewed: Some(REPLICAS - 1), ..run };
    let findings = check::all(&run);

    tell(&report::text(&again(seed, minutes, &wanted), length, skew_seconds, &run, &findings));
    let is_kept = findings.iter().all(|finding| finding.violations.is_empty());
    assert!(is_kept, "a promise was broken, as told above; the replicas logged:\n{}", tail(&fleet));
}

/// The command that does the same once more.
fn again(seed: u64, minutes: Option<f64>, wanted: &[String]) -> String {
    let minutes = minutes.map_or_else(String::new, |minutes| format!(" --minutes {minutes}"));
    let faults = match wanted.len() {
        0 => String::new(),
        _ => format!(" --faults {}", wanted.join(",")),
    };
    format!("./test nemesis --seed {seed}{minutes}{faults}")
}

/// Puts the fleet under load for so long and does to it what is to be done.
pub fn run(
    fleet: &mut Fleet,
    seed: u64,
    length: Duration,
    acts: impl FnOnce(&mut Fleet, &Shared) -> Vec<Done>,
) -> Run {
    let (shared, cast, prepared) = load::prepare(fleet);
    let (mut asked, done) = std::thread::scope(|scope| {
        let load = scope.spawn(|| load::run(&shared, &cast, seed));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let done = acts(fleet, &shared);
            sleep_until(&shared, shared.loaded + length);
            done
        }));
        shared.stop.store(true, Ordering::Relaxed);
        (load.join().expect("the load"), done)
    });
    let faults = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    asked.extend(prepared);
    let keys = shared.keys().clone();
    let endings = ending::of(fleet, &keys);
    let began_unix_ms = shared.began_unix_ms;
    let mut run = Run { began_unix_ms, acts: asked, faults, keys, endings, ..Run::default() };
    run.sort();
    run
}

/// Begins and ends each fault at its time.
pub fn inject(fleet: &mut Fleet, shared: &Shared, faults: &[Fault]) -> Vec<Done> {
    let mut steps: Vec<_> = faults
        .iter()
        .enumerate()
        .flat_map(|(place, fault)| [(fault.at, place, true), (fault.end(), place, false)])
        .collect();
    steps.sort_unstable();
    let mut done: Vec<_> = faults
        .iter()
        .map(|fault| Done { fault: *fault, began: fault.at, ended: fault.at })
        .collect();
    for (at, place, begins) in steps {
        sleep_until(shared, shared.loaded + at);
        if begins {
            done[place].began = shared.began.elapsed();
            fleet.begin(&faults[place]);
        } else {
            fleet.end(&faults[place]);
        }
        done[place].ended = shared.began.elapsed();
    }
    done
}

pub fn sleep_until(shared: &Shared, at: Duration) {
    std::thread::sleep(at.saturating_sub(shared.began.elapsed()));
}

/// To the terminal, whether or not the test passes.
pub fn tell(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// The end of what the replicas logged.
pub fn tail(fleet: &Fleet) -> String {
    let logs = fleet.logs();
    let lines: Vec<_> = logs.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
