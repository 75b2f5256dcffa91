//! Tests the format version of values in Redis: a value without one has version 1, and a value with a newer version
//! cannot be interpreted.

use limiter::redis::RedisCounters;
use limiter::{CloseResult, ConsumeRequest, Keyspace, LeaseSpend, LeaseState, TopUp, Window};
use redis::aio::MultiplexedConnection;

use super::*;

const NEWER_VERSION: u8 = 2;

async fn connection() -> MultiplexedConnection {
    let client = redis::Client::open(redis_url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

async fn stored(name: &str) -> Vec<u8> {
    redis::cmd("GET").arg(name).query_async(&mut connection().await).await.unwrap()
}

async fn write_value(name: &str, value: &[u8]) {
    let mut set = redis::cmd("SET");
    set.arg(name).arg(value).arg("PX").arg(MINUTE);
    set.exec_async(&mut connection().await).await.unwrap();
}

/// Returns a window as a program without format versions writes it: its number, its count, and the count of the
/// previous window.
fn unversioned(count: f64) -> Vec<u8> {
    #[expect(clippy::cast_precision_loss, reason = "the number of a minute is small")]
    let number = (NOON.0 / MINUTE) as f64;
    [number, count, 0.0].into_iter().flat_map(f64::to_be_bytes).collect()
}

fn window_name(keys: &Keyspace) -> String {
    keys.window("key_a", MINUTE, "requests")
}

fn requested_window(keys: &Keyspace, cost: i64) -> Vec<Window> {
    one(Window::new(window_name(keys), 5, MINUTE, cost))
}

#[tokio::test]
async fn window_gets_a_version_when_it_has_none() {
    let (counters, keys) = (redis(), Keyspace::new(format!("t{}:", random_letters())));
    let request = requested_window(&keys, 1);
    write_value(&window_name(&keys), &unversioned(3.0)).await;

    let reply = counters.consume_windows(&request, Some(NOON)).await.unwrap();

    assert_eq!((reply.is_admitted, reply.windows[0].effective_count), (true, 3));
    let expected = [unversioned(4.0), vec![1]].concat();
    assert_eq!(stored(&window_name(&keys)).await, expected);
}

#[tokio::test]
async fn window_is_full_and_unchanged_when_its_version_is_newer() {
    let (counters, keys) = (redis(), Keyspace::new(format!("t{}:", random_letters())));
    let value = [unversioned(3.0), vec![NEWER_VERSION], b"what it adds".to_vec()].concat();
    write_value(&window_name(&keys), &value).await;

    for cost in [0, 1] {
        let reply =
            counters.consume_windows(&requested_window(&keys, cost), Some(NOON)).await.unwrap();

        assert!(!reply.is_admitted, "cost {cost}");
        assert_eq!(reply.windows[0].remaining(&requested_window(&keys, cost)[0], false), 0);
    }
    assert_eq!(stored(&window_name(&keys)).await, value);
}

struct LeaseFixture {
    redis: RedisCounters,
    lease: String,
    generation: i64,
}

impl LeaseFixture {
    /// Opens a lease of 10 credits, of which 3 are spent.
    async fn open() -> Self {
        let redis = redis();
        let lease = Keyspace::new(format!("t{}:", random_letters())).lease("key_a", 1);
        let mut fixture = Self { redis, lease, generation: 0 };
        let peek = ConsumeRequest::with_spend(Vec::new(), fixture.spend(0));
        let reply = fixture.redis.consume(&peek, Some(NOON)).await.unwrap();
        fixture.generation = reply.lease.unwrap().redis_generation;
        assert_eq!(fixture.spend_lease(3, Some(10)).await, (true, LeaseState::Sufficient));
        fixture
    }

    fn spend(&self, cost: i64) -> LeaseSpend {
        LeaseSpend { lease: self.lease.clone(), cost, top_up: None }
    }

    async fn spend_lease(&self, cost: i64, opened_with: Option<i64>) -> (bool, LeaseState) {
        self.top_up_and_spend(cost, opened_with.map(|block| (0, block))).await
    }

    async fn top_up_and_spend(&self, cost: i64, block: Option<(i64, i64)>) -> (bool, LeaseState) {
        let ends = Timestamp((1 << 53) - 1);
        let fill = block.map(|(base, block)| {
            let (life, opens, bank) = (self.generation, base == 0, 0);
            TopUp {
                redis_generation: life,
                creates_lease: opens,
                granted_before: base,
                top_up: block,
                account_balance: bank,
                refill_at: ends,
            }
        });
        let spend = LeaseSpend { top_up: fill, ..self.spend(cost) };
        let request = ConsumeRequest::with_spend(Vec::new(), spend);
        let reply = self.redis.consume(&request, Some(NOON)).await.unwrap();
        (reply.is_admitted, reply.lease.unwrap().state)
    }

    async fn close(&self, idle: Duration) -> CloseResult {
        self.redis.close_lease(&self.lease, self.generation, idle, Some(NOON)).await.unwrap()
    }
}

const MOMENT: Duration = Duration::from_secs(1);

#[tokio::test]
async fn lease_gets_a_version_when_it_has_none() {
    let fixture = LeaseFixture::open().await;
    let mut value = stored(&fixture.lease).await;
    assert_eq!(value.pop(), Some(1));
    write_value(&fixture.lease, &value).await;

    assert_eq!(fixture.spend_lease(2, None).await, (true, LeaseState::Sufficient));
    assert_eq!(stored(&fixture.lease).await.len(), value.len() + 1);
    assert_eq!(fixture.close(Duration::ZERO).await, CloseResult::Closed { spent_units: 5 });
}

#[tokio::test]
async fn lease_is_not_spent_and_is_withheld_when_its_version_is_newer() {
    let fixture = LeaseFixture::open().await;
    let mut value = stored(&fixture.lease).await;
    value.pop();
    value.extend([NEWER_VERSION, 7, 7]);
    write_value(&fixture.lease, &value).await;

    assert_eq!(fixture.spend_lease(1, None).await, (false, LeaseState::Insufficient));
    assert_eq!(fixture.top_up_and_spend(1, Some((10, 5))).await, (false, LeaseState::NotFound));
    assert_eq!(stored(&fixture.lease).await, value);
    let leases = [fixture.lease.clone()];
    assert_eq!(
        fixture.redis.list_active_leases(&leases, MOMENT, Some(NOON)).await.unwrap(),
        [Some(0)]
    );
    assert_eq!(fixture.close(MOMENT).await, CloseResult::InUse);
    assert_eq!(fixture.close(Duration::ZERO).await, CloseResult::NotFound);
    assert_eq!(fixture.spend_lease(1, None).await, (false, LeaseState::Closed));
}
