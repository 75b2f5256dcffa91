//! The ceiling of the rate-limit service: a bare tonic server that counts with one script call and replies.

use super::Outcome;
use super::ceiling::{DURATION_MS, LIMIT, Window, now_ms};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::google::protobuf::Duration;
use std::sync::Arc;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// Serves until the process is terminated.
pub async fn serve(address: &str, window: Arc<Window>) -> Outcome<()> {
    let parsed = address.parse().map_err(|e| format!("{address} is not an address: {e}"))?;
    let service = RateLimitServiceServer::new(RateLimitEcho(window));
    let served = Server::builder().add_service(service).serve(parsed).await;
    served.map_err(|e| format!("the ceiling did not serve gRPC on {address}: {e}"))
}

struct RateLimitEcho(Arc<Window>);

#[tonic::async_trait]
impl RateLimitService for RateLimitEcho {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        if request.metadata().get("keyward-gateway-secret").is_none() {
            return Err(Status::unauthenticated("no secret"));
        }
        let request = request.into_inner();
        let entry = request.descriptors.first().and_then(|descriptor| descriptor.entries.first());
        let entry = entry.ok_or_else(|| Status::invalid_argument("no entry"))?;
        let state = self.0.take(&entry.value).await;
        let state = state.map_err(|e| Status::internal(e.to_string()))?;
        let code = if state.exceeded { Code::OverLimit } else { Code::Ok }.into();
        let to_u32 = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let left_ms = state.reset.saturating_sub(now_ms()).min(DURATION_MS);
        let status = DescriptorStatus {
            code,
            current_limit: Some(RateLimit {
                requests_per_unit: to_u32(LIMIT),
                unit: Unit::Minute.into(),
                ..RateLimit::default()
            }),
            limit_remaining: to_u32(state.remaining),
            duration_until_reset: Some(Duration {
                seconds: i64::try_from(left_ms / 1_000).unwrap_or(0),
                nanos: i32::try_from(left_ms % 1_000 * 1_000_000).unwrap_or(0),
            }),
            ..DescriptorStatus::default()
        };
        let statuses = vec![status];
        Ok(Response::new(RateLimitResponse { overall_code: code, statuses, ..Default::default() }))
    }
}
