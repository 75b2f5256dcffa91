//! Tests the help: the options of a command come first, then the global ones, then the settings.

use super::*;

/// Prints the help of a command. A setting has a value, as it has for an operator who asks for help.
fn help(arguments: &[&str]) -> String {
    let mut command = keyward_command();
    command.args(arguments).env("KEYWARD_ROOT_KEY", ROOT_KEY);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Fails unless the text contains the parts in this order.
#[track_caller]
fn contains_in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else {
            panic!("{part:?} is not there, or too early, in {text}");
        };
        rest = after;
    }
}

#[test]
fn help_shows_own_options_then_global_ones_then_settings() {
    let create = help(&["root-key", "create", "--help"]);
    let own = ["\nOptions:\n", "--permission", "--all", "--workspace", "--name"];
    let shared = ["--json", "--help", "\nSettings:\n", "--listen", "--oidc-only"];
    contains_in_order(&create, &[&own[..], &shared].concat());

    let main = help(&["--help"]);
    let first = ["\nCommands:\n", "root-key", "\nOptions:\n"];
    contains_in_order(&main, &[&first[..], &shared].concat());
}

#[test]
fn short_help_omits_settings_and_says_where_they_are() {
    for command in [&[][..], &["serve"], &["root-key"], &["root-key", "create"]] {
        let short = help(&[command, &["-h"]].concat());
        let full = help(&[command, &["--help"]].concat());

        assert!(!short.contains("KEYWARD_") && !short.contains("Settings:"), "{short}");
        assert!(short.contains("Run with --help to list the settings"), "{short}");
        assert!(short.lines().count() < 40, "{short}");
        assert!(full.contains("KEYWARD_LISTEN") && full.contains("[default: 127.0.0.1:3000]"));
        assert!(!full.contains("Run with --help"), "{full}");
    }
}

#[test]
fn help_shows_defaults_and_allowed_words_of_settings() {
    let help = help(&["--help"]);

    let seconds = ["--drain-seconds", "[env: KEYWARD_DRAIN_SECONDS=]", "[default: 5]"];
    let format = ["--log-format", "[default: text]", "[possible values: text, json]"];
    let kept = ["--verifications-kept", "[default: raw=90,minute=90,hour=90,day=365,month=1095]"];
    let role = ["--oidc-default-role", "[default: none]", "[possible values: none, viewer, admin]"];
    contains_in_order(&help, &[&seconds[..], &format, &kept, &role].concat());
}

#[test]
fn help_contains_no_secrets() {
    assert!(!help(&["--help"]).contains(ROOT_KEY));
}
