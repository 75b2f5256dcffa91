//! Compares this build with another binary of Keyward, such as the one before a change. Both servers of a pair run at
//! once, and the load goes to one of them at a time, in turns of one second: a machine whose speed changes affects both
//! alike. Each binary has its own data, Redis and Postgres. Events are dropped, because those of one server would be
//! written while the other one is measured.
#![expect(clippy::print_stdout, reason = "the report is what the benchmark is run for")]

use super::cases::{Case, Place};
use super::load::{self, Run, real};
use super::machine::Cores;
use super::report::{median, print_table};
use super::servers::{Lab, Server, this_binary};
use super::{KeyFiles, Options, Outcome, Results, make_all_keys};
use std::path::Path;

/// A binary with its servers and keys.
struct Side {
    lab: Lab,
    keys: KeyFiles,
}

pub fn run(cores: Cores, other: &Path, cases: &[&'static Case], options: &Options) -> Outcome<()> {
    let mut cases = cases.to_vec();
    cases.retain(|case| case.place != Place::Ceiling);
    if cases.is_empty() {
        return Err(format!("no case of Keyward is named like {}", options.only));
    }
    let this = Side::build(Lab::of(cores, &this_binary(), &cases)?, &cases, options)?;
    let other = Side::build(Lab::of(cores, other, &cases)?, &cases, options)?;
    let mut pairs: Vec<Vec<Pair>> = cases.iter().map(|_| Vec::new()).collect();
    for repeat in 1..=options.reps {
        for (case, pairs) in cases.iter().zip(&mut pairs) {
            eprintln!("pair {repeat} of {}: {}", options.reps, case.name);
            let case = Case { is_recorded: false, ..**case };
            pairs.push(measure_pair([&this, &other], &case, repeat, options)?);
        }
    }
    print_ratios(&cases, &pairs);
    Ok(())
}

impl Side {
    fn build(lab: Lab, cases: &[&Case], options: &Options) -> Outcome<Self> {
        let mut results = Results::default();
        let keys = make_all_keys(&lab, cases, &[], options, &mut results);
        match results.faults.into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(Self { lab, keys }),
        }
    }

    fn keys(&self, case: &Case) -> Outcome<&Path> {
        self.keys.find(case.place, case.keys)
    }
}

/// The figures of this build, divided by those of the other.
struct Pair {
    throughput: f64,
    server_cpu: f64,
    cpu: f64,
    scripts: f64,
    p99: f64,
}

/// Measures new processes of both sides, each for as many seconds as a run lasts.
fn measure_pair(sides: [&Side; 2], case: &Case, repeat: u32, options: &Options) -> Outcome<Pair> {
    let start = |side: &Side| load::start(&side.lab, case, side.keys(case)?, options);
    // Whichever starts first is not always the same.
    let [this, other] = match repeat % 2 {
        0 => [start(sides[0])?, start(sides[1])?],
        _ => {
            let other = start(sides[1])?;
            [start(sides[0])?, other]
        }
    };
    load::wait_for_calm(&sides[0].lab, load::CALM_PATIENCE);
    let (mut of_this, mut of_other) = (Vec::new(), Vec::new());
    let measure =
        |side: &Side, server: &Server| load::measure(&side.lab, case, side.keys(case)?, server, 1);
    for turn in 0..options.secs {
        if turn % 2 == 0 {
            of_this.push(measure(sides[0], &this)?);
            of_other.push(measure(sides[1], &other)?);
        } else {
            of_other.push(measure(sides[1], &other)?);
            of_this.push(measure(sides[0], &this)?);
        }
    }
    let ratio = |figure: fn(&[Run]) -> f64| figure(&of_this) / figure(&of_other);
    let pair = Pair {
        throughput: ratio(requests),
        server_cpu: ratio(|runs| per_request(runs, |run| run.server_us)),
        cpu: ratio(|runs| per_request(runs, |run| run.server_us + run.redis_us)),
        scripts: ratio(|runs| per_request(runs, |run| run.redis_calls)),
        p99: ratio(|runs| median(runs.iter().map(|run| run.p99_us).collect())),
    };
    eprintln!(
        "  {:.0} and {:.0} requests/s, CPU of the server {:.2} and {:.2} us; x throughput {:.3}, x CPU {:.3}",
        requests(&of_this) / f64::from(options.secs),
        requests(&of_other) / f64::from(options.secs),
        per_request(&of_this, |run| run.server_us),
        per_request(&of_other, |run| run.server_us),
        pair.throughput,
        pair.cpu
    );
    Ok(pair)
}

fn requests(runs: &[Run]) -> f64 {
    real(runs.iter().map(|run| run.requests).sum())
}

/// Returns the average of a figure over all requests.
fn per_request(runs: &[Run], figure: fn(&Run) -> f64) -> f64 {
    runs.iter().map(|run| figure(run) * real(run.requests)).sum::<f64>() / requests(runs)
}

/// Prints the medians of the pairs, and the range of the first two.
fn print_ratios(cases: &[&Case], pairs: &[Vec<Pair>]) {
    let head = [
        "case",
        "x throughput",
        "least to most",
        "x CPU",
        "least to most",
        "x CPU of the server",
        "x scripts",
        "x p99",
    ];
    let mut table = vec![head.map(String::from).to_vec()];
    for (case, pairs) in cases.iter().zip(pairs) {
        let figures = |figure: fn(&Pair) -> f64| -> Vec<f64> { pairs.iter().map(figure).collect() };
        let middle = |figure| format!("{:.3}", median(figures(figure)));
        let range = |figure| {
            let mut figures = figures(figure);
            figures.sort_by(f64::total_cmp);
            let (least, most) = (figures.first(), figures.last());
            format!("{:.3} to {:.3}", least.unwrap_or(&f64::NAN), most.unwrap_or(&f64::NAN))
        };
        table.push(vec![
            case.name.to_owned(),
            middle(|pair| pair.throughput),
            range(|pair| pair.throughput),
            middle(|pair| pair.cpu),
            range(|pair| pair.cpu),
            middle(|pair| pair.server_cpu),
            middle(|pair| pair.scripts),
            middle(|pair| pair.p99),
        ]);
    }
    println!(
        "\nThis build, divided by the other. CPU is the server's and Redis'; events are dropped\n"
    );
    print_table(&table);
}
