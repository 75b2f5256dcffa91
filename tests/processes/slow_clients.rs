//! Tests slow clients.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use foundation::clock::Stopwatch;

use crate::share_turn;
use crate::support::process::{Server, free_port, get, keyward_command};

const ROOT_KEY: &str = "a_root_key_of_an_operator_1";

/// Sends these bytes and nothing more. Returns what the server replied until it closed the connection, and after how
/// long.
fn send_partial(address: SocketAddr, bytes: String) -> std::thread::JoinHandle<(String, Duration)> {
    std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        let began = Stopwatch::new();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the server closes the connection");
        (answer, began.elapsed())
    })
}

#[test]
fn server_closes_connection_when_head_takes_10_s_or_body_30_s() {
    let _turn = share_turn();
    let data = tempfile::tempdir().unwrap();
    let mut command = keyward_command();
    command.env("KEYWARD_DATA_DIR", data.path()).env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    let mut resting = TcpStream::connect(server.address).unwrap();
    let request = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
    let ask = |stream: &mut TcpStream| {
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"ok\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("an answer");
            answer.extend(byte);
        }
    };
    ask(&mut resting);

    let head = send_partial(server.address, "GET /livez HTTP/1.1\r\nHost: x\r\nX-Half: ".into());
    let body = send_partial(
        server.address,
        format!(
            "POST /v2/apis.createApi HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ROOT_KEY}\r\n\
            Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{\"name\":"
        ),
    );
    let (head_answer, head_took) = head.join().unwrap();
    let others = get(server.address, "/livez").unwrap().0;
    let (body_answer, body_took) = body.join().unwrap();
    ask(&mut resting);

    assert_eq!(head_answer, "");
    assert!((10..16).contains(&head_took.as_secs()), "{head_took:?}");
    assert!(body_answer.starts_with("HTTP/1.1 408 "), "{body_answer}");
    assert!(body_answer.contains("/errors/request_timeout"), "{body_answer}");
    assert!((29..36).contains(&body_took.as_secs()), "{body_took:?}");
    assert_eq!(others, 200);
}

#[test]
fn metrics_listener_refuses_connections_when_slow_clients_have_taken_all() {
    let _turn = share_turn();
    let data = tempfile::tempdir().unwrap();
    let metrics: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let mut command = keyward_command();
    command.env("KEYWARD_DATA_DIR", data.path()).env("KEYWARD_METRICS_LISTEN", metrics.to_string());
    let server = Server::start(command);

    let mut slow: Vec<_> = (0..32).map(|_| TcpStream::connect(metrics).unwrap()).collect();
    for client in &mut slow {
        client.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\nX-Half: ").unwrap();
    }
    let began = Stopwatch::new();
    let refused = get(metrics, "/metrics").unwrap();
    let ready = get(server.address, "/readyz").unwrap();
    for mut client in slow {
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("the server closes the connection");
        assert_eq!(answer, "");
    }
    let took = began.elapsed();
    let (status, text) = get(metrics, "/metrics").unwrap();

    assert_eq!((refused.0, ready.0, status), (503, 200, 200));
    assert!((9..16).contains(&took.as_secs()), "{took:?}");
    assert!(text.contains("keyward_connections_refused_total 0\n"), "{text}");
}
