//! Provides the previous version, which runs beside this one while replicas are replaced: built once from the
//! repository's history, and stored by the id of its commit.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// The commit from which it is built.
const COMMIT: &str = "820311d93dcdcab154f5a3b591287d34a293a365";

/// Returns its binary, which is built if necessary.
pub fn previous_binary() -> PathBuf {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root.join("target"), Into::into);
    let directory = std::path::absolute(target.join("older").join(COMMIT)).expect("a path");
    let binary = directory.join("keyward");
    if !binary.exists() {
        build(root, &target, &directory);
        std::fs::rename(target.join("debug/keyward-older"), &binary).expect("its binary is stored");
    }
    binary
}

/// Builds it in this version's target directory: crates that both versions use are compiled already.
fn build(root: &Path, target: &Path, directory: &Path) {
    let source = directory.join("source");
    std::fs::create_dir_all(&source).expect("a directory for its source");
    let archive = directory.join("source.tar");
    let archived = Command::new("git")
        .args(["-C", &root.display().to_string(), "archive", "--output"])
        .args([archive.as_os_str(), COMMIT.as_ref()])
        .stderr(Stdio::null())
        .status();
    assert!(
        archived.is_ok_and(|archived| archived.success()),
        "the history of this repository lacks commit {COMMIT}, the version that runs beside this one during an upgrade: \
        fetch the whole history (git fetch --unshallow), then run this again"
    );
    run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&source));
    let manifest = source.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).expect("its manifest");
    let own_name = text.replace("name = \"keyward\"\npath = ", "name = \"keyward-older\"\npath = ");
    std::fs::write(&manifest, own_name).expect("its manifest is written");
    let mut cargo = Command::new("cargo");
    // Variables that cargo sets for this test's package would make it recompile other crates.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO") && text != "CARGO_HOME" || text == "LD_LIBRARY_PATH" {
            cargo.env_remove(&name);
        }
    }
    cargo.env("CARGO_INCREMENTAL", "0").current_dir(&source);
    run(cargo.args(["build", "--locked", "--bin", "keyward-older", "--target-dir"]).arg(target));
    std::fs::remove_dir_all(&source).expect("its source is removed");
    std::fs::remove_file(&archive).expect("its archive is removed");
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {failed}");
}
