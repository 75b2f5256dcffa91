//! The verification benchmark: Keyward beside the ceilings of the same machine, under one load, as
//! ratios. `README.md` in this folder says how to run it and how to read it.

#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures real time, which no test has to turn"
)]

mod harness;

use std::process::ExitCode;

/// The ceilings run in this binary, so it has the allocator that Keyward has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first() {
        Some((first, rest)) if first == harness::ceiling::ARGUMENT => harness::ceiling::serve(rest),
        _ => harness::main(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("error: {fault}");
            ExitCode::FAILURE
        }
    }
}
