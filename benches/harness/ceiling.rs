//! Ceiling servers: minimal axum servers that do the least that a verification requires. They measure the cost of a
//! request before Keyward adds anything, so keep them minimal.

use super::interfaces::GRPC_LISTEN;
use super::{Outcome, grpc_ceiling};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt;
use axum::{Router, serve as axum_serve};
use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;

/// The first argument that makes the benchmark binary a ceiling server.
pub const ARGUMENT: &str = "__ceiling";

pub const LIMIT: u64 = 1_000_000_000;
pub const DURATION_MS: u64 = 60_000;

/// Script of a sliding window of two buckets. KEYS: current and previous bucket. ARGV: limit, duration in ms, elapsed
/// ms of the current window, cost. Replies with whether the request is admitted, and the remaining amount.
const SLIDING_WINDOW: &str = r"
local v = redis.call('MGET', KEYS[1], KEYS[2])
local cur = tonumber(v[1] or 0)
local prev = tonumber(v[2] or 0)
local limit = tonumber(ARGV[1])
local dur = tonumber(ARGV[2])
local cost = tonumber(ARGV[4])
local eff = cur + math.floor(prev * (dur - tonumber(ARGV[3])) / dur)
if eff + cost > limit then return {0, limit - eff} end
if redis.call('INCRBY', KEYS[1], cost) == cost then redis.call('PEXPIRE', KEYS[1], dur * 2) end
return {1, limit - eff - cost}
";

/// Serves until the process is terminated. Arguments: the address to listen on, then the Redis URL if `/limit` or gRPC is
/// used.
pub fn serve(arguments: &[String]) -> Outcome<()> {
    let address = arguments.first().ok_or("a ceiling needs an address to listen on")?;
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("the ceiling's runtime did not start: {e}"))?
        .block_on(async {
            let mut routes = Router::new().route("/echo", post(echo));
            if let Some(url) = arguments.get(1) {
                let window = Window::connect(url)
                    .await
                    .map_err(|e| format!("the ceiling did not reach Redis: {e}"))?;
                let limits =
                    Router::new().route("/limit", post(limit)).route("/limits", post(limits));
                routes = routes.merge(limits.with_state(window.clone()));
                if let Ok(grpc) = std::env::var(GRPC_LISTEN) {
                    let grpc = grpc_ceiling::serve(&grpc, window);
                    return tokio::try_join!(listen(address, routes), grpc).map(|_| ());
                }
            }
            listen(address, routes).await
        })
}

async fn listen(address: &str, routes: Router) -> Outcome<()> {
    let fault = |e| format!("the ceiling did not listen on {address}: {e}");
    let listener = TcpListener::bind(address).await.map_err(fault)?.tap_io(|stream| {
        // A failure here only means that the client has already disconnected.
        let _ = stream.set_nodelay(true);
    });
    axum_serve(listener, routes).await.map_err(fault)
}

async fn echo(headers: HeaderMap, body: Bytes) -> Response {
    match decode(&headers, &body) {
        Ok(request) => answer(request.key, Vec::new()),
        Err(status) => status.into_response(),
    }
}

async fn limit(State(window): State<Arc<Window>>, headers: HeaderMap, body: Bytes) -> Response {
    let request = match decode(&headers, &body) {
        Ok(request) => request,
        Err(status) => return status.into_response(),
    };
    match window.take(&request.key).await {
        Ok(state) => answer(request.key, vec![state]),
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
    }
}

/// Checks five limits without a script for all of them: one call after the other.
async fn limits(State(window): State<Arc<Window>>, headers: HeaderMap, body: Bytes) -> Response {
    let request = match decode(&headers, &body) {
        Ok(request) => request,
        Err(status) => return status.into_response(),
    };
    let mut states = Vec::with_capacity(5);
    for number in 1..=5 {
        match window.take(&format!("{}:{number}", request.key)).await {
            Ok(state) => states.push(state),
            Err(e) => return (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
        }
    }
    answer(request.key, states)
}

#[derive(Deserialize)]
struct VerifyKey {
    key: String,
    #[serde(default)]
    #[expect(dead_code, reason = "decoded because a verification decodes it")]
    ratelimits: Vec<Asked>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "decoded because a verification decodes it")]
struct Asked {
    name: String,
    cost: Option<u64>,
}

fn decode(headers: &HeaderMap, body: &[u8]) -> Result<VerifyKey, StatusCode> {
    headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "))
        .ok_or(StatusCode::UNAUTHORIZED)?;
    serde_json::from_slice(body).map_err(|_| StatusCode::BAD_REQUEST)
}

#[derive(Serialize)]
struct Envelope {
    meta: Meta,
    data: Verdict,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    request_id: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Verdict {
    valid: bool,
    code: &'static str,
    key_id: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ratelimits: Vec<WindowState>,
}

#[derive(Serialize)]
pub struct WindowState {
    name: &'static str,
    limit: u64,
    pub remaining: u64,
    pub reset: u64,
    pub exceeded: bool,
}

fn answer(key_id: String, ratelimits: Vec<WindowState>) -> Response {
    let valid = ratelimits.iter().all(|window| !window.exceeded);
    let code = if valid { "VALID" } else { "RATE_LIMITED" };
    let envelope = Envelope {
        meta: Meta { request_id: request_id() },
        data: Verdict { valid, code, key_id, ratelimits },
    };
    match serde_json::to_vec(&envelope) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
    }
}

/// The counter of `/limit`, and of the service over gRPC: one script call over one connection that all requests share.
pub struct Window {
    connection: MultiplexedConnection,
    script_sha1: String,
}

impl Window {
    async fn connect(url: &str) -> redis::RedisResult<Arc<Self>> {
        let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        let script_sha1 = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(SLIDING_WINDOW)
            .query_async(&mut connection)
            .await?;
        Ok(Arc::new(Self { connection, script_sha1 }))
    }

    pub async fn take(&self, key: &str) -> redis::RedisResult<WindowState> {
        let now_ms = now_ms();
        let window = now_ms / DURATION_MS;
        let subject = fnv1a(key);
        let (passed, remaining): (u8, i64) = redis::cmd("EVALSHA")
            .arg(&self.script_sha1)
            .arg(2)
            .arg(format!("rl:{{{subject:x}}}:{window}"))
            .arg(format!("rl:{{{subject:x}}}:{}", window - 1))
            .arg(LIMIT)
            .arg(DURATION_MS)
            .arg(now_ms % DURATION_MS)
            .arg(1)
            .query_async(&mut self.connection.clone())
            .await?;
        Ok(WindowState {
            name: "requests",
            limit: LIMIT,
            remaining: u64::try_from(remaining).unwrap_or(0),
            reset: (window + 1) * DURATION_MS,
            exceeded: passed == 0,
        })
    }
}

pub fn now_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn splitmix(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns a request id of 24 characters from a generator of negligible cost.
fn request_id() -> String {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
    thread_local!(static STATE: Cell<u64> = Cell::new(splitmix(now_ms())));
    let mut id = String::with_capacity(28);
    id.push_str("req_");
    STATE.with(|state| {
        let mut seed = state.get();
        for _ in 0..3 {
            seed = splitmix(seed);
            let letters =
                seed.to_le_bytes().map(|byte| char::from(ALPHABET[usize::from(byte & 31)]));
            id.extend(letters);
        }
        state.set(seed);
    });
    id
}
