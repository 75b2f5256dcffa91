//! Tests imports of keys and of files that are large.

use std::fs::File;
use std::process::Stdio;

use foundation::secret::KeyHash;

use super::deployments::Deployment;
use super::*;
use crate::support::memory::growth_kb;

/// The maximum size of what is read at once.
const READ_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The maximum growth of a command that imports a larger file.
const GROWTH_MAX_KB: u64 = 40 * 1024;

/// Returns the lines of two keys of another system, with blanks between them, that have this many bytes.
fn padded_lines(bytes: usize) -> String {
    let (first, last) = ("{\"key\": \"an_old_key_1\"}\n", "{\"key\": \"an_old_key_2\"}\n");
    let blank = format!("{}\n", " ".repeat(1024 * 1024 - 1));
    let padding = bytes - first.len() - last.len();
    let blanks = blank.repeat(padding / blank.len());
    format!("{first}{blanks}{}{last}", " ".repeat(padding % blank.len()))
}

#[test]
fn file_with_lines_is_imported_when_it_is_larger_than_what_is_read_at_once() {
    let deployment = Deployment::embedded();
    let api = deployment.create_api();
    let file = deployment.file("keys.jsonl", &padded_lines(READ_BYTES_MAX + 1));

    let checked = deployment.json(&["import", &file, "--api", &api, "--dry-run"]);
    let imported = deployment.json(&["import", &file, "--api", &api]);

    assert_eq!((&checked["keys"], &imported["imported"]), (&json!(2), &json!(2)));
}

#[test]
fn import_rejects_what_is_read_at_once_when_it_is_larger_than_64_mib() {
    let deployment = Deployment::embedded();
    let check = |path: &str, stdin: Stdio| {
        let mut command = deployment.command();
        command.args(["import", path, "--api", "api_1", "--dry-run"]).stdin(stdin);
        command.output().unwrap()
    };
    let check_stdin = |bytes: usize| {
        let file = deployment.file("keys.jsonl", &padded_lines(bytes));
        check("-", File::open(file).unwrap().into())
    };
    let check_list = |bytes: usize| {
        let key = "[{\"key\": \"an_old_key\"}";
        let list = format!("{key}{}]", " ".repeat(bytes - key.len() - 1));
        check(&deployment.file("keys.json", &list), Stdio::null())
    };

    for checked in [check_stdin(READ_BYTES_MAX), check_list(READ_BYTES_MAX)] {
        assert!(checked.status.success(), "{checked:?}");
    }
    let larger = check_stdin(READ_BYTES_MAX + 1);
    assert_rejected(&larger, 2, &["FILE", "- is larger than 67108864 bytes", "write it to a file"]);
    let larger = check_list(READ_BYTES_MAX + 1);
    assert_rejected(&larger, 2, &["FILE", "list", "67108864 bytes", "one JSON object per line"]);
}

#[test]
fn import_needs_less_memory_than_its_file() {
    let deployment = Deployment::embedded();
    let text = "x".repeat(500_000);
    let line = |n| format!("{{\"key\": \"a_large_key_{n}\", \"meta\": {{\"a\": \"{text}\"}}}}\n");
    let lines: String = (0..140).map(line).collect();
    assert!(lines.len() > READ_BYTES_MAX, "{} bytes", lines.len());
    let file = deployment.file("keys.jsonl", &lines);
    let mut command = deployment.command();
    command.args(["import", &file, "--api", "api_1", "--dry-run"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (output, grown_kb) =
        runtime.block_on(growth_kb(&[pid], async move { child.wait_with_output().unwrap() }));

    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "140 keys can be imported\n");
    assert!(grown_kb < GROWTH_MAX_KB, "it grew by {grown_kb} kB");
}

#[test]
fn key_is_exported_and_imported_when_its_permissions_have_the_longest_names() {
    let [from, to] = Deployment::both();
    let (api, target) = (from.create_api(), to.create_api());
    let slugs: Vec<_> = (0..1_000).map(|n| format!("{n:04}{}", "𝄞".repeat(508))).collect();
    let meta = json!({ "a": "x".repeat(100_000) });
    let hash = KeyHash::compute("a_large_key").to_base64();
    let line = json!({ "hash": hash, "permissions": slugs, "meta": meta }).to_string();
    assert!(line.len() > 2 * 1024 * 1024, "{} bytes", line.len());

    let imported = from.json(&["import", &from.file("key.jsonl", &line), "--api", &api]);
    let file = from.file("keys.jsonl", &from.text(&["export", "--api", &api]));
    let moved = to.json(&["import", &file, "--api", &target]);

    assert_eq!((&imported["imported"], &moved["imported"]), (&json!(1), &json!(1)));
    let exported = to.text(&["export", "--api", &target]);
    let exported: Value = serde_json::from_str(&exported).unwrap();
    assert_eq!(exported["permissions"].as_array().unwrap().len(), slugs.len());
    assert_eq!((&exported["hash"], &exported["meta"]), (&json!(hash), &meta));
}

#[test]
fn error_of_an_invalid_file_lists_five_faults_and_names_bounds() {
    let deployment = Deployment::embedded();
    let api = deployment.create_api();
    let import = |text: &str| {
        let file = deployment.file("keys.jsonl", text);
        deployment.run(&["import", &file, "--api", &api])
    };

    let above = "{\"key\": \"a\", \"credits\": {\"remaining\": 9223372036854775808}}";
    assert_rejected(&import(above), 2, &["key 1: credits.remaining", "9223372036854775807"]);
    let faulty = "{\"key\": \"a\", \"name\": \"\"}\n".repeat(7);
    assert_rejected(&import(&faulty), 2, &["key 5: name", "; and 2 more"]);
}
