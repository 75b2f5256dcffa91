//! Writes the result tables, the targets and the JSON file.
#![expect(clippy::print_stdout, reason = "the report is what the benchmark is run for")]

use super::cases::{Case, Group, Interface, Place};
use super::cold_start::Starts;
use super::key_sets::KeySet;
use super::load::Run;
use super::{Options, Outcome, Results};
use serde::Serialize;

/// Figures of Envoy's own rate-limit service, measured once on one core: see README.md.
const ENVOY_PER_SECOND: f64 = 13_200.0;
const ENVOY_CPU_US: f64 = 75.0 + 18.0;

pub fn print(cases: &[&Case], results: &Results, options: &Options) -> Outcome<()> {
    let summaries: Vec<Summary> =
        cases.iter().filter_map(|case| Summary::of(case, &results.runs)).collect();
    for group in Group::ALL {
        print_group(group, &summaries);
    }
    print_cold_starts(&results.cold_starts);
    print_disturbance(&results.runs);
    let targets = targets(&summaries, &results.cold_starts);
    print_targets(&targets);
    if !results.faults.is_empty() {
        println!("\nFaults\n");
        for fault in &results.faults {
            println!("  {fault}");
        }
    }
    match &options.json {
        Some(path) => {
            let document = Document { targets: &targets, results };
            let text = serde_json::to_string_pretty(&document).map_err(|e| e.to_string())?;
            std::fs::write(path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))
        }
        None => Ok(()),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    targets: &'a [Target],
    #[serde(flatten)]
    results: &'a Results,
}

/// The medians of one case.
struct Summary<'a> {
    case: &'a Case,
    requests_per_second: f64,
    spread: f64,
    server_us: f64,
    redis_us: f64,
    redis_calls: f64,
    withdrawals_per_second: f64,
    events_per_second: f64,
    dropped_per_second: f64,
    p50_us: f64,
    p99_us: f64,
    load_us: f64,
    kept: usize,
    made: usize,
}

impl<'a> Summary<'a> {
    /// Disturbed runs count only if there are no others.
    fn of(case: &'a Case, runs: &[Run]) -> Option<Self> {
        let made: Vec<&Run> = runs.iter().filter(|run| run.case == case.name).collect();
        let calm: Vec<&Run> = made.iter().copied().filter(|run| !run.is_disturbed).collect();
        let kept = if calm.is_empty() { &made } else { &calm };
        if kept.is_empty() {
            return None;
        }
        let middle = |figure: fn(&Run) -> f64| median(kept.iter().map(|run| figure(run)).collect());
        let rates = kept.iter().map(|run| run.requests_per_second);
        let (low, high) = (rates.clone().fold(f64::MAX, f64::min), rates.fold(0.0, f64::max));
        let requests_per_second = middle(|run| run.requests_per_second);
        Some(Self {
            case,
            requests_per_second,
            spread: (high - low) / 2.0 / requests_per_second,
            server_us: middle(|run| run.server_us),
            redis_us: middle(|run| run.redis_us),
            redis_calls: middle(|run| run.redis_calls),
            withdrawals_per_second: middle(|run| run.withdrawals_per_second),
            events_per_second: middle(|run| run.events_per_second),
            dropped_per_second: middle(|run| run.dropped_per_second),
            p50_us: middle(|run| run.p50_us),
            p99_us: middle(|run| run.p99_us),
            load_us: middle(|run| run.load_us),
            kept: calm.len(),
            made: made.len(),
        })
    }
}

/// Returns the processor time of a request in the server and in Redis.
fn total_us(summary: &Summary) -> f64 {
    summary.server_us + if summary.case.has_redis() { summary.redis_us } else { 0.0 }
}

fn print_group(group: Group, summaries: &[Summary]) {
    let rows: Vec<&Summary> = summaries.iter().filter(|s| s.case.group == group).collect();
    if rows.is_empty() {
        return;
    }
    let base = rows.iter().find(|row| row.case.is_base());
    let head = [
        "case",
        "req/s",
        "spread",
        "CPU us/req",
        "redis us/req",
        "redis calls/req",
        "withdrawals/s",
        "events written/s",
        "dropped/s",
        "p50 us",
        "p99 us",
        "load us/req",
        "x throughput",
        "x CPU",
        "x p99",
        "calm runs",
    ];
    let mut table = vec![head.map(String::from).to_vec()];
    for row in &rows {
        let has_redis = row.case.has_redis();
        let against = |figure: fn(&Summary) -> f64| {
            base.map_or("?".to_owned(), |base| format!("{:.2}", figure(row) / figure(base)))
        };
        table.push(vec![
            row.case.name.to_owned(),
            thousands(row.requests_per_second),
            format!("±{:.0}%", row.spread * 100.0),
            format!("{:.2}", row.server_us),
            if has_redis { format!("{:.2}", row.redis_us) } else { "-".into() },
            if has_redis { format!("{:.3}", row.redis_calls) } else { "-".into() },
            format!("{:.1}", row.withdrawals_per_second),
            thousands(row.events_per_second),
            thousands(row.dropped_per_second),
            format!("{:.0}", row.p50_us),
            format!("{:.0}", row.p99_us),
            format!("{:.2}", row.load_us),
            against(|s| s.requests_per_second),
            against(total_us),
            against(|s| s.p99_us),
            format!("{} of {}", row.kept, row.made),
        ]);
    }
    println!("\n{}\n", group.title());
    print_table(&table);
}

fn print_cold_starts(all: &[Starts]) {
    if all.is_empty() {
        return;
    }
    let head = ["case", "median ms", "least ms", "most ms", "RSS MiB", "starts"];
    let mut table = vec![head.map(String::from).to_vec()];
    for starts in all {
        let times = starts.milliseconds.iter().copied();
        table.push(vec![
            starts.name.to_owned(),
            format!("{:.1}", median(starts.milliseconds.clone())),
            format!("{:.1}", times.clone().fold(f64::MAX, f64::min)),
            format!("{:.1}", times.fold(0.0, f64::max)),
            format!("{:.0}", median(starts.resident_mib.clone())),
            starts.milliseconds.len().to_string(),
        ]);
    }
    println!("\nFrom the spawn of the process to its first VALID answer, on existing data\n");
    print_table(&table);
}

fn print_disturbance(runs: &[Run]) {
    if runs.is_empty() {
        return;
    }
    let foreign = runs.iter().map(|run| run.foreign_cores);
    let stolen = runs.iter().map(|run| run.stolen_cores);
    println!(
        "\nOther work on the two cores: median {:.2}, most {:.2} cores; stolen by the host: most \
         {:.3} cores.",
        median(foreign.clone().collect()),
        foreign.fold(0.0, f64::max),
        stolen.fold(0.0, f64::max),
    );
    if runs.iter().any(|run| run.is_disturbed) {
        println!("Disturbed runs were repeated once and are left out where a calm one exists.");
    }
}

/// A result that should be within bounds, if it has any.
#[derive(Serialize)]
pub struct Target {
    what: String,
    value: f64,
    least: Option<f64>,
    most: Option<f64>,
    is_met: bool,
}

impl Target {
    pub fn new(what: String, value: f64, least: Option<f64>, most: Option<f64>) -> Self {
        let is_met = least.is_none_or(|least| value >= least) && most.is_none_or(|m| value <= m);
        Self { what, value, least, most, is_met }
    }

    pub fn at_least(what: String, value: f64, least: f64) -> Self {
        Self::new(what, value, Some(least), None)
    }

    pub fn at_most(what: String, value: f64, most: f64) -> Self {
        Self::new(what, value, None, Some(most))
    }
}

fn targets(summaries: &[Summary], cold_starts: &[Starts]) -> Vec<Target> {
    let mut targets = Vec::new();
    for summary in summaries.iter().filter(|summary| !summary.case.is_base()) {
        let base =
            summaries.iter().find(|s| s.case.is_base() && s.case.group == summary.case.group);
        if let Some(base) = base {
            targets.extend(ratio_targets(summary, base));
        }
        if summary.case.group != Group::Memory && summary.case.has_redis() {
            // Requests in flight when the load ends are counted by Redis only.
            targets.push(Target::at_most(
                format!("{}: Redis calls for a request", summary.case.name),
                summary.redis_calls,
                1.005,
            ));
        }
    }
    for starts in cold_starts {
        let middle = median(starts.milliseconds.clone());
        targets.push(Target::at_most(format!("{}: ms", starts.name), middle, 60.0));
    }
    targets
}

fn ratio_targets(summary: &Summary, base: &Summary) -> Vec<Target> {
    let name = summary.case.name;
    let throughput = summary.requests_per_second / base.requests_per_second;
    let cpu = total_us(summary) / total_us(base);
    match (summary.case.group, summary.case.keys) {
        _ if !summary.case.is_recorded => Vec::new(),
        (Group::Memory, KeySet::Plain | KeySet::Permitted) => vec![
            Target::at_least(format!("{name}: throughput of #1"), throughput, 0.85),
            Target::at_most(format!("{name}: CPU of #1"), cpu, 1.20),
            Target::at_most(format!("{name}: p99 of #1"), summary.p99_us / base.p99_us, 1.30),
        ],
        (Group::Several, _) => {
            vec![Target::at_most(format!("{name}: CPU of five calls, server and Redis"), cpu, 0.75)]
        }
        (Group::Hot, _) => vec![
            Target::at_most(
                format!("{name}: CPU of the same key without, server and Redis"),
                cpu,
                1.20,
            ),
            Target::at_most(
                format!("{name}: withdrawals in a second"),
                summary.withdrawals_per_second,
                1.0,
            ),
        ],
        (Group::Redis, KeySet::OneLimit | KeySet::Identifiers) => vec![
            Target::at_least(format!("{name}: throughput of #3"), throughput, 1.0),
            Target::at_most(format!("{name}: CPU of #3, server and Redis"), cpu, 1.0),
        ],
        (Group::Versions, KeySet::Plain) => {
            vec![Target::at_least(format!("{name}: throughput of version 2"), throughput, 1.0)]
        }
        (Group::Writing, KeySet::Credits) if summary.case.connections == base.case.connections => {
            vec![Target::at_least(format!("{name}: throughput of plain keys"), throughput, 0.5)]
        }
        (Group::Writing, KeySet::Credits) => {
            vec![Target::at_most(format!("{name}: p99 ms"), summary.p99_us / 1e3, 10.0)]
        }
        (Group::Writing, KeySet::Creations) => {
            vec![Target::at_most(format!("{name}: p99 ms"), summary.p99_us / 1e3, 25.0)]
        }
        (Group::GatewayCached | Group::GatewayLocal | Group::GatewayRedis, _) => {
            let is_http = summary.case.interface == Interface::Gateway;
            let target = || {
                Target::at_least(format!("{name}: throughput of keys.verifyKey"), throughput, 0.95)
            };
            is_http.then(target).into_iter().collect()
        }
        (Group::RateLimitService, _) => rate_limit_targets(summary, throughput),
        (Group::Nginx, _) => {
            vec![Target::at_least(format!("{name}: throughput of a fixed 204"), throughput, 0.5)]
        }
        (Group::Quick, _) => {
            vec![Target::at_least(format!("{name}: throughput of exact"), throughput, 1.0)]
        }
        _ => Vec::new(),
    }
}

/// Returns the targets of a replica: the peer on this machine, and the published figures of Envoy's own service.
fn rate_limit_targets(summary: &Summary, throughput: f64) -> Vec<Target> {
    let name = summary.case.name;
    if summary.case.place != Place::Replica {
        return Vec::new();
    }
    let per_second = summary.requests_per_second;
    vec![
        Target::at_least(format!("{name}: throughput of tonic echo+EVALSHA"), throughput, 0.9),
        Target::at_least(
            format!("{name}: throughput of Envoy's service (README.md)"),
            per_second / ENVOY_PER_SECOND,
            3.0,
        ),
        Target::at_most(
            format!("{name}: CPU of Envoy's service, server and Redis (README.md)"),
            total_us(summary) / ENVOY_CPU_US,
            0.35,
        ),
    ]
}

pub fn print_targets(targets: &[Target]) {
    if targets.is_empty() {
        return;
    }
    let mut table = vec![["", "target", "measured", "wanted"].map(String::from).to_vec()];
    for target in targets {
        let wanted = match (target.least, target.most) {
            (Some(least), Some(most)) => format!("{least} to {most}"),
            (Some(least), None) => format!(">= {least:.2}"),
            (None, Some(most)) => format!("<= {most:.2}"),
            (None, None) => String::new(),
        };
        table.push(vec![
            match target.is_met {
                _ if wanted.is_empty() => String::new(),
                true => "pass".to_owned(),
                false => "MISS".to_owned(),
            },
            target.what.clone(),
            format!("{:.3}", target.value),
            wanted,
        ]);
    }
    println!("\nTargets\n");
    print_table(&table);
}

/// Prints a table that is readable in a terminal and valid Markdown.
pub fn print_table(rows: &[Vec<String>]) {
    let Some(head) = rows.first() else { return };
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..head.len()).filter_map(width).collect();
    let is_text = |column: usize| {
        rows.iter().skip(1).any(|row| row[column].starts_with(|c: char| c.is_alphabetic()))
    };
    let texts: Vec<bool> = (0..head.len()).map(is_text).collect();
    for (number, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).zip(&texts).map(|((cell, width), is_text)| {
            if *is_text { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        println!("| {} |", cells.collect::<Vec<_>>().join(" | "));
        if number == 0 {
            let rules = widths.iter().zip(&texts).map(|(width, is_text)| {
                if *is_text { "-".repeat(*width) } else { format!("{}:", "-".repeat(width - 1)) }
            });
            println!("| {} |", rules.collect::<Vec<_>>().join(" | "));
        }
    }
}

pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => figures[middle],
        _ => f64::midpoint(figures[middle - 1], figures[middle]),
    }
}

/// Formats a rate without decimals, in groups of three digits.
pub fn thousands(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
