//! The measurements, in the order of their rows.

use super::super::Outcome;
use super::super::cases::{self, Case, Group, Place};
use super::super::client;
use super::super::key_sets::KeySet;
use super::super::load::{self, Load, Phase};
use super::super::machine;
use super::super::report::{Target, median, thousands};
use super::demand::{Bound, Counter, Reply, count_beyond, drive};
use super::real;
use super::topology::{NAMES, ROUND_TRIP, Regions};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const EU: usize = 0;
const US: usize = 1;
const AP: usize = 2;
const MINUTE: Duration = Duration::from_mins(1);
const HALF_MINUTE: Duration = Duration::from_secs(30);
/// A reply that takes longer has probably waited for another region.
const FAST_MS: u128 = ROUND_TRIP.as_millis() / 10;
/// The time after which a region knows the demand for a counter.
const RAMP: Duration = Duration::from_secs(5);
/// No run lasts until the end of such a window.
const DAY: Duration = Duration::from_hours(24);
const PLENTY: u64 = 10_000;
const CREDITS: u64 = 1_000;

/// The keys of each kind whose throughput is measured, and how often and how long.
const KEYS: usize = 100;
const RUNS: usize = 3;
const RUN_SECONDS: u32 = 4;

/// The rows of the report.
#[derive(Default)]
pub struct Figures {
    targets: Vec<Target>,
    beyond_limits: u64,
    beyond_balances: u64,
    degraded: usize,
    replies: usize,
    /// What was wrong with replies.
    wrong: Vec<String>,
}

impl Figures {
    pub fn add(&mut self, target: Target) {
        self.targets.push(target);
    }

    /// Adds a row without a target.
    fn add_info(&mut self, what: String, value: f64) {
        self.targets.push(Target::new(what, value, None, None));
    }

    fn add_requests(&mut self, demand: &str, requested: u64, replies: &[Reply]) {
        let what = format!("requests to other regions per 1,000 verifications, {demand}");
        let per_thousand = load::real(requested) / real(replies.len()) * 1e3;
        self.add(Target::at_most(what, per_thousand, 10.0));
    }

    /// Generates load, and counts what must not happen.
    fn drive(
        &mut self,
        regions: &Regions,
        counters: &[Counter],
        lasts: Duration,
    ) -> Outcome<Vec<Vec<Reply>>> {
        let mut right = Vec::new();
        for (counter, replies) in counters.iter().zip(drive(regions, counters, lasts)?) {
            let (replies, wrong): (Vec<_>, Vec<_>) = replies.into_iter().partition(Result::is_ok);
            let replies: Vec<Reply> = replies.into_iter().flatten().collect();
            self.wrong.extend(wrong.into_iter().filter_map(Result::err));
            let beyond = count_beyond(counter.bound, &replies);
            match counter.bound {
                Bound::Limit { .. } => self.beyond_limits += beyond,
                Bound::Credits(_) => self.beyond_balances += beyond,
            }
            self.replies += replies.len();
            self.degraded += replies.iter().filter(|reply| reply.is_degraded).count();
            right.push(replies);
        }
        Ok(right)
    }

    /// Returns all rows, and what was wrong.
    pub fn finish(mut self) -> (Vec<Target>, Vec<String>) {
        let (limits, balances) = (self.beyond_limits, self.beyond_balances);
        let degraded = format!("replies flagged `degraded`, of {}", self.replies);
        for (what, count) in [
            ("admissions beyond a limit", load::real(limits)),
            ("credits beyond a balance", load::real(balances)),
            (&degraded, real(self.degraded)),
        ] {
            self.add(Target::at_most(what.to_owned(), count, 0.0));
        }
        let mut faults = Vec::new();
        if limits + balances > 0 {
            faults.push("verifications were admitted beyond a limit or a balance".to_owned());
        }
        if let Some(first) = self.wrong.first() {
            faults.push(format!("{} wrong replies, such as: {first}", self.wrong.len()));
        }
        (self.targets, faults)
    }
}

/// Measures counters that two regions ask for 20 times a second each: both away from home, and one of them at home.
pub fn measure_local_decisions(regions: &Regions, figures: &mut Figures) -> Outcome<()> {
    for limit in [10_000, 1_000] {
        let bound = Bound::Limit { limit, window: MINUTE };
        // The first is away from home in `us` and `ap`, the second in `eu`: so the metrics tell them apart.
        let counters = [
            Counter::create(regions, EU, bound, [0, 20, 20])?,
            Counter::create(regions, AP, bound, [20, 0, 20])?,
        ];
        let before = [regions.counts(&[US, AP])?, regions.counts(&[EU])?];
        let replies = figures.drive(regions, &counters, MINUTE)?;
        let after = [regions.counts(&[US, AP])?, regions.counts(&[EU])?];
        let names = ["from two regions away from home", "from one away and at home"];
        for (place, name) in names.into_iter().enumerate() {
            let counts = after[place].since(&before[place]);
            let share = load::real(counts.local) / load::real(counts.local + counts.waited);
            let what = format!("limit of {limit} a minute, 20/s {name}");
            let row = format!("{what}: decided without another region, by the metrics");
            figures.add(Target::at_least(row, share, 0.99));
            let what = format!("{what}: replies within {FAST_MS} ms");
            let share = fast_share(&replies[place], |_| true);
            figures.add(Target::at_least(what.clone(), share, 0.99));
            if let Some(first) = first_rejection(&replies[place]) {
                let share = fast_share(&replies[place], |reply| reply.asked_at < first);
                let row = format!("{what}, up to the first rejection");
                figures.add(Target::at_least(row, share, 0.99));
            }
        }
    }
    Ok(())
}

/// Measures a key that is counted in another region, beside one that is counted in its own, at the same replicas. The
/// first is also the only one that asks another region for units.
pub fn measure_latency(regions: &Regions, figures: &mut Figures) -> Outcome<()> {
    let bound = Bound::Limit { limit: PLENTY, window: MINUTE };
    let counters = [
        Counter::create(regions, EU, bound, [0, 100, 0])?,
        Counter::create(regions, US, bound, [0, 100, 0])?,
    ];
    let before = regions.counts(&[US])?;
    let replies = figures.drive(regions, &counters, MINUTE)?;
    let counts = regions.counts(&[US])?.since(&before);
    for (since, name) in [(Duration::ZERO, "100/s"), (RAMP, "100/s, after the first 5 s")] {
        for (percent, most) in [(50, None), (99, Some(1.5))] {
            let [away, home] = [0, 1].map(|place| percentile_ms(&replies[place], since, percent));
            let what = format!(
                "{name}: p{percent} away from home ({away:.2} ms) of that at home ({home:.2} ms)"
            );
            figures.add(Target::new(what, away / home, None, most));
        }
    }
    figures.add_requests("100/s in one region", counts.requested, &replies[0]);
    Ok(())
}

/// Measures a key that two regions away from its home verify 100 times a second together, and meanwhile a key whose credits
/// all regions spend.
pub fn measure_divided_demand(regions: &Regions, figures: &mut Figures) -> Outcome<()> {
    let bound = Bound::Limit { limit: PLENTY, window: MINUTE };
    let counters = [
        Counter::create(regions, US, bound, [50, 0, 50])?,
        Counter::create(regions, EU, Bound::Credits(CREDITS), [20; 3])?,
    ];
    let before = regions.counts(&[EU, AP])?;
    let replies = figures.drive(regions, &counters, HALF_MINUTE)?;
    let counts = regions.counts(&[EU, AP])?.since(&before);
    figures.add_requests("50/s in each of two regions", counts.requested, &replies[0]);
    let left = Missing::of(CREDITS, &replies[1]).at_end;
    let what = "1,000 credits: left, although demand went on in three regions".to_owned();
    figures.add_info(what, load::real(left));
    Ok(())
}

/// Measures what is admitted of limits and credits while demand goes on in every region.
pub fn measure_exhaustion(regions: &Regions, figures: &mut Figures) -> Outcome<()> {
    let once = |limit| Bound::Limit { limit, window: DAY };
    let again = |limit| Bound::Limit { limit, window: Duration::from_secs(10) };
    let create = |home, bound, per_second| Counter::create(regions, home, bound, per_second);
    let mut counters = Vec::new();
    for home in [EU, US, AP] {
        counters.push(create(home, once(5), [10; 3])?);
        counters.push(create(home, once(15), [10; 3])?);
    }
    counters.push(create(EU, once(200), [50; 3])?);
    counters.push(create(US, once(1_000), [50; 3])?);
    let once_count = counters.len();
    // The first is measured beside the same demand in one region.
    counters.push(create(AP, again(200), [20; 3])?);
    counters.push(create(AP, again(200), [0, 0, 60])?);
    let replies = figures.drive(regions, &counters, HALF_MINUTE)?;

    for limit in [5, 15, 200, 1_000] {
        let of_limit = counters.iter().zip(&replies).filter(|(counter, _)| {
            matches!(counter.bound, Bound::Limit { limit: it, window: DAY } if it == limit)
        });
        let missing: Vec<_> = of_limit.map(|(_, replies)| Missing::of(limit, replies)).collect();
        let most = |count: fn(&Missing) -> u64| {
            load::real(missing.iter().map(count).max().unwrap_or(limit))
        };
        let (units, late) = (most(|it| it.at_end), most(|it| it.after_rejection));
        let allowed = if limit < 20 { 3.0 } else { load::real(limit) / 20.0 };
        let what = format!("limit of {limit}: units never admitted");
        figures.add(Target::at_most(what, units, allowed));
        let what = format!("limit of {limit}: units admitted after the first rejection");
        figures.add(Target::at_most(what, late, allowed));
    }
    let (once, again) = replies.split_at(once_count);
    let share = fast_share(once.iter().flatten(), |reply| !reply.is_admitted);
    figures.add_info(format!("limits that are used up: rejections within {FAST_MS} ms"), share);
    let admitted = |place: usize| real(again[place].iter().filter(|it| it.is_admitted).count());
    let what = "limit of 200 in 10 s, 60/s: admitted in three regions of that in one".to_owned();
    figures.add(Target::at_least(what, admitted(0) / admitted(1), 0.95));
    Ok(())
}

/// The units of a limit that were not admitted, at first or at all.
struct Missing {
    at_end: u64,
    /// Those that requests were admitted with that were sent after another one was rejected.
    after_rejection: u64,
}

impl Missing {
    fn of(limit: u64, replies: &[Reply]) -> Self {
        let first = first_rejection(replies).unwrap_or(Duration::MAX);
        let admitted_since = |time: Duration| {
            let is_later = |it: &&Reply| it.is_admitted && it.asked_at >= time;
            u64::try_from(replies.iter().filter(is_later).count()).unwrap_or(u64::MAX)
        };
        Self {
            at_end: limit.saturating_sub(admitted_since(Duration::ZERO)),
            after_rejection: admitted_since(first),
        }
    }
}

/// Measures how many verifications a second one replica decides, for keys that are counted in another region and for
/// keys that are counted in its own, in turn.
pub fn measure_throughput(regions: &Regions, figures: &mut Figures) -> Outcome<()> {
    let runs = [Throughput::prepare(regions, EU), Throughput::prepare(regions, US)];
    let [away, home] = runs;
    let mut runs = [away?, home?];
    for _ in 0..RUNS {
        for run in &mut runs {
            run.measure(regions)?;
        }
    }
    let [(away, away_us), (home, home_us)] = runs.map(Throughput::medians);
    let (rates, what) = (thousands(away), "verifications a second away from home");
    figures
        .add_info(format!("{what} ({rates}) of those at home ({})", thousands(home)), away / home);
    let what = format!("CPU away from home ({away_us:.1} us) of that at home ({home_us:.1} us)");
    figures.add_info(what, away_us / home_us);
    Ok(())
}

/// The load of one kind of keys.
struct Throughput {
    keys: PathBuf,
    per_second: Vec<f64>,
    server_us: Vec<f64>,
}

impl Throughput {
    const CASE: Case = cases::verify("", Group::Redis, Place::Replica, KeySet::OneLimit);

    /// Creates keys that are counted in a region, and checks their replies.
    fn prepare(regions: &Regions, home: usize) -> Outcome<Self> {
        let issuer = regions.replicas[home][0].address;
        let created = client::make_keys(issuer, regions.api(home), Self::CASE.keys, KEYS)?;
        let keys = regions.lab.folder.path().join(format!("{}.keys", NAMES[home]));
        fs::write(&keys, created.join("\n") + "\n")
            .map_err(|e| format!("{}: {e}", keys.display()))?;
        let new = Self { keys, per_second: Vec::new(), server_us: Vec::new() };
        new.load(regions, Phase::WarmUp { first: 0 })?;
        Ok(new)
    }

    fn load(&self, regions: &Regions, phase: Phase) -> Outcome<Load> {
        load::generate(&regions.lab, &Self::CASE, &self.keys, &regions.replicas[US][0], phase)
    }

    fn measure(&mut self, regions: &Regions) -> Outcome<()> {
        let server_seconds = || machine::tree_seconds(regions.replicas[US][0].process.pid());
        let before = server_seconds();
        let load = self.load(regions, Phase::Measured { seconds: RUN_SECONDS })?;
        let requests = load::real(load.requests);
        self.server_us.push((server_seconds() - before) / requests * 1e6);
        self.per_second.push(requests / load::real(load.duration_us) * 1e6);
        Ok(())
    }

    /// Returns the verifications a second, and the processor time of one in the server, in microseconds.
    fn medians(self) -> (f64, f64) {
        (median(self.per_second), median(self.server_us))
    }
}

fn first_rejection(replies: &[Reply]) -> Option<Duration> {
    let rejections = replies.iter().filter(|reply| !reply.is_admitted);
    rejections.map(|reply| reply.received_at).min()
}

/// Returns the share of some replies for which no other region was waited for, by their latency.
fn fast_share<'a>(
    replies: impl IntoIterator<Item = &'a Reply>,
    is_counted: impl Fn(&Reply) -> bool,
) -> f64 {
    let counted: Vec<_> = replies.into_iter().filter(|reply| is_counted(reply)).collect();
    let is_fast = |reply: &&&Reply| reply.latency.as_millis() < FAST_MS;
    real(counted.iter().filter(is_fast).count()) / real(counted.len())
}

fn percentile_ms(replies: &[Reply], since: Duration, percent: usize) -> f64 {
    let later = replies.iter().filter(|reply| reply.asked_at >= since);
    let mut latencies: Vec<_> = later.map(|reply| reply.latency).collect();
    latencies.sort_unstable();
    let latency = latencies.get(latencies.len() * percent / 100);
    latency.map_or(f64::NAN, Duration::as_secs_f64) * 1e3
}
