//! The services that gateways call over gRPC: Envoy's external authorization and rate limits, and the
//! health of this server.

mod call_guard;
mod ext_authz;
mod health;
mod identifier;
mod rate_limit;
mod rate_limit_call;
mod service;

use std::sync::Arc;

use axum::http::HeaderName;
use domain::app::App;
use envoy_types::ext_authz::v3::pb::AuthorizationServer;
use tonic::service::Routes;

use ext_authz::ExtAuthz;
pub use health::HealthReport;
pub use identifier::to_identifier;
use rate_limit::RateLimits;
pub use rate_limit_call::{Descriptor, Entry, RateLimitCall};
pub use service::GrpcService;
use service::Services;

/// Names the policy of a gateway.
static POLICY: HeaderName = HeaderName::from_static("keyward-policy");
/// The maximum size of a message. A gateway may be configured to send the beginning of bodies, which are not used.
const MESSAGE_MAX_BYTES: usize = 1024 * 1024;

/// Creates the services of a server, and what reports their health.
pub fn services(app: &Arc<App>) -> (GrpcService, HealthReport) {
    let authorization = AuthorizationServer::new(ExtAuthz::new(app.clone()))
        .max_decoding_message_size(MESSAGE_MAX_BYTES);
    let limits = Arc::new(RateLimits::new(app.clone()));
    let (report, health) = HealthReport::new();
    let others = Routes::new(health).prepare().into_axum_router();
    (GrpcService::new(Arc::new(Services { authorization, limits, others })), report)
}
