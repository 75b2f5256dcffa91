//! Tests that each safeguard is needed: injects the shortest faults that it protects against with the safeguard
//! disabled, and expects a violation. The same faults with the safeguard enabled do no harm.

mod credits;
mod leases;
mod regions;
mod revocations;
mod stage;
mod windows;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use stage::Stage;

use crate::caller::Caller;
use crate::check::{self, Finding};
use crate::fleet::{Fleet, Replica};
use crate::record::Run;
use crate::{acquire_turn, load};

/// A safeguard, the faults that it protects against, and the violation when it is disabled.
struct Case {
    /// Its name in `KEYWARD_DISABLE_SAFEGUARD`.
    safeguard: &'static str,
    guarantee: &'static str,
    /// A part of the violation's text.
    found: &'static str,
    faults: fn(&mut Stage),
}

impl Case {
    /// Returns what is not as expected, with the safeguard enabled and with it disabled.
    fn run(&self, fleet: &mut Fleet) -> Vec<String> {
        let Self { safeguard, guarantee, found, faults } = *self;
        let on = run_until_expected(fleet, None, faults, guarantee, |finding| {
            finding.violations.is_empty()
        });
        let off = run_until_expected(fleet, Some(safeguard), faults, guarantee, |finding| {
            finding.violations.iter().any(|violation| violation.contains(found))
        });
        let on = on.map(|it| format!("{safeguard} is on, and the guarantee is violated: {it:#?}"));
        let off = off.map(|it| format!("{safeguard} is off, and no check reports it: {it:#?}"));
        on.into_iter().chain(off).collect()
    }
}

/// The number of fleets on which cases run at the same time, of one region and of three: the latter wait more.
const FLEETS: usize = 2;
const REGION_FLEETS: usize = 3;

static CASES: [Case; 22] = [
    Case {
        safeguard: "fence",
        guarantee: "credits",
        found: "credits were spent and at most",
        faults: credits::fail_over_to_a_redis_that_is_behind,
    },
    Case {
        safeguard: "debit-first",
        guarantee: "credits",
        found: "credits were spent and at most",
        faults: credits::kill_a_replica_that_has_spent,
    },
    Case {
        safeguard: "atomic-consume",
        guarantee: "windows",
        found: "while Redis lost its data 0 times",
        faults: windows::crowd_at_a_window,
    },
    Case {
        safeguard: "close-lease",
        guarantee: "credits",
        found: "1 credits were spent of 0, set",
        faults: credits::spend_where_a_change_is_not_known,
    },
    Case {
        safeguard: "format",
        guarantee: "windows",
        found: "while Redis lost its data 0 times",
        faults: windows::count_beside_a_later_version,
    },
    Case {
        safeguard: "refill-once",
        guarantee: "credits",
        found: "credits were spent and at most",
        faults: credits::spend_for_a_day_and_the_next,
    },
    Case {
        safeguard: "share",
        guarantee: "windows",
        found: "and its share is",
        faults: windows::fill_a_window_without_redis,
    },
    Case {
        safeguard: "timeout",
        guarantee: "Redis outages",
        found: "during outages of Redis, p99 was",
        faults: windows::ask_while_redis_hangs,
    },
    Case {
        safeguard: "charge",
        guarantee: "windows",
        found: "with and without Redis, which stalled 1 times",
        faults: windows::use_up_a_window_while_redis_stalls,
    },
    Case {
        safeguard: "run-time",
        guarantee: "Redis outages",
        found: "decided without Redis, which was reachable",
        faults: windows::use_up_a_window_while_replicas_are_throttled,
    },
    Case {
        safeguard: "absent",
        guarantee: "Postgres outages",
        found: "an existing key was reported as NOT_FOUND",
        faults: revocations::ask_without_postgres,
    },
    Case {
        safeguard: "reach",
        guarantee: "revocations",
        found: "was revoked",
        faults: revocations::end_a_key_where_redis_is_away_for_one_and_postgres_for_another,
    },
    Case {
        safeguard: "gap",
        guarantee: "revocations",
        found: "was revoked",
        faults: revocations::lose_an_announcement,
    },
    Case {
        safeguard: "majority",
        guarantee: "revocations",
        found: "was revoked",
        faults: revocations::end_a_key_beside_another_master,
    },
    Case {
        safeguard: "lease-bound",
        guarantee: "credits",
        found: "credits are withheld, and at most",
        faults: leases::begin_at_once_and_lose_redis_and_a_replica,
    },
    Case {
        safeguard: "proven-closed",
        guarantee: "credits",
        found: "credits were spent of 0, set",
        faults: leases::set_a_balance_beside_another_master,
    },
    Case {
        safeguard: "reported",
        guarantee: "credits",
        found: "credits were spent and at most",
        faults: leases::spend_from_another_master_after_the_report,
    },
    Case {
        safeguard: "every-report",
        guarantee: "credits",
        found: "credits were spent and at most",
        faults: leases::lose_redis_while_a_replica_stands_still,
    },
    Case {
        safeguard: "debit-queue",
        guarantee: "locked accounts",
        found: "were rejected while the account of key",
        faults: credits::debit_beside_a_locked_account,
    },
    Case {
        safeguard: "claim",
        guarantee: "locked accounts",
        found: "were rejected while the account of key",
        faults: leases::give_credits_back_beside_a_locked_account,
    },
    Case {
        safeguard: "intent",
        guarantee: "revocations",
        found: "was revoked",
        faults: revocations::die_before_a_result_is_announced,
    },
    // The last one: a replica that reads the change log later is also far behind.
    Case {
        safeguard: "skip",
        guarantee: "revocations",
        found: "was revoked",
        faults: revocations::fall_behind_the_change_log,
    },
];

/// Cases in three regions with one replica each.
static REGION_CASES: [Case; 7] = [
    Case {
        safeguard: "moved-count",
        guarantee: "windows of all regions",
        found: "by the sliding rule",
        faults: regions::move_a_home_under_load,
    },
    Case {
        safeguard: "home-bounds",
        guarantee: "windows of all regions",
        found: "in all regions",
        faults: regions::move_a_home_under_load,
    },
    Case {
        safeguard: "grant-counted",
        guarantee: "windows of all regions",
        found: "while its home lost its data 0 times",
        faults: regions::use_up_a_limit_in_all_regions,
    },
    Case {
        safeguard: "taken-first",
        guarantee: "windows of all regions",
        found: "while its home lost its data 0 times",
        faults: regions::use_up_a_limit_after_a_rest,
    },
    Case {
        safeguard: "fence",
        guarantee: "windows of all regions",
        found: "while its home lost its data 0 times",
        faults: regions::spend_from_a_region_that_fails_over,
    },
    Case {
        safeguard: "close-lease",
        guarantee: "credits",
        found: "credits were spent of 0, set",
        faults: regions::set_a_balance_in_another_region,
    },
    Case {
        safeguard: "reach",
        guarantee: "revocations",
        found: "was revoked",
        faults: regions::end_a_key_beside_a_region_that_is_cut_off,
    },
];

#[test]
fn checker_reports_fault_when_safeguard_is_disabled() {
    let _turn = acquire_turn();
    assert_all_found(&CASES, FLEETS, || Fleet::start(0));
}

#[test]
fn checker_reports_fault_of_regions_when_safeguard_is_disabled() {
    let _turn = acquire_turn();
    assert_all_found(&REGION_CASES, REGION_FLEETS, || Fleet::start_regions(1));
}

/// Runs cases, each on one of several fleets.
fn assert_all_found(cases: &[Case], fleets: usize, start: impl Fn() -> Fleet + Sync) {
    let next = AtomicUsize::new(0);
    let run_cases = || {
        let mut fleet = start();
        let mut wrong = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            wrong.extend(case.run(&mut fleet));
        }
        wrong
    };

    // The faults mostly wait.
    let wrong: Vec<_> = std::thread::scope(|scope| {
        let fleets: Vec<_> = (0..fleets).map(|_| scope.spawn(run_cases)).collect();
        fleets.into_iter().flat_map(|fleet| fleet.join().expect("its cases")).collect()
    });

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn balance_is_not_overspent_when_set_by_replica_without_redis() {
    let _turn = acquire_turn();
    let mut fleet = Fleet::start(0);

    let finding = run_case(&mut fleet, None, credits::set_a_balance_without_redis, "credits");

    assert!(finding.violations.is_empty(), "{finding:#?}");
}

/// How often a case may be repeated if its timing depends on the machine, or on a deadline of milliseconds.
const ATTEMPTS_MAX: usize = 3;

/// Runs a case until the finding is as expected. Returns the last finding if it never was.
fn run_until_expected(
    fleet: &mut Fleet,
    off: Option<&str>,
    faults: fn(&mut Stage),
    guarantee: &str,
    is_right: impl Fn(&Finding) -> bool,
) -> Option<Finding> {
    let depends_on_timing =
        off.is_some() || ["Redis outages", "locked accounts"].contains(&guarantee);
    let mut last = None;
    for _ in 0..if depends_on_timing { ATTEMPTS_MAX } else { 1 } {
        let finding = run_case(fleet, off, faults, guarantee);
        if is_right(&finding) {
            return None;
        }
        last = Some(finding);
    }
    last
}

/// Starts the replicas with this safeguard disabled, injects the faults, and checks a guarantee.
fn run_case(
    fleet: &mut Fleet,
    off: Option<&str>,
    faults: fn(&mut Stage),
    guarantee: &str,
) -> Finding {
    fleet.replicas.iter_mut().for_each(Replica::kill);
    // Deletes the replicas that were killed, so that no replica waits for their reports.
    fleet.postgres.execute("DELETE FROM replicas");
    for replica in &mut fleet.replicas {
        replica.set("KEYWARD_DISABLE_SAFEGUARD", off);
        replica.start();
    }
    fleet.replicas.iter().for_each(Replica::await_ready);
    // Wait until all replicas know how many there are, and how far away: two heartbeats, and half a second for the machine.
    std::thread::sleep(Duration::from_millis(if fleet.has_regions() { 2_000 } else { 1_500 }));
    let shared = load::open(fleet);
    let caller = Caller::new(&shared, StdRng::seed_from_u64(1));
    let mut stage = Stage {
        shared: &shared,
        fleet,
        caller,
        faults: Vec::new(),
        locks: Vec::new(),
        days: 0,
        final_states: Vec::new(),
    };
    faults(&mut stage);
    let Stage { caller, faults, locks, days, final_states, .. } = stage;
    let (began_unix_ms, keys) = (shared.began_unix_ms, shared.keys().clone());
    let calls = caller.calls;
    let region_of = fleet.list_regions();
    let run =
        Run { began_unix_ms, days, calls, faults, locks, keys, final_states, ..Run::default() };
    let mut run = Run { region_of, ..run };
    run.sort();
    let mut findings = check::all(&run);
    findings.push(crate::regions::check::check_windows(&run));
    findings
        .into_iter()
        .find(|finding| finding.guarantee == guarantee)
        .expect("a check of the guarantee")
}
