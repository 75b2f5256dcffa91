//! Traces each request as a span.

use api::ReplyFuture;
use axum::extract::Request;
use axum::http::HeaderMap;
use dashboard::Dashboard;
use foundation::traces;
use opentelemetry::propagation::Extractor;
use tracing::instrument::Instrument as _;

use super::{HttpService, OTHER};

impl HttpService {
    pub(super) fn traced(&self, request: Request) -> ReplyFuture {
        let route = self.route(request.uri().path());
        let span = traces::begin(request.method().as_str(), route, &Headers(request.headers()));
        let answer = self.routed(request);
        let ending = span.clone();
        let traced = async move {
            let response = answer.await;
            traces::end(&ending, response.status().as_u16());
            response
        };
        Box::pin(traced.instrument(span))
    }

    /// Returns the route of a path as registered, never the text of the caller.
    fn route(&self, path: &str) -> &str {
        match self.operations.get_key_value(path) {
            Some((route, _)) => route,
            None if Dashboard::is_dashboard_path(path) => "/dashboard",
            None => OTHER,
        }
    }
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(axum::http::HeaderName::as_str).collect()
    }
}
