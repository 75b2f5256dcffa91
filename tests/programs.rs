//! Tests the installation of missing programs by scripts (`deploy/programs.sh`), with commands in front of the `PATH` that record
//! their calls.

use std::fs::Permissions;
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const STAND_INS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/without-services");

/// A directory with commands that record their calls and do nothing else.
struct Recorder {
    directory: TempDir,
}

impl Recorder {
    fn of(commands: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for command in commands {
            let path = directory.path().join(command);
            let text = "#!/bin/sh\necho \"$(basename \"$0\") $*\" >>\"$(dirname \"$0\")/calls\"\n";
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        }
        Self { directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns one line for each call.
    fn calls(&self) -> String {
        std::fs::read_to_string(self.path().join("calls")).unwrap_or_default()
    }
}

fn search_path(first: &[&Path]) -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap();
    let first = first.iter().map(PathBuf::from);
    std::env::join_paths(first.chain(std::env::split_paths(&path))).unwrap()
}

/// Runs a script that needs a program which does not exist, outside of a container, with a terminal if there is an
/// answer to its question.
fn need_missing_program(
    recorder: &Recorder,
    arguments: &[&str],
    ci: Option<&str>,
    answer: Option<&str>,
) -> Output {
    let script = format!(
        ". deploy/programs.sh; is_container() {{ false; }}; has_terminal() {{ {}; }}; read_yes \"$@\"; \
        need_programs compiler no-such-program; echo reached",
        answer.is_some()
    );
    let mut command = Command::new("bash");
    command.args(["-euc", &script, "bash"]).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
    command.env("PATH", search_path(&[recorder.path()])).env_remove("CI");
    if let Some(ci) = ci {
        command.env("CI", ci);
    }
    let mut input = tempfile::tempfile().unwrap();
    input.write_all(answer.unwrap_or_default().as_bytes()).unwrap();
    input.rewind().unwrap();
    command.stdin(input).output().unwrap()
}

#[test]
fn nothing_is_installed_without_consent_and_the_command_is_shown() {
    for answer in ["n\n", "no\n", "yess\n", ""] {
        let recorder = Recorder::of(&["apt-get", "sudo", "brew"]);

        let output = need_missing_program(&recorder, &[], None, Some(answer));

        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(output.stdout.is_empty());
        assert!(text.contains("Missing programs: no-such-program."), "{text}");
        let command = "apt-get install --no-install-recommends no-such-program\n";
        assert!(text.contains(command), "{text}");
        assert!(text.contains("--yes"), "{text}");
        assert_eq!(recorder.calls(), "", "{answer:?}");
    }
}

#[test]
fn packages_are_installed_without_services_after_consent_or_without_a_terminal() {
    let no = Some("n\n");
    for (arguments, ci, answer) in [
        (&["--yes"][..], None, no),
        (&[][..], Some("true"), no),
        (&[][..], None, Some("\n")),
        (&[][..], None, Some("Yes\n")),
        (&[][..], None, None),
    ] {
        let recorder = Recorder::of(&["apt-get"]);
        let sudo = recorder.path().join("sudo");
        std::fs::write(&sudo, "#!/bin/sh\nexec \"$@\"\n").unwrap();
        std::fs::set_permissions(&sudo, Permissions::from_mode(0o755)).unwrap();

        let output = need_missing_program(&recorder, arguments, ci, answer);

        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "the program is still missing: {text}");
        assert!(text.contains("Still missing: no-such-program."), "{text}");
        let calls = recorder.calls();
        let install = calls.lines().last().unwrap();
        assert!(install.ends_with(" no-such-program"), "{calls}");
        assert!(install.contains(&format!("DPkg::Path={STAND_INS}:/usr/sbin:")), "{calls}");
    }
}

#[test]
fn stand_ins_start_and_enable_no_service() {
    let commands = [
        "invoke-rc.d",
        "deb-systemd-invoke",
        "pg_createcluster",
        "deb-systemd-helper",
        "update-rc.d",
    ];
    let recorder = Recorder::of(&commands);
    let run = |command: &str, arguments: &[&str]| {
        let mut child = Command::new(command);
        child.args(arguments).env("PATH", search_path(&[Path::new(STAND_INS), recorder.path()]));
        child.status().unwrap().code()
    };

    assert_eq!(run("invoke-rc.d", &["--skip-systemd-native", "redis-server", "start"]), Some(0));
    assert_eq!(run("deb-systemd-invoke", &["start", "haproxy.service"]), Some(0));
    assert_eq!(run("pg_createcluster", &["15", "main"]), Some(0));
    assert_eq!(run("deb-systemd-helper", &["--quiet", "was-enabled", "haproxy.service"]), Some(1));
    assert_eq!(recorder.calls(), "");
    assert_eq!(run("deb-systemd-helper", &["update-state", "haproxy.service"]), Some(0));
    assert_eq!(run("update-rc.d", &["haproxy", "defaults"]), Some(0));
    assert_eq!(run("update-rc.d", &["haproxy", "remove"]), Some(0));

    let expected = "deb-systemd-helper update-state haproxy.service\n\
        update-rc.d haproxy defaults-disabled\nupdate-rc.d haproxy remove\n";
    assert_eq!(recorder.calls(), expected);
}
