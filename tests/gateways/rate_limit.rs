//! `envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit`, as Envoy calls it.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use envoy_types::pb::google::protobuf::UInt64Value;
use serde_json::{Value, json};
use tonic::transport::Channel;

use super::Gateway;
use super::ext_authz::Listener;
use crate::on_both_stacks;
use crate::support::Keyward;

/// A client with a root key, or with a policy and its secret.
pub struct Client {
    client: RateLimitServiceClient<Channel>,
    metadata: Vec<(&'static str, String)>,
    listener: Listener,
}

impl Client {
    async fn connect(kw: &Keyward, metadata: Vec<(&'static str, String)>) -> Self {
        let listener = Listener::start(kw).await;
        let client = RateLimitServiceClient::connect(listener.url.clone()).await.unwrap();
        Self { client, metadata, listener }
    }

    pub async fn with_root_key(kw: &Keyward, root_key: &str) -> Self {
        Self::connect(kw, vec![("authorization", format!("Bearer {root_key}"))]).await
    }

    /// Creates a policy with these namespaces.
    pub async fn with_policy(kw: &Keyward, namespaces: Value) -> Self {
        let gateway = Gateway::create(kw, json!({ "namespaces": namespaces })).await;
        let metadata = vec![
            ("keyward-policy", "edge".to_owned()),
            ("keyward-gateway-secret", gateway.secret.clone()),
        ];
        Self::connect(kw, metadata).await
    }

    pub async fn send(
        &mut self,
        domain: &str,
        hits_addend: u32,
        descriptors: Vec<RateLimitDescriptor>,
    ) -> Result<RateLimitResponse, tonic::Status> {
        let domain = domain.to_owned();
        let mut call = tonic::Request::new(RateLimitRequest { domain, descriptors, hits_addend });
        for (name, value) in &self.metadata {
            call.metadata_mut().insert(*name, value.parse().unwrap());
        }
        self.client.should_rate_limit(call).await.map(tonic::Response::into_inner)
    }

    /// Sends a descriptor whose entries are bytes, as Envoy copies them from headers.
    async fn send_bytes(
        &mut self,
        domain: &str,
        descriptor: grpc::Descriptor,
    ) -> Result<RateLimitResponse, tonic::Status> {
        let (domain, descriptors) = (domain.to_owned(), vec![descriptor]);
        let mut call =
            tonic::Request::new(grpc::RateLimitCall { domain, descriptors, hits_addend: 0 });
        for (name, value) in &self.metadata {
            call.metadata_mut().insert(*name, value.parse().unwrap());
        }
        let channel =
            Channel::from_shared(self.listener.url.clone()).unwrap().connect().await.unwrap();
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.unwrap();
        let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit".parse().unwrap();
        let codec = tonic_prost::ProstCodec::<grpc::RateLimitCall, RateLimitResponse>::default();
        client.unary(call, path, codec).await.map(tonic::Response::into_inner)
    }

    /// Returns whether the call is admitted, and what remains of each limit.
    pub async fn check(&mut self, descriptors: Vec<RateLimitDescriptor>) -> (bool, Vec<u32>) {
        let response = self.send("edge", 0, descriptors).await.unwrap();
        let remaining = response.statuses.iter().map(|status| status.limit_remaining).collect();
        (response.overall_code == i32::from(Code::Ok), remaining)
    }
}

/// A descriptor with one entry.
pub fn descriptor(value: &str) -> RateLimitDescriptor {
    let entry = Entry { key: "user".to_owned(), value: value.to_owned() };
    RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() }
}

fn limited(value: &str, requests_per_unit: u32) -> RateLimitDescriptor {
    let unit = RateLimitUnit::Hour.into();
    RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit, unit }),
        ..descriptor(value)
    }
}

pub fn with_hits(descriptor: RateLimitDescriptor, value: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(UInt64Value { value }), ..descriptor }
}

on_both_stacks! {
    async fn limit_is_that_of_the_descriptor_then_the_override_then_the_policy(kw) {
        let default = json!({ "limit": 3, "duration": 60_000 });
        let namespaces = json!([{ "namespace": "edge", "defaultLimit": default }, { "namespace": "bare" }]);
        let mut client = Client::with_policy(&kw, namespaces).await;
        kw.set_override("edge", "user=vip", json!({ "limit": 7, "duration": 60_000 })).await;

        assert_eq!(client.check(vec![descriptor("1")]).await, (true, vec![2]));
        assert_eq!(client.check(vec![descriptor("vip")]).await, (true, vec![6]));
        assert_eq!(client.check(vec![limited("vip", 2)]).await, (true, vec![1]));
        let response = client.send("edge", 0, vec![limited("2", 5)]).await.unwrap();
        let limit = response.statuses[0].current_limit.clone().unwrap();
        assert_eq!((limit.requests_per_unit, limit.unit), (5, i32::from(Unit::Hour)));
        // Noon is the beginning of an hour.
        assert_eq!(response.statuses[0].duration_until_reset.as_ref().unwrap().seconds, 3600);
        let headers: Vec<_> =
            response.response_headers_to_add.iter().map(|header| header.key.as_str()).collect();
        assert_eq!(headers, ["ratelimit-policy", "ratelimit"]);
        let response = client.send("bare", 0, vec![descriptor("1")]).await.unwrap();
        assert_eq!(response.overall_code, i32::from(Code::Ok));
        assert_eq!(response.statuses[0].current_limit, None);
    }

    async fn descriptors_are_taken_all_or_none(kw) {
        let mut client = Client::with_root_key(&kw, &kw.root_key).await;

        let both = || vec![limited("a", 2), limited("b", 1)];
        assert_eq!(client.check(both()).await, (true, vec![1, 0]));
        let response = client.send("edge", 0, both()).await.unwrap();
        assert_eq!(response.overall_code, i32::from(Code::OverLimit));
        let header = response.response_headers_to_add.last().unwrap();
        // Noon is the beginning of an hour.
        assert_eq!((header.key.as_str(), header.value.as_str()), ("retry-after", "3600"));
        let codes: Vec<_> = response.statuses.iter().map(|status| status.code).collect();
        assert_eq!(codes, [i32::from(Code::Ok), i32::from(Code::OverLimit)]);
        assert_eq!(client.check(vec![with_hits(limited("a", 2), 0)]).await, (true, vec![1]));
    }

    async fn hits_are_those_of_the_descriptor_or_of_the_call(kw) {
        let mut client = Client::with_root_key(&kw, &kw.root_key).await;

        let descriptors = vec![limited("a", 10), with_hits(limited("b", 10), 3)];
        let response = client.send("edge", 4, descriptors).await.unwrap();
        let remaining: Vec<_> = response.statuses.iter().map(|status| status.limit_remaining).collect();
        assert_eq!(remaining, [6, 7]);
        assert_eq!(client.check(vec![with_hits(limited("a", 10), 0)]).await, (true, vec![6]));
        assert_eq!(client.check(vec![with_hits(limited("a", 10), 7)]).await, (false, vec![0]));
        assert_eq!(client.check(vec![with_hits(limited("a", 10), 6)]).await, (true, vec![0]));
    }

    async fn shadow_mode_admits_what_would_be_refused(kw) {
        let default = json!({ "limit": 1, "duration": 60_000 });
        let namespaces = json!([{ "namespace": "edge", "defaultLimit": default, "mode": "shadow" }]);
        let mut client = Client::with_policy(&kw, namespaces).await;

        for _ in 0..3 {
            let response = client.send("edge", 0, vec![descriptor("1")]).await.unwrap();
            assert_eq!(response.overall_code, i32::from(Code::Ok));
            assert_eq!(response.statuses[0].code, i32::from(Code::Ok));
        }
        kw.write_events().await;
        let query = "SELECT passed FROM ratelimits_v1 ORDER BY passed";
        let found = kw.v2("analytics.getRatelimits", json!({ "query": query })).await;
        let rows = found.data().as_array().unwrap();
        let passed: Vec<_> = rows.iter().map(|row| row["passed"].clone()).collect();
        assert_eq!(passed, [json!(false), json!(false), json!(true)]);
    }

    async fn order_and_signs_of_entries_tell_counters_apart(kw) {
        let mut client = Client::with_root_key(&kw, &kw.root_key).await;
        let entries = |pairs: &[(&str, &str)]| {
            let entry =
                |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
            RateLimitDescriptor { entries: pairs.iter().map(entry).collect(), ..limited("", 1) }
        };

        for pairs in [
            &[("a", "1"), ("b", "2")][..], &[("b", "2"), ("a", "1")], &[("a", "1|b=2")], &[("a", "1")],
        ] {
            assert!(client.check(vec![entries(pairs)]).await.0, "{pairs:?}");
            assert!(!client.check(vec![entries(pairs)]).await.0, "{pairs:?}");
        }
    }

    async fn caller_must_be_allowed_to_use_the_namespace(kw) {
        let default = json!({ "limit": 1, "duration": 1000 });
        let namespaces = json!([{ "namespace": "edge", "defaultLimit": default }]);
        let mut client = Client::with_policy(&kw, namespaces).await;
        let secret = client.metadata.clone();
        let weak = kw.create_root_key(["api.*.verify_key"]).await;
        let wrong = vec![secret[0].clone(), ("keyward-gateway-secret", "wrong".to_owned())];
        let bearer = |key: &str| vec![("authorization", format!("Bearer {key}"))];

        for (domain, metadata, code) in [
            ("other", secret, tonic::Code::PermissionDenied),
            ("edge", wrong, tonic::Code::PermissionDenied),
            ("edge", Vec::new(), tonic::Code::PermissionDenied),
            ("edge", bearer("unknown"), tonic::Code::Unauthenticated),
            ("edge", bearer(&weak), tonic::Code::PermissionDenied),
        ] {
            client.metadata = metadata;
            let refused = client.send(domain, 0, vec![descriptor("1")]).await.unwrap_err();
            assert_eq!(refused.code(), code, "{domain} {:?}", client.metadata);
        }
        kw.delete_namespace("edge").await;
        client.metadata = bearer(&kw.root_key);
        let refused = client.send("edge", 0, vec![descriptor("1")]).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    }

    async fn refusal_has_a_time_to_wait_unless_the_limit_is_less_than_what_the_call_takes(kw) {
        let mut client = Client::with_root_key(&kw, &kw.root_key).await;
        client.check(vec![limited("1", 2)]).await;
        let of = |limit: u32, hits: &[u64]| -> Vec<_> {
            hits.iter().map(|hits| with_hits(limited("1", limit), *hits)).collect()
        };
        for (limit, taking, has_time) in [
            (0, of(0, &[0]), false),
            (1, of(1, &[2]), false),
            (2, of(2, &[2]), true),
            // Both are counted by one counter.
            (2, of(2, &[1, 1]), true),
            (2, of(2, &[1, 2]), false),
        ] {
            let refused = client.send("edge", 0, taking).await.unwrap();

            assert_eq!(refused.overall_code, i32::from(Code::OverLimit));
            let headers = refused.response_headers_to_add;
            assert_eq!(headers.iter().any(|header| header.key == "retry-after"), has_time, "{limit}");
        }
    }

    async fn long_values_are_counted_apart_from_each_other(kw) {
        let mut client = Client::with_root_key(&kw, &kw.root_key).await;
        // One character more than an identifier may have.
        let [one, other] = ["a", "b"].map(|end| limited(&("u".repeat(512 - "user=".len()) + end), 2));

        assert_eq!(client.check(vec![one.clone()]).await, (true, vec![1]));
        assert_eq!(client.check(vec![one.clone()]).await, (true, vec![0]));
        assert_eq!(client.check(vec![other]).await, (true, vec![1]));
        assert_eq!(client.check(vec![one]).await, (false, vec![0]));
    }

    async fn namespace_is_that_which_the_policy_lists_by_its_name_or_id(kw) {
        let mut first = Client::with_root_key(&kw, &kw.root_key).await;
        for name in ["first", "second"] {
            first.send(name, 0, vec![limited("1", 1)]).await.unwrap();
        }
        let ids = kw.list_texts("namespaces", "id").await;
        let names = kw.list_texts("namespaces", "name").await;
        let default = json!({ "limit": 3, "duration": 60_000 });
        let mut client = Client::with_policy(&kw, json!([
            { "namespace": ids[0], "defaultLimit": default },
            { "namespace": names[1], "defaultLimit": default },
        ])).await;

        for domains in [[&ids[0], &names[0]], [&names[1], &ids[1]]] {
            for (domain, remaining) in domains.into_iter().zip([2, 1]) {
                let response = client.send(domain, 0, vec![descriptor("1")]).await.unwrap();
                assert_eq!(response.statuses[0].limit_remaining, remaining, "{domain}");
            }
        }
    }

    async fn secret_of_a_policy_names_the_policy(kw) {
        let mut client = Client::with_policy(&kw, json!([{ "namespace": "edge" }])).await;
        client.metadata.retain(|(name, _)| *name != "keyward-policy");
        assert_eq!(client.check(vec![limited("1", 2)]).await, (true, vec![1]));

        client.metadata.push(("keyward-policy", "other".to_owned()));
        let refused = client.send("edge", 0, vec![limited("1", 2)]).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::PermissionDenied);
        client.metadata = vec![("keyward-gateway-secret", String::new())];
        let refused = client.send("edge", 0, vec![limited("1", 2)]).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::PermissionDenied);
    }

    async fn scheme_of_a_root_key_may_be_in_small_letters(kw) {
        let mut client = Client::with_root_key(&kw, &kw.root_key).await;
        client.metadata = vec![("authorization", format!("bearer {}", kw.root_key))];
        assert_eq!(client.check(vec![limited("1", 2)]).await, (true, vec![1]));
    }

    async fn empty_domain_is_rejected_by_its_rule_when_a_policy_asks(kw) {
        let mut client = Client::with_policy(&kw, json!([{ "namespace": "edge" }])).await;

        let empty = client.send("", 0, vec![limited("1", 2)]).await.unwrap_err();

        assert_eq!(empty.code(), tonic::Code::InvalidArgument, "{empty}");
        assert!(empty.message().contains("domain must have 1 to 512 characters"), "{empty}");
        let unlisted = client.send("other", 0, vec![limited("1", 2)]).await.unwrap_err();
        assert_eq!(unlisted.code(), tonic::Code::PermissionDenied, "{unlisted}");
    }

    async fn value_that_is_no_text_does_not_make_the_call_fail(kw) {
        let mut client = Client::with_root_key(&kw, &kw.root_key).await;
        let limit = RateLimitOverride { requests_per_unit: 2, unit: RateLimitUnit::Hour.into() };
        for (value, shown) in [(&b"\xff"[..], "user=\\xFF"), (b"a\0", "user=a\\x00"), (b"\xc3", "user=\\xC3")] {
            let mut codes = Vec::new();
            for _ in 0..3 {
                let entry = grpc::Entry { key: b"user".to_vec(), value: value.to_vec() };
                let descriptor = grpc::Descriptor { entries: vec![entry], limit: Some(limit), ..grpc::Descriptor::default() };
                codes.push(client.send_bytes("edge", descriptor).await.unwrap().overall_code);
            }

            assert_eq!(codes, [Code::Ok, Code::Ok, Code::OverLimit].map(i32::from), "{shown}");
        }
    }

    async fn call_is_rejected_when_a_field_is_out_of_bounds(kw) {
        let mut client = Client::with_root_key(&kw, &kw.root_key).await;
        let per = |unit: i32| RateLimitDescriptor {
            limit: Some(RateLimitOverride { requests_per_unit: 1, unit }), ..descriptor("1")
        };
        let (month, year) = (RateLimitUnit::Month.into(), RateLimitUnit::Year.into());
        let longest = "a".repeat(512 - "user=".len());
        let domain_too_long = "a".repeat(513);
        let count = "descriptors must have 1 to 100 items";
        let length = "domain must have 1 to 512 characters";

        // An empty text: the call is valid.
        for (domain, descriptors, reported) in [
            ("edge", vec![], count),
            ("edge", vec![descriptor("1"); 100], ""),
            ("edge", vec![descriptor("1"); 101], count),
            ("", vec![descriptor("1")], length),
            (&domain_too_long, vec![descriptor("1")], length),
            ("a\0", vec![descriptor("1")], length),
            ("edge", vec![descriptor("a\0")], ""),
            ("edge", vec![descriptor(&longest)], ""),
            ("edge", vec![RateLimitDescriptor::default()], "descriptors[0].entries"),
            ("edge", vec![per(month)], ""),
            ("edge", vec![per(year)], ""),
            ("edge", vec![per(99)], "descriptors[0].limit.unit"),
            ("edge", vec![with_hits(descriptor("1"), 1_000_000_000_000)], ""),
            ("edge", vec![with_hits(descriptor("1"), 1_000_000_000_001)], "descriptors[0].hits_addend"),
        ] {
            match client.send(domain, 0, descriptors).await {
                Ok(_) => assert_eq!(reported, ""),
                Err(status) => {
                    assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
                    assert!(!reported.is_empty() && status.message().contains(reported), "{status}");
                }
            }
        }
    }
}
