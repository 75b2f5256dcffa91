//! Runs all callers concurrently until the run is over.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use foundation::clock::{Clock, Stopwatch};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

use crate::caller::{Caller, Shared, identity_limits, pause};
use crate::fleet::{Fleet, ROOT_KEY};
use crate::record::{Action, Call, Change, KeyIndex, KeyInfo, Withdrawal};
use crate::schedule::REPLICAS;
use crate::support::process::v2;

/// What a caller repeats, given its number among callers of its kind.
pub type CallerRole<P> = fn(&mut Caller, usize, &P);

/// The kinds of callers, and how many there are of each.
const CALLERS: [(CallerRole<KeyPools>, usize); 10] = [
    (verify, 2 * REPLICAS),
    (limit, REPLICAS),
    (control, REPLICAS),
    (verify_fresh, REPLICAS),
    (create, 1),
    (revoke, 2),
    (manage, 1),
    (withdraw, 2),
    (switch, 1),
    (reroll, 1),
];
/// The number of keys that are waiting for their first verification.
const FRESH_KEYS: usize = 60;
/// How long a key is verified after it was revoked.
const WATCH_DURATION: Duration = Duration::from_millis(1_600);

/// The credits of a key that is re-rolled, how long it is spent from before that, and its grace period, which outlasts
/// each run.
pub const REROLLED_CREDITS: i64 = 120;
const BEFORE_REROLL: Duration = Duration::from_millis(700);
const GRACE_MS: i64 = 24 * 60 * 60 * 1_000;

/// Standalone counters: name, limit, duration in milliseconds.
const COUNTERS: [(&str, i64, i64); 4] = [
    ("logins/one", 12, 1_000),
    ("logins/two", 60, 5_000),
    ("mails/one", 150, 20_000),
    ("mails/two", 300, 60_000),
];

/// The prefix of counters with overrides.
pub const OVERRIDE_PREFIX: &str = "shut/";

/// The keys that exist from the start, by use.
#[derive(Default)]
pub struct KeyPools {
    plain: Vec<KeyIndex>,
    limited: Vec<KeyIndex>,
    /// Its limit is never reached.
    counted: KeyIndex,
    /// All callers spend from these, and one increments and decrements their balances.
    metered: Vec<KeyIndex>,
    /// All callers spend from these, and one sets their balances.
    set: Vec<KeyIndex>,
    /// All callers spend from these, and one makes them unlimited from time to time.
    switched: Vec<KeyIndex>,
    renamed: Vec<KeyIndex>,
}

/// Creates an API. Returns the state that all callers share.
pub fn open(fleet: &Fleet) -> Shared {
    let addresses: Vec<_> = fleet.replicas.iter().map(|replica| replica.address).collect();
    let api = json!({ "name": "nemesis" });
    let (status, api) = v2(addresses[0], ROOT_KEY, "apis.createApi", &api).expect("an answer");
    assert_eq!(status, 200, "{api}");
    Shared {
        addresses,
        began: Stopwatch::new(),
        began_unix_ms: Clock::System.now().0,
        loaded: Duration::ZERO,
        api: api["data"]["apiId"].as_str().expect("an id").to_owned(),
        keys: Mutex::default(),
        fresh: Mutex::default(),
        rerolled: Mutex::default(),
        has_earlier_version: fleet.replicas.iter().any(|replica| replica.program.is_some()),
        stop: AtomicBool::new(false),
    }
}

/// Creates the shared state, the keys and the namespaces on the first replica.
pub fn prepare(fleet: &Fleet) -> (Shared, KeyPools, Vec<Call>) {
    let mut shared = open(fleet);
    let mut caller = Caller::new(&shared, StdRng::seed_from_u64(0));
    let mut make = |credits, refill, limits: &[(&str, i64, i64)]| {
        let limit = |(name, limit, ms): &(&str, i64, i64)| ((*name).to_owned(), *limit, *ms);
        let limits = limits.iter().map(limit).collect();
        let info = KeyInfo { credits, refill, limits, ..KeyInfo::default() };
        caller.create(0, info).expect("a key")
    };
    let pools = KeyPools {
        plain: (0..4).map(|_| make(None, None, &[])).collect(),
        limited: vec![
            make(None, None, &[("second", 15, 1_000)]),
            make(None, None, &[("seconds", 40, 5_000)]),
            make(None, None, &[("two", 20, 2_000), ("ten", 60, 10_000), ("minute", 200, 60_000)]),
            make(None, None, &[("minute", 250, 60_000)]),
        ],
        counted: make(None, None, &[("all", 1_000_000, 60_000)]),
        metered: vec![
            make(Some(30), None, &[]),
            make(Some(200), None, &[]),
            make(Some(20_000), None, &[]),
            make(Some(20_000), None, &[]),
            make(Some(5_000), None, &[("five", 50, 5_000)]),
            make(Some(40), Some(40), &[]),
        ],
        set: vec![make(Some(100), None, &[])],
        switched: vec![make(Some(100), None, &[])],
        renamed: (0..3).map(|_| make(None, None, &[])).collect(),
    };
    for _ in 0..FRESH_KEYS {
        let key = make(None, None, &[]);
        shared.fresh().push_back(key);
    }
    // A namespace is created when it is first used, which requires the database and every replica.
    for counter in COUNTERS.iter().map(|(name, ..)| *name).chain([OVERRIDE_PREFIX]) {
        let counter = format!("{}/first", counter.split('/').next().expect("a namespace"));
        caller.send(0, Action::Limit { counter, limit: 10, duration_ms: 1_000, cost: 1 });
    }
    let calls = caller.calls;
    shared.loaded = shared.began.elapsed();
    (shared, pools, calls)
}

/// Calls until the run is over. Returns all calls, unordered.
pub fn run(shared: &Shared, pools: &KeyPools, seed: u64) -> Vec<Call> {
    run_callers(shared, pools, &CALLERS, seed, pause)
}

/// Runs this many callers of each kind, each with a pause between two calls, until the run is over. Returns all calls,
/// unordered.
pub fn run_callers<P: Sync>(
    shared: &Shared,
    pools: &P,
    kinds: &[(CallerRole<P>, usize)],
    seed: u64,
    pause: fn(),
) -> Vec<Call> {
    let callers =
        kinds.iter().flat_map(|(call, how_many)| (0..*how_many).map(move |number| (*call, number)));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..)
            .zip(callers)
            .map(|(stream, (call, number))| {
                scope.spawn(move || {
                    let random = StdRng::seed_from_u64(seed.wrapping_add(stream));
                    let mut caller = Caller::new(shared, random);
                    while !shared.is_over() {
                        call(&mut caller, number, pools);
                        pause();
                    }
                    caller.calls
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a caller")).collect()
    })
}

fn one_of(caller: &mut Caller, keys: &[KeyIndex]) -> KeyIndex {
    keys[caller.random.random_range(0..keys.len())]
}

/// Verifies keys. Each caller uses one replica, so that none waits for a replica that another fault has stopped.
fn verify(caller: &mut Caller, number: usize, pools: &KeyPools) {
    let replica = number % caller.replicas();
    let rerolled = caller.shared.rerolled().clone();
    let keys = match caller.random.random_range(0..10) {
        0..5 => &pools.metered,
        5 => &pools.set,
        6 => &pools.switched,
        7..9 => &pools.limited,
        _ if !rerolled.is_empty() => &rerolled,
        _ => &pools.plain,
    };
    let key = one_of(caller, keys);
    let cost = caller.random.random_range(0..8);
    caller.send(replica, Action::Verify { key, cost });
}

fn limit(caller: &mut Caller, replica: usize, _: &KeyPools) {
    let (counter, limit, duration_ms) = COUNTERS[caller.random.random_range(0..COUNTERS.len())];
    let (counter, cost) = (counter.to_owned(), caller.random.random_range(0..4));
    caller.send(replica, Action::Limit { counter, limit, duration_ms, cost });
}

/// Measures how busy a replica is: `/livez`, a cached key, and a key that Redis counts.
fn control(caller: &mut Caller, replica: usize, pools: &KeyPools) {
    caller.send(replica, Action::Control);
    pause();
    caller.send(replica, Action::Verify { key: pools.plain[0], cost: 0 });
    pause();
    caller.send(replica, Action::Verify { key: pools.counted, cost: 0 });
}

fn verify_fresh(caller: &mut Caller, replica: usize, _: &KeyPools) {
    let key = caller.shared.fresh().pop_front();
    if let Some(key) = key {
        caller.send(replica, Action::Verify { key, cost: 0 });
    }
    std::thread::sleep(Duration::from_millis(100));
}

fn create(caller: &mut Caller, _: usize, _: &KeyPools) {
    let replica = caller.any_replica();
    if caller.shared.fresh().len() < 2 * FRESH_KEYS
        && let Some(key) = caller.create(replica, KeyInfo::default())
    {
        caller.shared.fresh().push_back(key);
    }
    std::thread::sleep(Duration::from_millis(15));
}

/// Makes every replica cache a key, revokes it on one of them, and verifies it on all.
fn revoke(caller: &mut Caller, number: usize, _: &KeyPools) {
    let replica = caller.any_replica();
    let Some(key) = caller.create(replica, KeyInfo::default()) else { return };
    let replica = cache_on_all(caller, key);
    let end = if number == 0 { Action::Disable { key } } else { Action::Delete { key } };
    if caller.send(replica, end).status == 200 {
        watch(caller, &Action::Verify { key, cost: 0 });
    }
}

/// Makes every replica cache a key. Returns one of the replicas.
fn cache_on_all(caller: &mut Caller, key: KeyIndex) -> usize {
    for replica in 0..caller.replicas() {
        caller.send(replica, Action::Verify { key, cost: 0 });
    }
    caller.any_replica()
}

/// Repeats a call on every replica for a while.
fn watch(caller: &mut Caller, action: &Action) {
    let ended = caller.shared.began.elapsed();
    while caller.shared.began.elapsed() < ended + WATCH_DURATION {
        for replica in 0..caller.replicas() {
            caller.send(replica, action.clone());
            pause();
        }
    }
}

/// Withdraws what a key needs to verify, or blocks a counter, on one replica, and calls all replicas.
fn withdraw(caller: &mut Caller, number: usize, _: &KeyPools) {
    let name = format!("{number}-{}", caller.calls.len());
    let what = match caller.random.random_range(0..5) {
        0 => Withdrawal::Permission,
        1 => Withdrawal::Role,
        2 => Withdrawal::IdentityLimit,
        3 => Withdrawal::Reroll,
        _ => return block_counter(caller, &name),
    };
    let replica = caller.any_replica();
    let Some(info) = info_for(caller, replica, what, &name) else { return };
    let Some(key) = caller.create(replica, info) else { return };
    let replica = cache_on_all(caller, key);
    if caller.send(replica, Action::Withdraw { key, what }).status == 200 {
        watch(caller, &Action::Verify { key, cost: 0 });
    }
}

/// Creates what a key needs for a withdrawal. Returns `None` if that failed.
fn info_for(caller: &mut Caller, replica: usize, what: Withdrawal, name: &str) -> Option<KeyInfo> {
    let (permission, role) = (format!("perm-{name}"), format!("role-{name}"));
    let mut info = KeyInfo::default();
    let is_made = match what {
        Withdrawal::Reroll => true,
        Withdrawal::IdentityLimit => {
            let limits = identity_limits(Withdrawal::LIMIT);
            let body = json!({ "externalId": name, "ratelimits": limits });
            info.identity = Some(name.to_owned());
            caller.create_resource(replica, "identities.createIdentity", &body)
        }
        Withdrawal::Permission | Withdrawal::Role => {
            let body = json!({ "name": permission, "slug": permission });
            let is_made = caller.create_resource(replica, "permissions.createPermission", &body);
            let with_role = what == Withdrawal::Role;
            let body = json!({ "name": role, "permissions": [permission] });
            info.permission = Some(permission);
            info.role = with_role.then_some(role);
            is_made
                && (!with_role || caller.create_resource(replica, "permissions.createRole", &body))
        }
    };
    is_made.then_some(info)
}

fn block_counter(caller: &mut Caller, name: &str) {
    let counter = format!("{OVERRIDE_PREFIX}{name}");
    let action =
        Action::Limit { counter: counter.clone(), limit: 1_000, duration_ms: 60_000, cost: 1 };
    for replica in 0..caller.replicas() {
        caller.send(replica, action.clone());
    }
    let replica = caller.any_replica();
    if caller.send(replica, Action::Override { counter }).status == 200 {
        watch(caller, &action);
    }
}

/// Makes a key unlimited, and then limited again. Only one caller does this.
fn switch(caller: &mut Caller, _: usize, pools: &KeyPools) {
    let key = pools.switched[0];
    let value = caller.random.random_range(0..100);
    for change in [Change::Unlimit, Change::Set(value)] {
        let replica = caller.any_replica();
        caller.send(replica, Action::Credits { key, change });
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Re-rolls a key that all callers spend from, without a grace period and then with one. Only one caller does this.
fn reroll(caller: &mut Caller, _: usize, _: &KeyPools) {
    for grace_ms in [0, GRACE_MS] {
        if grace_ms == 0 && caller.shared.has_earlier_version {
            continue;
        }
        let replica = caller.any_replica();
        let info = KeyInfo { credits: Some(REROLLED_CREDITS), ..KeyInfo::default() };
        let Some(key) = caller.create(replica, info) else { return };
        *caller.shared.rerolled() = vec![key];
        std::thread::sleep(BEFORE_REROLL);
        let replica = caller.any_replica();
        if let Some(new) = caller.reroll(replica, key, grace_ms) {
            caller.shared.rerolled().push(new);
            std::thread::sleep(WATCH_DURATION);
        }
    }
}

/// Changes balances and names. Only one caller does this.
fn manage(caller: &mut Caller, _: usize, pools: &KeyPools) {
    let replica = caller.any_replica();
    let action = match caller.random.random_range(0..4) {
        0 => {
            let name = format!("name {}", caller.calls.len());
            Action::Rename { key: one_of(caller, &pools.renamed), name }
        }
        1 => {
            let value = caller.random.random_range(0..200);
            Action::Credits { key: pools.set[0], change: Change::Set(value) }
        }
        2 => {
            let value = caller.random.random_range(0..60);
            // Not the last one, which is refilled.
            let key = one_of(caller, &pools.metered[..5]);
            Action::Credits { key, change: Change::Increment(value) }
        }
        _ => {
            let value = caller.random.random_range(0..20);
            let key = one_of(caller, &pools.metered[2..5]);
            Action::Credits { key, change: Change::Decrement(value) }
        }
    };
    caller.send(replica, action);
    std::thread::sleep(Duration::from_millis(40));
}
