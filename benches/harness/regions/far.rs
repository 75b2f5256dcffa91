//! Measures a replica that is far away from the only Redis of its deployment.

use super::super::Outcome;
use super::super::cases::{self, Case, Group, Place};
use super::super::client::{self, Metrics};
use super::super::key_sets::KeySet;
use super::super::load::{self, Load, Phase};
use super::super::proxy::{LinkState, Proxy};
use super::super::report::{Target, thousands};
use super::super::servers::{Lab, Server};
use super::figures::Figures;
use super::topology::Regions;
use std::fs;
use std::path::Path;
use std::time::Duration;

const ROUND_TRIP: Duration = Duration::from_millis(100);
const WANTED_PER_SECOND: f64 = 20_000.0;
const KEYS: usize = 1_000;
const SECONDS: u32 = 8;
/// The time after which a replica knows its distance.
const MEASURING_TIME: Duration = Duration::from_secs(2);

/// Five windows in each request, and enough requests at a time that the distance does not bound them.
const CASE: Case = Case {
    connections: 1_000,
    ..cases::verify("", Group::Several, Place::Replica, KeySet::FiveLimits)
};

/// Measures how many windows a second a replica decides whose Redis is 100 ms away.
pub fn measure_far_replica(regions: &Regions, figures: &mut Figures) -> Outcome<()> {
    let lab = Lab::build(regions.lab.cores, true, true)?;
    let redis = lab.redis.as_ref().ok_or("there is no Redis")?;
    let proxy = Proxy::to(redis.address);
    proxy.set(LinkState::Slow(ROUND_TRIP / 2), LinkState::Slow(ROUND_TRIP / 2));
    let url = format!("redis://{}", proxy.address);
    // The default: what a replica waits for longer is the distance.
    let variables = [("KEYWARD_REDIS_URL", url.as_str()), ("KEYWARD_REDIS_TIMEOUT_MS", "40")];
    let server = lab.start_with(Place::Replica, &variables)?;
    let api = client::make_api(server.address)?;
    let created = client::make_keys(server.address, &api, CASE.keys, KEYS)?;
    let keys = lab.folder.path().join("far.keys");
    fs::write(&keys, created.join("\n") + "\n").map_err(|e| format!("{}: {e}", keys.display()))?;
    std::thread::sleep(MEASURING_TIME);
    for _ in 0..3 {
        load(&lab, &keys, &server, Phase::WarmUp { first: 0 })?;
    }

    let measured = load(&lab, &keys, &server, Phase::Measured { seconds: SECONDS })?;

    let seconds = load::real(measured.duration_us) / 1e6;
    let per_second = load::real(measured.requests * CASE.keys.limits() as u64) / seconds;
    let degraded = Metrics::fetch(server.address)?.sum("keyward_degraded_answers_total")?;
    let what = format!(
        "a replica 100 ms (round trip) away from Redis: windows decided a second ({})",
        thousands(per_second)
    );
    figures.add(Target::at_least(what, per_second, WANTED_PER_SECOND));
    let what = "the same replica: replies flagged `degraded`".to_owned();
    figures.add(Target::at_most(what, load::real(degraded), 0.0));
    Ok(())
}

fn load(lab: &Lab, keys: &Path, server: &Server, phase: Phase) -> Outcome<Load> {
    load::generate(lab, &CASE, keys, server, phase)
}
