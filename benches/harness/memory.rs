//! Measures the memory that cached keys take: an embedded server reads keys, each of which is verified once.
#![expect(clippy::print_stdout, reason = "the report is what the benchmark is run for")]

use super::Outcome;
use super::cases::Place;
use super::client::{self, Metrics};
use super::first_use;
use super::key_sets::KeySet;
use super::load::real;
use super::machine::{self, Cores};
use super::servers::{Lab, Server};
use std::time::{Duration, Instant};

const KEYS: usize = 200_000;
/// The memory is read after each of them: what a further key takes shows without what the server takes anyway.
const PARTS: usize = 4;
const EVENTS_PATIENCE: Duration = Duration::from_mins(1);

/// What a server uses at one moment, in bytes.
struct Use {
    resident: f64,
    cached: f64,
}

/// Runs it with 200,000 keys, or with the number that follows the option.
pub fn run(cores: Cores) -> Outcome<()> {
    let wanted = std::env::args().skip_while(|argument| argument != "--memory").nth(1);
    let keys = match wanted.filter(|wanted| wanted != "--bench") {
        Some(number) => number.parse().map_err(|e| format!("--memory {number}: {e}"))?,
        None => KEYS,
    };
    let lab = Lab::build(cores, false, false)?;
    let maker = lab.start(Place::Embedded)?;
    let api_id = client::make_api(maker.address)?;
    let keys = client::make_keys(maker.address, &api_id, KeySet::Plain, keys)?;
    drop(maker);

    // Creating the keys took memory of its own.
    let server = lab.start_with(Place::Embedded, &[("KEYWARD_CACHE_BYTES", "4294967296")])?;
    println!("\n{} keys, verified once each; an embedded server\n", keys.len());
    println!(
        "| keys | resident MiB | cache MiB | a further key, resident B | a further key, cached B |"
    );
    println!("|--:|--:|--:|--:|--:|");
    let mut before = measure(&server)?;
    print_row(0, &before, "", "");
    for (at, part) in keys.chunks(keys.len().div_ceil(PARTS)).enumerate() {
        first_use::verify_all(server.address, KeySet::Plain, part)?;
        wait_for_events(&server)?;
        let now = measure(&server)?;
        let each = |bytes: f64| format!("{:.0}", bytes / real(part.len() as u64));
        let verified = at * keys.len().div_ceil(PARTS) + part.len();
        let further = (each(now.resident - before.resident), each(now.cached - before.cached));
        print_row(verified, &now, &further.0, &further.1);
        before = now;
    }
    Ok(())
}

fn measure(server: &Server) -> Outcome<Use> {
    let cached = Metrics::fetch(server.address)?.sum("keyward_cache_bytes")?;
    let resident = machine::resident_mib(server.process.pid()) * f64::from(1 << 20);
    Ok(Use { resident, cached: real(cached) })
}

/// Waits until the events of all verifications are written: until then they take memory, too.
fn wait_for_events(server: &Server) -> Outcome<()> {
    let deadline = Instant::now() + EVENTS_PATIENCE;
    while Metrics::fetch(server.address)?.sum("keyward_events_waiting")? > 0 {
        if Instant::now() > deadline {
            return Err("the events were not written in time".to_owned());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn print_row(keys: usize, used: &Use, resident: &str, cached: &str) {
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    println!(
        "| {keys} | {:.1} | {:.1} | {resident} | {cached} |",
        mib(used.resident),
        mib(used.cached)
    );
}
