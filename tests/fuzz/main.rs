//! What is read from strangers, byte by byte: each parser against a plain reading of the same rule.
//!
//! A target is first given the inputs in its folder in `__fuzz__`, then random ones for a second. What fails
//! tells its input, which belongs into that folder, and its `BOLERO_RANDOM_SEED`, which repeats it.
//! `BOLERO_RANDOM_TEST_TIME_MS` makes the second longer, as `./test fuzz --seconds N` does. With a nightly
//! toolchain and `cargo install cargo-bolero`, `cargo +nightly bolero test --profile dev NAME_OF_TEST` prefers
//! inputs that reach what none has reached, and keeps them in the folder.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod bearer;
mod cursor;
mod grants;
#[path = "../questions/growth.rs"]
mod growth;
mod key;
mod overrides;
mod query;
mod question;

/// Bytes spelled with a few pieces of a language, in which chance gets further than with any letters.
fn spelled<'a, T: ?Sized>(bytes: &[u8], pieces: &[&'a T]) -> Vec<&'a T> {
    bytes.iter().map(|byte| pieces[usize::from(*byte) % pieces.len()]).collect()
}

/// A target whose inputs are elsewhere would be given none of them, and say nothing.
#[test]
fn every_target_has_its_inputs() {
    let folders = std::fs::read_dir("tests/fuzz/__fuzz__").unwrap();
    let mut targets: Vec<_> = folders
        .map(|folder| {
            let path = folder.unwrap().path();
            assert!(std::fs::read_dir(path.join("corpus")).unwrap().count() > 0);
            path.file_name().unwrap().to_str().unwrap().to_owned()
        })
        .collect();
    targets.sort();

    assert_eq!(targets, ["bearer", "cursor", "grants", "key", "overrides", "query", "question"]);
}
