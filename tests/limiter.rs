//! Counting: one suite over both engines, and both held against each other.

use std::future::{Future as _, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;
use std::time::Duration;

use foundation::clock::{Clock, Timestamp};
use foundation::metrics::Metrics;
use futures_util::future::join_all;
use limiter::local::LocalCounters;
use limiter::redis::RedisCounters;
use limiter::{CounterGroup, EXACT_MAX, Keyspace, Window, WindowCounters};
use proptest::prelude::*;

use crate::support::{NOON, random, redis_url};

const MINUTE: i64 = 60_000;

fn redis() -> RedisCounters {
    let keyspace = Keyspace::new(format!("t{}:", random()));
    RedisCounters::new(&redis_url(), Duration::from_secs(5), keyspace, &Metrics::default()).unwrap()
}

fn local() -> LocalCounters {
    LocalCounters::new(Clock::fixed_at(NOON))
}

/// Runs a rule on each engine.
macro_rules! both_engines {
    ($($(#[$meta:meta])* async fn $name:ident($engine:ident, $keys:ident) $body:block)*) => {$(
        $(#[$meta])*
        mod $name {
            use super::*;

            async fn rule($engine: impl WindowCounters + Send + Sync + 'static, $keys: Keyspace) $body

            #[tokio::test]
            async fn local() {
                rule(super::local(), Keyspace::new("")).await;
            }

            #[tokio::test]
            async fn redis() {
                rule(super::redis(), Keyspace::new(format!("t{}:", random()))).await;
            }
        }
    )*};
}

mod charges;
mod formats;
mod groups;
mod purses;

fn one(window: Window) -> Vec<Window> {
    vec![window]
}

both_engines! {
    async fn a_window_admits_its_limit_and_no_more(engine, keys) {
        let take = one(Window::new(keys.window("key_a", MINUTE, "requests"), 3, MINUTE, 1));

        let mut admitted = Vec::new();
        for _ in 0..5 {
            admitted.push(engine.consume_windows(&take, Some(NOON)).await.unwrap().is_admitted);
        }

        assert_eq!(admitted, [true, true, true, false, false]);
    }

    async fn a_cost_that_just_fits_is_admitted_and_one_more_is_not(engine, keys) {
        let key = keys.window("key_a", MINUTE, "requests");
        let take = |cost| one(Window::new(key.clone(), 10, MINUTE, cost));

        assert!(!engine.consume_windows(&take(11), Some(NOON)).await.unwrap().is_admitted);
        assert!(engine.consume_windows(&take(10), Some(NOON)).await.unwrap().is_admitted);
        assert!(!engine.consume_windows(&take(1), Some(NOON)).await.unwrap().is_admitted);
    }

    async fn a_look_costs_nothing_and_succeeds_at_the_limit(engine, keys) {
        let key = keys.window("key_a", MINUTE, "requests");
        let take = |cost| one(Window::new(key.clone(), 2, MINUTE, cost));
        engine.consume_windows(&take(2), Some(NOON)).await.unwrap();

        let look = engine.consume_windows(&take(0), Some(NOON)).await.unwrap();

        assert!(look.is_admitted);
        assert_eq!(look.windows[0].effective, 2);
    }

    async fn a_limit_of_0_refuses_even_a_look(engine, keys) {
        let take = one(Window::new(keys.window("key_a", MINUTE, "requests"), 0, MINUTE, 0));

        assert!(!engine.consume_windows(&take, Some(NOON)).await.unwrap().is_admitted);
    }

    async fn several_windows_are_taken_together_or_not_at_all(engine, keys) {
        let wide = Window::new(keys.window("key_a", MINUTE, "wide"), 10, MINUTE, 4);
        let narrow = Window::new(keys.window("key_a", MINUTE, "narrow"), 5, MINUTE, 4);
        let both = vec![wide.clone(), narrow];
        engine.consume_windows(&both, Some(NOON)).await.unwrap();

        let refused = engine.consume_windows(&both, Some(NOON)).await.unwrap();
        let wide = engine.consume_windows(&one(wide), Some(NOON)).await.unwrap();

        assert!(!refused.is_admitted);
        assert_eq!(wide.windows[0].effective, 4);
    }

    async fn one_window_twice_in_a_take_counts_on_itself(engine, keys) {
        let window = Window::new(keys.window("key_a", MINUTE, "requests"), 3, MINUTE, 2);
        let twice = vec![window.clone(), window.clone()];

        let refused = engine.consume_windows(&twice, Some(NOON)).await.unwrap();
        let alone = engine.consume_windows(&one(window), Some(NOON)).await.unwrap();

        assert!(!refused.is_admitted);
        assert_eq!(refused.windows[1].effective, 2);
        assert!(alone.is_admitted);
    }

    async fn the_count_slides_from_one_window_into_the_next(engine, keys) {
        let key = keys.window("key_a", MINUTE, "requests");
        let take = |cost| one(Window::new(key.clone(), 10, MINUTE, cost));
        let start = Timestamp(NOON.0 / MINUTE * MINUTE);
        engine.consume_windows(&take(10), Some(start)).await.unwrap();

        let mut counted = Vec::new();
        for ms in [MINUTE - 1, MINUTE, MINUTE + 15_000, 2 * MINUTE - 1, 2 * MINUTE] {
            let look = engine.consume_windows(&take(0), Some(start.plus_ms(ms))).await.unwrap();
            counted.push(look.windows[0].effective);
        }

        assert_eq!(counted, [10, 10, 7, 0, 0]);
    }

    async fn a_changed_limit_keeps_the_count_and_a_changed_duration_does_not(engine, keys) {
        let take = |limit, duration| {
            one(Window::new(keys.window("key_a", duration, "requests"), limit, duration, 1))
        };
        for _ in 0..3 {
            engine.consume_windows(&take(5, MINUTE), Some(NOON)).await.unwrap();
        }

        assert!(!engine.consume_windows(&take(3, MINUTE), Some(NOON)).await.unwrap().is_admitted);
        assert!(engine.consume_windows(&take(4, MINUTE), Some(NOON)).await.unwrap().is_admitted);
        assert!(engine.consume_windows(&take(1, 2 * MINUTE), Some(NOON)).await.unwrap().is_admitted);
    }

    async fn a_clock_that_steps_back_frees_nothing(engine, keys) {
        let key = keys.window("key_a", MINUTE, "requests");
        let take = one(Window::new(key, 1, MINUTE, 1));
        engine.consume_windows(&take, Some(NOON)).await.unwrap();

        let back = engine.consume_windows(&take, Some(NOON.plus_ms(-10 * MINUTE))).await.unwrap();

        assert!(!back.is_admitted);
    }

    async fn the_largest_numbers_are_no_danger(engine, keys) {
        let key = keys.window("key_a", i64::MAX, "requests");
        let take = one(Window::new(key, i64::MAX, i64::MAX, i64::MAX));

        let taken = engine.consume_windows(&take, Some(NOON)).await.unwrap();
        let again = engine.consume_windows(&take, Some(NOON)).await.unwrap();

        assert!(taken.is_admitted && !again.is_admitted);
        assert_eq!(again.windows[0].effective, EXACT_MAX);
        assert!(again.windows[0].reset(&take[0]) > NOON);
    }

    async fn however_many_ask_at_once_no_more_than_the_limit_is_admitted(engine, keys) {
        let engine = Arc::new(engine);
        let admitted = Arc::new(AtomicI64::new(0));
        let window = Window::new(keys.window("key_a", MINUTE, "requests"), 100, MINUTE, 3);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..16 {
            let (engine, admitted, take) = (engine.clone(), admitted.clone(), one(window.clone()));
            tasks.spawn(async move {
                for _ in 0..10 {
                    if engine.consume_windows(&take, Some(NOON)).await.unwrap().is_admitted {
                        admitted.fetch_add(3, Ordering::SeqCst);
                    }
                }
            });
        }
        tasks.join_all().await;

        assert_eq!(admitted.load(Ordering::SeqCst), 99);
    }
}

#[tokio::test]
async fn without_a_given_time_redis_counts_by_its_own() {
    let keys = Keyspace::new(format!("t{}:", random()));
    let window = Window::new(keys.window("key_a", MINUTE, "requests"), 5, MINUTE, 1);

    let taken = redis().consume_windows(&one(window.clone()), None).await.unwrap();

    let now = Clock::System.now();
    let reset = taken.windows[0].reset(&window);
    assert!(reset > now.plus_ms(-1000) && reset <= now.plus_ms(MINUTE + 1000), "{reset:?}");
}

#[tokio::test]
async fn every_window_in_redis_carries_a_lifetime() {
    let keys = Keyspace::new(format!("t{}:", random()));
    let name = keys.window("key_a", MINUTE, "requests");
    redis().consume_windows(&one(Window::new(name.clone(), 5, MINUTE, 1)), None).await.unwrap();

    let ttl = lifetime_ms(&name).await;

    assert!(ttl > 0 && ttl <= 2 * MINUTE, "{ttl}");
}

/// How long a name stays in Redis, in milliseconds; negative: for ever, or it is not there.
async fn lifetime_ms(name: &str) -> i64 {
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("PTTL").arg(name).query_async(&mut connection).await.unwrap()
}

#[tokio::test]
async fn who_stops_waiting_takes_nothing_and_spoils_nothing_for_others() {
    let keys = Keyspace::new(format!("t{}:", random()));
    let engine = redis();
    let take = one(Window::new(keys.window("key_a", MINUTE, "requests"), 5, MINUTE, 1));
    let mut asked: Vec<_> =
        (0..3).map(|_| Box::pin(engine.consume_windows(&take, Some(NOON)))).collect();
    // All of them are asked before any can be answered.
    for waiting in &mut asked {
        let polled = poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
    }

    drop(asked.remove(1));
    let answered = join_all(asked).await;

    let effective: Vec<_> =
        answered.into_iter().map(|taken| taken.unwrap().windows[0].effective).collect();
    assert_eq!(effective, [0, 1]);
}

#[tokio::test]
async fn a_redis_that_forgot_its_scripts_is_told_them_again() {
    let keys = Keyspace::new(format!("t{}:", random()));
    let engine = redis();
    let take = one(Window::new(keys.window("key_a", MINUTE, "requests"), 5, MINUTE, 1));
    engine.consume_windows(&take, Some(NOON)).await.unwrap();
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut connection).await.unwrap();

    let again = engine.consume_windows(&take, Some(NOON)).await.unwrap();

    assert_eq!(again.windows[0].effective, 1);
}

#[tokio::test]
async fn a_flood_of_names_does_not_stay_in_memory() {
    let engine = local();
    let keys = Keyspace::new("");
    for n in 0..300_000_i64 {
        let now = NOON.plus_ms(n * 10);
        let window = Window::new(keys.window(&format!("key_{n}"), 1000, "requests"), 5, 1000, 1);
        engine.consume_at(&one(window), now);
    }

    // Two windows of a second hold 200 names at this rate; each shard sweeps when it has 1,024.
    assert!(engine.len() <= 64 * 1024 * 2, "{}", engine.len());
}

/// A step of the differential test.
#[derive(Debug, Clone)]
struct Step {
    /// How far the clock moves first; back, too. Nothing: it is asked together with the one before,
    /// so that both may share a script.
    clock_ms: Option<i64>,
    /// For each window: which, its limit, its cost.
    windows: Vec<(u8, i64, i64)>,
}

/// Long enough that no key expires by Redis' own clock while a case runs.
const DURATIONS: [i64; 3] = [30_000, 60_000, 3_600_000];

fn step() -> impl Strategy<Value = Step> {
    let clock = prop_oneof![
        6 => 0..2_000_i64,
        3 => 0..90_000_i64,
        1 => -200_000..0_i64,
        1 => 0..8_000_000_i64,
    ];
    let limit = prop_oneof![8 => 1..12_i64, 1 => Just(0), 1 => Just(1_000_000_000_000_i64), 1 => Just(i64::MAX)];
    let cost = prop_oneof![8 => 0..5_i64, 2 => 5..15_i64, 1 => Just(999_999_999_999_i64), 1 => Just(i64::MAX)];
    let windows = prop::collection::vec((0..6_u8, limit, cost), 0..5);
    let clock = prop::option::weighted(0.5, clock);
    (clock, windows).prop_map(|(clock_ms, windows)| Step { clock_ms, windows })
}

fn windows_of(step: &Step, keys: &Keyspace) -> Vec<Window> {
    // Half of the counters belong to a group that has room for two of three.
    let name = keys.group("key_0");
    let group = CounterGroup { name, workspace: "ws_default".into(), live_max: 2 };
    let group = Arc::new(group);
    let windows = step.windows.iter().map(|(which, limit, cost)| {
        let duration = DURATIONS[usize::from(which % 3)];
        let key = keys.window(&format!("key_{which}"), duration, "requests");
        let window = Window::new(key, *limit, duration, *cost);
        if which % 2 == 0 { window.in_group(group.clone()) } else { window }
    });
    windows.collect()
}

/// Asks Redis for all takes at once, and the other engine for one after the other.
async fn agree(
    redis: &RedisCounters,
    local: &LocalCounters,
    takes: Vec<Vec<Window>>,
    now: Timestamp,
) -> Result<(), TestCaseError> {
    let theirs = join_all(takes.iter().map(|take| redis.consume_windows(take, Some(now)))).await;
    for (take, theirs) in takes.iter().zip(theirs) {
        prop_assert_eq!(theirs.unwrap(), local.consume_at(take, now), "{:?} of {:?}", take, takes);
    }
    Ok(())
}

/// 100 cases of 300 to 500 steps: 40,000 steps.
#[test]
fn the_script_and_the_specification_agree_on_every_step() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let redis = runtime.block_on(async { redis() });
    let config = ProptestConfig {
        cases: 100,
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..ProptestConfig::default()
    };
    let strategy = prop::collection::vec(step(), 300..=500);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result = runner.run(&strategy, |steps| {
        let keys = Keyspace::new(format!("t{}:", random()));
        let local = local();
        let mut now = NOON;
        runtime.block_on(async {
            let mut together = Vec::new();
            for step in &steps {
                if step.clock_ms.is_some() {
                    let takes = std::mem::take(&mut together);
                    agree(&redis, &local, takes, now).await?;
                }
                now = now.plus_ms(step.clock_ms.unwrap_or(0));
                together.push(windows_of(step, &keys));
            }
            agree(&redis, &local, together, now).await
        })
    });
    assert!(result.is_ok(), "{}", result.unwrap_err());
}
