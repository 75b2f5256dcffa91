//! Tests what a region asks of the home of a window and returns to it, beside the decisions.

use limiter::{Adjustment, ReplicaRank};

use super::super::outages::read_statistic;
use super::*;

impl Regions {
    /// Returns what the home has counted in a window of this limit.
    async fn home_count(&self, limit: i64) -> i64 {
        let peek = self.window(0, limit, MINUTE, 0);
        self.consume(0, peek, Some(NOON)).await.windows[0].effective_count
    }
}

#[tokio::test]
async fn metrics_count_what_is_asked_granted_and_returned() {
    let regions = Regions::start();
    let metrics = &regions.metrics[1].regions;
    // The first request waits for its home, which then grants more than it needs.
    for _ in 0..3 {
        assert!(regions.admits(1, 1_000, 1, NOON).await);
    }
    let granted = regions.home_count(1_000).await;
    assert!(granted > 3, "{granted}");

    regions.counters[1].give_back_rests(Some(after(1_100))).await.unwrap();

    assert_eq!(regions.home_count(1_000).await, 3);
    assert_eq!((metrics.decisions.waited.get(), metrics.decisions.local.get()), (1, 2));
    assert_eq!(metrics.grants_requested.get(), 1);
    let units = (metrics.units_granted.get(), metrics.units_returned.get());
    assert_eq!(units, (granted.unsigned_abs(), granted.unsigned_abs() - 3));
}

#[tokio::test]
async fn units_are_kept_when_the_limit_is_raised() {
    let regions = Regions::start();
    let metrics = &regions.metrics[1].regions;
    assert!(regions.admits(1, 50, 1, NOON).await);
    let granted = regions.home_count(50).await;
    assert!(granted > 3, "{granted}");

    assert!(regions.admits(1, 1_000, 1, NOON).await);
    assert_eq!(metrics.grants_requested.get(), 1, "what was granted fits into a higher limit");
    assert!(regions.admits(1, 1_000, granted, NOON).await);
    regions.counters[1].give_back_rests(Some(after(1_100))).await.unwrap();

    assert_eq!(regions.home_count(1_000).await, 2 + granted);
}

#[tokio::test]
async fn units_are_not_given_back_to_another_redis_generation() {
    let regions = Regions::start();
    for _ in 0..3 {
        assert!(regions.admits(1, 1_000, 1, NOON).await);
    }
    let granted = regions.home_count(1_000).await;
    assert!(granted > 3, "{granted}");
    // A server that is promoted has the data of the primary, perhaps without its last writes, and another replication ID.
    let mut home = regions.servers[0].connect();
    for primary in [["127.0.0.1", "1"], ["NO", "ONE"]] {
        redis::cmd("REPLICAOF").arg(&primary).exec(&mut home).unwrap();
    }

    regions.counters[1].give_back_rests(Some(after(1_100))).await.unwrap();

    assert_eq!(regions.home_count(1_000).await, granted);
}

#[tokio::test]
async fn leases_that_have_ended_are_not_asked_for_again() {
    let regions = Regions::start();
    assert!(regions.admits(1, 1_000, 1, NOON).await);
    let mut here = regions.servers[1].connect();
    let window = regions.keys.window("key_a", MINUTE, "requests");
    let deleted: u64 =
        redis::cmd("DEL").arg(regions.keys.window_lease(&window)).query(&mut here).unwrap();
    assert_eq!(deleted, 1);
    let mut count_scripts = || read_statistic(&mut here, "commandstats", "cmdstat_evalsha:calls=");
    let give_back = || regions.counters[1].give_back_rests(Some(after(1_100)));
    let before = count_scripts();
    give_back().await.unwrap();
    let first = count_scripts();

    give_back().await.unwrap();

    assert!(first > before);
    assert_eq!(count_scripts(), first);
}

#[tokio::test]
async fn leases_whose_units_were_given_back_are_not_asked_for_again() {
    let regions = Regions::start();
    assert!(regions.admits(1, 1_000, 1, NOON).await);
    let mut here = regions.servers[1].connect();
    let mut count_scripts = || read_statistic(&mut here, "commandstats", "cmdstat_evalsha:calls=");
    let give_back = || regions.counters[1].give_back_rests(Some(after(1_100)));
    give_back().await.unwrap();
    assert_eq!(regions.home_count(1_000).await, 1);
    // The lease is found empty.
    give_back().await.unwrap();
    let before = count_scripts();

    give_back().await.unwrap();

    assert_eq!(count_scripts(), before);
    // A request takes units again, and they return.
    assert!(regions.admits(1, 1_000, 1, NOON).await);
    give_back().await.unwrap();
    assert_eq!(regions.home_count(1_000).await, 2);
}

#[tokio::test]
async fn adjustment_changes_the_count_at_the_home() {
    let regions = Regions::start();
    // Long enough that it does not end during the test.
    let window = |region, cost| regions.window(region, 1_000, 1_000 * 86_400_000, cost);
    assert!(regions.consume(0, window(0, 10), None).await.is_admitted);
    let peek = regions.consume(0, window(0, 0), None).await.windows[0];
    assert_eq!(peek.effective_count, 10);

    let adjustment =
        Adjustment { window: window(1, 0), window_number: peek.window_number, units: -4 };
    regions.counters[1].adjust(vec![adjustment]).await;

    let began = Stopwatch::new();
    while regions.consume(0, window(0, 0), None).await.windows[0].effective_count != 6 {
        assert!(began.elapsed() < Duration::from_secs(10), "the home is not charged");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_was_admitted_without_the_home_counts_until_the_home_has_counted_it() {
    let mut regions = Regions::start();
    // Long enough that it does not end during the test.
    let window =
        |regions: &Regions, region, cost| regions.window(region, 100, 1_000 * 86_400_000, cost);
    let share = |regions: &Regions| {
        let windows = one(window(regions, 1, 1));
        let alone = ReplicaRank { rank: 0, replica_count: 1 };
        let admits = |_: &i32| {
            let counters = &regions.counters[1];
            counters.consume_share(&windows, alone, true, None, &Clock::System).0.is_admitted
        };
        (0..200).filter(admits).count()
    };
    regions.servers[0].kill();
    assert_eq!(share(&regions), 100);
    assert_eq!(share(&regions), 0);
    regions.servers[0].restart();
    let is_counted = async |count| {
        regions.counters[1].send_due_charges();
        let request = ConsumeRequest::of_windows(one(window(&regions, 0, 0)));
        let reply = regions.counters[0].consume(&request, None).await;
        reply.is_ok_and(|reply| reply.windows[0].effective_count == count)
    };
    wait_until("the home has counted it", async || is_counted(100).await).await;

    // What is returned there may be admitted again.
    let home_window = window(&regions, 0, 0);
    let number = regions.consume(0, home_window.clone(), None).await.windows[0].window_number;
    let adjustment = Adjustment { window: home_window, window_number: number, units: -60 };
    regions.counters[0].adjust(vec![adjustment]).await;
    wait_until("it is returned", async || is_counted(40).await).await;
    let told = regions.consume(1, window(&regions, 1, 0), None).await;
    assert_eq!(told.windows[0].effective_count, 40);

    assert_eq!(share(&regions), 60);
}

#[tokio::test]
async fn redis_keeps_the_region_that_it_was_marked_with_first() {
    let counters = redis();
    assert_eq!(counters.load_region().await.unwrap(), None);

    assert_eq!(counters.mark_region("eu").await.unwrap(), "eu");

    assert_eq!(counters.mark_region("us").await.unwrap(), "eu");
    assert_eq!(counters.load_region().await.unwrap().as_deref(), Some("eu"));
}
