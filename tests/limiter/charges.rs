//! Tests costs that are added to windows after they were admitted without Redis.

use std::time::Duration;

use foundation::clock::{Clock, Stopwatch, Timestamp};
use foundation::metrics::Metrics;
use limiter::{Keyspace, ReplicaRank, Window, WindowCounters as _};

use super::outages::{LONG, assert_charged_once, consume, counters_at, decide, wait_until, window};
use super::{MINUTE, one, redis, ttl_ms};
use crate::servers::Redis;
use crate::support::{NOON, random_letters, redis_url};

/// Runs `lua/charge.lua` at this time. Returns the effective count afterwards and the number of the window.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "whole numbers that a double holds"
)]
async fn charge(window_name: &str, number: i64, cost: i64, now: Timestamp) -> [i64; 2] {
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let numbers: Vec<u8> =
        [number, MINUTE, cost].iter().flat_map(|it| (*it as f64).to_be_bytes()).collect();
    let reply: Vec<u8> = redis::cmd("EVAL")
        .arg(include_str!("../../lua/charge.lua"))
        .arg(1)
        .arg(window_name)
        .arg(now.0)
        .arg(numbers)
        .query_async(&mut connection)
        .await
        .unwrap();
    let (numbers, _) = reply.as_chunks();
    [f64::from_be_bytes(numbers[0]) as i64, f64::from_be_bytes(numbers[1]) as i64]
}

fn window_name() -> String {
    Keyspace::new(format!("t{}:", random_letters())).window("key_a", MINUTE, "requests")
}

#[tokio::test]
async fn charge_counts_in_its_own_window_and_not_below_zero() {
    let (window_name, start) = (window_name(), Timestamp(NOON.0 / MINUTE * MINUTE));
    let number = start.0 / MINUTE;
    let now = start.plus_ms(MINUTE / 2);
    let current = number;

    assert_eq!(
        charge(&window_name, number, -5, now).await,
        [0, current],
        "there is nothing to refund"
    );
    assert!(ttl_ms(&window_name).await < 0, "nothing was written");
    assert_eq!(charge(&window_name, number, 7, now).await, [7, current]);
    assert_eq!(charge(&window_name, number - 1, 8, now).await, [11, current], "half of it counts");
    assert_eq!(
        charge(&window_name, number - 2, 100, now).await,
        [11, current],
        "the window is over"
    );
    assert_eq!(
        charge(&window_name, number + 1, 1, now).await,
        [12, current],
        "the clock of the charge is ahead"
    );
    assert_eq!(charge(&window_name, number, -3, now).await, [9, current]);
    assert_eq!(
        charge(&window_name, number, -7, now).await,
        [3, current],
        "5 of them are of this window, and 2 of the one before"
    );
    assert_eq!(charge(&window_name, number, -30, now).await, [0, current]);
    let next = now.plus_ms(MINUTE);
    assert_eq!(charge(&window_name, number, 6, next).await, [3, current + 1]);
    let ttl = ttl_ms(&window_name).await;
    assert!((1..=2 * MINUTE).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn charged_window_denies_when_charge_fills_it() {
    let (window_name, start) = (window_name(), Timestamp(NOON.0 / MINUTE * MINUTE));
    let request = |cost| one(Window::new(window_name.clone(), 10, MINUTE, cost));
    let counters = redis();
    counters.consume_windows(&request(3), Some(start)).await.unwrap();

    charge(&window_name, start.0 / MINUTE, 6, start).await;

    assert!(!counters.consume_windows(&request(2), Some(start)).await.unwrap().is_admitted);
    let last = counters.consume_windows(&request(1), Some(start)).await.unwrap();
    assert!(last.is_admitted && last.windows[0].effective_count == 9);
}

#[tokio::test]
async fn local_admissions_are_charged_once_when_redis_replies() {
    let (counters, window_name) = (redis(), window_name());
    // Long enough that it does not end during the test.
    let window = |cost| Window::new(window_name.clone(), 10, 1_000 * 86_400_000, cost);
    counters.consume_windows(&one(window(3)), None).await.unwrap();

    let alone = ReplicaRank { rank: 0, replica_count: 1 };
    let consume =
        |cost| counters.consume_share(&one(window(cost)), alone, true, None, &Clock::System);
    assert!(consume(4).0.is_admitted);
    assert!(!consume(4).0.is_admitted, "3 are left");
    counters.send_due_charges();

    let watch = Stopwatch::new();
    let count = async || {
        counters.consume_windows(&one(window(0)), None).await.unwrap().windows[0].effective_count
    };
    while count().await != 7 {
        assert!(watch.elapsed() < Duration::from_secs(5), "{}", count().await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    counters.send_due_charges();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(count().await, 7);
}

#[tokio::test]
async fn charges_are_sent_when_redis_has_replied_to_a_request() {
    let server = Redis::start();
    let connect = || counters_at(server.port, LONG, &Metrics::default());
    let (counters, other) = (connect(), connect());
    let (admitted, requested) = (window("admitted", 3), window("requested", 0));
    assert!(decide(&counters, &admitted, true, None));

    let is_charged = async || {
        consume(&counters, &requested).await.unwrap();
        consume(&other, &admitted.to_peek()).await.unwrap() == 3
    };
    wait_until("the window is charged", is_charged).await;
}

/// Redis has accepted the probe before.
#[tokio::test]
async fn charges_are_sent_again_when_redis_has_rejected_their_script() {
    let (server, metrics) = (Redis::start(), Metrics::default());
    let set_permission = |rule: &str| {
        let mut command = redis::cmd("ACL");
        command.arg(&["SETUSER", "default", rule]).exec(&mut server.connect()).unwrap();
    };
    let counters = counters_at(server.port, LONG, &metrics);
    let window = window("requests", 7);
    assert!(decide(&counters, &window, true, None));
    set_permission("-evalsha");
    let is_rejected = async || {
        // Sends what is due and waits for it.
        counters.adjust(Vec::new()).await;
        let mut command = redis::cmd("INFO");
        let errors: String = command.arg("errorstats").query(&mut server.connect()).unwrap();
        errors.contains("NOPERM")
    };
    wait_until("the script is rejected", is_rejected).await;

    set_permission("+evalsha");

    let other = counters_at(server.port, LONG, &Metrics::default());
    assert_charged_once(&counters, &other, &window, 7).await;
    assert_eq!(metrics.local_costs_dropped.get(), 0);
}

#[tokio::test]
async fn charge_keeps_window_when_its_version_is_newer() {
    let window_name = window_name();
    let value = [vec![0; 24], vec![2, 7]].concat();
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut set = redis::cmd("SET");
    set.arg(&window_name).arg(&value).arg("PX").arg(MINUTE);
    set.exec_async(&mut connection).await.unwrap();

    let [effective, _] = charge(&window_name, NOON.0 / MINUTE, 1, NOON).await;

    assert!(effective >= 1 << 45, "the window is full");
    let stored: Vec<u8> =
        redis::cmd("GET").arg(&window_name).query_async(&mut connection).await.unwrap();
    assert_eq!(stored, value);
}
