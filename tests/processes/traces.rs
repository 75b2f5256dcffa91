//! Tests traces: a server exports to a collector, and the tests decode what it received.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use foundation::clock::Stopwatch;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AttributeValue;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::share_turn;
use crate::support::certificates::{Authority, Certificate};
use crate::support::database::Database;
use crate::support::process::{Server, exchange, get, keyward_command};
use crate::support::{random_letters, redis_url};

const ROOT_KEY: &str = "a_root_key_of_an_operator_1";
const TRACE_ID: u128 = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;
const PARENT_ID: u64 = 0xb7ad_6b71_6920_3331;

/// A collector that stores what it receives.
struct Collector {
    address: SocketAddr,
    scheme: &'static str,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Collector {
    fn start() -> Self {
        Self::start_with(None)
    }

    fn start_with_tls(certificate: &Certificate) -> Self {
        foundation::tls::install_provider();
        let chain = CertificateDer::from_pem_file(&certificate.certificate).unwrap();
        let key = PrivateKeyDer::from_pem_file(&certificate.key).unwrap();
        let config = ServerConfig::builder().with_no_client_auth();
        Self::start_with(Some(Arc::new(config.with_single_cert(vec![chain], key).unwrap())))
    }

    fn start_with(tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let received = bodies.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (received, tls) = (received.clone(), tls.clone());
                std::thread::spawn(move || match tls {
                    Some(tls) => {
                        let connection = ServerConnection::new(tls).unwrap();
                        receive_all(StreamOwned::new(connection, stream), &received);
                    }
                    None => receive_all(stream, &received),
                });
            }
        });
        Self { address, scheme, bodies }
    }

    fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    fn bodies(&self) -> Vec<Vec<u8>> {
        self.bodies.lock().unwrap().clone()
    }

    /// Returns every span with its service.
    fn spans(&self) -> Vec<(String, Span)> {
        let mut spans = Vec::new();
        for body in self.bodies() {
            let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
            for of_resource in request.resource_spans {
                let attributes = of_resource.resource.unwrap().attributes;
                let name =
                    attributes.iter().find(|attribute| attribute.key == "service.name").unwrap();
                let service = text(name.value.as_ref().unwrap().value.as_ref().unwrap());
                for of_scope in of_resource.scope_spans {
                    spans.extend(of_scope.spans.into_iter().map(|span| (service.clone(), span)));
                }
            }
        }
        spans
    }

    /// Returns the span with this name. Fails unless there is exactly one.
    #[track_caller]
    fn span(&self, name: &str) -> Span {
        let all: Vec<_> = self.spans().into_iter().map(|(_, span)| span).collect();
        let found: Vec<_> = all.iter().filter(|span| span.name == name).collect();
        let names: Vec<_> = all.iter().map(|span| &span.name).collect();
        assert_eq!(found.len(), 1, "{name} among {names:?}");
        found[0].clone()
    }
}

fn receive_all(stream: impl Read + Write, bodies: &Mutex<Vec<Vec<u8>>>) {
    let mut stream = BufReader::new(stream);
    while let Some(body) = receive(&mut stream) {
        bodies.lock().unwrap().push(body);
    }
}

/// Receives and acknowledges one export. Returns its body.
fn receive<S: Read + Write>(stream: &mut BufReader<S>) -> Option<Vec<u8>> {
    let (mut length, mut first) = (0, String::new());
    stream.read_line(&mut first).ok().filter(|read| *read > 0)?;
    assert!(first.starts_with("POST /v1/traces "), "{first}");
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").ok()?;
    stream.get_mut().flush().ok()?;
    Some(body)
}

fn text(value: &AttributeValue) -> String {
    match value {
        AttributeValue::StringValue(text) => text.clone(),
        AttributeValue::IntValue(number) => number.to_string(),
        other => panic!("{other:?}"),
    }
}

fn attribute(span: &Span, name: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key == name)?;
    Some(text(found.value.as_ref()?.value.as_ref()?))
}

fn database() -> Database {
    tokio::runtime::Runtime::new().unwrap().block_on(Database::create())
}

fn replica(database: &Database, collector: &Collector) -> Command {
    let mut command = keyward_command();
    command
        .env("KEYWARD_DATABASE_URL", &database.url)
        .env("KEYWARD_REDIS_URL", redis_url())
        .env("KEYWARD_REDIS_PREFIX", format!("t{}:", random_letters()))
        .env("KEYWARD_ROOT_KEY", ROOT_KEY)
        // A late reply would be a degraded one.
        .env("KEYWARD_REDIS_TIMEOUT_MS", "2000")
        .env("KEYWARD_DRAIN_SECONDS", "0")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url());
    command
}

/// Calls an operation with a `traceparent` whose last part is `flags`.
fn traced(server: &Server, operation: &str, body: &Value, flags: &str) -> Value {
    let body = body.to_string();
    let request = format!(
        "POST /v2/{operation} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
        Authorization: Bearer {ROOT_KEY}\r\nContent-Type: application/json\r\n\
        traceparent: 00-{TRACE_ID:032x}-{PARENT_ID:016x}-{flags}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (status, text) = exchange(server.address, request.as_bytes()).unwrap();
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Creates a key with a limit.
fn key(server: &Server) -> Value {
    let (_, api) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let limit = json!({ "name": "one", "limit": 1000, "duration": 60_000, "autoApply": true });
    let request = json!({ "apiId": api["data"]["apiId"], "ratelimits": [limit] });
    server.v2(ROOT_KEY, "keys.createKey", &request).1["data"]["key"].clone()
}

/// Stops a server: it exports the remaining spans.
fn stop(server: Server) {
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn request_span_is_a_child_of_the_callers_span_with_steps_below_it() {
    let _turn = share_turn();
    let (database, collector) = (database(), Collector::start());
    let server = Server::start(replica(&database, &collector));
    let key = key(&server);

    let answer = traced(&server, "keys.verifyKey", &json!({ "key": key }), "01");
    stop(server);

    let span = collector.span("POST /v2/keys.verifyKey");
    assert_eq!(span.trace_id, TRACE_ID.to_be_bytes());
    assert_eq!(span.parent_span_id, PARENT_ID.to_be_bytes());
    assert_eq!(span.kind, 2, "a server's");
    let id = answer["meta"]["requestId"].as_str().unwrap();
    for (name, value) in [
        ("http.request.method", "POST"),
        ("http.route", "/v2/keys.verifyKey"),
        ("http.response.status_code", "200"),
        ("keyward.request.id", id),
        ("keyward.workspace.id", "ws_default"),
        ("keyward.outcome", "VALID"),
    ] {
        assert_eq!(attribute(&span, name).as_deref(), Some(value), "{name}");
    }
    let spans = collector.spans();
    assert!(spans.iter().all(|(service, _)| service == "keyward"));
    let steps: Vec<_> = spans
        .iter()
        .filter(|(_, step)| step.trace_id == span.trace_id && step.span_id != span.span_id)
        .map(|(_, step)| (step.name.as_str(), step.kind))
        .collect();
    assert!(steps.contains(&("redis.take", 3)), "{steps:?}");
    assert!(steps.contains(&("database.load", 3)), "{steps:?}");
    assert!(spans.iter().any(|(_, step)| step.name == "database.commit"));
}

#[test]
fn failed_and_unknown_requests_are_exported_and_background_work_is_not() {
    let _turn = share_turn();
    let (database, collector) = (database(), Collector::start());
    let server = Server::start(replica(&database, &collector));

    server.v2("nobody_knows_this_key", "keys.whoami", &json!({}));
    get(server.address, "/nowhere?secret=canary").unwrap();
    get(server.address, "/dashboard/sign-in").unwrap();
    stop(server);

    let refused = collector.span("POST /v2/keys.whoami");
    assert_eq!(attribute(&refused, "keyward.outcome").as_deref(), Some("root_key_not_found"));
    assert_eq!(attribute(&refused, "http.response.status_code").as_deref(), Some("401"));
    assert_eq!(attribute(&refused, "keyward.workspace.id"), None);
    collector.span("GET /dashboard");
    let spans = collector.spans();
    let is_begun = |span: &Span| span.kind == 2 || !span.parent_span_id.is_empty();
    assert!(spans.iter().all(|(_, span)| is_begun(span)), "{spans:?}");
}

#[test]
fn traces_contain_no_secrets_and_no_caller_input() {
    let _turn = share_turn();
    let (database, collector) = (database(), Collector::start());
    let server = Server::start(replica(&database, &collector));
    let key = key(&server);
    let canary = format!("canary{}", random_letters());

    server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key }));
    server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": canary }));
    server.v2(&canary, "keys.verifyKey", &json!({ "key": canary }));
    server.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": [canary], canary.as_str(): 1 }));
    get(server.address, &format!("/{canary}?{canary}")).unwrap();
    stop(server);

    let bytes = collector.bodies().concat();
    assert!(bytes.len() > 1000, "too little was sent");
    for secret in [ROOT_KEY, key.as_str().unwrap(), canary.as_str()] {
        let is_there = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!is_there, "{secret} was sent");
    }
}

#[test]
fn sampling_follows_standard_variables_and_the_callers_decision() {
    let _turn = share_turn();
    let (database, collector) = (database(), Collector::start());
    let mut command = replica(&database, &collector);
    command.env("OTEL_TRACES_SAMPLER", "parentbased_always_off");
    command.env("OTEL_SERVICE_NAME", "keys-of-payments");
    let server = Server::start(command);
    let key = key(&server);
    let verify = json!({ "key": key });

    traced(&server, "keys.verifyKey", &verify, "00");
    let (_, unasked) = server.v2(ROOT_KEY, "keys.verifyKey", &verify);
    let asked = traced(&server, "keys.verifyKey", &verify, "01");
    stop(server);

    let span = collector.span("POST /v2/keys.verifyKey");
    let id = attribute(&span, "keyward.request.id");
    assert_eq!(id.as_deref(), asked["meta"]["requestId"].as_str(), "{unasked}");
    assert!(collector.spans().iter().all(|(service, _)| service == "keys-of-payments"));
}

#[test]
fn spans_are_sent_to_collector_with_certificate_of_trusted_authority() {
    let _turn = share_turn();
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::create(directory.path().join("authority.pem"));
    let certificate = authority.issue("127.0.0.1", directory.path(), "collector");
    let (database, collector) = (database(), Collector::start_with_tls(&certificate));

    let server = Server::start(replica(&database, &collector));
    get(server.address, "/dashboard/sign-in").unwrap();
    stop(server);
    assert!(collector.bodies().is_empty(), "spans were sent to a stranger");

    let mut command = replica(&database, &collector);
    command.env("SSL_CERT_FILE", &authority.file);
    let server = Server::start(command);
    get(server.address, "/dashboard/sign-in").unwrap();
    stop(server);
    collector.span("GET /dashboard");
}

/// The roots of a container image are empty.
#[test]
fn spans_are_sent_when_machine_has_no_trusted_authority() {
    let _turn = share_turn();
    let no_roots = tempfile::tempdir().unwrap();
    let (database, collector) = (database(), Collector::start());
    let mut command = replica(&database, &collector);
    command.env("SSL_CERT_DIR", no_roots.path());
    let server = Server::start(command);

    get(server.address, "/dashboard/sign-in").unwrap();
    stop(server);

    collector.span("GET /dashboard");
}

#[test]
fn server_runs_without_traces_when_they_are_off_or_their_variables_are_not_usable() {
    let _turn = share_turn();
    let (database, collector) = (database(), Collector::start());
    let directory = tempfile::tempdir().unwrap();
    let warnings_with = |name: &str, value: &str| {
        let mut command = replica(&database, &collector);
        command.env(name, value).env("KEYWARD_LOG", "warn");
        let log = directory.path().join("log");
        let server = Server::start_logging(command, &log);
        key(&server);
        stop(server);
        assert!(collector.bodies().is_empty(), "{name}={value}");
        std::fs::read_to_string(log).unwrap()
    };

    for (name, value) in [
        ("OTEL_SDK_DISABLED", "true"),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", ""),
    ] {
        let log = warnings_with(name, value);
        assert!(!log.contains("no traces are sent"), "{log}");
    }
    for (name, value, bound) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "http:// or https://"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "grpc://collector", "http:// or https://"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "http/protobuf"),
    ] {
        let log = warnings_with(name, value);
        let warning = format!("no traces are sent: {name} must be");
        assert!(log.contains(&warning) && log.contains(bound), "{log}");
    }
}

#[test]
fn verifications_are_valid_and_not_delayed_when_collector_refuses_or_hangs() {
    let _turn = share_turn();
    let database = database();
    // It accepts connections, and replies to nothing. The exporter waits 10 seconds for a reply.
    let hung = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [SocketAddr::from(([127, 0, 0, 1], 9)), hung.local_addr().unwrap()] {
        let mut command =
            replica(&database, &Collector { address, scheme: "http", bodies: Arc::default() });
        // Each span is exported at once, and only two can wait.
        command.env("OTEL_BSP_SCHEDULE_DELAY", "1").env("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1");
        command.env("OTEL_BSP_MAX_QUEUE_SIZE", "2");
        let server = Server::start(command);
        let key = key(&server);

        let began = Stopwatch::new();
        for _ in 0..50 {
            let answer = traced(&server, "keys.verifyKey", &json!({ "key": key }), "01");
            assert_eq!(answer["data"]["code"], "VALID", "{answer}");
            assert_eq!(answer["meta"]["degraded"], Value::Null, "{answer}");
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{address}: {:?}", began.elapsed());
        stop(server);
    }
}
