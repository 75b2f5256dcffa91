//! Tests counters whose Redis has another time than this machine, or than before.

use std::process::{Child, Stdio};

use limiter::redis::inspect::inspect_nodes;

use super::*;
use crate::servers::Redis;
use crate::support::process::redis_command;

/// A Redis server whose clock is an hour ahead.
struct RedisAhead(Child);

impl RedisAhead {
    fn start(port: u16) -> Self {
        let library = std::env::var("FAKETIME_LIBRARY").expect("./test sets it");
        // An allocator that reads the clock would be called by the library for memory: Redis uses that of libc.
        let (preload, library) = match cfg!(target_os = "macos") {
            true => ("DYLD_INSERT_LIBRARIES", library),
            false => ("LD_PRELOAD", format!("{library}:libc.so.6")),
        };
        let mut command = redis_command();
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.env(preload, library).env("FAKETIME", "+3600s");
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
        let child = command.stdout(Stdio::null()).spawn().expect("./test has found a Redis server");
        let server = Self(child);
        let began = Stopwatch::new();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(10), "Redis does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }
}

impl Drop for RedisAhead {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn address(port: u16) -> RedisAddress {
    RedisAddress::new(&format!("redis://127.0.0.1:{port}"), &RedisTls::default())
}

#[tokio::test]
async fn consume_succeeds_when_the_clock_of_redis_has_jumped_ahead() {
    let (mut server, keys) = (Redis::start(), Keyspace::new("t:"));
    let timeout = Duration::from_secs(5);
    let counters =
        RedisCounters::new(address(server.port), timeout, keys.clone(), &Metrics::default());
    let counters = counters.unwrap();
    let window = Window::new(keys.window("key_a", MINUTE, "requests"), 5, MINUTE, 1);
    let request = one(window.clone());
    let before = counters.consume_windows(&request, None).await.unwrap();
    server.kill();
    let _ahead = RedisAhead::start(server.port);

    let reply = counters.consume_windows(&request, None).await.unwrap();

    assert!(reply.is_admitted);
    let step = reply.windows[0].window_number - before.windows[0].window_number;
    assert!((59..=62).contains(&step), "{step} minutes");
    assert!(counters.consume_windows(&request, None).await.unwrap().is_admitted);
}

#[tokio::test]
async fn inspection_measures_the_distance_and_the_clock_of_redis() {
    let (mut server, keys) = (Redis::start(), Keyspace::new("t:"));
    let inspect = async |port| {
        let mut nodes = inspect_nodes(&address(port), &keys, &Clock::System).await;
        nodes.pop().expect("a node").1.unwrap()
    };

    let node = inspect(server.port).await;
    assert!(node.round_trip < Duration::from_secs(1), "{node:?}");
    assert!(node.clock_ahead_ms.abs() < 100, "{node:?}");

    server.kill();
    let _ahead = RedisAhead::start(server.port);
    let node = inspect(server.port).await;
    assert!((node.clock_ahead_ms - 3_600_000).abs() < 100, "{node:?}");
}
