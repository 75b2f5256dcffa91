//! Who calls the replicas, all at once, until the run is over.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use foundation::clock::{Clock, Stopwatch};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

use crate::caller::{Caller, Shared, identity_limits, rest};
use crate::fleet::{Fleet, ROOT_KEY};
use crate::record::{Act, Asked, Change, KeyFacts, KeyNo, Withdrawal};
use crate::schedule::REPLICAS;
use crate::support::process::v2;

/// What a caller does again and again, told its number among its kind.
type Part = fn(&mut Caller, usize, &Cast);

/// Who calls, and how many of them there are.
const CALLERS: [(Part, usize); 10] = [
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
/// How many keys wait to be verified for the first time.
const FRESH: usize = 60;
/// For so long after a revocation the key is asked for again and again.
const WATCHED: Duration = Duration::from_millis(1_600);

/// What a key has that is re-rolled, for how long it is spent before, and the grace period, which outlasts each run.
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

/// What the names of counters with overrides begin with.
pub const OVERRIDDEN: &str = "shut/";

/// The keys that are there from the beginning, by the part that they play.
#[derive(Default)]
pub struct Cast {
    plain: Vec<KeyNo>,
    limited: Vec<KeyNo>,
    /// Its limit is never reached.
    counted: KeyNo,
    /// Spent by everybody, raised and lowered by one.
    metered: Vec<KeyNo>,
    /// Spent by everybody, set by one.
    set: Vec<KeyNo>,
    /// Spent by everybody, unlimited now and then.
    switched: Vec<KeyNo>,
    renamed: Vec<KeyNo>,
}

/// What all callers share, and a new API.
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

/// What is shared, and the cast, made on the first replica.
pub fn prepare(fleet: &Fleet) -> (Shared, Cast, Vec<Act>) {
    let mut shared = open(fleet);
    let mut caller = Caller::new(&shared, StdRng::seed_from_u64(0));
    let mut make = |credits, refill, limits: &[(&str, i64, i64)]| {
        let limit = |(name, limit, ms): &(&str, i64, i64)| ((*name).to_owned(), *limit, *ms);
        let limits = limits.iter().map(limit).collect();
        let facts = KeyFacts { credits, refill, limits, ..KeyFacts::default() };
        caller.create(0, facts).expect("a key")
    };
    let cast = Cast {
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
    for _ in 0..FRESH {
        let key = make(None, None, &[]);
        shared.fresh().push_back(key);
    }
    let acts = caller.acts;
    shared.loaded = shared.began.elapsed();
    (shared, cast, acts)
}

/// Calls until the run is over; every act, in no order.
pub fn run(shared: &Shared, cast: &Cast, seed: u64) -> Vec<Act> {
    let mut callers = Vec::new();
    for (act, how_many) in CALLERS {
        callers.extend((0..how_many).map(|number| (act, number)));
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..)
            .zip(callers)
            .map(|(stream, (act, number))| {
                scope.spawn(move || {
                    let random = StdRng::seed_from_u64(seed.wrapping_add(stream));
                    let mut caller = Caller::new(shared, random);
                    while !shared.is_over() {
                        act(&mut caller, number, cast);
                        rest();
                    }
                    caller.acts
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a caller")).collect()
    })
}

fn one_of(caller: &mut Caller, keys: &[KeyNo]) -> KeyNo {
    keys[caller.random.random_range(0..keys.len())]
}

/// Each caller keeps to one replica, so that none waits for one that another has stopped.
fn verify(caller: &mut Caller, number: usize, cast: &Cast) {
    let replica = number % caller.replicas();
    let rerolled = caller.shared.rerolled().clone();
    let keys = match caller.random.random_range(0..10) {
        0..5 => &cast.metered,
        5 => &cast.set,
        6 => &cast.switched,
        7..9 => &cast.limited,
        _ if !rerolled.is_empty() => &rerolled,
        _ => &cast.plain,
    };
    let key = one_of(caller, keys);
    let cost = caller.random.random_range(0..8);
    caller.ask(replica, Asked::Verify { key, cost });
}

fn limit(caller: &mut Caller, replica: usize, _: &Cast) {
    let (counter, limit, duration_ms) = COUNTERS[caller.random.random_range(0..COUNTERS.len())];
    let (counter, cost) = (counter.to_owned(), caller.random.random_range(0..4));
    caller.ask(replica, Asked::Limit { counter, limit, duration_ms, cost });
}

/// How busy a replica is; a key that it has in its cache, and one that Redis counts.
fn control(caller: &mut Caller, replica: usize, cast: &Cast) {
    caller.ask(replica, Asked::Control);
    rest();
    caller.ask(replica, Asked::Verify { key: cast.plain[0], cost: 0 });
    rest();
    caller.ask(replica, Asked::Verify { key: cast.counted, cost: 0 });
}

fn verify_fresh(caller: &mut Caller, replica: usize, _: &Cast) {
    let key = caller.shared.fresh().pop_front();
    if let Some(key) = key {
        caller.ask(replica, Asked::Verify { key, cost: 0 });
    }
    std::thread::sleep(Duration::from_millis(100));
}

fn create(caller: &mut Caller, _: usize, _: &Cast) {
    let replica = caller.any_replica();
    if caller.shared.fresh().len() < 2 * FRESH
        && let Some(key) = caller.create(replica, KeyFacts::default())
    {
        caller.shared.fresh().push_back(key);
    }
    std::thread::sleep(Duration::from_millis(15));
}

/// Has every replica know a key, ends it on one of them, and asks all of them for it.
fn revoke(caller: &mut Caller, number: usize, _: &Cast) {
    let replica = caller.any_replica();
    let Some(key) = caller.create(replica, KeyFacts::default()) else { return };
    let replica = known_to_all(caller, key);
    let end = if number == 0 { Asked::Disable { key } } else { Asked::Delete { key } };
    if caller.ask(replica, end).status == 200 {
        watch(caller, &Asked::Verify { key, cost: 0 });
    }
}

/// Has every replica know a key; one of them.
fn known_to_all(caller: &mut Caller, key: KeyNo) -> usize {
    for replica in 0..caller.replicas() {
        caller.ask(replica, Asked::Verify { key, cost: 0 });
    }
    caller.any_replica()
}

/// Asks every replica again and again, for a while.
fn watch(caller: &mut Caller, asked: &Asked) {
    let ended = caller.shared.began.elapsed();
    while caller.shared.began.elapsed() < ended + WATCHED {
        for replica in 0..caller.replicas() {
            caller.ask(replica, asked.clone());
            rest();
        }
    }
}

/// Takes away what a key verifies by, or shuts a counter, on one replica, and asks all of them.
fn withdraw(caller: &mut Caller, number: usize, _: &Cast) {
    let name = format!("{number}-{}", caller.acts.len());
    let what = match caller.random.random_range(0..5) {
        0 => Withdrawal::Permission,
        1 => Withdrawal::Role,
        2 => Withdrawal::IdentityLimit,
        3 => Withdrawal::Reroll,
        _ => return shut_a_counter(caller, &name),
    };
    let replica = caller.any_replica();
    let Some(facts) = facts_for(caller, replica, what, &name) else { return };
    let Some(key) = caller.create(replica, facts) else { return };
    let replica = known_to_all(caller, key);
    if caller.ask(replica, Asked::Withdraw { key, what }).status == 200 {
        watch(caller, &Asked::Verify { key, cost: 0 });
    }
}

/// A key that has something to be taken away. `None`: what it needs could not be made.
fn facts_for(
    caller: &mut Caller,
    replica: usize,
    what: Withdrawal,
    name: &str,
) -> Option<KeyFacts> {
    let (permission, role) = (format!("perm-{name}"), format!("role-{name}"));
    let mut facts = KeyFacts::default();
    let is_made = match what {
        Withdrawal::Reroll => true,
        Withdrawal::IdentityLimit => {
            let limits = identity_limits(Withdrawal::LIMIT);
            let body = json!({ "externalId": name, "ratelimits": limits });
            facts.identity = Some(name.to_owned());
            caller.make(replica, "identities.createIdentity", &body)
        }
        Withdrawal::Permission | Withdrawal::Role => {
            let body = json!({ "name": permission, "slug": permission });
            let is_made = caller.make(replica, "permissions.createPermission", &body);
            let with_role = what == Withdrawal::Role;
            let body = json!({ "name": role, "permissions": [permission] });
            facts.permission = Some(permission);
            facts.role = with_role.then_some(role);
            is_made && (!with_role || caller.make(replica, "permissions.createRole", &body))
        }
    };
    is_made.then_some(facts)
}

fn shut_a_counter(caller: &mut Caller, name: &str) {
    let counter = format!("{OVERRIDDEN}{name}");
    let asked =
        Asked::Limit { counter: counter.clone(), limit: 1_000, duration_ms: 60_000, cost: 1 };
    for replica in 0..caller.replicas() {
        caller.ask(replica, asked.clone());
    }
    let replica = caller.any_replica();
    if caller.ask(replica, Asked::Override { counter }).status == 200 {
        watch(caller, &asked);
    }
}

/// Has a key be unlimited, and then limited again; the only one who does.
fn switch(caller: &mut Caller, _: usize, cast: &Cast) {
    let key = cast.switched[0];
    let value = caller.random.random_range(0..100);
    for change in [Change::Unlimit, Change::Set(value)] {
        let replica = caller.any_replica();
        caller.ask(replica, Asked::Credits { key, change });
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Re-rolls a key that everybody spends, without a grace period and then with one; the only one who does.
fn reroll(caller: &mut Caller, _: usize, _: &Cast) {
    for grace_ms in [0, GRACE_MS] {
        if grace_ms == 0 && caller.shared.has_earlier_version {
            continue;
        }
        let replica = caller.any_replica();
        let facts = KeyFacts { credits: Some(REROLLED_CREDITS), ..KeyFacts::default() };
        let Some(key) = caller.create(replica, facts) else { return };
        *caller.shared.rerolled() = vec![key];
        std::thread::sleep(BEFORE_REROLL);
        let replica = caller.any_replica();
        if let Some(new) = caller.reroll(replica, key, grace_ms) {
            caller.shared.rerolled().push(new);
            std::thread::sleep(WATCHED);
        }
    }
}

/// Changes balances and names; the only one who does.
fn manage(caller: &mut Caller, _: usize, cast: &Cast) {
    let replica = caller.any_replica();
    let asked = match caller.random.random_range(0..4) {
        0 => {
            let name = format!("name {}", caller.acts.len());
            Asked::Rename { key: one_of(caller, &cast.renamed), name }
        }
        1 => {
            let value = caller.random.random_range(0..200);
            Asked::Credits { key: cast.set[0], change: Change::Set(value) }
        }
        2 => {
            let value = caller.random.random_range(0..60);
            // Not the last, which is refilled.
            let key = one_of(caller, &cast.metered[..5]);
            Asked::Credits { key, change: Change::Increment(value) }
        }
        _ => {
            let value = caller.random.random_range(0..20);
            let key = one_of(caller, &cast.metered[2..5]);
            Asked::Credits { key, change: Change::Decrement(value) }
        }
    };
    caller.ask(replica, asked);
    std::thread::sleep(Duration::from_millis(40));
}
