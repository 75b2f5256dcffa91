//! Tests what becomes of requests and of costs that were admitted without Redis, while Redis is down, hangs, replies late or
//! rejects everything.

use limiter::redis::{ConsumeError, UnresolvedRequest};
use limiter::{ConsumeRequest, ReplicaRank};

use super::*;
use crate::servers::{Proxy, Redis};

const ALONE: ReplicaRank = ReplicaRank { rank: 0, replica_count: 1 };
/// How long a call may take, where a test does not wait for that.
pub(super) const LONG: Duration = Duration::from_secs(5);

/// Returns counters of a private Redis.
pub(super) fn counters_at(port: u16, timeout: Duration, metrics: &Metrics) -> RedisCounters {
    let address = RedisAddress::new(&format!("redis://127.0.0.1:{port}"), &RedisTls::default());
    RedisCounters::new(address, timeout, Keyspace::new("t:"), metrics).unwrap()
}

/// Returns a window that does not end during the test.
pub(super) fn window(name: &str, cost: i64) -> Window {
    Window::new(Keyspace::new("t:").window("key_a", 1, name), 100, 1_000 * 86_400_000, cost)
}

pub(super) async fn consume(
    counters: &RedisCounters,
    window: &Window,
) -> Result<i64, ConsumeError> {
    let request = ConsumeRequest::of_windows(one(window.clone()));
    Ok(counters.consume(&request, None).await?.windows[0].effective_count)
}

/// Decides a window without Redis.
pub(super) fn decide(
    counters: &RedisCounters,
    window: &Window,
    may_consume: bool,
    unresolved: Option<UnresolvedRequest>,
) -> bool {
    let windows = one(window.clone());
    counters.consume_share(&windows, ALONE, may_consume, unresolved, &Clock::System).0.is_admitted
}

/// Waits until a condition holds.
pub(super) async fn wait_until(what: &str, mut is_reached: impl AsyncFnMut() -> bool) {
    let began = Stopwatch::new();
    while !is_reached().await {
        assert!(began.elapsed() < Duration::from_secs(10), "not reached: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until these counters find that window with that count.
async fn wait_for_count(counters: &RedisCounters, window: &Window, count: i64) {
    let is_reached =
        async || consume(counters, &window.to_peek()).await.is_ok_and(|it| it == count);
    wait_until(&format!("{} has a count of {count}", window.key()), is_reached).await;
}

/// Sends what is due until others find this count in a window, and checks that sending again does not change it.
pub(super) async fn assert_charged_once(
    counters: &RedisCounters,
    others: &RedisCounters,
    window: &Window,
    count: i64,
) {
    let is_charged = async || {
        counters.adjust(Vec::new()).await;
        consume(others, &window.to_peek()).await.unwrap() == count
    };
    wait_until("the window is charged", is_charged).await;
    counters.adjust(Vec::new()).await;
    assert_eq!(consume(others, &window.to_peek()).await.unwrap(), count, "charged once");
}

/// Returns a number that Redis tells of itself, after this prefix.
pub(super) fn read_statistic(
    connection: &mut redis::Connection,
    section: &str,
    prefix: &str,
) -> u64 {
    let info: String = redis::cmd("INFO").arg(section).query(connection).unwrap();
    let found = info.lines().find_map(|line| line.strip_prefix(prefix)).expect(prefix);
    found.split(',').next().expect("a number").parse().unwrap()
}

fn set_redis_option(redis: &Redis, name: &str, value: &str) {
    redis::cmd("CONFIG").arg(&["SET", name, value]).exec(&mut redis.connect()).unwrap();
}

#[tokio::test]
async fn calls_fail_at_once_and_admissions_are_kept_when_redis_is_down() {
    let (mut server, metrics) = (Redis::start(), Metrics::default());
    let counters = counters_at(server.port, LONG, &metrics);
    let window = window("requests", 1);
    assert_eq!(consume(&counters, &window).await.unwrap(), 0);

    server.kill();
    for _ in 0..4 {
        assert!(!counters.is_breaker_open());
        let missed = consume(&counters, &window).await.unwrap_err();
        assert!(decide(&counters, &window, true, missed.unresolved));
    }

    assert!(counters.is_breaker_open());
    let missed = consume(&counters, &window).await.unwrap_err();
    assert!(matches!(missed.cause, Error::RedisBreakerOpen), "{missed:?}");
    let leases = ["p:a".to_owned()];
    let closing = counters.close_lease(&leases[0], 1, Duration::ZERO, None).await;
    assert!(matches!(closing, Err(Error::RedisBreakerOpen)), "{closing:?}");
    let listing = counters.list_active_leases(&leases, LONG, None).await;
    assert!(matches!(listing, Err(Error::RedisBreakerOpen)), "{listing:?}");
    assert_eq!((metrics.redis_calls.get(), metrics.redis_failures.get()), (5, 4));
    counters.send_due_charges();
    // What is sent now would be lost.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(counters.is_breaker_open());

    server.restart();

    wait_until("the circuit breaker is closed", async || !counters.is_breaker_open()).await;
    let other = counters_at(server.port, LONG, &Metrics::default());
    wait_for_count(&other, &window, 4).await;
    assert_eq!(metrics.local_costs_dropped.get(), 0);
    assert_eq!(consume(&counters, &window).await.unwrap(), 4);
}

#[tokio::test]
async fn breaker_opens_when_leases_cannot_be_closed() {
    let mut server = Redis::start();
    let counters = counters_at(server.port, LONG, &Metrics::default());
    server.kill();

    for _ in 0..4 {
        assert!(!counters.is_breaker_open());
        assert!(counters.close_lease("p:a", 1, Duration::ZERO, None).await.is_err());
    }

    assert!(counters.is_breaker_open());
}

#[tokio::test]
async fn late_requests_count_once_when_they_were_decided_without_redis() {
    let (server, metrics) = (Redis::start(), Metrics::default());
    let counters = counters_at(server.port, Duration::from_millis(100), &metrics);
    let (admitted, denied) = (window("admitted", 3), window("denied", 3));
    counters.connect(LONG).await.unwrap();

    server.signal("STOP");
    let mut admissions = 0;
    while !counters.is_breaker_open() {
        assert!(admissions < 10, "Redis is asked although it does not reply");
        let missed = consume(&counters, &admitted).await.unwrap_err();
        assert!(decide(&counters, &admitted, true, missed.unresolved));
        let missed = consume(&counters, &denied).await.unwrap_err();
        assert!(!decide(&counters, &denied, false, missed.unresolved));
        admissions += 1;
    }
    server.signal("CONT");

    let other = counters_at(server.port, LONG, &Metrics::default());
    wait_until("the circuit breaker is closed", async || !counters.is_breaker_open()).await;
    wait_for_count(&other, &admitted, 3 * admissions).await;
    wait_for_count(&other, &denied, 0).await;
    assert_eq!(metrics.local_costs_dropped.get(), 0);
}

#[tokio::test]
async fn admissions_are_charged_when_redis_has_hung_for_longer_than_late_replies_are_awaited() {
    let (server, metrics) = (Redis::start(), Metrics::default());
    let counters = counters_at(server.port, Duration::from_millis(100), &metrics);
    let window = window("requests", 1);
    // The reply tells the time of this Redis.
    wait_for_count(&counters, &window, 0).await;

    server.signal("STOP");
    let mut admissions = 0;
    while !counters.is_breaker_open() {
        assert!(admissions < 10, "Redis is asked although it does not reply");
        let missed = consume(&counters, &window).await.unwrap_err();
        assert!(decide(&counters, &window, true, missed.unresolved));
        admissions += 1;
    }
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    assert_eq!(metrics.local_costs_dropped.get(), 0);
    server.signal("CONT");

    let other = counters_at(server.port, LONG, &Metrics::default());
    wait_for_count(&other, &window, admissions).await;
}

/// The first caller times out, and a later one of the same script receives its reply.
#[tokio::test]
async fn request_is_refunded_when_its_caller_timed_out_and_was_denied_before_the_reply() {
    let server = Redis::start();
    let counters = counters_at(server.port, Duration::from_millis(300), &Metrics::default());
    let denied = window("denied", 1);
    let peek = window("others", 0);
    consume(&counters, &peek).await.unwrap();
    server.signal("STOP");
    let mut first = Box::pin(consume(&counters, &denied));
    assert!(poll!(&mut first).is_pending());
    let mut others = Vec::new();
    for _ in 0..40 {
        // Each arrives a little later. A step of more than 5 ms would count as a pause of the process.
        std::thread::sleep(Duration::from_millis(4));
        let mut call = Box::pin(consume(&counters, &peek));
        assert!(poll!(&mut call).is_pending());
        others.push(call);
    }

    let missed = first.await.unwrap_err();
    server.signal("CONT");
    assert!(!decide(&counters, &denied, false, missed.unresolved));
    let _ = others.pop().expect("a call").await;

    let other = counters_at(server.port, LONG, &Metrics::default());
    wait_for_count(&other, &denied, 0).await;
}

#[tokio::test]
async fn all_due_charges_are_sent_when_one_script_does_not_hold_them() {
    let server = Redis::start();
    let counters = counters_at(server.port, LONG, &Metrics::default());
    let windows: Vec<_> = (0..150).map(|n| window(&format!("n{n}"), 2)).collect();
    for window in &windows {
        assert!(decide(&counters, window, true, None));
    }

    counters.send_due_charges();

    let other = counters_at(server.port, LONG, &Metrics::default());
    let peeks: Vec<_> = windows.iter().map(Window::to_peek).collect();
    let are_charged = async || {
        let reply = other.consume_windows(&peeks, None).await.unwrap();
        reply.windows.iter().all(|count| count.effective_count == 2)
    };
    wait_until("all windows are charged", are_charged).await;
}

#[tokio::test]
async fn charges_wait_until_redis_accepts_writes() {
    let (server, metrics) = (Redis::start(), Metrics::default());
    let counters = counters_at(server.port, LONG, &metrics);
    let window = window("requests", 7);
    assert!(decide(&counters, &window, true, None));
    set_redis_option(&server, "maxmemory", "1");
    // Sends what is due and waits for it.
    counters.adjust(Vec::new()).await;
    let other = counters_at(server.port, LONG, &Metrics::default());
    assert_eq!(consume(&other, &window.to_peek()).await.unwrap(), 0);

    set_redis_option(&server, "maxmemory", "0");

    assert_charged_once(&counters, &other, &window, 7).await;
    assert_eq!(metrics.local_costs_dropped.get(), 0);
}

#[tokio::test]
async fn breaker_stays_open_while_redis_rejects_writes_and_closes_over_another_connection() {
    let server = Redis::start();
    let proxy = Proxy::to(format!("127.0.0.1:{}", server.port));
    let counters = counters_at(proxy.address.port(), LONG, &Metrics::default());
    let window = window("requests", 1);
    set_redis_option(&server, "maxmemory", "1");
    for _ in 0..4 {
        assert!(consume(&counters, &window).await.is_err());
    }
    assert!(counters.ping().await.is_ok(), "Redis replies to what writes nothing");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(counters.is_breaker_open());

    // The connection that Redis has replied on is lost.
    proxy.silence();
    set_redis_option(&server, "maxmemory", "0");

    wait_until("the circuit breaker is closed", async || !counters.is_breaker_open()).await;
    assert_eq!(consume(&counters, &window).await.unwrap(), 0);
}

#[tokio::test]
async fn connection_is_replaced_when_nothing_is_received_over_it() {
    let server = Redis::start();
    let proxy = Proxy::to(format!("127.0.0.1:{}", server.port));
    let metrics = Metrics::default();
    let connect = || counters_at(proxy.address.port(), Duration::from_millis(300), &metrics);
    let (pinging, consuming) = (connect(), connect());
    let window = window("requests", 1);
    for counters in [&pinging, &consuming] {
        counters.connect(LONG).await.unwrap();
    }
    wait_for_count(&consuming, &window, 0).await;

    proxy.silence();

    // The first call finds that there is no reply, and the second one that the connection is not usable.
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        let is_answered = pinging.ping().await.is_ok();
        outcomes.push((is_answered, consume(&consuming, &window).await.is_ok()));
    }
    assert_eq!((outcomes[0], outcomes[2]), ((false, false), (true, true)), "{outcomes:?}");
    assert!(!consuming.is_breaker_open());
}

#[tokio::test]
async fn connection_is_kept_when_redis_has_replied_late() {
    let server = Redis::start();
    let mut observer = server.connect();
    let mut count_connections =
        || read_statistic(&mut observer, "stats", "total_connections_received:");
    let counters = counters_at(server.port, Duration::from_millis(300), &Metrics::default());
    assert_eq!(counters.round_trip(), None);
    counters.connect(LONG).await.unwrap();
    assert!(counters.round_trip().is_some());
    let before = count_connections();

    server.signal("STOP");
    assert!(counters.ping().await.is_err());
    server.signal("CONT");

    counters.ping().await.unwrap();
    assert_eq!(count_connections(), before);
}

#[tokio::test]
async fn request_makes_no_other_call_to_redis() {
    let server = Redis::start();
    let mut observer = server.connect();
    let mut count_calls = || {
        ["cmdstat_ping:calls=", "cmdstat_set:calls="]
            .map(|prefix| read_statistic(&mut observer, "commandstats", prefix))
    };
    let counters = counters_at(server.port, LONG, &Metrics::default());
    let window = window("requests", 1);
    consume(&counters, &window).await.unwrap();
    let before = count_calls();

    for _ in 0..5 {
        consume(&counters, &window.to_peek()).await.unwrap();
    }

    assert_eq!(count_calls(), before, "the connection is not checked, and Redis is not probed");
}

#[tokio::test]
async fn consume_succeeds_at_once_when_redis_has_restarted() {
    let mut server = Redis::start();
    let counters = counters_at(server.port, LONG, &Metrics::default());
    let window = window("requests", 1);
    for _ in 0..3 {
        assert_eq!(consume(&counters, &window).await.unwrap(), 0);
        server.kill();
        server.restart();
    }
    server.kill();
    assert!(counters.connect(LONG).await.is_err());
}

/// It is sent before, and Redis hangs at that moment.
#[tokio::test]
async fn request_is_not_executed_six_seconds_after_its_arrival_when_redis_hangs() {
    let server = Redis::start();
    let counters = counters_at(server.port, LONG, &Metrics::default());
    let window = window("requests", 1);
    // The reply tells the time of this Redis.
    assert_eq!(consume(&counters, &window).await.unwrap(), 0);
    let call = consume(&counters, &window);
    let mut call = pin!(call);
    // A blocked thread is a stopped process to what would run on it.
    assert!(poll!(&mut call).is_pending());
    std::thread::sleep(Duration::from_millis(5_600));
    server.signal("STOP");
    let resume = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        server.signal("CONT");
    };

    let (reply, ()) = tokio::join!(call, resume);

    assert!(reply.as_ref().is_err_and(|missed| missed.cause.is_redis_outage()), "{reply:?}");
    assert_eq!(consume(&counters, &window.to_peek()).await.unwrap(), 1);
}
