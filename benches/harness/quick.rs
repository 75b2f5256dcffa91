//! Measures the over-admission of approximate limits: how many requests above the limit `async` admits, compared with
//! exact limits, when replicas receive one identifier at the same time.
#![expect(clippy::print_stdout, reason = "the report is what the benchmark is run for")]

use super::Outcome;
use super::cases::Place;
use super::client::Client;
use super::machine::Cores;
use super::servers::{Lab, Server};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const REPLICAS: usize = 2;
const CALLERS_PER_REPLICA: usize = 8;
const REPEATS: usize = 7;
const LIMIT: u64 = 1000;
const STEADY: Duration = Duration::from_secs(10);

/// The load of the callers on a limit.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    window_ms: u64,
    /// How long the callers send requests.
    lasts: Duration,
}

const SHAPES: [Shape; 2] = [
    Shape { name: "burst: once, all at once", window_ms: 60_000, lasts: Duration::from_secs(2) },
    Shape { name: "steady: 10 s, windows of 1 s", window_ms: 1_000, lasts: STEADY },
];

pub fn run(cores: Cores) -> Outcome<()> {
    let lab = Lab::build(cores, true, true)?;
    let servers = (0..REPLICAS).map(|_| lab.start(Place::Replica)).collect::<Outcome<Vec<_>>>()?;
    println!(
        "\nAdmitted of one identifier, limit {LIMIT}, {REPLICAS} replicas with {CALLERS_PER_REPLICA} callers each \
         that never rest; {REPEATS} runs\n"
    );
    println!("| load | mode | asked, median | admitted, median | most | most, of exact's median |");
    println!("|---|---|--:|--:|--:|--:|");
    for shape in SHAPES {
        let mut exact = 0;
        for is_async in [false, true] {
            let mut runs = (0..REPEATS)
                .map(|number| admitted(&servers, shape, is_async, number))
                .collect::<Outcome<Vec<_>>>()?;
            runs.sort_unstable_by_key(|run| run.admitted);
            let (middle, most) = (runs[REPEATS / 2], runs[REPEATS - 1]);
            if !is_async {
                exact = middle.admitted;
            }
            println!(
                "| {} | {} | {} | {} | {} | {:.3} |",
                shape.name,
                if is_async { "async" } else { "exact" },
                middle.asked,
                middle.admitted,
                most.admitted,
                super::load::real(most.admitted) / super::load::real(exact),
            );
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Default)]
struct Run {
    asked: u64,
    admitted: u64,
}

fn admitted(servers: &[Server], shape: Shape, is_async: bool, number: usize) -> Outcome<Run> {
    let body = json!({
        "namespace": "bench",
        "identifier": format!("{}-{is_async}-{number}", shape.window_ms),
        "limit": LIMIT,
        "duration": shape.window_ms,
        "async": is_async,
    })
    .to_string();
    let start = Barrier::new(servers.len() * CALLERS_PER_REPLICA);
    let (body, start) = (body.as_str(), &start);
    std::thread::scope(|scope| {
        let callers: Vec<_> = servers
            .iter()
            .flat_map(|server| std::iter::repeat_n(server.address, CALLERS_PER_REPLICA))
            .map(|address| scope.spawn(move || call(address, body, shape.lasts, start)))
            .collect();
        let mut sum = Run::default();
        for caller in callers {
            let run = caller.join().map_err(|_| "a caller panicked")??;
            sum.asked += run.asked;
            sum.admitted += run.admitted;
        }
        Ok(sum)
    })
}

fn call(address: SocketAddr, body: &str, lasts: Duration, start: &Barrier) -> Outcome<Run> {
    let mut client = Client::connect(address).map_err(|e| format!("no connection: {e}"))?;
    let mut run = Run::default();
    let mut ask = || {
        let (status, answer) = client
            .post("/v1/ratelimits.limit", body)
            .map_err(|e| format!("no answer from the limiter: {e}"))?;
        if status != 200 {
            return Err(format!("ratelimits.limit answered {status}: {answer}"));
        }
        run.asked += 1;
        run.admitted += u64::from(answer["success"] == true);
        Ok(())
    };
    // After the first call, the replica knows the window, and the next calls are decided in the mode under test.
    let first = ask();
    start.wait();
    first?;
    let end = Instant::now() + lasts;
    while Instant::now() < end {
        ask()?;
    }
    Ok(run)
}
