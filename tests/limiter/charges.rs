//! Costs that are added to windows after they were admitted without Redis.

use std::time::Duration;

use foundation::clock::{Clock, Stopwatch, Timestamp};
use limiter::{Keyspace, ReplicaRank, Window, WindowCounters as _};

use super::{MINUTE, lifetime_ms, one, redis};
use crate::support::{NOON, random, redis_url};

/// Runs `lua/charge.lua` at this time: the effective count afterwards and the number of the window.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "whole numbers that a double holds"
)]
async fn charge(name: &str, number: i64, cost: i64, now: Timestamp) -> [i64; 2] {
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let numbers: Vec<u8> =
        [number, MINUTE, cost].iter().flat_map(|it| (*it as f64).to_be_bytes()).collect();
    let reply: Vec<u8> = redis::cmd("EVAL")
        .arg(include_str!("../../lua/charge.lua"))
        .arg(1)
        .arg(name)
        .arg(now.0)
        .arg(numbers)
        .query_async(&mut connection)
        .await
        .unwrap();
    let (numbers, _) = reply.as_chunks();
    [f64::from_be_bytes(numbers[0]) as i64, f64::from_be_bytes(numbers[1]) as i64]
}

fn name() -> String {
    Keyspace::new(format!("t{}:", random())).window("key_a", MINUTE, "requests")
}

#[tokio::test]
async fn charge_counts_in_its_own_window_and_not_below_zero() {
    let (name, start) = (name(), Timestamp(NOON.0 / MINUTE * MINUTE));
    let number = start.0 / MINUTE;
    let now = start.plus_ms(MINUTE / 2);
    let current = number;

    assert_eq!(charge(&name, number, -5, now).await, [0, current], "there is nothing to refund");
    assert!(lifetime_ms(&name).await < 0, "nothing was written");
    assert_eq!(charge(&name, number, 7, now).await, [7, current]);
    assert_eq!(charge(&name, number - 1, 8, now).await, [11, current], "half of it counts");
    assert_eq!(charge(&name, number - 2, 100, now).await, [11, current], "it is over");
    assert_eq!(charge(&name, number + 1, 1, now).await, [12, current], "its clock is ahead");
    assert_eq!(charge(&name, number, -3, now).await, [9, current]);
    assert_eq!(charge(&name, number, -30, now).await, [4, current]);
    let next = now.plus_ms(MINUTE);
    assert_eq!(charge(&name, number, 6, next).await, [3, current + 1]);
    let ttl = lifetime_ms(&name).await;
    assert!((1..=2 * MINUTE).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn charged_windows_deny_what_take_would_have_admitted() {
    let (name, start) = (name(), Timestamp(NOON.0 / MINUTE * MINUTE));
    let take = |cost| one(Window::new(name.clone(), 10, MINUTE, cost));
    let engine = redis();
    engine.consume_windows(&take(3), Some(start)).await.unwrap();

    charge(&name, start.0 / MINUTE, 6, start).await;

    assert!(!engine.consume_windows(&take(2), Some(start)).await.unwrap().is_admitted);
    let last = engine.consume_windows(&take(1), Some(start)).await.unwrap();
    assert!(last.is_admitted && last.windows[0].effective == 9);
}

#[tokio::test]
async fn local_admissions_are_charged_once_when_redis_replies() {
    let (engine, name) = (redis(), name());
    // Long enough that it does not end meanwhile.
    let window = |cost| Window::new(name.clone(), 10, 1_000 * 86_400_000, cost);
    engine.consume_windows(&one(window(3)), None).await.unwrap();

    let alone = ReplicaRank { rank: 0, replicas: 1 };
    let consume =
        |cost| engine.consume_share(&one(window(cost)), alone, true, None, &Clock::System);
    assert!(consume(4).0.is_admitted);
    assert!(!consume(4).0.is_admitted, "3 are left");
    engine.charge_due();

    let watch = Stopwatch::new();
    let count =
        async || engine.consume_windows(&one(window(0)), None).await.unwrap().windows[0].effective;
    while count().await != 7 {
        assert!(watch.elapsed() < Duration::from_secs(5), "{}", count().await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    engine.charge_due();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(count().await, 7);
}

#[tokio::test]
async fn window_of_a_later_version_stays_as_it_is_when_charged() {
    let name = name();
    let value = [vec![0; 24], vec![2, 7]].concat();
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut set = redis::cmd("SET");
    set.arg(&name).arg(&value).arg("PX").arg(MINUTE);
    set.exec_async(&mut connection).await.unwrap();

    let [effective, _] = charge(&name, NOON.0 / MINUTE, 1, NOON).await;

    assert!(effective >= 1 << 45, "it is full");
    let stored: Vec<u8> = redis::cmd("GET").arg(&name).query_async(&mut connection).await.unwrap();
    assert_eq!(stored, value);
}
