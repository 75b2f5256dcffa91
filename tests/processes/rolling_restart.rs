//! Restarts replicas one after the other under load: no request fails.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};

use crate::acquire_turn;
use crate::client::Client;
use crate::support::database::Database;
use crate::support::process::{Server, free_port, keyward_command, v2};
use crate::support::{random_letters, redis_url};

const ROOT_KEY: &str = "a_root_key_of_an_operator_1";
/// The number of clients that call concurrently, each over a persistent connection.
const CLIENTS: usize = 8;
/// The pause of a client between two requests.
const PAUSE: Duration = Duration::from_millis(3);

struct Replicas {
    database: Database,
    prefix: String,
}

impl Replicas {
    fn new() -> Self {
        let database = tokio::runtime::Runtime::new().unwrap().block_on(Database::create());
        Self { database, prefix: format!("t{}:", random_letters()) }
    }

    fn start(&self, address: SocketAddr, drain_seconds: u8) -> Server {
        let mut command = keyward_command();
        command
            .env("KEYWARD_DATABASE_URL", &self.database.url)
            .env("KEYWARD_REDIS_URL", redis_url())
            .env("KEYWARD_REDIS_PREFIX", &self.prefix)
            .env("KEYWARD_ROOT_KEY", ROOT_KEY)
            .env("KEYWARD_DRAIN_SECONDS", drain_seconds.to_string())
            .env("KEYWARD_LISTEN", address.to_string())
            .env("KEYWARD_LOG", "error");
        Server::start(command)
    }

    /// Stops and restarts one server after the other while clients call. Returns the number of responses per client.
    fn restart_each<const N: usize>(
        &self,
        mut servers: [Option<Server>; N],
        drain_seconds: u8,
        clients: usize,
        call: impl Fn(&AtomicBool, usize) -> usize + Sync,
    ) -> Vec<usize> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (call, stop) = (&call, &stop);
            let clients: Vec<_> =
                (0..clients).map(|number| scope.spawn(move || call(stop, number))).collect();
            for server in &mut servers {
                std::thread::sleep(Duration::from_millis(500));
                let stopping = server.take().unwrap();
                let address = stopping.address;
                stopping.signal("TERM");
                assert_eq!(stopping.wait(), Some(0));
                *server = Some(self.start(address, drain_seconds));
                // Time for the load balancer to notice.
                std::thread::sleep(Duration::from_secs(1));
            }
            stop.store(true, Ordering::Relaxed);
            clients.into_iter().map(|client| client.join().expect("no request failed")).collect()
        })
    }
}

fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

/// A load balancer with the configuration that the repository recommends.
struct LoadBalancer(Child);

impl LoadBalancer {
    fn start(address: SocketAddr, replicas: [SocketAddr; 2]) -> Self {
        let child = Command::new("haproxy")
            .args(["-db", "-f", "deploy/haproxy.cfg"])
            .env("KEYWARD_BALANCER_BIND", address.to_string())
            .env("KEYWARD_REPLICA_1", replicas[0].to_string())
            .env("KEYWARD_REPLICA_2", replicas[1].to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("haproxy is installed by ./test");
        let balancer = Self(child);
        let began = Stopwatch::new();
        while Client::new(address).get("/livez").is_err() {
            assert!(began.elapsed() < Duration::from_secs(10), "haproxy does not reply");
            std::thread::sleep(Duration::from_millis(20));
        }
        balancer
    }
}

impl Drop for LoadBalancer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn new_key(address: SocketAddr) -> String {
    let ok = |operation, body: &Value| {
        let (status, answer) = v2(address, ROOT_KEY, operation, body).unwrap();
        assert_eq!(status, 200, "{answer}");
        answer["data"].clone()
    };
    let api = ok("apis.createApi", &json!({ "name": "payments" }));
    let limit =
        json!([{ "name": "all", "limit": 1_000_000, "duration": 60_000, "autoApply": true }]);
    let request = json!({
        "apiId": api["apiId"], "credits": { "remaining": 1_000_000 }, "ratelimits": limit
    });
    ok("keys.createKey", &request)["key"].as_str().unwrap().to_owned()
}

#[test]
fn rolling_restart_fails_no_request_behind_load_balancer() {
    let _turn = acquire_turn();
    let replicas = Replicas::new();
    let addresses = [free_address(), free_address()];
    let servers = addresses.map(|address| Some(replicas.start(address, 2)));
    let address = free_address();
    let _balancer = LoadBalancer::start(address, addresses);
    let key = new_key(address);

    let answered = replicas
        .restart_each(servers, 2, CLIENTS, |stop, number| call_until(stop, address, &key, number));

    assert!(answered.iter().all(|answered| *answered > 100), "{answered:?}");
}

/// Verifies the key repeatedly over one connection while it stays open. Every tenth call creates an API.
fn call_until(stop: &AtomicBool, address: SocketAddr, key: &str, number: usize) -> usize {
    let mut client = Client::new(address);
    let mut answered = 0;
    while !stop.load(Ordering::Relaxed) {
        let answer = match (answered + number) % 10 {
            0 => client.v2(ROOT_KEY, "apis.createApi", &json!({ "name": "another" })),
            _ => client.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key })),
        };
        let answer =
            answer.unwrap_or_else(|e| panic!("request {answered} of client {number}: {e}"));
        assert_eq!(answer.status, 200, "request {answered} of client {number}: {}", answer.body);
        answered += 1;
        std::thread::sleep(PAUSE);
    }
    answered
}

#[test]
fn stopping_replica_answers_every_request_sent_before_it_stopped_listening() {
    let _turn = acquire_turn();
    let replicas = Replicas::new();
    for round in 0..3 {
        let server = replicas.start(free_address(), 0);
        let address = server.address;
        let key = new_key(address);
        let half_sent = HalfSent::to(address, &key);

        let lost: Vec<String> = std::thread::scope(|scope| {
            let clients: Vec<_> =
                (0..CLIENTS).map(|_| scope.spawn(|| call_until_refused(address, &key))).collect();
            std::thread::sleep(Duration::from_millis(300));
            server.signal("TERM");
            clients.into_iter().filter_map(|client| client.join().unwrap()).collect()
        });
        let finished = half_sent.finish();
        let code = server.wait();

        assert_eq!(lost, Vec::<String>::new(), "round {round}");
        assert!(finished.starts_with("HTTP/1.1 200 "), "{finished}");
        assert_eq!(code, Some(0));
    }
}

/// Calls over new connections until none is accepted. Returns the error of a connection that was accepted.
fn call_until_refused(address: SocketAddr, key: &str) -> Option<String> {
    let began = Stopwatch::new();
    while began.elapsed() < Duration::from_secs(10) {
        let answer = Client::new(address).v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key }));
        match answer {
            Ok(answer) if answer.status == 200 => {}
            Ok(answer) => return Some(format!("{}: {}", answer.status, answer.body)),
            // The listener is closed; the server did not accept connections that the system had queued.
            Err(_) if TcpStream::connect(address).is_err() => return None,
            Err(e) => return Some(e.to_string()),
        }
    }
    Some("it answers ten seconds after it was stopped".to_owned())
}

/// A request whose second half has not been sent yet.
struct HalfSent {
    stream: TcpStream,
    rest: String,
}

impl HalfSent {
    fn to(address: SocketAddr, key: &str) -> Self {
        let body = json!({ "key": key }).to_string();
        let head = format!(
            "POST /v2/keys.verifyKey HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ROOT_KEY}\r\n\
            Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(format!("{head}{}", &body[..9]).as_bytes()).unwrap();
        Self { stream, rest: body[9..].to_owned() }
    }

    /// Sends the rest. Returns the start of the response.
    fn finish(mut self) -> String {
        self.stream.write_all(self.rest.as_bytes()).unwrap();
        let mut answer = String::new();
        self.stream.read_to_string(&mut answer).expect("the response");
        answer
    }
}

/// The number of clients with a persistent connection to one of three replicas, without a load balancer.
const PERSISTENT_CLIENTS: usize = 24;

#[test]
fn rolling_restart_fails_no_request_on_persistent_connections() {
    let _turn = acquire_turn();
    let replicas = Replicas::new();
    let addresses = [free_address(), free_address(), free_address()];
    let servers = addresses.map(|address| Some(replicas.start(address, 3)));
    let key = new_key(addresses[0]);

    let answered = replicas.restart_each(servers, 3, PERSISTENT_CLIENTS, |stop, number| {
        keep_calling(stop, addresses, &key, number)
    });

    assert!(answered.iter().all(|answered| *answered > 5), "{answered:?}");
}

/// Verifies the key repeatedly over a connection that stays open as long as the server allows, with pauses between 5
/// and 900 ms. The client switches to the next replica only if the current one does not listen.
fn keep_calling(stop: &AtomicBool, addresses: [SocketAddr; 3], key: &str, number: usize) -> usize {
    let rest = Duration::from_millis(5 + 39 * number as u64);
    let mut at = number % addresses.len();
    let mut client = Client::new(addresses[at]);
    let mut answered = 0;
    while !stop.load(Ordering::Relaxed) {
        let is_new = !client.is_connected();
        match client.v2(ROOT_KEY, "keys.verifyKey", &json!({ "key": key })) {
            Ok(answer) => {
                assert_eq!(answer.status, 200, "client {number}: {}", answer.body);
                answered += 1;
                std::thread::sleep(rest);
            }
            // The listener is closed; the system resets a new connection that it had queued at that moment.
            Err(_) if is_new && TcpStream::connect(addresses[at]).is_err() => {
                at = (at + 1) % addresses.len();
                client = Client::new(addresses[at]);
            }
            Err(e) => panic!("request {answered} of client {number}: {e}"),
        }
    }
    answered
}
