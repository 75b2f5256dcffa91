//! Measures the startup time: from the spawn of the process to the first VALID response, on existing data.

use super::Outcome;
use super::cases::{Place, VERIFY, is_named};
use super::client::Client;
use super::key_sets::KeySet;
use super::machine;
use super::servers::{Lab, Server};
use serde::Serialize;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

pub const KEYS: KeySet = KeySet::Plain;
const STARTS: usize = 11;
const PAUSE: Duration = Duration::from_micros(200);
const PATIENCE: Duration = Duration::from_secs(30);

/// The startup times of one stack.
#[derive(Serialize)]
pub struct Starts {
    pub name: &'static str,
    pub milliseconds: Vec<f64>,
    pub resident_mib: Vec<f64>,
}

pub fn name(place: Place) -> &'static str {
    match place {
        Place::Ceiling => "cold start, ceiling",
        Place::Embedded => "cold start, embedded",
        Place::Replica => "cold start, replica",
    }
}

pub fn selected(only: &str) -> Vec<Place> {
    Place::KEYWARD.into_iter().filter(|place| is_named(name(*place), only)).collect()
}

pub fn measure(lab: &Lab, place: Place, keys: &Path) -> Outcome<Starts> {
    eprintln!("{} ({STARTS} times)", name(place));
    let keys = fs::read_to_string(keys).map_err(|e| format!("{}: {e}", keys.display()))?;
    let key = keys.lines().next().ok_or("there is no key")?;
    let body = KEYS.request(key);
    let mut starts = Starts { name: name(place), milliseconds: vec![], resident_mib: vec![] };
    for _ in 0..STARTS {
        let started = Instant::now();
        let server = lab.spawn(place)?;
        wait_for_valid(&server, &body, started)?;
        starts.milliseconds.push(started.elapsed().as_secs_f64() * 1e3);
        starts.resident_mib.push(machine::resident_mib(server.process.pid()));
    }
    Ok(starts)
}

/// Sends requests until the response is VALID. A refused connection or another response means "not yet".
fn wait_for_valid(server: &Server, body: &str, started: Instant) -> Outcome<()> {
    loop {
        let answer = Client::connect(server.address).and_then(|mut c| c.post(VERIFY, body));
        if let Ok((200, answer)) = &answer
            && answer["data"]["code"] == "VALID"
        {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            let words = server.process.last_words();
            return Err(format!("no VALID answer, at last: {answer:?}; it said: {words}"));
        }
        std::thread::sleep(PAUSE);
    }
}
