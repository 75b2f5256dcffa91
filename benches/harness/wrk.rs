//! Generates load over HTTP with wrk.

use super::Outcome;
use super::cases::{Case, Interface, Place};
use super::load::{Load, Phase};
use super::policy;
use super::servers::{Lab, ROOT_KEY, Server, pinned};
use std::fs;
use std::path::Path;

/// Generates load on a server.
pub fn run(lab: &Lab, case: &Case, keys: &Path, server: &Server, phase: Phase) -> Outcome<Load> {
    let (seconds, first, looks_at_answers) = match phase {
        Phase::WarmUp { first } => (1, first, true),
        Phase::Measured { seconds } => (seconds, 0, false),
    };
    let (head, tail) = case.keys.body();
    let script = lab.folder.path().join("wrk.lua");
    fs::write(&script, include_str!("../wrk.lua")).map_err(|e| format!("wrk.lua: {e}"))?;
    let mut command = pinned(lab.cores.load, Path::new("wrk"));
    match case.interface {
        Interface::Gateway => {
            command.env("SENDER", "gateway").env("SECRET", policy::secret(lab, case.place)?)
        }
        Interface::Nginx => command.env("SENDER", "client"),
        Interface::Operation | Interface::ExtAuthz | Interface::RateLimitService => {
            command.env("SENDER", "caller")
        }
    };
    match policy::key_id_header(case.interface) {
        Some(header) => {
            // The server with a fixed answer does not know the key.
            let marker = if case.place == Place::Ceiling { "" } else { "key_" };
            command.env("MARKER_HEADER", header).env("MARKER", marker)
        }
        None => command.env("MARKER", case.keys.marker()),
    };
    let output = command
        .args(["-t1", &format!("-c{}", case.connections), &format!("-d{seconds}s")])
        .args(["--timeout", "5s", "-s"])
        .arg(&script)
        .arg(format!("http://{}{}", server.target, case.path))
        .env("KEYFILE", keys)
        .env("ROOT", ROOT_KEY)
        .env("HEAD", head)
        .env("TAIL", tail)
        .env("FIRST", first.to_string())
        .env("CHECK", if looks_at_answers { "1" } else { "0" })
        .output()
        .map_err(|e| format!("wrk did not start: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let load: Option<Load> =
        text.lines().find_map(|line| serde_json::from_str(line.strip_prefix("JSON ")?).ok());
    let sample = text.lines().find_map(|line| line.strip_prefix("SAMPLE "));
    match load {
        Some(load) => Ok(Load { sample: sample.unwrap_or_default().to_owned(), ..load }),
        None => Err(format!("wrk failed: {text}{}", String::from_utf8_lossy(&output.stderr))),
    }
}
