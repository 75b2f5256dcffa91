//! The harness: starts the servers, creates the keys, runs every case in turn, and prints the report. Repeats are
//! interleaved (the first of every case, then the second of every case), so that a slow period of the machine affects
//! all cases equally.

mod against;
mod cases;
pub mod ceiling;
mod client;
mod cold_start;
mod events;
mod first_use;
mod grpc_ceiling;
mod grpc_load;
mod interfaces;
mod key_sets;
mod lists;
mod load;
mod machine;
mod memory;
mod policy;
#[path = "../../tests/nemesis/proxy.rs"]
#[expect(dead_code, reason = "tests use the rest")]
mod proxy;
mod quick;
mod regions;
mod report;
mod servers;
mod wrk;

use cases::{Case, Interface, Place};
use key_sets::KeySet;
use machine::Cores;
use servers::Lab;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A result whose error is one sentence; no code here depends on the kind of error.
pub type Outcome<T> = Result<T, String>;

const USAGE: &str = "cargo bench --bench verify -- [--reps 3] [--secs 4] [--only SUBSTRING] \
                     [--keys 10000] [--json FILE] [--against BINARY] | --lists | --quick | \
                     --first-use | --memory [KEYS] | --regions [STEP] | \
                     --events [embedded|replica|clickhouse]";

pub struct Options {
    pub reps: u32,
    pub secs: u32,
    pub only: String,
    pub keys: usize,
    pub json: Option<PathBuf>,
    pub against: Option<PathBuf>,
}

impl Options {
    fn parse(arguments: &[String]) -> Outcome<Self> {
        let mut options =
            Self { reps: 3, secs: 4, only: String::new(), keys: 10_000, json: None, against: None };
        let mut arguments = arguments.iter().filter(|argument| *argument != "--bench");
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name}: usage: {USAGE}"))?;
            let fault = |e| format!("{name} {value}: {e}; usage: {USAGE}");
            match name.as_str() {
                "--reps" => options.reps = value.parse().map_err(fault)?,
                "--secs" => options.secs = value.parse().map_err(fault)?,
                "--keys" => options.keys = value.parse().map_err(fault)?,
                "--only" => options.only.clone_from(value),
                "--against" => options.against = Some(PathBuf::from(value)),
                "--json" => options.json = Some(PathBuf::from(value)),
                _ => return Err(format!("{name} is unknown; usage: {USAGE}")),
            }
        }
        if options.reps == 0 || options.secs == 0 || options.keys == 0 {
            return Err(format!("--reps, --secs and --keys are at least 1; usage: {USAGE}"));
        }
        Ok(options)
    }
}

/// Runs the benchmark. Only `cargo bench` passes `--bench`; other commands that start every target
/// (`cargo test --all-targets`) must not wait minutes for it.
pub fn main(arguments: &[String]) -> Outcome<()> {
    if !arguments.iter().any(|argument| argument == "--bench") {
        eprintln!("not run: this is a benchmark; usage: {USAGE}");
        return Ok(());
    }
    let named = |name: &str| arguments.iter().any(|argument| argument == name);
    let run: Option<fn(Cores) -> Outcome<()>> = match () {
        () if named("--lists") => Some(lists::run),
        () if named("--quick") => Some(quick::run),
        () if named("--first-use") => Some(first_use::run),
        () if named("--memory") => Some(memory::run),
        () if named("--regions") => Some(regions::run),
        () if named("--events") => Some(events::run),
        () => None,
    };
    if let Some(run) = run {
        let cores = Cores::choose()?;
        servers::require_tools()?;
        servers::pin_self(cores)?;
        return run(cores);
    }
    let options = Options::parse(arguments)?;
    let cases = cases::selected(&options.only);
    let cold_places = cold_start::selected(&options.only);
    if cases.is_empty() && cold_places.is_empty() {
        return Err(format!("no case is named like {}", options.only));
    }
    servers::require_tools()?;
    let cores = Cores::choose()?;
    servers::pin_self(cores)?;

    if let Some(other) = &options.against {
        return against::run(cores, other, &cases, &options);
    }
    let has_replica =
        cold_places.contains(&Place::Replica) || cases.iter().any(|c| c.place == Place::Replica);
    if cases.iter().any(|case| case.interface == Interface::Nginx) {
        interfaces::find_nginx()?;
    }
    let lab = Lab::build(cores, has_replica || cases.iter().any(|c| c.has_redis()), has_replica)?;
    let mut results = Results::default();
    let keys = make_all_keys(&lab, &cases, &cold_places, &options, &mut results);
    for repeat in 1..=options.reps {
        for case in &cases {
            run_case(&lab, case, &keys, repeat, &options, &mut results);
        }
    }
    for place in cold_places {
        let measured = keys
            .find(place, cold_start::KEYS)
            .and_then(|file| cold_start::measure(&lab, place, file));
        match measured {
            Ok(starts) => results.cold_starts.push(starts),
            Err(fault) => results.fail(cold_start::name(place), &fault),
        }
    }
    report::print(&cases, &results, &options)?;
    match results.faults.len() {
        0 => Ok(()),
        n => Err(format!("{n} of the runs gave wrong answers or none (listed above)")),
    }
}

/// The results of all runs, including failed ones: one failed case does not stop the others.
#[derive(Default, serde::Serialize)]
pub struct Results {
    pub runs: Vec<load::Run>,
    pub cold_starts: Vec<cold_start::Starts>,
    pub faults: Vec<String>,
}

impl Results {
    fn fail(&mut self, what: &str, fault: &str) {
        eprintln!("  FAILED {what}: {fault}");
        self.faults.push(format!("{what}: {fault}"));
    }
}

fn run_case(
    lab: &Lab,
    case: &'static Case,
    keys: &KeyFiles,
    repeat: u32,
    options: &Options,
    results: &mut Results,
) {
    eprintln!("run {repeat} of {}: {}", options.reps, case.name);
    let run = keys
        .find(case.place, case.keys)
        .and_then(|file| load::run(lab, case, file, repeat, options));
    match run {
        Ok(run) => results.runs.push(run),
        Err(fault) => results.fail(case.name, &fault),
    }
}

/// The key files, one per set and server.
struct KeyFiles(Vec<(Place, KeySet, PathBuf)>);

impl KeyFiles {
    fn find(&self, place: Place, set: KeySet) -> Outcome<&Path> {
        self.0
            .iter()
            .find(|(p, s, _)| *p == place && *s == set)
            .map(|(_, _, file)| file.as_path())
            .ok_or_else(|| format!("there are no {} keys for {}", set.name(), place.name()))
    }
}

/// Creates the keys of every case, once for all repeats. After a failure, the affected cases have no keys.
fn make_all_keys(
    lab: &Lab,
    cases: &[&Case],
    cold_places: &[Place],
    options: &Options,
    results: &mut Results,
) -> KeyFiles {
    let mut files = KeyFiles(Vec::new());
    for place in [Place::Ceiling, Place::Embedded, Place::Replica] {
        let is_needed = |set: &KeySet| {
            cases.iter().any(|case| case.place == place && case.keys == *set)
                || (*set == cold_start::KEYS && cold_places.contains(&place))
        };
        let sets: Vec<KeySet> = KeySet::ALL.into_iter().filter(is_needed).collect();
        if sets.is_empty() {
            continue;
        }
        let has_gateway =
            cases.iter().any(|case| case.place == place && case.interface != Interface::Operation);
        let count = options.keys;
        if let Err(fault) = make_keys(lab, place, &sets, count, has_gateway, &mut files) {
            results.fail(&format!("making the keys of {}", place.name()), &fault);
        }
    }
    files
}

fn make_keys(
    lab: &Lab,
    place: Place,
    sets: &[KeySet],
    count: usize,
    has_gateway: bool,
    files: &mut KeyFiles,
) -> Outcome<()> {
    // A ceiling server looks nothing up: any text as long as a key is sufficient.
    let issuer = match place {
        Place::Ceiling => None,
        Place::Embedded | Place::Replica => {
            let server = lab.start(place)?;
            let api_id = client::make_api(server.address)?;
            if has_gateway {
                policy::create(lab, place, server.address, &api_id)?;
            }
            Some((server, api_id))
        }
    };
    for set in sets {
        let started = Instant::now();
        let keys = match &issuer {
            Some((server, api_id)) if set.is_made() => {
                client::make_keys(server.address, api_id, *set, set.count(count))?
            }
            Some((_, api_id)) if *set == KeySet::Creations => vec![api_id.clone()],
            _ => (0..set.count(count)).map(|n| format!("prod_{n:022x}")).collect(),
        };
        let file = lab.folder.path().join(format!("{}-{}.keys", place.name(), set.name()));
        fs::write(&file, keys.join("\n") + "\n").map_err(|e| format!("{}: {e}", file.display()))?;
        files.0.push((place, *set, file));
        if issuer.is_some() {
            let seconds = started.elapsed().as_secs_f64();
            eprintln!("made {count} {} keys for {} in {seconds:.1} s", set.name(), place.name());
        }
    }
    Ok(())
}
