//! The verification benchmark: compares Keyward with ceiling servers on the same machine under the same load, as
//! ratios. `README.md` in this folder describes how to run it and how to read it.

#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures real time, which no test needs to control"
)]

mod harness;

use std::process::ExitCode;

/// The ceiling servers run in this binary, so it uses the same allocator as Keyward.
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
