//! Tests calls of the rate-limit service whose gateway hangs up before the answer.

use std::time::Duration;

use domain::caller::Caller;
use domain::ratelimits::{DescriptorCheck, DescriptorRules, Hits, check_descriptors};
use domain::root_keys::default_workspace;
use foundation::clock::Monotonic;
use foundation::model::DefaultLimit;
use futures_util::poll;

use crate::support::{Keyward, Stack};

const LIMIT: DefaultLimit = DefaultLimit { limit: 10, duration: 3_600_000 };

fn take(units: i64) -> [DescriptorCheck; 1] {
    [DescriptorCheck { identifier: "user=1".to_owned(), limit: None, hits: Hits::Take(units) }]
}

/// Redis adjusts counts by its own time.
#[tokio::test]
async fn units_count_where_refused_calls_count_when_gateway_hangs_up() {
    let kw = Keyward::start_in_real_time(Stack::Replica).await;
    let context = &kw.app.context;
    let version = context.freshness.read_version(Monotonic::now());
    let caller = Caller::operator(default_workspace(), version, context.clock.now());
    let rules = DescriptorRules {
        default_limit: Some(LIMIT),
        counts_refused: true,
        ..DescriptorRules::default()
    };
    let check =
        |units| check_descriptors(&kw.app.ratelimits, &caller, "tokens".to_owned(), rules, units);
    let (look, more_than_limit) = (take(0), take(15));
    // Creates the namespace, then loads it into the cache, so that the next call waits for Redis alone.
    for _ in 0..2 {
        assert!(check(&look).await.unwrap().is_admitted);
    }

    let mut call = check(&more_than_limit);
    assert!(poll!(&mut call).is_pending());
    drop(call);

    for _ in 0..500 {
        if !check(&look).await.unwrap().is_admitted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the units do not count");
}
