//! Spans, and how they are sent: by OTLP over HTTP, as the standard variables (`OTEL_…`) say.

use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tracing::field::Empty;
use tracing::instrument::{Instrument as _, Instrumented};
use tracing::{Span, info_span};
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt as _};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;

use crate::id::{RequestId, WorkspaceId};

/// What spans are known by, so that the log leaves them out and traces hold nothing else.
const TARGET: &str = "keyward::traces";
/// Where traces go: either, the first where both are set.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// What gathers spans and sends them, on a thread of its own.
pub struct Exporter(SdkTracerProvider);

impl Exporter {
    /// `None`: nothing says where traces are to go. The error is one sentence.
    pub fn start() -> Result<Option<Self>, String> {
        let Some((name, endpoint)) =
            ENDPOINTS.iter().find_map(|name| Some((*name, variable(name)?)))
        else {
            return Ok(None);
        };
        if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none")
        {
            return Ok(None);
        }
        if !endpoint.starts_with("http://") {
            return Err(format!(
                "{name} does not begin with http://: traces go to a collector nearby, which speaks TLS to others"
            ));
        }
        let exporter = SpanExporter::builder().with_http().build();
        let exporter = exporter.map_err(|e| format!("{name} cannot be used: {e}"))?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource())
            .build();
        Ok(Some(Self(provider)))
    }

    /// What hands spans over.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let tracer: SdkTracer = self.0.tracer("keyward");
        let ours = Targets::new().with_target(TARGET, LevelFilter::INFO);
        OpenTelemetryLayer::new(tracer).with_location(false).with_threads(false).with_filter(ours)
    }

    /// Sends what has not been sent yet; a collector that is away is given up after some seconds.
    pub fn stop(self) {
        if let Err(e) = self.0.shutdown() {
            tracing::warn!(error = %e, "the last traces are lost: {e}");
        }
    }
}

/// What the variables say of this service; its name, where they say none.
fn resource() -> Resource {
    let is_named = variable("OTEL_SERVICE_NAME").is_some()
        || variable("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|text| text.contains("service.name="));
    let resource = Resource::builder();
    if is_named { resource.build() } else { resource.with_service_name("keyward").build() }
}

/// An empty variable is none, as the standard has it.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A request that comes in, as a part of whatever its `traceparent` says.
pub fn begin(method: &str, route: &str, headers: &impl Extractor) -> Span {
    let span = info_span!(
        target: TARGET,
        "request",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = route,
        http.response.status_code = Empty,
        keyward.request.id = Empty,
        keyward.workspace.id = Empty,
        keyward.outcome = Empty,
    );
    if !span.is_disabled() {
        // It fails only for a span that was begun already.
        let _ = span.set_parent(TraceContextPropagator::new().extract(headers));
    }
    span
}

/// The request has been answered with this status.
pub fn end(span: &Span, status: u16) {
    span.record("http.response.status_code", status);
    if status >= 500 {
        span.record("otel.status_code", "ERROR");
    }
}

/// A step of a request that waits for another server.
pub fn step<F: Future>(name: &'static str, step: F) -> Instrumented<F> {
    // What is done for no request is no trace of its own.
    let span = match Span::current().is_none() {
        true => Span::none(),
        false => info_span!(target: TARGET, "step", otel.name = name, otel.kind = "client"),
    };
    step.instrument(span)
}

/// How the request is called.
pub fn request_id(id: &RequestId) {
    Span::current().record("keyward.request.id", tracing::field::display(id));
}

/// Whose request it is.
pub fn workspace(id: &WorkspaceId) {
    Span::current().record("keyward.workspace.id", id.as_str());
}

/// What came of it: the code of a verification, or the name of an error.
pub fn outcome(outcome: &'static str) {
    Span::current().record("keyward.outcome", outcome);
}
