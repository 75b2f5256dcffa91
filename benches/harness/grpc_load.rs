//! Generates load over gRPC. The requests are encoded once; each stream sends one, waits for the reply, and sends the next.
//!
//! h2load cycles through paths but sends one body for all requests, and looks neither at the status of gRPC nor at replies.

use super::Outcome;
use super::cases::{Case, Interface};
use super::key_sets::PLENTY;
use super::load::{Load, Phase};
use super::policy;
use super::servers::{Lab, Server};
use axum::body::Bytes;
use axum::http::{HeaderValue, Method, Request, Response, header};
use envoy_types::ext_authz::v3::pb::{CheckRequest, CheckResponse, HttpResponse};
use envoy_types::pb::envoy::config::core::v3::HeaderValueOption;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::auth::v3::AttributeContext;
use envoy_types::pb::envoy::service::auth::v3::attribute_context::{HttpRequest, Request as Of};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use h2::RecvStream;
use h2::client::SendRequest;
use prost::Message as _;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet, spawn_local};

/// The bytes before a message: a flag of compression, and the length.
const PREFIX_BYTES: usize = 5;
/// How long the last replies may take after the load has ended.
const PATIENCE: Duration = Duration::from_secs(5);
const WINDOW_BYTES: u32 = 1 << 24;

/// Generates load on a server.
pub fn run(lab: &Lab, case: &Case, keys: &Path, server: &Server, phase: Phase) -> Outcome<Load> {
    let listed = fs::read_to_string(keys).map_err(|e| format!("{}: {e}", keys.display()))?;
    let secret = policy::secret(lab, case.place)?;
    let (seconds, first, checks_replies) = match phase {
        Phase::WarmUp { first } => (1, first, true),
        Phase::Measured { seconds } => (seconds, 0, false),
    };
    let mut traffic = Traffic::new(case, server, &secret, listed.lines())?;
    traffic.checks_replies = checks_replies;
    traffic.lasts = Duration::from_secs(seconds.into());
    traffic.next.set(usize::try_from(first).unwrap_or(0) % traffic.messages.len());
    generate(traffic, case.connections, case.streams)
}

/// Checks one response: it must be admitted, and tell the key and its limits.
pub fn check(lab: &Lab, server: &Server, case: &Case, key: &str) -> Outcome<()> {
    let secret = policy::secret(lab, case.place)?;
    let traffic = Traffic::new(case, server, &secret, [key].into_iter())?;
    let load = generate(traffic, 1, 1)?;
    match (load.requests, load.sample.as_str()) {
        (1, "") => Ok(()),
        (_, sample) => Err(format!("a right answer is due, but {sample} came")),
    }
}

/// The requests of a run, and its replies.
struct Traffic {
    address: SocketAddr,
    head: Request<()>,
    /// With their prefixes.
    messages: Vec<Bytes>,
    next: Cell<usize>,
    interface: Interface,
    limits: usize,
    lasts: Duration,
    /// Otherwise only the statuses are checked.
    checks_replies: bool,
    replies: RefCell<Replies>,
}

#[derive(Default)]
struct Replies {
    latencies_us: Vec<f64>,
    errors: u64,
    unanswered: u64,
    wrong: u64,
    sample: String,
}

impl Traffic {
    /// Creates the requests with these keys. It lasts for one request of each connection until that is changed.
    fn new<'a>(
        case: &Case,
        server: &Server,
        secret: &str,
        keys: impl Iterator<Item = &'a str>,
    ) -> Outcome<Self> {
        let messages = keys.map(|key| encode(case.interface, key)).collect();
        let head = Request::builder()
            .method(Method::POST)
            .uri(format!("http://{}{}", server.target, case.path))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .header("keyward-policy", policy::NAME)
            .header("keyward-gateway-secret", secret)
            .body(())
            .map_err(|e| format!("no request: {e}"))?;
        Ok(Self {
            address: server.target,
            head,
            messages,
            next: Cell::new(0),
            interface: case.interface,
            limits: case.keys.limits(),
            lasts: Duration::ZERO,
            checks_replies: true,
            replies: RefCell::default(),
        })
    }

    fn next_message(&self) -> Bytes {
        let at = self.next.get();
        self.next.set((at + 1) % self.messages.len());
        self.messages[at].clone()
    }

    fn record(&self, sent: Instant, response: &Response<()>, status: &HeaderValue, message: &[u8]) {
        let mut replies = self.replies.borrow_mut();
        replies.latencies_us.push(sent.elapsed().as_secs_f64() * 1e6);
        let message = message.get(PREFIX_BYTES..).unwrap_or_default();
        let is_error = response.status() != 200 || status != "0";
        let fault = match self.checks_replies {
            _ if is_error => Some(format!("gRPC status {status:?} with {response:?}")),
            true => find_fault(self.interface, self.limits, message),
            false if is_admitted(self.interface, message) => None,
            false => Some("a refusal".to_owned()),
        };
        if let Some(fault) = fault {
            *(if is_error { &mut replies.errors } else { &mut replies.wrong }) += 1;
            replies.sample = fault;
        }
    }
}

fn generate(traffic: Traffic, connections: usize, streams: usize) -> Outcome<Load> {
    let lasts = traffic.lasts;
    let traffic = Rc::new(traffic);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| format!("no runtime: {e}"))?;
    let started = Instant::now();
    let sent = send_on_all(&traffic, started + lasts, connections, streams);
    let sent = async { tokio::time::timeout(lasts + PATIENCE, sent).await };
    let sent = runtime.block_on(LocalSet::new().run_until(sent));
    sent.map_err(|_| "the load generator got no replies in time".to_owned())??;
    let duration = started.elapsed();
    let mut replies = traffic.replies.borrow_mut();
    replies.latencies_us.sort_by(f64::total_cmp);
    Ok(Load {
        requests: replies.latencies_us.len() as u64,
        duration_us: u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
        p50_us: percentile(&replies.latencies_us, 50),
        p99_us: percentile(&replies.latencies_us, 99),
        errors: replies.errors,
        unanswered: replies.unanswered,
        wrong: replies.wrong,
        sample: std::mem::take(&mut replies.sample),
    })
}

/// Returns the value that this share of sorted figures does not exceed, in percent.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// Opens the connections, and sends requests on all streams of each until a moment.
async fn send_on_all(
    traffic: &Rc<Traffic>,
    until: Instant,
    connections: usize,
    streams: usize,
) -> Outcome<()> {
    let fault = |e: String| format!("no connection to {}: {e}", traffic.address);
    let mut running = JoinSet::new();
    for _ in 0..connections {
        let socket = TcpStream::connect(traffic.address).await.map_err(|e| fault(e.to_string()))?;
        socket.set_nodelay(true).map_err(|e| fault(e.to_string()))?;
        let (sender, connection) = h2::client::Builder::new()
            .initial_connection_window_size(WINDOW_BYTES)
            .handshake(socket)
            .await
            .map_err(|e| fault(e.to_string()))?;
        // It ends when its last sender is dropped.
        spawn_local(connection);
        for _ in 0..streams {
            let (traffic, sender) = (traffic.clone(), sender.clone());
            running.spawn_local(async move {
                if let Err(e) = send_until(&traffic, sender, until).await {
                    let mut replies = traffic.replies.borrow_mut();
                    replies.unanswered += 1;
                    replies.sample = e.to_string();
                }
            });
        }
    }
    while running.join_next().await.is_some() {}
    Ok(())
}

/// Sends one request after the other, at least one.
async fn send_until(
    traffic: &Traffic,
    mut sender: SendRequest<Bytes>,
    until: Instant,
) -> Result<(), h2::Error> {
    loop {
        let sent = Instant::now();
        sender = sender.ready().await?;
        let (response, mut body) = sender.send_request(traffic.head.clone(), false)?;
        body.send_data(traffic.next_message(), true)?;
        let (response, mut body) = response.await?.into_parts();
        let message = read_message(&mut body).await?;
        let trailers = body.trailers().await?;
        // A reply without a message has no trailers.
        let told = trailers.as_ref().unwrap_or(&response.headers).get("grpc-status").cloned();
        let status = told.unwrap_or(HeaderValue::from_static("absent"));
        traffic.record(sent, &Response::from_parts(response, ()), &status, &message);
        if Instant::now() >= until {
            return Ok(());
        }
    }
}

async fn read_message(body: &mut RecvStream) -> Result<Bytes, h2::Error> {
    let mut message = Bytes::new();
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        // One frame holds it, unless it is large.
        message = if message.is_empty() { part } else { [message, part].concat().into() };
    }
    Ok(message)
}

/// Encodes the request with a key or identifier.
fn encode(interface: Interface, key: &str) -> Bytes {
    let message = match interface {
        Interface::RateLimitService => {
            let entry = Entry { key: "user".to_owned(), value: key.to_owned() };
            let descriptor =
                RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
            RateLimitRequest {
                domain: policy::NAMESPACE.to_owned(),
                descriptors: vec![descriptor],
                hits_addend: 0,
            }
            .encode_to_vec()
        }
        Interface::ExtAuthz | Interface::Operation | Interface::Gateway | Interface::Nginx => {
            check_request(key).encode_to_vec()
        }
    };
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0], &length.to_be_bytes()[..], &message].concat().into()
}

/// A request as Envoy tells it, with the headers of a usual client.
fn check_request(key: &str) -> CheckRequest {
    let bearer = format!("Bearer {key}");
    let headers = [
        (":authority", "service.example"),
        (":method", "GET"),
        (":path", "/documents/1"),
        (":scheme", "https"),
        ("accept", "*/*"),
        ("authorization", &bearer),
        ("user-agent", "curl/8.5.0"),
        ("x-forwarded-proto", "https"),
        ("x-request-id", "0c2a1e3e-8a55-4c3b-9d0a-5f2f6f6f1c11"),
    ];
    let headers: HashMap<_, _> =
        headers.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let http = HttpRequest {
        method: "GET".to_owned(),
        path: "/documents/1".to_owned(),
        host: "service.example".to_owned(),
        scheme: "https".to_owned(),
        protocol: "HTTP/2".to_owned(),
        headers,
        ..HttpRequest::default()
    };
    let request = Some(Of { http: Some(http), time: None });
    CheckRequest { attributes: Some(AttributeContext { request, ..AttributeContext::default() }) }
}

/// Returns whether a reply admits the request, by its first field, without decoding it.
fn is_admitted(interface: Interface, message: &[u8]) -> bool {
    match interface {
        // The overall code: OK.
        Interface::RateLimitService => message.starts_with(&[0x08, 1]),
        // The status, which is empty.
        Interface::ExtAuthz => message.starts_with(&[0x0a, 0]),
        Interface::Operation | Interface::Gateway | Interface::Nginx => false,
    }
}

/// Returns what is wrong with a reply.
fn find_fault(interface: Interface, limits: usize, message: &[u8]) -> Option<String> {
    if interface == Interface::RateLimitService {
        let Ok(reply) = RateLimitResponse::decode(message) else {
            return Some("no RateLimitResponse".to_owned());
        };
        let limit = reply.statuses.first().and_then(|status| status.current_limit.as_ref());
        let is_counted = limit.is_some_and(|limit| u64::from(limit.requests_per_unit) == PLENTY);
        let is_right = reply.overall_code == i32::from(Code::Ok) && is_counted;
        return (!is_right || !is_admitted(interface, message)).then(|| format!("{reply:?}"));
    }
    let Ok(reply) = CheckResponse::decode(message) else {
        return Some("no CheckResponse".to_owned());
    };
    let Some(HttpResponse::OkResponse(admitted)) = &reply.http_response else {
        return Some(format!("{reply:?}"));
    };
    let header = |option: &HeaderValueOption| option.header.clone().unwrap_or_default();
    let mut to_upstream = admitted.headers.iter().map(header);
    let has_key = to_upstream
        .any(|header| header.key == "keyward-key-id" && header.value.starts_with("key_"));
    let mut to_client = admitted.response_headers_to_add.iter().map(header);
    let has_limit = to_client.any(|header| header.key == "ratelimit");
    let is_right = has_key && has_limit == (limits > 0) && is_admitted(interface, message);
    (!is_right).then(|| format!("{reply:?}"))
}
