//! The load on several regions: keys and counters with homes in each, and one whose home moves.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::caller::{Caller, Shared, pause};
use crate::fleet::{Fleet, REGION_NAMES};
use crate::load::{CallerRole, open, run_callers};
use crate::record::{Action, Call, Change, KeyIndex, KeyInfo};
use crate::schedule::{REGIONS, REPLICAS_PER_REGION};
use crate::support::process::keyward_command;

const REPLICAS: usize = REGIONS * REPLICAS_PER_REGION;
/// The kinds of callers, and how many there are of each.
const CALLERS: [(CallerRole<Pools>, usize); 7] = [
    (verify, 2 * REPLICAS),
    (limit, 2 * REPLICAS),
    (control, REPLICAS),
    (revoke, 1),
    (manage, 1),
    (change_limits, 1),
    (move_home, 1),
];
/// The namespace whose home moves.
pub const MOVING: &str = "moving";
/// The counters of each namespace: limit, duration in milliseconds.
const COUNTERS: [(i64, i64); 3] = [(12, 1_000), (40, 5_000), (100, 20_000)];
/// The limits that a key has in turn, and an identifier by its override.
const CHANGED_LIMITS: [i64; 2] = [40, 20];
const CHANGED_MS: i64 = 2_000;
/// The counters that are used up at the end, and their limit.
pub const LAST: &str = "last";
pub const LAST_LIMIT: i64 = 100;
const DAY_MS: i64 = 24 * 3_600_000;
/// How long nothing more is admitted at the end: longer than units of a lease are at rest before they are given back.
const NOTHING_LEFT: Duration = Duration::from_secs(3);
/// The time between two moves: a move takes ten seconds.
const MOVE_PERIOD: Duration = Duration::from_secs(13);
/// The pause of a caller between two requests.
const PAUSE: Duration = Duration::from_millis(15);
/// How long a key is verified after it was revoked.
const WATCH_DURATION: Duration = Duration::from_millis(1_600);

/// What exists from the start.
pub struct Pools {
    plain: KeyIndex,
    limited: Vec<KeyIndex>,
    metered: Vec<KeyIndex>,
    set: KeyIndex,
    /// Its limit changes.
    changed: KeyIndex,
    /// The ID of the namespace whose home moves, and the settings of a command that moves it.
    moving: String,
    settings: Vec<(String, String)>,
}

/// Creates keys in the first region, and a namespace in each.
pub fn prepare(fleet: &Fleet) -> (Shared, Pools, Vec<Call>) {
    // Until all replicas know each other, and the distances.
    std::thread::sleep(Duration::from_secs(2));
    let mut shared = open(fleet);
    let mut caller = Caller::new(&shared, StdRng::seed_from_u64(0));
    for (replica, namespace) in
        (0..REGIONS).map(|region| region * REPLICAS_PER_REGION).zip(REGION_NAMES)
    {
        caller.send(replica, first_use(namespace));
    }
    caller.send(0, first_use(MOVING));
    let mut make = |credits, limits: &[(&str, i64, i64)]| {
        let limit = |(name, limit, ms): &(&str, i64, i64)| ((*name).to_owned(), *limit, *ms);
        let limits = limits.iter().map(limit).collect();
        caller.create(0, KeyInfo { credits, limits, ..KeyInfo::default() }).expect("a key")
    };
    let plain = make(None, &[]);
    let limited = vec![
        make(None, &[("second", 15, 1_000)]),
        make(None, &[("seconds", 40, 5_000), ("minute", 200, 60_000)]),
        make(Some(4_000), &[("ten", 80, 10_000)]),
    ];
    let metered = vec![make(Some(30), &[]), make(Some(1_000), &[]), make(Some(20_000), &[])];
    let set = make(Some(100), &[]);
    let changed = make(None, &[("changed", CHANGED_LIMITS[0], CHANGED_MS)]);
    let list: Value =
        serde_json::from_str(&fleet.command(&["namespace", "list", "--json"])).expect("JSON");
    let is_moving = |namespace: &&Value| namespace["name"] == MOVING;
    let moving =
        list.as_array().and_then(|list| list.iter().find(is_moving)).expect("the namespace");
    let moving = moving["namespaceId"].as_str().expect("an ID").to_owned();
    let settings = fleet.replicas[0].settings.clone();
    let calls = caller.calls;
    shared.loaded = shared.began.elapsed();
    (shared, Pools { plain, limited, metered, set, changed, moving, settings }, calls)
}

/// A namespace is created where it is first used.
fn first_use(namespace: &str) -> Action {
    Action::Limit { counter: format!("{namespace}/first"), limit: 10, duration_ms: 1_000, cost: 1 }
}

/// Calls until the run is over. Returns all calls, unordered.
pub fn run(shared: &Shared, pools: &Pools, seed: u64) -> Vec<Call> {
    run_callers(shared, pools, &CALLERS, seed, || std::thread::sleep(PAUSE))
}

/// Verifies keys. Each caller uses one replica.
fn verify(caller: &mut Caller, number: usize, pools: &Pools) {
    let key = match caller.random.random_range(0..10) {
        0..3 => pools.metered[caller.random.random_range(0..pools.metered.len())],
        3 => pools.set,
        4 => pools.changed,
        _ => pools.limited[caller.random.random_range(0..pools.limited.len())],
    };
    let cost = caller.random.random_range(0..4);
    caller.send(number % REPLICAS, Action::Verify { key, cost });
}

fn limit(caller: &mut Caller, number: usize, _: &Pools) {
    let namespace = match caller.random.random_range(0..=REGIONS) {
        REGIONS => MOVING,
        region => REGION_NAMES[region],
    };
    // Half of the requests are for the first one, so that it is used up.
    let counter = caller.random.random_range(0..2 * COUNTERS.len());
    let (limit, duration_ms) = COUNTERS.get(counter).copied().unwrap_or(COUNTERS[0]);
    let (counter, limit, duration_ms) = match caller.random.random_range(0..6) {
        0 => (format!("{namespace}/changed"), CHANGED_LIMITS[0], CHANGED_MS),
        _ => (format!("{namespace}/of {limit}"), limit, duration_ms),
    };
    let cost = caller.random.random_range(0..4);
    caller.send(number % REPLICAS, Action::Limit { counter, limit, duration_ms, cost });
}

/// Measures how busy a replica is.
fn control(caller: &mut Caller, replica: usize, pools: &Pools) {
    caller.send(replica, Action::Control);
    pause();
    caller.send(replica, Action::Verify { key: pools.plain, cost: 0 });
}

/// Makes every replica cache a key, revokes it on one of them, and verifies it on all.
fn revoke(caller: &mut Caller, _: usize, _: &Pools) {
    let replica = caller.any_replica();
    let Some(key) = caller.create(replica, KeyInfo::default()) else { return };
    for replica in 0..caller.replicas() {
        caller.send(replica, Action::Verify { key, cost: 0 });
    }
    let replica = caller.any_replica();
    if caller.send(replica, Action::Disable { key }).status == 200 {
        let ended = caller.shared.began.elapsed();
        while caller.shared.began.elapsed() < ended + WATCH_DURATION {
            for replica in 0..caller.replicas() {
                caller.send(replica, Action::Verify { key, cost: 0 });
                pause();
            }
        }
    }
}

/// Changes balances. Only one caller does this.
fn manage(caller: &mut Caller, _: usize, pools: &Pools) {
    let replica = caller.any_replica();
    let action = match caller.random.random_range(0..3) {
        0 => {
            let value = caller.random.random_range(0..200);
            Action::Credits { key: pools.set, change: Change::Set(value) }
        }
        1 => {
            let value = caller.random.random_range(0..60);
            let key = pools.metered[caller.random.random_range(0..pools.metered.len())];
            Action::Credits { key, change: Change::Increment(value) }
        }
        _ => {
            let value = caller.random.random_range(0..20);
            Action::Credits { key: pools.metered[2], change: Change::Decrement(value) }
        }
    };
    caller.send(replica, action);
    std::thread::sleep(Duration::from_millis(100));
}

/// Changes the limit of a key and sets overrides. Only one caller does this.
fn change_limits(caller: &mut Caller, _: usize, pools: &Pools) {
    for limit in [CHANGED_LIMITS[1], CHANGED_LIMITS[0]] {
        let replica = caller.any_replica();
        caller.send(replica, Action::SetLimit { key: pools.changed, limit });
        for namespace in REGION_NAMES.into_iter().chain([MOVING]) {
            let overridden = json!({
                "namespace": namespace, "identifier": "changed", "limit": limit, "duration": CHANGED_MS
            });
            caller.create_resource(replica, "ratelimit.setOverride", &overridden);
        }
        std::thread::sleep(Duration::from_millis(700));
    }
}

/// Moves the home of a namespace from region to region. Only one caller does this.
fn move_home(caller: &mut Caller, _: usize, pools: &Pools) {
    for name in [REGION_NAMES[1], REGION_NAMES[2], REGION_NAMES[0]] {
        let mut command = keyward_command();
        command.envs(pools.settings.clone());
        command.args(["region", "move", &pools.moving, "--to", name]);
        // During a fault it may fail, and the home stays where it is.
        let output = command.output().expect("it runs");
        let began = caller.shared.began.elapsed();
        let pause = if output.status.success() { MOVE_PERIOD } else { Duration::from_secs(1) };
        while caller.shared.began.elapsed() < began + pause {
            if caller.shared.is_over() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Uses up a counter of each namespace in all regions, without any fault. Returns the calls.
pub fn use_up(shared: &Shared) -> Vec<Call> {
    let namespaces = REGION_NAMES.into_iter().chain([MOVING]);
    std::thread::scope(|scope| {
        let use_up = |namespace| {
            let mut caller = Caller::new(shared, StdRng::seed_from_u64(9));
            let counter = format!("{namespace}/{LAST}");
            let action = Action::Limit { counter, limit: LAST_LIMIT, duration_ms: DAY_MS, cost: 1 };
            move || {
                let mut admitted_at = caller.shared.began.elapsed();
                for replica in (0..REPLICAS).cycle() {
                    let now = caller.shared.began.elapsed();
                    if now > admitted_at + NOTHING_LEFT {
                        break;
                    }
                    if caller.send(replica, action.clone()).is_valid() {
                        admitted_at = now;
                    }
                }
                caller.calls
            }
        };
        let threads: Vec<_> = namespaces.map(|namespace| scope.spawn(use_up(namespace))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a caller")).collect()
    })
}
