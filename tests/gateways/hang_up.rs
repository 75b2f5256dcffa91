//! Tests calls of the rate-limit service whose gateway hangs up before the answer.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use domain::caller::Caller;
use domain::ratelimits::{DescriptorCheck, DescriptorRules, Hits, check_descriptors};
use domain::root_keys::default_workspace;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use envoy_types::pb::google::protobuf::UInt64Value;
use foundation::clock::{DAY_MS, Monotonic};
use foundation::model::{DefaultLimit, EnforcementMode};
use futures_util::poll;
use prost::Message as _;
use serde_json::json;

use super::Gateway;
use crate::support::{Keyward, Stack};

/// A window that hardly ends during a test.
const LIMIT: DefaultLimit = DefaultLimit { limit: 10, duration: 30 * DAY_MS };
const RULES: DescriptorRules = DescriptorRules {
    default_limit: Some(LIMIT),
    mode: EnforcementMode::Enforce,
    counts_refused: true,
};
const MORE_THAN_LIMIT: i64 = 15;
/// Rules by which refused calls do not count.
const STRICT_RULES: DescriptorRules = DescriptorRules { counts_refused: false, ..RULES };

pub fn operator(kw: &Keyward) -> Caller {
    let context = &kw.app.context;
    let version = context.freshness.read_version(Monotonic::now());
    Caller::operator(default_workspace(), version, context.clock.now())
}

fn take(units: i64) -> [DescriptorCheck; 1] {
    [of_user("1", Hits::Take(units))]
}

fn of_user(user: &str, hits: Hits) -> DescriptorCheck {
    DescriptorCheck { identifier: format!("user={user}"), long_identifier: None, limit: None, hits }
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

/// Returns a call of the service as it arrives, with a header that proves its caller, and the units of each user. Negative units are
/// given back.
fn to_request(header: (&str, &str), users: &[(&str, i64)]) -> Request<Body> {
    let descriptor = |(user, units): &(&str, i64)| grpc::Descriptor {
        entries: vec![grpc::Entry { key: b"user".to_vec(), value: user.as_bytes().to_vec() }],
        limit: Some(RateLimitOverride {
            requests_per_unit: u32::try_from(LIMIT.limit).unwrap(),
            unit: RateLimitUnit::Month.into(),
        }),
        hits_addend: Some(UInt64Value { value: units.unsigned_abs() }),
        is_negative_hits: *units < 0,
    };
    let call = grpc::RateLimitCall {
        domain: "tokens".to_owned(),
        descriptors: users.iter().map(descriptor).collect(),
        hits_addend: 0,
    };
    let message = call.encode_to_vec();
    // Before a message, there is a flag of its compression and its length.
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    Request::post("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
        .header("content-type", "application/grpc")
        .header(header.0, header.1)
        .body(Body::from(body))
        .unwrap()
}

/// Sends a call to a server, and hangs up at once.
async fn abandon(kw: &Keyward, request: Request<Body>) {
    let (service, _health) = grpc::services(&kw.app);
    let mut call = Box::pin(service.answer(request));
    assert!(poll!(&mut call).is_pending());
}

#[tokio::test]
async fn units_count_where_refused_calls_count_when_policy_is_not_loaded() {
    let kw = Keyward::start_in_real_time(Stack::Replica).await;
    let limit = json!({ "limit": LIMIT.limit, "duration": LIMIT.duration });
    let namespace = json!({ "namespace": "tokens", "defaultLimit": limit, "countRefused": true });
    let gateway = Gateway::create(&kw, json!({ "namespaces": [namespace] })).await;
    let secret = ("keyward-gateway-secret", gateway.secret.as_str());

    abandon(&kw, to_request(secret, &[("1", MORE_THAN_LIMIT)])).await;

    wait_until_refused(&kw).await;
}

/// Takes all units of a user.
async fn take_all(kw: &Keyward) {
    let (caller, all) = (operator(kw), take(LIMIT.limit));
    let namespace = "tokens".to_owned();
    let taken = check_descriptors(&kw.app.ratelimits, &caller, namespace, STRICT_RULES, &all);
    assert!(taken.await.unwrap().is_admitted);
}

/// Returns what remains of the limit of a user.
async fn find_remaining(kw: &Keyward, user: &str) -> i64 {
    let (caller, look) = (operator(kw), [of_user(user, Hits::Take(0))]);
    let namespace = "tokens".to_owned();
    let check = check_descriptors(&kw.app.ratelimits, &caller, namespace, STRICT_RULES, &look);
    check.await.unwrap().results[0].as_ref().unwrap().window_status.remaining
}

/// Looks until so many units of the first user remain.
async fn wait_until_remaining(kw: &Keyward, units: i64) {
    let mut remaining = 0;
    for _ in 0..500 {
        remaining = find_remaining(kw, "1").await;
        if remaining == units {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{remaining} units remain");
}

/// Gives units back by a replica, beside others that it takes, and hangs up at once.
async fn assert_units_are_given_back(is_namespace_cached: bool, others: &[DescriptorCheck]) {
    let kw = Keyward::start_in_real_time(Stack::Replica).await;
    take_all(&kw).await;
    let replica = kw.replica().await;
    let caller = operator(&replica);
    let check = |descriptors| {
        let namespace = "tokens".to_owned();
        check_descriptors(&replica.app.ratelimits, &caller, namespace, STRICT_RULES, descriptors)
    };
    let (look, units) = (take(0), [&[of_user("1", Hits::GiveBack(4))][..], others].concat());
    if is_namespace_cached {
        assert!(check(&look).await.unwrap().is_admitted);
    }

    let mut call = check(&units);
    assert!(poll!(&mut call).is_pending());
    drop(call);

    wait_until_remaining(&kw, 4).await;
}

#[tokio::test]
async fn units_are_given_back_when_gateway_hangs_up() {
    assert_units_are_given_back(true, &[]).await;
}

#[tokio::test]
async fn units_are_given_back_when_namespace_is_not_loaded() {
    assert_units_are_given_back(false, &[]).await;
}

#[tokio::test]
async fn units_are_given_back_when_gateway_hangs_up_while_the_call_takes_others() {
    assert_units_are_given_back(true, &[of_user("2", Hits::Take(1))]).await;
}

#[tokio::test]
async fn units_are_given_back_when_policy_or_root_key_is_not_loaded() {
    let kw = Keyward::start_in_real_time(Stack::Replica).await;
    let gateway = Gateway::create(&kw, json!({ "namespaces": [{ "namespace": "tokens" }] })).await;
    let bearer = format!("Bearer {}", kw.root_key);
    let callers =
        [("keyward-gateway-secret", gateway.secret.as_str()), ("authorization", bearer.as_str())];
    take_all(&kw).await;
    let replica = kw.replica().await;

    for (caller, remaining) in callers.into_iter().zip([4, 8]) {
        abandon(&replica, to_request(caller, &[("1", -4)])).await;

        wait_until_remaining(&kw, remaining).await;
    }
}

#[tokio::test]
async fn units_are_given_back_and_others_not_taken_when_policy_of_a_mixed_call_is_not_loaded() {
    let kw = Keyward::start_in_real_time(Stack::Replica).await;
    let gateway = Gateway::create(&kw, json!({ "namespaces": [{ "namespace": "tokens" }] })).await;
    let secret = ("keyward-gateway-secret", gateway.secret.as_str());
    take_all(&kw).await;
    let replica = kw.replica().await;

    abandon(&replica, to_request(secret, &[("1", -4), ("2", 3)])).await;

    wait_until_remaining(&kw, 4).await;
    assert_eq!(find_remaining(&kw, "2").await, LIMIT.limit);
}
