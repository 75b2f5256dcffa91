//! Who calls the replicas, all at once, until the run is over.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use keyward::clock::{Clock, Stopwatch};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

use crate::caller::{Caller, Shared, rest};
use crate::fleet::{Fleet, ROOT_KEY};
use crate::record::{Act, Asked, Change, KeyFacts, KeyNo};
use crate::schedule::REPLICAS;
use crate::support::process::v2;

/// What a caller does again and again, told its number among its kind.
type Part = fn(&mut Caller, usize, &Cast);

/// Who calls, and how many of them there are.
const CALLERS: [(Part, usize); 7] = [
    (verify, 2 * REPLICAS),
    (limit, REPLICAS),
    (control, REPLICAS),
    (verify_fresh, REPLICAS),
    (create, 1),
    (revoke, 2),
    (manage, 1),
];
/// How many keys wait to be verified for the first time.
const FRESH: usize = 60;
/// For so long after a revocation the key is asked for again and again.
const WATCHED: Duration = Duration::from_millis(1_600);

/// Standalone counters: name, limit, duration in milliseconds.
const COUNTERS: [(&str, i64, i64); 4] = [
    ("logins/one", 12, 1_000),
    ("logins/two", 60, 5_000),
    ("mails/one", 150, 20_000),
    ("mails/two", 300, 60_000),
];

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
    let replica = number % REPLICAS;
    let keys = match caller.random.random_range(0..10) {
        0..5 => &cast.metered,
        5 => &cast.set,
        6..9 => &cast.limited,
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
    for replica in 0..REPLICAS {
        caller.ask(replica, Asked::Verify { key, cost: 0 });
    }
    let replica = caller.any_replica();
    let end = if number == 0 { Asked::Disable { key } } else { Asked::Delete { key } };
    if caller.ask(replica, end).status != 200 {
        return;
    }
    let ended = caller.shared.began.elapsed();
    while caller.shared.began.elapsed() < ended + WATCHED {
        for replica in 0..REPLICAS {
            caller.ask(replica, Asked::Verify { key, cost: 0 });
            rest();
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
