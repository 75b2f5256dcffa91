//! Tests credit leases in Redis: `lua/consume.lua` and `lua/close_lease.lua`, on a real Redis.

use limiter::redis::RedisCounters;
use limiter::{
    CloseResult, ConsumeReply, ConsumeRequest, Keyspace, LeaseSpend, LeaseState, TopUp, Window,
};

use super::*;
use crate::servers::Redis;

mod properties;

const FOREVER: Timestamp = Timestamp((1 << 53) - 1);

struct LeaseFixture {
    redis: RedisCounters,
    keys: Keyspace,
    generation: i64,
}

async fn start() -> LeaseFixture {
    let (redis, keys) = (redis(), Keyspace::new(format!("t{}:", random_letters())));
    let generation = peek(&redis, &keys.lease("key_life", 1)).await.lease.unwrap().redis_generation;
    LeaseFixture { redis, keys, generation }
}

async fn peek(redis: &RedisCounters, lease: &str) -> ConsumeReply {
    redis.consume(&spend(lease, 0, None), Some(NOON)).await.unwrap()
}

fn spend(lease: &str, cost: i64, fill: Option<TopUp>) -> ConsumeRequest {
    let spend = LeaseSpend { lease: lease.to_owned(), cost, top_up: fill };
    ConsumeRequest::with_spend(Vec::new(), spend)
}

impl LeaseFixture {
    /// Returns a top-up; the first one creates the lease.
    fn top_up(&self, base: i64, block: i64, bank: i64) -> TopUp {
        TopUp {
            redis_generation: self.generation,
            creates_lease: base == 0,
            granted_before: base,
            top_up: block,
            account_balance: bank,
            refill_at: FOREVER,
        }
    }

    async fn consume(
        &self,
        lease: &str,
        cost: i64,
        fill: impl Into<Option<TopUp>>,
    ) -> (bool, LeaseState, i64) {
        let fill = fill.into();
        let reply = self.redis.consume(&spend(lease, cost, fill), Some(NOON)).await.unwrap();
        let lease = reply.lease.unwrap();
        (reply.is_admitted, lease.state, lease.units)
    }

    async fn close(&self, lease: &str) -> CloseResult {
        self.redis.close_lease(lease, self.generation, Duration::ZERO, Some(NOON)).await.unwrap()
    }
}

#[tokio::test]
async fn lease_spends_its_top_ups_and_no_more() {
    let fixture = start().await;
    let lease = fixture.keys.lease("key_a", 1);

    assert_eq!(fixture.consume(&lease, 1, None).await, (false, LeaseState::Insufficient, 0));
    assert_eq!(
        fixture.consume(&lease, 2, fixture.top_up(0, 3, 4)).await,
        (true, LeaseState::Sufficient, 1)
    );
    assert_eq!(fixture.consume(&lease, 2, None).await, (false, LeaseState::Insufficient, 1));
    assert_eq!(fixture.consume(&lease, 6, None).await, (false, LeaseState::AccountExhausted, 1));
    assert_eq!(fixture.consume(&lease, 1, None).await, (true, LeaseState::Sufficient, 0));
    assert_eq!(fixture.close(&lease).await, CloseResult::Closed { spent_units: 3 });
}

#[tokio::test]
async fn spend_has_no_effect_when_redis_executes_it_after_its_deadline() {
    let (server, timeout) = (Redis::start(), Duration::from_millis(300));
    let keys = Keyspace::new("t:");
    let address = RedisAddress::new(&server.url(), &RedisTls::default());
    let redis = RedisCounters::new(address, timeout, keys.clone(), &Metrics::default()).unwrap();
    let generation = peek(&redis, &keys.lease("key_life", 1)).await.lease.unwrap().redis_generation;
    let fixture = LeaseFixture { redis, keys, generation };
    let lease = fixture.keys.lease("key_a", 1);
    fixture.consume(&lease, 1, fixture.top_up(0, 10, 0)).await;
    let spend_one = async || fixture.redis.consume(&spend(&lease, 1, None), None).await;
    // The reply tells the time of this Redis.
    assert_eq!(spend_one().await.unwrap().lease.unwrap().units, 8);

    server.signal("STOP");
    assert!(spend_one().await.is_err());
    tokio::time::sleep(timeout).await;
    server.signal("CONT");

    let began = Stopwatch::new();
    let next = loop {
        match spend_one().await {
            Ok(reply) => break reply,
            Err(e) => assert!(began.elapsed() < Duration::from_secs(10), "{e:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(next.lease.unwrap().units, 7, "the late spend took effect");
}

#[tokio::test]
async fn peek_is_admitted_and_spends_nothing_when_lease_is_empty() {
    let fixture = start().await;
    let lease = fixture.keys.lease("key_a", 1);

    assert_eq!(fixture.consume(&lease, 0, None).await, (true, LeaseState::Insufficient, 0));
    fixture.consume(&lease, 1, fixture.top_up(0, 1, 0)).await;
    assert_eq!(fixture.consume(&lease, 0, None).await, (true, LeaseState::Sufficient, 0));
}

#[tokio::test]
async fn top_up_is_kept_and_nothing_is_spent_when_a_window_rejects() {
    let fixture = start().await;
    let lease = fixture.keys.lease("key_a", 1);
    let full = Window::new(fixture.keys.window("key_a", MINUTE, "requests"), 1, MINUTE, 2);
    let request =
        ConsumeRequest { windows: vec![full], ..spend(&lease, 1, Some(fixture.top_up(0, 5, 0))) };

    let refused = fixture.redis.consume(&request, Some(NOON)).await.unwrap();

    assert!(!refused.is_admitted);
    assert_eq!(refused.lease.unwrap().units, 5);
    assert_eq!(fixture.close(&lease).await, CloseResult::Closed { spent_units: 0 });
}

#[tokio::test]
async fn windows_are_not_consumed_when_lease_is_insufficient() {
    let fixture = start().await;
    let window = Window::new(fixture.keys.window("key_a", MINUTE, "requests"), 10, MINUTE, 1);
    let lease = fixture.keys.lease("key_a", 1);
    let both = ConsumeRequest {
        windows: vec![window.clone()],
        ..spend(&lease, 1, Some(fixture.top_up(0, 0, 0)))
    };

    let refused = fixture.redis.consume(&both, Some(NOON)).await.unwrap();
    let alone = fixture.redis.consume_windows(&[window], Some(NOON)).await.unwrap();

    assert!(!refused.is_admitted);
    assert_eq!(alone.windows[0].effective_count, 0);
}

#[tokio::test]
async fn close_returns_the_same_result_when_repeated() {
    let fixture = start().await;
    let lease = fixture.keys.lease("key_a", 1);
    fixture.consume(&lease, 2, fixture.top_up(0, 7, 1)).await;

    let first = fixture.close(&lease).await;
    let late = fixture.consume(&lease, 1, fixture.top_up(7, 5, 0)).await;
    let spent = fixture.consume(&lease, 1, None).await;

    assert_eq!(first, CloseResult::Closed { spent_units: 2 });
    assert_eq!((late.0, late.1), (false, LeaseState::Closed));
    assert_eq!((spent.0, spent.1), (false, LeaseState::Closed));
    assert_eq!(fixture.close(&lease).await, first);
}

#[tokio::test]
async fn close_returns_not_found_and_blocks_lease_when_missing() {
    let fixture = start().await;
    let lease = fixture.keys.lease("key_a", 1);

    assert_eq!(fixture.close(&lease).await, CloseResult::NotFound);
    assert_eq!(fixture.close(&lease).await, CloseResult::NotFound);
    let late = fixture.consume(&lease, 1, fixture.top_up(0, 5, 0)).await;
    assert_eq!((late.0, late.1), (false, LeaseState::Closed));
}

#[tokio::test]
async fn close_returns_in_use_when_lease_is_active() {
    let fixture = start().await;
    let lease = fixture.keys.lease("key_a", 1);
    fixture.consume(&lease, 2, fixture.top_up(0, 7, 1)).await;
    let minute = Duration::from_mins(1);

    let close = async |at| {
        fixture.redis.close_lease(&lease, fixture.generation, minute, Some(at)).await.unwrap()
    };
    let in_use = close(NOON.plus_ms(MINUTE - 1)).await;
    let resting = close(NOON.plus_ms(MINUTE)).await;

    assert_eq!(in_use, CloseResult::InUse);
    assert_eq!(resting, CloseResult::Closed { spent_units: 2 });
}

#[tokio::test]
async fn close_always_closes_when_the_clock_went_back() {
    let fixture = start().await;
    let lease = fixture.keys.lease("key_a", 1);
    fixture.consume(&lease, 2, fixture.top_up(0, 7, 1)).await;

    let earlier = Some(NOON.plus_ms(-1));
    let close = fixture.redis.close_lease(&lease, fixture.generation, Duration::ZERO, earlier);

    assert_eq!(close.await.unwrap(), CloseResult::Closed { spent_units: 2 });
}

#[tokio::test]
async fn active_leases_are_listed_with_their_spend() {
    let fixture = start().await;
    let [used, closed, missing] = [1, 2, 3].map(|number| fixture.keys.lease("key_a", number));
    fixture.consume(&used, 2, fixture.top_up(0, 7, 1)).await;
    fixture.consume(&closed, 2, fixture.top_up(0, 7, 1)).await;
    fixture.close(&closed).await;
    let (minute, leases) = (Duration::from_mins(1), [used, closed, missing]);
    let busy =
        async |at| fixture.redis.list_active_leases(&leases, minute, Some(at)).await.unwrap();

    assert_eq!(busy(NOON.plus_ms(MINUTE - 1)).await, [Some(2), None, None]);
    assert_eq!(busy(NOON.plus_ms(MINUTE)).await, [None, None, None]);
    assert!(fixture.redis.list_active_leases(&[], minute, None).await.unwrap().is_empty());
}

#[tokio::test]
async fn lost_lease_is_not_recreated_by_later_top_ups() {
    let fixture = start().await;
    let lease = fixture.keys.lease("key_a", 1);
    fixture.consume(&lease, 60, fixture.top_up(0, 100, 900)).await;
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let _: i64 = redis::cmd("DEL").arg(&lease).query_async(&mut connection).await.unwrap();

    assert_eq!(
        fixture.consume(&lease, 10, fixture.top_up(100, 50, 850)).await,
        (false, LeaseState::NotFound, 0)
    );
    assert_eq!(fixture.close(&lease).await, CloseResult::NotFound);
}

#[tokio::test]
async fn top_ups_are_accepted_in_any_order_when_lease_exists() {
    let fixture = start().await;
    let lease = fixture.keys.lease("key_a", 1);

    let early = fixture.consume(&lease, 1, fixture.top_up(10, 20, 70)).await;
    let first = fixture.consume(&lease, 1, fixture.top_up(0, 10, 90)).await;
    let third = fixture.consume(&lease, 1, fixture.top_up(30, 5, 65)).await;
    let second = fixture.consume(&lease, 1, fixture.top_up(10, 20, 70)).await;
    let balance = peek(&fixture.redis, &lease).await.lease.unwrap().account_balance;

    assert_eq!(early, (false, LeaseState::NotFound, 0));
    assert_eq!((first.2, third.2, second.2), (9, 13, 32));
    assert_eq!(balance, Some(65), "the balance of the latest top-up");
    assert_eq!(fixture.close(&lease).await, CloseResult::Closed { spent_units: 3 });
}

#[tokio::test]
async fn top_up_is_rejected_when_generation_differs() {
    let fixture = start().await;
    let lease = fixture.keys.lease("key_a", 1);
    let fill = TopUp { redis_generation: fixture.generation + 1, ..fixture.top_up(0, 5, 0) };

    let refused = fixture.consume(&lease, 1, fill).await;

    assert_eq!(refused, (false, LeaseState::WrongGeneration, 0));
    assert_eq!(peek(&fixture.redis, &lease).await.lease.unwrap().account_balance, None);
}

#[tokio::test]
async fn lease_is_insufficient_when_its_period_has_ended() {
    let fixture = start().await;
    let lease = fixture.keys.lease("key_a", 1);
    let fill = |ends| TopUp { refill_at: ends, ..fixture.top_up(0, 5, 5) };
    fixture.consume(&lease, 1, fill(NOON.plus_ms(1))).await;

    let at = |ms| {
        let request = spend(&lease, 1, None);
        let redis = &fixture.redis;
        async move {
            redis.consume(&request, Some(NOON.plus_ms(ms))).await.unwrap().lease.unwrap().state
        }
    };

    assert_eq!(at(0).await, LeaseState::Sufficient);
    assert_eq!(at(1).await, LeaseState::Insufficient);
    // A caller that comes from the account knows that the refill is not due.
    let late =
        TopUp { creates_lease: false, granted_before: 5, top_up: 0, ..fill(NOON.plus_ms(1)) };
    let request = spend(&lease, 1, Some(late));
    let reply = fixture.redis.consume(&request, Some(NOON.plus_ms(1))).await.unwrap();
    assert!(reply.is_admitted);
}

#[tokio::test]
async fn lease_has_a_ttl_when_open_or_closed() {
    let fixture = start().await;
    let (open, closed) = (fixture.keys.lease("key_a", 1), fixture.keys.lease("key_a", 2));
    fixture.consume(&open, 1, fixture.top_up(0, 5, 0)).await;
    fixture.consume(&open, 1, None).await;
    fixture.close(&closed).await;

    let (open, closed) = (ttl_ms(&open).await, ttl_ms(&closed).await);

    assert!(open > 0 && closed > 0, "{open} {closed}");
}

#[tokio::test]
async fn close_returns_wrong_generation_and_changes_nothing_when_generation_differs() {
    let fixture = start().await;
    let [known, unknown] = [1, 2].map(|number| fixture.keys.lease("key_a", number));
    fixture.consume(&known, 2, fixture.top_up(0, 7, 1)).await;

    for lease in [&known, &unknown] {
        let closed = fixture
            .redis
            .close_lease(lease, fixture.generation + 1, Duration::ZERO, Some(NOON))
            .await;
        assert_eq!(closed.unwrap(), CloseResult::WrongGeneration);
    }

    assert_eq!(fixture.consume(&known, 1, None).await, (true, LeaseState::Sufficient, 4));
    assert_eq!(
        fixture.consume(&unknown, 1, fixture.top_up(0, 7, 1)).await,
        (true, LeaseState::Sufficient, 6)
    );
}

#[tokio::test]
async fn lease_ttl_is_a_day_beyond_its_period_or_32_days_without_one() {
    const DAY: i64 = 86_400_000;
    let fixture = start().await;
    let fill = |ends| TopUp { refill_at: ends, ..fixture.top_up(0, 5, 0) };
    let ends = [NOON.plus_ms(MINUTE), NOON.plus_ms(31 * DAY), FOREVER, NOON.plus_ms(-MINUTE)];
    let lifetimes = [DAY + MINUTE, 32 * DAY, 32 * DAY, DAY];
    for (number, (ends, lifetime)) in (1..).zip(ends.into_iter().zip(lifetimes)) {
        let lease = fixture.keys.lease("key_a", number);
        fixture.consume(&lease, 1, fill(ends)).await;

        let found = ttl_ms(&lease).await;

        assert!((lifetime - MINUTE..=lifetime).contains(&found), "{found} of {lifetime}");
    }
}
