//! Units that are given back after the window in which they were taken.

use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;

use super::rate_limit::{Client, descriptor, with_hits};
use crate::support::{Keyward, Stack};

#[tokio::test]
async fn units_are_given_back_also_when_their_window_is_over() {
    let kw = Keyward::start(Stack::Embedded).await;
    let minute = RateLimitOverride { requests_per_unit: 1_000, unit: RateLimitUnit::Minute.into() };
    let check = |units: u64, is_negative_hits: bool| RateLimitDescriptor {
        limit: Some(minute),
        is_negative_hits,
        ..with_hits(descriptor("1"), units)
    };
    let mut client = Client::with_root_key(&kw, &kw.root_key).await;
    kw.clock.advance_ms(59_000);
    assert_eq!(client.check(vec![check(600, false)]).await, (true, vec![400]));
    kw.clock.advance_ms(6_000);

    // Of 600 units of the window before, 150 are left, and 55 of 60 seconds of it still count.
    assert_eq!(client.check(vec![check(450, true)]).await, (true, vec![863]));
    assert_eq!(client.check(vec![check(0, false)]).await, (true, vec![863]));
    // 100 are of this window, and the rest of the one before.
    assert_eq!(client.check(vec![check(100, false)]).await, (true, vec![763]));
    assert_eq!(client.check(vec![check(220, true)]).await, (true, vec![973]));
    assert_eq!(client.check(vec![check(999, true)]).await, (true, vec![1_000]));
    assert_eq!(client.check(vec![check(0, false)]).await, (true, vec![1_000]));
}

/// Redis adjusts counts by its own time.
#[tokio::test]
async fn units_are_given_back_in_redis_also_when_their_window_is_over() {
    let kw = Keyward::start_in_real_time(Stack::Replica).await;
    let second = RateLimitOverride { requests_per_unit: 1_000, unit: RateLimitUnit::Second.into() };
    let check = |units: u64, is_negative_hits: bool| RateLimitDescriptor {
        limit: Some(second),
        is_negative_hits,
        ..with_hits(descriptor("1"), units)
    };
    let mut client = Client::with_root_key(&kw, &kw.root_key).await;
    let to_next_second = || {
        let left_ms = 1_000 - kw.app.context.clock.now().0 % 1_000;
        tokio::time::sleep(Duration::from_millis(u64::try_from(left_ms).unwrap() + 20))
    };
    to_next_second().await;
    client.check(vec![check(0, false)]).await;
    assert_eq!(client.check(vec![check(600, false)]).await, (true, vec![400]));
    to_next_second().await;

    // More time makes it more, and 600 units would leave half of the limit at most until half of the second is over.
    let (_, remaining) = client.check(vec![check(450, true)]).await;
    assert!(remaining[0] >= 850, "{remaining:?}");
    let (_, looked) = client.check(vec![check(0, false)]).await;
    assert!(looked[0] >= remaining[0], "{looked:?}");
}
