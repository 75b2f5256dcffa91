//! Fuzzes every parser of untrusted input, byte by byte, against a simple implementation of the same rule.
//!
//! A target first runs with the inputs in its directory in `__fuzz__`, then with random ones for a second. A failure
//! prints its input, which belongs into that directory, and its `BOLERO_RANDOM_SEED`, which repeats the run.
//! `BOLERO_RANDOM_TEST_TIME_MS` extends the second, as `./test fuzz --seconds N` does. With a nightly toolchain and
//! `cargo install cargo-bolero`, `cargo +nightly bolero test --profile dev NAME_OF_TEST` prefers inputs that reach new
//! code, and stores them in the directory.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod bearer;
mod cursor;
mod descriptor;
mod forwarded_request;
mod gateway_path;
mod grants;
#[path = "../sql_queries/growth.rs"]
mod growth;
mod key;
mod overrides;
mod permission_query;
mod ratelimit_headers;
mod sql_queries;

/// Builds a text from pieces of a language: random pieces reach deeper into a parser than random letters.
fn compose<'a, T: ?Sized>(bytes: &[u8], pieces: &[&'a T]) -> Vec<&'a T> {
    bytes.iter().map(|byte| pieces[usize::from(*byte) % pieces.len()]).collect()
}

/// A target with a wrong name would silently run without any stored input.
#[test]
fn every_target_has_stored_inputs() {
    let folders = std::fs::read_dir("tests/fuzz/__fuzz__").unwrap();
    let mut targets: Vec<_> = folders
        .map(|folder| {
            let path = folder.unwrap().path();
            assert!(std::fs::read_dir(path.join("corpus")).unwrap().count() > 0);
            path.file_name().unwrap().to_str().unwrap().to_owned()
        })
        .collect();
    targets.sort();

    assert_eq!(
        targets,
        [
            "bearer",
            "cursor",
            "descriptor",
            "forwarded_request",
            "gateway_path",
            "grants",
            "key",
            "overrides",
            "permission_query",
            "ratelimit_headers",
            "sql_queries"
        ]
    );
}
