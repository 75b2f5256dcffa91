//! Measures limits and credits that three regions share: how many decisions stay in a region, what they cost, and how
//! much of a limit is admitted. Every admission is counted: one beyond a limit or a balance is a fault.
#![expect(clippy::print_stdout, reason = "the report is what the benchmark is run for")]

mod demand;
mod far;
mod figures;
mod topology;

use super::Outcome;
use super::machine::Cores;
use super::report;
use figures::Figures;
use std::time::Instant;
use topology::{NAMES, REPLICAS_EACH, ROUND_TRIP, Regions};

type Step = fn(&Regions, &mut Figures) -> Outcome<()>;

const STEPS: [(&str, Step); 6] = [
    ("decisions", figures::measure_local_decisions),
    ("latency", figures::measure_latency),
    ("divided", figures::measure_divided_demand),
    ("exhaustion", figures::measure_exhaustion),
    ("throughput", figures::measure_throughput),
    ("far", far::measure_far_replica),
];

pub fn run(cores: Cores) -> Outcome<()> {
    let wanted = std::env::args().skip_while(|argument| argument != "--regions").nth(1);
    let wanted = wanted.as_deref().filter(|wanted| *wanted != "--bench").unwrap_or("");
    let regions = Regions::start(cores)?;
    let (distance_min, distance_max) = regions.distances()?;
    let mut figures = Figures::default();
    let mut faults = Vec::new();
    let (began, (busy_before, used_before)) = (Instant::now(), regions.core_seconds());
    for (name, measure) in STEPS.into_iter().filter(|(name, _)| name.contains(wanted)) {
        eprintln!("measuring: {name}");
        if let Err(fault) = measure(&regions, &mut figures) {
            eprintln!("  FAILED {name}: {fault}");
            faults.push(format!("{name}: {fault}"));
        }
    }
    let (busy, used) = regions.core_seconds();
    let foreign = (busy - busy_before) - (used - used_before);

    println!(
        "\n{} regions with {REPLICAS_EACH} replicas each, {} ms (round trip) between a replica and the Redis of another \
         region (measured by the replicas: {distance_min:.0} to {distance_max:.0} ms)",
        NAMES.len(),
        ROUND_TRIP.as_millis(),
    );
    println!(
        "Other work on the two cores: {:.2} cores.",
        foreign.max(0.0) / began.elapsed().as_secs_f64()
    );
    let (targets, wrong) = figures.finish();
    report::print_targets(&targets);
    faults.extend(wrong);
    if faults.is_empty() {
        return Ok(());
    }
    println!("\nFaults\n");
    for fault in &faults {
        println!("  {fault}");
    }
    Err(format!(
        "wrong answers or none (listed above); the servers' last words: {}",
        regions.last_words()
    ))
}

#[expect(clippy::cast_precision_loss, reason = "counts of one run stay far below 2^52")]
fn real(count: usize) -> f64 {
    count as f64
}
