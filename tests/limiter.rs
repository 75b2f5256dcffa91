//! Tests the counters: one suite for both implementations, and a comparison of the two.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use foundation::clock::{Clock, Stopwatch, Timestamp};
use foundation::config::RedisTls;
use foundation::error::Error;
use foundation::metrics::Metrics;
use futures_util::future::join_all;
use futures_util::poll;
use limiter::local::LocalCounters;
use limiter::redis::{RedisAddress, RedisCounters};
use limiter::{CounterGroup, EXACT_MAX, Keyspace, Window, WindowCounters};
use proptest::prelude::*;

use crate::support::{NOON, random_letters, redis_url};

const MINUTE: i64 = 60_000;

fn redis() -> RedisCounters {
    let address = RedisAddress::new(&redis_url(), &RedisTls::default());
    let keyspace = Keyspace::new(format!("t{}:", random_letters()));
    RedisCounters::new(address, Duration::from_secs(5), keyspace, &Metrics::default()).unwrap()
}

fn local() -> LocalCounters {
    LocalCounters::new(Clock::fixed_at(NOON))
}

/// Runs a test on each implementation.
macro_rules! on_both_counters {
    ($($(#[$meta:meta])* async fn $name:ident($counters:ident, $keys:ident) $body:block)*) => {$(
        $(#[$meta])*
        mod $name {
            use super::*;

            async fn run_test($counters: impl WindowCounters + Send + Sync + 'static, $keys: Keyspace) $body

            #[tokio::test]
            async fn local() {
                run_test(super::local(), Keyspace::new("")).await;
            }

            #[tokio::test]
            async fn redis() {
                run_test(super::redis(), Keyspace::new(format!("t{}:", random_letters()))).await;
            }
        }
    )*};
}

mod charges;
mod clocks;
mod cluster;
mod few_requests;
mod formats;
mod groups;
mod leases;
mod lost_replies;
mod outages;
mod regions;

fn one(window: Window) -> Vec<Window> {
    vec![window]
}

on_both_counters! {
    async fn window_admits_its_limit_and_no_more(counters, keys) {
        let request = one(Window::new(keys.window("key_a", MINUTE, "requests"), 3, MINUTE, 1));

        let mut admitted = Vec::new();
        for _ in 0..5 {
            admitted.push(counters.consume_windows(&request, Some(NOON)).await.unwrap().is_admitted);
        }

        assert_eq!(admitted, [true, true, true, false, false]);
    }

    async fn cost_is_admitted_when_it_equals_the_remaining_limit(counters, keys) {
        let key = keys.window("key_a", MINUTE, "requests");
        let request = |cost| one(Window::new(key.clone(), 10, MINUTE, cost));

        assert!(!counters.consume_windows(&request(11), Some(NOON)).await.unwrap().is_admitted);
        assert!(counters.consume_windows(&request(10), Some(NOON)).await.unwrap().is_admitted);
        assert!(!counters.consume_windows(&request(1), Some(NOON)).await.unwrap().is_admitted);
    }

    async fn peek_succeeds_when_window_is_full(counters, keys) {
        let key = keys.window("key_a", MINUTE, "requests");
        let request = |cost| one(Window::new(key.clone(), 2, MINUTE, cost));
        counters.consume_windows(&request(2), Some(NOON)).await.unwrap();

        let peek = counters.consume_windows(&request(0), Some(NOON)).await.unwrap();

        assert!(peek.is_admitted);
        assert_eq!(peek.windows[0].effective_count, 2);
    }

    async fn peek_is_denied_when_limit_is_0(counters, keys) {
        let request = one(Window::new(keys.window("key_a", MINUTE, "requests"), 0, MINUTE, 0));

        assert!(!counters.consume_windows(&request, Some(NOON)).await.unwrap().is_admitted);
    }

    async fn windows_of_one_request_are_consumed_atomically(counters, keys) {
        let wide = Window::new(keys.window("key_a", MINUTE, "wide"), 10, MINUTE, 4);
        let narrow = Window::new(keys.window("key_a", MINUTE, "narrow"), 5, MINUTE, 4);
        let both = vec![wide.clone(), narrow];
        counters.consume_windows(&both, Some(NOON)).await.unwrap();

        let refused = counters.consume_windows(&both, Some(NOON)).await.unwrap();
        let wide = counters.consume_windows(&one(wide), Some(NOON)).await.unwrap();

        assert!(!refused.is_admitted);
        assert_eq!(wide.windows[0].effective_count, 4);
    }

    async fn window_counts_both_costs_when_requested_twice(counters, keys) {
        let window = Window::new(keys.window("key_a", MINUTE, "requests"), 3, MINUTE, 2);
        let twice = vec![window.clone(), window.clone()];

        let refused = counters.consume_windows(&twice, Some(NOON)).await.unwrap();
        let alone = counters.consume_windows(&one(window), Some(NOON)).await.unwrap();

        assert!(!refused.is_admitted);
        assert_eq!(refused.windows[1].effective_count, 2);
        assert!(alone.is_admitted);
    }

    async fn window_count_slides_into_the_next_window(counters, keys) {
        let key = keys.window("key_a", MINUTE, "requests");
        let request = |cost| one(Window::new(key.clone(), 10, MINUTE, cost));
        let start = Timestamp(NOON.0 / MINUTE * MINUTE);
        counters.consume_windows(&request(10), Some(start)).await.unwrap();

        let mut counted = Vec::new();
        for ms in [MINUTE - 1, MINUTE, MINUTE + 15_000, 2 * MINUTE - 1, 2 * MINUTE] {
            let peek = counters.consume_windows(&request(0), Some(start.plus_ms(ms))).await.unwrap();
            counted.push(peek.windows[0].effective_count);
        }

        assert_eq!(counted, [10, 10, 7, 0, 0]);
    }

    async fn window_count_is_kept_when_limit_changes_and_reset_when_duration_changes(counters, keys) {
        let request = |limit, duration| {
            one(Window::new(keys.window("key_a", duration, "requests"), limit, duration, 1))
        };
        for _ in 0..3 {
            counters.consume_windows(&request(5, MINUTE), Some(NOON)).await.unwrap();
        }

        assert!(!counters.consume_windows(&request(3, MINUTE), Some(NOON)).await.unwrap().is_admitted);
        assert!(counters.consume_windows(&request(4, MINUTE), Some(NOON)).await.unwrap().is_admitted);
        assert!(counters.consume_windows(&request(1, 2 * MINUTE), Some(NOON)).await.unwrap().is_admitted);
    }

    async fn window_count_is_kept_when_clock_goes_back(counters, keys) {
        let key = keys.window("key_a", MINUTE, "requests");
        let request = one(Window::new(key, 1, MINUTE, 1));
        counters.consume_windows(&request, Some(NOON)).await.unwrap();

        let back = counters.consume_windows(&request, Some(NOON.plus_ms(-10 * MINUTE))).await.unwrap();

        assert!(!back.is_admitted);
    }

    async fn window_counts_correctly_when_numbers_are_maximal(counters, keys) {
        let key = keys.window("key_a", i64::MAX, "requests");
        let request = one(Window::new(key, i64::MAX, i64::MAX, i64::MAX));

        let reply = counters.consume_windows(&request, Some(NOON)).await.unwrap();
        let again = counters.consume_windows(&request, Some(NOON)).await.unwrap();

        assert!(reply.is_admitted && !again.is_admitted);
        assert_eq!(again.windows[0].effective_count, EXACT_MAX);
        assert!(again.windows[0].reset_at(&request[0]) > NOON);
    }

    async fn limit_is_exact_when_requests_are_concurrent(counters, keys) {
        let counters = Arc::new(counters);
        let admitted = Arc::new(AtomicI64::new(0));
        let window = Window::new(keys.window("key_a", MINUTE, "requests"), 100, MINUTE, 3);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..16 {
            let (counters, admitted, request) = (counters.clone(), admitted.clone(), one(window.clone()));
            tasks.spawn(async move {
                for _ in 0..10 {
                    if counters.consume_windows(&request, Some(NOON)).await.unwrap().is_admitted {
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
async fn redis_uses_its_own_clock_when_no_time_is_given() {
    let keys = Keyspace::new(format!("t{}:", random_letters()));
    let window = Window::new(keys.window("key_a", MINUTE, "requests"), 5, MINUTE, 1);

    let reply = redis().consume_windows(&one(window.clone()), None).await.unwrap();

    let now = Clock::System.now();
    let reset = reply.windows[0].reset_at(&window);
    assert!(reset > now.plus_ms(-1000) && reset <= now.plus_ms(MINUTE + 1000), "{reset:?}");
}

#[tokio::test]
async fn window_in_redis_has_a_ttl() {
    let keys = Keyspace::new(format!("t{}:", random_letters()));
    let name = keys.window("key_a", MINUTE, "requests");
    redis().consume_windows(&one(Window::new(name.clone(), 5, MINUTE, 1)), None).await.unwrap();

    let ttl = ttl_ms(&name).await;

    assert!(ttl > 0 && ttl <= 2 * MINUTE, "{ttl}");
}

/// Returns the TTL of a Redis key in milliseconds; negative if it has none or does not exist.
async fn ttl_ms(name: &str) -> i64 {
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("PTTL").arg(name).query_async(&mut connection).await.unwrap()
}

#[tokio::test]
async fn consume_has_no_effect_when_future_is_dropped() {
    let keys = Keyspace::new(format!("t{}:", random_letters()));
    let counters = redis();
    let request = one(Window::new(keys.window("key_a", MINUTE, "requests"), 5, MINUTE, 1));
    let mut pending: Vec<_> =
        (0..3).map(|_| Box::pin(counters.consume_windows(&request, Some(NOON)))).collect();
    // All requests are sent before any can be answered.
    for waiting in &mut pending {
        assert!(poll!(waiting).is_pending());
    }

    drop(pending.remove(1));
    let replies = join_all(pending).await;

    let effective: Vec<_> =
        replies.into_iter().map(|reply| reply.unwrap().windows[0].effective_count).collect();
    assert_eq!(effective, [0, 1]);
}

#[tokio::test]
async fn consume_reloads_scripts_when_redis_has_flushed_them() {
    let keys = Keyspace::new(format!("t{}:", random_letters()));
    let counters = redis();
    let request = one(Window::new(keys.window("key_a", MINUTE, "requests"), 5, MINUTE, 1));
    counters.consume_windows(&request, Some(NOON)).await.unwrap();
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut connection).await.unwrap();

    let again = counters.consume_windows(&request, Some(NOON)).await.unwrap();

    assert_eq!(again.windows[0].effective_count, 1);
}

#[tokio::test]
async fn request_is_not_executed_six_seconds_after_its_process_was_stopped() {
    let (old, new) = (redis(), redis());
    let keys = Keyspace::new(format!("t{}:", random_letters()));
    let request = |name| one(Window::new(keys.window("key_a", MINUTE, name), 3, MINUTE, 1));
    let (old_request, new_request) = (request("old"), request("new"));
    let mut old_call = pin!(old.consume_windows(&old_request, None));
    let mut new_call = pin!(new.consume_windows(&new_request, None));
    // A blocked thread is a stopped process to what would run on it.
    assert!(poll!(&mut old_call).is_pending());
    std::thread::sleep(Duration::from_millis(700));
    assert!(poll!(&mut new_call).is_pending());
    std::thread::sleep(Duration::from_millis(5_400));

    let (old_reply, new_reply) = (old_call.await, new_call.await);

    assert!(old_reply.as_ref().is_err_and(Error::is_redis_outage), "{old_reply:?}");
    assert!(new_reply.unwrap().is_admitted);
    for (request, expected) in [(&old_request, 0), (&new_request, 1)] {
        let count = new.consume_windows(request, None).await.unwrap().windows[0];
        assert_eq!(count.effective_count, expected);
    }
}

#[tokio::test]
async fn local_counters_drop_expired_windows_when_names_are_many() {
    let counters = local();
    let keys = Keyspace::new("");
    for n in 0..300_000_i64 {
        let now = NOON.plus_ms(n * 10);
        let window = Window::new(keys.window(&format!("key_{n}"), 1000, "requests"), 5, 1000, 1);
        counters.consume_at(&one(window), now);
    }

    // Two windows of a second hold 200 names at this rate; each shard sweeps when it has 1,024.
    assert!(counters.len() <= 64 * 1024 * 2, "{}", counters.len());
}

/// A step of the differential test.
#[derive(Debug, Clone)]
struct Step {
    /// The change of the clock before this request; may be negative. `None`: the request is sent together with the
    /// previous one, so that both may share a script.
    clock_ms: Option<i64>,
    /// For each window: its number, its limit, its cost.
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

fn requested_windows(step: &Step, keys: &Keyspace) -> Vec<Window> {
    // Half of the counters belong to a group with space for two of three.
    let name = keys.group("key_0");
    let group = CounterGroup { name, workspace: "ws_default".into(), live_max: 2 };
    let group = Arc::new(group);
    let windows = step.windows.iter().map(|(which, limit, cost)| {
        let duration = DURATIONS[usize::from(which % 3)];
        let key = keys.window(&format!("key_{which}"), duration, "requests");
        let window = Window::new(key, *limit, duration, *cost);
        if which % 2 == 0 { window.with_group(group.clone()) } else { window }
    });
    windows.collect()
}

/// Sends all requests to Redis at once, and to the other implementation one by one. Fails unless the replies are equal.
async fn assert_equal_replies(
    redis: &RedisCounters,
    local: &LocalCounters,
    requests: Vec<Vec<Window>>,
    now: Timestamp,
) -> Result<(), TestCaseError> {
    let redis_replies =
        join_all(requests.iter().map(|request| redis.consume_windows(request, Some(now)))).await;
    for (request, redis_reply) in requests.iter().zip(redis_replies) {
        prop_assert_eq!(
            redis_reply.unwrap(),
            local.consume_at(request, now),
            "{:?} of {:?}",
            request,
            requests
        );
    }
    Ok(())
}

/// 100 cases of 300 to 500 steps: 40,000 steps.
#[test]
fn script_and_local_counters_agree_on_every_step() {
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
        let keys = Keyspace::new(format!("t{}:", random_letters()));
        let local = local();
        let mut now = NOON;
        runtime.block_on(async {
            let mut together = Vec::new();
            for step in &steps {
                if step.clock_ms.is_some() {
                    let requests = std::mem::take(&mut together);
                    assert_equal_replies(&redis, &local, requests, now).await?;
                }
                now = now.plus_ms(step.clock_ms.unwrap_or(0));
                together.push(requested_windows(step, &keys));
            }
            assert_equal_replies(&redis, &local, together, now).await
        })
    });
    assert!(result.is_ok(), "{}", result.unwrap_err());
}
