//! `grpc.health.v1.Health`: whether gateways shall send requests to this server.

use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::context::Context;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::server::{HealthReporter, health_reporter};

/// How often the status is updated.
const INTERVAL: Duration = Duration::from_millis(250);

/// The services whose status is reported; empty: the server.
const SERVICES: [&str; 3] =
    ["", "envoy.service.auth.v3.Authorization", "envoy.service.ratelimit.v3.RateLimitService"];

/// Reports the status of the services.
pub struct HealthReport(HealthReporter);

impl HealthReport {
    pub(crate) fn new() -> (Self, HealthServer<impl Health>) {
        let (reporter, service) = health_reporter();
        (Self(reporter), service)
    }

    /// Reports, until the task ends, that the server serves unless it is starting or draining. As `/readyz`, it stays
    /// ready without its database.
    pub async fn run(self, context: &Context) {
        loop {
            let is_serving =
                context.store.store().is_ok() && !context.is_draining.load(Ordering::Relaxed);
            let status =
                if is_serving { ServingStatus::Serving } else { ServingStatus::NotServing };
            for service in SERVICES {
                self.0.set_service_status(service, status).await;
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
}
