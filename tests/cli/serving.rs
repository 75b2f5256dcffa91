//! Tests the headers of all responses, the limit on connections, and what the server serves on which port.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::{ROOT_KEY, assert_rejected, embedded, parse_json};
use crate::support::process::{
    Server, free_port, get, keyward_command, keyward_command_with_files,
};

/// A connection on which requests are sent one after the other.
struct PersistentConnection(TcpStream);

impl PersistentConnection {
    fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self(stream)
    }

    /// Returns the head of the response in lower case.
    fn get(&mut self, path: &str) -> std::io::Result<String> {
        self.0.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())?;
        self.head()
    }

    /// Returns the head of the next response in lower case.
    fn head(&mut self) -> std::io::Result<String> {
        let mut answer = Vec::new();
        let mut some = [0; 4096];
        while !answer.windows(4).any(|four| four == b"\r\n\r\n") {
            match self.0.read(&mut some)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                read => answer.extend(&some[..read]),
            }
        }
        let head = String::from_utf8_lossy(&answer).to_lowercase();
        Ok(head.split("\r\n\r\n").next().unwrap().to_owned())
    }

    fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 1]), Ok(0))
    }
}

/// Opens this many connections once the server accepts all of them.
fn open(address: SocketAddr, count: usize) -> Vec<PersistentConnection> {
    loop {
        let mut all: Vec<_> = (0..count).map(|_| PersistentConnection::to(address)).collect();
        let is_served = |connections: &mut PersistentConnection| {
            connections.get("/livez").is_ok_and(|answer| answer.starts_with("http/1.1 200"))
        };
        if all.iter_mut().all(is_served) {
            return all;
        }
    }
}

/// Fails unless each of these connections is answered with 503.
#[track_caller]
fn assert_refused(connections: &mut [PersistentConnection]) {
    for (number, refused) in connections.iter_mut().enumerate() {
        let answer = refused.head().unwrap_or_else(|e| panic!("connection {number}: {e}"));
        assert!(answer.starts_with("http/1.1 503"), "connection {number}: {answer}");
    }
}

fn head(address: SocketAddr, path: &str) -> String {
    PersistentConnection::to(address).get(path).unwrap()
}

/// Starts the server at an address and runs the commands that it prints. Returns the first line.
fn follow_first_steps(listen: &str) -> String {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_LISTEN", listen);
    let server = Server::start(command);
    let lines = server.banner.lines().map(str::trim);
    let [curl, create, verify] = ["curl ", "keyward key create", "keyward key verify"]
        .map(|start| lines.clone().find(|line| line.starts_with(start)).unwrap());
    let run = |line: &str, placeholder: &str, value: &Value, field: &str| {
        let line = line.replace(placeholder, value.as_str().unwrap_or_default());
        let mut command = embedded(data.path());
        command.env("KEYWARD_LISTEN", server.address.to_string()).arg("--json");
        let output = command.args(line.split(' ').skip(1)).output().unwrap();
        parse_json(&output)[field].clone()
    };

    let pasted = Command::new("sh").args(["-c", curl]).output().unwrap();
    let created: Value = serde_json::from_slice(&pasted.stdout).unwrap();
    let key = run(create, "API_ID", &created["data"]["apiId"], "key");
    assert_eq!(run(verify, "KEY", &key, "code"), "VALID", "{}", server.banner);
    let link = server.banner.lines().find(|line| line.contains("/dashboard/join/")).unwrap();
    let (url, _) = curl.split_once("/v2/").unwrap();
    let url = url.trim_start_matches("curl '");
    assert!(link.trim().starts_with(&format!("{url}/dashboard/")), "{}", server.banner);
    server.banner.lines().next().unwrap().to_owned()
}

#[test]
fn first_steps_work_wherever_the_server_listens() {
    for (listen, named) in [("0.0.0.0:0", "0.0.0.0:"), ("[::]:0", "[::]:"), ("[::1]:0", "[::1]:")] {
        let first = follow_first_steps(listen);
        assert!(first.contains(&format!("listens on http://{named}")), "{first}");
    }
}

#[test]
fn server_that_cannot_listen_says_which_variable_to_set() {
    let data = tempfile::tempdir().unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    let start = |variable: &str, address: &str| {
        let mut command = embedded(data.path());
        command.env("KEYWARD_LOG", "off").env("KEYWARD_LISTEN", "127.0.0.1:0");
        command.env(variable, address).output().unwrap()
    };

    for variable in ["KEYWARD_LISTEN", "KEYWARD_METRICS_LISTEN", "KEYWARD_GRPC_LISTEN"] {
        let words = [variable, &taken, "stop the process that listens there"];
        assert_rejected(&start(variable, &taken), 1, &words);
        // An address for documentation, which no machine has.
        let words = [variable, "192.0.2.1:0", "an address of this machine"];
        assert_rejected(&start(variable, "192.0.2.1:0"), 1, &words);
    }
}

#[test]
fn responses_close_the_connection_while_draining() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_DRAIN_SECONDS", "4");
    let server = Server::start(command);
    let (mut used, mut idle) =
        (PersistentConnection::to(server.address), PersistentConnection::to(server.address));
    assert!(!used.get("/livez").unwrap().contains("connection: close"));

    server.signal("TERM");
    while get(server.address, "/readyz").unwrap().0 == 200 {}
    let on_a_kept_one = used.get("/v2/liveness").unwrap();
    let on_a_new_one = head(server.address, "/livez");

    assert!(on_a_kept_one.starts_with("http/1.1 200"), "{on_a_kept_one}");
    assert!(on_a_kept_one.contains("connection: close"), "{on_a_kept_one}");
    assert!(on_a_new_one.contains("connection: close"), "{on_a_new_one}");
    assert!(used.is_closed() && idle.is_closed());
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn idle_connections_are_closed_gradually_while_draining() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_DRAIN_SECONDS", "4");
    let server = Server::start(command);
    let mut idle: Vec<_> = (0..32).map(|_| PersistentConnection::to(server.address)).collect();
    for connections in &mut idle {
        connections.get("/livez").unwrap();
    }

    server.signal("TERM");
    let waiting = idle.into_iter().map(|mut connections| {
        std::thread::spawn(move || {
            assert!(connections.is_closed());
            foundation::clock::Clock::System.now().0
        })
    });
    let waiting: Vec<_> = waiting.collect();
    let mut closed: Vec<_> = waiting.into_iter().map(|at| at.join().unwrap()).collect();
    closed.sort_unstable();

    // Spread over the two seconds of the second half of the drain.
    let spread_ms = closed[31] - closed[0];
    assert!(spread_ms > 1000, "{spread_ms} ms");
}

#[test]
fn connections_above_the_limit_get_503_and_are_counted() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    let metrics: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    command.env("KEYWARD_CONNECTIONS_MAX", "2").env("KEYWARD_METRICS_LISTEN", metrics.to_string());
    let server = Server::start(command);
    let mut connections = open(server.address, 2);

    let refused = head(server.address, "/livez");

    assert!(refused.starts_with("http/1.1 503"), "{refused}");
    assert!(
        refused.contains("retry-after: 1") && refused.contains("connection: close"),
        "{refused}"
    );
    let (_, metrics) = get(metrics, "/metrics").unwrap();
    assert!(metrics.contains("keyward_connections 2\n"), "{metrics}");
    assert!(!metrics.contains("keyward_connections_refused_total 0\n"), "{metrics}");
    drop(connections.pop());
    while !head(server.address, "/livez").starts_with("http/1.1 200") {}
}

#[test]
fn health_is_served_on_the_metrics_port_when_clients_hold_all_connections() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    let metrics: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    command.env("KEYWARD_CONNECTIONS_MAX", "2").env("KEYWARD_METRICS_LISTEN", metrics.to_string());
    let server = Server::start(command);
    let _held = open(server.address, 2);

    let refused = head(server.address, "/livez");
    let [live, ready] = ["/livez", "/readyz"].map(|path| get(metrics, path).unwrap().0);
    let health = keyward_command()
        .arg("health")
        .env("KEYWARD_LISTEN", server.address.to_string())
        .env("KEYWARD_METRICS_LISTEN", metrics.to_string())
        .output()
        .unwrap();

    assert!(refused.starts_with("http/1.1 503"), "{refused}");
    assert_eq!((live, ready), (200, 200));
    assert!(health.status.success(), "{health:?}");
}

#[test]
fn server_returns_503_to_each_connection_when_many_are_rejected_at_once() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_CONNECTIONS_MAX", "1");
    let server = Server::start(command);
    let mut connections = open(server.address, 1);

    // More than the server keeps open until they are read.
    let mut refused: Vec<_> = (0..200).map(|_| PersistentConnection::to(server.address)).collect();

    assert_refused(&mut refused);
    assert!(connections[0].get("/livez").unwrap().starts_with("http/1.1 200"));
}

#[test]
fn server_rejects_connections_and_stays_ready_when_file_limit_is_low() {
    let data = tempfile::tempdir().unwrap();
    let log = data.path().join("log");
    let mut command = keyward_command_with_files(256, 256);
    command.env("KEYWARD_DATA_DIR", data.path()).env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start_logging(command, &log);
    let mut connections = open(server.address, 56);

    let mut refused: Vec<_> = (0..400).map(|_| PersistentConnection::to(server.address)).collect();

    assert_refused(&mut refused);
    let ready = connections[0].get("/readyz").unwrap();
    assert!(ready.starts_with("http/1.1 200"), "{ready}");
    drop(connections);
    open(server.address, 1);
    let (status, created) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    assert_eq!(status, 200, "{created}");
    let log_text = std::fs::read_to_string(&log).unwrap();
    assert!(
        log_text.contains("connection limit from 10000 (KEYWARD_CONNECTIONS_MAX) to 56"),
        "{log_text}"
    );
    assert!(!log_text.contains("failed to accept"), "{log_text}");
}

#[test]
fn server_raises_its_file_limit_when_hard_limit_is_higher() {
    let data = tempfile::tempdir().unwrap();
    let log = data.path().join("log");
    let mut command = keyward_command_with_files(100, 1000);
    command.env("KEYWARD_DATA_DIR", data.path()).env("KEYWARD_CONNECTIONS_MAX", "700");
    let _server = Server::start_logging(command, &log);

    let log_text = std::fs::read_to_string(&log).unwrap();
    assert!(log_text.contains("set the connection limit to 700"), "{log_text}");
}

#[test]
fn metrics_are_served_on_their_own_port_when_configured() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    let metrics: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    command.env("KEYWARD_METRICS_LISTEN", metrics.to_string());
    let server = Server::start(command);

    let public = get(server.address, "/metrics").unwrap();
    let own = get(metrics, "/metrics").unwrap();
    let other = get(metrics, "/v2/liveness").unwrap();

    assert_eq!((public.0, own.0, other.0), (404, 200, 404));
    assert!(own.1.contains("keyward_build_info"), "{}", own.1);
}

#[test]
fn responses_are_not_stored_and_require_https() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command.env("KEYWARD_PUBLIC_URL", "https://keys.example.com").env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let server = Server::start(command);
    let plain_data = tempfile::tempdir().unwrap();
    let plain = Server::start(embedded(plain_data.path()));

    for path in ["/v2/liveness", "/dashboard/login", "/livez"] {
        let secure = head(server.address, path);
        assert!(secure.contains("strict-transport-security: max-age=31536000"), "{secure}");
        assert!(!head(plain.address, path).contains("strict-transport-security"));
    }
    let (_, created) = server.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "payments" }));
    let body = json!({ "apiId": created["data"]["apiId"] }).to_string();
    let mut connections = PersistentConnection::to(server.address);
    let request = format!(
        "POST /v2/keys.createKey HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ROOT_KEY}\r\n\
        Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    connections.0.write_all(request.as_bytes()).unwrap();
    let mut answer = [0; 2048];
    let read = connections.0.read(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]);
    assert!(
        answer.contains("\"key\":\"") && answer.contains("cache-control: no-store"),
        "{answer}"
    );
}

#[test]
fn security_txt_contains_the_contact() {
    let data = tempfile::tempdir().unwrap();
    let mut command = embedded(data.path());
    command
        .env("KEYWARD_PUBLIC_URL", "https://keys.example.com")
        .env("KEYWARD_SECURITY_CONTACT", "mailto:security@example.com, https://example.com/report")
        .env("KEYWARD_SECURITY_EXPIRES", "2099-06-30T00:00:00Z");
    let server = Server::start(command);
    let bare_data = tempfile::tempdir().unwrap();
    let bare = Server::start(embedded(bare_data.path()));

    let (status, text) = get(server.address, "/.well-known/security.txt").unwrap();

    assert_eq!(status, 200);
    let lines = [
        "Contact: mailto:security@example.com",
        "Contact: https://example.com/report",
        "Expires: 2099-06-30T00:00:00Z",
        "Canonical: https://keys.example.com/.well-known/security.txt",
    ];
    assert!(text.contains(&lines.join("\n")), "{text}");
    assert!(
        head(server.address, "/.well-known/security.txt").contains("text/plain; charset=utf-8")
    );
    assert_eq!(get(bare.address, "/.well-known/security.txt").unwrap().0, 404);
}
