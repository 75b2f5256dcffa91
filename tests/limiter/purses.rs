//! Purses: what `lua/consume.lua` and `lua/close_lease.lua` do to them, on a real Redis and beside a model.

use limiter::redis::RedisCounters;
use limiter::{
    CloseResult, ConsumeReply, ConsumeRequest, Keyspace, LeaseSpend, LeaseState, TopUp, Window,
};

use super::*;

const FOREVER: Timestamp = Timestamp((1 << 53) - 1);

struct House {
    redis: RedisCounters,
    keys: Keyspace,
    life: i64,
}

async fn house() -> House {
    let (redis, keys) = (redis(), Keyspace::new(format!("t{}:", random())));
    let life = look(&redis, &keys.lease("key_life", 1)).await.purse.unwrap().life;
    House { redis, keys, life }
}

async fn look(redis: &RedisCounters, purse: &str) -> ConsumeReply {
    redis.consume(&spend(purse, 0, None), Some(NOON)).await.unwrap()
}

fn spend(purse: &str, cost: i64, fill: Option<TopUp>) -> ConsumeRequest {
    let spend = LeaseSpend { purse: purse.to_owned(), cost, fill };
    ConsumeRequest { windows: Vec::new(), spend: Some(spend) }
}

impl House {
    /// A block; the first one makes the purse.
    fn fill(&self, base: i64, block: i64, bank: i64) -> TopUp {
        TopUp {
            life: self.life,
            creates_lease: base == 0,
            granted_before: base,
            block,
            bank,
            refill_at: FOREVER,
        }
    }

    async fn take(
        &self,
        purse: &str,
        cost: i64,
        fill: impl Into<Option<TopUp>>,
    ) -> (bool, LeaseState, i64) {
        let fill = fill.into();
        let taken = self.redis.consume(&spend(purse, cost, fill), Some(NOON)).await.unwrap();
        let purse = taken.purse.unwrap();
        (taken.is_admitted, purse.state, purse.units)
    }

    async fn close(&self, purse: &str) -> CloseResult {
        self.redis.close_lease(purse, self.life, Duration::ZERO, Some(NOON)).await.unwrap()
    }
}

#[tokio::test]
async fn a_purse_spends_what_was_put_in_and_no_more() {
    let house = house().await;
    let purse = house.keys.lease("key_a", 1);

    assert_eq!(house.take(&purse, 1, None).await, (false, LeaseState::Insufficient, 0));
    assert_eq!(house.take(&purse, 2, house.fill(0, 3, 4)).await, (true, LeaseState::Sufficient, 1));
    assert_eq!(house.take(&purse, 2, None).await, (false, LeaseState::Insufficient, 1));
    assert_eq!(house.take(&purse, 6, None).await, (false, LeaseState::AccountExhausted, 1));
    assert_eq!(house.take(&purse, 1, None).await, (true, LeaseState::Sufficient, 0));
    assert_eq!(house.close(&purse).await, CloseResult::Closed { spent: 3 });
}

#[tokio::test]
async fn to_look_is_never_refused_and_spends_nothing() {
    let house = house().await;
    let purse = house.keys.lease("key_a", 1);

    assert_eq!(house.take(&purse, 0, None).await, (true, LeaseState::Insufficient, 0));
    house.take(&purse, 1, house.fill(0, 1, 0)).await;
    assert_eq!(house.take(&purse, 0, None).await, (true, LeaseState::Sufficient, 0));
}

#[tokio::test]
async fn what_was_put_in_stays_when_a_window_refuses_and_nothing_is_spent() {
    let house = house().await;
    let purse = house.keys.lease("key_a", 1);
    let full = Window::new(house.keys.window("key_a", MINUTE, "requests"), 1, MINUTE, 2);
    let take =
        ConsumeRequest { windows: vec![full], ..spend(&purse, 1, Some(house.fill(0, 5, 0))) };

    let refused = house.redis.consume(&take, Some(NOON)).await.unwrap();

    assert!(!refused.is_admitted);
    assert_eq!(refused.purse.unwrap().units, 5);
    assert_eq!(house.close(&purse).await, CloseResult::Closed { spent: 0 });
}

#[tokio::test]
async fn a_short_purse_takes_no_window() {
    let house = house().await;
    let window = Window::new(house.keys.window("key_a", MINUTE, "requests"), 10, MINUTE, 1);
    let purse = house.keys.lease("key_a", 1);
    let both = ConsumeRequest {
        windows: vec![window.clone()],
        ..spend(&purse, 1, Some(house.fill(0, 0, 0)))
    };

    let refused = house.redis.consume(&both, Some(NOON)).await.unwrap();
    let alone = house.redis.consume_windows(&[window], Some(NOON)).await.unwrap();

    assert!(!refused.is_admitted);
    assert_eq!(alone.windows[0].effective, 0);
}

#[tokio::test]
async fn a_closed_purse_stays_closed_and_says_the_same_again() {
    let house = house().await;
    let purse = house.keys.lease("key_a", 1);
    house.take(&purse, 2, house.fill(0, 7, 1)).await;

    let first = house.close(&purse).await;
    let late = house.take(&purse, 1, house.fill(7, 5, 0)).await;
    let spent = house.take(&purse, 1, None).await;

    assert_eq!(first, CloseResult::Closed { spent: 2 });
    assert_eq!((late.0, late.1), (false, LeaseState::Closed));
    assert_eq!((spent.0, spent.1), (false, LeaseState::Closed));
    assert_eq!(house.close(&purse).await, first);
}

#[tokio::test]
async fn a_purse_that_is_not_there_is_closed_all_the_same_and_accounts_for_nothing() {
    let house = house().await;
    let purse = house.keys.lease("key_a", 1);

    assert_eq!(house.close(&purse).await, CloseResult::NotFound);
    assert_eq!(house.close(&purse).await, CloseResult::NotFound);
    let late = house.take(&purse, 1, house.fill(0, 5, 0)).await;
    assert_eq!((late.0, late.1), (false, LeaseState::Closed));
}

#[tokio::test]
async fn a_purse_in_use_is_left_open_and_a_resting_one_is_closed() {
    let house = house().await;
    let purse = house.keys.lease("key_a", 1);
    house.take(&purse, 2, house.fill(0, 7, 1)).await;
    let minute = Duration::from_mins(1);

    let close =
        async |at| house.redis.close_lease(&purse, house.life, minute, Some(at)).await.unwrap();
    let in_use = close(NOON.plus_ms(MINUTE - 1)).await;
    let resting = close(NOON.plus_ms(MINUTE)).await;

    assert_eq!(in_use, CloseResult::InUse);
    assert_eq!(resting, CloseResult::Closed { spent: 2 });
}

#[tokio::test]
async fn of_many_purses_those_in_use_are_told_at_once_with_what_was_spent() {
    let house = house().await;
    let [used, closed, missing] = [1, 2, 3].map(|epoch| house.keys.lease("key_a", epoch));
    house.take(&used, 2, house.fill(0, 7, 1)).await;
    house.take(&closed, 2, house.fill(0, 7, 1)).await;
    house.close(&closed).await;
    let (minute, purses) = (Duration::from_mins(1), [used, closed, missing]);
    let busy = async |at| house.redis.list_active_leases(&purses, minute, Some(at)).await.unwrap();

    assert_eq!(busy(NOON.plus_ms(MINUTE - 1)).await, [Some(2), None, None]);
    assert_eq!(busy(NOON.plus_ms(MINUTE)).await, [None, None, None]);
    assert!(house.redis.list_active_leases(&[], minute, None).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_purse_that_is_lost_is_never_there_again() {
    let house = house().await;
    let purse = house.keys.lease("key_a", 1);
    house.take(&purse, 60, house.fill(0, 100, 900)).await;
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let _: i64 = redis::cmd("DEL").arg(&purse).query_async(&mut connection).await.unwrap();

    assert_eq!(
        house.take(&purse, 10, house.fill(100, 50, 850)).await,
        (false, LeaseState::NotFound, 0)
    );
    assert_eq!(house.close(&purse).await, CloseResult::NotFound);
}

#[tokio::test]
async fn blocks_may_come_in_any_order_once_the_purse_is_there() {
    let house = house().await;
    let purse = house.keys.lease("key_a", 1);

    let early = house.take(&purse, 1, house.fill(10, 20, 70)).await;
    let first = house.take(&purse, 1, house.fill(0, 10, 90)).await;
    let third = house.take(&purse, 1, house.fill(30, 5, 65)).await;
    let second = house.take(&purse, 1, house.fill(10, 20, 70)).await;
    let told = look(&house.redis, &purse).await.purse.unwrap().bank;

    assert_eq!(early, (false, LeaseState::NotFound, 0));
    assert_eq!((first.2, third.2, second.2), (9, 13, 32));
    assert_eq!(told, Some(65), "the word of the latest block");
    assert_eq!(house.close(&purse).await, CloseResult::Closed { spent: 3 });
}

#[tokio::test]
async fn a_block_for_another_life_is_not_put_in() {
    let house = house().await;
    let purse = house.keys.lease("key_a", 1);
    let fill = TopUp { life: house.life + 1, ..house.fill(0, 5, 0) };

    let refused = house.take(&purse, 1, fill).await;

    assert_eq!(refused, (false, LeaseState::WrongGeneration, 0));
    assert_eq!(look(&house.redis, &purse).await.purse.unwrap().bank, None);
}

#[tokio::test]
async fn a_purse_ends_with_its_period_and_the_bank_decides() {
    let house = house().await;
    let purse = house.keys.lease("key_a", 1);
    let fill = |ends| TopUp { refill_at: ends, ..house.fill(0, 5, 5) };
    house.take(&purse, 1, fill(NOON.plus_ms(1))).await;

    let at = |ms| {
        let take = spend(&purse, 1, None);
        let redis = &house.redis;
        async move { redis.consume(&take, Some(NOON.plus_ms(ms))).await.unwrap().purse.unwrap().state }
    };

    assert_eq!(at(0).await, LeaseState::Sufficient);
    assert_eq!(at(1).await, LeaseState::Insufficient);
    // Who comes from the bank has its word that it is not due.
    let late = TopUp { creates_lease: false, granted_before: 5, block: 0, ..fill(NOON.plus_ms(1)) };
    let take = spend(&purse, 1, Some(late));
    let taken = house.redis.consume(&take, Some(NOON.plus_ms(1))).await.unwrap();
    assert!(taken.is_admitted);
}

#[tokio::test]
async fn every_purse_carries_a_lifetime() {
    let house = house().await;
    let (open, closed) = (house.keys.lease("key_a", 1), house.keys.lease("key_a", 2));
    house.take(&open, 1, house.fill(0, 5, 0)).await;
    house.take(&open, 1, None).await;
    house.close(&closed).await;

    let (open, closed) = (lifetime_ms(&open).await, lifetime_ms(&closed).await);

    assert!(open > 0 && closed > 0, "{open} {closed}");
}

#[tokio::test]
async fn close_returns_elsewhere_and_changes_nothing_when_generation_differs() {
    let house = house().await;
    let [known, unknown] = [1, 2].map(|epoch| house.keys.lease("key_a", epoch));
    house.take(&known, 2, house.fill(0, 7, 1)).await;

    for lease in [&known, &unknown] {
        let closed =
            house.redis.close_lease(lease, house.life + 1, Duration::ZERO, Some(NOON)).await;
        assert_eq!(closed.unwrap(), CloseResult::WrongGeneration);
    }

    assert_eq!(house.take(&known, 1, None).await, (true, LeaseState::Sufficient, 4));
    assert_eq!(
        house.take(&unknown, 1, house.fill(0, 7, 1)).await,
        (true, LeaseState::Sufficient, 6)
    );
}

#[tokio::test]
async fn lease_lives_a_day_longer_than_its_period_and_32_days_without_one() {
    const DAY: i64 = 86_400_000;
    let house = house().await;
    let fill = |ends| TopUp { refill_at: ends, ..house.fill(0, 5, 0) };
    let ends = [NOON.plus_ms(MINUTE), NOON.plus_ms(31 * DAY), FOREVER, NOON.plus_ms(-MINUTE)];
    let lifetimes = [DAY + MINUTE, 32 * DAY, 32 * DAY, DAY];
    for (epoch, (ends, lifetime)) in (1..).zip(ends.into_iter().zip(lifetimes)) {
        let lease = house.keys.lease("key_a", epoch);
        house.take(&lease, 1, fill(ends)).await;

        let found = lifetime_ms(&lease).await;

        assert!((lifetime - MINUTE..=lifetime).contains(&found), "{found} of {lifetime}");
    }
}

/// A step of the property test.
#[derive(Debug, Clone)]
enum Step {
    Spend {
        cost: i64,
    },
    /// A block is debited and put in, now or so many steps later.
    Fill {
        cost: i64,
        block: i64,
        delay: usize,
    },
    /// The purse vanishes from Redis.
    Lose,
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (0..6_i64).prop_map(|cost| Step::Spend { cost }),
        6 => (0..6_i64, 1..30_i64, prop_oneof![3 => Just(0_usize), 1 => 1..6_usize])
            .prop_map(|(cost, block, delay)| Step::Fill { cost, block, delay }),
        1 => Just(Step::Lose),
        1 => Just(Step::Close),
    ]
}

/// Whatever is lost or comes late: what is spent in all was granted, what is settled at the end was neither
/// spent nor can be, and nothing vanishes: the rest is in the ledger. (The bank's side of the same is in
/// `domain/credits/bank.rs`.)
#[test]
fn no_order_of_blocks_losses_and_closings_spends_a_unit_twice() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let house = runtime.block_on(house());
    let config = ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result = runner.run(&prop::collection::vec(step(), 10..60), |steps| {
        let purse = house.keys.lease(&format!("key_{}", random()), 1);
        runtime.block_on(run(&house, &purse, steps))
    });
    assert!(result.is_ok(), "{}", result.unwrap_err());
}

async fn run(house: &House, purse: &str, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let (mut granted, mut arrived, mut spent) = (0, 0, 0);
    let mut late: Vec<(usize, i64, TopUp)> = Vec::new();
    // What the bank has again, and what stays in its ledger.
    let mut settled: Option<(i64, i64)> = None;
    let settle = |granted: i64, closed: CloseResult| match closed {
        CloseResult::Closed { spent } => (granted - spent, 0),
        CloseResult::NotFound | CloseResult::WrongGeneration | CloseResult::InUse => (0, granted),
    };
    for (at, step) in steps.into_iter().enumerate() {
        let mut takes = Vec::new();
        match step {
            Step::Spend { cost } => takes.push((cost, None)),
            Step::Fill { cost, block, delay } => {
                // The bank gives nothing out for a purse that it has settled.
                if settled.is_none() {
                    let fill = house.fill(granted, block, 1_000_000);
                    granted += block;
                    late.push((at + delay, cost, fill));
                }
            }
            Step::Lose => {
                if settled.is_none() {
                    let _: i64 =
                        redis::cmd("DEL").arg(purse).query_async(&mut connection).await.unwrap();
                }
            }
            Step::Close => {
                let closed = house.close(purse).await;
                settled = Some(settle(granted, closed));
            }
        }
        let due = late.extract_if(.., |(due, ..)| *due <= at);
        takes.extend(due.map(|(_, cost, fill)| (cost, Some(fill))));
        for (cost, fill) in takes {
            let (taken, state, _) = house.take(purse, cost, fill).await;
            if taken {
                spent += cost;
            }
            let refused = [LeaseState::Closed, LeaseState::NotFound];
            if let Some(fill) = fill.filter(|_| !refused.contains(&state)) {
                arrived += fill.block;
            }
            prop_assert!(spent <= arrived, "{spent} spent of {arrived}");
            prop_assert!(settled.is_none() || !taken || cost == 0, "spent after the settlement");
        }
    }
    let (back, held) = match settled {
        Some(settled) => settled,
        None => settle(granted, house.close(purse).await),
    };
    prop_assert!(back >= 0 && spent + back <= granted, "{spent} + {back} of {granted}");
    prop_assert!(spent + back + held >= granted, "{spent} + {back} + {held} of {granted}");
    Ok(())
}
