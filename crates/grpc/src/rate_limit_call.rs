//! The request of the rate-limit service as it arrives, and the call of its only method.
//!
//! Envoy defines the keys and values of descriptors as text, but copies values from the headers of a client as they are. A text that
//! is no UTF-8 would make the call fail before it is looked at, and gateways let the request of a failed call pass: so here
//! they are bytes, which have the same form on the wire.

use std::sync::Arc;

use axum::body::HttpBody;
use axum::http::{Request, Response};
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::google::protobuf::UInt64Value;
use tonic::Status;
use tonic::codegen::{BoxFuture, Bytes};
use tonic::server::{Grpc, UnaryService};
use tonic_prost::ProstCodec;

use crate::rate_limit::RateLimits;

/// The name of the service, in the path of a call.
pub const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
/// The path of its method.
const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A `RateLimitRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitCall {
    #[prost(string, tag = "1")]
    pub domain: String,
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<Descriptor>,
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// A `RateLimitDescriptor`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    #[prost(message, optional, tag = "2")]
    pub limit: Option<RateLimitOverride>,
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<UInt64Value>,
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}

/// An entry of a descriptor.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Entry {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// The method of the service.
struct ShouldRateLimit(Arc<RateLimits>);

impl UnaryService<RateLimitCall> for ShouldRateLimit {
    type Response = RateLimitResponse;
    type Future = BoxFuture<tonic::Response<RateLimitResponse>, Status>;

    fn call(&mut self, request: tonic::Request<RateLimitCall>) -> Self::Future {
        let limits = self.0.clone();
        Box::pin(async move { limits.should_rate_limit(request).await })
    }
}

/// Answers a call of the service. Its message has at most `message_max` bytes.
pub async fn call<B>(
    limits: Arc<RateLimits>,
    request: Request<B>,
    message_max: usize,
) -> Response<tonic::body::Body>
where
    B: HttpBody<Data = Bytes, Error = Status> + Send + 'static,
{
    if request.uri().path() != METHOD {
        return Status::unimplemented("").into_http();
    }
    let mut grpc = Grpc::new(ProstCodec::default()).max_decoding_message_size(message_max);
    grpc.unary(ShouldRateLimit(limits), request).await
}
