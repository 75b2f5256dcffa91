//! Records OpenTelemetry traces, and sends them by OTLP over HTTP, as the standard variables (`OTEL_…`) configure. Unless
//! they name a collector, every function here costs a check of a flag.
//!
//! A span holds the operation of a request and its outcome. It never holds what a caller wrote: no key, no root key, no
//! name.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use reqwest::blocking::Client;
use tracing::field::Empty;
use tracing::instrument::{Instrument as _, Instrumented};
use tracing::{Span, info_span};
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt as _};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;

use crate::id::{RequestId, WorkspaceId};
use crate::tls;

/// The target of spans, by which the log excludes them and traces contain nothing else.
const TARGET: &str = "keyward::traces";
/// The variables with the endpoint of the collector; the first has priority.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// The variables with the protocol of the collector; the first has priority.
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
/// The variables with the time that an export may take, in milliseconds; the first has priority.
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
/// The time that an export may take by default, as the standard says.
const DEFAULT_TIMEOUT_MS: u64 = 10_000;

static IS_ENABLED: AtomicBool = AtomicBool::new(false);

/// Collects spans and sends them on its own thread.
pub struct Exporter(SdkTracerProvider);

impl Exporter {
    /// Starts the exporter. Returns `None` if no endpoint is configured.
    ///
    /// # Errors
    ///
    /// The endpoint or the protocol is not usable; one sentence for the log. The standard demands that this does not stop
    /// the server.
    pub fn start() -> Result<Option<Self>, String> {
        let Some((name, endpoint)) = first_of(ENDPOINTS) else { return Ok(None) };
        if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none")
        {
            return Ok(None);
        }
        if !["http://", "https://"].iter().any(|scheme| endpoint.starts_with(scheme)) {
            return Err(format!("{name} must begin with http:// or https://"));
        }
        if let Some((name, protocol)) = first_of(PROTOCOLS)
            && protocol != "http/protobuf"
        {
            return Err(format!(
                "{name} must be http/protobuf, which collectors receive at port 4318"
            ));
        }
        let client = build_client().map_err(|cause| format!("{name} is not usable: {cause}"))?;
        let exporter = SpanExporter::builder().with_http().with_http_client(client).build();
        let exporter = exporter.map_err(|e| format!("{name} is not usable: {e}"))?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource())
            .build();
        IS_ENABLED.store(true, Ordering::Relaxed);
        Ok(Some(Self(provider)))
    }

    /// Returns the layer that passes spans to the exporter.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let tracer: SdkTracer = self.0.tracer("keyward");
        let ours = Targets::new().with_target(TARGET, LevelFilter::INFO);
        OpenTelemetryLayer::new(tracer).with_location(false).with_threads(false).with_filter(ours)
    }

    /// Sends the remaining spans; gives up after some seconds if the collector is unreachable.
    pub fn stop(self) {
        if let Err(e) = self.0.shutdown() {
            tracing::warn!(error = %e, "failed to send the last traces: {e}");
        }
    }
}

/// Builds the HTTP client of the exporter. Its own default would be an error on a machine without roots, such as a
/// container image, even for a collector without TLS.
fn build_client() -> Result<Client, String> {
    let tls = tls::client_config().map_err(|e| e.to_string())?;
    let build = move || Client::builder().tls_backend_preconfigured(tls).timeout(timeout()).build();
    // A blocking client cannot be built on a thread of the runtime.
    let builder = thread::Builder::new().spawn(build).map_err(|e| e.to_string())?;
    let built = builder.join().map_err(|_| "its HTTP client could not be built".to_owned())?;
    built.map_err(|e| e.to_string())
}

fn timeout() -> Duration {
    let timeout_ms = TIMEOUTS.into_iter().find_map(|name| variable(name)?.parse().ok());
    Duration::from_millis(timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS))
}

/// Returns the resource from the standard variables, with `keyward` as the default service name.
fn resource() -> Resource {
    let is_named = variable("OTEL_SERVICE_NAME").is_some()
        || variable("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|text| text.contains("service.name="));
    let resource = Resource::builder();
    if is_named { resource.build() } else { resource.with_service_name("keyward").build() }
}

/// Returns the first of these variables that is set, with its name.
fn first_of(names: [&'static str; 2]) -> Option<(&'static str, String)> {
    names.into_iter().find_map(|name| Some((name, variable(name)?)))
}

/// Returns a variable. The standard treats an empty variable as unset.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns whether there is an exporter. To ask the subscriber instead would make the log's filter drop the next event of the
/// thread.
pub fn is_enabled() -> bool {
    IS_ENABLED.load(Ordering::Relaxed)
}

/// Begins the span of a request, as a child of the span in its `traceparent`.
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
        // It fails only for a span that has already begun.
        let _ = span.set_parent(TraceContextPropagator::new().extract(headers));
    }
    span
}

/// Ends the span of a request with the status of its response.
pub fn end(span: &Span, status: u16) {
    span.record("http.response.status_code", status);
    if status >= 500 {
        span.record("otel.status_code", "ERROR");
    }
}

/// Wraps a step of a request that waits for another server in a span.
pub fn step<F: Future>(name: &'static str, step: F) -> Instrumented<F> {
    // A step outside of a request does not begin a trace.
    let span = match is_enabled() && !Span::current().is_none() {
        false => Span::none(),
        true => info_span!(target: TARGET, "step", otel.name = name, otel.kind = "client"),
    };
    step.instrument(span)
}

/// Records the ID of the request.
pub fn request_id(id: &RequestId) {
    if is_enabled() {
        Span::current().record("keyward.request.id", tracing::field::display(id));
    }
}

/// Records the workspace of the request.
pub fn workspace(id: &WorkspaceId) {
    if is_enabled() {
        Span::current().record("keyward.workspace.id", id.as_str());
    }
}

/// Records the outcome: the code of a verification, or the name of an error.
pub fn outcome(outcome: &'static str) {
    if is_enabled() {
        Span::current().record("keyward.outcome", outcome);
    }
}
