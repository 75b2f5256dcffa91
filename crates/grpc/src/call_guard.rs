//! Calls of the rate-limit service whose gateway hangs up, or stops waiting, before the policy of the call, or its root key, is
//! loaded.
//!
//! Whether such a call counts is only known then. So it begins again in the background: until its caller is known, it has changed
//! nothing. Once it is known, [`ratelimits::check_descriptors`] sees to it that what must count does.

use std::mem::take;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;

use api::gateway::within_bounds;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use domain::app::App;
use domain::ratelimits::{self, DescriptorCheck};
use foundation::error::Result;
use foundation::id::RequestId;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tonic::metadata::MetadataMap;

use crate::rate_limit::{authenticate, log_failure, to_checks};
use crate::rate_limit_call::RateLimitCall;

/// The maximum number of abandoned calls that are decided at a time. Each holds its head and the identifiers of its descriptors, less
/// than 300 KB, and long identifiers. The units of further ones are lost: callers are not authenticated yet.
const ABANDONED_CALLS_MAX: usize = 100;
/// The maximum size of the long identifiers of an abandoned call, which names counters by shorter ones. Envoy accepts 60 KiB of
/// headers from a client.
const LONG_IDENTIFIERS_MAX_BYTES: usize = 128 * 1024;

/// What a call says of who sends it.
pub struct CallOrigin {
    pub metadata: MetadataMap,
    pub request_id: RequestId,
    /// The address that its connection comes from.
    pub peer: Option<IpAddr>,
}

impl CallOrigin {
    pub fn headers(&self) -> &HeaderMap {
        self.metadata.as_ref()
    }
}

/// Decides calls whose gateway no longer waits.
pub struct AbandonedCalls {
    app: Arc<App>,
    permits: Arc<Semaphore>,
}

impl AbandonedCalls {
    pub fn new(app: Arc<App>) -> Self {
        Self { app, permits: Arc::new(Semaphore::new(ABANDONED_CALLS_MAX)) }
    }

    /// Decides a call in the background, if it is valid.
    fn decide(&self, origin: CallOrigin, request: RateLimitCall) {
        let Ok(checks) = to_checks(&request) else { return };
        let long = checks.iter().filter_map(|check| check.long_identifier.as_ref());
        if long.map(String::len).sum::<usize>() > LONG_IDENTIFIERS_MAX_BYTES {
            tracing::debug!(
                request.id = %origin.request_id,
                "dropped an abandoned call: its identifiers have more than {LONG_IDENTIFIERS_MAX_BYTES} bytes"
            );
            return;
        }
        let Ok(permit) = self.permits.clone().try_acquire_owned() else {
            tracing::debug!(
                request.id = %origin.request_id,
                "dropped an abandoned call: {ABANDONED_CALLS_MAX} others are decided"
            );
            return;
        };
        // Without a runtime, the process is about to end.
        let Ok(runtime) = Handle::try_current() else { return };
        let (app, namespace) = (self.app.clone(), request.domain);
        runtime.spawn(async move {
            let counting = pin!(count_units(&app, &origin, namespace, checks));
            if let Err(error) = within_bounds(counting).await {
                log_failure(&error, &origin.request_id);
            }
            drop(permit);
        });
    }
}

/// Counts the units of a call whose policy counts refused calls, or else only those that it gives back: other calls take nothing
/// when nobody waits.
async fn count_units(
    app: &App,
    origin: &CallOrigin,
    namespace: String,
    mut checks: Vec<DescriptorCheck>,
) -> Result<()> {
    let (caller, rules) = authenticate(app, origin, &namespace).await?;
    if !rules.counts_refused {
        checks.retain(|check| check.hits.is_give_back());
    }
    if !checks.is_empty() {
        ratelimits::check_descriptors(&app.ratelimits, &caller, namespace, rules, &checks).await?;
    }
    Ok(())
}

/// Holds a call until its caller is known. A call that is dropped before is abandoned.
pub struct CallGuard<'a> {
    abandoned_calls: &'a AbandonedCalls,
    origin: CallOrigin,
    request: RateLimitCall,
    is_armed: bool,
}

impl<'a> CallGuard<'a> {
    /// Holds a call. Nothing that a root key takes counts if it is refused.
    pub fn new(
        abandoned_calls: &'a AbandonedCalls,
        origin: CallOrigin,
        request: RateLimitCall,
    ) -> Self {
        let gives_back =
            || request.descriptors.iter().any(|descriptor| descriptor.is_negative_hits);
        let is_armed = !origin.headers().contains_key(AUTHORIZATION) || gives_back();
        Self { abandoned_calls, origin, request, is_armed }
    }

    pub fn origin(&self) -> &CallOrigin {
        &self.origin
    }

    pub fn request(&self) -> &RateLimitCall {
        &self.request
    }

    /// Returns the message of a call whose caller is known, or refused.
    pub fn disarm(mut self) -> RateLimitCall {
        self.is_armed = false;
        take(&mut self.request)
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            let CallOrigin { metadata, request_id, peer } = &mut self.origin;
            let metadata = take(metadata);
            let origin = CallOrigin { metadata, request_id: *request_id, peer: *peer };
            self.abandoned_calls.decide(origin, take(&mut self.request));
        }
    }
}
