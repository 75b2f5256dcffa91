//! Tests gateways that send bodies of requests, which a decision does not need, over connections that stay open.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use foundation::clock::Stopwatch;
use tempfile::TempDir;

use crate::support::process::{Server, keyward_command};
use crate::{acquire_turn, share_turn};

/// More than one piece of a body has.
static BODY: [u8; 100_000] = [b'a'; 100_000];

fn start_server() -> (TempDir, Server) {
    let data = tempfile::tempdir().unwrap();
    let mut command = keyward_command();
    command.env("KEYWARD_DATA_DIR", data.path());
    (data, Server::start(command))
}

/// A connection of a gateway.
struct Connection(TcpStream);

impl Connection {
    fn open(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(stream)
    }

    /// Asks for a decision by a policy that does not exist. The body does not follow.
    fn announce(&mut self, query: &str, body_bytes: usize) {
        let head = format!(
            "POST /gateway/edge{query} HTTP/1.1\r\nHost: x\r\nContent-Length: {body_bytes}\r\n\r\n"
        );
        self.0.write_all(head.as_bytes()).unwrap();
    }

    fn read_reply(&mut self) -> String {
        let mut reply = Vec::new();
        let mut byte = [0];
        while !reply.ends_with(b"\r\n\r\n") {
            self.0.read_exact(&mut byte).expect("a reply");
            reply.extend(byte);
        }
        let head = String::from_utf8(reply).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.0.read_exact(&mut body).expect("a body");
        head
    }

    fn is_closed(&mut self) -> bool {
        // A reset is as good.
        self.0.read(&mut [0]).is_ok_and(|bytes| bytes == 0)
    }
}

#[test]
fn connection_of_gateway_stays_open_when_bodies_arrive_after_decisions() {
    let _turn = share_turn();
    let (_data, server) = start_server();

    let mut connection = Connection::open(&server);
    for _ in 0..20 {
        connection.announce("", BODY.len());
        for piece in BODY.chunks(30_000) {
            std::thread::sleep(Duration::from_millis(5));
            connection.0.write_all(piece).expect("the connection is open");
        }
        let reply = connection.read_reply();
        assert!(reply.starts_with("http/1.1 403 "), "{reply}");
        assert!(!reply.contains("connection: close"), "{reply}");
    }
}

#[test]
fn connection_of_gateway_is_closed_when_body_never_arrives() {
    let _turn = acquire_turn();
    let (_data, server) = start_server();

    for (query, wait) in [("", 500..2_000), ("?mode=nginx", 0..400)] {
        let mut connection = Connection::open(&server);
        let began = Stopwatch::new();
        connection.announce(query, BODY.len());
        let reply = connection.read_reply();
        let took = began.elapsed();
        assert!(reply.starts_with("http/1.1 403 "), "{reply}");
        // What follows is no body, and must not be read as one.
        assert!(reply.contains("connection: close"), "{reply}");
        assert!(connection.is_closed());
        assert!(wait.contains(&took.as_millis()), "{query}: {took:?}");
    }
}
