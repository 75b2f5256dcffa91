//! Tests calls of the rate-limit service whose gateway hangs up before the answer.

use std::time::Duration;

use domain::caller::Caller;
use domain::ratelimits::{DescriptorCheck, DescriptorRules, Hits, check_descriptors};
use domain::root_keys::default_workspace;
use foundation::clock::Monotonic;
use foundation::model::{DefaultLimit, EnforcementMode};
use futures_util::poll;

use crate::support::{Keyward, Stack};

const LIMIT: DefaultLimit = DefaultLimit { limit: 10, duration: 3_600_000 };
const RULES: DescriptorRules = DescriptorRules {
    default_limit: Some(LIMIT),
    mode: EnforcementMode::Enforce,
    counts_refused: true,
};
const MORE_THAN_LIMIT: i64 = 15;

fn operator(kw: &Keyward) -> Caller {
    let context = &kw.app.context;
    let version = context.freshness.read_version(Monotonic::now());
    Caller::operator(default_workspace(), version, context.clock.now())
}

fn take(units: i64) -> [DescriptorCheck; 1] {
    [DescriptorCheck { identifier: "user=1".to_owned(), limit: None, hits: Hits::Take(units) }]
}

/// Looks until a look is refused: then the units of the call before count.
async fn wait_until_refused(kw: &Keyward) {
    let (caller, look) = (operator(kw), take(0));
    for _ in 0..500 {
        let namespace = "tokens".to_owned();
        let check = check_descriptors(&kw.app.ratelimits, &caller, namespace, RULES, &look);
        if !check.await.unwrap().is_admitted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the units do not count");
}

/// Redis adjusts counts by its own time.
async fn assert_units_count(is_namespace_cached: bool) {
    let kw = Keyward::start_in_real_time(Stack::Replica).await;
    let caller = operator(&kw);
    let check =
        |units| check_descriptors(&kw.app.ratelimits, &caller, "tokens".to_owned(), RULES, units);
    let (look, more_than_limit) = (take(0), take(MORE_THAN_LIMIT));
    if is_namespace_cached {
        // Creates the namespace, then loads it into the cache, so that the next call waits for Redis alone.
        for _ in 0..2 {
            assert!(check(&look).await.unwrap().is_admitted);
        }
    }

    let mut call = check(&more_than_limit);
    assert!(poll!(&mut call).is_pending());
    drop(call);

    wait_until_refused(&kw).await;
}

#[tokio::test]
async fn units_count_where_refused_calls_count_when_gateway_hangs_up() {
    assert_units_count(true).await;
}

#[tokio::test]
async fn units_count_where_refused_calls_count_when_namespace_is_not_loaded() {
    assert_units_count(false).await;
}
