//! Tests peers of the gRPC listener that flood it: with streams, with messages that do not arrive, with calls that they cancel.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use axum::http::{Request, Response};
use bytes::Bytes;
use foundation::clock::Stopwatch;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::support::memory::growth_kb;
use crate::support::process::{Server, free_port, keyward_command};
use crate::{acquire_turn, share_turn};

const CALL: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// Limits the concurrent calls of a connection.
const STREAMS_MAX: u32 = 100;

/// A server that listens for gRPC.
struct Listener {
    server: Server,
    address: SocketAddr,
    _data: tempfile::TempDir,
}

impl Listener {
    fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut command = keyward_command();
        command
            .env("KEYWARD_DATA_DIR", data.path())
            .env("KEYWARD_GRPC_LISTEN", address.to_string());
        Self { server: Server::start(command), address, _data: data }
    }

    /// Calls the server as a gateway does.
    async fn assert_healthy(&self) {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        let mut client = HealthClient::new(endpoint.connect().await.unwrap());
        client.check(HealthCheckRequest::default()).await.expect("an answer");
    }

    async fn connect(&self) -> SendRequest<Bytes> {
        let stream = tokio::net::TcpStream::connect(self.address).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

/// Returns so many first bytes of a message of 1 MiB.
fn message_start(length: usize) -> Bytes {
    let mut message = vec![0, 0, 0x10, 0, 0];
    message.resize(length, 0);
    message.into()
}

/// Begins a call, and sends the beginning of its message.
async fn begin_call(
    client: &SendRequest<Bytes>,
    sent: &Bytes,
) -> (ResponseFuture, SendStream<Bytes>) {
    let mut client = client.clone().ready().await.unwrap();
    let head = Request::post(format!("http://host{CALL}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let (response, mut body) = client.send_request(head.body(()).unwrap(), false).unwrap();
    body.send_data(sent.clone(), false).unwrap();
    (response, body)
}

fn block_on<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(test)
}

fn grpc_status<T>(response: &Response<T>) -> &str {
    response.headers()["grpc-status"].to_str().unwrap()
}

#[test]
fn memory_is_bounded_when_messages_do_not_arrive() {
    const CONNECTIONS: usize = 20;
    let _turn = acquire_turn();
    block_on(async {
        let listener = Listener::start();
        let pid = i32::try_from(listener.server.pid()).unwrap();
        let sent = message_start(600_000);
        let flood = async {
            let mut bodies = Vec::new();
            let mut refused = 0;
            for _ in 0..CONNECTIONS {
                let client = listener.connect().await;
                let mut responses = Vec::new();
                for _ in 0..STREAMS_MAX {
                    let (response, body) = begin_call(&client, &sent).await;
                    responses.push(response);
                    bodies.push(body);
                }
                // What is refused is refused at once; the rest waits for its message.
                for response in responses {
                    if let Ok(response) =
                        tokio::time::timeout(Duration::from_millis(50), response).await
                    {
                        assert_eq!(grpc_status(&response.unwrap()), "8", "RESOURCE_EXHAUSTED");
                        refused += 1;
                    }
                }
            }
            listener.assert_healthy().await;
            (bodies, refused)
        };

        let ((_bodies, refused), grown_kb) = growth_kb(&[pid], flood).await;

        // 8 MiB have room for 13 of them.
        assert!(refused >= CONNECTIONS * 80, "{refused} were refused");
        assert!(grown_kb < 300 * 1024, "the server grew by {grown_kb} kB");
    });
}

#[test]
fn call_is_ended_when_its_message_does_not_arrive() {
    let _turn = share_turn();
    block_on(async {
        let listener = Listener::start();
        let client = listener.connect().await;
        let began = Stopwatch::new();

        let (response, _body) = begin_call(&client, &message_start(1_000)).await;
        let response = response.await.unwrap();

        let waited = began.elapsed().as_secs();
        assert!((29..=45).contains(&waited), "{waited} s");
        assert_eq!(grpc_status(&response), "4", "DEADLINE_EXCEEDED");
        let message = response.headers()["grpc-message"].to_str().unwrap();
        assert!(message.contains("30"), "{message}");
    });
}

#[test]
fn streams_beyond_the_bound_are_refused() {
    let _turn = share_turn();
    block_on(async {
        let listener = Listener::start();
        let mut flood = Flood::connect(listener.address);
        // 50 more than a client may open that reads the settings of the server.
        let opened: Vec<_> = (0..STREAMS_MAX + 50).map(|at| at * 2 + 1).collect();

        let heads: Vec<_> = opened.iter().flat_map(|id| Flood::head(*id)).collect();
        flood.stream.write_all(&heads).unwrap();
        let mut refused = BTreeSet::new();
        while refused.len() < 50 {
            let frame = flood.read_frame().expect("the connection stays open");
            if frame.kind == Frame::RST_STREAM {
                assert_eq!(frame.code(0), Frame::REFUSED_STREAM);
                refused.insert(frame.stream);
            }
        }

        let last: BTreeSet<_> = opened.into_iter().skip(100).collect();
        assert_eq!(refused, last);
        listener.assert_healthy().await;
    });
}

#[test]
fn connection_is_closed_when_calls_are_begun_and_cancelled() {
    let _turn = share_turn();
    block_on(async {
        let listener = Listener::start();
        let mut flood = Flood::connect(listener.address);

        let calls = (0..50).map(|at| at * 2 + 1);
        let bytes: Vec<_> =
            calls.flat_map(|id| [Flood::head(id), Flood::reset(id)].concat()).collect();
        flood.stream.write_all(&bytes).unwrap();
        let ended =
            std::iter::from_fn(|| flood.read_frame()).find(|frame| frame.kind == Frame::GOAWAY);

        let ended = ended.expect("the server says why");
        assert_eq!(ended.code(4), Frame::ENHANCE_YOUR_CALM);
        listener.assert_healthy().await;
    });
}

/// A connection over HTTP/2 whose peer ignores what the server says.
struct Flood {
    stream: TcpStream,
}

struct Frame {
    kind: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const GOAWAY: u8 = 7;
    const REFUSED_STREAM: u32 = 7;
    const CANCEL: u32 = 8;
    const ENHANCE_YOUR_CALM: u32 = 11;
    const END_HEADERS: u8 = 4;

    fn encode(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        [&head, payload].concat()
    }

    /// The error code at this place of the payload.
    fn code(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

impl Flood {
    fn connect(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let settings = Frame::encode(Frame::SETTINGS, 0, 0, &[]);
        stream.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &*settings].concat()).unwrap();
        Self { stream }
    }

    /// The head of a call whose message follows.
    fn head(stream: u32) -> Vec<u8> {
        // `:method: POST` and `:scheme: http` of the static table, then literal fields.
        let mut block = vec![0x83, 0x86];
        for (name, value) in [
            (":path", CALL),
            (":authority", "host"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ] {
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len()).unwrap());
                block.extend(text.as_bytes());
            }
        }
        Frame::encode(Frame::HEADERS, Frame::END_HEADERS, stream, &block)
    }

    fn reset(stream: u32) -> Vec<u8> {
        Frame::encode(Frame::RST_STREAM, 0, stream, &Frame::CANCEL.to_be_bytes())
    }

    /// Returns the next frame, unless the connection has ended.
    fn read_frame(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut payload).ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], stream, payload })
    }
}
