//! Tests the guarantees with three regions, 150 ms (round trip) from each other, under load and random faults.

pub mod check;
mod load;

use std::time::Duration;

use foundation::clock::{Clock, Timestamp};

use crate::check as checks;
use crate::draw::faults_in_regions;
use crate::fleet::Fleet;
use crate::random_faults::{Settings, inject, run_load, sleep_until};
use crate::record::Run;
use crate::schedule::REPLICAS_PER_REGION;
use crate::{acquire_turn, random_faults};

/// How long after the last fault all regions must be exact.
const RECOVERY: Duration = Duration::from_secs(3);

#[test]
fn guarantees_hold_in_three_regions_under_random_faults() {
    let _turn = acquire_turn();
    let Timestamp(now) = Clock::System.now();
    let settings = Settings::read();
    let seed = settings.seed.unwrap_or(now.unsigned_abs());
    random_faults::tell(&format!("Seed {seed}: {:?} of load and faults.\n", settings.length));

    let mut fleet = Fleet::start_regions(REPLICAS_PER_REGION);
    let (shared, pools, prepared) = load::prepare(&fleet);
    let faults = faults_in_regions(seed, settings.length, &settings.kinds);
    let mut last = Vec::new();
    let run = run_load(
        &mut fleet,
        (&shared, prepared),
        || load::run(&shared, &pools, seed),
        |fleet| {
            let injected = inject(fleet, &shared, &faults);
            sleep_until(&shared, shared.loaded + settings.length + RECOVERY);
            last = load::use_up(&shared);
            injected
        },
    );
    let region_of = fleet.list_regions();
    let mut run = Run { region_of, calls: run.calls.into_iter().chain(last).collect(), ..run };
    run.sort();

    let findings = vec![
        check::check_windows(&run),
        check::check_outages(&run),
        check::check_use(&run),
        check::check_work(&run),
        checks::credits::check(&run),
        checks::changes::check(&run),
        checks::management::check(&run),
        checks::statuses::check(&run),
    ];
    settings.report(" --regions", seed, 0, &run, &findings, &fleet);
}
