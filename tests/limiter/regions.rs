//! Tests windows that several regions share, each with a Redis of its own.

use std::sync::atomic::AtomicUsize;

use limiter::{
    Away, ConsumeReply, ConsumeRequest, LeaseSpend, LeaseState, Moves, Placement, RegionIndex,
    TopUp, WindowHome, WindowLeaseState,
};

use super::outages::wait_until;
use super::*;
use crate::servers::Redis;

mod groups;
mod homes;
mod peeks;
mod statuses;

/// Three regions. The first is the home of all windows.
struct Regions {
    counters: Vec<Arc<RedisCounters>>,
    metrics: Vec<Metrics>,
    keys: Keyspace,
    servers: Vec<Redis>,
}

impl Regions {
    fn start() -> Self {
        let servers: Vec<_> = (0..3).map(|_| Redis::start()).collect();
        let keys = Keyspace::new("t:");
        let connect = |server: &Redis| {
            let address = RedisAddress::new(&server.url(), &RedisTls::default());
            let timeout = Duration::from_secs(5);
            RedisCounters::new(address, timeout, keys.clone(), &Metrics::default()).unwrap()
        };
        let metrics: Vec<_> = servers.iter().map(|_| Metrics::default()).collect();
        let counters = servers.iter().zip(&metrics).map(|(server, metrics)| {
            let counters =
                |other: &Redis| (other.port != server.port).then(|| Arc::new(connect(other)));
            let others = servers.iter().map(counters).collect();
            Arc::new(connect(server).with_regions(others, metrics))
        });
        Self { counters: counters.collect(), metrics, keys: keys.clone(), servers }
    }

    /// Returns the window as a region sees it.
    fn window(&self, region: usize, limit: i64, duration_ms: i64, cost: i64) -> Window {
        let name = self.keys.window("key_a", duration_ms, "requests");
        let lease = self.keys.window_lease(&name).into();
        let window = Window::new(name, limit, duration_ms, cost);
        let away = (region != 0).then(|| Arc::new(Away { home: RegionIndex(0), lease }));
        window.placed(&Placement { away, moves: None }, || NOON)
    }

    /// Consumes from a window whose home moves from the first region to the second one, a minute after noon, and from
    /// there to others, each a minute later.
    async fn admits_moving(
        &self,
        region: usize,
        (limit, cost): (i64, i64),
        later: &[u8],
        now: Timestamp,
    ) -> bool {
        let name = self.keys.window("key_m", MINUTE, "requests");
        let lease: Arc<str> = self.keys.window_lease(&name).into();
        let away = |home: u8| {
            let home_index = RegionIndex(home);
            let away = || Arc::new(Away { home: home_index, lease: lease.clone() });
            (usize::from(home) != region).then(away)
        };
        let homes = [0, 1].into_iter().chain(later.iter().copied());
        let homes = (NOON.0 / MINUTE..).zip(homes).enumerate().map(|(n, (number, home))| {
            WindowHome { first_window: if n == 0 { 0 } else { number }, away: away(home) }
        });
        let homes: Vec<_> = homes.collect();
        let last = homes.last().expect("two homes").away.clone();
        let begun = self.keys.begun_window(&name).into();
        let placement = Placement { away: last, moves: Some(Arc::new(Moves { homes, begun })) };
        let window = Window::new(name, limit, MINUTE, cost).placed(&placement, || now);
        self.consume(region, window, Some(now)).await.is_admitted
    }

    /// Consumes single units in all regions in turn until all are denied. Returns the number of admissions.
    async fn exhaust_moving(&self, limit: i64, later: &[u8], now: Timestamp) -> usize {
        let (mut admitted, mut denials) = (0, 0);
        for region in (0..3).cycle() {
            match self.admits_moving(region, (limit, 1), later, now).await {
                true => (admitted, denials) = (admitted + 1, 0),
                false => denials += 1,
            }
            if denials == 3 {
                break;
            }
        }
        admitted
    }

    async fn consume(&self, region: usize, window: Window, now: Option<Timestamp>) -> ConsumeReply {
        let request = ConsumeRequest::of_windows(vec![window]);
        self.counters[region].consume(&request, now).await.unwrap()
    }

    async fn admits(&self, region: usize, limit: i64, cost: i64, now: Timestamp) -> bool {
        self.consume(region, self.window(region, limit, MINUTE, cost), Some(now)).await.is_admitted
    }
}

fn after(ms: i64) -> Timestamp {
    Timestamp(NOON.0 + ms)
}

#[tokio::test]
async fn limit_is_shared_when_regions_consume_in_turn() {
    let regions = Regions::start();
    let mut admitted = 0;
    for n in 0..40 {
        admitted += usize::from(regions.admits(n % 3, 20, 1, NOON).await);
    }
    assert_eq!(admitted, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_is_exact_when_regions_consume_concurrently() {
    let regions = Arc::new(Regions::start());
    for (limit, each) in [(1_i64, 5), (7, 20), (300, 200)] {
        let admitted = Arc::new(AtomicUsize::new(0));
        let duration_ms = 3_600_000 + limit;
        let callers = (0..30).map(|n| {
            let (regions, admitted) = (regions.clone(), admitted.clone());
            tokio::spawn(async move {
                for _ in 0..each {
                    let window = regions.window(n % 3, limit, duration_ms, 1);
                    let reply = regions.consume(n % 3, window, None).await;
                    admitted.fetch_add(usize::from(reply.is_admitted), Ordering::Relaxed);
                }
            })
        });
        for caller in join_all(callers).await {
            caller.unwrap();
        }
        let admitted = i64::try_from(admitted.load(Ordering::Relaxed)).unwrap();
        assert!(admitted <= limit, "{admitted} of {limit}");
        assert!(admitted * 100 >= limit * 95 - 200, "{admitted} of {limit}");
    }
}

#[tokio::test]
async fn lease_ends_with_its_window() {
    let regions = Regions::start();
    // The first request asks for its own cost; the second one sees a demand.
    for _ in 0..2 {
        assert!(regions.admits(1, 1_000, 1, after(59_000)).await);
    }
    let lease = |reply: ConsumeReply| reply.regional.unwrap().leases[0];
    let window = || regions.window(1, 1_000, MINUTE, 1);
    let before = lease(regions.consume(1, window(), Some(after(59_999))).await);
    let afterwards = lease(regions.consume(1, window(), Some(after(60_000))).await);

    assert_eq!(before.window_number + 1, afterwards.window_number);
}

#[tokio::test]
async fn lease_is_not_used_for_another_limit() {
    let regions = Regions::start();
    for _ in 0..5 {
        assert!(regions.admits(1, 1_000, 10, NOON).await);
    }
    assert!(!regions.admits(1, 50, 1, NOON).await, "50 were admitted");
    assert!(regions.admits(2, 1_000, 10, NOON).await);
}

#[tokio::test]
async fn top_up_is_added_once_when_its_request_waits_for_a_grant() {
    let regions = Regions::start();
    let lease = regions.keys.lease("key_a", 1);
    let spend = async |windows, top_up| {
        let spend = LeaseSpend { lease: lease.clone(), cost: 1, top_up };
        let request = ConsumeRequest::with_spend(windows, spend);
        regions.counters[1].consume(&request, Some(NOON)).await.unwrap()
    };
    let generation = spend(Vec::new(), None).await.lease.unwrap().redis_generation;
    let top_up = TopUp {
        redis_generation: generation,
        creates_lease: true,
        granted_before: 0,
        top_up: 5,
        account_balance: 0,
        refill_at: after(MINUTE),
    };

    let reply = spend(vec![regions.window(1, 100, MINUTE, 1)], Some(top_up)).await;

    assert!(reply.is_admitted);
    let lease = reply.lease.unwrap();
    assert_eq!((lease.state, lease.units, lease.spent_units), (LeaseState::Sufficient, 4, 1));
}

#[tokio::test]
async fn units_at_rest_are_given_back() {
    let regions = Regions::start();
    for _ in 0..10 {
        assert!(regions.admits(1, 1_000, 5, NOON).await);
    }
    let peek = || regions.window(0, 1_000, MINUTE, 0);
    let counted = regions.consume(0, peek(), Some(NOON)).await.windows[0].effective_count;
    assert!(counted > 50, "{counted}: more is granted than was spent");

    regions.counters[1].give_back_rests(Some(after(900))).await.unwrap();
    let early = regions.consume(0, peek(), Some(after(900))).await.windows[0].effective_count;
    regions.counters[1].give_back_rests(Some(after(1_100))).await.unwrap();
    let late = regions.consume(0, peek(), Some(after(1_100))).await.windows[0].effective_count;

    assert_eq!((early, late), (counted, 50));
}

#[tokio::test]
async fn denials_do_not_ask_the_home_again_until_it_may_have_units() {
    let regions = Regions::start();
    assert!(regions.admits(0, 10, 10, NOON).await);
    assert!(!regions.admits(1, 10, 1, NOON).await);
    let window = regions.window(1, 10, MINUTE, 1);
    let reply = regions.consume(1, window, Some(after(500))).await;

    assert_eq!(reply.regional.unwrap().leases[0].state, WindowLeaseState::Denied);
    assert!(!reply.is_admitted);
    assert_eq!(reply.windows[0].effective_count, 10);
}

#[tokio::test]
async fn home_is_asked_without_waiting_for_a_second_after_a_denial() {
    let regions = Regions::start();
    assert!(regions.admits(0, 10, 10, after(59_000)).await);
    assert!(regions.admits(0, 10, 1, after(60_001)).await);
    let state = async |ms| {
        let reply = regions.consume(1, regions.window(1, 10, MINUTE, 1), Some(after(ms))).await;
        reply.regional.unwrap().leases[0].state
    };
    // After another half a second, only eight of the ten count.
    assert_eq!(state(65_500).await, WindowLeaseState::Denied);
    assert_eq!(state(65_999).await, WindowLeaseState::Denied);

    assert_eq!(state(66_400).await, WindowLeaseState::Scarce);

    // The request was rejected, but its unit arrives.
    let arrival = async {
        while state(66_400).await == WindowLeaseState::Scarce {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), arrival).await.expect("a unit arrives");
    // A longer time after a denial, callers wait again.
    assert!(regions.admits(1, 10, 1, after(74_000)).await);
}

#[tokio::test]
async fn nobody_waits_for_the_last_fiftieth_of_a_limit() {
    let regions = Regions::start();
    assert!(regions.admits(0, 1_000, 980, NOON).await);
    let consume =
        async |cost| regions.consume(1, regions.window(1, 1_000, MINUTE, cost), Some(NOON)).await;
    // A sixth of what is left.
    assert!(consume(1).await.is_admitted);
    assert!(consume(2).await.is_admitted);

    let rejected = consume(5).await;

    assert_eq!(rejected.regional.unwrap().leases[0].state, WindowLeaseState::Scarce);
    // Its units arrive for later requests.
    let arrival = async {
        while !consume(5).await.is_admitted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), arrival).await.expect("five units arrive");
}

#[tokio::test]
async fn small_limit_is_admitted_in_one_region_although_its_home_grants_no_reserve() {
    let regions = Regions::start();
    let peek = || regions.window(1, 5, MINUTE, 0);
    let lease = async || regions.consume(1, peek(), Some(NOON)).await.regional.unwrap().leases[0];
    for n in 0..5 {
        assert!(regions.admits(1, 5, 1, NOON).await, "request {n}");
        // Each request spends what was granted for it, so the home is asked ahead of need.
        wait_until("the home answers", async || lease().await.granted_units == 0).await;
    }
    assert!(!regions.admits(1, 5, 1, NOON).await);
}

#[tokio::test]
async fn denial_ends_with_its_window() {
    let regions = Regions::start();
    assert!(regions.admits(0, 10, 10, after(59_000)).await);
    assert!(!regions.admits(1, 10, 1, after(59_950)).await);

    assert!(regions.admits(1, 10, 1, after(60_010)).await);
}

#[tokio::test]
async fn first_grant_covers_an_unknown_demand_although_the_lease_was_read_before() {
    let regions = Regions::start();
    regions.consume(1, regions.window(1, 2_000, MINUTE, 0), Some(NOON)).await;
    assert!(regions.admits(1, 2_000, 1, NOON).await);

    let peek = regions.window(0, 2_000, MINUTE, 0);
    let counted = regions.consume(0, peek, Some(NOON)).await.windows[0].effective_count;
    assert_eq!(counted, 20);
}

#[tokio::test]
async fn count_moves_with_the_home_of_a_window() {
    let regions = Regions::start();
    for _ in 0..30 {
        assert!(regions.admits_moving(0, (100, 1), &[], after(30_000)).await);
    }

    // At its begin, all of the window before counts; half way through, half of it.
    assert_eq!(regions.exhaust_moving(100, &[], after(60_000)).await, 70);
    assert_eq!(
        regions.exhaust_moving(100, &[], after(59_999)).await,
        0,
        "a clock that is late for the move"
    );
    assert_eq!(regions.exhaust_moving(100, &[], after(90_000)).await, 15);
    // The home has moved long ago.
    assert_eq!(regions.exhaust_moving(100, &[], after(300_000)).await, 100);
}

#[tokio::test]
async fn moved_window_counts_as_used_up_when_its_old_home_cannot_be_read() {
    let mut regions = Regions::start();
    assert!(regions.admits_moving(0, (100, 1), &[], NOON).await);
    regions.servers[0].kill();

    assert!(!regions.admits_moving(1, (100, 1), &[], after(60_000)).await);
    assert!(!regions.admits_moving(2, (100, 51), &[], after(90_000)).await);
    assert!(regions.admits_moving(2, (100, 50), &[], after(90_000)).await);
}

#[tokio::test]
async fn count_moves_on_when_a_home_moves_again_in_the_next_window() {
    let regions = Regions::start();
    // To the third region, and back to the first.
    let later = [2, 0];
    for _ in 0..60 {
        assert!(regions.admits_moving(0, (100, 1), &later, after(30_000)).await);
    }

    // Half way through each window, half of the one before counts.
    let mut admitted = Vec::new();
    for minute in 1..=4 {
        admitted.push(regions.exhaust_moving(100, &later, after(minute * 60_000 + 30_000)).await);
    }
    assert_eq!(admitted, [70, 65, 68, 66]);
}
