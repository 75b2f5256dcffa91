//! Tests the completion scripts and the man pages: they cover every command, and need no valid settings.

use std::io::Read as _;
use std::process::Stdio;

use super::*;

const SHELLS: [&str; 5] = ["bash", "zsh", "fish", "elvish", "powershell"];

/// Returns a command with a setting that the server rejects.
fn misconfigured() -> Command {
    let mut command = keyward_command();
    command.env("KEYWARD_LISTEN", "nowhere");
    command
}

/// Returns the standard output of a command that must succeed, with nothing on standard error.
#[track_caller]
fn stdout(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the names of the commands in the help of a command, except `help`.
fn list_commands(path: &[&str]) -> Vec<String> {
    let help = stdout(keyward_command().args(path).arg("--help"));
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let lines = list.lines().take_while(|line| !line.is_empty());
    // Further lines of a description are indented more.
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !["", "help"].contains(name)).map(str::to_owned).collect()
}

#[test]
fn completions_contain_every_command_when_settings_are_invalid() {
    let commands = list_commands(&[]);
    assert!(commands.contains(&"root-key".to_owned()), "{commands:?}");

    for shell in SHELLS {
        let script = stdout(misconfigured().args(["completions", shell]));

        for command in &commands {
            assert!(script.contains(command), "{shell}: {command}");
        }
        assert!(script.contains("drain-seconds") && script.contains("on-outage"), "{shell}");
    }
}

#[test]
fn completions_reject_unknown_shell() {
    let output = keyward_command().args(["completions", "tcsh"]).output().unwrap();

    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("powershell"));
}

#[test]
fn completions_succeed_when_their_reader_stops() {
    for arguments in [&["completions", "bash"][..], &["man"]] {
        let mut command = keyward_command();
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();

        let output = child.wait_with_output().unwrap();

        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn man_prints_main_page_when_settings_are_invalid() {
    let page = stdout(misconfigured().arg("man"));

    // A hyphen is escaped.
    let page = page.replace("\\-", "-");
    assert!(page.contains(".TH keyward 1"), "{page}");
    assert!(page.contains("--drain-seconds") && page.contains("KEYWARD_DRAIN_SECONDS"), "{page}");
    for command in list_commands(&[]) {
        assert!(page.contains(&format!("keyward-{command}(1)")), "{command}");
    }
    assert!(!page.contains("keyward-help"), "{page}");
}

#[test]
fn man_writes_a_page_for_every_command_and_replaces_existing_ones() {
    let data = tempfile::tempdir().unwrap();
    let directory = data.path().join("share/man1");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("keyward.1"), "x".repeat(1 << 20)).unwrap();

    let printed = stdout(misconfigured().arg("man").arg("--directory").arg(&directory));

    assert_eq!(printed, "");
    let entries = std::fs::read_dir(&directory).unwrap();
    let mut pages: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    pages.sort();
    let mut expected = vec!["keyward.1".to_owned()];
    for command in list_commands(&[]) {
        expected.push(format!("keyward-{command}.1"));
        for inner in list_commands(&[&command]) {
            expected.push(format!("keyward-{command}-{inner}.1"));
        }
    }
    expected.sort();
    assert_eq!(pages, expected);
    assert!(pages.contains(&"keyward-root-key-create.1".to_owned()), "{pages:?}");
    let main = std::fs::read_to_string(directory.join("keyward.1")).unwrap();
    assert_eq!(main, stdout(keyward_command().arg("man")));
}

#[test]
fn man_creates_the_directory_or_names_the_unusable_one() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("a-file");
    std::fs::write(&file, "not a directory").unwrap();
    let write = |directory: &Path| {
        keyward_command().args(["man", "--directory"]).arg(directory).output().unwrap()
    };

    let created = write(&data.path().join("new/man1"));

    assert!(created.status.success(), "{created:?}");
    assert!(data.path().join("new/man1/keyward.1").exists());
    assert_rejected(&write(&file), 1, &["failed to write man pages", "a-file"]);
}
