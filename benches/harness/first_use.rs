//! Measures how a replica copes with many keys that are verified for the first time at once: each is read from the
//! database, and a key with credits also needs a lease, for which its account is debited durably.
#![expect(clippy::print_stdout, reason = "the report is what the benchmark is run for")]

use super::Outcome;
use super::cases::{Place, VERIFY};
use super::client::{self, Client};
use super::key_sets::KeySet;
use super::machine::Cores;
use super::servers::Lab;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const KEYS: usize = 10_000;
const CALLERS: usize = 64;
const REPEATS: usize = 3;

/// One pass over all keys.
pub struct Pass {
    seconds: f64,
    latencies: Vec<Duration>,
}

pub fn run(cores: Cores) -> Outcome<()> {
    let mut lab = Lab::build(cores, true, false)?;
    // What is measured waits for Postgres, and its backends can use more than what the load leaves of its core.
    lab.postgres = Some(lab.start_postgres(19, &[cores.server, cores.load])?);
    println!("\n{KEYS} keys, verified once each by {CALLERS} callers, then once more; a replica\n");
    println!("| keys | use | seconds | p50 ms | p99 ms | longest ms |");
    println!("|---|---|--:|--:|--:|--:|");
    let api_id = client::make_api(lab.start(Place::Replica)?.address)?;
    for _ in 0..REPEATS {
        for set in [KeySet::Plain, KeySet::Credits] {
            let maker = lab.start(Place::Replica)?;
            let keys = client::make_keys(maker.address, &api_id, set, KEYS)?;
            drop(maker);
            let server = lab.start(Place::Replica)?;
            for use_name in ["first", "second"] {
                let mut pass = verify_all(server.address, set, &keys)?;
                pass.latencies.sort_unstable();
                let at = |share: f64| milliseconds(&pass.latencies, share);
                println!(
                    "| {} | {use_name} | {:.2} | {:.1} | {:.1} | {:.1} |",
                    set.name(),
                    pass.seconds,
                    at(0.5),
                    at(0.99),
                    at(1.0)
                );
            }
        }
    }
    Ok(())
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a position in a list"
)]
fn milliseconds(sorted: &[Duration], share: f64) -> f64 {
    let at = ((sorted.len() - 1) as f64 * share) as usize;
    sorted.get(at).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3)
}

/// Verifies each key once. Every reply must be VALID.
pub fn verify_all(address: SocketAddr, set: KeySet, keys: &[String]) -> Outcome<Pass> {
    let next = AtomicUsize::new(0);
    let verify_some = || -> Outcome<Vec<Duration>> {
        let mut client = Client::connect(address).map_err(|e| format!("no connection: {e}"))?;
        let mut latencies = Vec::new();
        while let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed)) {
            let sent_at = Instant::now();
            let answer = client.post_raw(VERIFY, &set.request(key));
            let (status, body) = answer.map_err(|e| e.to_string())?;
            latencies.push(sent_at.elapsed());
            let body = String::from_utf8_lossy(&body);
            if status != 200 || !body.contains(set.marker()) {
                return Err(format!("a wrong answer: {status} {body}"));
            }
        }
        Ok(latencies)
    };
    let began_at = Instant::now();
    let latencies = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(verify_some)).collect();
        let mut latencies = Vec::with_capacity(keys.len());
        for caller in callers {
            latencies.extend(caller.join().map_err(|_| "a caller panicked")??);
        }
        Outcome::Ok(latencies)
    })?;
    Ok(Pass { seconds: began_at.elapsed().as_secs_f64(), latencies })
}
