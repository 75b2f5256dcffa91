//! Tests calls of the rate-limit service whose gateway hangs up before the answer.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use domain::caller::Caller;
use domain::ratelimits::{DescriptorCheck, DescriptorRules, Hits, check_descriptors};
use domain::root_keys::default_workspace;
use envoy_types::pb::google::protobuf::UInt64Value;
use foundation::clock::Monotonic;
use foundation::model::{DefaultLimit, EnforcementMode};
use futures_util::poll;
use prost::Message as _;
use serde_json::json;

use super::Gateway;
use crate::support::{Keyward, Stack};

const LIMIT: DefaultLimit = DefaultLimit { limit: 10, duration: 3_600_000 };
const RULES: DescriptorRules = DescriptorRules {
    default_limit: Some(LIMIT),
    mode: EnforcementMode::Enforce,
    counts_refused: true,
};
const MORE_THAN_LIMIT: i64 = 15;

pub fn operator(kw: &Keyward) -> Caller {
    let context = &kw.app.context;
    let version = context.freshness.read_version(Monotonic::now());
    Caller::operator(default_workspace(), version, context.clock.now())
}

fn take(units: i64) -> [DescriptorCheck; 1] {
    let identifier = "user=1".to_owned();
    [DescriptorCheck { identifier, long_identifier: None, limit: None, hits: Hits::Take(units) }]
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

/// Returns a call of the service with the secret of a policy, as it arrives.
fn to_request(secret: &str, units: i64) -> Request<Body> {
    let entry = grpc::Entry { key: b"user".to_vec(), value: b"1".to_vec() };
    let descriptor = grpc::Descriptor {
        entries: vec![entry],
        hits_addend: Some(UInt64Value { value: units.unsigned_abs() }),
        ..grpc::Descriptor::default()
    };
    let call = grpc::RateLimitCall {
        domain: "tokens".to_owned(),
        descriptors: vec![descriptor],
        hits_addend: 0,
    };
    let message = call.encode_to_vec();
    // Before a message, there is a flag of its compression and its length.
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    Request::post("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
        .header("content-type", "application/grpc")
        .header("keyward-gateway-secret", secret)
        .body(Body::from(body))
        .unwrap()
}

#[tokio::test]
async fn units_count_where_refused_calls_count_when_policy_is_not_loaded() {
    let kw = Keyward::start_in_real_time(Stack::Replica).await;
    let limit = json!({ "limit": LIMIT.limit, "duration": LIMIT.duration });
    let namespace = json!({ "namespace": "tokens", "defaultLimit": limit, "countRefused": true });
    let gateway = Gateway::create(&kw, json!({ "namespaces": [namespace] })).await;
    let (service, _health) = grpc::services(&kw.app);

    let request = to_request(&gateway.secret, MORE_THAN_LIMIT);
    let mut call = Box::pin(service.answer(request));
    assert!(poll!(&mut call).is_pending());
    drop(call);

    wait_until_refused(&kw).await;
}
