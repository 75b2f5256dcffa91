//! Tests credit leases with random sequences of spends, top-ups, losses and closes.

use super::*;

/// A step of the property test.
#[derive(Debug, Clone)]
enum Step {
    Spend {
        cost: i64,
    },
    /// Credits are debited and added to the lease, now or this many steps later.
    Fill {
        cost: i64,
        block: i64,
        delay: usize,
    },
    /// The lease vanishes from Redis.
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

/// Whatever is lost or late: the total spend never exceeds what was granted; credits that are returned at the end were
/// not spent and cannot be; and no credits vanish: the rest is withheld. (The tests of `domain/credits/leases.rs` cover
/// the account.)
#[test]
fn no_credit_is_spent_twice_when_top_ups_losses_and_closes_interleave() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let fixture = runtime.block_on(start());
    let config = ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result = runner.run(&prop::collection::vec(step(), 10..60), |steps| {
        let lease = fixture.keys.lease(&format!("key_{}", random_letters()), 1);
        runtime.block_on(run(&fixture, &lease, steps))
    });
    assert!(result.is_ok(), "{}", result.unwrap_err());
}

async fn run(fixture: &LeaseFixture, lease: &str, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let (mut granted, mut arrived, mut spent) = (0, 0, 0);
    let mut late: Vec<(usize, i64, TopUp)> = Vec::new();
    // The credits returned to the account, and those withheld.
    let mut closed_lease: Option<(i64, i64)> = None;
    let account_for = |granted: i64, closed: CloseResult| match closed {
        CloseResult::Closed { spent_units: spent } => (granted - spent, 0),
        CloseResult::NotFound | CloseResult::WrongGeneration | CloseResult::InUse => (0, granted),
    };
    for (at, step) in steps.into_iter().enumerate() {
        let mut requests = Vec::new();
        match step {
            Step::Spend { cost } => requests.push((cost, None)),
            Step::Fill { cost, block, delay } => {
                // The account grants nothing for a lease that it has closed.
                if closed_lease.is_none() {
                    let fill = fixture.top_up(granted, block, 1_000_000);
                    granted += block;
                    late.push((at + delay, cost, fill));
                }
            }
            Step::Lose => {
                if closed_lease.is_none() {
                    let _: i64 =
                        redis::cmd("DEL").arg(lease).query_async(&mut connection).await.unwrap();
                }
            }
            Step::Close => {
                let closed = fixture.close(lease).await;
                closed_lease = Some(account_for(granted, closed));
            }
        }
        let due = late.extract_if(.., |(due, ..)| *due <= at);
        requests.extend(due.map(|(_, cost, fill)| (cost, Some(fill))));
        for (cost, fill) in requests {
            let (is_admitted, state, _) = fixture.consume(lease, cost, fill).await;
            if is_admitted {
                spent += cost;
            }
            let refused = [LeaseState::Closed, LeaseState::NotFound];
            if let Some(fill) = fill.filter(|_| !refused.contains(&state)) {
                arrived += fill.top_up;
            }
            prop_assert!(spent <= arrived, "{spent} spent of {arrived}");
            prop_assert!(
                closed_lease.is_none() || !is_admitted || cost == 0,
                "spent after the lease was closed"
            );
        }
    }
    let (returned, withheld) = match closed_lease {
        Some(closed_lease) => closed_lease,
        None => account_for(granted, fixture.close(lease).await),
    };
    prop_assert!(returned >= 0 && spent + returned <= granted, "{spent} + {returned} of {granted}");
    prop_assert!(
        spent + returned + withheld >= granted,
        "{spent} + {returned} + {withheld} of {granted}"
    );
    Ok(())
}
