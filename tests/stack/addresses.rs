//! Tests what `deploy/local-stack` prints for people.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::LocalStack;
use crate::support::process::get;

#[test]
fn local_stack_prints_a_link_to_its_dashboard() {
    let mut child = Command::new("deploy/local-stack")
        .args(["--port", "0", "--binary", env!("CARGO_BIN_EXE_keyward")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("deploy/local-stack starts");
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let lines: Vec<_> = lines.take_while(|line| !line.starts_with("Press")).collect();
    let _stack = LocalStack { child, about: Value::Null };
    let value = |name: &str| {
        let found = lines.iter().find_map(|line| line.strip_prefix(name));
        found.unwrap_or_else(|| panic!("no {name}: {lines:?}")).trim().to_owned()
    };
    let (url, link) = (value("Keyward"), value("dashboard"));

    let path = link.strip_prefix(&url).expect("a link to the address of the load balancer");
    let (status, page) = get(url.trim_start_matches("http://").parse().unwrap(), path).unwrap();

    assert_eq!(status, 200, "{page}");
    assert!(page.contains("Set up the dashboard"), "{page}");
}
