//! Tests what commands print besides their data: tables, styles and errors about incorrect usage.

use super::deployments::Deployment;
use super::*;

#[test]
fn tables_have_a_header_and_aligned_columns() {
    let deployment = Deployment::embedded();
    assert_eq!(deployment.text(&["api", "list"]), "No APIs.\n");
    for name in ["payments", "a much longer name", "請求書"] {
        deployment.json(&["api", "create", "--name", name]);
    }

    let text = deployment.text(&["api", "list"]);

    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>(),
        ["ID", "NAME", "CREATED", "SETTINGS"]
    );
    let column = lines[0].find("NAME").unwrap();
    for line in &lines[1..] {
        assert!(line.starts_with("api_") && line.as_bytes()[column - 1] == b' ', "{text}");
        assert!(!line[column..].starts_with(' ') && !line.ends_with(' '), "{text}");
    }
}

#[test]
fn styles_are_used_only_on_a_terminal_and_never_with_no_color() {
    let deployment = Deployment::embedded();
    deployment.create_api();
    let list = |variables: &[(&str, &str)]| {
        let mut command = deployment.command();
        let output =
            command.envs(variables.iter().copied()).args(["api", "list"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let error = |variables: &[(&str, &str)]| {
        let mut command = deployment.command();
        let output =
            command.envs(variables.iter().copied()).args(["api", "get", "x"]).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    // As on a terminal.
    let forced = ("CLICOLOR_FORCE", "1");

    assert!(list(&[forced]).starts_with("\u{1b}[1mID "), "{:?}", list(&[forced]));
    assert!(error(&[forced]).starts_with("\u{1b}[31mkeyward:\u{1b}["), "{:?}", error(&[forced]));
    for text in [list(&[]), error(&[]), list(&[("NO_COLOR", "1")]), error(&[("NO_COLOR", "1")])] {
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
    assert!(!deployment.text(&["--help"]).contains('\u{1b}'));
}

#[test]
fn states_have_colors_on_a_terminal() {
    let deployment = Deployment::embedded();
    let api = deployment.create_api();
    deployment.create_key(&api, &["--name", "請求書"]);
    deployment.create_key(&api, &["--disabled"]);
    let print = |arguments: &[&str], variable: (&str, &str)| {
        let mut command = deployment.command();
        let output = command.args(arguments).env(variable.0, variable.1).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let (keys, doctor) = (["key", "list"], ["doctor"]);

    // As on a terminal.
    let colored = |arguments: &[&str]| print(arguments, ("CLICOLOR_FORCE", "1"));
    for state in ["\u{1b}[32mactive\u{1b}[0m", "\u{1b}[31mdisabled\u{1b}[0m"] {
        assert!(colored(&keys).contains(state), "{:?}", colored(&keys));
    }
    for state in ["\u{1b}[32mok      \u{1b}[0m ", "\u{1b}[33mwarning \u{1b}[0m "] {
        assert!(colored(&doctor).contains(state), "{:?}", colored(&doctor));
    }
    for arguments in [&keys[..], &doctor] {
        let plain = print(arguments, ("NO_COLOR", "1"));
        assert!(!plain.contains('\u{1b}') && plain.contains('\n'), "{plain:?}");
    }
}

#[test]
fn usage_error_names_what_is_missing_or_wrong_and_nothing_else() {
    let deployment = Deployment::embedded();
    let cases: [(&[&str], &str); 6] = [
        (&["workspace", "create"], "missing --name <NAME>"),
        (&["root-key", "create"], "missing --permission <PERMISSIONS>"),
        (&["replica", "forget"], "missing <ID>"),
        (&["api", "update"], "missing <ID>"),
        (&["fly"], "unrecognized subcommand 'fly'"),
        (&["api", "list", "--fly"], "unexpected argument '--fly' found"),
    ];

    for (arguments, sentence) in cases {
        let output = deployment.run(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert_eq!(text, format!("keyward: {sentence}\n"), "{arguments:?}");
    }
    let value = deployment.run(&["api", "update", "api_1", "--default-bytes", "15"]);
    assert_rejected(&value, 2, &["'15'", "--default-bytes", "15 is not in 16..=255"]);
    let tip = deployment.run(&["api", "lst"]);
    assert_rejected(&tip, 2, &["unrecognized subcommand 'lst'; tip:", "'list'"]);
}

#[test]
fn nouns_agree_with_their_number() {
    let deployment = Deployment::embedded();
    assert_eq!(deployment.text(&["credits", "release", "--all"]), "released 0 credits\n");
    let api = deployment.create_api();
    let keys = deployment.file("keys.jsonl", "{\"key\": \"an_old_key\"}\n");
    let check = ["import", &keys, "--api", &api, "--dry-run"];
    assert_eq!(deployment.text(&check), "1 key can be imported\n");
}

#[test]
fn root_key_expires_when_the_command_says() {
    let deployment = Deployment::embedded();
    let create = |expires: &str| {
        deployment.run(&["root-key", "create", "--all", "--expires", expires, "--json"])
    };
    let created = parse_json(&create("2030-01-31T12:00:00Z"));

    let listed = deployment.json(&["root-key", "list"]);

    let key = listed.as_array().unwrap().iter().find(|key| key["keyId"] == created["keyId"]);
    assert_eq!(key.unwrap()["expires"], 1_896_091_200_000_i64);
    let text = deployment.text(&["root-key", "list"]);
    assert!(text.contains("2030-01-31T12:00:00Z  all"), "{text}");
    assert_rejected(&create("soon"), 2, &["--expires", "90d"]);
}

#[test]
fn root_key_create_rejects_fields_out_of_bounds() {
    let deployment = Deployment::embedded();
    let permission = format!("api.{}.verify_key", deployment.create_api());
    let create = |count: usize, more: &[&str]| {
        let permissions = ["--permission", &permission].repeat(count);
        deployment.run(&[&["root-key", "create"][..], &permissions, more].concat())
    };
    let name = "n".repeat(256);
    assert!(create(500, &["--name", &name[1..]]).status.success());

    assert_rejected(&create(501, &[]), 2, &["1 to 500 permissions"]);
    assert_rejected(&create(1, &["--name", &name]), 2, &["at most 255 characters"]);
    assert_rejected(&create(1, &["--expires", "2020-01-31T12:00:00Z"]), 2, &["in the future"]);
    for missing in ["api.api_none.verify_key", "ratelimit.rlns_none.limit"] {
        let id = missing.split('.').nth(1).unwrap();
        assert_rejected(&create(1, &["--permission", missing]), 2, &[id, "does not exist"]);
    }
}

#[test]
fn command_fails_when_its_output_cannot_be_written() {
    let deployment = Deployment::embedded();
    let api = deployment.create_api();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for arguments in [
        &["key", "create", "--api", &api] as &[&str],
        &["key", "create", "--api", &api, "--json"],
        &["api", "list"],
        &["export", "--api", &api],
        &["completions", "bash"],
    ] {
        let output = deployment.command().args(arguments).stdout(full()).output().unwrap();

        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains("failed to write to standard output: No space left"), "{error}");
    }
}
