//! The version of the format that values in Redis carry: none is version 1, and of a later one nothing is known.

use limiter::redis::RedisCounters;
use limiter::{CloseResult, ConsumeRequest, Keyspace, LeaseSpend, LeaseState, TopUp, Window};
use redis::aio::MultiplexedConnection;

use super::*;

const LATER: u8 = 2;

async fn connection() -> MultiplexedConnection {
    let client = redis::Client::open(redis_url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

async fn stored(name: &str) -> Vec<u8> {
    redis::cmd("GET").arg(name).query_async(&mut connection().await).await.unwrap()
}

async fn store(name: &str, value: &[u8]) {
    let mut set = redis::cmd("SET");
    set.arg(name).arg(value).arg("PX").arg(MINUTE);
    set.exec_async(&mut connection().await).await.unwrap();
}

/// A window as a program without versions writes it: its number, its count, and that of the one before.
fn unversioned(count: f64) -> Vec<u8> {
    #[expect(clippy::cast_precision_loss, reason = "the number of a minute is small")]
    let number = (NOON.0 / MINUTE) as f64;
    [number, count, 0.0].into_iter().flat_map(f64::to_be_bytes).collect()
}

fn name(keys: &Keyspace) -> String {
    keys.window("key_a", MINUTE, "requests")
}

fn window(keys: &Keyspace, cost: i64) -> Vec<Window> {
    one(Window::new(name(keys), 5, MINUTE, cost))
}

#[tokio::test]
async fn window_without_a_version_is_counted_on_and_gets_one() {
    let (engine, keys) = (redis(), Keyspace::new(format!("t{}:", random())));
    let take = window(&keys, 1);
    store(&name(&keys), &unversioned(3.0)).await;

    let taken = engine.consume_windows(&take, Some(NOON)).await.unwrap();

    assert_eq!((taken.is_admitted, taken.windows[0].effective), (true, 3));
    let expected = [unversioned(4.0), vec![1]].concat();
    assert_eq!(stored(&name(&keys)).await, expected);
}

#[tokio::test]
async fn window_of_a_later_version_admits_nothing_and_stays_as_it_is() {
    let (engine, keys) = (redis(), Keyspace::new(format!("t{}:", random())));
    let value = [unversioned(3.0), vec![LATER], b"what it adds".to_vec()].concat();
    store(&name(&keys), &value).await;

    for cost in [0, 1] {
        let taken = engine.consume_windows(&window(&keys, cost), Some(NOON)).await.unwrap();

        assert!(!taken.is_admitted, "cost {cost}");
        assert_eq!(taken.windows[0].remaining(&window(&keys, cost)[0], false), 0);
    }
    assert_eq!(stored(&name(&keys)).await, value);
}

struct House {
    redis: RedisCounters,
    purse: String,
    life: i64,
}

impl House {
    /// With a purse of 10 units, of which 3 are spent.
    async fn open() -> Self {
        let redis = redis();
        let purse = Keyspace::new(format!("t{}:", random())).lease("key_a", 1);
        let mut house = Self { redis, purse, life: 0 };
        let look = ConsumeRequest { windows: Vec::new(), spend: Some(house.spend(0)) };
        let looked = house.redis.consume(&look, Some(NOON)).await.unwrap();
        house.life = looked.purse.unwrap().life;
        assert_eq!(house.take(3, Some(10)).await, (true, LeaseState::Sufficient));
        house
    }

    fn spend(&self, cost: i64) -> LeaseSpend {
        LeaseSpend { purse: self.purse.clone(), cost, fill: None }
    }

    async fn take(&self, cost: i64, opened_with: Option<i64>) -> (bool, LeaseState) {
        self.fill(cost, opened_with.map(|block| (0, block))).await
    }

    async fn fill(&self, cost: i64, block: Option<(i64, i64)>) -> (bool, LeaseState) {
        let ends = Timestamp((1 << 53) - 1);
        let fill = block.map(|(base, block)| {
            let (life, opens, bank) = (self.life, base == 0, 0);
            TopUp { life, creates_lease: opens, granted_before: base, block, bank, refill_at: ends }
        });
        let spend = LeaseSpend { fill, ..self.spend(cost) };
        let take = ConsumeRequest { windows: Vec::new(), spend: Some(spend) };
        let taken = self.redis.consume(&take, Some(NOON)).await.unwrap();
        (taken.is_admitted, taken.purse.unwrap().state)
    }

    async fn close(&self, idle: Duration) -> CloseResult {
        self.redis.close_lease(&self.purse, self.life, idle, Some(NOON)).await.unwrap()
    }
}

const MOMENT: Duration = Duration::from_secs(1);

#[tokio::test]
async fn purse_without_a_version_is_spent_from_and_gets_one() {
    let house = House::open().await;
    let mut value = stored(&house.purse).await;
    assert_eq!(value.pop(), Some(1));
    store(&house.purse, &value).await;

    assert_eq!(house.take(2, None).await, (true, LeaseState::Sufficient));
    assert_eq!(stored(&house.purse).await.len(), value.len() + 1);
    assert_eq!(house.close(Duration::ZERO).await, CloseResult::Closed { spent: 5 });
}

#[tokio::test]
async fn purse_of_a_later_version_is_not_spent_from_and_is_withheld_when_it_is_closed() {
    let house = House::open().await;
    let mut value = stored(&house.purse).await;
    value.pop();
    value.extend([LATER, 7, 7]);
    store(&house.purse, &value).await;

    assert_eq!(house.take(1, None).await, (false, LeaseState::Insufficient));
    assert_eq!(house.fill(1, Some((10, 5))).await, (false, LeaseState::NotFound));
    assert_eq!(stored(&house.purse).await, value);
    let purses = [house.purse.clone()];
    assert_eq!(
        house.redis.list_active_leases(&purses, MOMENT, Some(NOON)).await.unwrap(),
        [Some(0)]
    );
    assert_eq!(house.close(MOMENT).await, CloseResult::InUse);
    assert_eq!(house.close(Duration::ZERO).await, CloseResult::NotFound);
    assert_eq!(house.take(1, None).await, (false, LeaseState::Closed));
}
